"""One tuning run while it goes: everything measured passes through it, into the log and the account of time."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from advisor import __version__
from advisor.codec import digest, to_json
from advisor.device import is_device
from advisor.kernels.executor import Ask, Executor
from advisor.kernels.gpu.messages import COMPILERS
from advisor.records import STATUSES, Build, Choice, Measurement, Pairs, Problem, Verdict, pairs
from advisor.search import drift, protocol
from advisor.search.drift import Watch
from advisor.search.known import DRIFT, ENERGY, NOTHING, STOLEN, Incumbents, Known, known, recorded
from advisor.search.log import SCHEMA, Log
from advisor.search.pace import Pace
from advisor.search.plan import DEVICE_SPEED
from advisor.search.race import GRACE_S, Heat, RaceOptions, RaceSample, race
from advisor.search.request import Outcome, Progress, Regret, Report, Request, space_hash
from advisor.search.samples import p25
from advisor.search.seeds import call_s
from advisor.search.space import cpu_budget

SCARCE_CALLS = 800
"""Where there is no time for so many calls, as they might be, a first look takes one sample, and none is repeated where
something disturbed it, in races too: a race of a few choices tells more than many samples of one."""


FIRST_RACE_SHARE = 0.1
"""Of the budget, what the first race of a run may take once the budget has ended: without one there is no table. It is
a part of what comes after the search."""


class Limits(NamedTuple):
    """What a race may take: until when on the run's clock, rounds (None: the usual), samples, length of a sample."""

    until: float = math.inf
    rounds: int | None = None
    samples: float = math.inf
    sample_s: float = RaceOptions().sample_s


Clock = Callable[[], float]


class Run:
    """A run's state. `deadline` is on `clock`, infinite without a budget. The caller owns executor and log."""

    def __init__(self, request: Request, executor: Executor, log: Log, progress: Progress, clock: Clock) -> None:
        self.request, self.executor, self.log = request, executor, log
        self.progress, self.clock = progress, clock
        self.begun = clock()
        self.deadline = math.inf if request.options.budget_s is None else self.begun + request.options.budget_s
        self.known: Known = known(log.path, request) if request.options.resume else NOTHING
        self.incumbents: Incumbents = {}
        self.looks: dict[Problem, dict[Choice, Measurement]] = {}
        self.called: set[Build] = set()  # by this process: what a resumed run remembers must load once more
        self.best_ns: dict[Problem, float] = {}
        self.verdicts: list[Verdict] = []
        self.stolen: list[Measurement] = []
        self.energy: list[Measurement] = []
        self.regrets: list[Regret] = []
        self.reports: list[Report] = []
        self.notes: list[str] = list(self.known.notes)
        self.kernel_s = 0.0
        self.compile_s = 0.0
        self.watches: list[Watch] = []
        self._watch: Watch | None = None
        self._races = 0
        cpus = cpu_budget(request.machine)
        self._pace = Pace(min(COMPILERS, cpus) if is_device(request.machine.limits_id) else cpus, request.build_s)

    # --- the log ---

    def open_session(self) -> None:
        """Write the session record, with what earlier runs picked."""
        request = self.request
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        record = {
            "kind": "session",
            "schema": SCHEMA,
            "session": request.session,
            "time": now,
            "hardware_id": request.machine.hardware_id,
            "limits_id": request.machine.limits_id,
            "environment": to_json(dict(request.environment)),
            "protocol": protocol.VERSION,
            "advisor": __version__,
            "options": to_json(request.options),
            "others": to_json(dict(request.others)),
            "space_hash": space_hash(request),
            "incumbents": recorded(self.incumbents),
        }
        self.log.append(record)

    def _write(self, kind: str, **fields: Any) -> None:
        self.log.append({"kind": kind, "session": self.request.session, **fields})

    # --- first looks ---

    def out_of_time(self, until: float = math.inf) -> bool:
        """Whether nothing more may start: the budget or this part of it is used up."""
        return self.clock() >= min(until, self.deadline)

    def race_deadline(self) -> float:
        """When a race that begins now must end."""
        if self.verdicts:
            return self.deadline
        return max(self.deadline, self.clock() + FIRST_RACE_SHARE * (self.request.options.budget_s or 0.0))

    def deadline_before(self, share: float) -> float:
        """The deadline less a share of the budget that is kept for what comes after."""
        return self.deadline - share * (self.request.options.budget_s or 0.0)

    def remember(self, measurement: Measurement) -> None:
        """Take a measurement of an earlier session as this run's."""
        self.looks.setdefault(measurement.problem, {})[measurement.choice] = measurement
        value = value_of(measurement)
        if value is not None:
            self.best_ns[measurement.problem] = min(value, self.best_ns.get(measurement.problem, math.inf))

    def look(self, problem: Problem, choice: Choice, phase: str = "search") -> Measurement:
        """Take a first look at a choice, or the one that was taken before.

        Args:
            problem, choice: what to measure; far slower than the best so far is given up after one sample.
            phase: written to the log.
        """
        before = self.looks.get(problem, {}).get(choice)
        if before is not None:
            return before
        options = self.request.options
        best_ns = self.best_ns.get(problem)
        left_s = self._left_s()
        limit_s = min(options.trial_limit_s, left_s)
        ask = protocol.look(options.quick, limit_s, best_ns)
        if self._is_scarce(problem):
            ask = ask._replace(samples=1, quiet=False)
        ask = ask if math.isinf(left_s) else ask._replace(inputs_s=left_s)
        watch = self._watched(problem)
        measurement = watch.mark(finite(self.executor.measure(problem, choice, ask)))
        self.called.add(choice.build)
        self._account(measurement)
        ended = limit_s < options.trial_limit_s or self.out_of_time()
        unbuilt = measurement.status == "skipped" and self.out_of_time()
        if unbuilt or (measurement.status == "timeout" and ended):  # the budget's end, not the choice's
            return measurement._replace(status="skipped", reason="the budget ended before it did")
        self.remember(measurement)
        self._write("trial", choice_id=digest(choice), phase=phase, measurement=to_json(measurement))
        return measurement

    def _is_scarce(self, problem: Problem) -> bool:
        """Whether calls are so long that there is no time to repeat any."""
        speed = DEVICE_SPEED if is_device(self.request.machine.limits_id) else 1.0
        return self.deadline - self.clock() < SCARCE_CALLS * call_s(self.request.spec, problem) / speed

    def _left_s(self) -> float:
        """What one measurement may take before the budget has ended, by a moment of grace."""
        return max(0.0, self.deadline - self.clock()) + GRACE_S

    def _watched(self, problem: Problem) -> Watch:
        """The watch of a problem, which begins with its first look and with the first one after a race."""
        if self._watch is None or self._watch.problem != problem:
            self._watch = Watch(problem, self.clock())
            self.watches.append(self._watch)
        return self._watch

    def _read_reference(self, problem: Problem) -> None:
        """Measure the reference of a search under way where that is due: the choice that was best when it first was.

        Between batches of looks, as the reference has a team of its own, and changing teams takes longer than a look.
        """
        watch = self._watch
        if watch is None or watch.problem != problem:
            return
        if watch.choice is None:
            looks = self.looks.get(problem, {}).values()
            known = [(value, repr(look.choice), look) for look in looks if (value := value_of(look))]
            if known:
                best = min(known, key=lambda entry: entry[:2])[2]
                watch.refer_to(best.choice, best.seconds - best.compile_s)
        if watch.choice is None or not watch.is_due(self.clock()):
            return
        begun, ask = self.clock(), protocol.reading(min(self.request.options.trial_limit_s, self._left_s()))
        found = finite(self.executor.measure(problem, watch.choice, ask))
        self._account(found)
        watch.read(value_of(found), self.clock() - begun)
        self._write("trial", choice_id=digest(watch.choice), phase=DRIFT, measurement=to_json(found))

    def beside(self, problem: Problem, choice: Choice, ask: Ask) -> None:
        """Measure a choice beside a busy neighbour, unless the log has that already."""
        measurement = next((m for m in self.known.stolen.get(problem, ()) if m.choice == choice), None)
        if measurement is None:
            measurement = finite(self.executor.measure(problem, choice, ask))
            self._account(measurement)
            self._write("trial", choice_id=digest(choice), phase=STOLEN, measurement=to_json(measurement))
        self.stolen.append(measurement)

    def metered(self, problem: Problem, choice: Choice, ask: Ask, read: Callable[[Choice], float | None]) -> None:
        """Measure a choice with a counter of energy read around it, unless the log has that already."""
        measurement = next((m for m in self.known.energy.get(problem, ()) if m.choice == choice), None)
        if measurement is None:
            self.executor.measure(problem, choice, Ask(1, ask.limit_s))  # inputs and checks are none of its energy
            begun, before = self.clock(), read(choice)
            measurement = finite(self.executor.measure(problem, choice, ask))
            after, seconds = read(choice), self.clock() - begun
            used = None if before is None or after is None else after - before
            known = {**dict(measurement.conditions), "joules": used, "metered_s": seconds}
            measurement = measurement._replace(conditions=pairs(known))
            self._account(measurement)
            self._write("trial", choice_id=digest(choice), phase=ENERGY, measurement=to_json(measurement))
        self.energy.append(measurement)

    def prepare(self, problem: Problem, choices: Sequence[Choice]) -> tuple[Choice, ...]:
        """Let an executor that can compile many choices at once do so; the time counts as compiling.

        What cannot be compiled before the budget ends is left out. Then, in a search, look whether the machine has
        drifted since the last batch.

        Returns:
            Those that were not left out.
        """
        compile_many, ready = getattr(self.executor, "prepare", None), tuple(choices)
        if compile_many is not None and choices:
            begun = self.clock()
            ready = self._pace.in_time(choices, self.deadline - begun)
            compile_many(problem, ready)
            self.compile_s += self.clock() - begun
            self._pace.took(ready, self.clock() - begun)
        self._read_reference(problem)
        return ready

    def ready(self, problem: Problem) -> None:
        """Let an executor that can compile ahead start its worker; the time counts as compiling."""
        compile_many = getattr(self.executor, "prepare", None)
        if compile_many is not None:
            begun = self.clock()
            compile_many(problem, ())
            self.compile_s += self.clock() - begun

    def build_s(self, choices: Sequence[Choice]) -> float:
        """Seconds that compiling these choices may take; 0 where the executor does not compile many at once."""
        return self._pace.seconds(choices) if hasattr(self.executor, "prepare") else 0.0

    def _account(self, measurement: Measurement) -> None:
        self.kernel_s += measurement.kernel_s
        self.compile_s += measurement.compile_s

    # --- races ---

    def race(self, heat: Heat, limits: Limits) -> tuple[Verdict | None, dict[Choice, list[float]]]:
        """Run a race within limits, or find its verdict in the log.

        Returns:
            The verdict (None when nothing could be raced) and the samples, none when it came from the log.
        """
        everybody = frozenset((*heat.choices, *heat.failed))
        before = self.known.verdicts.get((heat.purpose, heat.problem, everybody))
        if before is not None:
            return before, {}
        self._races += 1
        self._watch = None
        name = f"{self.request.session}-{self._races}"
        samples: dict[Choice, list[float]] = {choice: [] for choice in heat.choices}

        def listen(sample: RaceSample) -> None:
            self._race_sample(name, heat, sample)
            self.called.add(sample.choice.build)
            samples[sample.choice].extend(sample.measurement.samples_ns)

        verdict = race(self.executor, heat, self._race_options(heat, limits), listen)
        if verdict is not None:
            self._write("verdict", race=name, verdict=to_json(verdict))
        self.log.sync()
        return verdict, samples

    def _race_options(self, heat: Heat, limits: Limits) -> RaceOptions:
        options = self.request.options
        return RaceOptions(
            seed=int(digest((options.seed, heat.purpose, heat.problem)), 16) % 2**32,
            rounds=limits.rounds or (protocol.QUICK_RACE_ROUNDS if options.quick else protocol.RACE_ROUNDS),
            samples=limits.samples,
            sample_s=limits.sample_s,
            limit_s=options.trial_limit_s,
            deadline=min(limits.until, self.race_deadline()),
            clock=self.clock,
            quiet=not self._is_scarce(heat.problem),
            precise=is_device(self.request.machine.limits_id),
        )

    def _race_sample(self, name: str, heat: Heat, sample: RaceSample) -> None:
        measurement = sample.measurement
        self._account(measurement)
        self._write(
            "race",
            race=name,
            purpose=heat.purpose,
            round=sample.round,
            order=sample.order,
            problem_id=digest(heat.problem),
            choice_id=digest(sample.choice),
            status=measurement.status,
            sample_ns=measurement.samples_ns[0] if measurement.samples_ns else None,
            rejected=bool(dict(measurement.conditions).get("kept_noisy")),
        )

    # --- the answer ---

    def outcome(self, interrupted: bool) -> Outcome:
        """What the run found so far."""
        trials = tuple(m for looks in self.looks.values() for m in looks.values())
        counts = {status: sum(m.status == status for m in trials) for status in STATUSES}
        total = self.clock() - self.begun
        return Outcome(
            verdicts=tuple(self.verdicts),
            trials=trials,
            counts=pairs(counts),
            seconds=self._seconds(total),
            space_size=sum(report.space_size for report in self.reports),
            interrupted=interrupted,
            regrets=tuple(self.regrets),
            reports=tuple(self.reports),
            notes=tuple(dict.fromkeys([*self.notes, *filter(None, (watch.note() for watch in self.watches))])),
            stolen=tuple(self.stolen),
            energy=tuple(self.energy),
            build_s=self._pace.measured_s(),
        )

    def _seconds(self, total: float) -> Pairs:
        overhead = max(0.0, total - self.kernel_s - self.compile_s)
        return pairs({"total": total, "in_kernel": self.kernel_s, "compile": self.compile_s, "overhead": overhead})


def value_of(measurement: Measurement) -> float | None:
    """The figure of a first look in ns, corrected where clock or heat had drifted; None when it failed."""
    if measurement.status != "ok" or not measurement.samples_ns:
        return None
    return p25(measurement.samples_ns) / drift.correction(measurement)


def ranked(measured: Sequence[Measurement]) -> list[Measurement]:
    """First looks that succeeded, best first; equals in the order of their choices."""
    good = [(value_of(m), repr(m.choice), m) for m in measured]
    return [m for value, _, m in sorted(((v, r, m) for v, r, m in good if v is not None), key=lambda x: x[:2])]


def finite(measurement: Measurement) -> Measurement:
    """The measurement with an error that is no number as unknown; the log is strict JSON."""
    if measurement.error is None or math.isfinite(measurement.error):
        return measurement
    reason = measurement.reason or f"the error against the reference is {measurement.error}"
    return measurement._replace(error=None, reason=reason)

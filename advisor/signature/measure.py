"""Measuring a signature: the three kernels of this package and the read floor's, with every team worth a look.

Each figure comes from bench workers like any trial: checked first, pinned, samples repeated when a thread was held off
its CPU. What there is no time for is listed as missing, the most telling teams first.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from advisor.kernels import registry
from advisor.kernels.available import c_compiler
from advisor.kernels.executor import Ask, Executor
from advisor.kernels.memory import USABLE, need_bytes, room_bytes
from advisor.kernels.pool import WorkerPool
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, knob_sets, variants
from advisor.records import Build, Choice, Machine, Measurement, Pairs, Problem, Process, Team
from advisor.search.others import load, stat
from advisor.search.protocol import FIGURE_SAMPLES, LOOK_SAMPLES
from advisor.search.samples import summary
from advisor.search.space import Toolchain, cpu_budget, teams
from advisor.signature import quiet
from advisor.signature.records import ForkJoin, Peak, Read, Signature
from advisor.words import many

if TYPE_CHECKING:
    from advisor.search.request import Progress

LIMIT_S = 18.0
"""Time for all of it; a measurement that has begun may go over a little."""

SHARES = (0.3, 0.8, 1.0)
"""By when fork and join, reading, and arithmetic must be done: each may use what the one before it left."""

ONE_LIMIT_S = 15.0
FORK_JOIN_N = 256
"""Numbers to copy: a kilobyte, under a tenth of a microsecond."""

ROWS = 8
"""Rows a thread of the flop rate: 20 million multiply-adds of single numbers, about a millisecond."""

READ_SHAPE = {"batch": 1, "heads": 1, "kv_heads": 1, "head_dim": 64}
ROW_BYTES = 2 * 4 * READ_SHAPE["head_dim"]
READ_BYTES = 512 << 20
"""Memory is read in four times all last-level caches, and no more than this."""

UNKNOWN_CACHE_BYTES = 64 << 20
"""Last-level cache where its size is unknown: more than most have."""

WAITS = ("default", "passive")

_HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (os.path.join(_HERE, "kernels"), os.path.join(os.path.dirname(_HERE), "validate", "kernels"))
"""Where the kernels lie: those of this package, and the read floor of the validation. Nobody tunes them."""


class Bench:
    """One run: the machine, the clock, what was measured and what is missing."""

    def __init__(self, machine: Machine, progress: Progress, open_pool: Callable[..., Executor] = WorkerPool) -> None:
        self.machine = machine
        self.progress = progress
        found = c_compiler()
        self.tool = Toolchain(found.name, found.runtime)
        self._start = self._until = time.monotonic()
        self.measured: list[Measurement] = []
        self.failed: list[str] = []
        self.untimed: Counter[str] = Counter()
        self._open = open_pool

    def allow(self, share: float) -> None:
        """The next measurements may go on until this share of the whole time is used."""
        self._until = self._start + share * LIMIT_S

    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._until

    def missing(self) -> tuple[str, ...]:
        """Sentences on what could not be measured."""
        late = (f"{kernel}: no time for {many(count, 'measurement')} of it" for kernel, count in self.untimed.items())
        return (*self.failed, *late)

    def pool(self, kernel: str) -> tuple[KernelSpec, Variant, Executor]:
        """Spec, the one variant, and an executor of a kernel; the caller closes it."""
        spec, (variant,) = registry.spec(kernel, FOLDERS), variants(kernel, FOLDERS)
        return spec, variant, self._open(self.machine, spec, (variant,))

    def take(self, pool: Executor, problem: Problem, choice: Choice, samples: int) -> tuple[float, ...]:
        """Samples of one choice; none, with a note, when it failed or the time is up."""
        team = choice.team or Team(1, "")
        what = f"{problem.kernel} with {many(team.threads, 'thread')}, placement {team.placement or '(as it stands)'}"
        if self.late():
            self.untimed[problem.kernel] += 1
            return ()
        found = pool.measure(problem, choice, Ask(samples, ONE_LIMIT_S))
        self.measured.append(found)
        self.progress.advance(what)
        if found.status != "ok":
            self.failed.append(f"{what}: {found.status}, {found.reason}")
        return found.samples_ns if found.status == "ok" else ()


def signature(machine: Machine, progress: Progress, open_pool: Callable[..., Executor] = WorkerPool) -> Signature:
    """Measure the signature of the machine at hand.

    Args:
        machine: as probed just now.
        progress: told of every step.
        open_pool: makes the executor of a kernel: (machine, spec, variants).

    Raises:
        BadInput: there is no C compiler with OpenMP.
    """
    bench, start, load_1min, before = Bench(machine, progress, open_pool), time.monotonic(), load(), stat()
    crowd = ordered(machine)
    bench.allow(SHARES[0])
    joins = fork_joins(bench, crowd)
    bench.allow(SHARES[1])
    reads_found = reads(bench, crowd)
    bench.allow(SHARES[2])
    peaks_found = peaks(bench, one_each(crowd, machine))
    return Signature(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hardware_id=machine.hardware_id,
        limits_id=machine.limits_id,
        compiler=bench.tool.name,
        seconds=round(time.monotonic() - start, 2),
        read=reads_found,
        fork_join=joins,
        peak=peaks_found,
        quiet=quiet.judge(before, stat(), bench.measured, load_1min),
        missing=bench.missing(),
    )


def ordered(machine: Machine) -> tuple[Team, ...]:
    """The teams of the search, the most telling first: one thread, all, powers of two, the rest; simplest placements
    first among equals."""
    crowd, most = teams(machine), cpu_budget(machine)
    place = {team: i for i, team in enumerate(crowd)}

    def weight(team: Team) -> tuple[int, int]:
        count = team.threads
        return (0 if count == 1 else 1 if count == most else 2 if count & (count - 1) == 0 else 3), place[team]

    return tuple(sorted(crowd, key=weight))


def one_each(crowd: Sequence[Team], machine: Machine) -> tuple[Team, ...]:
    """One team for one thread, for every core, for the whole budget: arithmetic does not care where its cores are."""
    wanted = {1, machine.cores, cpu_budget(machine)}
    first = {team.threads: team for team in reversed(crowd)}
    return tuple(first[count] for count in sorted(wanted) if count in first)


# --- the three figures ---


def fork_joins(bench: Bench, crowd: Sequence[Team]) -> tuple[ForkJoin, ...]:
    """Fork-join cost of every team, with threads that spin and with threads that sleep between regions."""
    bench.progress.stage("fork and join", len(WAITS) * len(crowd))
    spec, variant, pool = bench.pool("fork_join")
    problem, found = spec.problem(FORK_JOIN_N), []
    try:
        for team in crowd:
            for wait in WAITS if team.threads > 1 else WAITS[:1]:
                samples = bench.take(pool, problem, _choice(variant, bench.tool, team, (), wait), FIGURE_SAMPLES)
                if samples:
                    found.append(ForkJoin(team.threads, team.placement, wait, summary(samples)))
    finally:
        pool.close()
    return tuple(found)


def peaks(bench: Bench, crowd: Sequence[Team]) -> tuple[Peak, ...]:
    """Peak flop rate in both dtypes, of the build that is fastest with the first team."""
    spec, variant, pool = bench.pool("peak")
    bench.progress.stage("flop rate", len(spec.dtypes) * (len(crowd) + len(knob_sets(variant, spec.problem(1)))))
    found = []
    try:
        for dtype in spec.dtypes:
            best: Pairs | None = None
            for team in crowd:
                problem = spec.problem(ROWS * team.threads, dtype)
                best = best if best is not None else _fastest(bench, (pool, variant), problem, team)
                if best is None:
                    break
                samples = bench.take(pool, problem, _choice(variant, bench.tool, team, best), FIGURE_SAMPLES)
                found += [_peak(problem, team, best, samples, spec.flops(problem))] if samples else []
    finally:
        pool.close()
    return tuple(found)


def reads(bench: Bench, crowd: Sequence[Team]) -> tuple[Read, ...]:
    """Read bandwidth of every team from memory and from the last-level cache, in the order that is fastest with one."""
    spec, variant, pool = bench.pool("read")
    found = []
    try:
        for level, problem in read_problems(spec, bench.machine):
            bench.progress.stage(f"read from {level}", len(crowd) + len(knob_sets(variant, problem)))
            best = _fastest(bench, (pool, variant), problem, crowd[0])
            for team in crowd if best is not None else ():
                samples = bench.take(pool, problem, _choice(variant, bench.tool, team, best or ()), FIGURE_SAMPLES)
                size = 4 * spec.elements(problem).read
                found += [_read(level, size, team, (best or (), samples))] if samples else []
    finally:
        pool.close()
    return tuple(found)


def read_problems(spec: KernelSpec, machine: Machine) -> Iterator[tuple[str, Problem]]:
    """What is read: four times all last-level caches as far as memory allows, and half of one of them."""
    one = machine.caches.l3 or machine.caches.l2
    reach = set(machine.allowed_cpus)
    count = sum(bool(reach.intersection(group)) for group in machine.l3_groups) or 1
    size, room = min(READ_BYTES, 4 * count * (one or UNKNOWN_CACHE_BYTES)), room_bytes()
    problem = spec.problem(max(1, size // ROW_BYTES), "float32", "warm", **READ_SHAPE)
    while room is not None and need_bytes(spec, problem, 2) > USABLE * room / 2 and problem.n > 1:
        problem = problem._replace(n=problem.n // 2)
    yield "memory", problem
    if machine.caches.l3:
        yield "l3", spec.problem(max(1, machine.caches.l3 // 2 // ROW_BYTES), "float32", "warm", **READ_SHAPE)


def _fastest(bench: Bench, tools: tuple[Executor, Variant], problem: Problem, team: Team) -> Pairs | None:
    """The knobs of the fastest build or order with one team, None when none ran."""
    pool, variant = tools
    choices = [_choice(variant, bench.tool, team, knobs) for knobs in knob_sets(variant, problem)]
    prepare = getattr(pool, "prepare", None)
    if prepare is not None and not bench.late():
        prepare(problem, choices)  # several compilations at a time
    timed = []
    for choice in choices:
        samples = bench.take(pool, problem, choice, LOOK_SAMPLES)
        if samples:
            timed.append((min(samples), choice.build.knobs))
    return min(timed)[1] if timed else None


def _choice(variant: Variant, tool: Toolchain, team: Team, knobs: Pairs, wait: str = "default") -> Choice:
    build = Build(variant.name, variant.source_hash, knobs, tool.name, "native")
    return Choice(build, team, Process(tool.runtime, wait, None, "default"))


class _Rate(NamedTuple):
    value: float
    ci95: tuple[float, float]


def _rate(amount: int, p25_ns: float, ci95_ns: tuple[float, float]) -> _Rate:
    """Amount a nanosecond: 10^9 a second. The ends of the interval change places."""
    return _Rate(round(amount / p25_ns, 3), (round(amount / ci95_ns[1], 3), round(amount / ci95_ns[0], 3)))


def _read(level: str, size: int, team: Team, taken: tuple[Pairs, tuple[float, ...]]) -> Read:
    knobs, samples = taken
    figures = summary(samples)
    rate = _rate(size, figures.p25_ns, figures.ci95_ns)
    return Read(level, size, *team, dict(knobs).get("order", 0), figures, *rate)


def _peak(problem: Problem, team: Team, knobs: Pairs, samples: tuple[float, ...], flops: int) -> Peak:
    figures = summary(samples)
    return Peak(problem.dtype, *team, knobs, figures, *_rate(flops, figures.p25_ns, figures.ci95_ns))

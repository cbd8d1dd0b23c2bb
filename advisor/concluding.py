"""After the search of a kernel: learn its table, run its winners again, hold out, count what they move."""

from __future__ import annotations

import datetime
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import __version__, codec, device
from advisor.device import is_device
from advisor.records import Choice, Machine, Measurement, Problem, Section, Table, pairs
from advisor.tuning_result import best_section, of_shape

if TYPE_CHECKING:
    from advisor.kernels.gpu.counts import Counting
    from advisor.policy.store import Saved
    from advisor.search.known import Past
    from advisor.search.log import Log
    from advisor.search.request import Outcome, Progress, Request
    from advisor.tuning import TuneRequest

MOST_HELD_OUT = 6
"""Sizes held out: enough for a worst case to mean something, few enough to take a small part of the time."""


Kept = tuple[tuple[int, Choice], ...]
"""n, and the choice that is settled there."""


def learned(before: Past, outcome: Outcome, request: Request, asked: TuneRequest, kept: Kept = ()) -> Table | None:
    """The table of an outcome and of what earlier runs found at other n; None where not one race ended."""
    from advisor.kernels.variant import made_at
    from advisor.policy.learn import DEPENDS, Beside, Made, learn

    if not any(verdict.purpose == "final" for verdict in outcome.verdicts):
        return None
    created = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    provenance = pairs(
        {
            "session": request.session,
            "advisor": __version__,
            "log": "measurements.jsonl",
            "budget_s": asked.budget_s,
            "quick": asked.quick,
            "objective": asked.objective,
            "regime": asked.regime,
            "seed": asked.seed,
        }
    )
    verdicts, trials = [*before.verdicts, *outcome.verdicts], [*before.trials, *outcome.trials]
    beside = Beside([*before.stolen, *outcome.stolen], [*before.energy, *outcome.energy], before.recalled)
    depends = device.DEPENDS if is_device(request.machine.limits_id) else DEPENDS
    made = Made(created, provenance, depends, asked.objective, kept, made_at(request.variants, request.problems[0]))
    return learn(request.machine, verdicts, trials, made, beside)


class Tuning(NamedTuple):
    """What a held-out race needs of the tuning that went before. `until` on the monotonic clock."""

    request: Request
    pool: Any
    log: Log
    progress: Progress
    outcome: Outcome
    until: float | None
    before: Past


class RanAgain(NamedTuple):
    """Outcome and table without the winners that fail in a fresh process, and the checks."""

    outcome: Outcome
    table: Table | None
    checks: tuple[Measurement, ...] = ()


def run_again(
    tuning: Tuning, table: Table, learn_again: Callable[[Outcome], Table | None], share: float = 0.5
) -> RanAgain:
    """Run the winners in a fresh process; a share of the time left goes to that."""
    from advisor.kernels.executors import pool_for
    from advisor.policy.learn import choose
    from advisor.search.known import AGAIN
    from advisor.search.recheck import Recheck, recheck
    from advisor.search.run import finite

    request, checks = tuning.request, list[Measurement]()

    def record(measurement: Measurement) -> None:
        checks.append(measurement)
        choice_id, document = codec.digest(measurement.choice), codec.to_json(finite(measurement))
        kinds = {"kind": "trial", "session": request.session, "choice_id": choice_id, "phase": AGAIN}
        tuning.log.append({**kinds, "measurement": document})

    now = time.monotonic()
    until = None if tuning.until is None else now + (tuning.until - now) * share
    limit_s, earlier = request.options.trial_limit_s, tuning.before.checks
    plan = Recheck(learn_again, choose, request.problems, limit_s, until, record, earlier)
    ends = math.inf if until is None else until
    with pool_for(request.machine, request.spec, request.variants, request.options.seed, ends) as fresh:
        left = recheck(fresh, plan, tuning.outcome, table, tuning.progress)
    return RanAgain(left.outcome._replace(interrupted=left.interrupted), left.table, tuple(checks))


def count(tuning: Tuning, table: Table) -> tuple[tuple[Counting, ...], bool]:
    """What the table's choices move where races were run, also written to the log; whether Ctrl-C came."""
    from advisor.policy.learn import choose
    from advisor.search.counting import count_winners

    tuning.pool.crew.close()  # nothing else may run on a device while a profiler counts
    own = of_shape(table, tuning.request.problems[0])
    problems = [verdict.problem for verdict in tuning.outcome.verdicts if verdict.purpose == "final"]
    winners = [(problem, choose(best_section(own, problem.n), problem.n)) for problem in problems]
    left_s = None if tuning.until is None else tuning.until - time.monotonic()
    try:
        return count_winners(tuning.request, tuning.log, winners, left_s), False
    except KeyboardInterrupt:
        return (), True


def with_counters(table: Table, machine: Machine, log_path: str) -> Table:
    """The table with all that the log knows of counters, of this tuning and of earlier ones."""
    from advisor.policy.counted import with_counters
    from advisor.search.counting import recorded

    return with_counters(table, recorded(log_path)) if is_device(machine.limits_id) else table


def save(path: str, table: Table, request: Request, log_path: str, replaces: Sequence[Section]) -> Saved:
    """Merge a table into its file, with the decision rules for other shapes where it then has several.

    Args:
        path: of the table.
        table: of the shape that was tuned.
        request: that was run.
        log_path: what was measured at all shapes.
        replaces: what the file must have measured of the shape; all of it goes.

    Raises:
        Busy: something else stands there, or another writer held the lock.
    """
    from advisor.policy.store import Saved, measured_of, save_table

    saved = save_table(path, table, replaces=replaces)
    if len({(section.dtype, section.shape) for section in saved.table.sections}) < 2:
        return saved
    from advisor.policy.rule import with_rules
    from advisor.search.known import past

    try:
        known = past(log_path, request, every_shape=True)
        stands = measured_of(saved.table, saved.table)
        ruled = save_table(
            path, with_rules(saved.table, known.verdicts, known.trials, request.variants), replaces=stands
        )
    except Exception as error:  # a rule is about what nobody tuned: it must not cost what was
        return Saved(saved.table, (*saved.notes, f"no rule for other shapes was learned: {error}"))
    return Saved(ruled.table, (*saved.notes, *ruled.notes))


def held_out_sizes(tuned: Sequence[int], parts: int, seed: int, raced: Collection[int] = ()) -> tuple[int, ...]:
    """Random sizes inside the tuned region that were not tuned, log-uniform: one in each of equal parts of the region.

    Args:
        tuned: ascending.
        parts: of the region; a part in which a known size was drawn has none.
        seed: the same seed, the same sizes.
        raced: further sizes that something was learned at.
    """
    if parts < 1 or len(tuned) < 2:
        return ()
    chance, width = random.Random(seed), math.log(tuned[-1] / tuned[0]) / parts
    drawn = [round(tuned[0] * math.exp(width * (part + chance.random()))) for part in range(parts)]
    known = {*tuned, *raced}
    return tuple(sorted({n for n in drawn if tuned[0] < n < tuned[-1] and n not in known}))


def hold_out(tuning: Tuning, table: Table) -> tuple[Table, bool]:
    """The table with its regret at sizes that were not tuned, unchanged where no time is left; whether Ctrl-C came."""
    from advisor.policy.learn import choose, with_heldout
    from advisor.search import heldout

    request = tuning.request
    first = request.problems[0]
    most = 2 if request.options.quick else MOST_HELD_OUT
    verdicts = tuning.outcome.verdicts
    tuned = sorted(v.problem.n for v in verdicts if v.purpose == "final")
    raced = {v.problem.n for v in (*tuning.before.verdicts, *verdicts) if v.purpose != "heldout"}
    sizes = held_out_sizes(tuned, min(most, len(tuned) - 1), request.options.seed, raced)
    own = of_shape(table, first)

    def pick(problem: Problem) -> Any:
        return choose(best_section(own, problem.n), problem.n)

    plan = heldout.HoldOut(pick, tuple(first._replace(n=n) for n in sizes), verdicts, tuning.until)
    held = heldout.hold_out(request, tuning.pool, tuning.log, plan, tuning.progress)
    return with_heldout(table, [*tuning.before.verdicts, *held.verdicts]), held.interrupted

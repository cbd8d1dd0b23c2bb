"""Counters of the choices that a tuning ended with: counted after the last race, kept in the log. docs/counters.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor import codec
from advisor.errors import AdvisorError
from advisor.kernels.gpu.counters import LIMIT_S, MORE_TIME, count_fully
from advisor.kernels.gpu.counts import Counting, NoCounters, counting
from advisor.records import Choice, Problem
from advisor.search.log import Log, read

if TYPE_CHECKING:
    from advisor.search.request import Request

COUNTERS = "counters"
"""The kind of record in the log."""

SHARE, MOST_S, LEAST_S = 0.2, 60.0, 5.0
"""Of a budget, kept for counting: a share, at most so long; less than the least is not worth a start."""


def reserve_s(budget_s: float | None, wanted: bool) -> float:
    """Seconds of a budget that are kept for counting; none of one whose share is too short to count in."""
    kept_s = min(MOST_S, budget_s * SHARE) if wanted and budget_s is not None else 0.0
    return kept_s if kept_s >= LEAST_S else 0.0


def count_winners(
    request: Request, log: Log, winners: Sequence[tuple[Problem, Choice]], left_s: float | None
) -> tuple[Counting, ...]:
    """Count what the winners of a tuning move, and write it to the log; whatever comes of it, the tuning is done.

    Args:
        request: of the tuning, on a device.
        log: gets a record a winner.
        winners: a choice a problem.
        left_s: time that is left; None: as long as counting takes.
    """
    if left_s is not None and left_s < LEAST_S:
        late = NoCounters("no time was left of the budget", f"{MORE_TIME}, or tune again with --resume")
        found: Sequence[object] = [late] * len(winners)
    else:
        limit_s = LIMIT_S if left_s is None else min(LIMIT_S, left_s)
        found = _counted(request, winners, limit_s)
    counted = tuple(counting(*one, outcome) for one, outcome in zip(winners, found, strict=True))  # type: ignore[arg-type]
    for one in counted:
        ids = {"session": request.session, "choice_id": codec.digest(one.choice)}
        log.append({"kind": COUNTERS, **ids, "counting": codec.to_json(one)})
    log.sync()
    return counted


def _counted(request: Request, winners: Sequence[tuple[Problem, Choice]], limit_s: float) -> Sequence[object]:
    """What counting gives; an error of ours or the system's, as of a full disk, is a reason for no counters."""
    try:
        return count_fully(request.machine.gpus[0], request.spec, request.variants, winners, limit_s)
    except (AdvisorError, OSError) as error:
        none = NoCounters(f"counting was not possible: {error}", "mend that, then tune with --resume and --counters")
        return [none] * len(winners)


def recorded(path: str) -> tuple[Counting, ...]:
    """What a log knows of counters, in the order counted; a record that cannot be read is passed over."""
    found = []
    for record in read(path).records:
        if record["kind"] == COUNTERS:
            try:
                found.append(codec.from_json(Counting, record.get("counting")))
            except AdvisorError:
                continue
    return tuple(found)

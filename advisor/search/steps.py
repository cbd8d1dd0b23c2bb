"""Steps: what a search on a device looks at before it asks a model, the knobs around its best seeds.

Knobs are a device's threads: they bring more there than another variant does, and a step up or down tells which way. A
small budget ends before a model has seen enough to know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.records import Choice, Measurement
from advisor.search import nearby
from advisor.search.least import no_time
from advisor.search.plan import WORTH
from advisor.search.protocol import GIVE_UP
from advisor.search.run import Run, ranked, value_of

if TYPE_CHECKING:
    from advisor.search.look import Place

BATCH = 4
"""Steps at once: each further batch starts from what those before it found."""

FAILING = 2
"""Batches without a better choice after which the model is asked instead."""


def around(run: Run, place: Place, until: float) -> list[Choice]:
    """Look at the knobs around the best seeds, again while that finds a better choice.

    Judged by the seeds and by these looks alone, and in the log as theirs, so that a resumed search goes the same way.

    Args:
        run: measures and remembers.
        place: what is searched, its seeds looked at.
        until: on the run's clock.

    Returns:
        The choices that were looked at.
    """
    taken: list[Choice] = []
    best_ns, failing = math.inf, -1
    while failing < FAILING and not run.out_of_time(until):
        looks = run.looks.get(place.problem, {})
        mine = {choice: looks[choice] for choice in (*place.seeds, *taken) if choice in looks}
        order = promising(list(mine.values()))
        now_ns = (value_of(order[0]) if order else None) or math.inf
        failing = 0 if now_ns < best_ns * math.exp(-WORTH) else failing + 1
        best_ns = min(best_ns, now_ns)
        wanted = nearby.beside(place.choices, [look.choice for look in order], mine)[:BATCH]
        if not wanted:
            break
        taken += _looked(run, place, wanted, until)
    run.log.sync()
    return taken


def _looked(run: Run, place: Place, wanted: Sequence[Choice], until: float) -> list[Choice]:
    """Look at these; returns those that there was time for. What an earlier session looked at needs no compiling."""
    known = run.looks.get(place.problem, {})
    new = [choice for choice in wanted if choice not in known]
    ready = {*known, *(run.prepare(place.problem, new) if new else ())}
    done = []
    for choice in [choice for choice in wanted if choice in ready]:
        if no_time(run, choice, until, place.spare_until):
            break
        run.look(place.problem, choice)
        done.append(choice)
        run.progress.advance(f"n={place.problem.n}: knobs of the best")
    return done


def promising(measured: Sequence[Measurement]) -> list[Measurement]:
    """First looks that succeeded, best first, as far as they were contenders: defaults may be far from good knobs."""
    order = ranked(measured)
    bar = GIVE_UP * (value_of(order[0]) or math.inf) if order else 0.0
    return [look for look in order if (value_of(look) or math.inf) <= bar]

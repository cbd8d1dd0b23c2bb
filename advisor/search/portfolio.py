"""First proposals where other machines' times are known: what did well there, hedged.

The first is good on the others by itself and in good company: what has other good configurations one parameter away
owes its time less to one machine's oddities. The next are those that together with it are best on most machines. While
all of them fail here, the next is as unlike them as what did well elsewhere can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.search.features import Array

PORTFOLIO = 3
"""First proposals where other machines' times are known: together best on those."""

COMPANY = 5
"""The best configurations one parameter away whose mean counts as much as a configuration's own time."""

PROMISING, PROMISING_LEAST = 0.03, 16
"""Share of the list, and number at least, that is asked for its company or looked through after failures."""

LEAST_DISTANCE = 0.1
"""Distance under which two machines count as this far apart, so that no weight is infinite."""

TIE = 0.01
"""Weight of the mean slowdown beside the best of a portfolio: it decides between equals."""


def elsewhere_log(
    configurations: Sequence[Mapping[str, Any]], machines: Sequence[Sequence[tuple[Mapping[str, Any], float | None]]]
) -> Array:
    """Log of time over the best of every configuration on other machines; what failed or is not there as the worst.

    Args:
        configurations: the list that is searched.
        machines: of each, (configuration, time in any unit or None for a failure).

    Returns:
        [machines with a time, configurations].
    """
    keys = [frozenset(one.items()) for one in configurations]
    rows = []
    for machine in machines:
        times = {frozenset(one.items()): value for one, value in machine if value is not None}
        if times:
            worst = max(times.values())
            rows.append(np.log(np.array([times.get(key, worst) for key in keys]) / min(times.values())))
    return np.array(rows).reshape(len(rows), len(keys))


def levels(configurations: Sequence[Mapping[str, Any]]) -> Array:
    """Which of its values each parameter has, as numbers [configurations, parameters]; absent is a value too."""
    names = list(dict.fromkeys(name for one in configurations for name in one))
    columns = [[str(one.get(name)) for one in configurations] for name in names]
    numbers = [{value: k for k, value in enumerate(dict.fromkeys(column))} for column in columns]
    rows = [[number[value] for value in column] for number, column in zip(numbers, columns, strict=True)]
    return np.array(rows, int).reshape(len(names), len(configurations)).T


class Others(NamedTuple):
    """Log slowdowns on other machines [machines, configurations], and what each weighs for the first pick."""

    logs: Array
    weights: Array


def weighed(logs: Array, distances: Sequence[float]) -> Others:
    """The log slowdowns with weights that fall with the root of the distance to each machine.

    Args:
        logs: [machines, configurations].
        distances: of each machine, see `traits.distance`; under a tenth they count as a tenth.
    """
    return Others(logs, 1.0 / np.sqrt(np.maximum(np.asarray(distances, float), LEAST_DISTANCE)))


def portfolio(others: Array | Others, places: Array, free: Array, count: int) -> list[int]:
    """The one in the best company, then those that each lower most the mean over machines of the best log slowdown.

    Args:
        others: log slowdown [machines, configurations]; with weights those of the first pick.
        places: `levels` of the configurations.
        free: of every configuration, whether it may be picked.
        count: how many at most.
    """
    wanted = min(count, int(free.sum()))
    if not wanted:
        return []
    picked = [in_company(others, places, free)]
    others = logs_of(others)
    while len(picked) < wanted:
        reached = others[:, picked].min(axis=1, keepdims=True)
        together = np.minimum(others, reached).mean(0) + TIE * others.mean(0)
        together[~free] = math.inf
        together[picked] = math.inf
        picked.append(int(np.argmin(together)))
    return picked


def logs_of(others: Array | Others) -> Array:
    """The log slowdowns without their weights."""
    return others.logs if isinstance(others, Others) else others


def in_company(others: Array | Others, places: Array, free: Array) -> int:
    """The least mean log slowdown, its own and that of the `COMPANY` best configurations one parameter away.

    With weights one machine stands for all: the weighted mean of their log slowdowns.
    """
    if isinstance(others, Others):
        others = np.average(others.logs, axis=0, weights=others.weights)[None]
    found = {}
    for index in promising(others, free):
        near = np.flatnonzero((places != places[index]).sum(1) == 1)
        own = float(others[:, index].mean())
        company = np.partition(others[:, near], COMPANY - 1)[:, :COMPANY] if len(near) > COMPANY else others[:, near]
        found[int(index)] = own + (float(company.mean()) if len(near) else own)
    return min(found, key=lambda index: found[index])


def unlike(others: Array, points: Array, free: Array, failed: Sequence[int], count: int) -> list[int]:
    """Of what did well on other machines, each as far as can be from what failed here and from those before it.

    The more failed, the more of the list is looked through.

    Args:
        others: log slowdown [machines, configurations].
        points: columns of the parameters [configurations, columns].
        free: of every configuration, whether it may be picked.
        failed: what failed, at least one.
        count: how many at most.
    """
    rows = promising(others, free, len(failed))
    picked: list[int] = []
    while len(picked) < min(count, len(rows)):
        away = np.min([((points[rows] - points[index]) ** 2).sum(1) for index in (*failed, *picked)], axis=0)
        picked.append(int(rows[int(np.argmax(np.where(np.isin(rows, picked), -math.inf, away)))]))
    return picked


def promising(others: Array, free: Array, times: int = 1) -> Array:
    """The free configurations with the least mean log slowdown, best first: so many `times` the usual number."""
    rows = np.flatnonzero(free)
    most = times * max(PROMISING_LEAST, int(PROMISING * len(free)))
    best: Array = rows[np.argsort(others[:, rows].mean(0), kind="stable")[:most]]
    return best

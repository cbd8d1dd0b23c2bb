"""A model of time over array shape, caches, bandwidth and n, learned from all machines that measured a problem.

Extra trees (scikit-learn) over what a choice is and where it runs; the target is the log of time over the best at that
n on that machine, since only order matters. It is fitted and asked offline: what it says ends in a table, so that no
lookup needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from advisor.search.elsewhere import Elsewhere, Group
from advisor.search.features import Array
from advisor.search.portable import Portable
from advisor.search.traits import Spot

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

TREES, LEAF, SEED = 60, 2, 0

LEAST_MACHINES = 2
"""Machines below which nothing can be learned of how they differ."""

MOST_AN_N = 400
"""Choices of one n on one machine that are learned from, the fastest: what is far off teaches little."""

CAP = math.log(4.0)
"""Log slowdown beyond which choices count as this: how bad the bad are must not shape the model of the good."""


class Learned(NamedTuple):
    """A fitted model and its columns: name of a field, or (field, word)."""

    trees: ExtraTreesRegressor
    columns: tuple[Any, ...]

    def expected(self, choices: Sequence[Portable], spot: Spot, n: int) -> tuple[Array, Array]:
        """Log of time over the best of each choice on a machine, and the standard deviation over the trees."""
        points = _matrix([_fields(choice, spot, n) for choice in choices], self.columns)
        each = np.array([tree.predict(points) for tree in self.trees.estimators_])
        return each.mean(0), each.std(0)


def learn(machines: Sequence[Elsewhere], group: Group) -> Learned | None:
    """A model of one problem from the machines that measured it; None where they are too few.

    Args:
        machines: to learn from.
        group: dtype, regime, shape.
    """
    known = [machine for machine in machines if machine.cells.get(group)]
    if len(known) < LEAST_MACHINES:
        return None
    fields, logs = [], []
    for machine in known:
        for n, cell in machine.cells[group].items():
            ranked = sorted(cell.items(), key=lambda pair: pair[1].ns)[:MOST_AN_N]
            fields += [_fields(what, machine.spot, n) for what, _ in ranked]
            logs += [min(CAP, math.log(timed.ns / ranked[0][1].ns)) for _, timed in ranked]
    return _fitted(fields, logs)


def _fitted(fields: Sequence[Mapping[str, float | str]], logs: Sequence[float]) -> Learned:
    from sklearn.ensemble import ExtraTreesRegressor  # most of a second: only who learns pays for it

    keys = {(name, value) if isinstance(value, str) else name for one in fields for name, value in one.items()}
    columns = tuple(sorted(keys, key=repr))
    trees = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, max_features=0.5, random_state=SEED, n_jobs=1)
    return Learned(trees.fit(_matrix(fields, columns), np.array(logs)), columns)


def _fields(choice: Portable, spot: Spot, n: int) -> dict[str, float | str]:
    """A choice and its machine as named numbers and words."""
    threads = max(1, choice.threads)
    own: dict[str, float | str] = {
        "n": math.log2(n),
        "threads": math.log2(threads),
        "share": threads / spot.cpus,
        "threads a cache": math.log2(threads / spot.caches),
        "n a thread": math.log2(n / threads),
        "variant": choice.variant,
        "wait": f"{choice.wait_policy} {choice.spin}",
        "memory": choice.memory_policy,
    }
    knobs = {f"knob {name}": _number(value) for name, value in choice.knobs}
    return {**own, **knobs, **{f"machine {name}": _number(value) for name, value in spot.traits.items()}}


def _number(value: Any) -> float | str:
    """A number on the log2 axis, where zero and below stand one step under one."""
    if isinstance(value, (int, float)):
        return math.log2(value) if value > 0 else -1.0
    return str(value)


def _matrix(fields: Sequence[Mapping[str, float | str]], columns: Sequence[Any]) -> Array:
    """[choices, columns]: a word's column is 1 where it is that word; a number that is not there is -1."""
    found = np.full((len(fields), len(columns)), -1.0)
    for place, column in enumerate(columns):
        if isinstance(column, tuple):
            found[:, place] = [one.get(column[0]) == column[1] for one in fields]
        else:
            found[:, place] = [float(one.get(column, -1.0)) for one in fields]
    return found

"""Configurations as points: columns from the names and values of parameters alone, whatever the kernel.

Powers are what tuning parameters mostly are, so numbers go to the log2 axis, where a product is a sum and a ratio a
difference; both are columns of their own for each pair, since what a kernel feels (threads a block, work a thread,
bytes a tile) is a product or ratio of what is tuned. The largest power of two in a whole number stands for alignment:
48 and 64 are near on the log axis and far apart for anything that works in units of 32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

ABSENT = "-"
"""Value of a parameter that a configuration does not have; None is the same."""

OWN, DERIVED, ELSEWHERE = "own", "derived", "elsewhere"
"""Kinds of columns: a parameter itself, made of several or of a number's divisors, a time on another machine."""

LEAST = 1e-9
"""Standard deviation under which a column is constant."""

SAME = 0.98
"""Correlation beyond which a column adds nothing to another."""


class Features(NamedTuple):
    """Points, each column group scaled to a variance of 1 over the list.

    Attributes:
        matrix: [configurations, columns].
        group: number of the group of each column; a text's columns are one group.
        kinds: OWN, DERIVED or ELSEWHERE, of each group.
    """

    matrix: Array
    group: Array
    kinds: tuple[str, ...]

    @property
    def own(self) -> Array:
        """The columns of parameters themselves [configurations, some columns]."""
        mine = [self.kinds[g] == OWN for g in self.group]
        columns: Array = self.matrix[:, mine]
        return columns


class _Number(NamedTuple):
    """A numeric parameter: its log2 axis, where it is present, and whether it is more than a switch."""

    axis: Array
    present: Array
    graded: bool


def features(configurations: Sequence[Mapping[str, Any]]) -> Features:
    """The columns of a list of configurations.

    Args:
        configurations: name -> number, truth value or text; `ABSENT`, None or no entry where there is none.
    """
    names = list(dict.fromkeys(name for one in configurations for name in one))
    columns = {name: [one.get(name) for one in configurations] for name in names}
    blocks = [*_blocks(columns)]
    kept = [(kind, block / spread) for kind, block in blocks if (spread := math.sqrt(block.var(0).sum())) > LEAST]
    if not kept:
        return Features(np.zeros((len(configurations), 1)), np.zeros(1, int), (OWN,))
    sizes = [block.shape[1] for _, block in kept]
    matrix = np.hstack([block - block.mean(0) for _, block in kept])
    return Features(matrix, np.repeat(np.arange(len(kept)), sizes), tuple(kind for kind, _ in kept))


def with_columns(points: Features, columns: Sequence[Array], kind: str) -> Features:
    """The points with further columns, each a group of its own, scaled likewise; constant ones are left out."""
    added = [(column - column.mean()) / column.std() for column in columns if column.std() > LEAST]
    group = [*points.group, *range(len(points.kinds), len(points.kinds) + len(added))]
    return Features(np.column_stack([points.matrix, *added]), np.array(group), (*points.kinds, *[kind] * len(added)))


def _blocks(columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Array]]:
    graded = []
    for values in columns.values():
        number = _number(values)
        if number is None:
            yield OWN, _one_hot(values)
            continue
        yield OWN, number.axis[:, None]
        if not number.present.all():
            yield OWN, number.present[:, None].astype(float)
        if number.graded:
            graded.append(number)
            yield from _alignment(values, number)
    for left, right in itertools.combinations(graded, 2):
        both = left.present & right.present
        if both.any():
            yield DERIVED, _filled(left.axis + right.axis, both)[:, None]
            yield DERIVED, _filled(left.axis - right.axis, both)[:, None]
    if len(graded) > 2 and all(number.present.all() for number in graded):
        yield DERIVED, np.sum([number.axis for number in graded], axis=0)[:, None]


def _number(values: Sequence[Any]) -> _Number | None:
    """A column as a number, None when any of it is text."""
    present = np.array([value is not None and value != ABSENT for value in values])
    known = [value for value, there in zip(values, present, strict=True) if there]
    if not known or not all(isinstance(value, (int, float)) and math.isfinite(value) for value in known):
        return None
    axis = np.array([float(value) if there else math.nan for value, there in zip(values, present, strict=True)])
    graded = len(set(known)) > 2
    if graded:
        low = float(np.nanmin(axis))
        axis = np.log2(axis if low > 0 else axis - low + 1)
    return _Number(_filled(axis, present), present, graded)


def _filled(axis: Array, present: Array) -> Array:
    """The axis with its mean where a parameter is absent."""
    filled: Array = np.where(present, axis, axis[present].mean())
    return filled


def _alignment(values: Sequence[Any], number: _Number) -> Iterator[tuple[str, Array]]:
    """Log2 of the largest power of two that divides a number, where that is not the number itself."""
    known = [value for value, there in zip(values, number.present, strict=True) if there]
    if any(value != int(value) for value in known):
        return
    column = np.zeros(len(values))
    column[number.present] = [math.log2(int(v) & -int(v)) if v else 0.0 for v in known]
    column = _filled(column, number.present)
    if column.std() > 0 and abs(np.corrcoef(column, number.axis)[0, 1]) < SAME:
        yield DERIVED, column[:, None]


def _one_hot(values: Sequence[Any]) -> Array:
    names = {name: k for k, name in enumerate(sorted({str(value) for value in values}))}
    rows: Array = np.eye(len(names))[[names[str(value)] for value in values]]
    return rows

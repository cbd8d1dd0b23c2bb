"""Replay: search a recorded space as if it were measured now, in milliseconds of computing instead of hours.

A `Recorded` space is frozen into arrays; an `Account` answers evaluations from it, counts each distinct configuration
once and keeps what they would have cost; `replay` drives a strategy that asks and is told. Everything is deterministic
from the seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from advisor.errors import AdvisorError, BadInput
from advisor.search import t4
from advisor.words import many

Array = np.ndarray[Any, Any]

REPEATS = 10_000
"""Questions for a configuration that was already answered, in a row, after which a strategy is taken for stuck."""


class Recorded(NamedTuple):
    """A recorded space; position in the arrays is the index that strategies speak of.

    Attributes:
        kernel: the kernel's name.
        device: what it was measured on.
        names: the parameters.
        configurations: the values of each configuration, in the order of `names`; None where it has no such parameter.
        time_ms: mean of the runs [configurations], NaN for a failure.
        runs_ms: the raw runs of each.
        compile_ms: [configurations], 0 where unknown.
        overhead_ms: [configurations], 0 where unknown.
        failed: [configurations] of bool: was in the space and did not work.
        notes: what was left out.
    """

    kernel: str
    device: str
    names: tuple[str, ...]
    configurations: tuple[tuple[Any, ...], ...]
    time_ms: Array
    runs_ms: tuple[tuple[float, ...], ...]
    compile_ms: Array
    overhead_ms: Array
    failed: Array
    notes: tuple[str, ...] = ()

    @property
    def optimum_ms(self) -> float:
        """The least mean time."""
        return float(np.nanmin(self.time_ms))

    @property
    def label(self) -> str:
        """Kernel and device."""
        return f"{self.kernel}-{self.device}"


class Setting(NamedTuple):
    """How a space is replayed.

    Attributes:
        evaluations: how many distinct configurations may be evaluated.
        seed: of the noise.
        draws: 0: the mean of all runs is told. k: the mean of k runs drawn at random is told.
    """

    evaluations: int
    seed: int = 0
    draws: int = 0


class Curve(NamedTuple):
    """What a replay came to, after 1, 2, ... evaluations.

    Attributes:
        order: indices in the order first evaluated; shorter than the curve where the strategy ended early.
        ratio: true mean of the choice that looked best so far, over the optimum [evaluations].
        cost_s: compile, overhead and runs so far, in seconds [evaluations].
    """

    order: tuple[int, ...]
    ratio: Array
    cost_s: Array


class Strategy(Protocol):
    """What is replayed. Asked and told in turn; it owns its state and is used for one replay."""

    def ask(self) -> int | None:
        """Index of the configuration to evaluate next; None ends the search."""

    def tell(self, index: int, value: float | None) -> None:
        """The time of a configuration in milliseconds, None for a failure."""


class Spent(AdvisorError, RuntimeError):
    """All evaluations of a replay are used up, or the strategy is stuck on configurations it knows."""


# --- the space ---


def load(path: str | os.PathLike[str]) -> Recorded:
    """The recorded space in a T4 file; see `t4.read`."""
    return recorded(t4.read(path))


def recorded(space: t4.Space) -> Recorded:
    """The arrays of a space that was read.

    Results outside the constraints are no part of it. Of several results of one configuration the runs are put
    together; it failed if each of them did.

    Raises:
        BadInput: no configuration has a time.
    """
    inside = [result for result in space.results if result.invalidity != t4.CONSTRAINTS]
    names = tuple(dict.fromkeys(name for result in inside for name in result.configuration))
    columns = [_column([result.configuration.get(name) for result in inside]) for name in names]
    rows: dict[tuple[Any, ...], list[t4.Result]] = {}
    for key, result in zip(zip(*columns, strict=True), inside, strict=True):
        rows.setdefault(key, []).append(result)
    merged = [_merge(results) for results in rows.values()]
    times = np.array([math.nan if result.time_ms is None else result.time_ms for result in merged], float)
    if not np.isfinite(times).any():
        raise BadInput("a space to replay has a configuration with a time", got=f"{len(merged)} without one")
    out = len(space.results) - len(inside)
    twice = len(inside) - len(rows)
    return Recorded(
        space.kernel,
        space.device,
        names,
        tuple(rows),
        times,
        tuple(result.runs_ms for result in merged),
        np.array([result.compile_ms or 0.0 for result in merged]),
        np.array([result.overhead_ms or 0.0 for result in merged]),
        ~np.isfinite(times),
        (
            *space.notes,
            *([f"{many(out, 'result')} outside the constraints: no part of the space"] if out else []),
            *([f"{many(twice, 'result')} of a configuration that was there already: put with it"] if twice else []),
        ),
    )


def _column(values: Sequence[Any]) -> list[Any]:
    """One parameter's values, hashable; numbers written as text become numbers where every value is one."""
    if all(value is None or isinstance(value, str) for value in values):
        numbers = [None if value is None else t4.number(value) for value in values]
        if all(found is not None or value is None for found, value in zip(numbers, values, strict=True)):
            return [int(n) if n is not None and n.is_integer() else n for n in numbers]
    return [_frozen(value) for value in values]


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return tuple(sorted((key, _frozen(item)) for key, item in value.items())) if isinstance(value, dict) else value


def _merge(results: Sequence[t4.Result]) -> t4.Result:
    """Several results of one configuration as one."""
    good = [result for result in results if result.time_ms is not None]
    if len(results) == 1 or not good:
        return results[0]
    runs = tuple(run for result in good for run in result.runs_ms)
    alone = [result.time_ms for result in good if result.time_ms is not None]
    mean = sum(runs) / len(runs) if runs else sum(alone) / len(alone)
    return good[0]._replace(time_ms=mean, runs_ms=runs)


# --- the replay ---


class Account:
    """Answers evaluations of one replay and books them. Owned by who replays; strategies see `evaluate` only."""

    def __init__(self, space: Recorded, setting: Setting) -> None:
        if setting.evaluations < 1 or setting.draws < 0:
            raise BadInput("a replay has at least one evaluation and no negative number of draws", got=tuple(setting))
        self.space, self.setting = space, setting
        self.told: dict[int, float | None] = {}
        self._costs_ms: list[float] = []
        self._repeats = 0

    @property
    def left(self) -> int:
        """How many configurations may still be evaluated."""
        return min(self.setting.evaluations, len(self.space.configurations)) - len(self.told)

    def evaluate(self, index: int) -> float | None:
        """Time of a configuration in milliseconds, None for a failure; one known already is free and told the same.

        Raises:
            BadInput: there is no such configuration.
            Spent: it is new and no evaluation is left, or `REPEATS` known ones were asked for in a row.
        """
        if index in self.told:
            self._repeats += 1
            if self._repeats > REPEATS:
                raise Spent("the strategy asks for nothing new", got=index)
            return self.told[index]
        if not 0 <= index < len(self.space.configurations):
            raise BadInput(
                "an index must be of the space", got=index, allowed=f"0..{len(self.space.configurations) - 1}"
            )
        if self.left < 1:
            raise Spent("every evaluation is used up", got=len(self.told))
        self._repeats = 0
        runs = self._runs(index)
        failed = bool(self.space.failed[index])
        mean = sum(runs) / len(runs) if runs and self.setting.draws else float(self.space.time_ms[index])
        self.told[index] = None if failed else mean
        fixed = float(self.space.compile_ms[index] + self.space.overhead_ms[index])
        self._costs_ms.append(fixed + (sum(runs) if runs or failed else mean))
        return self.told[index]

    def _runs(self, index: int) -> Sequence[float]:
        """The runs that this evaluation takes; the same for an index whatever was evaluated before it."""
        runs = self.space.runs_ms[index]
        if not self.setting.draws or not runs:
            return runs
        chance = np.random.default_rng([self.setting.seed, index])
        return [runs[k] for k in chance.integers(len(runs), size=self.setting.draws)]

    def curve(self) -> Curve:
        """The curve so far, its last value held where the strategy ended early.

        Until the first success the choice counts as the slowest of the space.
        """
        count = self.setting.evaluations
        ratio = np.full(count, float(np.nanmax(self.space.time_ms)) / self.space.optimum_ms)
        best = math.inf
        for place, (index, value) in enumerate(self.told.items()):
            if value is not None and value < best:
                best = value
                ratio[place:] = float(self.space.time_ms[index]) / self.space.optimum_ms
        cost = np.cumsum(self._costs_ms) / 1e3
        held = np.full(count - len(cost), cost[-1] if len(cost) else 0.0)
        return Curve(tuple(self.told), ratio, np.concatenate([cost, held]))


def replay(space: Recorded, strategy: Strategy, setting: Setting) -> Curve:
    """Drive a strategy until the evaluations are used up, or it ends or is stuck.

    Args:
        space: what is searched.
        strategy: fresh, for this space.
        setting: how many evaluations, and what they tell.
    """
    account = Account(space, setting)
    while account.left > 0:
        index = strategy.ask()
        if index is None:
            break
        try:
            strategy.tell(index, account.evaluate(index))
        except Spent:
            break
    return account.curve()

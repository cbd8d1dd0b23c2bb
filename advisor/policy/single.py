"""The one setting (process part and team) that is best where a server cannot switch from call to call.

Settings are compared over phases, which are what a server spends its time in: a prompt of n rows (prefill), a step at a
cache of n rows (decode). The time of a phase is the sum over its kernels, each in its best build under the setting, so
that a kernel counts as much as it takes. The loss of a setting in a phase is its time over that of switching freely;
over several phases the weighted geometric mean, which no unit and no length of a phase changes. All times are measured
or lie between two measured n; a kernel that was not measured under a setting is named, and takes no part in its loss.

Pure functions of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

ENOUGH = 0.95
"""Share of a phase's time that must have been measured under a setting for it to stand against others."""

Cell = tuple[str, int]
"""A kernel and its n."""


class Setting(NamedTuple):
    """How a process is started, and with how many threads where. `threads` 1 waits for nobody: its wait policy is the
    default."""

    wait_policy: str
    spin: int | None
    memory_policy: str
    threads: int
    placement: str


class Timing(NamedTuple):
    """Time of one call of a kernel under a setting, in some build. `raced`: from an interleaved race, not a first look;
    `contended`: half of its samples or more were disturbed.

    `kernel` names the problem apart from its n: one of several shapes of a kernel has a name of its own.
    """

    kernel: str
    n: int
    setting: Setting
    ns: float
    raced: bool
    contended: bool = False


class Phase(NamedTuple):
    """What a server does at one n: calls of some kernels, each at its own n, and how much the phase counts."""

    name: str
    n: int
    cells: tuple[Cell, ...]
    weight: float = 1.0


class Share(NamedTuple):
    """How a setting does in one phase.

    Attributes:
        name, n: of the phase.
        ns: time of its calls under the setting; best_ns: with the best setting for each call. Both of those calls that
            were measured under the setting.
        covered: share of the phase's best time that those calls are.
    """

    name: str
    n: int
    ns: float
    best_ns: float
    covered: float

    @property
    def loss(self) -> float:
        """Time over that of switching, less 1."""
        return self.ns / self.best_ns - 1 if self.best_ns else 0.0


class Single(NamedTuple):
    """The best single setting.

    Attributes:
        setting: what to start the server with.
        loss: weighted geometric mean over the phases of time over that of switching, less 1; at least 0.
        shares: a phase each.
        unmeasured: cells that were not measured under the setting.
        unknown: cells that were not measured at all.
        basis: EXACT where every time under the setting was raced at its n, else INTERPOLATED.
        compared: how many settings were compared.
    """

    setting: Setting
    loss: float
    shares: tuple[Share, ...]
    unmeasured: tuple[Cell, ...]
    unknown: tuple[Cell, ...]
    basis: str
    compared: int


Curve = dict[int, float]
"""n -> least ns, of one kernel under one setting."""


def single(timings: Iterable[Timing], phases: Sequence[Phase]) -> Single | None:
    """The setting that loses least against switching freely.

    Args:
        timings: all that was measured; of several at one place the least counts, races before first looks.
        phases: what the server does.

    Returns:
        The best of the settings under which nearly all of every phase was measured (of those that come nearest to that,
        where none does). Where several are equal, the one of which more was raced, as a look counts as no less than the
        best raced time; then fewer threads, and what a process starts with by itself. None without any time.
    """
    known_times = tuple(timings)
    curves, raced = _curves(known_times), {(one.setting, (one.kernel, one.n)) for one in known_times if one.raced}
    best = {cell: _best(curves.get(cell[0], {}), cell[1]) for phase in phases for cell in phase.cells}
    known = [phase._replace(cells=tuple(c for c in phase.cells if best[c] is not None)) for phase in phases]
    known = [phase for phase in known if phase.cells and phase.weight > 0]
    settings = sorted({setting for curve in curves.values() for setting in curve}, key=repr)
    found = {setting: _shares(setting, known, curves, best) for setting in settings}
    found = {setting: shares for setting, shares in found.items() if all(share.covered for share in shares)}
    if not known or not found:
        return None
    most = max(min(share.covered for share in shares) for shares in found.values())
    able = [s for s, shares in found.items() if min(share.covered for share in shares) >= min(ENOUGH, most)]
    cells = [cell for phase in known for cell in phase.cells]
    sure = {setting: sum((setting, cell) in raced for cell in cells) for setting in able}
    chosen = min(able, key=lambda s: (round(_loss(found[s], known), 6), -sure[s], *_plainness(s)))
    told = [cell for cell in cells if _at(curves, chosen, cell) is not None]
    exact = all((chosen, cell) in raced for cell in told)
    return Single(
        chosen,
        _loss(found[chosen], known),
        found[chosen],
        tuple(dict.fromkeys(cell for cell in cells if _at(curves, chosen, cell) is None)),
        tuple(cell for cell, ns in best.items() if ns is None),
        "EXACT" if exact else "INTERPOLATED",
        len(able),
    )


def _plainness(setting: Setting) -> tuple[int, bool, bool, bool, str]:
    """What decides among equals, the lowest first: fewer threads, then what a process starts with by itself."""
    waits, memory = setting.wait_policy != "default", setting.memory_policy != "default"
    return setting.threads, waits, setting.spin is not None, memory, repr(setting)


def _curves(timings: Iterable[Timing]) -> dict[str, dict[Setting, Curve]]:
    """Kernel -> setting -> n -> ns.

    Of one kernel, setting and n the least raced time, else the least look. A look under the best raced time there
    counts as that: it is one of many looks, the luckiest of which are too low, and a race has said what is best.
    """
    raced: dict[tuple[str, int], dict[Setting, float]] = {}
    looked: dict[tuple[str, int], dict[Setting, float]] = {}
    for one in timings:
        times = (raced if one.raced else looked).setdefault((one.kernel, one.n), {})
        times[one.setting] = min(one.ns, times.get(one.setting, math.inf))
    found: dict[str, dict[Setting, Curve]] = {}
    for kernel, n in sorted({*raced, *looked}):
        sure = raced.get((kernel, n), {})
        least = min(sure.values(), default=0.0)
        unsure = {s: max(ns, least) for s, ns in looked.get((kernel, n), {}).items() if s not in sure}
        for setting, ns in {**unsure, **sure}.items():
            found.setdefault(kernel, {}).setdefault(setting, {})[n] = ns
    return found


def _between(curve: Curve, n: int) -> float | None:
    """Time at n: measured, or on a straight line in log time over log n between two measured n; None beyond them."""
    if n in curve:
        return curve[n]
    for low, high in pairwise(sorted(curve)):
        if low < n < high:
            part = math.log(n / low) / math.log(high / low)
            return math.exp(math.log(curve[low]) + part * math.log(curve[high] / curve[low]))
    return None


def _at(curves: dict[str, dict[Setting, Curve]], setting: Setting, cell: Cell) -> float | None:
    return _between(curves.get(cell[0], {}).get(setting, {}), cell[1])


def _best(curves: dict[Setting, Curve], n: int) -> float | None:
    """The least time at n under any setting."""
    return min((ns for curve in curves.values() if (ns := _between(curve, n)) is not None), default=None)


def _shares(
    setting: Setting,
    phases: Sequence[Phase],
    curves: dict[str, dict[Setting, Curve]],
    best: Mapping[Cell, float | None],
) -> tuple[Share, ...]:
    found = []
    for phase in phases:
        own = {cell: ns for cell in phase.cells if (ns := _at(curves, setting, cell)) is not None}
        best_ns = sum(best[cell] or 0.0 for cell in phase.cells if cell in own)
        whole = sum(best[cell] or 0.0 for cell in phase.cells)
        found.append(Share(phase.name, phase.n, sum(own[c] for c in phase.cells if c in own), best_ns, best_ns / whole))
    return tuple(found)


def _loss(shares: Sequence[Share], phases: Sequence[Phase]) -> float:
    total = sum(phase.weight for phase in phases)
    logs = [phase.weight * math.log1p(share.loss) for phase, share in zip(phases, shares, strict=True)]
    return max(0.0, math.expm1(sum(logs) / total))


# --- what a server does ---


def phases_of(kernels: Mapping[str, str], weights: Mapping[int, float]) -> tuple[Phase, ...]:
    """Prefill and decode of a server at each n.

    Args:
        kernels: name -> what its n is: "cache", "rows", or "sequence"; without those that a server never calls. One
            that is all the others together (a whole block) is left out beside them, so that nothing counts twice.
        weights: n -> how often it comes: a prompt of that many rows, a cache of that many rows.
    """
    parts = {name: kind for name, kind in kernels.items() if not name.startswith("block")} or dict(kernels)
    rows = [name for name, kind in parts.items() if kind == "rows"]
    sequence = [name for name, kind in parts.items() if kind == "sequence"]
    cache = [name for name, kind in parts.items() if kind == "cache"]
    found = []
    for n, weight in weights.items():
        found.append(Phase("prefill", n, tuple((name, n) for name in (*sequence, *rows)), weight))
        found.append(Phase("decode", n, (*((name, n) for name in cache), *((name, 1) for name in rows)), weight))
    return tuple(phase for phase in found if phase.cells)

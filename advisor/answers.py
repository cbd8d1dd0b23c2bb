"""Answer: what to run a kernel with at one n, how that was come by, and how sure it is.

Answers are made once, when a policy is loaded: one for each range of n in which nothing changes. A lookup is then one
bisection. Standard library only and no `typing` at run time: the hot path imports this module.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    from advisor.apply import Applied

    class _Fields(NamedTuple):
        kernel: str
        dtype: str | None = None
        shape_pairs: tuple[tuple[str, Any], ...] = ()
        regime: str | None = None
        variant: str | None = None
        source_hash: str | None = None
        knob_pairs: tuple[tuple[str, Any], ...] = ()
        compiler: str | None = None
        flags: str | None = None
        threads: int = 1
        cpus: tuple[int, ...] | None = None
        placement: str = "none"
        wait_policy: str = "default"
        spin: int | None = None
        memory_policy: str = "default"
        basis: str = "DEFAULT"
        expected_ns: float | None = None
        ci95_ns: tuple[float, float] | None = None
        spread: float | None = None
        gain: float | None = None
        regret_bound: float | None = None
        in_tuned_region: bool = False
        fragility: float | None = None
        objective: str = "latency"
        stolen_ns: tuple[float, float] | None = None
        joules: float | None = None
        contended: bool = False
        table_id: str | None = None
        hardware_id: str | None = None
        why: str = ""
        warnings: tuple[str, ...] = ()
        points: tuple[tuple[int, float], ...] = ()
        refusal: str = ""
        device: str | None = None
        regret_sizes: int = 0
        rung: str | None = None
        machines: tuple[str, ...] = ()
        validated_regret: float | None = None

else:
    _NAMES = (
        "kernel dtype shape_pairs regime variant source_hash knob_pairs compiler flags threads cpus placement "
        "wait_policy spin memory_policy basis expected_ns ci95_ns spread gain regret_bound in_tuned_region fragility "
        "objective stolen_ns joules contended table_id hardware_id why warnings points refusal device "
        "regret_sizes rung machines validated_regret"
    )
    _DEFAULTS = (
        *(None, (), None, None, None, (), None, None, 1, None, "none"),
        *("default", None, "default", "DEFAULT", None, None, None, None, None, False, None),
        *("latency", None, None, False),
        *(None, None, "", (), (), "", None),
        *(0, None, (), None),
    )
    _Fields = namedtuple("_Fields", _NAMES, defaults=_DEFAULTS)


class Answer(_Fields):
    """What to run a kernel with. Immutable, shared between calls; unknown is None.

    Attributes:
        kernel, dtype, shape, regime: the problem, without its n.
        variant, source_hash, knobs, compiler, flags: what to build; variant None when nothing was tuned.
        threads, cpus, placement: the team. Worker i runs on cpus[i]; cpus None: not pinned.
        wait_policy, spin, memory_policy: the process part that the answer is for: that of the running process.
        basis: EXACT at a tuned n, INTERPOLATED between two or between tuned shapes, PUBLISHED by others, TRANSFERRED
            to a part of the machine or from other machines, MODELLED from costs alone, STALE where a field that the
            row depends on has changed, DEFAULT otherwise; `why` says more.
        expected_ns: 25th percentile of the measured time of one call; None where nobody measured.
        ci95_ns: bootstrap 95 % interval of expected_ns. spread: 99th over 25th percentile.
        gain: time of the default choice over expected_ns, measured at the same n.
        regret_bound: worst time over the best known time, at n that were held out of the tuning; regret_sizes: how many
            n these are.
        in_tuned_region: whether n lies between the smallest and the largest tuned n.
        fragility: mean time beside one busy neighbour over expected_ns; None where it was not measured.
        objective: what the choice is best at: latency, robust or efficiency.
        stolen_ns: mean and 99th percentile of the time beside one busy neighbour. joules: of one call.
        contended: half of its samples or more were taken while something held a thread off its CPU.
        table_id, hardware_id: where it came from.
        points: (n, p25 in ns) of this choice, for `estimate`.
        refusal: why it must not be applied here; empty when it may.
        device: model of the GPU that the answer is for, None for the CPUs. There threads is 1: the host's.
        rung: what decided where nobody measured this: nearest, common, learned or model of other machines; rule of
            other shapes.
        machines: those that the answer came from.
        validated_regret: geometric mean of time over the best known time, each known machine, or shape, left out in
            turn; None below three distinct models of machine or three shapes, and where nobody checked.
    """

    __slots__ = ()

    @property
    def shape(self) -> dict[str, Any]:
        """The fixed shape, a fresh dict."""
        return dict(self.shape_pairs)

    @property
    def knobs(self) -> dict[str, Any]:
        """The variant's knobs, a fresh dict."""
        return dict(self.knob_pairs)

    @property
    def stolen_mean_ns(self) -> float | None:
        """Mean time of one call beside one busy neighbour, where that was measured."""
        return None if self.stolen_ns is None else self.stolen_ns[0]

    @property
    def stolen_p99_ns(self) -> float | None:
        """99th percentile of the same, of samples of 20 ms."""
        return None if self.stolen_ns is None else self.stolen_ns[1]

    def estimate(self, n: int) -> float | None:
        """Time of one call at n in ns, log-log interpolated between measured n of this choice; never extrapolated.

        Returns:
            The time, or None where the choice was not measured on both sides of n.
        """
        try:
            return interpolated(self.points, n)
        except (TypeError, ValueError, OverflowError):
            return None

    def applied(self) -> Applied:
        """A context manager that sets thread count and pinning, and restores both; see `advisor.apply`."""
        from advisor.apply import Applied

        return Applied(self)


def interpolated(points: tuple[tuple[int, float], ...], n: int) -> float | None:
    """A time at n by straight lines in log time over log n between (n, ns) points; None outside them."""
    from itertools import pairwise
    from math import exp, log

    for (low, low_ns), (high, high_ns) in pairwise(points):
        if n == low:
            return low_ns
        if low < n < high:
            part = log(n / low) / log(high / low)
            return exp(log(low_ns) + part * log(high_ns / low_ns))
    return points[-1][1] if points and points[-1][0] == n else None

"""What a signature is made of. Every rate is that of the 25th percentile of its samples, with their interval."""

from __future__ import annotations

from typing import NamedTuple

from advisor.records import Pairs, Summary


class Read(NamedTuple):
    """Reading `bytes` once with one team. `level`: memory (four times the last-level cache), or l3 (half of one).

    `order`: which of the reading orders was fastest. Rates in 10^9 bytes a second.
    """

    level: str
    bytes: int
    threads: int
    placement: str
    order: int
    time: Summary
    gb_per_s: float
    gb_per_s_ci95: tuple[float, float]


class ForkJoin(NamedTuple):
    """Entering and leaving a parallel region that does next to nothing."""

    threads: int
    placement: str
    wait_policy: str
    time: Summary


class Peak(NamedTuple):
    """Multiply-adds in registers, two flops each. `knobs`: of the fastest build. Rates in 10^9 flops a second."""

    dtype: str
    threads: int
    placement: str
    knobs: Pairs
    time: Summary
    gflops: float
    gflops_ci95: tuple[float, float]


class Quiet(NamedTuple):
    """Whether the machine was quiet while a signature was measured. Shares of the wall time, None where not told.

    `steal`: what a hypervisor gave to others, of all CPUs' time; `others`: what other processes ran, likewise;
    `delayed`: samples in which a thread waited for a CPU, of all that were taken; `load_1min`: before the run.
    `reasons`: why it was not quiet, none when it was.
    """

    quiet: bool
    steal: float | None
    others: float | None
    delayed: float
    load_1min: float | None
    reasons: tuple[str, ...]


class Signature(NamedTuple):
    """What the cost model needs of a machine. `missing`: what could not be measured, and why."""

    created: str
    hardware_id: str
    limits_id: str
    compiler: str
    seconds: float
    read: tuple[Read, ...]
    fork_join: tuple[ForkJoin, ...]
    peak: tuple[Peak, ...]
    quiet: Quiet
    missing: tuple[str, ...]

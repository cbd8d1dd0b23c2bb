"""The nouns of a validation on a device: what was measured, and what it comes to. Immutable."""

from __future__ import annotations

from typing import NamedTuple

from advisor.kernels.gpu.counts import Kernel, Predicted
from advisor.kernels.gpu.profiled import Start
from advisor.records import Pairs
from advisor.validate.records import Estimate, Finding, Formula, Growth, Series


class Device(NamedTuple):
    """What the judges must know of a device; None what it does not tell."""

    name: str | None
    sm_count: int | None
    compute_capability: str | None
    memory_bytes: int | None
    l2_bytes: int | None


# --- measured ---


class Grid(NamedTuple):
    """The kernels that a call of one variant launches at one n: (blocks, threads of a block) of each."""

    kernel: str
    variant: str
    n: int
    launches: tuple[tuple[int, int], ...]


class Count(NamedTuple):
    """What one call of a variant moved, by counters with caches flushed before each kernel, beside what is predicted.

    Attributes:
        call: of the whole call; None where nothing was counted.
        kernels: each kernel of the call.
        predicted: by the DNF's cost function and the variant's header; None where a header's expression has no value.
        reason: why there are no counters.
        seconds: wall time that counting took; of several choices counted together, their share.
    """

    kernel: str
    variant: str
    n: int
    call: Kernel | None
    kernels: tuple[Kernel, ...]
    predicted: Predicted | None
    reason: str = ""
    seconds: float | None = None


class Program(NamedTuple):
    """One program under the profiler.

    Attributes:
        what: `tried` (nothing but a start), `counted` (bytes, reductions) or `explained` (sectors, waits).
        start: what its start and end took; None where it never got to a first launch.
        asked: choices that it was to count.
        seconds: wall time of all of it.
    """

    what: str
    start: Start | None
    asked: int
    seconds: float


class DeviceMeasured(NamedTuple):
    """All that one run on a device measured.

    Attributes:
        waits: bytes used of a sector, and what warps wait for, counted apart at a small n: it takes many passes.
        cold_start_s: from loading the driver's library to a context, each in a process of its own; in s.
        programs: those under the profiler, in the order they ran.
        uncounted: why nothing at all could be counted; empty where counters were to be had.
        remedy: what would help, who can do it.
        others: who else used the device before, in words.
        missing: what it was asked for and did not get to, in words.
    """

    device: Device
    series: tuple[Series, ...] = ()
    grids: tuple[Grid, ...] = ()
    counts: tuple[Count, ...] = ()
    waits: tuple[Count, ...] = ()
    programs: tuple[Program, ...] = ()
    uncounted: str = ""
    remedy: str = ""
    cold_start_s: tuple[float, ...] = ()
    others: str = ""
    missing: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0
    tools: Pairs = ()


# --- judged ---


class Step(NamedTuple):
    """Time of a new form over an old one, of one race.

    Attributes:
        step: key of the step, see roles.STEPS.
        mapping, form: of both; the form is the new one's.
        new, old: the variants.
    """

    step: str
    mapping: str
    form: str
    n: int
    new: str
    old: str
    ratio: Estimate


class DeviceReport(NamedTuple):
    """What a validation on a device comes to."""

    device: Device
    shape: Pairs
    growth: tuple[Growth, ...]
    steps: tuple[Step, ...]
    crossings: tuple[Crossing, ...]
    counts: tuple[Count, ...]
    waits: tuple[Count, ...]
    programs: tuple[Program, ...]
    uncounted: str
    remedy: str
    cold_start_s: tuple[float, ...]
    formulas: tuple[Formula, ...]
    findings: tuple[Finding, ...]
    failed: tuple[Series, ...]
    missing: tuple[str, ...]
    interrupted: bool
    seconds: float
    others: str
    tools: Pairs = ()


class Crossing(NamedTuple):
    """Where a step's ratio passes 1, interpolated in log n and log ratio between two sizes. `rising`: to above 1."""

    step: str
    mapping: str
    form: str
    n: float
    rising: bool

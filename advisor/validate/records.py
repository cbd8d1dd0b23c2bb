"""The nouns of a validation: what was measured, and what it comes to. Immutable; verbs are in the other modules."""

from __future__ import annotations

from typing import NamedTuple

from advisor.records import Pairs, Problem

REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE = "reproduced", "not reproduced", "not testable here"


class Node(NamedTuple):
    """What the judges must know of a machine. `cpus`: those that can be used at once."""

    model_name: str | None
    cpus: int
    numa_nodes: int
    last_level_bytes: int | None
    stack_limit_bytes: int | None


# --- measured ---


class Series(NamedTuple):
    """The samples of one variant at one problem and thread count; sample i of all of a group was taken in round i.

    Attributes:
        pinned: whether each thread was bound to a CPU.
        samples_ns: each the mean time of one call; empty unless status is ok.
        flops: of the DNF.
        moved: predicted elements read and written by this variant, from its header.
        item_bytes: of one element.
        compiler: what the variant was made with.
    """

    problem: Problem
    variant: str
    threads: int
    pinned: bool
    status: str
    samples_ns: tuple[float, ...]
    flops: int
    moved: int
    item_bytes: int
    reason: str = ""
    compiler: str = ""


class Floor(NamedTuple):
    """The fastest reading of so many bytes, once each. `in_cache`: they fit the last-level cache."""

    threads: int
    bytes_read: int
    in_cache: bool
    samples_ns: tuple[float, ...]


class Window(NamedTuple):
    """All calls of a stretch of time, nothing rejected: quiet, or beside one busy process pinned to one CPU."""

    problem: Problem
    variant: str
    threads: int
    pinned: bool
    beside: bool
    mean_ns: float
    p99_ns: float
    samples: int


class StackCheck(NamedTuple):
    """One variant at the size at which the paper's reductions crashed: an output of `output_bytes`."""

    kernel: str
    variant: str
    threads: int
    output_bytes: int
    status: str
    reason: str = ""


class Measured(NamedTuple):
    """All that one run measured. `missing`: what it was asked for and did not get to, in words.

    Attributes:
        busy_percent: busy share of all CPUs before anything of ours ran.
        languages: variants in Fortran and those in C that they mirror, raced with each other.
        compilers: tool that made any of those -> the first line of its version.
    """

    node: Node
    series: tuple[Series, ...] = ()
    floors: tuple[Floor, ...] = ()
    windows: tuple[Window, ...] = ()
    stack: tuple[StackCheck, ...] = ()
    missing: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0
    busy_percent: float | None = None
    languages: tuple[Series, ...] = ()
    compilers: Pairs = ()


# --- judged ---


class Estimate(NamedTuple):
    """A figure with its bootstrap 95 % interval; the ends are None where there were too few rounds for one."""

    value: float
    low: float | None
    high: float | None


class Growth(NamedTuple):
    """How time grows between two sizes of one variant: exponent of n, beside what is predicted.

    Attributes:
        by_flops: exponent of the DNF's floating-point operations.
        by_moved: exponent of the elements that the variant's header says it moves.
    """

    kernel: str
    variant: str
    threads: int
    low_n: int
    high_n: int
    exponent: Estimate
    by_flops: float
    by_moved: float


class Crossover(NamedTuple):
    """The best thread count of one variant at one n, beside the paper's.

    Attributes:
        tied: further counts whose time is not told apart from the best one's.
        speedup: time of one thread over time of the best.
        all_over_best: time of all threads over time of the best.
        published: the paper's best count (Delta, up to 128 threads), None where it has no such n.
        published_slowdown: 128 threads against the best, in the paper.
    """

    kernel: str
    variant: str
    n: int
    best: int
    tied: tuple[int, ...]
    tried: tuple[int, ...]
    time_ns: float
    speedup: Estimate | None
    all_over_best: Estimate | None
    published: int | None
    published_slowdown: float | None


class Fusion(NamedTuple):
    """Time of a fused variant over a baseline that keeps A. `published`: (threads, ratio) of the paper at this n."""

    variant: str
    baseline: str
    n: int
    threads: int
    ratio: Estimate
    published: tuple[tuple[int, float], ...]


class Traffic(NamedTuple):
    """Predicted bytes of a variant, and what speed they would mean. Nothing here was counted.

    Attributes:
        predicted_bytes: elements of the variant's header times the size of one.
        gb_per_s: predicted bytes over time, in 10^9 bytes a second.
        floor_memory, floor_cache: speed of the read floor at the same threads, None where not measured.
    """

    kernel: str
    variant: str
    n: int
    threads: int
    predicted_bytes: int
    gb_per_s: float
    floor_memory: float | None
    floor_cache: float | None


class Plateau(NamedTuple):
    """A team of decode at one n: means in ns, quiet and beside one busy neighbour, each over the `base` team's mean.

    `published`: 128 threads over 64, in the paper, at this n.
    """

    n: int
    threads: int
    pinned: bool
    quiet_ns: float | None
    beside_ns: float | None
    base_threads: int
    quiet_over_base: float | None
    beside_over_base: float | None
    published: float | None


class Language(NamedTuple):
    """Time of a variant in C over that of the variant in Fortran with the same ONF, at one n and thread count."""

    kernel: str
    n: int
    threads: int
    variant: str
    compiler: str
    fortran_compiler: str
    ratio: Estimate


class Predicted(NamedTuple):
    """Bytes that the paper predicts of a whole kernel, whatever variant it is."""

    kernel: str
    formula: str
    n: int
    predicted_bytes: int


class Finding(NamedTuple):
    """One finding of the paper, what we have on it, and the verdict: reproduced, not reproduced, not testable here."""

    finding: str
    section: str
    paper: str
    ours: str
    verdict: str
    why: str


class Formula(NamedTuple):
    """A predicted figure computed anew, beside the published one. Bytes."""

    name: str
    ours: int
    published: int


class Report(NamedTuple):
    """What a validation comes to."""

    node: Node
    shape: Pairs
    growth: tuple[Growth, ...]
    crossovers: tuple[Crossover, ...]
    fusions: tuple[Fusion, ...]
    traffic: tuple[Traffic, ...]
    plateau: tuple[Plateau, ...]
    formulas: tuple[Formula, ...]
    stack: tuple[StackCheck, ...]
    findings: tuple[Finding, ...]
    failed: tuple[Series, ...]
    missing: tuple[str, ...]
    interrupted: bool
    seconds: float
    busy_percent: float | None
    languages: tuple[Language, ...] = ()
    compilers: Pairs = ()
    predicted: tuple[Predicted, ...] = ()

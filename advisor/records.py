"""The nouns of advisor: immutable records. Verbs are functions elsewhere; JSON is made by `advisor.codec`.

Units end the name: `_ns`, `_s`, `_bytes`. Unknown is None and stays None. Standard library only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from advisor.topology.array import CpuArray

Pairs = tuple[tuple[str, Any], ...]
"""A small immutable mapping, sorted by key: knobs, shapes, conditions. A JSON object in files."""

Groups = tuple[tuple[int, ...], ...]
"""Groups of CPU ids."""

STATUSES = ("ok", "wrong", "crashed", "timeout", "skipped")
"""How a trial ended. `skipped`: never launched (does not build, too much memory, instruction set absent)."""

BASES = ("EXACT", "INTERPOLATED", "PUBLISHED", "TRANSFERRED", "MODELLED", "STALE", "DEFAULT")
"""How an answer was come by, best first."""

DTYPES = ("float64", "float32", "bfloat16", "float16")
REGIMES = ("warm", "cold")

OBJECTIVES = ("latency", "robust", "efficiency")
"""What a choice is best at: time on a quiet machine; mean time beside a busy neighbour; core-seconds or joules among
those nearly as fast."""


def pairs(mapping: dict[str, Any]) -> Pairs:
    """A dict as Pairs: sorted by key, so that equal mappings are equal records."""
    return tuple(sorted(mapping.items()))


# --- the machine ---


class NumaNode(NamedTuple):
    """One NUMA node. `cpus` are online CPUs, empty for a memory-only node; `distances` in the order of node ids."""

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]


class Caches(NamedTuple):
    """Bytes of one cache of each level, None where unknown or absent."""

    l1d: int | None
    l2: int | None
    l3: int | None


class CoreClass(NamedTuple):
    """Cores of one kind on a hybrid machine, in order of capacity. `capacity` is relative, 1024 for the strongest."""

    name: str
    cpus: tuple[int, ...]
    capacity: int | None


class Gpu(NamedTuple):
    """One GPU, or one slice (MIG) of a GPU, as far as it could be asked; every field but the index may be None.

    `index` is NVML's, a slice has that of its GPU; `cuda_index` the number that CUDA programs started here give it.
    `visible`: whether they see it at all. `mig`: a slice's profile, else enabled, disabled. `slice_of`: its GPU's uuid.
    `unified_memory`: memory is the host's. `device_id`: equal for equal devices. `l2_bytes`: of its L2 cache, as CUDA
    tells it. `reasons`: why a field is unknown.
    """

    index: int  # type: ignore[assignment]
    uuid: str | None
    name: str | None
    memory_bytes: int | None
    sm_count: int | None
    compute_capability: str | None
    numa_node: int | None
    mig: str | None
    power_limit_w: float | None = None
    pci: str | None = None
    slice_of: str | None = None
    cuda_index: int | None = None
    visible: bool | None = None
    unified_memory: bool | None = None
    device_id: str | None = None
    l2_bytes: int | None = None
    reasons: Pairs = ()


class Machine(NamedTuple):
    """What `advisor probe` found. CPU counts speak of online CPUs; `allowed_cpus` and `cpu_quota` are the limits.

    `array` holds every online CPU; holes for what is missing. `groupings` has every labelled grouping, also those that
    are no axis. `sockets` is None where the kernel does not tell.
    """

    hardware_id: str
    limits_id: str
    architecture: str | None
    vendor: str | None
    model_name: str | None
    isa: tuple[str, ...]
    online_cpus: tuple[int, ...]
    offline_cpus: tuple[int, ...]
    allowed_cpus: tuple[int, ...]
    allowed_mems: tuple[int, ...] | None
    cpu_quota: float | None
    memory_limit_bytes: int | None
    sockets: int | None
    cores: int
    threads_per_core: int
    array: CpuArray
    groupings: Pairs
    numa_nodes: tuple[NumaNode, ...]
    l3_groups: Groups
    caches: Caches
    core_classes: tuple[CoreClass, ...]
    gpus: tuple[Gpu, ...]
    environment: Pairs
    warnings: tuple[str, ...]
    extra: Pairs = ()


# --- what is computed, and how ---


class Problem(NamedTuple):
    """One problem: a kernel's DNF at one size. `shape` is the fixed shape, `n` the swept size."""

    kernel: str
    dtype: str
    shape: Pairs
    n: int
    regime: str = "warm"

    def dims(self) -> dict[str, Any]:
        """The fixed shape and n as one dict."""
        return {**dict(self.shape), "n": self.n}


class Build(NamedTuple):
    """The build part of a choice. `flags` is the name of a flag set, never flags themselves."""

    variant: str
    source_hash: str
    knobs: Pairs
    compiler: str
    flags: str


class Team(NamedTuple):
    """The team part: how many threads, and the placement expression that says where."""

    threads: int
    placement: str


class Process(NamedTuple):
    """The process part, fixed when a process starts. `spin` None: the OpenMP runtime's own count."""

    runtime: str
    wait_policy: str
    spin: int | None
    memory_policy: str


class Choice(NamedTuple):
    """What to run a kernel with. `team` and `process` are None on a GPU."""

    build: Build
    team: Team | None
    process: Process | None


# --- what was measured ---


class Summary(NamedTuple):
    """Statistics of samples, each sample the mean time of one call. `ci95_ns`: bootstrap interval of the p25."""

    p25_ns: float
    median_ns: float
    mean_ns: float
    p99_ns: float
    ci95_ns: tuple[float, float]
    samples: int


class Measurement(NamedTuple):
    """Everything about one choice on one problem.

    `samples_ns` is empty unless status is ok. `error` is the largest error against the DNF beside `tolerance`, None
    where nothing was compared. `seconds` the wall time the measurement took, `kernel_s` of it inside the kernel,
    `compile_s` of it compiling. `threads_observed` counts the threads that really ran. `conditions`: rejected samples,
    steal, whether run delay could be read, the mask and quota around the trial.
    """

    problem: Problem
    choice: Choice
    status: str
    samples_ns: tuple[float, ...] = ()
    error: float | None = None
    tolerance: float | None = None
    reason: str = ""
    threads_observed: int | None = None
    seconds: float = 0.0
    kernel_s: float = 0.0
    compile_s: float = 0.0
    conditions: Pairs = ()


class Standing(NamedTuple):
    """How one choice came out of a race. `ratio`: its p25 over the winner's, with a bootstrap 95 % interval.

    `outcome`: winner, tie (not told apart from the winner), slower, or failed (its measurement ended in a status).
    `regret`: its p25 over that of the best in the race, the best picked on one half of the rounds and timed on the
    other; None after fewer than nine rounds. About 1 for the best, and as often below as above.
    `contended`: half of its samples or more were taken while something held a thread off its CPU.
    """

    choice: Choice
    outcome: str
    summary: Summary | None
    ratio: float | None
    ratio_ci95: tuple[float, float] | None
    regret: float | None = None
    contended: bool = False


class Verdict(NamedTuple):
    """The end of one interleaved race on one problem.

    `purpose`: final (the search's finalists), crossing (both sides of a border), border (the n where it is expected),
    heldout (an n that was not tuned).
    `default` is the choice that an untuned machine would take; it is among the standings.
    """

    problem: Problem
    purpose: str
    winner: Choice
    default: Choice
    rounds: int
    standings: tuple[Standing, ...]


# --- what was learned ---


class Point(NamedTuple):
    """A choice's figures at one tuned n.

    `raced`: they come from an interleaved race with samples enough to rank by. `stolen`: the figures beside one busy
    neighbour, nothing rejected, each sample a mean over 20 ms; None where that was not measured. What few points have
    lies in `extra`, so that a table of thousands loads no slower.
    """

    n: int
    summary: Summary
    raced: bool
    stolen: Summary | None = None
    extra: Pairs = ()

    @property
    def fragility(self) -> float | None:
        """Mean time beside one busy neighbour over the 25th percentile without."""
        return dict(self.extra).get("fragility")

    @property
    def joules(self) -> float | None:
        """Energy of one call, None where no counter was there to read."""
        return dict(self.extra).get("joules")

    @property
    def contended(self) -> bool:
        """Whether half of the samples or more were taken while something held a thread off its CPU."""
        return bool(dict(self.extra).get("contended"))


class Row(NamedTuple):
    """One range of n, both ends included, and the choice to take in it. `depends`: environment fields it needs."""

    low: int
    high: int
    choice: Choice
    points: tuple[Point, ...]
    depends: tuple[str, ...]
    extra: Pairs = ()


class Rows(NamedTuple):
    """The rows for another objective than the section's own; none: they are the section's own rows."""

    objective: str
    rows: tuple[Row, ...]


class HeldOut(NamedTuple):
    """Regret (time over best known time, at least 1) at n that were not tuned."""

    n: tuple[int, ...]
    regret: tuple[float, ...]
    geomean: float
    worst: float


class Section(NamedTuple):
    """The rows of one fixed shape, dtype, regime and process part.

    `tuned_n` in ascending order; first and last bound the tuned region. `default` is the choice an untuned machine
    would take, `default_points` its figures, so that every answer can say what it gains. `objective` is what the rows
    were chosen for, `alternatives` has rows for others that the figures allow. `wins`: objective -> tuned n at which
    this section's choice is the best of all process parts. On a GPU `process` is None.
    """

    dtype: str
    shape: Pairs
    regime: str
    process: Process | None
    tuned_n: tuple[int, ...]
    rows: tuple[Row, ...]
    default: Choice
    default_points: tuple[Point, ...]
    heldout: HeldOut | None
    created: str
    objective: str = "latency"
    alternatives: tuple[Rows, ...] = ()
    wins: Pairs = ()
    extra: Pairs = ()


class Table(NamedTuple):
    """A deployment table: one machine, one kernel. `environment` has the values the rows' `depends` speak of."""

    kernel: str
    hardware_id: str
    limits_id: str
    environment: Pairs
    sections: tuple[Section, ...]
    provenance: Pairs
    table_id: str = ""
    extra: Pairs = ()

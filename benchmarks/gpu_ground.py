"""What the parts of benchmarks/gpu.py stand on: the device, its shapes and choices, pools, what a tuning left."""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kernel_race import Deadline, Refused

from advisor.codec import from_json
from advisor.errors import AdvisorError
from advisor.kernels.child import Answer
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.device import find, machine_of
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.messages import encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.gpu.worker import serve
from advisor.kernels.header import GPU_LANGUAGES, Variant
from advisor.kernels.messages import decode
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import variants
from advisor.policy.learn import choose
from advisor.policy.store import load_table
from advisor.records import Choice, Machine, Measurement, Problem, Table
from advisor.search.log import read as read_log
from advisor.search.samples import p25
from advisor.search.space import SpaceOptions, space, space_options
from advisor.topology.probe import probe

SHAPES = {
    "paper": ("float32", {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}),
    "40:8": ("float16", {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}),
    "28:4": ("float16", {"batch": 1, "heads": 28, "kv_heads": 4, "head_dim": 128}),
}
SIZES = (1, 16, 64, 256, 1024, 1919, 1920, 1921, 2808, 4094, 4095, 4096, 16384, 65536, 262144, 1048576)
"""From one row to a million; 1919 to 1921 and 4095 lie around what other programs tile by, 2808 is no power of two."""

REGIME = "cold"
DEVICE = "cuda:0"
FLOOR_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_floor")
POLICY, LOG = "policy", "measurements.jsonl"
"""Folder inside the benchmark's own where the tuning's table, log and machine.json lie; the log's name."""


class Lost(Exception):
    """The context of the device is gone, or its memory was written to by nobody knows whom: this process must end."""


class Own:
    """Stands in a pool in the place of its worker: the bench runs here, so that two pools share one context.

    A worker that is lost cannot be replaced here: what costs a pool its worker raises Lost.
    """

    started = 1

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def ask(self, message: Any, limit_s: float) -> Answer:
        """What a worker would answer. Raises Lost."""
        sink = io.BytesIO()
        serve(self._bench, iter([encode(message)]), sink)  # type: ignore[arg-type]  # lines are all it takes of a file
        reply = decode(sink.getvalue().splitlines()[-1])
        if not reply.sound and reply.status != "skipped":  # no room on the device loses nothing
            raise Lost(reply.reason)
        return Answer(reply.status, reply.reason, reply)

    def close(self) -> None:
        """Nothing: the process ends."""


class Tuned(NamedTuple):
    """What a tuning left: its table (None without one) and the best first look of every choice, in ns."""

    table: Table | None
    looks: dict[Problem, dict[Choice, float]]


class Ground(NamedTuple):
    """A device and what runs on it. `known` and `floors`: the variants of decode and of the read floor."""

    machine: Machine
    spec: KernelSpec
    known: tuple[Variant, ...]
    options: SpaceOptions
    pool: GpuPool
    floor: GpuPool
    deadline: Deadline

    def variant(self, choice: Choice) -> Variant:
        """The variant of a choice, of decode or of the floor."""
        return next(v for v in (*self.known, *floor_variants()) if v.name == choice.build.variant)

    def choices(self, problem: Problem) -> tuple[Choice, ...]:
        """Every valid choice of a problem of decode or of the floor."""
        if problem.kernel == self.spec.name:
            return space(self.machine, self.spec, self.known, problem, self.options)
        return space(self.machine, self.floor.spec, floor_variants(), problem, self.options)


def problem_of(label: str, n: int) -> Problem:
    """The problem of one row."""
    dtype, shape = SHAPES[label]
    return spec_of("decode").problem(n, dtype, REGIME, **shape)


@functools.cache
def floor_variants() -> tuple[Variant, ...]:
    """The variants of the read floor."""
    return variants("read", (FLOOR_FOLDER,), GPU_LANGUAGES)


def device_machine() -> Machine:
    """The machine of the device that is measured. Raises BadInput where there is none."""
    found = probe()
    return machine_of(found, find(found, DEVICE))


@contextlib.contextmanager
def opened(machine: Machine, deadline: Deadline) -> Iterator[Ground]:
    """Both kernels on one device in this process. Raises Refused where there is no CuPy."""
    gpu = machine.gpus[0]
    os.environ.update(environment(dict(os.environ), gpu.uuid or ""))
    try:
        from advisor.kernels.gpu.cuda import CudaDriver
    except ImportError as error:
        raise Refused(f"the device needs CuPy: {error}") from error
    driver = CudaDriver(gpu.uuid or "")
    dnf, read = spec_of("decode"), spec_of("read", (FLOOR_FOLDER,))
    known = variants("decode", (), GPU_LANGUAGES)
    with GpuPool(gpu, dnf, known) as pool, GpuPool(gpu, read, floor_variants()) as floor:
        pool.crew, floor.crew = Own(Bench(driver, dnf, 0)), Own(Bench(driver, read, 0))  # type: ignore[assignment]
        yield Ground(machine, dnf, known, space_options(machine), pool, floor, deadline)


def state(machine: Machine, conditions: dict[str, Any] | None = None) -> dict[str, Any]:
    """Card, driver, versions, regime, and the device's clocks as a measurement found them."""
    gpu = machine.gpus[0]
    facts = ("name", "memory_bytes", "sm_count", "compute_capability", "mig", "power_limit_w", "numa_node")
    card = {name: getattr(gpu, name) for name in facts}
    versions = {name: value for name, value in machine.environment if isinstance(value, str | int)}
    versions |= {tool.name.partition("-")[0]: tool.version for tool in gpu_tools()}
    clocks = {when: dict(found) for when, found in (conditions or {}).items() if when in ("before", "after")}
    return {"card": card, "versions": versions, "regime": REGIME, "clocks": clocks}


@functools.cache
def sources() -> dict[str, str]:
    """What rows depend on: hash of every variant and of the floor, version of every tool."""
    known = (*variants("decode", (), GPU_LANGUAGES), *floor_variants())
    return {**{v.name: v.source_hash for v in known}, **{tool.name: tool.version for tool in gpu_tools()}}


def warps(known: Sequence[Variant], problem: Problem, choice: Choice) -> int | None:
    """Warps of a block of a CUDA choice; None where another compiler decides, or the variant is not at hand."""
    made = choice.build
    variant = next((v for v in known if (v.name, v.source_hash) == (made.variant, made.source_hash)), None)
    if variant is None or variant.launch is None:
        return None
    return geometry(spec_of(problem.kernel), variant, problem, made.knobs).block // 32


# --- what a tuning left ---


def tuned(folder: str, kernel: str = "decode") -> Tuned:
    """Table and first looks of the folder that the part `tune` left; empty where there is none."""
    place = os.path.join(folder, POLICY)
    path = os.path.join(place, f"{kernel}.table.json")
    log = os.path.join(place, LOG)
    table = load_table(path) if os.path.exists(path) else None
    return Tuned(table, looks_of(log) if os.path.exists(log) else {})


def looks_of(path: str) -> dict[Problem, dict[Choice, float]]:
    """Problem -> choice -> 25th percentile of its latest good first look."""
    found: dict[Problem, dict[Choice, float]] = {}
    for record in read_log(path).records:
        if record["kind"] != "trial":
            continue
        with contextlib.suppress(AdvisorError):  # a record of another version
            one = from_json(Measurement, record["measurement"], "trial")
            if one.status == "ok" and one.samples_ns:
                found.setdefault(one.problem, {})[one.choice] = p25(one.samples_ns)
    return found


def conditions_of(path: str) -> dict[str, Any]:
    """What the last timed trial of a log found of the device; empty where there is none."""
    for record in reversed(read_log(path).records):
        found = (record.get("measurement") or {}).get("conditions") or {}
        if record["kind"] == "trial" and "after" in found:
            return dict(found)
    return {}


def table_choice(table: Table | None, problem: Problem) -> Choice | None:
    """What the table says at n; None where it does not cover it."""
    for section in table.sections if table else ():
        same = (section.dtype, section.shape, section.regime) == (problem.dtype, problem.shape, problem.regime)
        if same and section.tuned_n and section.tuned_n[0] <= problem.n <= section.tuned_n[-1]:
            return choose(section, problem.n)
    return None

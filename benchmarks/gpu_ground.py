"""What the parts of benchmarks/gpu.py stand on: the device, its kernels and choices, what a tuning left."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gpu_cells import REGIME, known_of, spec_of
from kernel_race import Deadline, Refused

from advisor.codec import from_json
from advisor.errors import AdvisorError
from advisor.kernels.child import Answer
from advisor.kernels.compilers import Compiler
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.device import find, machine_of
from advisor.kernels.gpu.driver import Driver
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.messages import encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.gpu.worker import serve
from advisor.kernels.header import Variant
from advisor.kernels.messages import decode
from advisor.kernels.spec import KernelSpec
from advisor.policy.learn import choose
from advisor.policy.store import load_table
from advisor.records import Choice, Gpu, Machine, Measurement, Problem, Table
from advisor.search.log import read as read_log
from advisor.search.samples import p25
from advisor.search.space import SpaceOptions, space, space_options
from advisor.topology.probe import probe

DEVICE = "cuda:0"
POLICY, LOG = "policy", "measurements.jsonl"
"""Folder inside the benchmark's own where the tunings' tables, logs and machine.json lie; the name of a log."""

FLOOR = "read"
"""The kernel that reads what decode reads, and nothing else."""


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


class Arena(NamedTuple):
    """A kernel on a device: its DNF, its variants, who runs them."""

    spec: KernelSpec
    known: tuple[Variant, ...]
    pool: GpuPool


class Ground(NamedTuple):
    """A device and the kernels that run on it, in one process and context."""

    machine: Machine
    options: SpaceOptions
    arenas: dict[str, Arena]
    deadline: Deadline

    def at(self, problem: Problem) -> Arena:
        """Where a problem runs."""
        return self.arenas[problem.kernel]

    def variant(self, problem: Problem, choice: Choice) -> Variant:
        """The variant of a choice."""
        return next(one for one in self.at(problem).known if one.name == choice.build.variant)

    def choices(self, problem: Problem) -> tuple[Choice, ...]:
        """Every valid choice of a problem."""
        arena = self.at(problem)
        return space(self.machine, arena.spec, arena.known, problem, self.options)

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """One measurement."""
        return self.at(problem).pool.measure(problem, choice, ask)


def device_machine() -> Machine:
    """The machine of the device that is measured. Raises BadInput where there is none."""
    found = probe()
    return machine_of(found, find(found, DEVICE))


@contextlib.contextmanager
def opened(machine: Machine, deadline: Deadline, kernels: Iterable[str]) -> Iterator[Ground]:
    """Some kernels on one device in this process. Raises Refused where there is no CuPy."""
    gpu = machine.gpus[0]
    os.environ.update(environment(dict(os.environ), gpu.uuid or ""))
    try:
        from advisor.kernels.gpu.cuda import CudaDriver
    except ImportError as error:
        raise Refused(f"the device needs CuPy: {error}") from error
    driver = CudaDriver(gpu.uuid or "")
    yield Ground(machine, space_options(machine), arenas(gpu, driver, kernels), deadline)


def arenas(gpu: Gpu, driver: Driver, kernels: Iterable[str]) -> dict[str, Arena]:
    """Some kernels on a driver of this process."""
    found = {}
    for kernel in dict.fromkeys(kernels):
        spec, known = spec_of(kernel), known_of(kernel)
        pool = GpuPool(gpu, spec, known)
        pool.crew = Own(Bench(driver, spec, 0))  # type: ignore[assignment]  # it has what a pool asks of a crew
        found[kernel] = Arena(spec, known, pool)
    return found


@functools.cache
def tools() -> tuple[Compiler, ...]:
    """What makes variants for a device here, looked up once: it reads folders of packages."""
    return gpu_tools()


def state(machine: Machine, conditions: dict[str, Any] | None = None, regime: str = REGIME) -> dict[str, Any]:
    """Card, driver, versions, regime, and the device's clocks as a measurement found them."""
    gpu = machine.gpus[0]
    facts = ("name", "memory_bytes", "sm_count", "compute_capability", "mig", "power_limit_w", "numa_node")
    card = {name: getattr(gpu, name) for name in facts}
    versions = {name: value for name, value in machine.environment if isinstance(value, str | int)}
    versions |= {tool.name.partition("-")[0]: tool.version for tool in tools()}
    clocks = {when: dict(found) for when, found in (conditions or {}).items() if when in ("before", "after")}
    return {"card": card, "versions": versions, "regime": regime, "clocks": clocks}


def warps(known: Sequence[Variant], problem: Problem, choice: Choice) -> int | None:
    """Warps of a block of a CUDA choice; None where another compiler decides, or the variant is not at hand."""
    made = choice.build
    variant = next((v for v in known if (v.name, v.source_hash) == (made.variant, made.source_hash)), None)
    if variant is None or variant.launch is None:
        return None
    return geometry(spec_of(problem.kernel), variant, problem, made.knobs).block // 32


# --- what a tuning left ---


def log_of(kernel: str) -> str:
    """The name of a kernel's log in that folder."""
    return f"{kernel}.{LOG}"


def tuned(folder: str, kernel: str) -> Tuned:
    """A kernel's table and first looks in the folder that the part `tune` left; empty where there is none."""
    place = os.path.join(folder, POLICY)
    table, log = os.path.join(place, f"{kernel}.table.json"), os.path.join(place, log_of(kernel))
    return Tuned(load_table(table) if os.path.exists(table) else None, looks_of(log) if os.path.exists(log) else {})


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


LAST_LINES = 200


def conditions_of(path: str) -> dict[str, Any]:
    """What the last timed trial among the last lines of a log found of the device; empty where there is none."""
    with open(path, encoding="utf-8") as file:
        lines = collections.deque(file, LAST_LINES)
    for line in reversed(lines):
        with contextlib.suppress(ValueError):  # a torn line
            record = json.loads(line)
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

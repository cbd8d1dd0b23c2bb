"""How much memory of a device a trial takes, how much there is, and who else uses it, before anything starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from advisor.kernels.memory import ITEM_BYTES, operand_bytes
from advisor.kernels.power import nvml
from advisor.kernels.spec import KernelSpec
from advisor.records import Gpu, Pairs, Problem, pairs

L2_BYTES = 60 << 20
"""What is taken for the L2 of a device where CUDA did not tell its size: that of an H200. Some have more: 72 to 96 MB
the large chips of Ada, about 126 MB a B200."""

COLD_FACTOR = 2
MOST_SETS = 512

USABLE = 0.9
"""Share of the device's memory that a trial may take."""

REFERENCE_BYTES = 1 << 30
"""What the reference takes beside its scores: some hundred thousand rows in float64."""

BUSY = 0.05
"""From this share of the time on in which kernels of others ran, a device is not quiet."""

MIB = 1 << 20


def l2_bytes(gpu: Gpu) -> int:
    """Bytes of a device's L2, as CUDA told it, else L2_BYTES."""
    return gpu.l2_bytes or L2_BYTES


def sets(spec: KernelSpec, problem: Problem, gpu: Gpu) -> int:
    """Sets of operands that calls rotate through: one when warm, when cold more than twice the L2 or the most."""
    if problem.regime != "cold":
        return 1
    one = operand_bytes(spec, problem)
    return min(MOST_SETS, max(2, -(-COLD_FACTOR * l2_bytes(gpu) // max(one, 1)) + 1))


def is_evicted(spec: KernelSpec, problem: Problem, gpu: Gpu) -> bool:
    """Whether the sets hold more than the L2; with the most sets, small operands may not."""
    return sets(spec, problem, gpu) * operand_bytes(spec, problem) > l2_bytes(gpu)


def need_bytes(spec: KernelSpec, problem: Problem, copies: int) -> int:
    """Bytes that a trial takes: every set, another draw of inputs, inputs as they are made, the reference."""
    of = problem.dims()
    scores = of.get("heads", 1) * of.get("batch", 1) * problem.n * ITEM_BYTES["float64"]
    return int(operand_bytes(spec, problem) * (2 * copies + 1) + 3 * scores + REFERENCE_BYTES)


class State(NamedTuple):
    """A device now, as NVML tells it; what it does not tell is None.

    Attributes:
        total_bytes, free_bytes: of its memory.
        busy: share of about the last second in which a kernel ran.
        processes: (name or process id, bytes) of those that compute on it.
    """

    total_bytes: int | None = None
    free_bytes: int | None = None
    busy: float | None = None
    processes: tuple[tuple[str, int | None], ...] = ()


def state(gpu: Gpu) -> State:
    """The state of a device now: all unknown where there is no NVML, or it does not know the device."""
    try:
        with nvml() as library:
            return _asked(library, library.nvmlDeviceGetHandleByUUID(gpu.uuid))
    except Exception:  # no module, no driver, a device that it names otherwise: unknown is unknown
        return State()


def _asked(library: Any, handle: Any) -> State:
    def told(function: str) -> Any:
        try:
            return getattr(library, function)(handle)
        except Exception:  # dozens of error classes; slices and containers refuse this and that
            return None

    memory, use = told("nvmlDeviceGetMemoryInfo"), told("nvmlDeviceGetUtilizationRates")
    running = told("nvmlDeviceGetComputeRunningProcesses") or ()
    return State(
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None or getattr(memory, "free", None) is None else int(memory.free),
        busy=None if use is None else use.gpu / 100,
        processes=tuple((_name(library, one.pid), one.usedGpuMemory) for one in running),
    )


def _name(library: Any, pid: int) -> str:
    try:
        found = library.nvmlSystemGetProcessName(pid)
    except Exception:  # a process of another container
        return f"process {pid}"
    words = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    return words.split(" ")[0].rpartition("/")[2] or f"process {pid}"


def room_bytes(gpu: Gpu) -> int | None:
    """Bytes that may be taken now: free ones, else all that the device has; None where neither is told."""
    now = state(gpu)
    return now.free_bytes if now.free_bytes is not None else gpu.memory_bytes


def sentence(found: State) -> str:
    """What the user should know before tuning starts; empty on a quiet device, and where nothing is told."""
    if found.busy is None or found.busy <= BUSY:
        return ""
    named = [f"{name}{'' if used is None else f' {used / MIB:.0f} MiB'}" for name, used in found.processes]
    users = ", ".join(named) or "nobody that can be seen from here"
    return f"this GPU is not quiet: kernels of others ran {found.busy:.0%} of the last second ({users})"


def recorded(found: State) -> Pairs:
    """The same for the log."""
    return pairs(
        {
            **found._asdict(),
            "processes": tuple(dict(zip(("name", "bytes"), one, strict=True)) for one in found.processes),
        }
    )

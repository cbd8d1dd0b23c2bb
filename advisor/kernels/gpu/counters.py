"""What a choice really moves on a device, by the hardware's own counters where they may be read. docs/counters.md.

Counting is apart from timing: a profiler replays a kernel pass by pass, so its duration is not the choice's time, and a
counter never overrules a time. Where nobody may count, the outcome says why and what would help; nothing is tried
twice, and no driver or agent is touched.
"""

from __future__ import annotations

import functools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.compilers import private_child
from advisor.kernels.executor import Ask
from advisor.kernels.expressions import evaluate
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.counted import ASKED, REPLY
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.messages import Hello, Trial, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.messages import Reply, decode
from advisor.kernels.process import run
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, names
from advisor.paths import cache_dir
from advisor.records import Choice, Gpu, Problem

CALLS = 3
"""Calls that are counted; a figure is their median, and kernels that differ from call to call are noticed."""

LIMIT_S = 90.0
"""Wall-clock limit of one counting: importing, compiling and checking take seconds, and ncu waits for other ncus."""

SECTOR_BYTES = 32
"""Of the L2. Source: Nsight Compute, Profiling Guide, "L2 Cache"."""

PERMISSION = "/proc/driver/nvidia/params"
"""Where the driver says whether counters are for administrators only (RmProfilingAdminOnly)."""


class Kernel(NamedTuple):
    """Figures of one kernel of a call, or of a whole call; None where ncu had none.

    Attributes:
        name: the kernel's function.
        duration_ns: under the profiler, alone on the device; not the time of a choice.
        dram_read_bytes, dram_written_bytes: between L2 and memory.
        l2_read_sectors, l2_written_sectors: of 32 bytes, asked of the L2 by multiprocessors.
        global_reductions: reductions on global memory (red) that warps executed.
        global_atomics: atomics on global memory that return a value (atom), likewise.
        achieved_occupancy: warps that were active over the most that a multiprocessor holds, 0 to 1.
        theoretical_occupancy: the same as registers, shared memory and block size allow it.
    """

    name: str
    duration_ns: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    l2_read_sectors: float | None = None
    l2_written_sectors: float | None = None
    global_reductions: float | None = None
    global_atomics: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None


class Counters(NamedTuple):
    """What one call of a choice did.

    Attributes:
        call: the whole call: sums of its kernels; occupancies of the kernel that took longest.
        kernels: each kernel of a call in order, medians over the calls that were counted.
        calls: how many were counted.
        caches: flushed (before each pass over a kernel) or kept.
        tool: what counted.
        seconds: wall time that it took.
    """

    call: Kernel
    kernels: tuple[Kernel, ...]
    calls: int
    caches: str
    tool: str
    seconds: float


class NoCounters(NamedTuple):
    """Why there are none. `remedy`: what would help, and who can do it. `everywhere`: no other choice fares better."""

    reason: str
    remedy: str
    everywhere: bool = True


def count(
    gpu: Gpu, spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice, limit_s: float = LIMIT_S
) -> Counters | NoCounters:
    """Count what one call of a choice does on one problem, in a small program of its own under ncu.

    Args:
        gpu: the device.
        spec: of the problem's kernel.
        variant: the one that the choice names.
        problem: cold: caches are flushed before every kernel; warm: they keep what the calls before left in them.
        choice: whose calls are counted.
        limit_s: wall-clock limit, after which all of it is ended.

    Returns:
        The counters, or why there are none: no ncu, no permission, counters held by somebody else, a hang, output
        that cannot be read, or a choice that does not run.
    """
    program = ncu.find()
    if program is None:
        return NoCounters("ncu (Nsight Compute) is not installed", "install it, or put the folder of ncu on PATH")
    begun = time.monotonic()
    try:
        asked = _asked(gpu, spec, variant, problem, choice)
        status, output, reply = _run(program, gpu, problem, asked, limit_s)
        found = judged(status, output, reply, limit_s)
    except (AdvisorError, OSError) as error:
        return NoCounters(str(error), "", everywhere=False)
    if isinstance(found, NoCounters):
        return found
    caches = "flushed" if ncu.CACHES[problem.regime] == "all" else "kept"
    return Counters(in_total(found), found, CALLS, caches, tool(program), time.monotonic() - begun)


def count_each(
    gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, choices: Sequence[Choice]
) -> Iterator[tuple[Choice, Counters | NoCounters]]:
    """Count several choices on one problem, one after another; what holds everywhere is found out once."""
    known = {(variant.name, variant.source_hash): variant for variant in variants}
    refused: NoCounters | None = None
    for choice in choices:
        variant = known.get((choice.build.variant, choice.build.source_hash))
        if variant is None:
            yield choice, NoCounters("no such variant at hand, in this very version", "", everywhere=False)
            continue
        found = refused or count(gpu, spec, variant, problem, choice)
        refused = found if isinstance(found, NoCounters) and found.everywhere else None
        yield choice, found


# --- running ---


def _asked(gpu: Gpu, spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice) -> bytes:
    """The two lines that the counted program reads: the very trial that a worker would get, with nothing to time."""
    with GpuPool(gpu, spec, (variant,)) as pool:
        trial: Trial = pool._trial(problem, pool._possible(problem, choice.build), choice, Ask(0, 0.0), "normal")
    return encode(Hello(origin(spec), 0, gpu.uuid or "")) + encode(trial)


def _run(program: str, gpu: Gpu, problem: Problem, asked: bytes, limit_s: float) -> tuple[int, str, Reply | None]:
    """Exit status, all that ncu and the program printed, what the program replied."""
    with tempfile.TemporaryDirectory(prefix="advisor-ncu-") as folder:
        with open(os.path.join(folder, ASKED), "wb") as file:
            file.write(asked)
        log_path = os.path.join(folder, "log")
        limits = [str(CALLS), str(max(1, round(limit_s)))]
        target = [sys.executable, "-P", "-m", "advisor.kernels.gpu.counted", folder, *limits]
        status, printed = run(
            ncu.command(program, problem.regime, log_path, target), limit_s, variables=_variables(gpu.uuid or "")
        )
        log, reply = _read(log_path), _read(os.path.join(folder, REPLY))
    return status, f"{printed}\n{log}", _reply(reply)


def _variables(uuid: str) -> dict[str, str]:
    """The environment of a bench worker; ncu's lock file in a folder of one's own, where no other user's lies."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    locks = private_child(private_child(cache_dir(), "gpu"), "ncu")
    return {**environment({}, uuid), "PYTHONPATH": path, "TMPDIR": locks}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _reply(line: str) -> Reply | None:
    try:
        found = decode(line.encode())
    except BadInput:
        return None
    return found if isinstance(found, Reply) else None


@functools.cache
def tool(program: str) -> str:
    """Name and version of ncu."""
    _, output = run([program, "--version"], 30.0)
    version = re.search(r"\b(\d{4}\.\d+(\.\d+)*)", output)
    return f"ncu {version[1]}" if version else "ncu"


# --- judging ---


def judged(status: int, output: str, reply: Reply | None, limit_s: float) -> tuple[Kernel, ...] | NoCounters:
    """The kernels of one call, or why they are not known.

    Args:
        status: ncu's exit status; 124: ended at the limit.
        output: all that was printed.
        reply: what the counted program said, None where it did not get that far.
        limit_s: the limit, to be named.
    """
    refused = ncu.refusal(output)
    if refused is not None:
        return NoCounters(refused.reason, refused.remedy)
    if status == 124:
        remedy = "is another profiler at work, or does a driver call hang? nvidia-smi must answer"
        return NoCounters(f"ncu was ended after {limit_s:g} s", remedy)
    words = ncu.complaint(output)
    if reply is None:
        last = words or " ".join(output.split())[-200:]
        return NoCounters(f"ncu did not run the choice (exit status {status}): {last}", "try `ncu --version` by hand")
    if reply.status != "ok":
        return NoCounters(f"the choice did not run under ncu: {reply.status}: {reply.reason}", "", everywhere=False)
    try:
        return of_call(ncu.parse(output), CALLS)
    except BadInput as error:
        return NoCounters(f"{error}{f'; ncu said: {words}' if words else ''}", "", everywhere=False)


def of_call(rows: Sequence[ncu.Row], calls: int) -> tuple[Kernel, ...]:
    """The kernels of one call: the same ones in every call, each figure the median.

    Raises:
        BadInput: the launches are not so many equal calls, or no figure is known.
    """
    size = len(rows) // calls
    each = [rows[i * size : (i + 1) * size] for i in range(calls)]
    alike = all([row.name for row in one] == [row.name for row in each[0]] for one in each)
    if not size or len(rows) % calls or not alike:
        got = [row.name for row in rows]
        raise BadInput(f"launches must be those of {calls} equal calls", got=f"{len(got)} launches: {got[:12]}")
    if not any(row.figures for row in rows):
        raise BadInput("a counter must have a value", got="n/a in every one")
    return tuple(_median([one[i] for one in each]) for i in range(size))


def _median(rows: Sequence[ncu.Row]) -> Kernel:
    fields = set.intersection(*(set(row.figures) for row in rows))
    return Kernel(rows[0].name, **{name: statistics.median(row.figures[name] for row in rows) for name in fields})


SUMMED = tuple(metric.field for metric in ncu.METRICS if not metric.field.endswith("occupancy"))


def in_total(kernels: Sequence[Kernel]) -> Kernel:
    """Figures of a whole call: sums, None where a kernel's part is unknown; occupancies of the longest kernel."""
    longest = max(kernels, key=lambda kernel: kernel.duration_ns or 0.0)
    sums = {name: _sum([getattr(kernel, name) for kernel in kernels]) for name in SUMMED}
    return longest._replace(name=" + ".join(kernel.name for kernel in kernels), **sums)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# --- what a counter stands beside ---


class Predicted(NamedTuple):
    """What formulas say of one call, for the same figures: bytes of the DNF and of the variant, atomic updates."""

    dnf_read_bytes: int
    dnf_written_bytes: int
    read_bytes: int
    written_bytes: int
    atomics: int


def predicted(spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice) -> Predicted:
    """What is predicted of a choice: by the DNF's cost function, and by the header of its variant.

    Elements are taken to be of the problem's dtype.

    Raises:
        BadInput: an expression of the header has no value here.
    """
    known, size = _names(spec, variant, problem, choice), ITEM_BYTES[problem.dtype]
    dnf = spec.elements(problem)
    read, written, atomics = (evaluate(text, known) for text in (variant.reads, variant.writes, variant.atomics))
    return Predicted(dnf.read * size, dnf.written * size, read * size, written * size, atomics)


def _names(spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice) -> dict[str, int]:
    """What a header's expressions may speak of: dims, knobs, and what its launch derives."""
    known = names(problem, choice.build.knobs)
    if variant.launch is None:
        return known
    values = geometry(spec, variant, problem, choice.build.knobs).numbers[-len(variant.launch.derived) :]
    return {**known, **{name: value for (name, _), value in zip(variant.launch.derived, values, strict=False)}}

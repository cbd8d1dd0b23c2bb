"""Nsight Compute (ncu) as a program: where it lies, how it is called, what it printed, why it refused."""

from __future__ import annotations

import csv
import glob
import math
import os
import re
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import BadInput
from advisor.records import REGIMES

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Where CUDA's own packages put it, beside PATH."""


class Metric(NamedTuple):
    """One figure of a kernel: the field it becomes, ncu's name, the base units it may come in (none: any, as a ratio's
    name says what it is), the factor to ours."""

    field: str
    name: str
    units: tuple[str, ...] = ()
    factor: float = 1.0


SUMMED = (
    Metric("duration_ns", "gpu__time_duration.sum", ("ns", "nsecond")),
    Metric("dram_read_bytes", "dram__bytes_read.sum", ("byte",)),
    Metric("dram_written_bytes", "dram__bytes_write.sum", ("byte",)),
    Metric("l2_read_sectors", "lts__t_sectors_srcunit_tex_op_read.sum", ("sector",)),
    Metric("l2_written_sectors", "lts__t_sectors_srcunit_tex_op_write.sum", ("sector",)),
    Metric("global_reductions", "smsp__inst_executed_op_global_red.sum", ("inst",)),
    Metric("l2_atomic_sectors", "lts__t_sectors_srcunit_tex_op_atom.sum", ("sector",)),
)
"""What is counted and adds up over the kernels of a call. Sectors are those that multiprocessors asked of the L2: what
its two halves exchange among themselves, and fetches from DRAM, are left out.

Source: Nsight Compute, Profiling Guide, "Metrics Decoder"."""

RATIOS = (
    Metric("achieved_occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active", ("%",), 0.01),
    Metric("theoretical_occupancy", "sm__maximum_warps_per_active_cycle_pct", ("%",), 0.01),
    Metric("read_sector_bytes", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"),
    Metric("written_sector_bytes", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio"),
    Metric("read_request_sectors", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
    Metric("written_request_sectors", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"),
)
"""Those of one kernel: warps on a multiprocessor, bytes of a sector that threads want, sectors of a warp's request."""

STALLS = tuple(
    Metric(reason, f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
    for reason in (
        *("long_scoreboard", "short_scoreboard", "barrier", "wait"),
        *("lg_throttle", "mio_throttle", "math_pipe_throttle", "membar"),
    )
)
"""Warps that wait, by what they wait for, per cycle in which one was issued: those reasons of many that a mapping of
threads or a tile decides. Source: as above, "Warp Stall Reasons"."""

METRICS = SUMMED + RATIOS + STALLS

CORE = SUMMED + RATIOS[:2]
"""What is counted in one pass on an H200: ncu runs a kernel dozens of times for all of METRICS."""

DETAIL = (SUMMED[0], *RATIOS[2:], *STALLS)
"""What explains it, in passes of its own."""

NAME, GRID, PASSES = "Kernel Name", "Grid Size", "profiler__replayer_passes"
"""Columns of the raw page beside the metrics."""

CACHES = {"cold": "all", "warm": "none"}
"""Regime -> what ncu flushes before each pass over a kernel: all caches, or none."""


class Refusal(NamedTuple):
    """Words by which ncu or the driver say that nobody can count here now: what they mean, and the remedy."""

    words: str
    reason: str
    remedy: str


REFUSALS = (
    Refusal(
        "ERR_NVGPUCTRPERM",
        "the driver lets only administrators read counters (ERR_NVGPUCTRPERM)",
        "on the host, an administrator sets the module option NVreg_RestrictProfilingToAdminUsers=0 of nvidia and "
        "loads the driver again, or starts this container with --cap-add SYS_ADMIN",
    ),
    Refusal(
        "driver resource was unavailable",
        "another program holds the counters: one profiler or monitoring agent (DCGM) at a time on a machine",
        "whoever runs the agent can let go of them for a while: `dcgmi profiling --pause`, and --resume afterwards",
    ),
    Refusal(
        "InterprocessLock",
        "ncu's lock file belongs to somebody else",
        "set TMPDIR to a folder of your own",
    ),
    Refusal(
        "LibraryNotLoaded",
        "the driver has no profiling library here (LibraryNotLoaded), as in sandboxes that pass on a part of it",
        "run where the whole driver is installed, with ncu and driver of matching versions",
    ),
)
"""Source: Nsight Compute, Profiling Guide, "FAQ"; developer.nvidia.com/ERR_NVGPUCTRPERM; NVIDIA/DCGM issue 56."""


class Row(NamedTuple):
    """One profiled kernel launch: its name, the blocks of its grid along x, and what ncu had: figures by field, warps
    that waited by reason; how many times it ran for that."""

    name: str
    blocks: int | None
    figures: dict[str, float]
    stalls: dict[str, float]
    passes: int | None = None


def find() -> str | None:
    """The path of ncu, None where there is none: PATH first, then PLACES in order, of one place the latest version."""
    found = shutil.which("ncu")
    if found:
        return found
    listed = [[path for path in glob.glob(place) if os.access(path, os.X_OK)] for place in PLACES]
    return next((max(paths, key=_version) for paths in listed if paths), None)


def _version(path: str) -> list[int]:
    """The numbers in the name of the folder that a program lies in, 2025.3.0."""
    return [int(number) for number in re.findall(r"\d+", os.path.basename(os.path.dirname(path)))]


def command(
    program: str, regime: str, log_path: str, target: Sequence[str], metrics: Sequence[Metric] = METRICS
) -> list[str]:
    """The argv that counts the kernels between cudaProfilerStart and cudaProfilerStop of a program.

    Clocks stay as they are, nothing but the metrics is collected, and only the program itself is looked into.

    Args:
        program: path of ncu.
        regime: of the problem, see CACHES.
        log_path: where ncu writes, so that nothing the program prints comes between.
        target: argv of the program.
        metrics: what is collected.

    Raises:
        BadInput: no such regime.
    """
    if regime not in CACHES:
        raise BadInput("a problem has a known regime", got=regime, allowed=", ".join(REGIMES))
    names = ",".join(metric.name for metric in metrics)
    how = ["--clock-control", "none", "--cache-control", CACHES[regime], "--profile-from-start", "off"]
    what = ["--target-processes", "application-only", "--metrics", names]
    form = ["--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function"]
    return [program, *how, *what, *form, "--log-file", log_path, *target]


def refusal(text: str) -> Refusal | None:
    """Why nobody can count here now, as ncu's own output says it; None where it says nothing of the kind."""
    return next((known for known in REFUSALS if known.words in text), None)


def complaint(text: str) -> str:
    """ncu's own errors, else its warnings, in one line; empty where it had none."""
    for mark in ("==ERROR==", "==WARNING=="):
        lines = [line.split(mark, 1)[1].strip() for line in text.splitlines() if mark in line]
        lines = [line for line in lines if not line.startswith("Note:")]  # of clocks that are left as they are
        if lines:
            return " ".join(lines)[:400]
    return ""


def parse(text: str) -> tuple[Row, ...]:
    """The launches of a raw page in CSV, in the order they ran; lines of ncu's own around it are passed over.

    Args:
        text: what ncu wrote with `command`.

    Returns:
        One row a launch. A figure that ncu did not have (n/a) is absent.

    Raises:
        BadInput: no page, one that was cut off, or numbers in other units than were asked for.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines or NAME not in lines[0]:
        raise BadInput("ncu must print a raw page in CSV", got=text[-200:])
    if not text.endswith("\n") or not lines[-1].endswith('"'):
        raise BadInput("ncu's page must end with a whole line", got=lines[-1][-80:])
    head, *rest = csv.reader(lines)
    if any(len(row) != len(head) for row in rest):
        raise BadInput(
            "ncu's page must have a value in every column", got=f"{len(head)} columns, a row of another length"
        )
    if not rest:
        raise BadInput("ncu's page must have rows", got="its head alone")
    units, *rows = (dict(zip(head, row, strict=True)) for row in rest)
    _check_units(units)
    return tuple(map(_row, rows))


def _row(row: dict[str, str]) -> Row:
    passes = _number(row.get(PASSES, ""))
    figures, stalls = _values(row, SUMMED + RATIOS), _values(row, STALLS)
    return Row(row[NAME], _blocks(row.get(GRID, "")), figures, stalls, None if passes is None else int(passes))


def _check_units(units: dict[str, str]) -> None:
    for metric in METRICS:
        unit = units.get(metric.name, "")
        if unit and metric.units and unit not in metric.units:
            raise BadInput(f"{metric.name} must come in base units", got=unit, allowed=" or ".join(metric.units))


def _values(row: dict[str, str], metrics: Sequence[Metric]) -> dict[str, float]:
    values = {metric: _number(row.get(metric.name, "")) for metric in metrics}
    return {metric.field: value * metric.factor for metric, value in values.items() if value is not None}


def _blocks(text: str) -> int | None:
    """The first extent of a grid as ncu prints it, (52, 40, 1)."""
    found = re.match(r"\(\s*(\d+)", text)
    return int(found[1]) if found else None


def _number(text: str) -> float | None:
    """A number as ncu prints it, with commas between thousands; None for n/a and what is no number."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None

"""The part `tune`: the product tunes cell after cell, what it left is kept for policies/.

What `advisor tune --device` calls is called here, so that the workers of the next search can start while one runs:
see gpu_spares.py.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpu_cells import CELLS, REGIME, known_of, problem_of, spec_of
from gpu_ground import DEVICE, LOG, POLICY, conditions_of, log_of
from gpu_spares import Spares, Wanted
from kernel_race import Refused

from advisor import tuning, tuning_result
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.messages import Compile, Hello
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.registry import origin
from advisor.records import Machine, pairs
from advisor.search.request import Silent
from advisor.search.space import space, space_options

HOME = "home"
"""Folder inside the benchmark's own that is ADVISOR_HOME for the product."""

LEAST_S = 4.0
"""A cell has at least so long: less brings no race."""


Figures = tuple[dict[str, Any], dict[str, Any]]
"""What a row measured, and the conditions of the device."""


class Tuner(NamedTuple):
    """Where cells are tuned: folder, machine of the device, workers to come."""

    folder: str
    machine: Machine
    spares: Spares


@contextlib.contextmanager
def tuner(folder: str, machine: Machine) -> Iterator[Tuner]:
    """Within, the product takes spare workers."""
    with Spares() as spares, spares.in_place():
        yield Tuner(folder, machine, spares)


@contextlib.contextmanager
def home_of(folder: str, kernel: str) -> Iterator[None]:
    """Within, the product keeps its state in a place of the kernel's own: a log of all would be read for each cell."""
    before = os.environ.get("ADVISOR_HOME")
    os.environ["ADVISOR_HOME"] = os.path.join(folder, HOME, kernel)
    try:
        yield
    finally:
        os.environ.pop("ADVISOR_HOME")
        if before is not None:
            os.environ["ADVISOR_HOME"] = before


def request(label: str, sizes: Sequence[int], budget_s: float) -> tuning.TuneRequest:
    """What the product is asked for a cell."""
    cell = CELLS[label]
    return tuning.TuneRequest(
        (cell.kernel,), tuple(sizes), cell.dtype, pairs(cell.shape), budget_s, resume=True, regime=REGIME, device=DEVICE
    )


def worker_for(machine: Machine, label: str) -> Wanted:
    """A worker for a cell, and that it imports what Python variants of it need."""
    cell = CELLS[label]
    spec, known = spec_of(cell.kernel), known_of(cell.kernel)
    problem = problem_of(label, min(cell.sizes), "warm")
    python = [one for one in known if one.language != OWN_GPU_LANGUAGES[0]]
    first = {one.build.variant: one for one in space(machine, spec, python, problem, space_options(machine))}
    with GpuPool(machine.gpus[0], spec, known) as pool:  # it starts no worker
        programs = [pool.trial(problem, one, Ask(0, 0.0), "normal").program for one in first.values()]
    return Hello(origin(spec), 0, machine.gpus[0].uuid or ""), Compile(tuple(programs), problem)


def expect(at: Tuner, listed: Sequence[str]) -> None:
    """Let workers start for the first of some cells, and for the next of another kernel."""
    later = next((label for label in listed if CELLS[label].kernel != CELLS[listed[0]].kernel), None)
    at.spares.expect([worker_for(at.machine, label) for label in (listed[0], later) if label])


def measure(at: Tuner, listed: Sequence[str], sizes: Sequence[int], budget_s: float) -> Figures:
    """Tune a cell. Raises Refused where it left no table.

    Args:
        at: where.
        listed: the cell, then those that come after it.
        sizes: its n.
        budget_s: seconds.

    Returns:
        What the product said, and the conditions that its last trial found.
    """
    expect(at, listed)
    label, used, budget_s = listed[0], at.spares.used, max(LEAST_S, budget_s)
    kernel = CELLS[label].kernel
    with home_of(at.folder, kernel):
        (result,) = tuning.tune(request(label, sizes, budget_s), Silent())
    keep(at.folder, kernel)
    if result.table is None:
        raise Refused(f"advisor tune left no table: {result.missing}")
    said = tuning_result.result_json(result)
    data = {"budget_s": budget_s, "said": said, "spare_workers": at.spares.used - used}
    return data, conditions_of(result.log_path)


# --- what is kept ---

WHICH_CARD = ("uuid", "slice_of", "pci")
"""Fields of a GPU that tell which card of its kind it was: no lookup needs them, and nobody else is told."""

_TOLD = re.compile(rf'("(?:{"|".join(WHICH_CARD)})": ?)"[^"]*"')


def keep(folder: str, kernel: str) -> None:
    """Copy a kernel's table and log, and machine.json, to the folder for policies/, without what tells one card of a
    kind from another."""
    found = glob.glob(os.path.join(folder, HOME, kernel, "**", LOG), recursive=True)
    if found:
        place, kept = os.path.dirname(max(found, key=os.path.getmtime)), os.path.join(folder, POLICY)
        os.makedirs(kept, exist_ok=True)
        names = {name: name for name in ("machine.json", f"{kernel}.table.json")} | {LOG: log_of(kernel)}
        for path, copy in ((os.path.join(place, name), os.path.join(kept, own)) for name, own in names.items()):
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file, open(copy, "w", encoding="utf-8") as target:
                    target.writelines(anonymous(line) for line in file)


def anonymous(text: str) -> str:
    """JSON text with null for each value of WHICH_CARD; all else stays as it is, to the byte, so ids hold."""
    return _TOLD.sub(r"\1null", text)

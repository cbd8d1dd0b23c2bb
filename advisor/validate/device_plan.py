"""What a validation measures on a device: sizes, cells, what they are expected to cost, what is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.space import Tools, gpu_space
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, variants
from advisor.records import Choice, Gpu, Pairs, Problem, pairs
from advisor.search.samples import smooth_p25
from advisor.validate.device_records import Grid
from advisor.validate.plan import Cell, Pace
from advisor.validate.records import Series
from advisor.validate.request import DTYPES, ROW_SIZES, Request, paper_shape
from advisor.validate.roles import form_of, forms

ON_DEVICE = Pace(5, 1, 100.0, 1000.0)
"""A first round is the check, a warm-up, two replays that say how long a sample is, and the sample. A device does
100 flops a ns with a thread a row; the reference, products in float64, ten times as many."""

CHAIN = ("forward", "backward", "fused")
"""The kernels that the paper's GPU findings are about."""

CHAIN_SIZES = tuple(64 << i for i in range(8))
"""64 to 8192 doubling, as in the paper. Source: Mullin and Hains, section 3.2."""

DECODE_SIZES = tuple(1024 << 2 * i for i in range(6))
"""1024 to 1048576 by fours. Source: the same, section 5.3."""

BLOCK_SIZES = (64, 128, 256, 512)
"""Source: the same, section 6.2."""

SIZES = {"decode": DECODE_SIZES, "block": BLOCK_SIZES, **dict.fromkeys(("rmsnorm", "norm_linear", "mlp"), ROW_SIZES)}

COUNT_SIZES = {"forward": (4096, 2048), "backward": (2048,), "fused": (4096, 2048), "block": (256,)}
"""Where calls are counted: bytes of forward where the L2 no longer hides writes, and those of fused at the paper's n
(3.3, 4.7); atomics at the paper's n (4.4); the block at the paper's (6.3)."""

COUNT_CALLS = 12
"""Calls that counting costs: the check, the warm-up, three counted, each of these in two passes, what is saved and put
back between passes."""

COUNT_SHARE = 0.1
"""Of the time for counting a kernel, what one choice may be expected to take: the counts of a program that has to be
ended are all lost."""


def own(kernel: str, kernel_dirs: Sequence[str] = ()) -> tuple[Variant, ...]:
    """The CUDA variants of a kernel: what libraries and Triton's compiler make of it is no ONF of ours."""
    return variants(kernel, kernel_dirs, ("cuda",))


def device_kernels(request: Request) -> tuple[str, ...]:
    """The kernels of a request that have CUDA variants.

    Raises:
        UnknownName: none has.
    """
    found = tuple(kernel for kernel in request.kernels if own(kernel, request.kernel_dirs))
    if not found:
        known = [kernel for kernel in registry.kernels() if own(kernel)]
        raise UnknownName("none of these kernels has a CUDA variant", got=request.kernels, allowed=", ".join(known))
    return found


def device_problems(request: Request, kernel: str) -> tuple[KernelSpec, tuple[Problem, ...]]:
    """A kernel's spec and its problems, ascending in n. Whether they fit a device, its pool says.

    Raises:
        BadInput: a size, shape or dtype that makes no sense.
    """
    spec = registry.spec(kernel, request.kernel_dirs)
    sizes = request.sizes or SIZES.get(kernel, CHAIN_SIZES)
    dtype = request.dtype or DTYPES.get(kernel, "float64")
    return spec, tuple(spec.problem(n, dtype=dtype, **paper_shape(spec, request.shape)) for n in sizes)


def check_device_request(request: Request) -> None:
    """Refuse what is of CPUs alone.

    Raises:
        BadInput: thread counts.
    """
    if request.threads:
        raise BadInput(
            "threads are those of CPUs", got=f"--threads with {request.device}", next_step="leave --threads out"
        )


def device_cells(
    gpu: Gpu, spec: KernelSpec, own_variants: Iterable[Variant], problem: Problem, tools: Tools
) -> tuple[Cell, ...]:
    """Every variant that exists for a problem, at its default knobs or its first valid ones, and in its other forms."""
    found = []
    for variant in own_variants:
        choices = gpu_space(gpu, spec, [variant], problem, tools)
        if choices:
            found.append(Cell(variant, _plainest(choices, variant.defaults)))
        for knobs in forms(spec.name, variant.name):
            own_form = [one for one in choices if set(knobs) <= set(one.build.knobs)]
            if own_form:
                wanted = pairs({**dict(variant.defaults), **dict(knobs)})
                found.append(Cell(variant, _plainest(own_form, wanted), form_of(knobs)))
    return tuple(found)


def _plainest(choices: Sequence[Choice], knobs: Pairs) -> Choice:
    return next((one for one in choices if one.build.knobs == knobs), choices[0])


def grids(spec: KernelSpec, problem: Problem, cells: Iterable[Cell]) -> tuple[Grid, ...]:
    """What each cell launches; those whose header has no value here are left out."""
    found = []
    for one in cells:
        try:
            extents = geometry(spec, one.variant, problem, one.choice.build.knobs).extents
        except AdvisorError:
            continue
        launches = tuple((e.grid[0] * e.grid[1] * e.grid[2], e.block) for e in extents)
        found.append(Grid(spec.name, one.name, problem.n, launches))
    return tuple(found)


# --- counting ---


class Wanted(NamedTuple):
    """One cell to count at one problem, and the seconds that this is expected to take."""

    problem: Problem
    cell: Cell
    cost_s: float


def count_sizes(kernel: str, problems: Sequence[Problem]) -> tuple[int, ...]:
    """Where a kernel is counted: the paper's n as far as they are measured, else the largest that is."""
    sizes = [problem.n for problem in problems]
    listed = COUNT_SIZES.get(kernel, ())
    return tuple(n for n in listed if n in sizes) or (tuple(sizes[-1:]) if listed else ())


def to_count(problem: Problem, cells: Iterable[Cell], series: Sequence[Series]) -> tuple[Wanted, ...]:
    """The cells that ran on a problem, the cheapest first."""
    times = {one.variant: smooth_p25(one.samples_ns) for one in series if one.problem == problem and one.samples_ns}
    found = [
        Wanted(problem, one, COUNT_CALLS * times[one.variant.name] * 1e-9) for one in cells if one.variant.name in times
    ]
    return tuple(sorted(found, key=lambda one: one.cost_s))

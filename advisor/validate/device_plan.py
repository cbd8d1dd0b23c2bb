"""What a validation measures on a device: sizes, cells, what they are expected to cost, what is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.errors import AdvisorError, BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.space import Tools, gpu_space
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, variants
from advisor.records import Choice, Gpu, Pairs, Problem, pairs
from advisor.validate.device_records import Grid
from advisor.validate.plan import Cell, Pace
from advisor.validate.request import DTYPES, ROW_SIZES, Request, paper_shape
from advisor.validate.roles import (
    form_of,
    forms,
)

ON_DEVICE = Pace(5, 1, 100.0, 1000.0, ask_s=0.03, least_share=0.25, least_growth=0.55)
"""A first round is the check, a warm-up, two replays that say how long a sample is, and the sample. A device does
100 flops a ns with a thread a row; the reference, products in float64, ten times as many. A turn took 15 to 30 ms on an
H200, and a thread a row grew with n, not n^2, until the device was full. A quarter of the cells are the quick mappings,
which are compared among themselves."""

CHAIN = ("forward", "backward", "fused")
"""The kernels that the paper's GPU findings are about."""

CHAIN_SIZES = tuple(64 << i for i in range(8))
"""64 to 8192 doubling, as in the paper. Source: Mullin and Hains, section 3.2."""

DECODE_SIZES = tuple(1024 << 2 * i for i in range(6))
"""1024 to 1048576 by fours. Source: the same, section 5.3."""

BLOCK_SIZES = (64, 128, 256, 512, 4096)
"""Source: the same, section 6.2; the last one is where its bytes are counted."""

SIZES = {"decode": DECODE_SIZES, "block": BLOCK_SIZES, **dict.fromkeys(("rmsnorm", "norm_linear", "mlp"), ROW_SIZES)}


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

"""What a validation measures on a device: sizes, cells, what they are expected to cost, what is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from advisor.validate.roles import (
    BACKWARD_GK,
    FORWARD,
    KEPT,
    LANE,
    NAIVE_FREE,
    ONE_LANE,
    PACKED,
    RECOMPUTED,
    ROTATED,
    TILED,
    WARP_REDUCED,
    form_of,
    forms,
    playing,
    role_of,
)

ON_DEVICE = Pace(5, 1, 100.0, 1000.0, ask_s=0.03, least_growth=0.55)
"""A first round is the check, a warm-up, two replays that say how long a sample is, and the sample. A device does
100 flops a ns with a thread a row; the reference, products in float64, ten times as many. A turn took 15 to 30 ms on an
H200, and a thread a row grew with n, not n^2, until the device was full."""

CHAIN = ("forward", "backward", "fused")
"""The kernels that the paper's GPU findings are about."""

CHAIN_SIZES = tuple(64 << i for i in range(8))
"""64 to 8192 doubling, as in the paper. Source: Mullin and Hains, section 3.2."""

DECODE_SIZES = tuple(1024 << 2 * i for i in range(6))
"""1024 to 1048576 by fours. Source: the same, section 5.3."""

BLOCK_SIZES = (64, 128, 256, 512)
"""Source: the same, section 6.2."""

SIZES = {"decode": DECODE_SIZES, "block": BLOCK_SIZES, **dict.fromkeys(("rmsnorm", "norm_linear", "mlp"), ROW_SIZES)}

COUNT_SIZES = (4096, 2048, 1024, 512, 256)
"""Where the chain may be counted, the best first: from n = 4096 on the L2 does not hide the writes of forward, and the
paper counted at 2048 and 4096. The ratio of atomics is the same at every n, so slow mappings are counted at smaller
ones."""

BLOCK_COUNT_N = 256
"""Source: Mullin and Hains, section 6.3."""

COUNT_CALLS = 60
"""Calls that counting costs: three are counted, each in a dozen passes and more, some of them with patched code."""

COUNT_START_S = 9.0
"""A program under ncu imports, compiles and checks before it counts."""

COUNT_FIRST = ("forward", "backward", "fused", "block")
"""Kernels in the order in which counters are worth their program's start; the ratio of atomics needs the second and
the third."""

START_SHARE = 0.7
"""Of the time for counting, what starts of programs may take."""

COUNT_SHARES = {"block": 0.1, TILED: 0.05, FORWARD: 0.15, LANE: 0.2, ONE_LANE: 0.15, PACKED: 0.35}
"""Group -> its share of the time for counting; what one leaves falls to the next, the dearest are last."""


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


def worth_counting(kernels: Sequence[str], seconds: float) -> tuple[str, ...]:
    """The kernels whose programs can be started in so many seconds with time left to count."""
    ordered = [kernel for kernel in COUNT_FIRST if kernel in kernels]
    return tuple(ordered[: max(0, int(START_SHARE * seconds / COUNT_START_S))])


def count_group(kernel: str, name: str) -> str | None:
    """What is counted together, at one n: forward, a mapping of the gradients, the block. None: it is not counted.

    Of packed rows, what computes weights again is left out: it costs most and no finding of the paper is about it.
    """
    if kernel == "block":
        return kernel
    role = role_of(kernel, name)
    if role is None:
        return None
    if role.part == FORWARD:
        return FORWARD
    if role.mapping == PACKED and (role.form == RECOMPUTED or role.part == NAIVE_FREE):
        return None
    return PACKED if role.mapping in (ROTATED, WARP_REDUCED) else role.mapping


def to_count(
    cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series], seconds: float
) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """What is counted in so many seconds: each group at the largest n that fits, all of its cells or none.

    Args:
        cells: those of each problem.
        series: what ran; what did not is not counted.
        seconds: for counting alone, starts of programs not included.

    Returns:
        What is counted; the groups for which there is no time.
    """
    groups = _groups(cells, series)
    chosen: list[Wanted] = []
    spare = 0.0
    for group, share in COUNT_SHARES.items():
        room = share * seconds + spare
        options = [(sum(w.cost_s for w in listed), listed) for n, listed in groups.get(group, [])]
        cost, taken = next((option for option in options if option[0] <= room), (0.0, []))
        chosen += taken
        spare = room - cost
    taken_groups = {count_group(w.problem.kernel, w.cell.name) for w in chosen}
    return (*chosen, *_beside_packed(groups, chosen)), tuple(group for group in groups if group not in taken_groups)


def _groups(
    cells: Mapping[Problem, Sequence[Cell]], series: Sequence[Series]
) -> dict[str, list[tuple[int, list[Wanted]]]]:
    """Group -> (n, what is counted there), the best n first."""
    times = {(one.problem, one.variant): smooth_p25(one.samples_ns) for one in series if one.samples_ns}
    found: dict[str, dict[int, list[Wanted]]] = {}
    for problem, listed in cells.items():
        for one in listed:
            group, ns = count_group(problem.kernel, one.name), times.get((problem, one.name))
            if group is not None and ns is not None:
                wanted = Wanted(problem, one, COUNT_CALLS * ns * 1e-9)
                found.setdefault(group, {}).setdefault(problem.n, []).append(wanted)
    return {group: [(n, by_n[n]) for n in _sizes(group, by_n)] for group, by_n in found.items()}


def _sizes(group: str, by_n: Mapping[int, Sequence[Wanted]]) -> list[int]:
    """Where a group may be counted, the best first: where most of its cells ran."""
    most = max(map(len, by_n.values()))
    whole = [n for n, listed in by_n.items() if len(listed) == most]
    listed = (BLOCK_COUNT_N,) if group == "block" else COUNT_SIZES
    return [n for n in listed if n in whole] or [max(whole)]


def _beside_packed(groups: Mapping[str, list[tuple[int, list[Wanted]]]], chosen: Sequence[Wanted]) -> list[Wanted]:
    """Backward by lanes at the n where packed rows are counted: the same count of atomics, another address pattern."""
    sizes = {w.problem.n for w in chosen if count_group(w.problem.kernel, w.cell.name) == PACKED}
    patterns = {role.name for role in playing(BACKWARD_GK, LANE) if role.form == KEPT}
    known = {(w.problem, w.cell.name) for w in chosen}
    return [
        w
        for _, listed in groups.get(LANE, [])
        for w in listed
        if w.problem.n in sizes and w.cell.name in patterns and (w.problem, w.cell.name) not in known
    ]

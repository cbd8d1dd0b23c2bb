"""Which variant plays which part of the paper's chain on a GPU: one table. Everything else asks here."""

from __future__ import annotations

from typing import NamedTuple

from advisor.records import Pairs

FORWARD = "forward"
BACKWARD_GK, BACKWARD_FREE = "backward, GK atomic", "backward, no atomic"
NAIVE_GK, NAIVE_FREE = "forward + backward, GK atomic", "forward + backward, no atomic"
FUSED_TWO, FUSED_GK, FUSED_FREE = "fused, GV and GK atomic", "fused, GK atomic", "fused, no atomic"
"""Parts: what is computed, and which of its sums are atomic updates of global memory."""

PACKED, ONE_LANE, LANE, TILED = "packed", "one_lane", "lane", "tiled"
"""Mappings: a thread a row, 128 rows a block; one active lane a warp; a block a row or column, lanes on the contiguous
index; tiles in shared memory."""

MAPPINGS = (PACKED, ONE_LANE, LANE, TILED)

IN_MEMORY, SHARED = "score row in memory", "score row in shared memory"
CUDA_CORES, TENSOR_CORES = "on CUDA cores", "on tensor cores"
"""Forms of forward: where scores are until they are weights; what computes tiles of them."""

KEPT, RECOMPUTED = "A kept", "A recomputed"
"""Forms of gradients: whether a pass reads the weights and S that another wrote, or computes them again."""

ROTATED, WARP_REDUCED = "rotated", "warp_reduced"
"""Further mappings of backward with GK's atomic, for the address pattern: lanes on addresses of their own by turns;
one update a warp."""


PERSIST_NOT = (("ADV_PERSIST", 0),)
"""The knob by which a variant of backward computes its weights again."""


class Role(NamedTuple):
    """A variant and its part. `knobs`: what its form has other than the variant's defaults."""

    part: str
    mapping: str
    form: str
    kernel: str
    variant: str
    knobs: Pairs = ()

    @property
    def name(self) -> str:
        """What its measurements are named."""
        return f"{self.variant} {form_of(self.knobs)}".rstrip()


def form_of(knobs: Pairs) -> str:
    """Knobs as a word in a name."""
    return " ".join(f"{knob}={value}" for knob, value in knobs)


ROLES = (
    Role(FORWARD, PACKED, IN_MEMORY, "forward", "packed"),
    Role(FORWARD, LANE, IN_MEMORY, "forward", "lane_global"),
    Role(FORWARD, LANE, SHARED, "forward", "lane_shared"),
    Role(FORWARD, TILED, CUDA_CORES, "forward", "tiled_fma"),
    Role(FORWARD, TILED, TENSOR_CORES, "forward", "tiled_dmma"),
    Role(BACKWARD_GK, PACKED, KEPT, "backward", "gk_atomic_packed"),
    Role(BACKWARD_GK, PACKED, RECOMPUTED, "backward", "gk_atomic_packed", PERSIST_NOT),
    Role(BACKWARD_GK, ONE_LANE, KEPT, "backward", "gk_atomic_one_lane"),
    Role(BACKWARD_GK, LANE, KEPT, "backward", "gk_atomic_lane"),
    Role(BACKWARD_GK, LANE, RECOMPUTED, "backward", "gk_atomic_lane", PERSIST_NOT),
    Role(BACKWARD_GK, ROTATED, KEPT, "backward", "gk_atomic_rotated"),
    Role(BACKWARD_GK, WARP_REDUCED, KEPT, "backward", "gk_atomic_warp_reduced"),
    Role(BACKWARD_FREE, PACKED, KEPT, "backward", "no_atomic_packed"),
    Role(BACKWARD_FREE, PACKED, RECOMPUTED, "backward", "no_atomic_packed", PERSIST_NOT),
    Role(BACKWARD_FREE, LANE, KEPT, "backward", "no_atomic_lane"),
    Role(BACKWARD_FREE, LANE, RECOMPUTED, "backward", "no_atomic_lane", PERSIST_NOT),
    Role(FUSED_TWO, PACKED, KEPT, "fused", "fused_two_atomics_packed"),
    Role(FUSED_TWO, ONE_LANE, KEPT, "fused", "fused_two_atomics_one_lane"),
    Role(FUSED_TWO, LANE, KEPT, "fused", "fused_two_atomics_lane"),
    Role(FUSED_GK, PACKED, KEPT, "fused", "fused_gv_columns_packed"),
    Role(FUSED_GK, ONE_LANE, KEPT, "fused", "fused_gv_columns_one_lane"),
    Role(FUSED_GK, LANE, KEPT, "fused", "fused_gv_columns_lane"),
    Role(FUSED_FREE, PACKED, KEPT, "fused", "fused_no_atomic_packed"),
    Role(FUSED_FREE, ONE_LANE, KEPT, "fused", "fused_no_atomic_one_lane"),
    Role(FUSED_FREE, LANE, KEPT, "fused", "fused_no_atomic_lane"),
    Role(FUSED_FREE, TILED, RECOMPUTED, "fused", "tiled"),
    Role(NAIVE_GK, PACKED, KEPT, "fused", "pair_packed"),
    Role(NAIVE_GK, ONE_LANE, KEPT, "fused", "pair_one_lane"),
    Role(NAIVE_GK, LANE, KEPT, "fused", "pair_lane"),
    Role(NAIVE_FREE, PACKED, KEPT, "fused", "pair_no_atomic_packed"),
    Role(NAIVE_FREE, LANE, KEPT, "fused", "pair_no_atomic_lane"),
    Role(NAIVE_FREE, TILED, KEPT, "fused", "pair_tiled"),
    Role(FUSED_TWO, PACKED, RECOMPUTED, "fused", "fused_two_atomics_recomputed_packed"),
    Role(FUSED_GK, PACKED, RECOMPUTED, "fused", "fused_gv_columns_recomputed_packed"),
    Role(FUSED_FREE, PACKED, RECOMPUTED, "fused", "fused_no_atomic_recomputed_packed"),
)


class StepOf(NamedTuple):
    """A step of the paper: the part that is new, the part that it stands over."""

    key: str
    title: str
    new: str
    old: str


STEPS = (
    StepOf("gv_before", "fused with two atomics / forward + backward", FUSED_TWO, NAIVE_GK),
    StepOf("gv_after", "fused without GV's atomic / forward + backward", FUSED_GK, NAIVE_GK),
    StepOf("gv", "fused without GV's atomic / with it", FUSED_GK, FUSED_TWO),
    StepOf("gk_backward", "backward without GK's atomic / with it", BACKWARD_FREE, BACKWARD_GK),
    StepOf("gk_fused", "fused without GK's atomic / with it", FUSED_FREE, FUSED_GK),
    StepOf("free", "fused without atomics / forward + backward without", FUSED_FREE, NAIVE_FREE),
)


def playing(part: str, mapping: str | None = None) -> tuple[Role, ...]:
    """The roles of a part, in the order of the table."""
    return tuple(role for role in ROLES if role.part == part and mapping in (None, role.mapping))


def pairs_of(step: StepOf) -> tuple[tuple[Role, Role], ...]:
    """(new, old) of a step in each mapping and form: the old of the same form where there is one, else the first."""
    found = []
    for new in playing(step.new):
        olds = playing(step.old, new.mapping)
        old = next((role for role in olds if role.form == new.form), olds[0] if olds else None)
        if old is not None:
            found.append((new, old))
    return tuple(found)


def role_of(kernel: str, name: str) -> Role | None:
    """The role of what was measured under a name, None where it has none."""
    return next((role for role in ROLES if (role.kernel, role.name) == (kernel, name)), None)


def forms(kernel: str, variant: str) -> tuple[Pairs, ...]:
    """Knobs of the forms of a variant beside that of its defaults."""
    return tuple(role.knobs for role in ROLES if (role.kernel, role.variant) == (kernel, variant) and role.knobs)

"""Forward by tiles whose warps share keys, on a CPU: what it computes, and that its launches fit a device."""

import pytest
from emulation import emulated, needs_compiler, share, taken
from gpu_fixtures import H200
from tile_assembler import TENSOR_TILES

from advisor.kernels.forward.spec import SPEC
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.space import is_possible
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.variant import knob_sets, variants

(VARIANT,) = (one for one in variants("forward", (), OWN_GPU_LANGUAGES) if one.name == "tiled_tensor")
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
GROUPED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "causal": 1}
WIDE = {"batch": 1, "heads": 1, "kv_heads": 1, "head_dim": 128, "causal": 1}

CASES = (
    ("float64", GROUPED, (1, 131), {"ADV_TILES": 1, "ADV_SPLITS": 4}),
    ("float32", PAPER, (67, 259), {"ADV_TILES": 2, "ADV_SPLITS": 4, "splits": 2}),
    ("float32", {**GROUPED, "batch": 2}, (131,), {"ADV_TILES": 1, "ADV_SPLITS": 4, "splits": 2}),
    ("float64", WIDE, (131,), {"ADV_TILES": 4, "ADV_SPLITS": 1, "splits": 4}),
)


@needs_compiler
@pytest.mark.parametrize(("dtype", "shape", "sizes", "named"), CASES)
def test_warps_that_share_keys_compute_the_dnf(tmp_path, dtype, shape, sizes, named):
    """Rows past the end, warps and splits that see nothing of a row, splits without any key, shared heads."""
    for n, draw in zip(sizes, ("normal", "outlier"), strict=False):
        problem = SPEC.problem(n, dtype, **shape)
        knobs = taken(VARIANT, problem, **named)
        run = emulated(tmp_path, SPEC, VARIANT, problem, knobs, TENSOR_TILES)
        assert share(run, problem, knobs, draw) < 1


@pytest.mark.parametrize("n", [64, 512, 1024, 2048])
def test_few_rows_have_some_choices_more_blocks_where_keys_are_split_and_room_for_what_is_merged(n):
    problem = SPEC.problem(n, "float64", **PAPER)
    possible = [one for one in knob_sets(VARIANT, problem) if is_possible(H200, SPEC, VARIANT, problem, one)]
    assert 6 <= len(possible) <= 18
    for knobs in possible:
        found, splits = geometry(SPEC, VARIANT, problem, knobs), dict(knobs)["splits"]
        blocks, rows = found.grid[0] * found.grid[1] * found.grid[2], 16 * dict(knobs)["ADV_TILES"]
        assert found.grid[2] == splits
        assert blocks <= 528
        kept = blocks * rows * (64 + 2) * 8 + found.zero_bytes
        assert found.workspace_bytes == (kept if splits > 1 else 0)


def test_many_rows_are_left_to_variants_whose_warps_do_not_meet():
    assert not knob_sets(VARIANT, SPEC.problem(4096, "float64", **PAPER))

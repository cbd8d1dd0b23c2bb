"""The block's variants for a GPU on a CPU: CUDA by fibers, PyTorch's calls on tensors of the host."""

import pytest
from block_fixtures import GROUPED
from emulation import needs_compiler
from layer_fixtures import gpu, needs_torch, of_torch, worst_share
from tile_assembler import TENSOR_TILES

from advisor.kernels.registry import spec
from advisor.kernels.variant import knob_sets

KERNEL = "block"
ODD = {"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": 7, "d_model": 20, "d_ff": 37, "causal": 0}
SERVED = {"batch": 2, "heads": 32, "kv_heads": 8, "head_dim": 128, "d_model": 4096, "d_ff": 14336, "causal": 1}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "sizes", "knobs"),
    [
        ("chain_packed", "float64", ODD, (1, 33), {}),
        ("chain_tensor", "float64", {**GROUPED, "head_dim": 64}, (1, 70), {"ADV_TILES": 2, "ADV_SPLITS": 4}),
        ("few_warp", "bfloat16", {**GROUPED, "d_model": 24}, (1, 3, 7), {}),
        ("chain_tiled", "float16", ODD, (2, 33), {"ADV_TM": 2, "ADV_LANES": 16}),
    ],
)
def test_a_cuda_chain_computes_the_dnf(tmp_path, name, dtype, shape, sizes, knobs):
    assert worst_share(tmp_path, KERNEL, name, dtype, shape, sizes, TENSOR_TILES, **knobs) < 1


@needs_torch
@pytest.mark.parametrize(
    ("dtype", "shape", "draw"),
    [
        ("float64", GROUPED, "normal"),
        ("float32", ODD, "outlier"),
        ("bfloat16", GROUPED, "outlier"),
        ("float16", ODD, "normal"),
    ],
)
def test_pytorch_s_calls_are_right(dtype, shape, draw):
    assert of_torch(KERNEL, "aten_block", dtype, shape, 33, draw, attention=0) < 1


@pytest.mark.parametrize("name", ["aten_block", "parts_triton"])
def test_a_backend_is_named_where_it_is_able(name):
    """Flash and cuDNN take 16 bits, the efficient one no grouped heads and no float64."""
    able = {
        (dtype, heads): {
            dict(knobs)["attention"]
            for knobs in knob_sets(gpu(KERNEL, name), spec(KERNEL).problem(64, dtype, **{**SERVED, "heads": heads}))
        }
        for dtype in ("float64", "float32", "bfloat16")
        for heads in (8, 32)
    }
    assert able == {
        ("float64", 8): {0},
        ("float64", 32): {0},
        ("float32", 8): {0, 1},
        ("float32", 32): {0},
        ("bfloat16", 8): {0, 1, 2, 3},
        ("bfloat16", 32): {0, 2, 3},
    }

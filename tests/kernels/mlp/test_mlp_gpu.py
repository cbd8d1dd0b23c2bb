"""The gated MLP's variants for a GPU on a CPU: CUDA by fibers, PyTorch's calls on tensors of the host."""

import pytest
from emulation import needs_compiler
from layer_fixtures import needs_torch, of_torch, worst_share
from tile_assembler import TENSOR_TILES

KERNEL = "mlp"
ODD, EVEN = {"batch": 1, "d_model": 35, "d_ff": 37}, {"batch": 2, "d_model": 72, "d_ff": 40}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "sizes", "knobs"),
    [
        ("naive_packed", "float64", ODD, (1, 66), {}),
        ("naive_lane", "float32", ODD, (1, 33), {}),
        ("tiled", "float64", ODD, (1, 66), {"ADV_TM": 2}),
        ("tiled_tensor", "float32", ODD, (1, 66), {}),
        ("few_warp", "float64", ODD, (1, 2, 3, 8), {"ADV_WARPS": 8, "ADV_UNROLL": 8}),
    ],
)
def test_a_cuda_variant_computes_the_dnf(tmp_path, name, dtype, shape, sizes, knobs):
    assert worst_share(tmp_path, KERNEL, name, dtype, shape, sizes, TENSOR_TILES, **knobs) < 1


@needs_torch
@pytest.mark.parametrize(("dtype", "draw"), [("float64", "outlier"), ("bfloat16", "normal"), ("float16", "outlier")])
def test_pytorch_s_call_is_right(dtype, draw):
    assert of_torch(KERNEL, "aten_linear", dtype, EVEN, 33, draw) < 1

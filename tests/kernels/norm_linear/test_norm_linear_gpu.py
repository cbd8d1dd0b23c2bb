"""RMSNorm with projection: variants for a GPU on a CPU, CUDA by fibers, PyTorch's call on tensors of the host."""

import pytest
from emulation import needs_compiler
from layer_fixtures import needs_torch, of_torch, worst_share

KERNEL = "norm_linear"
ODD, EVEN = {"batch": 1, "d_model": 35, "d_out": 37}, {"batch": 2, "d_model": 72, "d_out": 40}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "sizes", "knobs"),
    [("tiled", "float32", ODD, (1, 34), {"ADV_TM": 2}), ("few_warp", "bfloat16", EVEN, (1, 3), {})],
)
def test_a_cuda_variant_computes_the_dnf(tmp_path, name, dtype, shape, sizes, knobs):
    assert worst_share(tmp_path, KERNEL, name, dtype, shape, sizes, **knobs) < 1


@needs_torch
@pytest.mark.parametrize(("dtype", "draw"), [("float64", "outlier"), ("bfloat16", "normal"), ("float16", "outlier")])
def test_pytorch_s_call_is_right(dtype, draw):
    assert of_torch(KERNEL, "aten_linear", dtype, EVEN, 33, draw) < 1

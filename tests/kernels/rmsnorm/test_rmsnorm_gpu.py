"""RMSNorm's variants for a GPU on a CPU: CUDA by fibers, PyTorch's calls on tensors of the host."""

import pytest
from emulation import needs_compiler
from layer_fixtures import needs_torch, of_torch, worst_share

KERNEL = "rmsnorm"
PAPER, ODD, WIDE = {"batch": 2, "d_model": 64}, {"batch": 3, "d_model": 7}, {"batch": 1, "d_model": 520}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "knobs"),
    [
        ("packed", "float64", ODD, {}),
        ("warp", "bfloat16", PAPER, {"ADV_TEAM": 8, "ADV_WARPS": 1}),
        ("lane", "float16", WIDE, {"ADV_THREADS": 64}),
    ],
)
def test_a_cuda_variant_computes_the_dnf(tmp_path, name, dtype, shape, knobs):
    assert worst_share(tmp_path, KERNEL, name, dtype, shape, (1, 2, 17), **knobs) < 1


@needs_torch
@pytest.mark.parametrize(("dtype", "draw"), [("float64", "outlier"), ("bfloat16", "normal"), ("float16", "outlier")])
@pytest.mark.parametrize("name", ["aten_rms_norm", "aten_composed"])
def test_pytorch_s_calls_are_right(name, dtype, draw):
    assert of_torch(KERNEL, name, dtype, WIDE, 33, draw) < 1

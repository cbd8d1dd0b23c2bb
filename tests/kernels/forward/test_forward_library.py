"""PyTorch's backends for forward, its CPU in the place of the device: right, causal and grouped, and who is asked."""

import importlib.util

import numpy as np
import pytest

from advisor.kernels.forward.spec import SPEC
from advisor.kernels.header import LIBRARY_GPU_LANGUAGES
from advisor.kernels.judge import relative_error
from advisor.kernels.variant import is_valid, variants

LIBRARY = {one.name: one for one in variants("forward", (), LIBRARY_GPU_LANGUAGES)}
GROUPED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "causal": 1}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 0}
HERE = (("sdpa_flash", "float16"), ("sdpa_flash", "bfloat16"), ("sdpa_math", "bfloat16"), ("sdpa_math", "float64"))
"""What PyTorch's CPU build runs."""


def loaded(one):
    made = importlib.util.spec_from_file_location(one.name, one.path)
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def tensor(torch, array):
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if array.dtype == np.uint16
        else torch.from_numpy(array)
    )


@pytest.mark.parametrize(("name", "dtype"), HERE)
@pytest.mark.parametrize("shape", [PAPER, GROUPED], ids=["paper", "grouped"])
def test_a_backend_is_right_and_says_what_it_takes(name, dtype, shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem, module = SPEC.problem(65, dtype, **shape), loaded(LIBRARY[name])
    for draw in SPEC.draws:
        inputs = SPEC.inputs(problem, 1, draw)
        buffers = [*(tensor(torch, array) for array in inputs.values()), None]
        dims = tuple(problem.dims()[axis] for axis in SPEC.dims)
        result = module.prepare(buffers, dims, {})()
        wanted = SPEC.reference(problem, inputs)["out"]
        assert relative_error(result.double().numpy(), wanted.values) < wanted.cache_tolerance
        assert module.prepare_workspace(buffers, dims, {}) >= result.numel() * result.itemsize


@pytest.mark.parametrize(
    ("dtype", "n", "shape", "missing"),
    [
        ("bfloat16", 64, PAPER, set()),
        ("bfloat16", 1, PAPER, {"sdpa_cudnn"}),
        ("float16", 64, GROUPED, {"sdpa_efficient"}),
        ("float16", 64, {**PAPER, "head_dim": 7}, {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}),
        ("float32", 64, PAPER, {"sdpa_flash", "sdpa_cudnn"}),
        ("float64", 64, PAPER, {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}),
    ],
)
def test_what_a_backend_refuses_is_no_choice(dtype, n, shape, missing):
    problem = SPEC.problem(n, dtype, **shape)
    assert {name for name, one in LIBRARY.items() if not is_valid(one, problem, one.defaults)} == missing

from __future__ import annotations

import numpy as np
import pytest

from advisor.kernels.registry import spec

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SHAPES = {
    "rmsnorm": {"batch": 2, "d_model": 24},
    "norm_linear": {"batch": 2, "d_model": 24, "d_out": 20},
    "mlp": {"batch": 2, "d_model": 24, "d_ff": 40},
    "block": {"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "d_model": 24, "d_ff": 40, "causal": 1},
}
KERNELS = (*SHAPES, "rmsnorm_backward", "mlp_backward", "block_backward")


def worst(kernel, dtype):
    """Form -> the largest error of any output against the kernel's own reference, relative to the output's largest."""
    import torch_layers

    own, shape = spec(kernel), SHAPES[kernel.removesuffix("_backward")]
    problem = own.problem(37, dtype, **shape)
    expected = own.reference(problem, own.inputs(problem, seed=0))
    forms, left_out = torch_layers.layer_forms(torch, kernel, dtype, shape, problem.n)
    assert not left_out
    found = {}
    for name, form in forms.items():
        errors = []
        for output, tensor in zip(own.written, form(), strict=True):
            values = expected[output].values
            size = np.abs(values).max()
            errors.append(np.abs(tensor.detach().double().numpy().reshape(values.shape) - values).max() / size)
        found[name] = max(errors)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_form_computes_what_the_kernel_is(kernel):
    errors = worst(kernel, "float64")
    assert max(errors.values()) <= 1e-12, errors


@pytest.mark.parametrize("kernel", ["norm_linear", "mlp", "block"])
def test_onednn_has_a_form_in_float32(kernel):
    errors = worst(kernel, "float32")
    assert "onednn" in errors
    assert max(errors.values()) <= 1e-5, errors


def test_every_kernel_around_attention_has_forms():
    import torch_layers
    from kernel_choices import LAYERS

    assert set(torch_layers.MAKERS) == set(LAYERS) == set(KERNELS)

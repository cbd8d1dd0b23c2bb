from __future__ import annotations

import numpy as np
import pytest

from advisor.kernels.registry import spec
from advisor.kernels.sixteen import widen

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SHAPES = ({"batch": 2}, {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 16})
CASES = [(kernel, causal) for kernel in ("forward", "backward", "fused") for causal in (0, 1)]


def operands_of(kernel, problem, inputs):
    """The forms' operands with the numbers of a spec's inputs."""
    import torch_forms

    made = torch_forms.operands(torch, kernel, problem.dtype, dict(problem.shape), problem.n)
    given = {name: torch.from_numpy(widen(inputs[name], problem.dtype).copy()) for name in inputs}
    given = {
        name: given[name].to(made.q.dtype).reshape(getattr(made, name).shape) for name in given if hasattr(made, name)
    }
    wide = {f"wide_{name}": given[name].repeat_interleave(made.groups, dim=1) for name in ("k", "v")}
    return made._replace(**given, **wide)


def check(kernel, problem, outputs):
    """Every form against the kernel's own float64 reference."""
    import torch_forms

    inputs = spec(kernel).inputs(problem, seed=1)
    expected = spec(kernel).reference(problem, inputs)
    found = getattr(torch_forms, f"{kernel}_forms")(torch, operands_of(kernel, problem, inputs))
    assert len(found) >= 2
    for name, form in found.items():
        for output, tensor in zip(outputs, form(), strict=True):
            values = expected[output].values
            error = np.abs(tensor.detach().double().numpy().reshape(values.shape) - values).max()
            assert error <= 1e-9, f"{name}: {output} is off by {error}"


@pytest.mark.parametrize("shape", SHAPES, ids=["one head", "grouped"])
@pytest.mark.parametrize(("kernel", "causal"), CASES)
def test_every_form_computes_what_the_kernel_is(kernel, causal, shape):
    outputs = {"forward": ("out",), "backward": ("gq", "gk", "gv"), "fused": ("out", "gq", "gk", "gv")}[kernel]
    check(kernel, spec(kernel).problem(37, "float64", causal=causal, **shape), outputs)


@pytest.mark.parametrize("shape", SHAPES, ids=["one head", "grouped"])
def test_every_form_of_decode_computes_what_the_kernel_is(shape):
    check("decode", spec("decode").problem(37, "float64", **shape), ("out",))


def test_forms_that_differ_are_refused():
    from torch_peer import agreeing

    one, other = torch.ones(3), torch.zeros(3)
    with pytest.raises(AssertionError):
        agreeing(torch, {"a": lambda: (one,), "b": lambda: (other,)}, "float32")


def test_a_form_that_does_not_run_is_left_out_with_its_reason():
    from torch_peer import agreeing

    def broken():
        raise RuntimeError("no such kernel here")

    kept, left_out = agreeing(torch, {"a": broken, "b": lambda: (torch.ones(3),)}, "float32")
    assert list(kept) == ["b"]
    assert left_out == {"a": "no such kernel here"}


def test_the_matmul_form_is_left_out_where_its_squares_do_not_fit(monkeypatch):
    import torch_forms

    shape = {"batch": 1, "heads": 1, "kv_heads": 1, "head_dim": 8, "causal": 0}
    assert "matmul" in torch_forms.forms(torch, "forward", "float32", shape, 64)[0]
    monkeypatch.setattr(torch_forms, "room_bytes", lambda: 1000)
    kept, left_out = torch_forms.forms(torch, "forward", "float32", shape, 64)
    assert "matmul" not in kept
    assert "GiB" in left_out["matmul"]

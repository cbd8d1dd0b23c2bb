"""What tests of the layers' GPU variants share: assembler of their headers, emulated runs, calls on a CPU's tensors."""

import importlib.util

import numpy as np
import pytest
from emulation import emulated, share, taken

from advisor.kernels.gpu import operands
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.judge import compared
from advisor.kernels.messages import Binary
from advisor.kernels.pycall import load
from advisor.kernels.registry import spec
from advisor.kernels.variant import is_valid, variants

NARROWING = {
    "unsigned short half_of(float x)": "return to_half(x);",
    "unsigned short bfloat_of(float x)": "return to_bfloat(x);",
}
"""Functions of numbers.cuh that are assembler, beside those that all kernels share."""

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def gpu(kernel, name):
    """A variant for a device."""
    (found,) = [one for one in variants(kernel, (), GPU_LANGUAGES) if one.name == name]
    return found


def worst_share(folder, kernel, name, dtype, shape, sizes, assembler=(), **knobs):
    """The largest error of a CUDA variant as a share of its tolerance, over sizes and both draws in turn."""
    one, own, run, found = gpu(kernel, name), spec(kernel), None, []
    for turn, n in enumerate(sizes):
        problem = own.problem(n, dtype, **shape)
        chosen = taken(one, problem, **knobs)
        run = run or emulated(folder, own, one, problem, chosen, {**NARROWING, **dict(assembler)})
        found.append(share(run, problem, chosen, own.draws[turn % 2]))
    return max(found)


def of_torch(kernel, name, dtype, shape, n, draw, **knobs):
    """The error of a variant in Python, called on tensors of a CPU, as a share of its tolerance."""
    import torch

    one, own = gpu(kernel, name), spec(kernel)
    problem = own.problem(n, dtype, **shape)
    chosen = taken(one, problem, **knobs)
    assert is_valid(one, problem, chosen)
    inputs = own.inputs(problem, 7, draw)
    (group,) = operands.make(np, own, problem, inputs, 1)
    for block in group[len(inputs) :]:
        operands.mark(block)
    tensors = [_tensor(torch, block.data, dtype) for block in group]
    entry = load(Binary("", one.symbol, name, (), (), one.path, one.source_hash))
    dims = tuple(problem.dims()[key] for key in own.dims)
    assert entry.workspace(tensors, dims, dict(chosen)) >= 0
    call = entry.prepare(tensors, dims, dict(chosen))
    call()
    result = call()
    if result is not None:
        tensors[-1].copy_(result.reshape(tensors[-1].shape))
    expected = own.reference(problem, inputs)["y"]
    judged = compared(
        "y", group[-1].data, lambda: operands.unwritten(group[-1]), expected, expected.allowed(one.arithmetic)
    )
    assert judged.error is not None, judged.reason
    return judged.error / judged.tolerance


def _tensor(torch, array, dtype):
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else torch.from_numpy(array)
    )

"""Gradients by central differences in float64, element by element: for tiny problems."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from advisor.kernels.spec import Array

Inputs = dict[str, Array]


def by_differences(forward: Callable[[Inputs], Array], inputs: Inputs, name: str, step: float = 1e-6) -> Array:
    """The gradient of sum(gy * forward(inputs)) by one input.

    Args:
        forward: inputs in float64 -> y.
        inputs: of the gradient kernel, gy among them.
        name: of the input that is moved.
        step: to both sides.
    """
    whole = {key: array.astype(np.float64) for key, array in inputs.items()}
    gradient = np.empty(whole[name].shape)
    for index in itertools.product(*map(range, gradient.shape)):
        kept = whole[name][index]
        sides = []
        for sign in (1, -1):
            whole[name][index] = kept + sign * step
            sides.append(float((whole["gy"] * forward(whole)).sum()))
        whole[name][index] = kept
        gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradient

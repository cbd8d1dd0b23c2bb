"""The DNF of RMSNorm: y[b,i,d] = x[b,i,d] r[b,i] g[d]; rms.py has r and the letters."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.attention import stored
from advisor.kernels.rms import RmsSpec, as_rows, dims_of, kept, scale_error, scales, unit, widened
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem


class RmsNormSpec(RmsSpec):
    """RMSNorm of batch * n rows of d_model elements."""

    name: ClassVar[str] = "rmsnorm"
    buffers: ClassVar[tuple[str, ...]] = ("x", "g", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")

    def flops(self, problem: Problem) -> int:
        """4d + 4 a row: 2d for the sum of squares, 2d for the two products; mean, EPS, root and quotient."""
        m = dims_of(problem)
        return m.rows * (4 * m.d_model + 4)

    def elements(self, problem: Problem) -> Elements:
        """M_rmsnorm = 2 n d + d with n rows of all sequences: x and g are read once, y is written once."""
        m = dims_of(problem)
        return Elements(read=m.rows * m.d_model + m.d_model, written=m.rows * m.d_model)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """y in float64."""
        of = widened(inputs, problem.dtype)
        (x,) = as_rows(of, ["x"])
        g = of["g"].astype(np.float64)
        real, cache = tolerances(problem, float(np.abs(g).max()))
        return {"y": Expected(normalised(x, g).reshape(inputs["x"].shape), real, cache_tolerance=cache)}


def normalised(x: Array, g: Array) -> Array:
    """x [rows,d] r g [d]; also of a device's arrays."""
    found: Array = x * scales(x)[:, None] * g
    return found


def tolerances(problem: Problem, most: float) -> tuple[float, float]:
    """What rounding explains, of real arithmetic and of "cache", with the rounding of y in its storage.

    1. Whatever the inputs, the relative error of y is that of r and of two products.
    2. cache: x r is stored before it meets g. That adds c |y|, and h |g| where x r is below the normal numbers.

    Args:
        problem: for d_model and the dtype.
        most: the largest |g|.
    """
    u, between = unit(problem), kept(problem.dtype)
    real = scale_error(dims_of(problem).d_model, u) + 2 * u
    return stored(real, problem.dtype), stored(real + between.c + between.h * most, problem.dtype)


SPEC = RmsNormSpec()

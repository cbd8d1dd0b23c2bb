"""The DNF of RMSNorm: y[b,i,d] = x[b,i,d] r[b,i] g[d]; rms.py has r and the letters."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.rms import RmsSpec, as_rows, dims_of, scale_error, scales, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem


class RmsNormSpec(RmsSpec):
    """RMSNorm of batch * n rows of d_model elements."""

    name: ClassVar[str] = "rmsnorm"
    buffers: ClassVar[tuple[str, ...]] = ("x", "g", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)

    def flops(self, problem: Problem) -> int:
        """4d + 4 a row: 2d for the sum of squares, 2d for the two products; mean, EPS, root and quotient."""
        m = dims_of(problem)
        return m.rows * (4 * m.d_model + 4)

    def elements(self, problem: Problem) -> Elements:
        """M_rmsnorm = 2 n d + d with n rows of all sequences: x and g are read once, y is written once."""
        m = dims_of(problem)
        return Elements(read=m.rows * m.d_model + m.d_model, written=m.rows * m.d_model)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """y in float64. Its relative error is that of r and of two products, whatever the inputs."""
        (x,) = as_rows(inputs, ["x"])
        values = x * scales(x)[:, None] * inputs["g"].astype(np.float64)
        u = unit(problem)
        return {"y": Expected(values.reshape(inputs["x"].shape), scale_error(x.shape[1], u) + 2 * u)}


SPEC = RmsNormSpec()

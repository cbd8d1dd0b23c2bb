"""The DNF of the gradients of RMSNorm; rms.py has the formulas and the letters."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels.attention import spread
from advisor.kernels.rms import RmsSpec, as_rows, dims_of, scale_error, scales, tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem


class RmsNormBackwardSpec(RmsSpec):
    """gx and gg of batch * n rows. r is made anew: x is read in any case, and a row's r costs less than to store it."""

    name: ClassVar[str] = "rmsnorm_backward"
    buffers: ClassVar[tuple[str, ...]] = ("x", "g", "gy", "gx", "gg")
    written: ClassVar[tuple[str, ...]] = ("gx", "gg")

    def flops(self, problem: Problem) -> int:
        """12 d + 8 a row: 2d for r, 3d for c, 4d for gx, 3d for gg; mean, EPS, root, quotient and r**3 c / d."""
        m = dims_of(problem)
        return m.rows * (12 * m.d_model + 8)

    def elements(self, problem: Problem) -> Elements:
        """3 n d + 2 d with n rows of all sequences: x, gy and g are read once, gx and gg are written once."""
        m = dims_of(problem)
        return Elements(read=2 * m.rows * m.d_model + m.d_model, written=m.rows * m.d_model + m.d_model)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """gx and gg in float64, with what rounding explains of each element.

        Let R be the relative error of r (rms.scale_error).
        1. c sums d products of three: wrong by at most e(d + 2) times the sum of their magnitudes, C.
        2. gx is a difference of r gy g, wrong by (R + 2 u) of its size, and of x r**3 c / d, wrong by (3 R + 5 u) of
           its size and by |x| r**3 / d times the error of c; the difference is rounded once more.
        3. gg sums one term a row: each is wrong by R + 2 u, the sum over n rows by e(n), of the sum of magnitudes.
        """
        x, gy = as_rows(inputs, ["x", "gy"])
        g, r, width, u = inputs["g"].astype(np.float64), scales(x)[:, None], x.shape[1], unit(problem)
        relative = scale_error(width, u)
        through = gy * g * x
        c, most = through.sum(axis=1, keepdims=True), np.abs(through).sum(axis=1, keepdims=True)
        ahead, back = r * gy * g, x * r**3 * c / width
        gx, terms = ahead - back, gy * x * r
        bound = (relative + 2 * u) * np.abs(ahead) + (3 * relative + 5 * u) * np.abs(back) + u * np.abs(gx)
        bound += np.abs(x) * r**3 / width * spread(width + 2, u) * most
        gg = terms.sum(axis=0)
        of_gg = (relative + 2 * u + spread(len(x), u)) * np.abs(terms).sum(axis=0)
        return {
            "gx": Expected(gx.reshape(inputs["x"].shape), tolerance(bound, gx)),
            "gg": Expected(gg, tolerance(of_gg, gg)),
        }


SPEC = RmsNormBackwardSpec()

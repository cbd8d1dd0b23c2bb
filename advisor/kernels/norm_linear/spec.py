"""The DNF of RMSNorm with the projection that follows: y[b,i,o] = sum over d of x[b,i,d] r[b,i] g[d] w[o,d].

r and the letters are those of rms.py. In a transformer block o counts the outputs of Q, K and V together: 3 d_model
with as many heads of K and V as of Q. w lies as PyTorch's Linear and Hugging Face's files keep it, a row an output.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.attention import SAMPLED_FLOPS, in_parallel, spread
from advisor.kernels.gated import norms, sampled
from advisor.kernels.rms import (
    Found,
    RmsSpec,
    Rounded,
    apart,
    expected,
    rounded,
    scale_error,
    scales,
    tolerance,
    widened,
)
from advisor.kernels.spec import Array, Elements, Expected, Parameter, dims_in
from advisor.records import Problem

SHAPE_EDGES = ((2, 64, 192), (1, 80, 33), (3, 7, 5), (1, 300, 83), (2, 1, 1))
"""(batch, d_model, d_out): the paper's, odd ones that no vector divides, one past a slice of a sum, one of each."""

SIZE_EDGES = (1, 2, 17, 65)
"""One row, two, a prime, one past a power of two."""

ROWS_AT_ONCE = 1024
"""Rows that exist in float64 at a time."""


class Dims(NamedTuple):
    """The numbers of a problem: sequences, elements of a row, outputs of a row, rows of a sequence."""

    batch: int
    d_model: int
    d_out: int
    n: int

    @property
    def rows(self) -> int:
        """Rows of all sequences."""
        return self.batch * self.n


def dims_of(problem: Problem) -> Dims:
    """The dims of a problem of this kernel."""
    return dims_in(Dims, problem)


class NormLinearSpec(RmsSpec):
    """RMSNorm of batch * n rows of d_model elements, and their projection to d_out outputs."""

    name: ClassVar[str] = "norm_linear"
    axes: ClassVar[dict[str, str]] = {**RmsSpec.axes, "o": "output of a row, 0 .. d_out-1"}
    parameters: ClassVar[dict[str, Parameter]] = {
        **RmsSpec.parameters,
        "d_out": Parameter("outputs of one row: of Q, K and V together", 192),
    }
    buffers: ClassVar[tuple[str, ...]] = ("x", "g", "w", "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    constant: ClassVar[tuple[str, ...]] = ("g", "w")
    dims: ClassVar[tuple[str, ...]] = Dims._fields
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")

    def flops(self, problem: Problem) -> int:
        """4d + 4 a row for the norm, as of RMSNorm, and 2 d o for the product."""
        m = dims_of(problem)
        return m.rows * (4 * m.d_model + 4 + 2 * m.d_model * m.d_out)

    def elements(self, problem: Problem) -> Elements:
        """M = n (d + o) + d + d o with n rows of all sequences: each input is read once, y is written once.

        Rows after the norm are intermediate values of the formula: they need not be stored, so they cost nothing here.
        """
        m = dims_of(problem)
        return Elements(read=m.rows * m.d_model + m.d_model + m.d_model * m.d_out, written=m.rows * m.d_out)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """x [b,n,d], g [d], w [o,d], y [b,n,o]."""
        m = dims_of(problem)
        rows = (m.batch, m.n)
        return {"x": (*rows, m.d_model), "g": (m.d_model,), "w": (m.d_out, m.d_model), "y": (*rows, m.d_out)}

    def scaled(self, found: dict[str, Array], draw: str) -> dict[str, Array]:
        """As of RMSNorm; a row of w has norm 1 or so, so that outputs are about as large as rows after the norm."""
        found = super().scaled(found, draw)
        found["w"] *= found["w"].shape[1] ** -0.5
        return found

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """y in float64, of chosen rows where all would take too long."""
        m, of = dims_of(problem), widened(inputs, problem.dtype)
        x = of["x"].reshape(-1, m.d_model)
        chosen = sampled(m.rows) if self.flops(problem) > SAMPLED_FLOPS else np.arange(m.rows)
        g, w, how = of["g"].astype(np.float64), of["w"].astype(np.float64), rounded(problem)
        tasks = [chosen[first : first + ROWS_AT_ONCE] for first in range(0, len(chosen), ROWS_AT_ONCE)]
        found = in_parallel(lambda rows: of_rows(x[rows].astype(np.float64), g, w, how), tasks)
        y = np.concatenate([part.y for part in found])
        if len(chosen) < m.rows:
            return {"y": expected(problem, y, found, chosen)}
        return {"y": expected(problem, y.reshape(m.batch, m.n, m.d_out), found)}

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in both dtypes."""
        return tuple(
            self.problem(n, dtype, batch=b, d_model=d, d_out=o)
            for dtype in self.dtypes
            for b, d, o in SHAPE_EDGES
            for n in SIZE_EDGES
        )

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, d_model 64, d_out 192`."""
        of = dict(shape)
        return f"batch {of['batch']}, d_model {of['d_model']}, d_out {of['d_out']}"


def of_rows(x: Array, g: Array, w: Array, how: Rounded) -> Found:
    """y of some rows, and the error that rounding explains; x [rows,d] in float64. Also of a device's arrays.

    1. r is one factor of the whole sum: its relative error is that of y, and multiplying by it and storing add 2 u.
    2. The sum has d terms x g w of two or three products each, in whichever order a variant multiplies and wherever it
       has r: e(d + 3) times the sum of their magnitudes, which is at most |x r g| |w|, with norms of the rows.
    3. Rows after the norm may be stored in fewer bits, as x r and as x r g: what that moves is apart from the rest.
    """
    normed, u, d_model = x * scales(x)[:, None] * g, how.u, x.shape[1]
    y = normed @ w.T
    bound = (scale_error(d_model, u) + 2 * u) * np.abs(y) + spread(d_model + 3, u) * norms(normed)[:, None] * norms(w)
    moved = (np.sqrt(np.square(way.moved(normed, 2)) @ np.square(w).T) for way in how.ways)
    return Found(y, tuple(tolerance(apart(bound, between), y) for between in moved))


SPEC = NormLinearSpec()

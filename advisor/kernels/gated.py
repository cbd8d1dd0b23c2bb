"""What the gated MLP forward and backward share: axes, the fixed shape, inputs, edge problems, rows that stand for all.

    a[i,f] = sum over d of x[i,d] wg[f,d]          b[i,f] = sum over d of x[i,d] wu[f,d]
    h[i,f] = silu(a[i,f]) b[i,f]                   silu(a) = a / (1 + exp(-a))
    y[i,d] = sum over f of h[i,f] wd[d,f]

for every row (token) i of all sequences. Weights lie as PyTorch's Linear and Hugging Face's files keep them, a row an
output: wg is gate_proj, wu up_proj, wd down_proj.

Source: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6 (SwiGLU), without biases, as Llama has it.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels.normal import drawn
from advisor.kernels.rms import MASSIVE, narrowed
from advisor.kernels.spec import COMPUTED_IN, DRAWS, Array, KernelSpec, Parameter, dims_in
from advisor.records import Problem

SHAPE_EDGES = ((2, 64, 256), (1, 80, 33), (3, 7, 5), (1, 128, 344), (2, 1, 1))
"""(batch, d_model, d_ff): the paper's, odd ones that no vector divides, a served ratio, one element of each."""

SIZE_EDGES = (1, 2, 17, 65)
"""One row, two, a prime, one past a power of two."""

WEIGHTS = ("wg", "wu", "wd")


class Dims(NamedTuple):
    """The numbers of a problem: sequences, elements of a row, elements within, rows of a sequence."""

    batch: int
    d_model: int
    d_ff: int
    n: int

    @property
    def rows(self) -> int:
        """Rows of all sequences."""
        return self.batch * self.n


def dims_of(problem: Problem) -> Dims:
    """The dims of a problem of one of these kernels."""
    return dims_in(Dims, problem)


class GatedSpec(KernelSpec):
    """What mlp and mlp_backward have in common. Subclasses add buffers, costs and the reference.

    `linear`: the input in which every output is linear; in draw outlier it is small where x is large.
    """

    linear: ClassVar[str]
    axes: ClassVar[dict[str, str]] = {
        "b": "sequence of the batch",
        "i": "row of a sequence (a token), 0 .. n-1; of all sequences where b is left out",
        "d": "element of a row, 0 .. d_model-1",
        "f": "element within, 0 .. d_ff-1",
    }
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences", 2),
        "d_model": Parameter("elements of one row", 64),
        "d_ff": Parameter("elements within", 256),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    draws: ClassVar[tuple[str, ...]] = DRAWS
    dims: ClassVar[tuple[str, ...]] = Dims._fields

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """wg, wu [f,d], wd [d,f] and their gradients; all others [b,n,d]."""
        m = dims_of(problem)
        known = {"wg": (m.d_ff, m.d_model), "wu": (m.d_ff, m.d_model), "wd": (m.d_model, m.d_ff)}
        return {name: known.get(name.removeprefix("g"), (m.batch, m.n, m.d_model)) for name in self.buffers}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """Normal numbers; a row of weights has norm 1 or so, and a and b the size of x. Draw outlier: massive elements
        of x, so that a goes far to both sides of silu. `linear` is divided by the square of their factor, by which h
        grows, so that outputs stay near 1: the judge allows one error for all elements below that, and the sums that
        cancel among outputs of 1e4 would set one that lets zeros pass. In a row of few elements one massive element is
        most of it: it is smaller there, so that h is not, which float16 holds to 65504.

        All are rounded to nearest in the problem's dtype.
        """
        shapes = self.shapes(problem)
        wanted = {name: shapes[name] for name in self.buffers if name not in self.written}
        found = drawn(wanted, seed, "normal", np.dtype(COMPUTED_IN[problem.dtype]))
        return narrowed(self.scaled(found, draw), problem.dtype)

    def scaled(self, found: dict[str, Array], draw: str) -> dict[str, Array]:
        """Drawn numbers at their scale, in place; also a device's."""
        for name in WEIGHTS:
            found[name] *= found[name].shape[1] ** -0.5
        if draw == "outlier":
            step, most = MASSIVE
            factor = most * min(1.0, (found["x"].shape[-1] / step) ** 0.5)
            found["x"][..., ::step] *= factor
            found[self.linear] *= factor**-2
        return found

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in all dtypes."""
        return tuple(
            self.problem(n, dtype, batch=b, d_model=d, d_ff=f)
            for dtype in self.dtypes
            for b, d, f in SHAPE_EDGES
            for n in SIZE_EDGES
        )

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, d_model 64, d_ff 256`."""
        of = dict(shape)
        return f"batch {of['batch']}, d_model {of['d_model']}, d_ff {of['d_ff']}"


def sigmoid(a: Array) -> Array:
    """1 / (1 + exp(-a)) without overflow."""
    small = np.exp(-np.abs(a))
    found: Array = np.where(a >= 0, 1.0, small) / (1 + small)
    return found


def norms(array: Array) -> Array:
    """Euclidean norms along the last axis."""
    found: Array = np.sqrt(np.square(array).sum(axis=-1))
    return found


def sampled(count: int) -> Array:
    """Rows that stand for all: the first, the last, those around the edges of tiles, and random ones, ascending."""
    near = [tile + step for tile in (16, 48, 96, 192) for step in (-1, 0, 1)]
    random = np.random.default_rng(count).integers(0, count, 32).tolist()
    listed = (0, 1, *near, count // 2, count - 2, count - 1, *random)
    return np.unique([row for row in listed if 0 <= row < count])

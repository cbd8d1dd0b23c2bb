"""The DNF of decode attention: one query against a KV cache of n rows, grouped queries included.

    out[b,h,:] = sum over j of w[b,h,j] * v[b,g(h),j,:]
    w[b,h,:]   = softmax over j of q[b,h,:] . k[b,g(h),j,:] / sqrt(d)

with g(h) = h // (heads / kv_heads): query heads that lie side by side share one head of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from advisor.errors import BadInput
from advisor.kernels.attention import cache_tolerance, out_tolerance, rounding
from advisor.kernels.normal import drawn
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import COMPUTED_IN, DRAWS, Array, Elements, Expected, KernelSpec, Parameter
from advisor.records import Problem

ROWS_AT_ONCE = 8192
"""Cache rows that the reference holds in float64 at a time: 8 MiB at head_dim 128."""

SHAPE_EDGES = (
    (2, 1, 1, 64),
    (1, 32, 8, 128),
    (1, 7, 7, 64),
    (1, 5, 1, 64),
    (3, 14, 2, 32),
    (1, 6, 2, 80),
    (2, 3, 1, 7),
)
"""(batch, heads, kv_heads, head_dim): the paper's, a served one, group sizes 1 to 7, odd batch, odd head_dim."""

SIZE_EDGES = (1, 2, 3, 63, 64, 65, 1000)


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, ROWS_AT_ONCE):
        yield slice(start, min(start + ROWS_AT_ONCE, n))


def attend(q: Array, k: Array, v: Array) -> Array:
    """Attention of one group in float64, block by block: scores of all rows first, then the weighted sum.

    Args:
        q: [heads of the group, d].
        k: [n, d].
        v: [n, d].

    Returns:
        [heads of the group, d], float64.
    """
    n, d = k.shape
    scaled = q.astype(np.float64) / math.sqrt(d)
    scores = np.empty((len(q), n))
    for rows in _blocks(n):
        np.einsum("hd,nd->hn", scaled, k[rows].astype(np.float64), out=scores[:, rows])
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores, out=scores)
    out = np.zeros((len(q), d))
    for rows in _blocks(n):
        out += np.einsum("hn,nd->hd", weights[:, rows], v[rows].astype(np.float64))
    result: Array = out / weights.sum(axis=1, keepdims=True)
    return result


class DecodeSpec(KernelSpec):
    """Decode attention; see the head of this module for the formula."""

    name: ClassVar[str] = "decode"
    axes: ClassVar[dict[str, str]] = {
        "b": "sequence of the batch",
        "h": "query head",
        "g": "head of the cache, shared by heads / kv_heads query heads",
        "n": "row of the cache",
        "d": "element of a head",
    }
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences decoded at once", 2),
        "heads": Parameter("query heads", 1),
        "kv_heads": Parameter("heads of the cache; heads must be a multiple", 1),
        "head_dim": Parameter("elements of one head", 64),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out")
    written: ClassVar[tuple[str, ...]] = ("out",)
    draws: ClassVar[tuple[str, ...]] = DRAWS
    dims: ClassVar[tuple[str, ...]] = ("batch", "heads", "kv_heads", "head_dim", "n")

    def check(self, shape: dict[str, int]) -> None:
        """Query heads share the heads of the cache evenly. Raises BadInput."""
        if shape["heads"] % shape["kv_heads"]:
            raise BadInput(
                "heads must be a multiple of kv_heads",
                got=f"{shape['heads']} query heads on {shape['kv_heads']}",
                allowed="every head of the cache serves the same number of query heads",
            )

    def flops(self, problem: Problem) -> int:
        """Floating-point operations, the division at the end included.

        Per query head and row: 2d for the dot product, 2d for the weighted sum, 4 for scale, maximum, exponential and
        total; per query head d divisions.
        """
        b, h, _, d, n = (problem.dims()[name] for name in self.dims)
        return int(b * h * (n * (4 * d + 4) + d))

    def elements(self, problem: Problem) -> Elements:
        """M_decode = 2nd a head of the cache and 2d a query head, times batch.

        Read q [b,h,d] once and k, v [b,g,n,d] once each; write out [b,h,d] once.

        Scores and weights are intermediate values of the formula: they need not be stored, so they cost nothing here.
        """
        b, h, g, d, n = (problem.dims()[name] for name in self.dims)
        return Elements(read=int(b * h * d + 2 * b * g * n * d), written=int(b * h * d))

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """q, out [b,h,d]; k, v [b,g,n,d]."""
        b, h, g, d, n = (problem.dims()[name] for name in self.dims)
        return {"q": (b, h, d), "k": (b, g, n, d), "v": (b, g, n, d), "out": (b, h, d)}

    def types(self, problem: Problem) -> dict[str, str]:
        """The dtype of a problem is that of its cache; queries and output are float32 beside a 16-bit cache."""
        return {name: problem.dtype if name in ("k", "v") else COMPUTED_IN[problem.dtype] for name in self.buffers}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """q [b,h,d], k and v [b,g,n,d], all rounded to nearest in the cache's dtype.

        A server's q has 16 bits if its cache has; it is handed over as float32 even so.
        """
        shapes = self.shapes(problem)
        kind = np.dtype(COMPUTED_IN[problem.dtype])
        found = drawn({name: shapes[name] for name in ("q", "k", "v")}, seed, draw, kind)
        stored = {name: narrow(array, problem.dtype) for name, array in found.items()}
        return stored | {"q": widen(stored["q"], problem.dtype)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """out [b,h,d] in float64, group by group, in scratch memory of heads/kv_heads * n numbers.

        The tolerance is derived in attention.rounding and attention.out_tolerance, with the unit roundoff of the
        arithmetic: what the cache holds is exact as it is, in 16 bits too. attention.cache_tolerance adds what a
        variant may lose that rounds its weights and its result to the cache's dtype.
        """
        b, h, g, d, _ = (problem.dims()[name] for name in self.dims)
        q = inputs["q"].reshape(b, g, h // g, d)
        k, v = (widen(inputs[name], problem.dtype) for name in ("k", "v"))
        out = [[attend(q[i, j], k[i, j], v[i, j]) for j in range(g)] for i in range(b)]
        tolerance = out_tolerance(rounding(problem, {"q": q, "k": k}), v)
        loose = cache_tolerance(tolerance, problem, float(np.abs(v).max()))
        return {"out": Expected(np.array(out).reshape(b, h, d), tolerance, cache_tolerance=loose)}

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in all dtypes: one row, odd, prime, one past a tile, fewer rows than threads."""
        return tuple(
            self.problem(n, dtype, batch=b, heads=h, kv_heads=g, head_dim=d)
            for dtype in self.dtypes
            for b, h, g, d in SHAPE_EDGES
            for n in SIZE_EDGES
        )

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, heads 32:8, head_dim 128`."""
        of = dict(shape)
        return f"batch {of['batch']}, heads {of['heads']}:{of['kv_heads']}, head_dim {of['head_dim']}"


SPEC = DecodeSpec()

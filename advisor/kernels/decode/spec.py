"""The DNF of decode attention: one query against a KV cache of n rows, grouped queries included.

    out[b,h,:] = sum over j of w[b,h,j] * v[b,g(h),j,:]
    w[b,h,:]   = softmax over j of q[b,h,:] . k[b,g(h),j,:] / sqrt(d)

with g(h) = h // (heads / kv_heads): query heads that lie side by side share one head of the cache.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from advisor.errors import BadInput
from advisor.kernels.spec import UNIT_ROUNDOFF, Array, Elements, KernelSpec, Parameter
from advisor.records import Problem

ROWS_AT_ONCE = 8192
"""Cache rows that the reference holds in float64 at a time: 8 MiB at head_dim 128."""

FILL_ELEMENTS = 1 << 20
"""Elements of one random stream: fixed, so that inputs depend on the seed alone and not on the number of threads."""

FILL_THREADS = 8
"""Most threads that make inputs; past this, memory is the limit."""

BANK_ELEMENTS = 1 << 24
"""Elements that are drawn afresh; a larger array goes on with rotations of them."""

DEVIATIONS = 6.0
"""Standard deviations that the tolerance allows: a bound then fails with probability 2 exp(-6**2 / 2) = 3e-8."""

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


def _fresh(count: int, seed: np.random.SeedSequence) -> Array:
    """Standard normal float32, each piece of FILL_ELEMENTS from its own stream, so that threads can share the work."""
    out = np.empty(count, np.float32)
    starts = range(0, count, FILL_ELEMENTS)

    def fill(piece: tuple[int, np.random.SeedSequence]) -> None:
        start, stream = piece
        generator = np.random.Generator(np.random.SFC64(stream))
        generator.standard_normal(out=out[start : start + FILL_ELEMENTS], dtype=np.float32)

    pieces = list(zip(starts, seed.spawn(len(starts)), strict=True))
    threads = min(FILL_THREADS, len(os.sched_getaffinity(0)), len(pieces))
    if threads == 1:
        for piece in pieces:
            fill(piece)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, pieces))
    return out


def normals(shape: tuple[int, ...], seed: np.random.SeedSequence) -> Array:
    """Standard normal float32 of a shape; the same for the same seed, however many threads make them.

    Drawing takes about 10 ns an element, so past BANK_ELEMENTS the array goes on with what was drawn, each time rotated
    by another random amount: the distribution stays, no row keeps its place, and copying costs a tenth.

    Args:
        shape: of the result.
        seed: where the streams come from.

    Returns:
        A new C-contiguous array.
    """
    count = math.prod(shape)
    bank = _fresh(min(count, BANK_ELEMENTS), seed)
    if count <= BANK_ELEMENTS:
        return bank.reshape(shape)
    out: Array = np.empty(count, np.float32)
    turns = np.random.Generator(np.random.SFC64(seed)).integers(1, BANK_ELEMENTS, count // BANK_ELEMENTS)
    out[:BANK_ELEMENTS] = bank
    for start, turn in zip(range(BANK_ELEMENTS, count, BANK_ELEMENTS), turns, strict=False):
        piece = out[start : start + BANK_ELEMENTS]
        ahead = bank[turn : turn + len(piece)]
        piece[: len(ahead)] = ahead
        piece[len(ahead) :] = bank[: len(piece) - len(ahead)]
    return out.reshape(shape)


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, ROWS_AT_ONCE):
        yield slice(start, min(start + ROWS_AT_ONCE, n))


def attend(q: Array, k: Array, v: Array) -> Array:
    """Attention of one group in float64, block by block: scores of all rows first, then the weighted sum.

    The sums run over the last axis or by numpy's own loops (einsum), never by a BLAS: its threads would fight with the
    team that the worker keeps spinning.

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
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out")
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
        """Read q [b,h,d] once and k, v [b,g,n,d] once each; write out [b,h,d] once.

        Scores and weights are intermediate values of the formula: they need not be stored, so they cost nothing here.
        """
        b, h, g, d, n = (problem.dims()[name] for name in self.dims)
        return Elements(read=int(b * h * d + 2 * b * g * n * d), written=int(b * h * d))

    def inputs(self, problem: Problem, seed: int) -> dict[str, Array]:
        """q [b,h,d], k and v [b,g,n,d]: standard normal float32 (see `normals` for what it takes)."""
        b, h, g, d, n = (problem.dims()[name] for name in self.dims)
        shapes = {"q": (b, h, d), "k": (b, g, n, d), "v": (b, g, n, d)}
        seeds = np.random.SeedSequence(seed).spawn(len(shapes))
        return {name: normals(shape, one) for (name, shape), one in zip(shapes.items(), seeds, strict=True)}

    def outputs(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """out [b,h,d]."""
        b, h, _, d, _ = (problem.dims()[name] for name in self.dims)
        return {"out": (b, h, d)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
        """out [b,h,d] in float64, group by group, in scratch memory of heads/kv_heads * n numbers."""
        b, h, g, d, _ = (problem.dims()[name] for name in self.dims)
        q = inputs["q"].reshape(b, g, h // g, d)
        out = [[attend(q[i, j], inputs["k"][i, j], inputs["v"][i, j]) for j in range(g)] for i in range(b)]
        return {"out": np.array(out).reshape(b, h, d)}

    def tolerance(self, problem: Problem) -> float:
        """The largest error of out that rounding explains, for v of order one (times max|v| otherwise).

        Let u be the unit roundoff and L = DEVIATIONS. A sum of m rounded terms has a relative error, against the sum of
        magnitudes, of at most e(m) = L sqrt(m) u: the probabilistic form of the classical m u.

        1. A score is a sum of d products, scaled: m = d + 2. Its magnitudes sum to at most |q| |k| / sqrt(d), and the
           norm of d standard normals is at most sqrt(d) + L, so a score is wrong by at most
           e_s = e(d + 2) (sqrt(d) + L)**2 / sqrt(d); e**x turns that into a relative error of the weight.
        2. The exponential adds e_x = 3 u, its bound in exp2.h, and 2 u for its argument's own rounding.
        3. out = (sum of w v) / (sum of w). Each sum runs over n rows: e(n) each, and u for the division.

        out is a convex combination of rows of v. Changing every weight by a relative e_s + e_x changes the numerator
        and the denominator by as much, so the result by at most twice that times max|v|:

            tolerance = 2 (e_s + e_x + e(n)) + u

        Source: Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5),
        2019, theorem 3.1, with the constant of Connolly, Higham and Mary, "Stochastic rounding and its probabilistic
        backward error analysis", SIAM J. Sci. Comput. 43(1), 2021 (failure 2 exp(-L**2 / 2), whatever m). The norm of a
        normal vector: Gaussian concentration of a 1-Lipschitz function.
        """
        dims = problem.dims()
        u, d, n = UNIT_ROUNDOFF[problem.dtype], dims["head_dim"], dims["n"]
        score = DEVIATIONS * math.sqrt(d + 2) * u * (math.sqrt(d) + DEVIATIONS) ** 2 / math.sqrt(d)
        exponential = 5 * u
        return 2 * (score + exponential + DEVIATIONS * math.sqrt(n) * u) + u

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes: one row, odd, prime, one past a tile, fewer rows than threads or a block."""
        return tuple(
            self.problem(n, batch=b, heads=h, kv_heads=g, head_dim=d) for b, h, g, d in SHAPE_EDGES for n in SIZE_EDGES
        )

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, heads 32:8, head_dim 128`."""
        of = dict(shape)
        return f"batch {of['batch']}, heads {of['heads']}:{of['kv_heads']}, head_dim {of['head_dim']}"


SPEC = DecodeSpec()

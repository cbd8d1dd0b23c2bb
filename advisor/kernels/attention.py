"""What the attention kernels share: axes, the fixed shape, edge problems, and the arithmetic of the DNF in float64.

    s[i,j] = q[i] . k[j] / sqrt(d)          P[i,j] = exp(s[i,j] - lse[i])       lse[i] = log sum over j of exp(s[i,j])
    out[i] = sum over j of P[i,j] v[j]

With a cotangent gout of out, the gradients are

    gP[i,j] = gout[i] . v[j]     delta[i] = gout[i] . out[i]     GS[i,j] = P[i,j] (gP[i,j] - delta[i])
    gq[i] = sum over j of GS[i,j] k[j] / sqrt(d)
    gk[j] = sum over i of GS[i,j] q[i] / sqrt(d)                 gv[j] = sum over i of P[i,j] gout[i]

for each sequence b and query head h; k and v are those of head g = h // (heads / kv_heads), whose gradients sum over
the query heads that share it. Causal: j runs to i only.

The dtype of a problem is how q, k, v, gout and the results are stored; beside 16 bits lse and the arithmetic are
float32.

Matrix products go to numpy's BLAS, which has one thread in a bench worker: the team that spins there is not disturbed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from advisor.errors import BadInput
from advisor.kernels.normal import drawn
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import COMPUTED_IN, DRAWS, UNIT_ROUNDOFF, Array, KernelSpec, Parameter, dims_in
from advisor.records import Problem

Task = TypeVar("Task")
Result = TypeVar("Result")

DEVIATIONS = 6.0
"""Standard deviations that a tolerance allows: a bound then fails with probability 2 exp(-6**2 / 2) = 3e-8."""

HALF_LEAST = {"float64": 0.0, "float32": 2.0**-150, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Half of the least subnormal number: the largest error of rounding below the normal numbers; float64's is too small to
be a float64. Source: IEEE 754; bfloat16 has the exponents of float32 and 7 stored bits of significand."""

ROWS_AT_ONCE = 256
"""Query rows whose scores exist in float64 at a time: 16 MiB at n = 8192."""

REFERENCE_THREADS = 8

SAMPLED_FLOPS = 1.5e11
"""Past this much arithmetic a reference takes over 5 s (some 30 Gflop/s in float64), so it has chosen rows only."""

SAMPLED_ROWS = 64
"""Random rows a head, beside the first, the last and those around the edges of tiles."""

DRAWN = ("q", "k", "v", "gout")
"""Inputs that are drawn, each from a stream of its own in this order; others follow from them."""

SHAPE_EDGES = (
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 0},
    {"batch": 1, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 1},
    {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 128, "causal": 1},
    {"batch": 1, "heads": 3, "kv_heads": 1, "head_dim": 80, "causal": 0},
    {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 7, "causal": 1},
)
"""The paper's, causal with one head and batch 1, a served one, three heads on one cache, an odd head_dim."""

SIZE_EDGES = (1, 2, 17, 64, 65, 131)
"""One row, two, primes, a tile, one past a tile."""


def spread(length: int, u: float) -> float:
    """e(m) = DEVIATIONS sqrt(m) u: relative error of a sum of m rounded terms against the sum of their magnitudes.

    Source: Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5),
    2019, theorem 3.1, with the constant of Connolly, Higham and Mary, "Stochastic rounding and its probabilistic
    backward error analysis", SIAM J. Sci. Comput. 43(1), 2021 (failure 2 exp(-L**2 / 2), whatever m).
    """
    return DEVIATIONS * math.sqrt(length) * u


class Dims(NamedTuple):
    """The numbers of a problem: b, h, g, d of the axes, causal 0 or 1, n."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: int
    n: int

    @property
    def sharing(self) -> int:
        """Query heads on one head of k and v."""
        return self.heads // self.kv_heads

    @property
    def pairs(self) -> int:
        """Pairs (i, j) of one head that are computed."""
        return self.n * (self.n + 1) // 2 if self.causal else self.n * self.n


def dims_of(problem: Problem) -> Dims:
    """The dims of a problem of one of these kernels."""
    return dims_in(Dims, problem)


def check_heads(shape: dict[str, int]) -> None:
    """What every kernel with attention in it demands of a shape: even shares of the heads of k and v, causal 0 or 1.

    Raises:
        BadInput: heads are no multiple of kv_heads; causal is something else.
    """
    if shape["heads"] % shape["kv_heads"]:
        raise BadInput(
            "heads must be a multiple of kv_heads",
            got=f"{shape['heads']} query heads on {shape['kv_heads']}",
            allowed="every head of k and v serves the same number of query heads",
        )
    if shape["causal"] > 1:
        raise BadInput("causal must be 0 or 1", got=shape["causal"])


class AttentionSpec(KernelSpec):
    """What forward, backward and fused have in common. Subclasses add buffers, costs and the reference."""

    axes: ClassVar[dict[str, str]] = {
        "b": "sequence of the batch",
        "h": "query head",
        "g": "head of k and v, shared by heads / kv_heads query heads",
        "i": "query row, 0 .. n-1",
        "j": "row of k and v, 0 .. n-1, to i only where causal",
        "d": "element of a head",
    }
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences", 2),
        "heads": Parameter("query heads", 1),
        "kv_heads": Parameter("heads of k and v; heads must be a multiple", 1),
        "head_dim": Parameter("elements of one head", 64),
        "causal": Parameter("1: row i attends to rows up to i only", 0, 0),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")
    draws: ClassVar[tuple[str, ...]] = DRAWS
    dims: ClassVar[tuple[str, ...]] = Dims._fields

    def check(self, shape: dict[str, int]) -> None:
        """Query heads share the heads of k and v evenly, causal is 0 or 1. Raises BadInput."""
        check_heads(shape)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """q, out, gout, gq [b,h,n,d]; k, v, gk, gv [b,g,n,d]; lse [b,h,n]; those that the kernel has."""
        m = dims_of(problem)
        queries, cache = (m.batch, m.heads, m.n, m.head_dim), (m.batch, m.kv_heads, m.n, m.head_dim)
        known = {**dict.fromkeys(("q", "out", "gout", "gq"), queries), **dict.fromkeys(("k", "v", "gk", "gv"), cache)}
        return {name: known.get(name, queries[:3]) for name in self.buffers}

    def types(self, problem: Problem) -> dict[str, str]:
        """The problem's dtype; of lse that of the arithmetic."""
        return {name: COMPUTED_IN[problem.dtype] if name == "lse" else problem.dtype for name in self.buffers}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """q, gout [b,h,n,d], k and v [b,g,n,d], those that the kernel has, rounded to nearest in its dtype."""
        shapes = self.shapes(problem)
        wanted = {name: shapes[name] for name in DRAWN if name in shapes}
        found = drawn(wanted, seed, draw, np.dtype(COMPUTED_IN[problem.dtype]))
        return {name: narrow(array, problem.dtype) for name, array in found.items()}

    def widened(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
        """The numbers that inputs hold, in the dtype of the arithmetic: what a reference takes. Exact."""
        types = self.types(problem)
        return {name: widen(array, types[name]) for name, array in inputs.items()}

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in all dtypes."""
        cases = itertools.product(self.dtypes, SHAPE_EDGES, SIZE_EDGES)
        return tuple(self.problem(n, dtype, "warm", **shape) for dtype, shape, n in cases)

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 2, heads 32:8, head_dim 128, causal`."""
        of = dict(shape)
        causal = ", causal" if of["causal"] else ""
        return f"batch {of['batch']}, heads {of['heads']}:{of['kv_heads']}, head_dim {of['head_dim']}{causal}"


# --- one head in float64 ---


class Head(NamedTuple):
    """One query head with its part of k and v: q [n,d], k, v [n,d] in float64, gout [n,d] or None."""

    q: Array
    k: Array
    v: Array
    gout: Array | None
    causal: bool


class Rows(NamedTuple):
    """What some query rows of a head come to. `weights` [rows,n]; `scores` only of pairs that are computed."""

    rows: Array
    weights: Array
    lse: Array
    out: Array


def heads_of(m: Dims, inputs: dict[str, Array]) -> Iterator[tuple[int, int, Head]]:
    """(b, h, head) for every query head."""
    for b, h in itertools.product(range(m.batch), range(m.heads)):
        k, v = (inputs[name][b, h // m.sharing].astype(np.float64) for name in ("k", "v"))
        gout = inputs["gout"][b, h].astype(np.float64) if "gout" in inputs else None
        yield b, h, Head(inputs["q"][b, h].astype(np.float64), k, v, gout, bool(m.causal))


def attend(head: Head, rows: Array) -> Rows:
    """Weights, log-sum-exp and output of some query rows."""
    scores = head.q[rows] @ head.k.T
    scores *= 1 / math.sqrt(head.q.shape[1])
    if head.causal:
        scores[np.arange(len(head.k)) > rows[:, None]] = -np.inf
    most = scores.max(axis=1, keepdims=True)
    scores -= most
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    return Rows(rows, weights, (most + np.log(total))[:, 0], weights @ head.v)


def blocks(n: int) -> list[Array]:
    """All rows, ROWS_AT_ONCE at a time."""
    return [np.arange(start, min(start + ROWS_AT_ONCE, n)) for start in range(0, n, ROWS_AT_ONCE)]


def forward(m: Dims, inputs: dict[str, Array]) -> tuple[Array, Array]:
    """out [b,h,n,d] and lse [b,h,n] of all rows, in float64."""
    out, lse = np.empty((m.batch, m.heads, m.n, m.head_dim)), np.empty((m.batch, m.heads, m.n))

    def fill(task: tuple[int, int, Head, Array]) -> None:
        b, h, head, rows = task
        found = attend(head, rows)
        out[b, h, rows], lse[b, h, rows] = found.out, found.lse

    in_parallel(fill, ((b, h, head, rows) for b, h, head in heads_of(m, inputs) for rows in blocks(m.n)))
    return out, lse


def in_parallel(do: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Do all tasks on as many threads as there are CPUs: numpy lets go of the interpreter in its loops."""
    with ThreadPoolExecutor(min(REFERENCE_THREADS, len(os.sched_getaffinity(0)))) as pool:
        return list(pool.map(do, tasks))


def sampled(m: Dims) -> Array:
    """Rows of one head that stand for all: first, last, around the edges of tiles, and random ones, ascending."""
    near = [tile + step for tile in (16, 32, 48, 64, 96, 128, 256) for step in (-1, 0, 1)]
    ends = [0, 1, m.n // 2, *(m.n - step for step in (1, 2, 17, 33, 49, 65))]
    random = np.random.default_rng(m.n).integers(0, m.n, SAMPLED_ROWS)
    return np.unique([row for row in (*near, *ends, *random.tolist()) if 0 <= row < m.n])


def flat(m: Dims, heads: int, rows: Array) -> Array:
    """These rows of every head, as rows of [batch * heads * n, d]."""
    starts = np.arange(m.batch * heads) * m.n
    found: Array = (starts[:, None] + rows).ravel()
    return found


# --- tolerances ---


class Rounding(NamedTuple):
    """Relative errors that all tolerances are made of.

    Attributes:
        u: unit roundoff.
        weight: of one softmax weight.
        total: of a sum over n rows.
        product: of a dot product over d, against the product of the norms.
    """

    u: float
    weight: float
    total: float
    product: float


def norm(array: Array, axis: int = -1) -> float:
    """The largest euclidean norm along an axis; 0 for nothing."""
    if not array.size:
        return 0.0
    return float(np.sqrt(np.square(array.astype(np.float64)).sum(axis=axis)).max())


def rounding(problem: Problem, inputs: dict[str, Array]) -> Rounding:
    """The relative errors of the arithmetic for these inputs, which are exact as they are, in 16 bits too.

    1. A score is a sum of d products, scaled: by the Cauchy-Schwarz inequality their magnitudes sum to at most
       |q| |k| / sqrt(d), so it is wrong by at most e(d + 2) |q| |k| / sqrt(d); e**x turns that into a relative error.
    2. The exponential adds 5 u: its own bound of 3 u (exp2.h) and the rounding of its argument.
    3. A weight is divided by the total of n weights: as much again for the errors of those, and e(n) for the sum.
    """
    d, n = problem.dims()["head_dim"], problem.n
    u = UNIT_ROUNDOFF[COMPUTED_IN[problem.dtype]]
    size = norm(inputs["q"]) * norm(inputs["k"]) / math.sqrt(d)
    score = spread(d + 2, u) * size + 5 * u
    return Rounding(u, score, spread(n, u), spread(d, u))


def cache_tolerance(tolerance: float, problem: Problem, most: float) -> float:
    """The largest error of out where weights and the result are rounded to the dtype of the cache.

    With c that dtype's unit roundoff and h half its least subnormal number: rounding changes each weight by a relative
    c, or below the normal numbers by at most h of the total. The first moves numerator and total by a relative c each;
    the second, over n weights and either sign, by DEVIATIONS sqrt(n) h each (see `spread`). The result's own rounding
    adds c. All of it is of the largest |v|, as in `out_tolerance`. q is not in it: it is drawn so that the cache's
    dtype holds it.

    Args:
        tolerance: what everything else explains: `out_tolerance`.
        problem: for n and the dtype of the cache.
        most: the largest |v|.
    """
    c, h = UNIT_ROUNDOFF[problem.dtype], HALF_LEAST[problem.dtype]
    return tolerance + (3 * c + 2 * spread(problem.n, h)) * max(1.0, most)


def out_tolerance(found: Rounding, v: Array) -> float:
    """The largest error of out that rounding explains.

    out is (sum of w v) / (sum of w): a convex combination of rows of v. Changing every weight by a relative
    `found.weight` changes numerator and denominator by as much, and each sum over n rows adds e(n), so the result moves
    by at most twice that times max|v|; u for the division.
    """
    most = max(1.0, float(np.abs(v).max(initial=0.0)))
    return (2 * (found.weight + found.total) + found.u) * most


def stored(tolerance: float, dtype: str) -> float:
    """The largest |output - ref| / max(1, |ref|) once a result is rounded into its storage.

    A result that arithmetic made wrong by t max(1, |ref|) is at most (1 + t) max(1, |ref|) itself; rounding to nearest
    moves that by at most a relative c, the storage's unit roundoff, or below its normal numbers by h, half its least
    subnormal number: t + c (1 + t) + h. What is stored as it was computed stays as it was.

    Args:
        tolerance: t, of the arithmetic.
        dtype: of the storage.
    """
    if COMPUTED_IN[dtype] == dtype:
        return tolerance
    c = UNIT_ROUNDOFF[dtype]
    return tolerance + c * (1 + tolerance) + HALF_LEAST[dtype]


def out_tolerances(problem: Problem, inputs: dict[str, Array]) -> tuple[float, float]:
    """The largest error of out in its storage: of a variant that rounds nothing else, and of `"arithmetic": "cache"`.

    Args:
        problem: for n, head_dim and the dtype.
        inputs: q, k and v, widened; of k and q only the norms count.
    """
    tolerance = out_tolerance(rounding(problem, inputs), inputs["v"])
    most = float(np.abs(inputs["v"]).max(initial=0.0))
    return stored(tolerance, problem.dtype), cache_tolerance(tolerance, problem, most)

"""The DNF of a transformer block; transformer.py has the formula and the letters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels import attention
from advisor.kernels.attention import in_parallel
from advisor.kernels.rms import AS_COMPUTED, MAGNITUDES, Kept, as_rows, kept, tolerance, unit, widened
from advisor.kernels.spec import Array, Elements, Expected
from advisor.kernels.tracked import (
    Scaled,
    Tracked,
    exact,
    gated,
    joined,
    normalised,
    passed,
    product,
    projected,
    stored,
    total,
)
from advisor.kernels.tracked_attention import Cache, attended, weigh
from advisor.kernels.transformer import INNER, WEIGHTS, Dims, TransformerSpec, dims_of, inner_slice
from advisor.records import Problem

WITHIN_AT_ONCE = 2048
"""Elements within the MLP that exist in float64 at a time, for attention.ROWS_AT_ONCE rows: 4 MiB."""


class Known(NamedTuple):
    """What rows need: x [rows,d], its normalised rows, the weights, those of the MLP in the dtype of the arithmetic,
    and how it is computed: unit roundoff, and how what lies between the steps is stored. Also of a device's arrays.
    """

    m: Dims
    u: float
    way: Kept
    x: Array
    normal: Scaled
    weights: dict[str, Array]


class BlockSpec(TransformerSpec):
    """A transformer block on batch sequences of n rows."""

    name: ClassVar[str] = "block"
    buffers: ClassVar[tuple[str, ...]] = ("x", *WEIGHTS, "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    constant: ClassVar[tuple[str, ...]] = WEIGHTS
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "bfloat16", "float16")
    magnitudes: ClassVar[tuple[float, ...]] = MAGNITUDES

    def flops(self, problem: Problem) -> int:
        """Those of the parts: two norms of 4 d + 4 a row, products of 2 a weight, attention, gate, two residuals."""
        m = dims_of(problem)
        pairs = m.of_attention.pairs
        of_attention = m.batch * m.heads * (pairs * (4 * m.head_dim + 4) + m.n * m.head_dim)
        products = 2 * (m.weights - 2 * m.d_model)
        return m.rows * (products + 2 * (4 * m.d_model + 4) + 5 * m.d_ff + 2 * m.d_model) + of_attention

    def elements(self, problem: Problem) -> Elements:
        """2 n d and all weights, with n rows of all sequences: x and the weights are read once, y is written once.

        All that lies between the steps is intermediate: it need not be stored, so it costs nothing here. What the paper
        predicts is the traffic of a chain that does store it, M_block: `transformer.paper_elements`.
        """
        m = dims_of(problem)
        return Elements(read=m.rows * m.d_model + m.weights, written=m.rows * m.d_model)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """y in float64: all rows, or chosen ones of every sequence where all would take too long. k and v are made of
        all rows in any case, since every row may attend to them.
        """
        m, of = dims_of(problem), widened(inputs, problem.dtype)
        parts = attention.blocks(m.n) if self.whole(problem) else [attention.sampled(m.of_attention)]

        def found(way: Kept) -> Tracked:
            known = known_of(problem, of, way)
            starts = range(0, m.rows, attention.ROWS_AT_ONCE)
            some = [np.arange(first, min(first + attention.ROWS_AT_ONCE, m.rows)) for first in starts]
            caches = split(m, joined(in_parallel(lambda rows: keys_and_values(known, rows), some)))
            tasks = [(b, rows) for b in range(m.batch) for rows in parts]
            return joined(in_parallel(lambda task: of_rows(known, task[0], task[1], caches[task[0]]), tasks))

        y, real, cache = judged(problem, found)
        if self.whole(problem):
            return {"y": Expected(y.reshape(inputs["x"].shape), real, cache_tolerance=cache)}
        return {"y": Expected(y, real, attention.flat(m.of_attention, 1, parts[0]), cache)}

    def whole(self, problem: Problem) -> bool:
        """Whether a host knows all rows in some seconds."""
        return self.flops(problem) <= attention.SAMPLED_FLOPS


def judged(problem: Problem, found: Callable[[Kept], Tracked]) -> tuple[Array, float, float]:
    """y, and what rounding explains, of real arithmetic and of "cache", with the rounding of y in its storage.

    Args:
        problem: for the dtype.
        found: makes y for a way of storing what lies between the steps.
    """
    y = found(AS_COMPUTED)
    cache = y if kept(problem.dtype) == AS_COMPUTED else found(kept(problem.dtype))
    allowed = (attention.stored(tolerance(one.error, one.value), problem.dtype) for one in (y, cache))
    return (y.value, *allowed)  # type: ignore[return-value]  # two of them


def known_of(problem: Problem, of: dict[str, Array], way: Kept) -> Known:
    """What all rows need, of inputs in the dtype of the arithmetic."""
    (x,), u = as_rows(of, ["x"]), unit(problem)
    weights = {name: of[name] if name in INNER else of[name].astype(np.float64) for name in WEIGHTS}
    return Known(dims_of(problem), u, way, x, normalised(exact(x), weights["g1"], u, way), weights)


def keys_and_values(known: Known, rows: Array) -> Tracked:
    """k and v of some rows of all sequences: [rows, elements of all heads of both]."""
    found = projected(known.normal.some(rows), known.weights["wqkv"][known.m.own :], known.u)
    return stored(found, known.way)


def split(m: Dims, found: Tracked) -> list[list[Cache]]:
    """k and v of all rows as those of every sequence and head."""
    whole = found.shaped(m.batch, m.n, 2, m.kv_heads, m.head_dim)
    return [[_cache(m, whole, b, g) for g in range(m.kv_heads)] for b in range(m.batch)]


def _cache(m: Dims, whole: Tracked, b: int, g: int) -> Cache:
    k, v = (whole.at((b, slice(None), at, g)) for at in (0, 1))
    return Cache(k, v, bool(m.causal))


def of_rows(known: Known, b: int, rows: Array, caches: list[Cache]) -> Tracked:
    """y of some rows of sequence b."""
    m, u, way, weights, places = known.m, known.u, known.way, known.weights, rows + b * known.m.n
    q = stored(projected(known.normal.some(places), weights["wqkv"][: m.own], u), way)
    heads = []
    for h in range(m.heads):
        cache = caches[h // m.of_attention.sharing]
        own = q.at((slice(None), slice(h * m.head_dim, (h + 1) * m.head_dim)))
        heads.append(attended(weigh(own, rows, cache, u), cache.v, u, way))
    mixed = passed(product(stored(joined(heads, axis=1), way), weights["wo"].T, u), way)
    return _through_mlp(passed(total(exact(known.x[places]), mixed, u), way), known)


def _through_mlp(middle: Tracked, known: Known) -> Tracked:
    """The second half of the block."""
    u, way, weights = known.u, known.way, known.weights
    normal, width = normalised(middle, weights["g2"], u, way, 4), len(weights["wg"])

    def part(first: int) -> Tracked:
        wg, wu, wd = inner_slice(weights, slice(first, first + WITHIN_AT_ONCE))
        a, b = projected(normal, wg, u), projected(normal, wu, u)
        return product(gated(a, b, u, way).h, wd.T, u, width)

    parts = (part(first) for first in range(0, width, WITHIN_AT_ONCE))
    return total(middle, passed(functools.reduce(lambda a, b: total(a, b, u), parts), way), u)


SPEC = BlockSpec()

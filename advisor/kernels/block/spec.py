"""The DNF of a transformer block; transformer.py has the formula and the letters."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels import attention
from advisor.kernels.attention import in_parallel
from advisor.kernels.rms import MAGNITUDES, as_rows, tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.kernels.tracked import Scaled, Tracked, exact, gated, joined, normalised, product, projected, total
from advisor.kernels.tracked_attention import Cache, attended, weigh
from advisor.kernels.transformer import INNER, WEIGHTS, Dims, TransformerSpec, dims_of, inner_slice
from advisor.records import Problem

WITHIN_AT_ONCE = 2048
"""Elements within the MLP that exist in float64 at a time, for attention.ROWS_AT_ONCE rows: 4 MiB."""


class Known(NamedTuple):
    """What all rows need: x [rows,d], its normalised rows, and the weights, those of the MLP as they are."""

    m: Dims
    u: float
    x: Array
    normal: Scaled
    weights: dict[str, Array]


class BlockSpec(TransformerSpec):
    """A transformer block on batch sequences of n rows."""

    name: ClassVar[str] = "block"
    buffers: ClassVar[tuple[str, ...]] = ("x", *WEIGHTS, "y")
    written: ClassVar[tuple[str, ...]] = ("y",)
    constant: ClassVar[tuple[str, ...]] = WEIGHTS
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
        m = dims_of(problem)
        known = _known(m, unit(problem), inputs)
        whole = self.flops(problem) <= attention.SAMPLED_FLOPS
        parts = attention.blocks(m.n) if whole else [attention.sampled(m.of_attention)]
        caches = _caches(known)
        tasks = [(b, rows) for b in range(m.batch) for rows in parts]
        y = joined(in_parallel(lambda task: _rows(known, task[0], task[1], caches[task[0]]), tasks))
        allowed = tolerance(y.error, y.value)
        if whole:
            return {"y": Expected(y.value.reshape(inputs["x"].shape), allowed)}
        return {"y": Expected(y.value, allowed, attention.flat(m.of_attention, 1, parts[0]))}


def _known(m: Dims, u: float, inputs: dict[str, Array]) -> Known:
    (x,) = as_rows(inputs, ["x"])
    weights = {name: inputs[name] if name in INNER else inputs[name].astype(np.float64) for name in WEIGHTS}
    return Known(m, u, x, normalised(exact(x), weights["g1"], u), weights)


def _caches(known: Known) -> list[list[Cache]]:
    """k and v of all heads of every sequence."""
    m, own = known.m, known.weights["wqkv"][known.m.own :]
    starts = range(0, m.rows, attention.ROWS_AT_ONCE)
    some = [np.arange(first, min(first + attention.ROWS_AT_ONCE, m.rows)) for first in starts]
    found = joined(in_parallel(lambda rows: projected(known.normal.some(rows), own, known.u), some))
    split = found.shaped(m.batch, m.n, 2, m.kv_heads, m.head_dim)
    return [[_cache(m, split, b, g) for g in range(m.kv_heads)] for b in range(m.batch)]


def _cache(m: Dims, split: Tracked, b: int, g: int) -> Cache:
    k, v = (split.at((b, slice(None), at, g)) for at in (0, 1))
    return Cache(k, v, bool(m.causal))


def _rows(known: Known, b: int, rows: Array, caches: list[Cache]) -> Tracked:
    """y of some rows of sequence b."""
    m, u, weights, places = known.m, known.u, known.weights, rows + b * known.m.n
    q = projected(known.normal.some(places), weights["wqkv"][: m.own], u)
    heads = []
    for h in range(m.heads):
        cache = caches[h // m.of_attention.sharing]
        own = q.at((slice(None), slice(h * m.head_dim, (h + 1) * m.head_dim)))
        heads.append(attended(weigh(own, rows, cache, u), cache.v, u))
    mixed = product(joined(heads, axis=1), weights["wo"].T, u)
    return _through_mlp(total(exact(known.x[places]), mixed, u), weights, u)


def _through_mlp(middle: Tracked, weights: dict[str, Array], u: float) -> Tracked:
    """The second half of the block."""
    normal, width, found = normalised(middle, weights["g2"], u), len(weights["wg"]), middle
    for first in range(0, width, WITHIN_AT_ONCE):
        wg, wu, wd = inner_slice(weights, slice(first, first + WITHIN_AT_ONCE))
        a, b = projected(normal, wg, u), projected(normal, wu, u)
        found = total(found, product(gated(a, b, u).h, wd.T, u, width), u)
    return found


SPEC = BlockSpec()

"""The DNF of the gradients of a transformer block. Letters, q, k, v, a, m and mn as in transformer.py; with a cotangent
gy of y

gh[i,f] = sum over d of gy[i,d] wd[d,f]               ga, gb, gwg, gwu, gwd of it as in mlp_backward, with mn for x
gmn[i,d] = sum over f of ga[i,f] wg[f,d] + gb[i,f] wu[f,d]
gm = gy + RMSNorm's gradient of gmn at m              gg2 likewise: rms.py
gwo[d,h,e] = sum over i of gm[i,d] a[i,h,e]           gout[i,h,e] = sum over d of gm[i,d] wo[d,h,e]
gq, gk, gv = attention's gradients of gout            attention.py
gwqkv[p,d] = sum over i of (gq, gk, gv)[i,p] xn[i,d]  gxn[i,d] = sum over p of (gq, gk, gv)[i,p] wqkv[p,d]
gx = gm + RMSNorm's gradient of gxn at x              gg1 likewise

The forward pass is made anew: inputs are its own and gy, nothing of it is kept.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels import attention
from advisor.kernels.attention import in_parallel
from advisor.kernels.gated import sampled
from advisor.kernels.rms import as_rows, tolerance, unit
from advisor.kernels.spec import Array, Elements, Expected
from advisor.kernels.tracked import (
    Scaled,
    Tracked,
    both,
    exact,
    gated,
    joined,
    norm_gradients,
    normalised,
    product,
    projected,
    times,
    total,
)
from advisor.kernels.tracked_attention import Cache, attended, gradients, weigh
from advisor.kernels.transformer import INNER, WEIGHTS, Dims, TransformerSpec, dims_of, inner_slice
from advisor.records import Problem

WITHIN_AT_ONCE = 1024
"""Elements within the MLP that exist in float64 at a time, for all rows: some twelve arrays of 64 MiB at 8192 rows."""


SAMPLED_WEIGHTS = 1 << 22
"""Past so many elements of all weights their whole gradients, with errors, take seconds for any number of rows."""


class Middle(NamedTuple):
    """The gradient of m, and those of the weights behind it."""

    gm: Tracked
    gg2: Tracked
    gwg: Tracked
    gwu: Tracked
    gwd: Tracked


class BlockBackwardSpec(TransformerSpec):
    """The gradients of x and of all weights. Weights change from call to call here: none of them is constant."""

    name: ClassVar[str] = "block_backward"
    buffers: ClassVar[tuple[str, ...]] = ("x", *WEIGHTS, "gy", "gx", *(f"g{name}" for name in WEIGHTS))
    magnitudes: ClassVar[tuple[float, ...]] = (1.0, 0.1, 30.0)
    """No smaller ones: gradients grow as x shrinks, and the judge allows all elements one error against 1."""
    written: ClassVar[tuple[str, ...]] = ("gx", *(f"g{name}" for name in WEIGHTS))

    def flops(self, problem: Problem) -> int:
        """Those of the parts, of which the forward pass is made anew as far as gradients need it: all but y.

        Products of 6 a weight (wd: 4), two norms of 16 d + 12 a row, attention forward and backward, 13 a element
        within, two residuals and their gradients.
        """
        m = dims_of(problem)
        pairs, matrices = m.of_attention.pairs, m.weights - 2 * m.d_model
        of_attention = m.batch * m.heads * (pairs * (14 * m.head_dim + 9) + 3 * m.n * m.head_dim)
        products = 6 * matrices - 2 * m.d_model * m.d_ff
        return m.rows * (products + 2 * (16 * m.d_model + 12) + 13 * m.d_ff + 3 * m.d_model) + of_attention

    def elements(self, problem: Problem) -> Elements:
        """3 n d and twice all weights: x, gy and the weights are read once, all gradients are written once."""
        m = dims_of(problem)
        return Elements(read=2 * m.rows * m.d_model + m.weights, written=m.rows * m.d_model + m.weights)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """All gradients in float64; of large weights those of chosen outputs: rows of gwqkv, gwo, gwg and gwu, columns
        of gwd. gx is known whole, and needs all that lies between.
        """
        m, u = dims_of(problem), unit(problem)
        large = self.flops(problem) > attention.SAMPLED_FLOPS or m.weights > SAMPLED_WEIGHTS
        chosen = {count: sampled(count) if large else np.arange(count) for count in (m.all, m.d_model, m.d_ff)}
        found = _gradients(m, inputs, chosen, u)
        rows = {"gwqkv": m.all, "gwo": m.d_model, "gwg": m.d_ff, "gwu": m.d_ff} if large else {}
        shapes = {**self.shapes(problem), **{name: found[name].value.shape for name in (*rows, "gwd")}}
        return {
            name: Expected(
                found[name].value.reshape(shapes[name]),
                tolerance(found[name].error, found[name].value),
                chosen[rows[name]] if name in rows else None,
                columns=chosen[m.d_ff] if large and name == "gwd" else None,
            )
            for name in self.written
        }


def _gradients(m: Dims, inputs: dict[str, Array], chosen: dict[int, Array], u: float) -> dict[str, Tracked]:
    """The gradients by name; chosen: how many outputs a weight has -> which of them its gradient is wanted of."""
    x, gy = (exact(rows) for rows in as_rows(inputs, ["x", "gy"]))
    weights = {name: inputs[name] if name in INNER else inputs[name].astype(np.float64) for name in WEIGHTS}
    normal = normalised(x, weights["g1"], u)
    qkv = projected(normal, weights["wqkv"], u)
    out = _attended(m, qkv, u)
    middle = total(x, product(out, weights["wo"].T, u), u)
    behind = _behind(middle, gy, weights, chosen[m.d_ff], u)
    gqkv = _attention_gradients(m, qkv, out, product(behind.gm, weights["wo"], u), u)
    gx, gg1 = norm_gradients(x, normal, weights["g1"], product(gqkv, weights["wqkv"], u), u)
    every = slice(None)
    return {
        **behind._asdict(),
        "gx": total(behind.gm, gx, u),
        "gg1": gg1,
        "gwqkv": both(gqkv.at((every, chosen[m.all])).T, normal.whole, u),
        "gwo": both(behind.gm.at((every, chosen[m.d_model])).T, out, u),
    }


def _caches(m: Dims, qkv: Tracked) -> list[list[Cache]]:
    """k and v of all heads of every sequence."""
    split = qkv.shaped(m.batch, m.n, m.heads + 2 * m.kv_heads, m.head_dim)
    every = slice(None)

    def one(b: int, g: int) -> Cache:
        k, v = split.at((b, every, m.heads + g)), split.at((b, every, m.heads + m.kv_heads + g))
        return Cache(k, v, bool(m.causal))

    return [[one(b, g) for g in range(m.kv_heads)] for b in range(m.batch)]


def _head(m: Dims, rows: Tracked, b: int, h: int) -> Tracked:
    """Head h of sequence b, [n,e], of rows [b*n, ..] that begin with the heads of q."""
    return rows.at((slice(b * m.n, (b + 1) * m.n), slice(h * m.head_dim, (h + 1) * m.head_dim)))


def _attended(m: Dims, qkv: Tracked, u: float) -> Tracked:
    """out of all rows: [b*n, h*e]."""
    caches = _caches(m, qkv)

    def some(task: tuple[int, int, Array]) -> Tracked:
        b, h, rows = task
        cache = caches[b][h // m.of_attention.sharing]
        return attended(weigh(_head(m, qkv, b, h).at(rows), rows, cache, u), cache.v, u)

    parts = attention.blocks(m.n)
    tasks = [(b, h, rows) for b in range(m.batch) for h in range(m.heads) for rows in parts]
    found = joined(in_parallel(some, tasks))
    return Tracked(*(_by_rows(m, one) for one in found))


def _by_rows(m: Dims, heads: Array) -> Array:
    """[b,h,n,e] as [b*n, h*e]."""
    found: Array = heads.reshape(m.batch, -1, m.n, m.head_dim).swapaxes(1, 2).reshape(m.rows, -1)
    return found


def _behind(middle: Tracked, gy: Tracked, weights: dict[str, Array], chosen: Array, u: float) -> Middle:
    """From gy back through the MLP and its norm; weights' gradients of chosen f."""
    normal, width = normalised(middle, weights["g2"], u), len(weights["wg"])
    whole, gmn, parts = normal.whole, exact(np.zeros(middle.value.shape)), []
    for first in range(0, width, WITHIN_AT_ONCE):
        wg, wu, wd = inner_slice(weights, slice(first, first + WITHIN_AT_ONCE))
        ga, gb, h = _within(normal, gy, (wg, wu, wd), u)
        for one, w in ((ga, wg), (gb, wu)):
            gmn = total(gmn, product(one, w, u, 2 * width), u)
        wanted = chosen[(chosen >= first) & (chosen < first + WITHIN_AT_ONCE)] - first
        ga, gb, h = (one.at((slice(None), wanted)) for one in (ga, gb, h))
        parts.append((both(ga.T, whole, u), both(gb.T, whole, u), both(gy.T, h, u)))
    gwg, gwu = (joined([part[at] for part in parts]) for at in (0, 1))
    gm, gg2 = norm_gradients(middle, normal, weights["g2"], gmn, u)
    return Middle(total(gy, gm, u), gg2, gwg, gwu, joined([part[2] for part in parts], axis=1))


def _within(normal: Scaled, gy: Tracked, weights: tuple[Array, Array, Array], u: float) -> tuple[Tracked, ...]:
    """ga, gb and h."""
    wg, wu, wd = weights
    a, b, gh = projected(normal, wg, u), projected(normal, wu, u), product(gy, wd, u)
    gate = gated(a, b, u)
    return times(times(gh, b, u), gate.slope, u), times(gh, gate.silu, u), gate.h


def _attention_gradients(m: Dims, qkv: Tracked, out: Tracked, gout: Tracked, u: float) -> Tracked:
    """gq, gk and gv of all heads, as qkv lies."""
    caches, shape = _caches(m, qkv), (m.batch, m.heads + 2 * m.kv_heads, m.n, m.head_dim)
    found = Tracked(np.zeros(shape), np.zeros(shape))
    for b in range(m.batch):
        for h in range(m.heads):
            g = h // m.of_attention.sharing
            _add_head(
                found,
                (b, h, m.heads + g, m.heads + m.kv_heads + g),
                caches[b][g],
                [_head(m, one, b, h) for one in (qkv, out, gout)],
                u,
            )
    return Tracked(*(_by_rows(m, one) for one in found))


def _add_head(found: Tracked, at: tuple[int, int, int, int], cache: Cache, head: list[Tracked], u: float) -> None:
    """Add what one query head contributes. at: its sequence, and where its q, k and v lie; head: q, out and gout."""
    b, *places = at
    q, out, gout = head
    parts = attention.blocks(len(q.value))
    made = in_parallel(
        lambda rows: gradients(q.at(rows), rows, cache, out.at(rows), gout.at(rows), u),
        parts,
    )
    every = slice(None)
    for rows, one in zip(parts, made, strict=True):
        for place, gradient, some in zip(places, one, (slice(rows[0], rows[-1] + 1), every, every), strict=True):
            for whole, part in zip(found, gradient, strict=True):
                whole[b, place, some] += part


SPEC = BlockBackwardSpec()

"""What the tests of the transformer block share: the formula in any precision, step by step, and its mistakes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from advisor.kernels.gated import sigmoid
from advisor.kernels.rms import EPS
from advisor.kernels.spec import Array

Keep = Callable[[Array], Array]

GROUPED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 8, "d_model": 20, "d_ff": 12, "causal": 1}
"""Heads together are wider than a row, and share k and v."""

SHAPES = (
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "d_model": 64, "d_ff": 256, "causal": 0},
    {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "d_model": 80, "d_ff": 33, "causal": 1},
    {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 7, "d_model": 7, "d_ff": 5, "causal": 1},
    {"batch": 3, "heads": 3, "kv_heads": 1, "head_dim": 7, "d_model": 300, "d_ff": 1, "causal": 0},
)
"""The paper's; grouped heads wider than a row; odd ones that no vector divides; rows past a slice of a sum."""


def norm(x: Array, g: Array, eps: float = EPS) -> Array:
    kind = x.dtype.type
    return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + kind(eps)) * g


def mixed(keep: Keep, q: Array, k: Array, v: Array, causal: int, scale: float) -> Array:
    """Attention of [b,n,h,e] with k and v [b,n,g,e] -> [b,n,h*e]."""
    k, v = (np.repeat(one, q.shape[2] // k.shape[2], axis=2) for one in (k, v))
    scores = np.einsum("bihe,bjhe->bhij", q, k) * q.dtype.type(scale)
    if causal:
        scores[..., ~np.tri(q.shape[1], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    out = np.einsum("bhij,bjhe->bihe", keep(weights), v) / total.swapaxes(1, 2)
    return keep(out.reshape(*q.shape[:2], -1))


def block(
    inputs: dict[str, Array], shape: dict[str, int], kind: type = np.float64, wrong: str = "", keep: Keep = lambda x: x
) -> Array:
    """y in some precision. `wrong`: a step that is done wrongly, see the tests. `keep`: what storing makes of rows."""
    of = {name: array.astype(kind) for name, array in inputs.items()}
    x, heads, shared, size = of["x"], shape["heads"], shape["kv_heads"], shape["head_dim"]
    eps = 0 if wrong == "eps" else EPS
    qkv = keep(keep(norm(x, of["g1"], eps)) @ of["wqkv"].T).reshape(*x.shape[:2], heads + 2 * shared, size)
    q, k, v = np.split(qkv, [heads, heads + shared], axis=2)
    if wrong == "heads":
        k = k[:, :, ::-1]
    out = mixed(keep, q, k, v, 0 if wrong == "causal" else shape["causal"], 1 if wrong == "scale" else size**-0.5)
    middle = keep(keep(out @ of["wo"].T) + (0 if wrong == "residual" else x))
    normal = keep(norm(middle, np.ones_like(of["g2"]) if wrong == "gain" else of["g2"]))
    a, b = keep(normal @ of["wg"].T), keep(normal @ of["wu"].T)
    h = keep(keep(a * sigmoid(a).astype(kind)) * b)
    found: Array = middle + keep(h @ of["wd"].T)
    return found

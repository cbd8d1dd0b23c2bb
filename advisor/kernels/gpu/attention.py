"""Attention of all query rows in float64 on a device, some rows of a head at a time. For arrays of CuPy, or of numpy.

The formulas and the letters are those of kernels/attention.py. Whole scores exist of `rows_at_once` rows only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from advisor.kernels.attention import Dims
from advisor.kernels.gpu.arrays import double

SCRATCH_BYTES = 1 << 27
"""Scores that exist in float64 at a time."""


class Head(NamedTuple):
    """One query head with its part of k and v, [n,d] each in float64; causal or not."""

    q: Any
    k: Any
    v: Any
    causal: bool


class Rows(NamedTuple):
    """What query rows first .. of a head come to. `weights` [rows,keys]: the keys that the last of them sees."""

    weights: Any
    lse: Any
    out: Any


def heads_of(m: Dims, arrays: dict[str, Any], dtype: str) -> Iterator[tuple[int, int, Head]]:
    """(b, h, head) for every query head.

    Args:
        m: the numbers of the problem.
        arrays: q [b,h,n,d], k and v [b,g,n,d] in the storage of `dtype`.
        dtype: the problem's.
    """
    for b, h in itertools.product(range(m.batch), range(m.heads)):
        k, v = (double(arrays[name][b, h // m.sharing], dtype) for name in ("k", "v"))
        yield b, h, Head(double(arrays["q"][b, h], dtype), k, v, bool(m.causal))


def rows_at_once(n: int) -> int:
    """Query rows of one head whose scores exist at a time."""
    return max(1, min(n, SCRATCH_BYTES // (8 * n)))


def blocks(n: int) -> Iterator[tuple[int, int]]:
    """(first, end) of all rows, `rows_at_once` at a time."""
    step = rows_at_once(n)
    return ((first, min(n, first + step)) for first in range(0, n, step))


def attend(xp: Any, head: Head, first: int, end: int) -> Rows:
    """Weights, log-sum-exp and output of query rows first .. end - 1."""
    keys = end if head.causal else len(head.k)
    scores = head.q[first:end] @ head.k[:keys].T
    scores *= 1 / math.sqrt(head.q.shape[1])
    if head.causal:
        scores = xp.where(xp.arange(keys) > xp.arange(first, end)[:, None], -np.inf, scores)
    most = scores.max(axis=1, keepdims=True)
    scores -= most
    weights = xp.exp(scores, out=scores)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    return Rows(weights, (most + xp.log(total))[:, 0], weights @ head.v[:keys])


def forward(xp: Any, m: Dims, arrays: dict[str, Any], dtype: str) -> tuple[Any, Any]:
    """out [b,h,n,d] and lse [b,h,n] of all rows, in float64 on the device. Args: as of `heads_of`."""
    out, lse = xp.empty((m.batch, m.heads, m.n, m.head_dim)), xp.empty((m.batch, m.heads, m.n))
    for b, h, head in heads_of(m, arrays, dtype):
        for first, end in blocks(m.n):
            found = attend(xp, head, first, end)
            out[b, h, first:end], lse[b, h, first:end] = found.out, found.lse
    return out, lse


def norm(xp: Any, array: Any, dtype: str, axis: int = -1) -> float:
    """The largest euclidean norm of a row (axis -1) or of a column (axis -2) of any head of an operand [b,h,n,d]."""
    heads = (double(head, dtype) for group in array for head in group)
    return max(float(xp.sqrt((head * head).sum(axis=axis).max())) for head in heads)


def largest(xp: Any, array: Any, dtype: str) -> float:
    """The largest magnitude of an operand [b,h,n,d]."""
    return max(float(xp.abs(double(head, dtype)).max()) for group in array for head in group)


def sizes(xp: Any, arrays: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Of q and k the largest norm of a row, of v the largest magnitude, as operands of one element each.

    That is all that attention.out_tolerances looks at.
    """
    found = {name: norm(xp, arrays[name], dtype) for name in ("q", "k")}
    return {name: np.array([[size]]) for name, size in {**found, "v": largest(xp, arrays["v"], dtype)}.items()}

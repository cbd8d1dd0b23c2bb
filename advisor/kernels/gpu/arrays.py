"""Operands on a device: drawn, narrowed into 16-bit storage, widened again. For arrays of CuPy, or of numpy.

What normal.py and sixteen.py do on the host; random numbers are others, outliers the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from advisor.kernels.normal import OUTLIERS
from advisor.kernels.spec import COMPUTED_IN, STORAGE, Array

PIECE = 1 << 26
"""Elements that are drawn at a time: half a gigabyte in float64."""


def drawn(xp: Any, shapes: dict[str, tuple[int, ...]], dtype: str, seed: int, draw: str) -> dict[str, Any]:
    """Inputs by name in the storage of a dtype, piece by piece, one stream for all.

    Args:
        xp: the module of the arrays.
        shapes: name -> shape; the order decides which part of the stream a name gets.
        dtype: of the storage; random numbers are drawn in the dtype of the arithmetic and rounded to nearest.
        seed: the same seed gives the same inputs.
        draw: normal, or outlier: those named in OUTLIERS take their outliers instead.
    """
    random, kind = xp.random.default_rng(seed), np.dtype(COMPUTED_IN[dtype])
    found = {}
    for name, shape in shapes.items():
        out = xp.empty(math.prod(shape), STORAGE[dtype])
        for start in range(0, out.size, PIECE):
            count = min(PIECE, out.size - start)
            odd = draw == "outlier" and name in OUTLIERS
            piece = _outliers(xp, name, start, count, kind) if odd else random.standard_normal(count, dtype=kind)
            out[start : start + count] = narrow(piece, dtype)
        found[name] = out.reshape(shape)
    return found


def _outliers(xp: Any, name: str, start: int, count: int, kind: Any) -> Any:
    """Elements start .. of what normal.outliers makes; its formula has the period of its modulus."""
    step, modulus, divisor, offset, factor = OUTLIERS[name]
    period = ((np.arange(modulus) * step % modulus / divisor - offset) * factor).astype(kind)
    return xp.asarray(period)[(xp.arange(count, dtype=np.int64) + start) % modulus]


def narrow(array: Any, dtype: str) -> Any:
    """Numbers in the dtype of the arithmetic, rounded to nearest (even) into their storage."""
    if dtype != "bfloat16":
        return array.astype(STORAGE[dtype])
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(array: Any, dtype: str) -> Any:
    """The numbers that a storage array holds, in the dtype of the arithmetic. Exact."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(COMPUTED_IN[dtype])


def double(array: Any, dtype: str) -> Any:
    """The same in float64."""
    return widen(array, dtype).astype(np.float64)


def host(array: Any) -> Array:
    """An array as numpy's."""
    return np.asarray(array.get() if hasattr(array, "get") else array)

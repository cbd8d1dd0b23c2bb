"""Sixteen-bit storage: float16 and bfloat16 arrays, the latter held as their bits since numpy has no such type."""

from __future__ import annotations

import numpy as np

from advisor.kernels.spec import Array


def narrow(array: Array, dtype: str) -> Array:
    """float32 numbers rounded to nearest (even) into their storage; other dtypes are left as they are.

    Args:
        array: float32.
        dtype: that of the storage.

    Returns:
        float16, or uint16 holding the bits of bfloat16: the upper half of the float32.
    """
    if dtype == "float16":
        return array.astype(np.float16)
    if dtype != "bfloat16":
        return array
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    found: Array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return found


def widen(array: Array, dtype: str) -> Array:
    """The numbers that a storage array holds; other dtypes are left as they are. Exact."""
    if dtype == "float16":
        return array.astype(np.float32)
    if dtype != "bfloat16":
        return array
    found: Array = (array.astype(np.uint32) << 16).view(np.float32)
    return found

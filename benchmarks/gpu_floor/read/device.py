"""Inputs and reference of the read floor made on a device; see decode/device.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.kernels.decode import device as decode
from advisor.kernels.spec import Expected
from advisor.records import Problem

WORD = 1 << 24


def inputs(xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
    """k and v [b,g,n,d] of decode's own inputs."""
    found = decode.inputs(xp, problem._replace(kernel="decode"), seed, draw)
    return {name: found[name] for name in ("k", "v")}


def reference(xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
    """The sum of all words modulo 2**24, over 2**24: exact."""
    total = sum(int(arrays[name].view(xp.uint32).sum(dtype=xp.uint64)) for name in ("k", "v"))
    return {"out": Expected(np.array([total % WORD / WORD]), 0.0)}

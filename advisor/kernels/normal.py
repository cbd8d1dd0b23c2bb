"""Random inputs: standard normal numbers, quickly, and the outliers of real models."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from advisor.kernels.spec import Array

FILL_ELEMENTS = 1 << 20
"""Elements of one random stream: fixed, so that inputs depend on the seed alone and not on the number of threads."""

FILL_THREADS = 8
"""Most threads that make inputs; past this, memory is the limit."""

BANK_ELEMENTS = 1 << 21
"""Elements that are drawn afresh; a larger array goes on with rotations of them: more would take longer to draw than a
search takes to time them."""

OUTLIERS = {"q": (37, 19, 5.0, 1.9, 30.0), "v": (57, 11, 3.0, 1.8, 80.0)}
"""Buffer -> (step, modulus, divisor, offset, factor) of its outliers: |q| up to 57, |v| up to 144.

Source: the calibration case of an inference engine's grouped-query decode, the largest values of a model whose cache is
kept in float16: ((i * 37) % 19 / 5 - 1.9) * 30 and ((i * 57) % 11 / 3 - 1.8) * 80."""


def _fresh(count: int, seed: np.random.SeedSequence, kind: Any) -> Array:
    """Standard normal numbers, each piece of FILL_ELEMENTS from its own stream, so that threads can share the work."""
    out = np.empty(count, kind)
    starts = range(0, count, FILL_ELEMENTS)

    def fill(piece: tuple[int, np.random.SeedSequence]) -> None:
        start, stream = piece
        generator = np.random.Generator(np.random.SFC64(stream))
        generator.standard_normal(out=out[start : start + FILL_ELEMENTS], dtype=kind)

    pieces = list(zip(starts, seed.spawn(len(starts)), strict=True))
    threads = min(FILL_THREADS, len(os.sched_getaffinity(0)), len(pieces))
    if threads == 1:
        for piece in pieces:
            fill(piece)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, pieces))
    return out


def normals(shape: tuple[int, ...], seed: np.random.SeedSequence, kind: Any = np.float32) -> Array:
    """Standard normal numbers of a shape; the same for the same seed, however many threads make them.

    Drawing takes about 10 ns an element, so past BANK_ELEMENTS the array goes on with what was drawn, each time rotated
    by another random amount: the distribution stays, no row keeps its place, and copying costs a tenth.

    Args:
        shape: of the result.
        seed: where the streams come from.
        kind: numpy.float32 or numpy.float64.

    Returns:
        A new C-contiguous array.
    """
    count = math.prod(shape)
    bank = _fresh(min(count, BANK_ELEMENTS), seed, kind)
    if count <= BANK_ELEMENTS:
        return bank.reshape(shape)
    out: Array = np.empty(count, kind)
    turns = np.random.Generator(np.random.SFC64(seed)).integers(1, BANK_ELEMENTS, count // BANK_ELEMENTS)
    out[:BANK_ELEMENTS] = bank
    for start, turn in zip(range(BANK_ELEMENTS, count, BANK_ELEMENTS), turns, strict=False):
        piece = out[start : start + BANK_ELEMENTS]
        ahead = bank[turn : turn + len(piece)]
        piece[: len(ahead)] = ahead
        piece[len(ahead) :] = bank[: len(piece) - len(ahead)]
    return out.reshape(shape)


def outliers(name: str, shape: tuple[int, ...], kind: Any = np.float32) -> Array:
    """The outliers of a buffer that OUTLIERS names, element i of the flattened array by its formula."""
    step, modulus, divisor, offset, factor = OUTLIERS[name]
    index = np.arange(math.prod(shape), dtype=np.int64)
    found: Array = ((index * step % modulus / divisor - offset) * factor).astype(kind).reshape(shape)
    return found


def drawn(shapes: dict[str, tuple[int, ...]], seed: int, draw: str, kind: Any = np.float32) -> dict[str, Array]:
    """Inputs by name, each from a stream of its own.

    Args:
        shapes: name -> shape; the order decides which stream a name gets.
        seed: the same seed gives the same inputs.
        draw: normal, or outlier: those named in OUTLIERS take their outliers instead.
        kind: numpy.float32 or numpy.float64.
    """
    seeds = np.random.SeedSequence(seed).spawn(len(shapes))
    return {
        name: outliers(name, shape, kind) if draw == "outlier" and name in OUTLIERS else normals(shape, stream, kind)
        for (name, shape), stream in zip(shapes.items(), seeds, strict=True)
    }

"""Is an output right? Compared with the float64 reference under the DNF's derived tolerance. No time is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from advisor.kernels.operands import Block, intact, unwritten
from advisor.kernels.sixteen import widen
from advisor.kernels.spec import STORAGE, Array, Expected

_DTYPES = {np.dtype(kind): dtype for dtype, kind in STORAGE.items()}
"""The dtype that a storage array is of: each has a numpy type of its own."""


class Judgement(NamedTuple):
    """`error`: the largest |out - ref| / max(1, |ref|) of the output that comes nearest to its tolerance or passes it,
    None where it is not a finite number. `reason` empty: right.

    `spoiled`: memory outside the outputs was written to, so the process that did it is not to be trusted.
    """

    error: float | None
    tolerance: float | None
    reason: str
    spoiled: bool = False


def judge(outputs: Mapping[str, Block], reference: Mapping[str, Expected]) -> Judgement:
    """Compare every output with the reference: all written, all finite, all close, canaries standing."""
    return worst([_judge_one(name, block, reference[name]) for name, block in outputs.items()])


def worst(found: Sequence[Judgement]) -> Judgement:
    """Of several outputs: the first that is spoiled, else the first that is broken, else the nearest to its tolerance.

    Args:
        found: a judgement of each output, at least one.
    """
    spoiled = [one for one in found if one.spoiled]
    broken = [one for one in found if one.error is None]
    return (spoiled or broken or [max(found, key=_share)])[0]


def _share(found: Judgement) -> float:
    """The error as a share of the tolerance."""
    if found.error is None or found.tolerance is None:
        return float("inf")
    return found.error / found.tolerance if found.tolerance else float(found.error > 0)


def _judge_one(name: str, block: Block, expected: Expected) -> Judgement:
    if not intact(block):
        return Judgement(None, expected.tolerance, f"wrote outside of {name}", spoiled=True)
    return compared(name, block.data, lambda: unwritten(block), expected, expected.tolerance)


def compared(name: str, stored: Array, missing: Callable[[], int], expected: Expected, tolerance: float) -> Judgement:
    """The judgement of one output: all written, all finite, what the reference knows of it close.

    A device is asked as little as can be, since each answer is waited for: what was never written, or is no finite
    number, is never close, so that nobody looks for it where a whole output is.

    Args:
        name: of the output.
        stored: what was written, in its storage; sixteen bits are widened. An array of numpy, or of CuPy as those of
            `expected` are then: numpy's functions compute where an array lies.
        missing: counts the elements that were never written; they hold what no arithmetic makes.
        expected: what the DNF says.
        tolerance: that of the arithmetic of who wrote it.
    """
    values = widen(stored, _DTYPES[stored.dtype])
    with np.errstate(all="ignore"):
        error = relative_error(_known(values, expected), expected.values)
    is_whole = expected.rows is None and expected.columns is None
    if is_whole and error <= tolerance:
        return Judgement(error, tolerance, "")
    lacking = missing()
    if lacking:
        return Judgement(None, tolerance, f"left {lacking} of {stored.size} elements of {name} unwritten")
    if not np.isfinite(values).all():
        return Judgement(None, tolerance, f"{name} has NaN or infinity")
    reason = f"error {error:.3g} of {name} is over the tolerance {tolerance:.3g}" if error > tolerance else ""
    return Judgement(error, tolerance, reason)


def _known(data: Array, expected: Expected) -> Array:
    """The part of an output that the reference has."""
    if expected.rows is None and expected.columns is None:
        return data
    flat = data.reshape(-1, data.shape[-1])
    some = flat if expected.rows is None else flat[expected.rows]
    return some if expected.columns is None else some[:, expected.columns]


def relative_error(output: Array, reference: Array) -> float:
    """The largest |output - reference| / max(1, |reference|); 0 for empty arrays."""
    if output.shape != reference.shape or not output.size:
        return float("inf") if output.size or reference.size else 0.0
    difference = np.abs(output.astype(np.float64) - reference)
    return float((difference / np.maximum(1.0, np.abs(reference))).max())

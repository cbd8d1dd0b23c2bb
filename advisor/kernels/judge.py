"""Is an output right? Compared with the float64 reference under the DNF's derived tolerance. No time is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from advisor.kernels.operands import Block, intact, unwritten
from advisor.kernels.spec import Array, Expected


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
    found = [_judge_one(name, block, reference[name]) for name, block in outputs.items()]
    spoiled = [one for one in found if one.spoiled]
    broken = [one for one in found if one.error is None]
    return (spoiled or broken or [max(found, key=_share)])[0]


def _share(found: Judgement) -> float:
    """The error as a share of the tolerance."""
    if found.error is None or found.tolerance is None:
        return float("inf")
    return found.error / found.tolerance if found.tolerance else float(found.error > 0)


def _judge_one(name: str, block: Block, expected: Expected) -> Judgement:
    tolerance = expected.tolerance
    if not intact(block):
        return Judgement(None, tolerance, f"wrote outside of {name}", spoiled=True)
    missing = unwritten(block)
    if missing:
        return Judgement(None, tolerance, f"left {missing} of {block.data.size} elements of {name} unwritten")
    if not np.isfinite(block.data).all():
        return Judgement(None, tolerance, f"{name} has NaN or infinity")
    error = relative_error(_known(block.data, expected), expected.values)
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

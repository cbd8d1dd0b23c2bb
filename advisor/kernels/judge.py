"""Is an output right? Compared with the float64 reference under the DNF's derived tolerance. No time is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from advisor.kernels.operands import Block, intact, unwritten
from advisor.kernels.spec import Array


class Judgement(NamedTuple):
    """`error`: the largest |out - ref| / max(1, |ref|), None where it is not a finite number. `reason` empty: right.

    `spoiled`: memory outside the outputs was written to, so the process that did it is not to be trusted.
    """

    error: float | None
    tolerance: float
    reason: str
    spoiled: bool = False


def judge(outputs: Mapping[str, Block], reference: Mapping[str, Array], tolerance: float) -> Judgement:
    """Compare every output with the reference: all written, all finite, all close, canaries standing."""
    errors = []
    for name, block in outputs.items():
        if not intact(block):
            return Judgement(None, tolerance, f"wrote outside of {name}", spoiled=True)
        missing = unwritten(block)
        if missing:
            return Judgement(None, tolerance, f"left {missing} of {block.data.size} elements of {name} unwritten")
        if not np.isfinite(block.data).all():
            return Judgement(None, tolerance, f"{name} has NaN or infinity")
        errors.append(relative_error(block.data, reference[name]))
    error = max(errors, default=0.0)
    if error > tolerance:
        return Judgement(error, tolerance, f"error {error:.3g} is over the tolerance {tolerance:.3g}")
    return Judgement(error, tolerance, "")


def relative_error(output: Array, reference: Array) -> float:
    """The largest |output - reference| / max(1, |reference|); 0 for empty arrays."""
    if output.shape != reference.shape or not output.size:
        return float("inf") if output.size or reference.size else 0.0
    difference = np.abs(output.astype(np.float64) - reference)
    return float((difference / np.maximum(1.0, np.abs(reference))).max())

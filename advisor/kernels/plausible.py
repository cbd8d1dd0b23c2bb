"""Timings that no machine can have produced: they come from a clock that jumps or a variant that does not do the work.

The limits are what a core cannot pass by construction, several times over, so that nothing real is ever refused.
"""

from __future__ import annotations

import math

from advisor.kernels.memory import operand_bytes
from advisor.kernels.spec import KernelSpec
from advisor.records import Measurement

CORE_BYTES_S = 1e12
"""No core moves more: three 64-byte accesses a cycle at 5 GHz to its nearest cache are .96e12. Source: Intel, "Golden
Cove" (two loads and one store of 64 bytes a cycle), the widest at the time of writing."""

CORE_FLOPS_S = {"float64": 1e12, "float32": 4e12, "bfloat16": 16e12, "float16": 16e12}
"""No core computes more: two 8-lane double multiply-adds a cycle at 6 GHz are .19e12; a matrix unit of 1024 16-bit
multiply-adds a cycle at 5 GHz 10e12. Source: Intel, "Intel Advanced Matrix Extensions", TDPBF16PS throughput."""

SAVED_WORK = 4
"""An algorithm may do with fewer operations than the DNF (causal halves, fast matrix products), hardly by this much."""


def least_ns(spec: KernelSpec, found: Measurement) -> float:
    """The shortest time that the threads of a measurement could need for its problem; 0.0 where nothing is known.

    Every operand passes through some core once, and the operations are done by somebody. A GPU has no such limit here.
    """
    if found.choice.team is None:
        return 0.0
    threads = max(found.choice.team.threads, found.threads_observed or 0)
    problem = found.problem
    move_s = operand_bytes(spec, problem) / (threads * CORE_BYTES_S)
    peak = CORE_FLOPS_S.get(problem.dtype)
    compute_s = 0.0 if peak is None else spec.flops(problem) / SAVED_WORK / (threads * peak)
    return 1e9 * max(move_s, compute_s)


def checked(spec: KernelSpec, found: Measurement) -> Measurement:
    """The measurement, or one that is wrong, without samples, where a sample cannot be.

    Args:
        spec: the kernel's spec.
        found: as a worker reported it.
    """
    reason = _why_impossible(spec, found) if found.status == "ok" and found.samples_ns else ""
    return found._replace(status="wrong", reason=reason, samples_ns=()) if reason else found


def _why_impossible(spec: KernelSpec, found: Measurement) -> str:
    lowest = min(found.samples_ns)
    if not all(map(math.isfinite, found.samples_ns)) or lowest <= 0:
        odd = next(sample for sample in found.samples_ns if not (math.isfinite(sample) and sample > 0))
        return f"impossible timing: a call took {odd:g} ns; the clock jumped, or the variant replaced it"
    floor = least_ns(spec, found)
    if lowest >= floor:
        return ""
    return (
        f"impossible timing: a call took {lowest:.4g} ns, and its threads could not even move the operands or do the "
        f"operations in {floor:.4g} ns: the work is not done in every call"
    )

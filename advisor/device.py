"""Which GPU a name such as cuda:0 means, and what of it tables speak of. Standard library only: hot path."""

from __future__ import annotations

from advisor.errors import BadInput
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

CPU = "cpu"
"""The device that is none: the processors."""

PREFIX = "cuda:"

LIMITS_ID = "device"
"""Stands in the place of a limits_id: tables of a device hold under any limits of CPUs."""

FACTS = ("name", "compute_capability", "mig", "power_limit_w", "sm_count", "memory_bytes")
"""Fields of a GPU that change what is best on it, the first two so much that nothing is carried over."""

DEPENDS = ("source_hash", "compiler", "nvrtc", "driver", "sm_count")
"""What makes a row of a device stale: `nvrtc` a row of CUDA source alone, which CuPy compiles by it. Model, capability,
slice and power limit are in the `device_id` itself."""


def is_device(limits_id: str) -> bool:
    """Whether a machine, or a table, is that of a device."""
    return limits_id == LIMITS_ID


def find(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    """The position of the GPU that a name means: the number that CUDA programs started there would use.

    Args:
        rows: the fields of each GPU, as a machine.json has them.
        name: cuda:N.

    Raises:
        BadInput: no such name, no such device, or one that cannot be told from others (no `device_id`).
    """
    number = name.removeprefix(PREFIX)
    known = _numbers(rows)
    if not name.startswith(PREFIX) or not number.isdecimal() or int(number) not in known:
        raise _not_among(rows, name, sorted(known))
    row = rows[known[int(number)]]
    if not row.get("device_id"):
        raise BadInput(
            "a device must tell its model, compute capability and slice: what is learned is kept under them",
            got=f"{name}, {described(row)}",
            allowed="a GPU with a device_id in `advisor probe --json`",
            next_step=_why(row) or "see the warnings of `advisor probe`",
        )
    return known[int(number)]


def _numbers(rows: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """CUDA's number -> position, of the rows whose number is known: NVML counts otherwise, so its index is none. A GPU
    that is there alone has number 0."""
    seen = [i for i, row in enumerate(rows) if row.get("visible") is not False]
    known = {int(rows[i]["cuda_index"]): i for i in seen if rows[i].get("cuda_index") is not None}
    return {0: seen[0]} if not known and len(seen) == 1 else known


def _not_among(rows: Sequence[Mapping[str, Any]], name: str, numbers: Sequence[int]) -> BadInput:
    """Why a name is that of no row: there is no such GPU, or which one has the number is not known."""
    unknown = len(rows) > 1 and any(row.get("visible") is not False and row.get("cuda_index") is None for row in rows)
    nothing = "" if numbers else "no GPU answers: see `advisor doctor`"
    apart = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name one GPU by its UUID in CUDA_VISIBLE_DEVICES"
    return BadInput(
        "the numbers that CUDA gives the GPUs cannot be told here"
        if unknown
        else "a device must be one of this machine",
        got=name,
        allowed=f"{CPU}{''.join(f', {PREFIX}{number}' for number in numbers)}",
        next_step=apart if unknown else nothing,
    )


def _why(row: Mapping[str, Any]) -> str:
    """Why fields of a GPU are unknown, in words."""
    reasons = dict(row.get("reasons") or {})
    return "; ".join(f"{field}: {why}" for field, why in sorted(reasons.items()) if field in FACTS)


def described(row: Mapping[str, Any]) -> str:
    """A GPU in a few words: model, slice, multiprocessors, power limit, as far as they are known."""
    mig, power, count = row.get("mig"), row.get("power_limit_w"), row.get("sm_count")
    words = [str(row.get("name") or "a GPU without a name")]
    words += [f"slice {mig}"] if mig not in (None, "disabled") else []
    words += [many(count, "multiprocessor")] if count else []
    words += [f"{power:g} W"] if power else []
    return ", ".join(words)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """The facts in which two GPUs differ, each with both values; what one of them does not tell is no difference."""
    pairs = [(field, then.get(field), now.get(field)) for field in FACTS]
    return tuple(f"{field} was {old}, is {new}" for field, old, new in pairs if None not in (old, new) and old != new)

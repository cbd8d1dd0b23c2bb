"""Which device is meant, and whether a variant can run on it."""

from __future__ import annotations

from advisor.errors import BadInput
from advisor.kernels.variant import Variant
from advisor.records import Gpu, Machine

PREFIX = "cuda:"


def find(machine: Machine, name: str) -> Gpu:
    """The GPU that a name such as cuda:0 means: the number that CUDA programs started here would use.

    Raises:
        BadInput: no such name, no such device, or one that cannot be told from others (no device_id).
    """
    number = name.removeprefix(PREFIX)
    seen = [gpu for gpu in machine.gpus if gpu.visible is not False]
    known = {gpu.index if gpu.cuda_index is None else gpu.cuda_index: gpu for gpu in seen}
    if not name.startswith(PREFIX) or not number.isdecimal() or int(number) not in known:
        listed = ", ".join(f"{PREFIX}{index}" for index in sorted(known))
        raise BadInput("a device must be one of this machine", got=name, allowed=f"cpu{', ' if listed else ''}{listed}")
    gpu = known[int(number)]
    if gpu.device_id is None or gpu.uuid is None:
        raise BadInput("a device must tell what it is", got=name, next_step=f"see `advisor probe`: {dict(gpu.reasons)}")
    return gpu


def missing(variant: Variant, gpu: Gpu) -> tuple[str, ...]:
    """Compute capabilities that a variant requires (sm_80: at least 8.0) and the device lacks; what is no such word
    names no device."""
    have = capability(gpu.compute_capability)
    return tuple(word for word in variant.requires if not word.startswith("sm_") or have < int(word[3:]))


def capability(text: str | None) -> int:
    """9.0 as 90; 0 where it is unknown."""
    major, _, minor = (text or "").partition(".")
    return int(major) * 10 + int(minor or 0) if major.isdecimal() else 0


LIMITS_ID = "device"
"""Tables of a device hold under any limits of CPUs."""


def machine_of(machine: Machine, gpu: Gpu) -> Machine:
    """The machine as far as a device's table goes: known by the device's id, with this GPU alone."""
    return machine._replace(hardware_id=gpu.device_id or "", limits_id=LIMITS_ID, gpus=(gpu,))

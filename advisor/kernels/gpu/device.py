"""The machine of one device, and whether a variant can run on it."""

from __future__ import annotations

from advisor import device
from advisor.errors import BadInput
from advisor.installed import DEVICE_TOOLS, installed, nvrtc
from advisor.kernels.gpu.geometry import Geometry
from advisor.kernels.variant import Variant
from advisor.records import Gpu, Machine, pairs

SHARED_BYTES = {
    capability: size << 10
    for capability, size in {
        **{60: 48, 61: 48, 70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99},
        **{90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99},
    }.items()
}
"""Compute capability -> bytes of dynamic shared memory of a block at most.

Source: CUDA C++ Programming Guide, "Compute Capabilities", technical specifications."""

KEPT = ("driver", "cuda")
"""Of a machine's environment: what measurements on a device depend on, beside its own tools."""

FACTS = ("nvrtc", "sm_count")
"""What they depend on of the tools and the device itself."""


def find(machine: Machine, name: str) -> Gpu:
    """The GPU that a name such as cuda:0 means: the number that CUDA programs started here would use.

    Raises:
        BadInput: no such name, no such device, or one that cannot be told from others (no device_id, no UUID).
    """
    gpu = machine.gpus[device.find([{**one._asdict(), "reasons": dict(one.reasons)} for one in machine.gpus], name)]
    if gpu.uuid is None:
        raise BadInput(
            "a device must have a UUID, by which the worker is given this one alone",
            got=name,
            allowed="a GPU with a uuid in `advisor probe --json`",
            next_step=str(dict(gpu.reasons).get("uuid", "see the warnings of `advisor probe`")),
        )
    return gpu


def missing(variant: Variant, gpu: Gpu) -> tuple[str, ...]:
    """Compute capabilities that a variant requires (sm_80: at least 8.0) and the device lacks; what is no such word
    names no device."""
    have = capability(gpu.compute_capability)
    return tuple(word for word in variant.requires if not word.startswith("sm_") or have < int(word[3:]))


def shared_bytes(gpu: Gpu) -> int:
    """Dynamic shared memory that a block may have on a device at most; of one that is not known the most there is."""
    return SHARED_BYTES.get(capability(gpu.compute_capability), max(SHARED_BYTES.values()))


def fits(launches: Geometry, gpu: Gpu) -> bool:
    """Whether every kernel of a call has the dynamic shared memory that it asks for."""
    return max(one.shared_bytes for one in launches.extents) <= shared_bytes(gpu)


def capability(text: str | None) -> int:
    """9.0 as 90; 0 where it is unknown."""
    major, _, minor = (text or "").partition(".")
    return int(major) * 10 + int(minor or 0) if major.isdecimal() else 0


def machine_of(machine: Machine, gpu: Gpu, is_here: bool = True) -> Machine:
    """The machine as far as a device's table goes: known by the device's id, with this GPU alone, and of the
    environment what its measurements depend on.

    Args:
        machine: that has the GPU.
        gpu: one of its own.
        is_here: whether it is the machine at hand, where the device's tools are looked up; of another one those count
            that its description names.
    """
    told = dict(machine.environment)
    if is_here:
        told.update({"nvrtc": nvrtc(), **{name: installed(name) for name in DEVICE_TOOLS}})
    told["sm_count"] = gpu.sm_count
    environment = pairs({name: told[name] for name in (*KEPT, *DEVICE_TOOLS, *FACTS) if told.get(name)})
    known_by = gpu.device_id or ""
    return machine._replace(hardware_id=known_by, limits_id=device.LIMITS_ID, gpus=(gpu,), environment=environment)


def target(machine: Machine, name: str, is_here: bool = True) -> Machine:
    """The machine that a `--device` means: itself for cpu, else that of one of its GPUs; `is_here` as for `machine_of`.

    Raises:
        BadInput: as `find`.
    """
    return machine if name == device.CPU else machine_of(machine, find(machine, name), is_here)

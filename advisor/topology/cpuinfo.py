"""What the first lines of /proc/cpuinfo tell: architecture, vendor, model, instruction sets.

Only the head of the file is read: on a large machine the kernel takes milliseconds to make all of it. Standard library
only, and no `typing` or `re`: the hot path imports this module.
"""

from __future__ import annotations

import os
from collections import namedtuple

from advisor.topology.files import raw, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class CpuInfo(NamedTuple):  # noqa: D101 (documented below, where it is made)
        readable: bool
        architecture: str | None
        vendor: str | None
        model: str | None
        isa: tuple[str, ...]
else:
    CpuInfo = namedtuple("CpuInfo", ["readable", "architecture", "vendor", "model", "isa"])
    CpuInfo.__doc__ = """What a processor calls itself; None where it does not say. `isa`: the instruction sets in ISA.

    readable: whether there was a /proc/cpuinfo at all.
    """

HEAD_BYTES = 8192
"""Holds the first processor's block: the longest known, x86 with some 180 flags, is under 3 KiB."""

_X86 = "sse4_2 avx f16c fma avx2 avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16"
_AMX = "amx_tile amx_bf16 amx_int8"
_ARM = "asimd fphp asimdhp asimddp asimdfhm i8mm bf16 sve sve2 svebf16 svei8mm sme sme2"
_OTHERS = "altivec vsx vx vxe vxe2 lsx lasx rvv"
ISA = frozenset(f"{_X86} {_AMX} {_ARM} {_OTHERS}".split())
"""The instruction sets that decide which variants can run, as /proc/cpuinfo spells them (`rvv`: RISC-V's V)."""

ARM_VENDORS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "FUJITSU",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x56: "Marvell",
    0x61: "Apple",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}
"""MIDR implementer codes. Source: Linux arch/arm64/include/asm/cputype.h; names as lscpu writes them."""


def read(root: str = "/") -> CpuInfo:
    """The head of /proc/cpuinfo under a root folder, read with one call."""
    head = raw(os.path.join(root, "proc/cpuinfo"), HEAD_BYTES)
    fields = _fields(head or "")
    return CpuInfo(
        head is not None,
        os.uname().machine if root == "/" else _architecture(fields, root),
        _vendor(fields),
        _model(fields),
        _isa(fields),
    )


def _fields(head: str) -> dict[str, str]:
    """First value of each key, keys in lower case; values with single spaces, `unknown` left out."""
    fields: dict[str, str] = {}
    for line in head.splitlines():
        key, colon, value = line.partition(":")
        value = " ".join(value.split())
        if colon and value and value.lower() != "unknown":
            fields.setdefault(" ".join(key.split()).lower(), value)
    return fields


def _code(fields: dict[str, str], key: str) -> int | None:
    try:
        return int(fields.get(key, ""), 0)
    except ValueError:
        return None


def _vendor(fields: dict[str, str]) -> str | None:
    implementer = _code(fields, "cpu implementer")
    if implementer is not None:
        return ARM_VENDORS.get(implementer, hex(implementer))
    return fields.get("vendor_id") or fields.get("vendor") or fields.get("mvendorid")


def _model(fields: dict[str, str]) -> str | None:
    name = fields.get("model name")
    if name:
        return name
    if "cpu part" in fields:
        return f"{_vendor(fields) or 'unnamed'} part {fields['cpu part']} variant {fields.get('cpu variant', '0x0')}"
    machine = next((v.rpartition("machine = ")[2] for k, v in fields.items() if k.startswith("processor ")), "")
    if machine:
        return f"{_vendor(fields) or 'unnamed'} machine {machine}"
    return fields.get("cpu") or fields.get("cpu model") or fields.get("uarch") or fields.get("isa")


def _isa(fields: dict[str, str]) -> tuple[str, ...]:
    listed = f"{fields.get('flags', '')} {fields.get('features', '')} {fields.get('cpu', '').replace(',', ' ')}"
    found = ISA.intersection(listed.lower().split())
    if "v" in fields.get("isa", "").split("_")[0].removeprefix("rv64").removeprefix("rv32"):
        found |= {"rvv"}
    return tuple(sorted(found))


def _architecture(fields: dict[str, str], root: str) -> str | None:
    """The architecture of a recorded tree, which has no uname: from what only one architecture's cpuinfo says."""
    flags = f"{fields.get('flags', '')} {fields.get('features', '')}".split()
    if "flags" in fields and "vendor_id" in fields:
        return "x86_64" if "lm" in flags else "i686"
    if "cpu implementer" in fields:
        return "aarch64" if "asimd" in flags or "fp" in flags else "armv7l"
    if fields.get("vendor_id", "").startswith("IBM/S390"):
        return "s390x" if "zarch" in flags else "s390"
    if "Loongson-64bit" in fields.get("cpu family", ""):
        return "loongarch64"
    if fields.get("arch") == "IA-64":
        return "ia64"
    if fields.get("isa", "").startswith("rv"):
        return "riscv" + fields["isa"][2:4]
    return _power(fields, root)


def _power(fields: dict[str, str], root: str) -> str | None:
    if "pvr" not in fields.get("revision", ""):
        return None
    if not fields.get("cpu", "").startswith("POWER"):
        return "ppc"
    return "ppc64le" if text(os.path.join(root, "sys/kernel/cpu_byteorder")) == "little" else "ppc64"

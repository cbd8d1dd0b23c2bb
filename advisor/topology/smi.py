"""The GPUs as nvidia-smi tells them, for where NVML cannot be loaded: no pynvml, or a library off the search path.

Its tables are text: numbers stand beside words such as `[N/A]`, `[Not Supported]` or `[Insufficient Permissions]`,
which mean that the field is unknown, never 0. Rows are those of `gpu_child`.

Source: `nvidia-smi --help-query-gpu`; the XML of `nvidia-smi -q -x`; MIG User Guide, "Listing MIG devices".
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

FIELDS = ("index", "uuid", "name", "memory.total", "compute_cap", "pci.bus_id", "power.limit", "mig.mode.current")
WHERE = "/usr/lib/wsl/lib/nvidia-smi"
"""Where it lies on a Linux guest of Windows, often off the PATH."""

MIB = 1 << 20
_SLICE = re.compile(r"MIG\s+(\S+)\s+Device\s+(\d+):\s+\(UUID:\s*(MIG-[^)\s]+)\)")
_UNKNOWN = re.compile(r"\[?\s*(N/A|Not Supported|Insufficient Permissions|Unknown Error|.*Error.*)\s*\]?", re.I)

Ask = Callable[[list[str]], str | None]
"""Runs a command under a time limit; None when it is missing, fails or hangs."""


def program() -> str | None:
    """The path of nvidia-smi, None without one."""
    return shutil.which("nvidia-smi") or (WHERE if os.access(WHERE, os.X_OK) else None)


def report(path: str, ask: Ask) -> dict[str, Any] | None:
    """The GPUs; slices each as a row of its own.

    Args:
        path: of nvidia-smi.
        ask: see `Ask`.

    Returns:
        An object as `gpu_child.report` gives, None when nvidia-smi does not answer.
    """
    table = ask([path, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"])
    if table is None:
        return None
    found = [row for line in csv.reader(table.splitlines(), skipinitialspace=True) if (row := _row(line))]
    tree = _tree(ask([path, "-q", "-x"]))
    listed = ask([path, "-L"]) or "" if any(row["mig"] == "enabled" for row in found) else ""
    return {
        "driver": _text(tree, "driver_version"),
        "cuda": _text(tree, "cuda_version"),
        "gpus": [one for row in found for one in _cut(row, tree, listed)],
    }


def _row(words: list[str]) -> dict[str, Any] | None:
    """One GPU; None for a line that is not one."""
    if len(words) != len(FIELDS) or not words[0].strip().isdigit():
        return None
    told, reasons = {}, {}
    for field, word in zip(FIELDS, (word.strip() for word in words), strict=True):
        told[field] = None if not word or _UNKNOWN.fullmatch(word) else word
        if told[field] is None:
            reasons[field] = word.strip("[] ") or "nothing told"
    memory, power = _number(told["memory.total"]), _number(told["power.limit"])
    named = {"memory.total": "memory_bytes", "compute_cap": "compute_capability", "pci.bus_id": "pci"}
    named |= {"power.limit": "power_limit_w", "mig.mode.current": "mig"}
    mode = (told["mig.mode.current"] or "").lower()
    return {
        "index": int(words[0]),
        "uuid": told["uuid"],
        "name": told["name"],
        "memory_bytes": int(memory * MIB) if memory else None,
        "sm_count": None,
        "compute_capability": told["compute_cap"],
        "numa_node": None,
        "mig": mode if mode in ("enabled", "disabled") else None,
        "power_limit_w": power or None,
        "pci": told["pci.bus_id"],
        "reasons": {named.get(field, field): why for field, why in reasons.items()},
    }


def _number(word: str | None) -> float | None:
    found = re.match(r"\d+(\.\d+)?", word or "")
    return float(found[0]) if found else None


def _tree(text: str | None) -> ElementTree.Element | None:
    """The XML of `nvidia-smi -q -x`, None where it is not XML. It declares no entities of its own."""
    try:
        return ElementTree.fromstring(text) if text else None
    except ElementTree.ParseError:
        return None


def _text(tree: ElementTree.Element | None, path: str) -> str | None:
    found = (tree.findtext(path) or "").strip() if tree is not None else ""
    return None if not found or _UNKNOWN.fullmatch(found) else found


def _cut(row: dict[str, Any], tree: ElementTree.Element | None, listed: str) -> list[dict[str, Any]]:
    """The row itself, or one row a slice."""
    if row["mig"] != "enabled":
        return [row]
    names = _listed_slices(listed, row["uuid"])
    own = [gpu for gpu in (tree.iter("gpu") if tree is not None else ()) if _text(gpu, "uuid") == row["uuid"]]
    cut = {_text(one, "index"): one for gpu in own for one in gpu.iter("mig_device")}
    rows = []
    for index, (profile, uuid) in names.items():
        sizes = cut.get(index)
        memory = _number(_text(sizes, "fb_memory_usage/total"))
        count = _number(_text(sizes, "device_attributes/shared/multiprocessor_count"))
        reasons = {} if memory else {"memory_bytes": "nvidia-smi does not tell the slice's size"}
        rows.append(
            {
                **row,
                "uuid": uuid,
                "memory_bytes": int(memory * MIB) if memory else None,
                "sm_count": int(count) if count else None,
                "mig": profile,
                "slice_of": row["uuid"],
                "reasons": reasons,
            }
        )
    return rows or [row]


def _listed_slices(listed: str, parent: str | None) -> dict[str, tuple[str, str]]:
    """Index -> (profile, uuid) of the slices that `nvidia-smi -L` lists below a GPU."""
    found: dict[str, tuple[str, str]] = {}
    inside = False
    for line in listed.splitlines():
        if line.startswith("GPU "):
            inside = parent is not None and parent in line
        match = _SLICE.search(line)
        if inside and match:
            found[match[2]] = (match[1], match[3])
    return found

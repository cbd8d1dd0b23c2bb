"""Fake GPUs: an NVML, a CUDA driver and an nvidia-smi that say what a case says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from advisor.topology import gpu, gpu_child


class Slice(NamedTuple):
    """A MIG slice: profile, multiprocessors, MiB."""

    profile: str
    sm_count: int
    memory_mib: int


class Card(NamedTuple):
    """A GPU as NVML shows it; `refuses`: NVML function -> what it raises instead of answering; `busy`: %."""

    uuid: str = "GPU-1"
    name: str = "NVIDIA H200"
    pci: str = "00000000:7F:00.0"
    memory: int = 1 << 37
    cores: int = 16896
    capability: tuple[int, int] = (9, 0)
    power_w: float = 700.0
    node: int = 0
    slices: tuple[Slice, ...] | None = None
    refuses: Mapping[str, Exception] = {}
    free: int | None = None
    busy: int = 0


class NVMLError(Exception):
    """Raised as pynvml raises: one class an error code."""


class NotSupported(NVMLError):
    def __str__(self) -> str:
        return "Not Supported"


class NoPermission(NVMLError):
    def __str__(self) -> str:
        return "Insufficient Permissions"


class FakeNvml:
    """The functions of pynvml over some cards; text comes as bytes, as from old versions."""

    def __init__(self, cards: Sequence[Card], driver: str = "580.1", cuda: int = 12080) -> None:
        self.cards, self.driver, self.cuda = list(cards), driver, cuda

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlSystemGetDriverVersion": lambda: self.driver,
            "nvmlSystemGetCudaDriverVersion_v2": lambda: self.cuda,
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlDeviceGetHandleByIndex": lambda index: self.cards[index],
            "nvmlDeviceGetUUID": lambda c: f"MIG-{c.profile}".encode() if isinstance(c, Slice) else c.uuid.encode(),
            "nvmlDeviceGetName": lambda c: self._name(c).encode(),
            "nvmlDeviceGetMemoryInfo": lambda c: SimpleNamespace(
                total=c.memory_mib << 20 if isinstance(c, Slice) else c.memory,
                free=c.memory_mib << 20 if isinstance(c, Slice) else c.memory if c.free is None else c.free,
            ),
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {card.uuid: card for card in self.cards}[uuid],
            "nvmlDeviceGetUtilizationRates": lambda c: SimpleNamespace(gpu=c.busy),
            "nvmlDeviceGetComputeRunningProcesses": lambda c: [SimpleNamespace(pid=1, usedGpuMemory=1 << 30)],
            "nvmlDeviceGetCudaComputeCapability": lambda c: c.capability,
            "nvmlDeviceGetNumGpuCores": lambda c: c.cores,
            "nvmlDeviceGetPciInfo": lambda c: SimpleNamespace(busId=c.pci.encode()),
            "nvmlDeviceGetNumaNodeId": lambda c: c.node,
            "nvmlDeviceGetPowerManagementLimit": lambda c: int(c.power_w * 1000),
            "nvmlDeviceGetMigMode": lambda c: (int(c.slices is not None),) * 2,
            "nvmlDeviceGetMaxMigDeviceCount": lambda c: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda c, index: c.slices[index],
            "nvmlDeviceGetAttributes_v2": lambda c: SimpleNamespace(
                multiprocessorCount=c.sm_count, memorySizeMB=c.memory_mib
            ),
        }
        if name not in answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            card = arguments[0] if arguments else None
            if isinstance(card, Card) and name in card.refuses:
                raise card.refuses[name]
            return answers[name](*arguments)

        return call

    def _name(self, card: Card | Slice) -> str:
        if isinstance(card, Card):
            return card.name
        parent = next(c for c in self.cards if card in (c.slices or ()))
        return f"{parent.name} MIG {card.profile}"


def cuda_device(index: int, uuid: str | None, **fields: Any) -> dict[str, Any]:
    """One device as the CUDA driver shows it."""
    known = {"name": None, "pci": None, "memory_bytes": None, "sm_count": None, "compute_capability": None}
    return {"index": index, "uuid": uuid, "unified_memory": None, **known, **fields}


def witnesses(
    cards: Sequence[Card] | str | None, devices: Sequence[dict[str, Any]] | None = None, tables: Any = None
) -> gpu.Witnesses:
    """Witnesses for `gpu.find`.

    Args:
        cards: what NVML shows; text: the error that it raises at the start; None: it hangs.
        devices: what CUDA shows, None where it cannot be asked.
        tables: words of an nvidia-smi command -> what it prints; None: there is no nvidia-smi.
    """
    told = {"error": cards} if isinstance(cards, str) else None if cards is None else gpu_child.report(FakeNvml(cards))
    seen = {"error": "no CUDA"} if devices is None else {"devices": list(devices)}
    return gpu.Witnesses(
        nvml=lambda: None if told is None else json.dumps(told),
        cuda=lambda: json.dumps(seen),
        table=lambda argv: next((text for word, text in (tables or {}).items() if word in " ".join(argv)), None),
        program=lambda: None if tables is None else "nvidia-smi",
    )


def pynvml(folder: Path, *lines: str) -> str:
    """A module `pynvml` of these lines in a folder, for PYTHONPATH; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pynvml.py").write_text("\n".join(lines) + "\n")
    return str(folder)

"""Counters of energy: joules used so far by the processor packages (RAPL) or by one GPU (NVML), where they can be read.

RAPL's files belong to root on many systems, and virtual machines have none; then nothing is known, and nothing guessed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

POWERCAP = "sys/class/powercap"


class Domain(NamedTuple):
    """One package's counter: its folder and the value at which it starts from zero again, both in microjoules."""

    folder: str
    wraps_uj: int


def domains(root: str = "/") -> tuple[Domain, ...]:
    """The packages whose counters can be read now; none where one of them cannot, as a part is no sum.

    Cores and memory are zones below their package. Source: the kernel's Documentation/power/powercap/powercap.rst:
    `energy_uj` and `max_energy_range_uj` of zones `intel-rapl:0`, named `package-0`, which AMD's processors have too.
    """
    base = os.path.join(root, POWERCAP)
    try:
        zones = sorted(name for name in os.listdir(base) if name.startswith("intel-rapl:") and name.count(":") == 1)
    except OSError:
        return ()
    found = []
    for zone in zones:
        folder = os.path.join(base, zone)
        try:
            if not _text(folder, "name").startswith("package"):
                continue  # psys and others hold what a package has already
            int(_text(folder, "energy_uj"))
            found.append(Domain(folder, int(_text(folder, "max_energy_range_uj"))))
        except (OSError, ValueError):
            return ()
    return tuple(found)


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read().strip()


class Packages:
    """Joules of all processor packages together, counted on over the wrap of their counters.

    A counter wraps after minutes: read at least once a minute. `read` gives None once one cannot be read any more.
    """

    def __init__(self, root: str = "/") -> None:
        self._domains = domains(root)
        self._last = [0] * len(self._domains)
        self._sum_uj = 0
        with contextlib.suppress(OSError, ValueError):
            self._last = self._values()

    def read(self) -> float | None:
        """Joules since this object was made; None where there is no counter."""
        try:
            now = self._values()
        except (OSError, ValueError):
            return None
        for domain, before, after in zip(self._domains, self._last, now, strict=True):
            self._sum_uj += after - before if after >= before else after - before + domain.wraps_uj
        self._last = now
        return self._sum_uj * 1e-6 if self._domains else None

    def _values(self) -> list[int]:
        return [int(_text(domain.folder, "energy_uj")) for domain in self._domains]


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """NVML, started while it is entered. Raises whatever the module and the driver raise."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def gpu_joules(uuid: str) -> float | None:
    """Joules that a GPU used since its driver was loaded, None where the driver does not tell.

    Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption: millijoules, Volta and newer.
    """
    try:
        with nvml() as library:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1e-3
    except Exception:  # no module, no driver, no such device, a slice, an old GPU: unknown is unknown
        return None

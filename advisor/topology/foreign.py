"""What can be asked where there is no /sys: macOS and Windows. CPU counts and kinds of cores, and nothing to pin to.

Threads cannot be placed there (macOS has no affinity call; Windows has masks of 64 within a processor group), so the
machine is a flat list: its only placement is `none`, and thread counts are tuned all the same.

Source: Apple, "Determining system capabilities" (hw.perflevelN); Microsoft, GetActiveProcessorCount.
"""

from __future__ import annotations

import os
import sys

from advisor.topology.cpuinfo import CpuInfo
from advisor.topology.limits import Limits
from advisor.topology.sysfs import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[str], str | None]

LIMIT_S = 5.0


def is_here() -> bool:
    """Whether this platform has no /sys to read."""
    return not sys.platform.startswith("linux")


def survey() -> tuple[Limits, Layout]:
    """Limits (none can be told) and a layout of one flat list of CPUs."""
    count = sum(kinds()) or os.cpu_count() or 1
    name = sysctl("machdep.cpu.brand_string") if sys.platform == "darwin" else os.environ.get("PROCESSOR_IDENTIFIER")
    cpu = CpuInfo(True, machine(), None, name, ())
    note = f"{sys.platform} has no way to pin threads that advisor uses: placements are not controlled here"
    layout = Layout(cpu, tuple(range(count)), (), (), (), 0, (None, None, None), (note,))
    return Limits(None, None, None, None, ()), layout


def machine() -> str | None:
    """The architecture, as this platform spells it."""
    uname = getattr(os, "uname", None)
    return uname().machine if uname else os.environ.get("PROCESSOR_ARCHITECTURE")


def kinds() -> tuple[int, ...]:
    """CPUs of each kind on macOS, strongest first; CPUs of each processor group on Windows."""
    if sys.platform == "darwin":
        levels = whole(sysctl("hw.nperflevels")) or 0
        found = [whole(sysctl(f"hw.perflevel{level}.logicalcpu")) for level in range(levels)]
        return tuple(count for count in found if count)
    return processor_groups()


def sysctl(name: str) -> str | None:
    """A value that macOS tells, None where it has no such name."""
    from advisor.topology.child import ask

    return (ask(["sysctl", "-n", name], LIMIT_S) or "").strip() or None


def whole(text: str | None) -> int | None:
    """A whole number, None where the text is none."""
    return int(text) if text and text.isdigit() else None


def processor_groups() -> tuple[int, ...]:
    """CPUs of every processor group: what counts only the first one tells 48 of 96."""
    import ctypes

    library = getattr(ctypes, "windll", None)
    if library is None:
        return ()
    kernel = library.kernel32
    return tuple(int(kernel.GetActiveProcessorCount(group)) for group in range(kernel.GetActiveProcessorGroupCount()))

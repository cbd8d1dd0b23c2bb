"""Counters of a device in words: what one call moved, or why nobody could count. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BYTES, COUNTS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)), (("M", 1e6), ("k", 1e3), ("", 1.0))


def words(figures: Mapping[str, Any]) -> str:
    """Counters of one call, as a point of a table has them.

    Args:
        figures: name -> value; a name that is absent or None is left out of the words.
    """
    known = {name: value for name, value in figures.items() if value is not None}
    pairs = [
        _pair(known, ("dram_read_bytes", "dram_written_bytes"), BYTES, "memory"),
        _pair(known, ("l2_read_sectors", "l2_written_sectors"), COUNTS, "L2 sectors"),
    ]
    one = [f"{_scaled(known[name], COUNTS)} {what}" for name, what in _COUNTED if known.get(name)]
    return "; ".join(filter(None, [*pairs, *one, _occupancy(known), _profiled(known), _caches(known)]))


def refused(reason: str, remedy: str) -> str:
    """Why there are no counters, and what would help."""
    return f"no counters: {reason}{f'; {remedy}' if remedy else ''}"


_COUNTED = (("global_reductions", "global reductions"), ("l2_atomic_sectors", "sectors of atomics"))


def _pair(known: Mapping[str, Any], names: tuple[str, str], units: tuple[tuple[str, float], ...], of: str) -> str:
    """What was read and what was written, those of the two that are known."""
    verbs = zip(names, ("read", "written"), strict=True)
    told = [f"{_scaled(known[name], units)} {verb}" for name, verb in verbs if name in known]
    return f"{of}: {', '.join(told)}" if told else ""


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    name, size = next((one for one in units if value >= one[1]), units[-1])
    return f"{value / size:.3g} {name}".rstrip()


def _occupancy(known: Mapping[str, Any]) -> str:
    if "achieved_occupancy" not in known:
        return ""
    most = f" of at most {known['theoretical_occupancy']:.0%}" if "theoretical_occupancy" in known else ""
    return f"occupancy {known['achieved_occupancy']:.0%}{most}"


def _profiled(known: Mapping[str, Any]) -> str:
    """The duration, said so that nobody takes it for the time of a call."""
    return f"{known['duration_ns'] / 1e3:.4g} us under the profiler" if "duration_ns" in known else ""


def _caches(known: Mapping[str, Any]) -> str:
    return f"caches {known['caches']}" if "caches" in known else ""

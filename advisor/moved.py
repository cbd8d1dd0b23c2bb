"""Counters of a device in words: what one call moved, or why nobody could count. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.answers import Answer

FIGURES = (
    *("duration_ns", "dram_read_bytes", "dram_written_bytes", "l2_read_sectors", "l2_written_sectors"),
    *("global_reductions", "l2_atomic_sectors", "achieved_occupancy", "theoretical_occupancy", "calls"),
    *("read_sector_bytes", "written_sector_bytes", "read_request_sectors", "written_request_sectors"),
)
"""Numbers that a point of a table may have of what was counted."""

CACHES = ("flushed", "kept")
NEVER = "nobody counted: `advisor tune --device cuda:N --counters` does"
NOT_HERE = "not counted at this n"

BYTES, COUNTS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)), (("M", 1e6), ("k", 1e3), ("", 1.0))
PLAIN = (("", 1.0),)


def words(figures: Mapping[str, Any], timed_ns: float | None = None) -> str:
    """Counters of one call, as a point of a table has them.

    Args:
        figures: name -> value; a name that is absent or None is left out of the words.
        timed_ns: what the same call takes by itself, as a graph of such calls was timed; None: unknown.
    """
    known = {name: value for name, value in figures.items() if value is not None}
    pairs = [
        _pair(known, ("dram_read_bytes", "dram_written_bytes"), BYTES, "memory"),
        _pair(known, ("l2_read_sectors", "l2_written_sectors"), COUNTS, "L2 sectors"),
        _pair(known, ("read_request_sectors", "written_request_sectors"), PLAIN, "sectors a request"),
        _pair(known, ("read_sector_bytes", "written_sector_bytes"), PLAIN, "of 32 bytes a sector"),
    ]
    one = [f"{_scaled(known[name], COUNTS)} {what}" for name, what in _COUNTED if known.get(name)]
    return "; ".join(
        filter(None, [*pairs, *one, _occupancy(known), _waits(known), _profiled(known, timed_ns), _caches(known)])
    )


def refused(reason: str, remedy: str) -> str:
    """Why there are no counters, and what would help."""
    return f"no counters: {reason}{f'; {remedy}' if remedy else ''}"


def of(sections: Sequence[Mapping[str, Any]], answer: Answer, n: int) -> dict[str, Any]:
    """What tables know of counters of an answer's choice at n.

    Args:
        sections: of the answer's kernel, as a table's file has them.
        answer: what a policy said.
        n: the n that was asked; figures are known at tuned n only.

    Returns:
        `counters`: the figures; `no_counters`: reason and remedy where nobody could count at this n; each None where
        there is nothing to tell; `counted_n`: every n at which the choice was counted; `refused_elsewhere`: whether
        anybody could not count at some n. Empty for the answer of a CPU, whose counters nobody reads.
    """
    if not answer.device:
        return {}
    own = [one for one in sections if _group(one) == (answer.dtype, answer.regime, answer.shape)]
    known: dict[int, dict[str, Any]] = {}
    for section in own:
        for at, figures in _figures(section, answer):
            known.setdefault(at, figures)
    refusals = [one["no_counters"] for one in own if isinstance(one.get("no_counters"), dict)]
    here = None if n in known else next((told for told in refusals if _is_at(told, n)), None)
    why = None if here is None else {key: str(here.get(key, "")) for key in ("reason", "remedy")}
    return {
        "counters": known.get(n),
        "no_counters": why,
        "counted_n": sorted(known),
        "refused_elsewhere": bool(refusals),
    }


def sentence(found: Mapping[str, Any], timed_ns: float | None = None) -> str:
    """What `of` found, in words; `timed_ns` as for `words`."""
    if found["counters"] is not None:
        return words(found["counters"], timed_ns)
    if found["no_counters"] is not None:
        return refused(**found["no_counters"])
    if found["counted_n"]:
        return f"counted at n = {', '.join(map(str, found['counted_n']))}, not here"
    return NOT_HERE if found["refused_elsewhere"] else NEVER


def _group(section: Mapping[str, Any]) -> tuple[Any, ...]:
    return section["dtype"], section["regime"], dict(section["shape"])


def _is_at(told: Mapping[str, Any], n: int) -> bool:
    """Whether a refusal is of this n; older files do not tell, nor does what is no list."""
    sizes = told.get("n")
    return not isinstance(sizes, list) or n in sizes


def _figures(section: Mapping[str, Any], answer: Answer) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each n at which an answer's choice was counted, with the figures, wherever a section has them."""
    rows = [*section["rows"], *(row for other in section.get("alternatives", ()) for row in other["rows"])]
    for row in rows:
        made = row["choice"]["build"]
        same = (made["variant"], made["source_hash"], made["knobs"]) == (
            answer.variant,
            answer.source_hash,
            answer.knobs,
        )
        for point in row["points"] if same else ():
            if isinstance(point.get("counters"), dict):
                yield point["n"], _checked(point["counters"])


def _checked(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a file says, the numbers that make sense."""
    known = {name: figures.get(name) for name in FIGURES}
    good = {name: v for name, v in known.items() if isinstance(v, int | float) and math.isfinite(v) and v >= 0}
    stalls = _stalls(figures.get("stalls"))
    told = {"caches": figures["caches"]} if figures.get("caches") in CACHES else {}
    return {**good, **told, **({"stalls": stalls} if stalls else {})}


def _stalls(listed: Any) -> list[tuple[str, float]]:
    """What warps waited for, as far as a file says it in pairs of a word and a number."""
    pairs = [one for one in listed if _is_list(one) and len(one) == 2] if _is_list(listed) else []
    known = [(reason, warps) for reason, warps in pairs if isinstance(reason, str) and isinstance(warps, int | float)]
    return [(reason, warps) for reason, warps in known if math.isfinite(warps) and warps >= 0]


def _is_list(found: Any) -> bool:
    return isinstance(found, list | tuple)


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


def _waits(known: Mapping[str, Any]) -> str:
    told = [f"{reason} {warps:.3g}" for reason, warps in known.get("stalls", ())]
    return f"warps that wait, an issue: {', '.join(told)}" if told else ""


def _profiled(known: Mapping[str, Any], timed_ns: float | None) -> str:
    """The duration, said so that nobody takes it for the time of a call, which stands beside it."""
    if "duration_ns" not in known:
        return ""
    beside = "" if timed_ns is None else f" ({timed_ns / 1e3:.4g} us timed in a graph)"
    return f"{known['duration_ns'] / 1e3:.4g} us under the profiler{beside}"


def _caches(known: Mapping[str, Any]) -> str:
    return f"caches {known['caches']}" if "caches" in known else ""

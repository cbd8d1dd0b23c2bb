"""Answers from sections that nobody measured: published, transferred, modelled, or made by a rule for another shape.

A section says so in `basis`, and in `origin` what decided and where it came from. Standard library only, no `typing`:
hot path.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from advisor.answers import Answer
    from advisor.site import Site

    Json = dict[str, Any]


_CARRIED = {
    "TRANSFERRED": "transferred from other machines, not measured here",
    "MODELLED": "from a cost model, not measured here",
    "INTERPOLATED": "this shape was not tuned",
}


def is_carried(section: Json) -> bool:
    """Whether the rows come from other machines, other shapes or a cost model: nothing was tuned for what is asked."""
    return section.get("basis") in _CARRIED


def of_row(section: Json, row: Json) -> Json:
    """The section as one of its rows speaks of itself: what was carried over comes from elsewhere row by row."""
    own = row.get("origin")
    if not own or not is_carried(section):
        return section
    return {
        **section,
        "basis": row.get("basis") or section["basis"],
        "origin": {**(section.get("origin") or {}), **own},
    }


def region_of(section: Json) -> str:
    """What its smallest and its largest n bound, in words."""
    if section.get("basis") == "INTERPOLATED":
        return "the region that the rule was learned from,"
    return "the region known of other machines" if is_carried(section) else "the tuned region"


def is_published(section: Json) -> bool:
    """Whether the rows come from figures that others printed: they say nothing of the n between those printed."""
    return section.get("basis") == "PUBLISHED"


def basis_of(site: Site, section: Json) -> str:
    """The basis of a section's rows at their tuned n; what was measured with a whole machine is no more than
    transferred to a part of it."""
    own = section.get("basis") or "EXACT"
    return "TRANSFERRED" if site.part and own != "MODELLED" else own


def points_of(row: Json) -> tuple[tuple[int, float], ...]:
    """(n, time in ns) of a row: measured 25th percentiles, or the single figures that were published."""
    published = row.get("published")
    if published:
        return tuple((one["n"], float(one["time_ns"])) for one in published)
    return tuple((p["n"], float(p["summary"]["p25_ns"])) for p in row["points"])


def carried(base: Answer, section: Json, row: Json, low: int, stale: str) -> Answer:
    """One piece of a row that nobody measured here: its time where that was published, else none.

    Args:
        low: the n that the piece begins with; of a published row that speaks of single n, that n.
    """
    told = f"; {text}" if (text := row.get("why") or (section.get("origin") or {}).get("why")) else ""
    if is_carried(section):
        return base._replace(points=(), why=f"{stale}{_CARRIED[section['basis']]}{told}")
    if row.get("whole"):
        return base._replace(why=f"{stale}published for all n from {row['low']} to {row['high']}, without a time{told}")
    time = dict(base.points).get(low)
    return base._replace(
        expected_ns=time, why=f"{stale}published at n = {low}{'' if time else ', without a time'}{told}"
    )

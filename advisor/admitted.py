"""Whether this machine would answer from a table: one that a user brings in is judged by what a lookup makes of it.

A signed table may still hold what makes no sense, such as a team that the machine does not have. A server then answers
with the default choice and says why; whoever imports a table is told so before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from advisor.errors import UnknownName
from advisor.gather import further, rules
from advisor.kernels.header import CPU_LANGUAGES, GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.ranges import ranges, team
from advisor.site import Site

Json = dict[str, Any]


class Admitted(NamedTuple):
    """Sentences on a table. `refused`: what a lookup could never answer from here; `marked`: what it answers from only
    once something changes, or what nobody here can tell. Both empty: all is well."""

    refused: tuple[str, ...]
    marked: tuple[str, ...]


def judge(site: Site, table: Json) -> Admitted:
    """What a lookup makes of a table of this machine, each section under its own process part.

    Args:
        site: the machine that the table is for.
        table: the whole document, as its file has it.

    Raises:
        BadInput: it has fields that are absent, misshapen, or contradict each other.
    """
    sections = further({}, [table])
    site = site._replace(stale="use", part="", hashes={})
    refused, marked = list[str](), [*rules(sections)[1], *_unknown(table)]
    for section in table["sections"]:
        for words, is_final in _of_section(site, table, section):
            (refused if is_final else marked).append(words)
    return Admitted(tuple(dict.fromkeys(refused)), tuple(dict.fromkeys(marked)))


def _of_section(site: Site, table: Json, section: Json) -> Iterator[tuple[str, bool]]:
    """Sentences on a section, and whether it can never be answered from: its default choice, and its rows for every
    objective that it has."""
    others = [other["objective"] for other in section.get("alternatives") or ()]
    try:
        own = section["default"]["team"]
        if own is not None:
            team(site, own["threads"], own["placement"])
        for objective in (None, *others):
            yield from _of_rows(site._replace(objective=objective), table, section)
    except Exception as error:  # what a lookup catches, too: whatever a file brings
        yield f"{section['dtype']} {section['regime']}: {error}", True


def _of_rows(site: Site, table: Json, section: Json) -> Iterator[tuple[str, bool]]:
    borders, answers = ranges(site, table, section, [])
    for low, answer in zip(borders, answers[1:], strict=True):
        where = f"{section['dtype']} {section['regime']}, from n = {low}"
        if answer.in_tuned_region and answer.basis == "DEFAULT":
            yield f"{where}: {answer.why}", True
        elif answer.basis == "STALE":
            yield f"{where}: stale ({'; '.join(answer.warnings)}), so the default choice is answered", False


def _unknown(table: Json) -> list[str]:
    """A sentence on the variants that nobody can run here."""
    try:
        known = {variant.name for variant in variants(table["kernel"], (), (*CPU_LANGUAGES, *GPU_LANGUAGES))}
    except UnknownName as error:
        return [str(error)]
    rows = [row for section in table["sections"] for row in section["rows"]]
    named = dict.fromkeys(row["choice"]["build"]["variant"] for row in rows)
    odd = [variant for variant in named if variant not in known]
    return [f"no such variant of {table['kernel']} is installed here: {', '.join(odd)}"] if odd else []

"""Whether this machine would answer from a table: one that a user brings in is judged by what a lookup makes of it.

A signed table may still hold what makes no sense, such as a team that the machine does not have: a server then answers
with the default choice and says why. Or a choice that its variant's header rules out: a server, which reads no headers,
would answer it as measured. Whoever imports a table is told so before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from advisor.errors import BadInput, UnknownName
from advisor.gather import further, rules
from advisor.kernels import registry
from advisor.kernels.header import CPU_LANGUAGES, GPU_LANGUAGES, Variant
from advisor.kernels.variant import is_valid, macro_values, run_values, variants
from advisor.ranges import ranges, team
from advisor.records import Problem, pairs
from advisor.site import Site

Json = dict[str, Any]


class Admitted(NamedTuple):
    """Sentences on a table. `refused`: what a lookup could never answer from here; `marked`: what it answers from only
    once something changes, or what nobody here can tell. Both empty: all is well."""

    refused: tuple[str, ...]
    marked: tuple[str, ...]


def judge(site: Site, table: Json, kernel_dirs: Sequence[str] = ()) -> Admitted:
    """What a lookup makes of a table of this machine, each section under its own process part.

    Args:
        site: the machine that the table is for.
        table: the whole document, as its file has it.
        kernel_dirs: folders with further kernels and variants.

    Raises:
        BadInput: it has fields that are absent, misshapen, or contradict each other.
        UnknownName: it is of a kernel that is neither here nor in one of the folders.
    """
    sections = further({}, [table])
    known = _known(table["kernel"], kernel_dirs)
    site = site._replace(stale="use", part="", hashes={})
    refused, marked = list[str](), [*rules(sections)[1], *_unknown(table, known)]
    for section in table["sections"]:
        refused += _not_made(known, table, section)
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


def _known(kernel: str, kernel_dirs: Sequence[str]) -> tuple[Variant, ...]:
    """Every variant of a kernel on any device."""
    names = registry.kernels(kernel_dirs)
    if kernel not in names:
        raise UnknownName(
            "a table that is imported must be of a kernel that is known here",
            got=kernel,
            allowed=", ".join(names),
            next_step="give --kernel-dir with the folder that has it",
        )
    return variants(kernel, kernel_dirs, (*CPU_LANGUAGES, *GPU_LANGUAGES))


def _unknown(table: Json, known: Sequence[Variant]) -> list[str]:
    """A sentence on the variants that nobody can run here."""
    names = {variant.name for variant in known}
    rows = [row for section in table["sections"] for row in section["rows"]]
    named = dict.fromkeys(row["choice"]["build"]["variant"] for row in rows)
    odd = [variant for variant in named if variant not in names]
    return [f"no such variant of {table['kernel']} is installed here: {', '.join(odd)}"] if odd else []


# --- what headers rule out ---


def _not_made(known: Sequence[Variant], table: Json, section: Json) -> Iterator[str]:
    """A sentence on each row whose choice is not made at one of its ends or tuned n, and on a default choice that is
    made at no tuned n: it need not be at all. Of a source that is not the one at hand nothing is known."""
    by_source = {(one.name, one.source_hash): one for one in known}
    where = f"{section['dtype']} {section['regime']}"

    def flaws(build: Json, sizes: Sequence[int]) -> list[tuple[int, str | None]]:
        variant = by_source.get((build["variant"], build["source_hash"]))
        problem = Problem(table["kernel"], section["dtype"], pairs(section["shape"]), 0, section["regime"])
        return [(n, variant and _flaw(variant, problem._replace(n=n), build["knobs"])) for n in sizes]

    for row in (*section["rows"], *(row for other in section.get("alternatives") or () for row in other["rows"])):
        tuned = [n for n in section["tuned_n"] if row["low"] <= n <= row["high"]]
        found = flaws(row["choice"]["build"], sorted({row["low"], *tuned, row["high"]}))
        yield from [f"{where}, n = {n}: {words}" for n, words in found if words][:1]
    found = flaws(section["default"]["build"], section["tuned_n"])
    if all(words for _, words in found):
        yield from [f"{where}, the default choice at n = {n}: {words}" for n, words in found[:1]]


def _flaw(variant: Variant, problem: Problem, knobs: Json) -> str | None:
    """What a header has against a choice at a problem; None: it is made."""
    told = " ".join(f"{knob}={value}" for knob, value in knobs.items()) or "no knobs"
    says = f"{variant.name} with {told} is not made: its header"
    listed = [knob for knob, _ in (*variant.build_knobs, *variant.run_knobs)]
    if more := [knob for knob in knobs if knob not in listed]:
        return f"{says} has no knob {', '.join(more)}, but {', '.join(listed) or 'none'}"
    try:
        macro_values(variant, problem, pairs(knobs))
        run_values(variant, pairs(knobs))
    except BadInput as error:
        return f"{says} says: {error}"
    if problem.dtype not in variant.dtypes:
        return f"{says} is for {', '.join(variant.dtypes)}"
    rules = (rule for rule in variant.valid if not is_valid(variant._replace(valid=(rule,)), problem, pairs(knobs)))
    return next((f"{says} demands {rule}" for rule in rules), None)

"""What lscpu says, from whichever of its output formats this version has.

`-p` gives a line a CPU (caches behind commas, or behind colons in one column); `-J` gives the summary, flat or nested;
plain text serves where `-J` is unknown or is no JSON. A recorded tree may hold the outputs of its machine in WITNESS.

Source: util-linux sys-utils/lscpu.c; the formats of versions 2.23 to 2.42.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from advisor.codec import loads
from advisor.errors import BadInput
from advisor.topology.child import ask
from advisor.topology.files import parse_list, raw

LIMIT_S = 5.0
WITNESS = "witness"
"""Folder of a recorded tree with what programs said there: `lscpu.csv` (-p) and `lscpu.json` (-J)."""

TABLE = ("-p=CPU,CORE,SOCKET,NODE,CACHE",)
TABLE_OLD = ("-p",)
SUMMARY = ("-J", "-B")
SUMMARY_OLD = ("-J",)
SUMMARY_PLAIN: tuple[str, ...] = ()

Partition = tuple[tuple[int, ...], ...]


class Said(NamedTuple):
    """What lscpu said; nothing it did not say.

    cpus: ids of the table, None without a table; groups: core, socket, node, l3 -> groups of CPU ids;
    fields: summary label in small letters, without its colon -> text; notes: sentences on output that cannot be read.
    """

    cpus: tuple[int, ...] | None
    groups: dict[str, Partition]
    fields: dict[str, str]
    notes: tuple[str, ...]


Run = Callable[[Sequence[str]], str | None]


def run(options: Sequence[str]) -> str | None:
    """Standard output of lscpu with these options, in the C locale; None where it is missing or refuses."""
    program = shutil.which("lscpu")
    return ask([program, *options], LIMIT_S) if program else None


def recorded(root: str) -> Run:
    """The outputs that lie in a recorded tree, instead of a program."""
    files = {TABLE: "lscpu.csv", SUMMARY: "lscpu.json"}

    def told(options: Sequence[str]) -> str | None:
        name = files.get(tuple(options))
        return raw(os.path.join(root, WITNESS, name)) if name else None

    return told


def listen(told: Run = run) -> Said | None:
    """What lscpu says, asked in the richest format it knows; None where it says nothing at all.

    Args:
        told: answers a list of options with text, or None for an option that it does not know.
    """
    text = told(TABLE) or told(TABLE_OLD)
    summary = told(SUMMARY) or told(SUMMARY_OLD)
    cpus, groups, notes = table(text) if text else (None, {}, ())
    fields: dict[str, str] = {}
    if summary is not None:
        try:
            fields = labels(loads(summary, "lscpu -J"))
        except BadInput:
            notes = (*notes, "lscpu -J writes what is no JSON; its plain text was read instead")
    if not fields:
        fields = plain(told(SUMMARY_PLAIN) or "")
    return Said(cpus, groups, fields, notes) if cpus or fields or notes else None


# --- the table ---


def table(text: str) -> tuple[tuple[int, ...] | None, dict[str, Partition], tuple[str, ...]]:
    """CPU ids, groups and notes of an output of `-p`; a column that is empty or `-` for a CPU says nothing of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heads = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
    head = next((line for line in heads if line.split(",")[0] == "cpu"), "cpu,core,socket,node")
    members: dict[str, dict[str, list[int]]] = {}
    cpus = []
    for line in lines:
        row = dict(_cells(head, line))
        if line.startswith("#") or not row.get("cpu", "").isdigit():
            continue
        cpus.append(int(row["cpu"]))
        for name in ("core", "socket", "node", "l3"):
            if row.get(name, "").isdigit():
                members.setdefault(name, {}).setdefault(row[name], []).append(cpus[-1])
    if not cpus:
        return None, {}, ("lscpu -p writes a table without CPUs; it is not used",)
    groups = {name: tuple(sorted(tuple(sorted(g)) for g in found.values())) for name, found in members.items()}
    return tuple(sorted(cpus)), groups, ()


def _cells(head: str, line: str) -> Iterator[tuple[str, str]]:
    """(column, value); a column such as `l1d:l2:l3` holds several, separated alike in the value."""
    for name, value in zip(head.split(","), line.split(","), strict=False):
        names, values = ([part.strip() for part in word.split(":")] for word in (name, value))
        yield from zip(names, values, strict=False)


# --- the summary ---


def labels(document: Any) -> dict[str, str]:
    """Label -> text of a summary in JSON, wherever `field` and `data` stand: flat or in `children` at any depth."""
    found: dict[str, str] = {}
    queue = [document]
    while queue:
        here = queue.pop(0)
        if isinstance(here, dict):
            if isinstance(here.get("field"), str) and here.get("data") is not None:
                found.setdefault(_label(here["field"]), str(here["data"]).strip())
            queue += here.values()
        elif isinstance(here, list):
            queue += here
    return found


def plain(text: str) -> dict[str, str]:
    """Label -> text of a summary in plain text."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {_label(name): value.strip() for name, colon, value in pairs if colon and value.strip()}


def _label(text: str) -> str:
    return " ".join(text.split()).rstrip(":").strip().lower()


def count(said: Said, label: str) -> int | None:
    """A whole number of the summary, None where there is none (`-`, or another label in this version)."""
    value = said.fields.get(label, "")
    return int(value) if value.isdigit() else None


def online(said: Said) -> tuple[int, ...] | None:
    """The online CPUs: of the table, else of the summary's list, which is spelled `0-3` or `0,1,2,3`."""
    return said.cpus or parse_list(said.fields.get("on-line cpu(s) list", "")) or None


def cache_bytes(said: Said, level: str) -> int | None:
    """Bytes of one cache of a level (`l3`), where the summary says how many bytes and instances there are."""
    found = re.fullmatch(r"(\d+) \((\d+) instances?\)", said.fields.get(f"{level} cache", ""))
    return int(found[1]) // int(found[2]) if found and int(found[2]) else None

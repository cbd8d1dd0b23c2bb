"""What a report is made from: the folder of one machine, with its description, tables and log."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from advisor.errors import AdvisorError, Missing
from advisor.policy import store
from advisor.records import Machine, Table
from advisor.search import log
from advisor.topology.probe import read_machine


class Material(NamedTuple):
    """All of one folder. `machine`: None where it cannot be read; `notes`: what could not be, and why."""

    folder: str
    machine: Machine | None
    tables: tuple[Table, ...]
    records: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]


def gather(folder: str, kernels: tuple[str, ...] = ()) -> Material:
    """Read a folder; what cannot be read is left out with a note.

    Args:
        folder: of a machine, or of a shipped policy.
        kernels: these alone; none: all.

    Raises:
        Missing: it has no table that can be read, or none of the kernels.
    """
    found = store.tables(folder)
    tables = tuple(one.table for one in found if one.table and (not kernels or one.table.kernel in kernels))
    refused = [f"{os.path.basename(one.path)} was refused: {one.note}" for one in found if one.table is None]
    if not tables:
        raise _missing(folder, kernels, [one.table.kernel for one in found if one.table], refused)
    machine, notes = _machine(folder)
    notes += refused
    records, more = _log(folder)
    return Material(folder, machine, tables, records, (*notes, *more))


def _missing(folder: str, kernels: tuple[str, ...], tabled: list[str], refused: list[str]) -> Missing:
    """What to say where no table is left: those that can be read, and why others cannot, or that tuning makes one.

    What else lies there or does not, such as the machine's description, is no matter without a table.
    """
    wanted = f" of {' or '.join(kernels)}" if kernels else ""
    none = "no table that can be read" if refused else "no table"
    there = ", ".join(sorted(set(tabled)))
    return Missing(
        f"a report needs a table{wanted}, and this folder has {'none of that' if tabled else none}",
        got=folder,
        allowed=f"what has a table here: {there}" if tabled else "a folder in which a tuning left a table",
        next_step="; ".join([*refused, f"ask for {there} by --kernel" if tabled else "run `advisor tune` first"]),
    )


def _machine(folder: str) -> tuple[Machine | None, list[str]]:
    try:
        return read_machine(os.path.join(folder, "machine.json")), []
    except AdvisorError as error:
        return None, [f"the machine cannot be drawn: {error}"]


def _log(folder: str) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Records of the first log that is there, with notes."""
    for name in log.NAMES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            try:
                return log.read(path)
            except (AdvisorError, OSError) as error:
                return (), (f"{name} cannot be read: {error}",)
    return (), ("no log lies beside the tables: figures are those of the chosen path alone",)

"""The tables of a machine as a user handles them: found by kernel, id or file, listed, imported, told apart.

`advisor.policy.history` goes back in time; this module knows where tables lie.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from advisor import paths, tablefile
from advisor.admitted import judge
from advisor.errors import AdvisorError, BadInput, Missing
from advisor.policy import history, ledger, store
from advisor.policy.store import Saved
from advisor.records import HeldOut, Section, Table
from advisor.site import Site

LEAST_ID = 4
"""Digits that an id must have to be taken for one."""


class Shelf(NamedTuple):
    """Where a machine's tables lie, and the machine or device whose ids they must carry."""

    folder: str
    site: Site

    @property
    def machine(self) -> tuple[str, str]:
        """hardware_id and limits_id of its tables."""
        return self.site.hardware_id, self.site.limits_id


def shelf(machine: str | None = None, device: str | None = None) -> Shelf:
    """The tables of this machine, of one of its GPUs, or those beside a machine.json.

    Raises:
        BadInput: no such device; a machine.json that cannot be read.
    """
    from advisor.site import describe_file, describe_here, device_here

    if machine is not None:
        found = describe_file(machine, device)
        return Shelf(os.path.dirname(os.path.abspath(machine)), found)
    found = describe_here("/", [])
    if device not in (None, "cpu"):
        found = device_here(found, str(device))
    return Shelf(paths.machine_dir(found.hardware_id, found.limits_id), found)


def path_of(where: Shelf, kernel: str) -> str:
    """The file of a kernel's table; it need not be there.

    Raises:
        BadInput: what cannot be a kernel's name.
    """
    if not kernel.replace("-", "_").isidentifier():
        raise BadInput("a kernel's name has letters, digits and underscores", got=kernel)
    return os.path.join(where.folder, f"{kernel}{tablefile.SUFFIX}")


def find(where: Shelf, what: str) -> Table:
    """A table by its kernel, its id (four digits of it or more), or its file.

    Raises:
        Missing: there is none.
        BadInput: it cannot be trusted, or several have such an id.
    """
    if os.sep in what or what.endswith(".json"):
        return store.load_table(what)
    if what.replace("-", "_").isidentifier() and os.path.exists(path_of(where, what)):
        return store.load_table(path_of(where, what))
    if len(what) >= LEAST_ID and set(what) <= set("0123456789abcdef"):
        found = {table.table_id: table for table in _all(where) if table.table_id.startswith(what)}
        if len(found) > 1:
            raise BadInput("an id must name one table", got=what, allowed=", ".join(found))
        if found:
            return next(iter(found.values()))
    raise Missing(
        "there must be such a table", got=what, allowed="a kernel, an id or a file", next_step="advisor table list"
    )


def _all(where: Shelf) -> list[Table]:
    """Every table of the folder and its history that can be read."""
    files = [
        path for name in tablefile.names(where.folder) for path in (name, *(k.path for k in history.entries(name)))
    ]
    found = []
    for path in files:
        try:
            found.append(store.load_table(path))
        except AdvisorError:
            continue
    return found


# --- telling ---


def summaries(where: Shelf) -> tuple[dict[str, Any], ...]:
    """One line a kernel and shape of every table of a folder; of one that cannot be trusted only why."""
    found: list[dict[str, Any]] = []
    for one in store.tables(where.folder):
        if one.table is None:
            kernel = os.path.basename(one.path).removesuffix(tablefile.SUFFIX)
            found.append({"kernel": kernel, "path": one.path, "refused": one.note})
            continue
        groups: dict[tuple[Any, ...], list[Section]] = {}
        for section in one.table.sections:
            groups.setdefault((section.dtype, section.shape, section.regime), []).append(section)
        found += [_summary(one.table, one.path, sections) for sections in groups.values()]
    return tuple(found)


def _summary(table: Table, path: str, sections: list[Section]) -> dict[str, Any]:
    first = sections[0]
    tuned = sorted({n for section in sections for n in section.tuned_n})
    held: list[HeldOut] = [section.heldout for section in sections if section.heldout]
    return {
        "kernel": table.kernel,
        "dtype": first.dtype,
        "shape": dict(first.shape),
        "regime": first.regime,
        "process_parts": len(sections),
        "first_n": tuned[0],
        "last_n": tuned[-1],
        "table_id": table.table_id,
        "date": max(section.created for section in sections),
        "basis": dict(first.extra).get("basis") or "EXACT",
        "heldout_geomean": max((one.geomean for one in held), default=None),
        "heldout_worst": max((one.worst for one in held), default=None),
        "path": path,
    }


# --- changing ---


def put_in(where: Shelf, source: str, kernel_dirs: Sequence[str] = ()) -> Saved:
    """Import a table: check it, keep what stood there, merge its sections in.

    Args:
        where: the machine's tables.
        source: a table's file.
        kernel_dirs: folders with further kernels and variants.

    Returns:
        The table that counts now, with a note on what a lookup would not answer from it as things are.

    Raises:
        Missing, SchemaError, BadInput: there is none, or it cannot be trusted, or it is of another machine, or a lookup
            could never answer from all of it here.
        UnknownName: it is of a kernel that is not known here.
    """
    table = store.load_table(source)
    path = path_of(where, table.kernel)
    if (table.hardware_id, table.limits_id) != where.machine:
        raise BadInput(
            "a table is of one machine under its limits, and this is another",
            got=f"hardware_id {table.hardware_id}, limits_id {table.limits_id}",
            allowed="hardware_id {}, limits_id {}".format(*where.machine),
            next_step="`advisor recommend --machine` answers for that one, `advisor transfer` says what may hold here",
        )
    _measured(table)
    marked = _answering(where, table, kernel_dirs)
    ids = _ids(where, table.kernel)
    paths.writable(where.folder)
    history.keep(path, ids=ids)
    saved = store.save_table(path, table)
    history.keep(path, ids=ids)
    name = os.fsencode(os.path.basename(source)).decode("utf-8", "replace")  # a file's name may be no text
    note(where, saved.table, "imported", f"from {name}")
    return saved._replace(notes=(*saved.notes, *marked))


def _measured(table: Table) -> None:
    """Refuse a table that was carried over: in the place of a measured one it would count as such.

    Raises:
        BadInput: naming what it says of itself.
    """
    bases = {dict(section.extra).get("basis") for section in table.sections} - {None}
    if bases:
        raise BadInput(
            "a table that is imported must have been measured on this machine",
            got=f"basis {', '.join(sorted(map(str, bases)))}",
            next_step="`advisor transfer --save` keeps what other machines say, beside the measured tables",
        )


def _answering(where: Shelf, table: Table, kernel_dirs: Sequence[str]) -> tuple[str, ...]:
    """Notes on what a lookup would not answer from the table as things are; see `admitted.judge`.

    Raises:
        BadInput: a part of it could never be answered from here, or is ruled out by a header.
        UnknownName: it is of a kernel that is not known here.
    """
    found = judge(where.site, store.document(table), kernel_dirs)
    if found.refused:
        raise BadInput(
            "every choice of a table that is imported must be one that the header of its variant has and that a "
            "lookup can answer from on this machine",
            got="; ".join(found.refused),
            next_step="tune here, or export the table again where it was made",
        )
    return found.marked


def _ids(where: Shelf, kernel: str) -> store.Ids:
    return kernel, *where.machine


def back(where: Shelf, kernel: str, to: str | None) -> history.Back:
    """Roll a kernel's table back; see `history.rollback`."""
    found = history.rollback(path_of(where, kernel), _ids(where, kernel), to)
    note(where, found.table, "rolled back", f"to {found.table.table_id}")
    return found


def note(where: Shelf, table: Table, verdict: str, why: str) -> None:
    """A line in the ledger on what a user did by hand."""
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    told = {"time": now, "kernel": table.kernel, "verdict": verdict, "landed": True, "why": why}
    ledger.append(where.folder, {**told, "table_id": table.table_id})

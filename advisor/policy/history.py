"""History: the tables that stood before, kept beside the one that counts, and how to go back to one.

    history/<kernel>/<time>-<table_id>.table.json        newest last, a bounded number

Every table that lands is kept once, and the one that it replaces, where that came from elsewhere.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from advisor import tablefile
from advisor.errors import AdvisorError, BadInput, Missing, UnknownName
from advisor.policy.store import Ids, ids_of, load_table, locked, own, put, usable
from advisor.records import Table

FOLDER = "history"

MOST = 20
"""Tables kept a kernel; the largest shipped one has 125 kB."""


class Kept(NamedTuple):
    """One table of the past: when it was kept (UTC, YYYYmmddTHHMMSSffffff), its id, where it lies."""

    time: str
    table_id: str
    path: str


def entries(table_path: str) -> tuple[Kept, ...]:
    """What is kept of a table, oldest first. Nothing is opened."""
    folder = _folder(table_path)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(tablefile.SUFFIX))
    except OSError:
        return ()
    found = [(*name.removesuffix(tablefile.SUFFIX).partition("-")[::2], os.path.join(folder, name)) for name in names]
    return tuple(Kept(*one) for one in found if one[0] and one[1])


def damage(kept: Kept) -> str | None:
    """Why a table of the past cannot be gone back to; None: it is whole, and the one that its file's name says.

    Args:
        kept: an entry; its file is read.
    """
    try:
        _whole(kept)
    except AdvisorError as error:
        return str(error)
    return None


def _whole(kept: Kept) -> Table:
    table = load_table(kept.path)
    if table.table_id != kept.table_id:
        raise BadInput(f"{kept.path} must hold the table that its name says", got=table.table_id, allowed=kept.table_id)
    return table


def keep(table_path: str, now: datetime.datetime | None = None, ids: Ids | None = None) -> None:
    """Keep the table that stands there now; nothing where none does or it cannot be trusted.

    A table is kept once, as of the last time that it came to count: going back and forth pushes no other one out.

    Args:
        table_path: of the table that counts.
        now: in UTC; None: the time.
        ids: kernel and machine; a table of others is not kept. None: the kernel of the file's name, any machine.
    """
    try:
        table = _present(table_path, ids)
    except AdvisorError:
        return
    known = entries(table_path)
    if known and known[-1].table_id == table.table_id:
        return
    stamp = f"{now or datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S%f}"
    os.makedirs(_folder(table_path), exist_ok=True)
    put(os.path.join(_folder(table_path), f"{stamp}-{table.table_id}{tablefile.SUFFIX}"), table)
    same = [old for old in known if old.table_id == table.table_id]
    for old in [*same, *[one for one in entries(table_path) if one not in same][:-MOST]]:
        with suppress(OSError):
            os.unlink(old.path)


def _present(table_path: str, ids: Ids | None) -> Table:
    table = load_table(table_path)
    kernel = os.path.basename(table_path).removesuffix(tablefile.SUFFIX)
    return own(table, ids or (kernel, table.hardware_id, table.limits_id))


class Back(NamedTuple):
    """The table that counts after a rollback, and what had to be passed over or set aside on the way."""

    table: Table
    notes: tuple[str, ...]


def rollback(table_path: str, ids: Ids, to: str | None = None) -> Back:
    """Make an earlier table the one that counts; the one that it replaces is in the history, and so is this step.

    Args:
        table_path: of the table that counts; it may be gone or damaged.
        ids: kernel and machine; what is kept of others is passed over.
        to: an id or the beginning of one; None: the newest one kept that can be read and is not the table that stands
            there.

    Returns:
        The table that counts now. What stood there and cannot be trusted, or is of others, lies beside it.

    Raises:
        UnknownName: no such id in the history.
        Missing: nothing to go back to that can be read.
        BadInput: the one named was damaged since, or two ids begin so.
    """
    if not entries(table_path):  # no folder, no place for a lock
        raise _nothing(table_path)
    with locked(table_path):
        wanted = _newest(table_path, ids) if to is None else Back(_named(table_path, ids, to), ())
        notes = usable(table_path, ids)[1]
        keep(table_path, ids=ids)
        put(table_path, wanted.table)
        keep(table_path, ids=ids)
    return Back(wanted.table, (*wanted.notes, *notes))


def _newest(table_path: str, ids: Ids) -> Back:
    """The newest table kept that is not the one that stands there; a note on each that was damaged since."""
    try:
        stands = _present(table_path, ids).table_id
    except AdvisorError:
        stands = ""
    notes: list[str] = []
    for kept in reversed(entries(table_path)):
        if kept.table_id == stands:
            continue
        try:
            table = _whole(kept)
        except AdvisorError as error:
            notes.append(f"passed over: {error}")
            continue
        if ids_of(table) == ids:
            return Back(table, tuple(notes))
    raise _nothing(table_path, notes)


def _named(table_path: str, ids: Ids, to: str) -> Table:
    """The table kept of that id, or of the one that begins so."""
    known = entries(table_path)
    found = [kept for kept in known if kept.table_id.startswith(to)]
    if not found:
        told = ", ".join(dict.fromkeys(kept.table_id for kept in known)) or "none"
        raise UnknownName("no such table in the history", got=to, allowed=told)
    if len({kept.table_id for kept in found}) > 1:
        raise BadInput("an id must name one table", got=to, allowed=", ".join({k.table_id for k in found}))
    if damaged := damage(found[-1]):
        good = [kept.table_id for kept in known if damage(kept) is None]
        raise BadInput(
            f"a table that was damaged since it was kept cannot be gone back to ({damaged})",
            got=found[-1].table_id,
            allowed=", ".join(dict.fromkeys(good)) or "none is whole",
            next_step="give --to with one that is whole" if good else "advisor tune makes a new one",
        )
    return own(_whole(found[-1]), ids)


def _nothing(table_path: str, damaged: Sequence[str] = ()) -> Missing:
    why = f" that is whole ({'; '.join(damaged)})" if damaged else ""
    step = "the history begins with the first tuning: advisor tune"
    return Missing(f"there must be an earlier table{why}", got=table_path, next_step=step)


def _folder(table_path: str) -> str:
    name = os.path.basename(table_path).removesuffix(tablefile.SUFFIX)
    return os.path.join(os.path.dirname(os.path.abspath(table_path)), FOLDER, name)

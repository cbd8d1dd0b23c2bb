"""History: the tables that stood before, kept beside the one that counts, and how to go back to one.

    history/<kernel>/<time>-<table_id>.table.json        newest last, a bounded number

Every table that lands is kept, and the one that it replaces, where that came from elsewhere.
"""

from __future__ import annotations

import datetime
import os
from contextlib import suppress
from typing import NamedTuple

from advisor import tablefile
from advisor.errors import AdvisorError, BadInput, Missing, UnknownName
from advisor.policy.store import load_table, locked, put
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


def keep(table_path: str, now: datetime.datetime | None = None) -> None:
    """Keep the table that stands there now; nothing where none does, it cannot be trusted, or it was kept last."""
    try:
        table = load_table(table_path)
    except AdvisorError:
        return
    last = entries(table_path)[-1:]
    if last and last[0].table_id == table.table_id:
        return
    stamp = f"{now or datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S%f}"
    os.makedirs(_folder(table_path), exist_ok=True)
    put(os.path.join(_folder(table_path), f"{stamp}-{table.table_id}{tablefile.SUFFIX}"), table)
    for old in entries(table_path)[:-MOST]:
        with suppress(OSError):
            os.unlink(old.path)


def rollback(table_path: str, to: str | None = None) -> Table:
    """Make an earlier table the one that counts; the one that it replaces is in the history, and so is this step.

    Args:
        table_path: of the table that counts.
        to: an id or the beginning of one; None: the one before the table that stands there.

    Returns:
        The table that counts now.

    Raises:
        UnknownName: no such id in the history.
        Missing: nothing to go back to.
        BadInput: what is kept was damaged since, or two ids begin so.
    """
    with locked(table_path):
        keep(table_path)
        table = load_table(_wanted(table_path, to).path)
        put(table_path, table)
        keep(table_path)
    return table


def _wanted(table_path: str, to: str | None) -> Kept:
    known = entries(table_path)
    if to is not None:
        found = [kept for kept in known if kept.table_id.startswith(to)]
        if not found:
            ids = ", ".join(dict.fromkeys(kept.table_id for kept in known)) or "none"
            raise UnknownName("no such table in the history", got=to, allowed=ids)
        if len({kept.table_id for kept in found}) > 1:
            raise BadInput("an id must name one table", got=to, allowed=", ".join({k.table_id for k in found}))
        return found[-1]
    if len(known) < 2:
        raise Missing(
            "there must be an earlier table", got=table_path, next_step="the history begins with the first tuning"
        )
    return known[-2]


def _folder(table_path: str) -> str:
    name = os.path.basename(table_path).removesuffix(tablefile.SUFFIX)
    return os.path.join(os.path.dirname(os.path.abspath(table_path)), FOLDER, name)

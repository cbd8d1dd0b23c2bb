"""Tables on disk: read as records, written by merging under a lock and replacing after a sync.

Two writers lose nothing: each merges its sections into what is there, under one lock. A reader sees a whole old or a
whole new file. A file that cannot be trusted is set aside beside its place and named, never overwritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from advisor import codec, tablefile
from advisor.errors import AdvisorError, BadInput, Busy, Missing, SchemaError
from advisor.records import Pairs, Section, Table, pairs

Ids = tuple[str, str, str]
"""Kernel, hardware_id, limits_id: what the table of a file is of."""

LOCK_LIMIT_S = 10.0
"""How long a writer waits for another one; a write takes milliseconds."""


class Saved(NamedTuple):
    """The table as it now stands in the file, and what had to be set aside on the way."""

    table: Table
    notes: tuple[str, ...]


class Found(NamedTuple):
    """One table of a folder; `table` is None where the file was refused, and `note` says why."""

    path: str
    table: Table | None
    note: str


def load_table(path: str) -> Table:
    """A table as records, checked.

    Raises:
        Missing: no such file.
        SchemaError: another artefact or a newer major version.
        BadInput: damaged, changed by hand, or with values that make no sense.
    """
    table: Table = codec.from_json(Table, tablefile.read_table(path), os.path.basename(path))
    return table


def tables(folder: str) -> tuple[Found, ...]:
    """Every table of a folder, the refused ones included; empty when there is no such folder."""
    found = []
    for path in tablefile.names(folder):
        try:
            found.append(Found(path, load_table(path), ""))
        except AdvisorError as error:
            found.append(Found(path, None, str(error)))
    return tuple(found)


def save_table(
    path: str,
    table: Table,
    lock_limit_s: float = LOCK_LIMIT_S,
    replaces: Sequence[Section] | None = None,
) -> Saved:
    """Merge a table into its file.

    Args:
        path: where; the folder is created.
        table: its sections replace those of the same dtype, shape, regime and process part; others stay.
        lock_limit_s: how long to wait for another writer.
        replaces: what the file had measured of the table's shapes when the table began to be made. All of it goes: what
            the table does not say any more, under whatever process part, nobody shall answer from. None: see `table`.

    Raises:
        Busy: another writer held the lock for longer, or what a table replaces is no longer what stands there.
        BadInput: the new table makes no sense.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with locked(path, lock_limit_s):
        old, notes = usable(path, ids_of(table))
        if replaces is not None:
            old = _without(old, table, tuple(replaces), path)
        merged = with_id(table if old is None else merge(old, table))
        put(path, merged)
    return Saved(merged, notes)


def measured_of(table: Table, other: Table) -> tuple[Section, ...]:
    """A table's measured sections of the shapes that another one has."""
    shapes = {key(section)[:3] for section in other.sections}
    return tuple(s for s in table.sections if key(s)[:3] in shapes and not dict(s.extra).get("basis"))


def _without(old: Table | None, new: Table, replaces: tuple[Section, ...], path: str) -> Table | None:
    stands = () if old is None else measured_of(old, new)
    if stands != replaces:
        raise Busy(
            "a table that was tuned replaces the one that stood when tuning began",
            got=f"{path}, which was changed meanwhile, by an import or a rollback",
            next_step="tune again; what was measured is in the log",
        )
    return None if old is None else old._replace(sections=tuple(s for s in old.sections if s not in stands))


def put(path: str, table: Table) -> None:
    """Write a table as it is in the place of what lies there; the caller holds the lock.

    Raises:
        BadInput: it makes no sense.
    """
    tablefile.check_table(document(table))
    replace(path, codec.dumps(table, "table", indent=1) + "\n")


def document(table: Table) -> dict[str, Any]:
    """A table as plain data, with its schema, as its file has it."""
    return {"schema": codec.schema_of("table"), **codec.to_json(table)}


def with_id(table: Table) -> Table:
    """The table with `table_id` set to the digest of its content."""
    return table._replace(table_id=tablefile.content_id(codec.to_json(table)))


def key(section: Section) -> tuple[Any, ...]:
    """What a section is about; two sections of one table never share it."""
    return section.dtype, section.shape, section.regime, section.process


def merge(old: Table, new: Table) -> Table:
    """Both tables' sections, the new ones where both have one. Unknown fields of both are kept.

    A kept section remembers the environment that it was measured in, where that is no longer the table's.

    Raises:
        BadInput: they are of different kernels or machines.
    """
    own(new, ids_of(old))
    fresh = {key(section) for section in new.sections}
    kept = [
        _remember(section, old.environment, new.environment) for section in old.sections if key(section) not in fresh
    ]
    sections = sorted([*kept, *new.sections], key=lambda section: repr(key(section)))
    extra = pairs({**dict(old.extra), **dict(new.extra)})
    return new._replace(sections=tuple(sections), extra=extra)


def _remember(section: Section, then: Pairs, now: Pairs) -> Section:
    extra = dict(section.extra)
    if then != now:
        extra.setdefault("environment", dict(then))
    return section._replace(extra=pairs(extra))


@contextmanager
def locked(path: str, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
    """Hold the lock of a file for a block.

    Raises:
        Busy: another writer held it for longer.
    """
    try:
        with FileLock(f"{path}.lock", timeout=limit_s):
            yield
    except Timeout:
        raise Busy(
            "one writer at a time may change a table", got=path, next_step="wait for the other tuner and try again"
        ) from None


def ids_of(table: Table) -> Ids:
    """Kernel and machine of a table."""
    return table.kernel, table.hardware_id, table.limits_id


def own(table: Table, ids: Ids) -> Table:
    """The table, which must be of this kernel and machine.

    Raises:
        BadInput: it is of others.
    """
    if ids_of(table) != ids:
        raise BadInput("a table file holds one kernel of one machine", got=ids_of(table), allowed=str(ids))
    return table


def usable(path: str, ids: Ids) -> tuple[Table | None, tuple[str, ...]]:
    """The table that is there, and notes; the caller holds the lock.

    One that cannot be trusted, or that is of another kernel or machine, is set aside: nobody may answer from it, and
    nothing is written over it.
    """
    try:
        return own(load_table(path), ids), ()
    except Missing:
        return None, ()
    except SchemaError as error:
        return None, (_set_aside(path, "newer" if "newer" in error.rule else "broken", error),)
    except AdvisorError as error:
        return None, (_set_aside(path, "foreign" if "one kernel" in error.rule else "broken", error),)


def _set_aside(path: str, word: str, error: AdvisorError) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place, count = f"{path}.{word}-{stamp}", 1
    while os.path.exists(place):
        place, count = f"{path}.{word}-{stamp}.{count}", count + 1
    os.replace(path, place)
    return f"{path} could not be used and was set aside as {os.path.basename(place)}: {error}"


def replace(path: str, text: str) -> None:
    """Write a file so that a reader sees the whole old or the whole new one, also after a power cut."""
    temporary = f"{path}.new"  # the lock makes it ours; one left by a killed writer is overwritten
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

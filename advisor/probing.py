"""What `advisor probe` does with a description beside printing it: draw a team, record, compare, write an SVG file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import paths
from advisor.errors import AdvisorError, BadInput
from advisor.records import Machine, pairs

if TYPE_CHECKING:
    from advisor.kernels.available import Unavailable
    from advisor.topology.compare import Comparison
    from advisor.topology.record import Recorded


class Wanted(NamedTuple):
    """The options of the command; paths empty and numbers None where they were not given."""

    sysroot: str = "/"
    record: str = ""
    compare: str = ""
    svg: str = ""
    placement: str | None = None
    threads: int | None = None


class Told(NamedTuple):
    """What came of it. `team`: CPU ids of the placement asked for, worker 0 first, else empty; `drawn`: SVG file;
    `unavailable`: variants that cannot be made, of the machine at hand alone."""

    machine: Machine
    team: tuple[int, ...]
    recorded: Recorded | None
    compared: Comparison | None
    drawn: str = ""
    unavailable: tuple[Unavailable, ...] = ()


def tell(wanted: Wanted) -> Told:
    """Describe a machine and do what was asked with it.

    Raises:
        BadInput: no such folder, a placement that makes no sense here, or a file that is there already.
        Missing: nothing to compare with.
    """
    from advisor.topology import probe

    if not os.path.isdir(wanted.sysroot):
        raise BadInput("--sysroot must be a folder", got=wanted.sysroot)
    machine = probe.probe(wanted.sysroot)
    chosen = _team(machine, wanted)
    if wanted.svg:
        _write_svg(wanted.svg, machine, chosen)
    told = Told(machine, chosen, _record(wanted), _compare(machine, wanted.compare), wanted.svg)
    return told if wanted.sysroot != "/" or told.recorded or told.compared else told._replace(unavailable=_lacking())


def _lacking() -> tuple[Unavailable, ...]:
    from advisor.kernels.available import unavailable

    return unavailable()


def _team(machine: Machine, wanted: Wanted) -> tuple[int, ...]:
    if wanted.placement is None and wanted.threads is None:
        return ()
    from advisor.topology.boxes import team

    return team(machine, wanted.placement or "", wanted.threads)


def _write_svg(path: str, machine: Machine, chosen: Sequence[int]) -> None:
    """The drawing, whole or not at all; a drawing that was there is replaced."""
    from advisor.topology.svg import svg

    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(svg(machine, chosen))
        os.replace(part, path)
    except OSError as error:
        raise AdvisorError("the drawing cannot be written", got=path, next_step=str(error.strerror)) from error


def _record(wanted: Wanted) -> Recorded | None:
    if not wanted.record:
        return None
    from advisor.topology.record import record

    return record(wanted.record, wanted.sysroot)


def _compare(machine: Machine, path: str) -> Comparison | None:
    """With the description in a file, and with the tables that lie beside it."""
    if not path:
        return None
    from advisor.policy import store
    from advisor.topology.compare import compare, follows
    from advisor.topology.probe import read_machine

    found = compare(read_machine(path), machine)
    beside = store.tables(os.path.dirname(os.path.abspath(path)))
    return follows(found, [(os.path.basename(lies.path), lies.table) for lies in beside if lies.table is not None])


# --- what is kept ---


def folder_of(machine: Machine) -> str:
    """Where this machine's description, log and tables lie."""
    return paths.machine_dir(machine.hardware_id, machine.limits_id)


def remember(machine: Machine) -> str:
    """Keep the description of the machine at hand beside its tables.

    Returns:
        A note for people: where results had to go, or why nothing could be kept; empty when all is as expected.
    """
    from advisor.signature.keep import with_earlier
    from advisor.topology.probe import machine_json

    path = os.path.join(folder_of(machine), "machine.json")
    machine = with_earlier(machine, path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        scratch = f"{path}.{os.getpid()}"
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(machine_json(machine) + "\n")
        os.replace(scratch, path)
    except OSError as error:
        return f"the description could not be kept in {path}: {error.strerror}; set ADVISOR_HOME to another folder"
    return "; ".join(filter(None, [paths.home_note(), paths.cache_note()]))


# --- for people and for programs ---


def document(told: Told, wanted: Wanted) -> Any:
    """Plain JSON data: what --record and --compare gave, else the description, with the team that was asked for."""
    from advisor.topology.probe import machine_document

    actions = {"recorded": told.recorded, "compared": told.compared}
    if any(actions.values()):
        return {name: _plain(found) for name, found in actions.items() if found is not None}
    more: dict[str, Any] = {"unavailable": [one._asdict() for one in told.unavailable]}
    if told.team:
        more["team"] = {"placement": wanted.placement or "", "threads": len(told.team), "cpus": told.team}
    return machine_document(told.machine._replace(extra=pairs({**dict(told.machine.extra), **more})))


def _plain(found: Any) -> Any:
    from advisor.codec import to_json

    return to_json(found)


def show(told: Told) -> None:
    """Print for people: the picture, or what --record and --compare gave. Colours only on a terminal."""
    import typer
    from rich.console import Console

    from advisor.topology import draw
    from advisor.topology.compare import lines

    parts = [*([said(told.recorded)] if told.recorded else []), *([lines(told.compared)] if told.compared else [])]
    parts += [f"{told.drawn}: a drawing of every group, for a browser"] if told.drawn else []
    if told.recorded or told.compared:
        typer.echo("\n".join(parts))
        return
    sheet = draw.sheet(told.machine, told.team, _drawn_with())
    if sys.stdout is not None and sys.stdout.isatty():
        Console(soft_wrap=True, highlight=False).print(sheet)
    else:
        typer.echo(sheet.plain)
    if told.unavailable:
        from advisor.kernels.available import lines as absent

        parts.append("\n".join(absent(told.unavailable)))
    for line in parts:
        typer.echo(f"\n{line}")


def _drawn_with() -> Any:
    """Box characters where standard output can show them."""
    from advisor.topology import draw

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "".join((*draw.DRAWN.corner, draw.DRAWN.level)).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return draw.PLAIN
    return draw.DRAWN


def said(found: Recorded) -> str:
    """One line on an archive, and one on what it does not tell."""
    text = f"{found.path}: {found.files} files; read it with `advisor probe --sysroot` once it is unpacked"
    if found.differs:
        text += f"\nthe unpacked archive tells otherwise: {', '.join(found.differs)}"
    return text

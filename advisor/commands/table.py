"""advisor table: what the deployment tables say, what they said before, and how to move them."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from advisor.commands.common import Device, Json, KernelDir, emit
from advisor.guard import FAILED, say

app = typer.Typer(no_args_is_help=True, help="List, show, compare, roll back, import and export deployment tables.")

Machine = Annotated[
    str | None, typer.Option("--machine", help="machine.json of another machine; its tables lie beside it.")
]
OnDevice = Annotated[str | None, Device]
Kernel = Annotated[str, typer.Argument(help="The kernel.")]
Which = Annotated[str, typer.Argument(help="A kernel, an id (four digits or more) or a file.")]

FORMATS = ("json", "csv", "markdown")


@app.command("list")
def list_(machine: Machine = None, device: OnDevice = None, as_json: Json = False) -> None:
    """The tables of a machine: shapes, n, id, date, basis, held-out regret."""
    from advisor import shelf
    from advisor.render import rows

    where = shelf.shelf(machine, device)
    found = shelf.summaries(where)
    good = [one for one in found if "refused" not in one]
    if as_json:
        emit({"folder": where.folder, "tables": list(found)})
    elif good:
        typer.echo(rows(_LIST, [_listed(one) for one in good], right=9))
    elif not found:
        typer.echo(f"no table in {where.folder}; advisor tune makes one")
    for one in found:
        if "refused" in one:
            say(f"{one['path']}: {one['refused']}")
    if found and not good:
        raise typer.Exit(FAILED)


_LIST = ("kernel", "dtype", "shape", "regime", "n", "id", "date", "basis", "parts", "held-out", "worst")


def _listed(one: dict[str, Any]) -> tuple[str, ...]:
    regret = [_ratio(one[name]) for name in ("heldout_geomean", "heldout_worst")]
    shape = " ".join(f"{name}={value}" for name, value in one["shape"].items())
    span = f"{one['first_n']}..{one['last_n']}"
    head = (one["kernel"], one["dtype"], shape, one["regime"], span, one["table_id"], one["date"][:10], one["basis"])
    return (*head, str(one["process_parts"]), *regret)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@app.command()
def show(which: Which, machine: Machine = None, device: OnDevice = None, as_json: Json = False) -> None:
    """The rows of a table, with their times."""
    from advisor import shelf
    from advisor.policy.differ import lines
    from advisor.policy.store import document

    table = shelf.find(shelf.shelf(machine, device), which)
    if as_json:
        emit(document(table))
        return
    typer.echo(f"{table.kernel} {table.table_id} of {table.hardware_id}-{table.limits_id}")
    typer.echo(_drawn(lines(table)))


_ALWAYS = (
    *("dtype", "shape", "regime", "wait_policy", "basis", "low", "high", "variant", "knobs", "threads", "placement"),
)
_WHERE_THEY_DIFFER = ("runtime", "compiler", "flags")
_USUAL = {"spin": None, "memory_policy": "default"}


def _shown(found: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """The columns of a table's rows: those without which two rows that differ would look alike, too."""
    from advisor.policy.differ import COLUMNS

    def told(name: str) -> bool:
        values = {line[name] for line in found}
        differ = len(values) > 1 and name in (*_WHERE_THEY_DIFFER, *_USUAL)
        return name in _ALWAYS or differ or (name in _USUAL and not values <= {_USUAL[name], None})

    return tuple(name for name in COLUMNS if told(name))


def _drawn(found: tuple[dict[str, Any], ...]) -> str:
    """The rows of a table, one line a row: all its times in one cell."""
    from advisor.policy.launch.sheet import duration
    from advisor.render import rows

    shown = _shown(found)
    joined: dict[tuple[str, ...], list[str]] = {}
    for line in found:
        cells = tuple("" if line[name] is None else str(line[name]) for name in shown)
        doubts = f" ({line['doubts']})" if line["doubts"] else ""
        time = [] if line["n"] is None else [f"{line['n']}: {duration(line['p25_ns'])}{doubts}"]
        joined.setdefault(cells, []).extend(time)
    return rows((*shown, "times"), [(*cells, ", ".join(times)) for cells, times in joined.items()], right=99)


@app.command()
def diff(before: Which, after: Which, machine: Machine = None, device: OnDevice = None, as_json: Json = False) -> None:
    """Where two tables take different choices, and how their times compare."""
    from advisor import codec, shelf
    from advisor.errors import BadInput
    from advisor.policy.differ import changes
    from advisor.render import rows

    where = shelf.shelf(machine, device)
    old, new = shelf.find(where, before), shelf.find(where, after)
    if old.kernel != new.kernel:
        raise BadInput("two tables of one kernel can be compared", got=f"{old.kernel} and {new.kernel}")
    found = changes(old, new)
    if as_json:
        emit({"before": old.table_id, "after": new.table_id, "changes": [codec.to_json(one) for one in found]})
    elif found:
        several = len({one.process.runtime for one in found if one.process}) > 1
        cells = [(*_about(one, several), f"{one.low}..{one.high}", one.what, _ratio(one.ratio)) for one in found]
        typer.echo(rows(("dtype", "shape", "process", "n", "what", "time before / after"), cells, right=5))
    else:
        typer.echo(f"{old.table_id} and {new.table_id} take the same choices")


def _about(one: Any, with_runtime: bool) -> tuple[str, str, str]:
    from advisor.show import process_short

    shape = " ".join(f"{name}={value}" for name, value in one.shape)
    process = process_short(one.process) + (f", {one.process.runtime}" if with_runtime and one.process else "")
    return one.dtype, f"{shape} {one.regime}", process


@app.command()
def history(kernel: Kernel, machine: Machine = None, device: OnDevice = None, as_json: Json = False) -> None:
    """What stood before, and what became of every tuning (the ledger)."""
    from advisor import shelf
    from advisor.policy import history as past
    from advisor.policy import ledger
    from advisor.render import rows

    where = shelf.shelf(machine, device)
    kept, told = past.entries(shelf.path_of(where, kernel)), ledger.read(where.folder, kernel)
    if as_json:
        tables = [{**one._asdict(), "damage": past.damage(one)} for one in kept]
        emit({"tables": tables, "ledger": list(told)})
        return
    if not kept and not told:
        typer.echo(f"nothing is known of {kernel} in {where.folder}")
        return
    typer.echo(rows(("kept", "id", "damaged"), [_kept(one, past.damage(one)) for one in kept], right=9))
    cells = [tuple(str(line.get(name) or "") for name in ("time", "verdict", "why", "table_id")) for line in told]
    typer.echo(rows(("time", "verdict", "why", "table"), cells, right=9))


def _kept(one: Any, damage: str | None) -> tuple[str, str, str]:
    """A line on a table of the past; its file by its name, as all lie in one folder."""
    why = (damage or "").replace(one.path, os.path.basename(one.path))
    return f"{one.time[:8]} {one.time[9:15]}", one.table_id, why


@app.command()
def rollback(
    kernel: Kernel,
    to: Annotated[str | None, typer.Option("--to", help="The id, or its beginning. Default: the table before.")] = None,
    machine: Machine = None,
    device: OnDevice = None,
    as_json: Json = False,
) -> None:
    """Make an earlier table the one that counts."""
    from advisor import shelf

    found = shelf.back(shelf.shelf(machine, device), kernel, to)
    for words in found.notes:
        say(words)
    if as_json:
        emit({"kernel": kernel, "table_id": found.table.table_id, "notes": list(found.notes)})
    else:
        typer.echo(f"{kernel}: table {found.table.table_id} counts now")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A table's file; with --published a folder of CSV figures.")],
    published: Annotated[
        bool, typer.Option("--published", help="Make the tables of a published machine from its CSV files, in place.")
    ] = False,
    machine: Machine = None,
    device: OnDevice = None,
    kernel_dir: KernelDir = None,
    as_json: Json = False,
) -> None:
    """Take a table of this machine in, after the checks that every table is read with."""
    from advisor import shelf
    from advisor.policy.published import write_tables

    if published:
        made = write_tables(file)
        if as_json:
            emit({"written": list(made)})
        else:
            typer.echo("\n".join(made))
        return
    saved = shelf.put_in(shelf.shelf(machine, device), file, tuple(kernel_dir or ()))
    for words in saved.notes:
        say(words)
    if as_json:
        emit({"kernel": saved.table.kernel, "table_id": saved.table.table_id, "notes": list(saved.notes)})
    else:
        typer.echo(f"{saved.table.kernel}: table {saved.table.table_id} counts now")


@app.command("export")
def export_(
    which: Which,
    output: Annotated[str, typer.Option("--format", help="json, csv or markdown.")] = "json",
    out: Annotated[str | None, typer.Option("--out", help="The file to write to. Default: standard output.")] = None,
    machine: Machine = None,
    device: OnDevice = None,
    as_json: Json = False,
) -> None:
    """Write a table out: json can be imported again, csv and markdown have its rows with their times."""
    from advisor import exporting_table, shelf
    from advisor.errors import UnknownName

    if output not in FORMATS:
        raise UnknownName("no such format", got=output, allowed=", ".join(FORMATS))
    text = exporting_table.text(shelf.find(shelf.shelf(machine, device), which), output)
    if out is not None:
        with open(out, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    if as_json:
        emit({"format": output, "path": out, **({} if out else {"text": text})})
    elif out is None:
        typer.echo(text, nl=False)

"""advisor transfer: what other machines' tables say for this one."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.commands.common import Device, Json, Kernels, emit
from advisor.guard import FAILED, say


def transfer(
    kernel: Kernels = "all",
    n: Annotated[
        str, typer.Option("--n", help="Sizes for the cost model, where nobody measured a kernel's shape.")
    ] = "1k..64k",
    machine: Annotated[str | None, typer.Option(help="machine.json of another machine.")] = None,
    device: Annotated[str | None, Device] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep it beside this machine's tables, for servers to answer from.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what other machines' tables and the cost model take on a machine that was never tuned."""
    from advisor import codec, untuned
    from advisor.arguments import sizes
    from advisor.pipeline import kernel_names

    found = untuned.told(kernel_names(kernel), machine, sizes(n), save, device)
    for note in found.notes:
        say(note)
    if as_json:
        emit({"tables": [codec.to_json(table) for table in found.tables], "paths": list(found.paths)})
    else:
        typer.echo("\n".join(untuned.shown(table) for table in found.tables))
    if not found.tables:
        raise typer.Exit(FAILED)

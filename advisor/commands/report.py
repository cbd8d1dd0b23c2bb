"""advisor report: one self-contained HTML file on what was tuned."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Annotated

import typer

from advisor.commands.common import Device, Json, Kernels, emit
from advisor.errors import BadInput
from advisor.guard import say
from advisor.words import many


def report(
    kernel: Kernels = "all",
    machine: Annotated[
        str | None, typer.Option(help="machine.json of another machine; its tables and log lie beside it.")
    ] = None,
    device: Annotated[str | None, Device] = None,
    out: Annotated[str, typer.Option(help="The file to write; one that is there is replaced.")] = "report.html",
    as_json: Json = False,
) -> None:
    """Draw the machine, times, choices, regret and failures on one HTML page without outside references."""
    from advisor.report import material, page, write

    kernels = () if kernel == "all" else tuple(word.strip() for word in kernel.split(",") if word.strip())
    found = material.gather(_folder(machine, device), kernels)
    made = write.report(found, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    _write(out, page.html(made, write.plotly_js()))
    for note in found.notes:
        say(note)
    if as_json:
        parts = [part.title for part in made.parts]
        emit(
            {"path": os.path.abspath(out), "chapters": parts, "figures": len(made.figures), "notes": list(found.notes)}
        )
    else:
        typer.echo(f"{out}: {many(len(made.figures), 'figure')}, {os.path.getsize(out) / 1e6:.1f} MB")


def _folder(machine: str | None, device: str | None) -> str:
    """Where the tables lie."""
    from advisor.paths import machine_dir
    from advisor.site import describe_here, device_here

    if machine is not None:
        return os.path.dirname(os.path.abspath(machine))
    site = describe_here("/", [])
    if device not in (None, "cpu"):
        site = device_here(site, str(device))
    return machine_dir(site.hardware_id, site.limits_id)


def _write(path: str, text: str) -> None:
    """The page, whole or not at all.

    Raises:
        BadInput: it cannot be written.
    """
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:  # a log may hold half a character
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        step = f"{error.strerror}; name another place with --out"
        raise BadInput("the report must be written to a file", got=path, next_step=step) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)

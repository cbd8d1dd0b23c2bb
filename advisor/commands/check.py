"""advisor check: whether this machine's tables still hold, for cron and CI."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.commands.common import Device, Json, KernelDir, emit
from advisor.guard import FAILED, PARTLY, say
from advisor.words import many

if TYPE_CHECKING:
    from advisor.checking import Checked, Looked, Stale


def check(
    kernel: Annotated[
        str, typer.Option("--kernel", "-k", help="Kernels, comma separated. all: those that have a table.")
    ] = "all",
    device: Annotated[str, Device] = "cpu",
    budget: Annotated[str, typer.Option(help="Time for measuring: 5s, 1m. A kernel takes 1 to 3 s.")] = "5s",
    bar: Annotated[
        float, typer.Option(min=0.5, max=100, help="Percent by which a choice may be slower than the table says.")
    ] = 5.0,
    kernel_dir: KernelDir = None,
    as_json: Json = False,
) -> None:
    """Say whether the tables still hold: what they depend on, and a few of their choices timed anew."""
    from advisor import checking, show
    from advisor.arguments import seconds
    from advisor.search.request import Silent

    names = () if kernel == "all" else tuple(word.strip() for word in kernel.split(",") if word.strip())
    asked = checking.CheckRequest(names, device, seconds(budget), bar / 100, tuple(kernel_dir or ()))
    if sys.stderr is not None and sys.stderr.isatty():
        with show.progress(say) as progress:
            found = checking.check(asked, progress)
    else:
        found = checking.check(asked, Silent())
    if as_json:
        emit(document(found))
    else:
        typer.echo("\n".join(lines(found)))
    for note in found.notes:
        say(note)
    if found.broken:
        raise typer.Exit(FAILED)
    if found.partly:
        raise typer.Exit(PARTLY)


# --- for people ---


def lines(found: Checked) -> list[str]:
    """One line for each thing that was found, the whole at the end."""
    told = [f"{path}: refused: {why}" for path, why in found.refused]
    told += [_stale_line(one) for one in found.stale]
    told += [_line(one) for one in found.looked]
    return [*told, _whole(found)]


def _whole(found: Checked) -> str:
    verdict = "the tables no longer hold" if found.broken else "not all could be told" if found.partly else "all hold"
    rows = sum(one.rows for one in found.stale)
    parts = [f"{len(found.looked)} of {many(found.total, 'cell')} looked at", many(len(found.tables), "kernel")]
    parts += [f"{many(rows, 'row')} stale"] if rows else []
    return f"{verdict}: {', '.join(parts)}, {found.seconds:.1f} s"


def _about(kernel: str, dtype: str, shape: Any, regime: str) -> str:
    dims = " ".join(f"{name}={value}" for name, value in shape)
    return " ".join([kernel, dtype, dims, *([] if regime == "warm" else [regime])])


def _stale_line(one: Stale) -> str:
    changed = "; ".join(f"{field} was {was}, is {now}" for field, was, now in one.changes)
    return f"{_about(one.kernel, one.dtype, one.shape, one.regime)} n={one.low}..{one.high}: STALE: {changed}"


def _line(one: Looked) -> str:
    problem, judged = one.cell.problem, one.judged
    what = f"{_about(problem.kernel, problem.dtype, problem.shape, problem.regime)} n={problem.n}: {judged.verdict}"
    told = [judged.reason] if judged.reason else []
    if judged.ratio and one.cell.gain:
        told.append(f"{1 / judged.ratio:.3g}x as fast as the default choice, {one.cell.gain:.3g}x when it was tuned")
    if judged.change and judged.change_ci95:
        low, high = (f"{value - 1:+.1%}" for value in judged.change_ci95)
        told.append(f"time beside it {judged.change - 1:+.1%} ({low} .. {high})")
    return f"{what}: {'; '.join(told)}" if told else what


# --- for programs ---


def document(found: Checked) -> dict[str, Any]:
    """The document of `advisor check --json`."""
    return {
        "verdict": "broken" if found.broken else "partly" if found.partly else "holds",
        "kernels": list(found.tables),
        "refused": [{"path": path, "reason": why} for path, why in found.refused],
        "stale": [_stale_json(one) for one in found.stale],
        "cells": [_cell_json(one) for one in found.looked],
        "cells_total": found.total,
        "seconds": found.seconds,
        "notes": list(found.notes),
    }


def _stale_json(one: Stale) -> dict[str, Any]:
    changes = [{"field": field, "was": was, "is": now} for field, was, now in one.changes]
    return {**one._asdict(), "shape": dict(one.shape), "changes": changes}


def _cell_json(one: Looked) -> dict[str, Any]:
    from advisor import codec

    cell, judged = one.cell, one.judged
    interval = judged.change_ci95
    return {
        "problem": codec.to_json(cell.problem),
        "choice": codec.to_json(cell.choice),
        "reference": codec.to_json(cell.reference),
        "gain": cell.gain,
        "fragility": cell.fragility,
        **judged._asdict(),
        "change_ci95": None if interval is None else list(interval),
    }

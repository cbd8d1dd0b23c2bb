"""The command line. Results go to standard output, progress and warnings to standard error.

Exit status: 0 done, 1 refused or failed (one line says why and what next), 2 wrong usage, 3 partly done. Heavy imports
stay inside the commands, so that `advisor --help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from advisor import __version__, guard
from advisor.commands.check import check
from advisor.commands.common import (
    Device,
    Json,
    KernelDir,
    Kernels,
    emit,
)
from advisor.commands.recommend import recommend
from advisor.commands.report import report
from advisor.commands.run import SETTINGS, run
from advisor.commands.table import app as table
from advisor.commands.transfer import transfer
from advisor.commands.tune import tune
from advisor.commands.validate import validate
from advisor.errors import BadInput
from advisor.guard import DONE, FAILED, PARTLY, say
from advisor.words import many

app = typer.Typer(
    cls=guard.Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Finds what transformer kernels should run with on this machine: probe, tune, recommend.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"advisor {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None:
    pass


@app.command()
def probe(
    sysroot: Annotated[str, typer.Option(help="Read another machine's /proc and /sys below this folder.")] = "/",
    record: Annotated[
        str, typer.Option(help="Write a .tar.gz of just the files that the probe reads, names and serials left out.")
    ] = "",
    compare: Annotated[
        str, typer.Option(help="A machine.json: which fields differ here, and what follows for its tables.")
    ] = "",
    svg: Annotated[str, typer.Option(help="Write the drawing to this file.")] = "",
    placement: Annotated[str | None, typer.Option(help="Number the threads that this placement chooses.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads of it; all by default.")] = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Also measure read bandwidth, fork-join cost and flop rate: 20 s.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Describe the machine as an array, with its limits, caches, GPUs and compilers."""
    from advisor import probing

    wanted = probing.Wanted(sysroot, record, compare, svg, placement, threads)
    if bench and (sysroot != "/" or record or compare):
        raise BadInput("--bench measures the machine at hand", got="another machine, --record or --compare beside it")
    told = probing.tell(wanted)
    if bench:
        from advisor import pipeline

        told = told._replace(machine=pipeline.bench(told.machine, say))
    note = probing.remember(told.machine) if sysroot == "/" and not compare else ""
    if as_json:
        emit(probing.document(told, wanted))
    else:
        probing.show(told)
        if bench:
            typer.echo(f"\n{pipeline.signature_text(told.machine)}")
    if note:
        say(note)
    if told.recorded and told.recorded.differs:
        raise typer.Exit(PARTLY)


app.command()(tune)
app.command()(recommend)
app.command()(transfer)
app.add_typer(table, name="table")
app.command(context_settings=SETTINGS)(run)
app.command()(report)
app.command()(check)


@app.command()
def verify(
    kernel: Kernels = "all",
    n: Annotated[str | None, typer.Option("--n", help="Further sizes beside the edge shapes.")] = None,
    dtype: Annotated[str | None, typer.Option(help="This element type only.")] = None,
    variant: Annotated[str | None, typer.Option(help="These variants only, comma separated.")] = None,
    device: Annotated[str, Device] = "cpu",
    kernel_dir: KernelDir = None,
    as_json: Json = False,
) -> None:
    """Run every variant against its float64 definition on this machine."""
    from advisor import pipeline, show
    from advisor.arguments import sizes

    asked = pipeline.VerifyRequest(
        kernels=pipeline.kernel_names(kernel, kernel_dir or (), device=device),
        sizes=() if n is None else sizes(n),
        dtype=dtype,
        variants=() if variant is None else tuple(dict.fromkeys(word.strip() for word in variant.split(","))),
        kernel_dirs=tuple(kernel_dir or ()),
        device=device,
    )
    with show.progress(say) as progress:
        rows = pipeline.verify(asked, progress)
    if as_json:
        emit({"rows": [pipeline.verified_json(kernel, row) for kernel, row in rows]})
    else:
        typer.echo(show.verified(rows))
    for line in pipeline.left_out(asked):
        say(line)
    if any(row.status not in ("ok", "skipped") for _, row in rows):
        raise typer.Exit(FAILED)


app.command()(validate)


@app.command()
def export(
    log: Annotated[str, typer.Argument(help="A measurements.jsonl.")],
    out: Annotated[str, typer.Option(help="The folder to write to.")],
    output: Annotated[str, typer.Option("--format", help="t4: the community's format of recorded spaces.")] = "t4",
    contended: Annotated[
        bool, typer.Option("--contended", help="Also looks that other processes disturbed most of the time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a log for other tuners' tools: one file a problem, every sample in it."""
    from advisor import exporting

    found = exporting.export(log, output, out, contended)
    for note in found.notes:
        say(note)
    if as_json:
        emit({"files": [{"path": p, "results": r} for p, r in zip(found.files, found.results, strict=True)]})
        return
    for path, count in zip(found.files, found.results, strict=True):
        typer.echo(f"{path}: {many(count, 'configuration')}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is missing on this machine, and what to do about it."""
    from advisor import show
    from advisor.doctor import examine

    findings = examine()
    if as_json:
        emit({"findings": [finding._asdict() for finding in findings]})
    else:
        typer.echo(show.examined(findings))
    if any(finding.needed and finding.remedy for finding in findings):
        raise typer.Exit(FAILED)


def main() -> None:
    """Entry point of the `advisor` command."""
    guard.run(app)


if __name__ == "__main__":
    main()

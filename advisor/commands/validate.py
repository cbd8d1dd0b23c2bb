"""advisor validate: the paper's kernels measured beside what is predicted of them, on CPUs or on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from advisor.commands.common import Device, DimOption, Json, KernelDir, emit, shape_of
from advisor.device import CPU
from advisor.guard import FAILED, PARTLY, say

if TYPE_CHECKING:
    from advisor.validate.request import Request


def validate(
    kernel: Annotated[
        str, typer.Option("--kernel", "-k", help="Of the paper's kernels, comma separated, or all.")
    ] = "all",
    n: Annotated[
        str | None, typer.Option("--n", help="Sizes of every kernel. Default: of each its own, near the paper's.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="Thread counts, comma separated. Default: 1, powers of two, this machine's own.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type. Default: the paper's of each kernel.")] = None,
    batch: DimOption = None,
    heads: DimOption = None,
    kv_heads: DimOption = None,
    head_dim: DimOption = None,
    d_model: DimOption = None,
    d_ff: DimOption = None,
    device: Annotated[str, Device] = "cpu",
    budget: Annotated[str, typer.Option(help="Time for the whole run: 90s, 2m.")] = "120s",
    kernel_dir: KernelDir = None,
    as_json: Json = False,
) -> None:
    """Measure the paper's kernels beside what is predicted of them, C beside Fortran, and what the paper found."""
    from advisor.arguments import seconds, sizes
    from advisor.validate import request as asking

    shape = shape_of(batch=batch, heads=heads, kv_heads=kv_heads, head_dim=head_dim, d_model=d_model, d_ff=d_ff)
    request = asking.Request(
        kernels=asking.kernel_names(kernel),
        sizes=() if n is None else sizes(n),
        threads=() if threads is None else asking.thread_list(threads),
        dtype=dtype,
        shape=tuple(shape.items()),
        budget_s=seconds(budget),
        kernel_dirs=tuple(kernel_dir or ()),
        device=device,
    )
    told = _on_cpus(request) if device == CPU else _on_device(request)
    if as_json:
        emit(told.document())
    else:
        typer.echo(told.text())
    for words in told.missing:
        say(f"partly done: {words}")
    if not told.measured:
        raise typer.Exit(FAILED)
    if told.missing or told.failed:
        raise typer.Exit(PARTLY)


class Told(NamedTuple):
    """What a validation has to say: the JSON document and the text, made when they are asked for.

    Attributes:
        missing: what it did not get to, in words.
        measured: whether it has any figure.
        failed: whether a variant failed.
    """

    document: Callable[[], Any]
    text: Callable[[], str]
    missing: Sequence[str]
    measured: bool
    failed: bool


def _on_cpus(request: Request) -> Told:
    from advisor import show
    from advisor.topology import probe as topology
    from advisor.turn import alone
    from advisor.validate.measure import measure
    from advisor.validate.report import document, report
    from advisor.validate.show import shown

    with show.progress(say) as progress, alone(progress):
        measured = measure(request, topology.probe(), progress)
    found = report(request, measured)
    some = bool(measured.series or measured.languages)
    return Told(partial(document, found, measured), partial(shown, found), found.missing, some, bool(found.failed))


def _on_device(request: Request) -> Told:
    from advisor import show
    from advisor.kernels.gpu.device import target
    from advisor.topology import probe as topology
    from advisor.turn import alone
    from advisor.validate.device_lab import lab_of
    from advisor.validate.device_measure import measure_device
    from advisor.validate.device_report import device_document, device_report
    from advisor.validate.device_show import device_shown

    begun = time.monotonic()
    machine = target(topology.probe(), request.device)
    lab = lab_of(machine.gpus[0])
    looked_s = time.monotonic() - begun  # at the machine; waiting for a turn is nobody's time
    with show.progress(say) as progress, alone(progress):
        measured = measure_device(request, machine, progress, lab, looked_s)
    found = device_report(request, measured)
    shown = partial(device_shown, found, measured.series)
    some = any(one.samples_ns for one in measured.series)
    return Told(partial(device_document, found, measured), shown, found.missing, some, bool(found.failed))

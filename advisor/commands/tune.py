"""advisor tune: measure on this machine, and write the deployment tables."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.commands.common import (
    Causal,
    Device,
    DimOption,
    FromLog,
    Json,
    KernelDir,
    Kernels,
    MaybeSizes,
    ModelConfig,
    Objective,
    Regex,
    Regime,
    WorkloadFile,
    emit,
    shape_of,
)
from advisor.guard import FAILED, PARTLY, say
from advisor.start import BEGUN


def tune(
    context: typer.Context,
    kernel: Kernels = "decode",
    n: MaybeSizes = None,
    model_config: ModelConfig = None,
    batch: DimOption = None,
    heads: DimOption = None,
    kv_heads: DimOption = None,
    head_dim: DimOption = None,
    d_model: DimOption = None,
    d_ff: DimOption = None,
    d_out: DimOption = None,
    causal: Causal = None,
    dtype: Annotated[
        str | None, typer.Option(help="Element type. Default: float32, or the model's where the kernel has it.")
    ] = None,
    regime: Annotated[str, Regime] = "warm",
    objective: Annotated[str, Objective] = "latency",
    budget: Annotated[
        str | None, typer.Option(help="Time for the whole run: 90s, 2m. Default: as long as it takes.")
    ] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Measure every choice too, and report the search's regret.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first answer: fewer samples, and 30s where no budget is given.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the log: what was measured is not measured again.")
    ] = False,
    oversubscribe: Annotated[
        bool, typer.Option("--oversubscribe", help="Also try more threads than CPUs in reach.")
    ] = False,
    compilers: Annotated[str, typer.Option(help="Compilers to try, comma separated: first, all, or names.")] = "first",
    seed: Annotated[int, typer.Option(min=0, help="Seed of inputs, search and race order.")] = 0,
    device: Annotated[str, Device] = "cpu",
    counters: Annotated[
        bool, typer.Option("--counters", help="On a GPU: also count what the winners move, through ncu.")
    ] = False,
    workload: WorkloadFile = None,
    from_log: FromLog = None,
    regex: Regex = None,
    bar: Annotated[
        float, typer.Option(min=0, max=100, help="Percent by which a choice must beat the table's to land.")
    ] = 1.5,
    kernel_dir: KernelDir = None,
    as_json: Json = False,
) -> None:
    """Measure on this machine, or on one of its GPUs, and write the deployment table."""
    from advisor import pipeline, show, tuning, tuning_result
    from advisor.arguments import seconds, sizes
    from advisor.asked import Wanted
    from advisor.gate import Bar
    from advisor.missed import CatchUp
    from advisor.policy.workload import asked as asked_workload

    shape = shape_of(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        d_model=d_model,
        d_ff=d_ff,
        d_out=d_out,
        causal=causal,
    )
    is_open = dtype is None and not shape and n is None and model_config is None
    named = str(getattr(context.get_parameter_source("kernel"), "name", "")) != "DEFAULT"
    request = tuning.TuneRequest(
        kernels=pipeline.kernel_names(kernel, kernel_dir or (), device=device),
        sizes=() if n is None else sizes(n),
        dtype=dtype or "float32",
        shape=tuple(shape.items()),
        budget_s=None if budget is None else seconds(budget),
        exhaustive=exhaustive,
        quick=quick,
        resume=resume,
        oversubscribe=oversubscribe,
        compilers=compilers,
        seed=seed,
        kernel_dirs=tuple(kernel_dir or ()),
        regime=regime,
        objective=objective,
        device=device,
        counters=counters,
        started=BEGUN.get(),
        bar=Bar(bar / 100, asked_workload(workload, from_log, regex, pipeline.kernel_names("all", kernel_dir or ()))),
        catch_up=CatchUp(shapes=is_open, kernels=is_open and not named),
    )
    if model_config is not None:
        wanted = Wanted(request.sizes, dtype, batch or 1, named=kernel != "all")
        request, notes = tuning.for_model(request, model_config, wanted)
        for note in notes:
            say(note)
    with show.progress(say) as progress:
        results = tuning.tune(request, progress, say)
    if as_json:
        documents = [tuning_result.result_json(result) for result in results]
        emit(documents[0] if len(documents) == 1 else documents)
    else:
        typer.echo(show.tuned(results[0]) if len(results) == 1 else show.all_tuned(results))
    for result in results:
        if result.missing:
            whose = "" if len(results) == 1 else f"{result.kernel}: "
            say(f"{'failed' if result.failed else 'partly done'}: {whose}{result.missing}")
    if any(result.missing for result in results):
        raise typer.Exit(FAILED if all(result.failed for result in results) else PARTLY)

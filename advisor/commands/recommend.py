"""advisor recommend: what to run with at a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from advisor.commands.common import (
    Causal,
    Device,
    DimOption,
    FromLog,
    Json,
    Kernels,
    ModelConfig,
    Objective,
    Regex,
    Regime,
    Sizes,
    WorkloadFile,
    emit,
    naming,
    shape_of,
)
from advisor.errors import BadInput, UnknownName
from advisor.guard import say

if TYPE_CHECKING:
    from advisor.answers import Answer
    from advisor.serving import Sheet

FORMATS = (
    "text for people; to start something: env, numactl, taskset, omp-places, llama.cpp, vllm, torch, systemd, slurm, "
    "kubernetes; as data: json, csv, markdown."
)


def recommend(
    n: Sizes,
    kernel: Kernels = "all",
    model_config: ModelConfig = None,
    batch: DimOption = None,
    heads: DimOption = None,
    kv_heads: DimOption = None,
    head_dim: DimOption = None,
    d_model: DimOption = None,
    d_ff: DimOption = None,
    d_out: DimOption = None,
    causal: Causal = None,
    dtype: Annotated[str | None, typer.Option(help="Element type.")] = None,
    regime: Annotated[str | None, Regime] = None,
    objective: Annotated[str | None, Objective] = None,
    machine: Annotated[
        str | None, typer.Option(help="machine.json of another machine; its tables lie beside it.")
    ] = None,
    device: Annotated[str | None, Device] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Answer from stale rows too, and say what has changed since.")
    ] = False,
    single: Annotated[
        bool, typer.Option("--single", help="Only the one setting that loses least where a server cannot switch.")
    ] = False,
    output: Annotated[str, typer.Option("--format", help=FORMATS)] = "text",
    counters: Annotated[
        bool, typer.Option("--counters", help="Also what one call moves, where tuning counted it.")
    ] = False,
    workload: WorkloadFile = None,
    from_log: FromLog = None,
    regex: Regex = None,
    as_json: Json = False,
) -> None:
    """Say what to run with at this size, how sure that is, and why."""
    from advisor import moved, pipeline, serving
    from advisor.arguments import sizes
    from advisor.asked import Wanted
    from advisor.policy import launch
    from advisor.policy.workload import asked as asked_workload
    from advisor.policy.workload import outside, shares

    if output not in launch.FORMATS:
        raise UnknownName("no such format", got=output, allowed=", ".join(launch.FORMATS))
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
    named = {"dtype": dtype, "regime": regime}
    wanted = {**shape, **{name: value for name, value in named.items() if value is not None}}
    where = pipeline.Where(machine, device, objective, force)
    if model_config is not None:
        own = Wanted(sizes(n), dtype, batch or 1, named=kernel != "all")
        asked = serving.Asked(model_config, kernel, shape, own, regime or "warm")
        policy, questions, notes = serving.for_model(asked, where, sizes(n))
        answers = serving.answers_of(policy, questions, sizes(n))
    else:
        policy, answers = pipeline.recommend(kernel, sizes(n), wanted, where)
        questions, notes = serving.questions_of(answers), ()
    if output not in ("text", "json", *launch.TABLES) and not (single or as_json or model_config):
        answers, told = serving.last_tuned(policy, answers)
        notes = (*notes, *filter(None, [told]))
    for note in (*notes, *policy.notes):
        say(note)
    several = model_config is not None or len({answer.kernel for answer, _ in answers}) > 1
    wanted_sheet = single or (several and output in ("text", "json") and policy.site.gpu is None)
    known = {*pipeline.kernel_names("all"), *(answer.kernel for answer, _ in answers)}
    load = asked_workload(workload, from_log, regex, known)
    weights = shares(load, sizes(n))
    if load is not None and (beyond := outside(load.overall(), sizes(n))):
        say(beyond)
    sheet = serving.sheet(policy, questions, weights, machine) if wanted_sheet else None
    if single and sheet is not None:
        answers = [(serving.setting_of(sheet), max(weights))]
    moves = [moved.of(policy.sections(answer.kernel), answer, size) if counters else {} for answer, size in answers]
    _tell(_Told(answers, tuple(moves), sheet, "json" if as_json else output, single))


class _Told(NamedTuple):
    """What there is to tell: answers with their n, what each call moves, the sheet where one was asked for; how."""

    answers: Sequence[tuple[Answer, int]]
    moves: Sequence[dict[str, Any]]
    sheet: Sheet | None
    output: str
    single: bool


def _tell(told: _Told) -> None:
    """Print it.

    Raises:
        BadInput: several answers, in a format of one.
    """
    from advisor import serving
    from advisor import sheet as sheets
    from advisor.policy import launch

    output, sheet = told.output, told.sheet
    if output == "json":
        more = {} if sheet is None else serving.to_dict(sheet, launch.to_dict)
        pairs = zip(told.answers, told.moves, strict=True)
        emit({"answers": [{**launch.to_dict(answer, n), **move} for (answer, n), move in pairs], **more})
    elif sheet is not None and output == "text":
        typer.echo(sheets.single_text(sheet) if told.single else sheets.text(sheet))
    elif output in launch.TABLES:
        typer.echo(launch.tabled(output, told.answers))
    else:
        _one_by_one(told)


def _one_by_one(told: _Told) -> None:
    """A sheet an answer, or the one answer of a format that starts something. Raises BadInput."""
    from advisor import moved
    from advisor.policy import launch

    output = told.output
    if output != "text" and len(told.answers) > 1:  # a shell would take them all, and the last would win unseen
        raise BadInput(
            f"--format {output} prints one answer",
            got=f"{len(told.answers)} answers",
            allowed="one kernel, one shape and one size, or --single",
            next_step=f"name one, for example {naming(told.answers)}",
        )
    for (answer, n), move in zip(told.answers, told.moves, strict=True):
        for warning in (*answer.warnings, *launch.unsaid(output, answer)) if output != "text" else ():
            say(warning)  # the sheet has them
        typer.echo(launch.render(output, answer, n))
        if move and output == "text":
            typer.echo(f"  counted  {moved.sentence(move, answer.expected_ns)}")

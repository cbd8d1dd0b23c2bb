"""advisor run: a command under what is recommended, or under a placement and process part by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.commands.common import Causal, Device, DimOption, Json, Objective, Regime, shape_of
from advisor.errors import BadInput
from advisor.guard import say

if TYPE_CHECKING:
    from advisor.answers import Answer

NO_SETTING = "no single setting follows for several sizes or kernels where nobody measured here; name one --n"

SETTINGS = {"allow_interspersed_args": False}
"""The first word that is no option begins the command, whose own options are not ours."""


def run(
    command: Annotated[list[str] | None, typer.Argument(help="The command and its arguments, after --.")] = None,
    kernel: Annotated[str, typer.Option("--kernel", "-k", help="The kernels that the command spends its time in.")] = (
        "decode"
    ),
    n: Annotated[
        str | None,
        typer.Option("--n", help="The size it is run at; of several, or of none, the one setting that loses least."),
    ] = None,
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
    device: Annotated[str | None, Device] = None,
    force: Annotated[bool, typer.Option("--force", help="Use stale rows too.")] = False,
    placement: Annotated[str | None, typer.Option(help="By hand: where threads run.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="By hand: how many.")] = None,
    wait_policy: Annotated[str | None, typer.Option(help="By hand: default, active or passive.")] = None,
    spin: Annotated[int | None, typer.Option(min=0, help="By hand: GOMP_SPINCOUNT.")] = None,
    memory_policy: Annotated[str | None, typer.Option(help="By hand: default, local, interleave or bind.")] = None,
    as_json: Json = False,
) -> None:
    """Run a command under the recommended placement and process part; its exit status is the command's."""
    from advisor import running

    path = _found(command)
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
    axes = {**shape, **{key: one for key, one in (("dtype", dtype), ("regime", regime)) if one is not None}}
    asked = running.Asked(placement, threads, wait_policy, spin, memory_policy)
    by_hand = any(one is not None for one in asked)
    told = n is not None or not by_hand
    answer = _recommended(kernel, n, axes, (None, device, objective, force)) if told else None
    answer = running.by_hand(asked, answer) if by_hand or answer is None else answer
    wanted = None if answer.basis == "DEFAULT" else running.setting(answer)
    _tell(answer, wanted, as_json)
    try:
        running.start(path, command or [], wanted, lambda text: say(f"advisor: {text}"))
    except running.NoCommand as error:
        say(f"advisor: {error}")
        raise typer.Exit(error.status) from None


def _found(command: list[str] | None) -> str:
    """The path of the program."""
    from advisor import running

    try:
        return running.find(command or [])
    except running.NoCommand as error:
        say(f"advisor: {error}")
        raise typer.Exit(error.status) from None


def _recommended(
    kernel: str, n: str | None, axes: dict[str, Any], where: tuple[None, str | None, str | None, bool]
) -> Answer:
    """The answer to what was asked; to several sizes, kernels or shapes the one setting that loses least.

    Args:
        kernel, axes: as for `pipeline.recommend`.
        n: sizes; None: all that were tuned.
        where: the fields of `pipeline.Where`.

    Raises:
        BadInput: several answers for a GPU.
    """
    from advisor import pipeline, running, serving
    from advisor.arguments import sizes

    asked = (1,) if n is None else sizes(n)
    policy, answers = pipeline.recommend(kernel, asked, axes, pipeline.Where(*where))
    for note in policy.notes:
        say(f"advisor: {note}")
    if n is None:
        asked = running.tuned_sizes(policy, {answer.kernel for answer, _ in answers}) or asked
        answers = serving.answers_of(policy, serving.questions_of(answers), asked)
    if len(answers) == 1 or all(answer.basis == "DEFAULT" for answer, _ in answers):
        return answers[0][0]
    if policy.site.gpu is not None:
        step = "name one kernel, shape and size, for example --kernel decode --heads 1 --n 4096"
        raise BadInput("a program for a GPU runs under one answer", got=f"{len(answers)} answers", next_step=step)
    found = serving.sheet(policy, serving.questions_of(answers), dict.fromkeys(asked, 1.0), None)
    return found.setting or answers[0][0]._replace(basis="DEFAULT", why=NO_SETTING)


def _tell(answer: Answer, wanted: Any, as_json: bool) -> None:
    """What is set, on standard error: standard output is the command's."""
    from advisor import running

    if as_json:
        told = None if wanted is None else wanted._asdict()
        say(json.dumps({"basis": answer.basis, "why": answer.why, "set": told}))
        return
    if wanted is None:
        say(f"advisor: the command runs as it is; {answer.basis}: {answer.why}")
        return
    say(f"advisor: {running.words(answer)}")
    for warning in answer.warnings:
        say(f"advisor: {warning}")

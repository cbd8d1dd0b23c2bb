"""advisor run: a command under what is recommended, or under a placement and process part by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.commands.common import Causal, Device, DimOption, Json, Objective, Regime, naming, shape_of
from advisor.errors import BadInput
from advisor.guard import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.answers import Answer
    from advisor.lookup import Policy
    from advisor.running import Plan

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
    if any(one is not None for one in asked):
        _check_by_hand(n, device, {**axes, **{"objective": objective, "force": force or None}})
        told = None if n is None else _recommended(kernel, n, axes, (None, device, objective, force))
        if told is None or told.basis == "DEFAULT":  # which is not set, whole or in part
            plan = running.alone(asked)
        else:
            plan = running.plan(running.by_hand(asked, told))
    else:
        plan = running.plan(_recommended(kernel, n, axes, (None, device, objective, force)))
    _tell(plan, as_json)
    try:
        running.start(path, command or [], plan.setting, lambda text: say(f"advisor: {text}"))
    except running.NoCommand as error:
        say(f"advisor: {error}")
        raise typer.Exit(error.status) from None


def _check_by_hand(n: str | None, device: str | None, narrowing: dict[str, Any]) -> None:
    """Refuse what would be passed over beside something by hand.

    Args:
        n: the size of the answer that parts are changed of; None: there is no answer.
        device: of the answer.
        narrowing: options that say which answer.

    Raises:
        BadInput: a GPU, or options that say which answer where there is none.
    """
    if device not in (None, "cpu"):
        step = "leave out --device, or what is set by hand"
        raise BadInput("a program for a GPU has no team that is set by hand", got=device, allowed="cpu", next_step=step)
    named = [name for name, value in narrowing.items() if value is not None]
    if n is None and named:
        step = "name its --n; without one only what is named by hand is set"
        raise BadInput("which answer is meant is said with its size", got=", ".join(named), next_step=step)


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
    found = _one_of(policy, answers, asked)
    named = [] if kernel == "all" else pipeline.kernel_names(kernel, tabled=[p["kernel"] for p in policy.problems()])
    bare = [name for name in named if name not in {answer.kernel for answer, _ in answers}]
    told = (f"nothing is known of {', '.join(bare)}, which counts for nothing in this",) if bare else ()
    return found._replace(warnings=(*found.warnings, *told))


def _one_of(policy: Policy, answers: list[tuple[Answer, int]], asked: Sequence[int]) -> Answer:
    """The answer, or of several the one setting.

    Args:
        policy: that gave them.
        answers: with their n.
        asked: all n.

    Raises:
        BadInput: several answers for a GPU.
    """
    from advisor import serving

    if len(answers) == 1 or all(answer.basis == "DEFAULT" for answer, _ in answers):
        return answers[0][0]
    if policy.site.gpu is not None:
        step = f"name one, for example {naming(answers)}"
        raise BadInput("a program for a GPU runs under one answer", got=f"{len(answers)} answers", next_step=step)
    found = serving.sheet(policy, serving.questions_of(answers), dict.fromkeys(asked, 1.0), None)
    if found.single is None:
        return _agreed(answers)
    from advisor import sheet as sheets

    told = tuple(f"{name}: {words}" for name, words in sheets.left_out(found.single))
    if found.setting is None:
        why = "the placement of the one setting makes no sense here"
        return answers[0][0]._replace(basis="DEFAULT", why=why, warnings=told)
    return found.setting._replace(warnings=(*found.setting.warnings, *told))


def _agreed(answers: list[tuple[Answer, int]]) -> Answer:
    """One answer for several that were not measured here: any, where they set the same; else none.

    Args:
        answers: two or more, with their n.
    """
    first = answers[0][0]
    alike = {(a.basis, a.threads, a.cpus, a.wait_policy, a.spin, a.memory_policy) for a, _ in answers}
    if len(alike) == 1:
        return first._replace(why=f"all {len(answers)} answers agree; the first: {first.why}")
    why = f"nobody measured here, and {len(answers)} answers disagree, which differ in {_differing(answers)}"
    return first._replace(basis="DEFAULT", why=why, warnings=())


def _differing(answers: list[tuple[Answer, int]]) -> str:
    """In what several questions differ, with the options that name one."""
    kernels = sorted({answer.kernel for answer, _ in answers})
    shapes = {(answer.kernel, answer.dtype, answer.regime, answer.shape_pairs) for answer, _ in answers}
    sizes = sorted({n for _, n in answers})
    found = [f"kernel ({', '.join(kernels)}: name one with --kernel)"] if len(kernels) > 1 else []
    found += ["shape (name --heads and the like)"] if len(shapes) > len(kernels) else []
    found += [f"size ({sizes[0]} to {sizes[-1]}: name one with --n)"] if len(sizes) > 1 else []
    return ", ".join(found)


def _tell(plan: Plan, as_json: bool) -> None:
    """What is set, on standard error: standard output is the command's."""
    if as_json:
        told = None if plan.setting is None else plan.setting._asdict()
        say(json.dumps({"basis": plan.basis, "why": plan.why, "set": told, "warnings": plan.warnings}))
        return
    say(f"advisor: {plan.what}; {plan.basis}: {plan.why}")
    for warning in plan.warnings:
        say(f"advisor: {warning}")

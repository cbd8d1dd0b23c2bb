"""Serving: what a server's prompts and steps should run with, kernel by kernel, and the one setting for all of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import model as models
from advisor.asked import CACHE, ROWS, SEQUENCE, Wanted, is_training, of_model, role
from advisor.errors import AdvisorError, BadInput
from advisor.kernels import registry
from advisor.kernels.served import served
from advisor.paths import machine_dir
from advisor.pipeline import Where, kernel_names, load
from advisor.policy.single import Single, Timing, phases_of, single
from advisor.policy.timings import Current, latest, of_log, of_sections
from advisor.search.log import NAMES
from advisor.words import many

if TYPE_CHECKING:
    from advisor.answers import Answer
    from advisor.lookup import Policy

PREFILL, DECODE, TRAINING = "prefill", "decode", "training"


Axes = tuple[tuple[str, Any], ...]


class Question(NamedTuple):
    """One problem apart from its n: `label` names it among the others; `axes` what a policy is asked with."""

    label: str
    kernel: str
    axes: Axes


class Line(NamedTuple):
    """One answer of a sheet, and the phase it is for; `n` of the kernel (1 for rows of a decoding step)."""

    phase: str
    label: str
    n: int
    answer: Answer


class Sheet(NamedTuple):
    """All answers of a server's phases at some sizes.

    `single`: the best setting where it cannot switch; None where nothing was measured. `setting`: that as an answer.
    """

    lines: tuple[Line, ...]
    single: Single | None = None
    setting: Answer | None = None


class Asked(NamedTuple):
    """What the kernels of a model are asked for: path of its configuration, kernels, entries that count instead."""

    path: str
    kernels: str
    shape: Mapping[str, int]
    wanted: Wanted
    regime: str = "warm"


# --- questions ---


def questions_of(answers: Iterable[tuple[Answer, int]]) -> tuple[Question, ...]:
    """The problems that answers are of, those of several shapes of a kernel told apart."""
    found: dict[tuple[str, Axes], None] = {}
    for answer, _ in answers:
        known = {"dtype": answer.dtype, "regime": answer.regime} if answer.dtype else {}
        found[answer.kernel, tuple(sorted({**known, **answer.shape}.items()))] = None
    return tuple(Question(_label(kernel, axes, list(found)), kernel, axes) for kernel, axes in found)


def last_tuned(policy: Policy, answers: Sequence[tuple[Answer, int]]) -> tuple[list[tuple[Answer, int]], str]:
    """Of several tuned shapes of one kernel at one n, the one that was tuned last: who starts a server means that one.

    Args:
        policy: that gave the answers.
        answers: with their n.

    Returns:
        That answer, and a sentence on the others; all of them and no words where there is nothing to choose by.
    """
    all_of_them, made = list(answers), [_made(policy, answer) for answer, _ in answers]
    one_question = len({(answer.kernel, n) for answer, n in answers}) == 1
    if len(answers) < 2 or not one_question or not max(made) or made.count(max(made)) > 1:
        return all_of_them, ""
    last = made.index(max(made))
    asked = questions_of(answers)
    told = f"{asked[last].label}, tuned last of {many(len(asked), 'shape')}; the others: "
    return [all_of_them[last]], told + ", ".join(q.label for i, q in enumerate(asked) if i != last)


def _made(policy: Policy, answer: Answer) -> str:
    """When the shape of an answer was tuned on this machine; empty where it was not."""
    own = {"dtype": answer.dtype, "regime": answer.regime, "shape": answer.shape}
    found = [s for s in policy.sections(answer.kernel) if {name: s[name] for name in own} == own]
    return max((str(s.get("created") or "") for s in found if not s.get("basis")), default="")


def _label(kernel: str, axes: Axes, everything: Sequence[tuple[str, Axes]]) -> str:
    """The kernel, with the axes in which the problems of it differ."""
    others = [dict(other) for name, other in everything if name == kernel]
    own = [(name, value) for name, value in axes if any(other.get(name) != value for other in others)]
    return " ".join(
        [kernel, *(str(value) if name in ("dtype", "regime") else f"{name}={value}" for name, value in own)]
    )


def for_model(asked: Asked, where: Where, sizes: Sequence[int]) -> tuple[Policy, tuple[Question, ...], tuple[str, ...]]:
    """The policy, a question for each kernel of a model, and what must be said of them.

    Raises:
        BadInput: no such model, or it has no use for a kernel that was named.
        UnknownName: no such kernel.
    """
    from advisor.untuned import filled

    policy = load(where)
    installed = registry.kernels()
    names = [name for name in kernel_names(asked.kernels) if name in installed]
    given = {entry: value for entry, value in asked.shape.items() if entry != "batch"}
    able = served(names, (), policy.site.gpu is not None)
    owns, notes = of_model(models.read(asked.path, given), [registry.spec(name) for name in names], asked.wanted, able)
    axes = {one.kernel: {"dtype": one.dtype, "regime": asked.regime, **dict(one.shape)} for one in owns}
    policy = filled(policy, axes, (where.machine, where.device), sizes)
    asked_of = (Question(one.kernel, one.kernel, tuple(sorted(axes[one.kernel].items()))) for one in owns)
    return policy, tuple(asked_of), notes


def answers_of(policy: Policy, questions: Sequence[Question], sizes: Sequence[int]) -> list[tuple[Answer, int]]:
    """The answer of every question at every size, as `pipeline.recommend` gives them."""
    return [(policy.best(one.kernel, n, **dict(one.axes)), n) for one in questions for n in sizes]


# --- the sheet ---


def sheet(policy: Policy, questions: Sequence[Question], weights: Mapping[int, float], machine: str | None) -> Sheet:
    """What a server should run with.

    Args:
        policy: this machine's tables.
        questions: its kernels.
        weights: n -> how often it comes, for the single setting.
        machine: path of the machine.json that is answered for; None: the machine at hand.
    """
    kinds = {question.kernel: _kind(question.kernel) for question in questions}
    lines = [line for n in weights for question in questions for line in _lines(policy, question, kinds, n)]
    order = (PREFILL, DECODE, TRAINING)
    lines = sorted(dict.fromkeys(lines), key=lambda line: order.index(line.phase))
    if policy.site.gpu is not None:
        return Sheet(tuple(lines))
    served = {q.label: kinds[q.kernel] for q in questions if kinds[q.kernel] != TRAINING}
    best = single(_timings(policy, questions, machine), phases_of(served, weights))
    return Sheet(tuple(lines), best, None if best is None else _as_answer(policy, best))


def _kind(kernel: str) -> str:
    """What a kernel's n is, or training; a kernel that is not installed is taken for one of a sequence."""
    if kernel not in registry.kernels():
        return SEQUENCE
    spec = registry.spec(kernel)
    return TRAINING if is_training(spec) else role(spec)


def _lines(policy: Policy, question: Question, kinds: Mapping[str, str], n: int) -> list[Line]:
    kind = kinds[question.kernel]
    places = {
        CACHE: [(DECODE, n)],
        ROWS: [(PREFILL, n), (DECODE, 1)],
        SEQUENCE: [(PREFILL, n)],
        TRAINING: [(TRAINING, n)],
    }[kind]
    return [
        Line(phase, question.label, at, policy.best(question.kernel, at, **dict(question.axes))) for phase, at in places
    ]


def _timings(policy: Policy, questions: Sequence[Question], machine: str | None) -> list[Timing]:
    site = policy.site
    folder = os.path.dirname(os.path.abspath(machine)) if machine else machine_dir(site.hardware_id, site.limits_id)
    labels, found = {}, []
    for question in questions:
        axes = dict(question.axes)
        dtype, regime = axes.pop("dtype", None), axes.pop("regime", None)
        own = [
            section
            for section in policy.sections(question.kernel)
            if (section["dtype"], section["regime"], dict(section["shape"])) == (dtype, regime, axes)
            and not section.get("basis")  # what was measured here, not carried from elsewhere
        ]
        found += of_sections(question.label, own, _current(question.kernel))
        if dtype and regime:
            labels[question.kernel, dtype, regime, tuple(sorted(axes.items()))] = question.label
    logs = (os.path.join(folder, name) for name in NAMES)
    return latest(found, [one for path in logs for one in of_log(path, labels, _current)])


@functools.lru_cache
def _current(kernel: str) -> Current:
    """Whether a build of a kernel is of a variant at hand, unchanged; one that comes from elsewhere counts as that."""
    from advisor.ranges import here_hash

    known = functools.lru_cache(lambda variant: here_hash(kernel, variant))
    return lambda build: known(build["variant"]) in (None, build["source_hash"])


def _as_answer(policy: Policy, best: Single) -> Answer | None:
    """The setting as an answer, for the formats that start a process; None where its placement makes no sense here."""
    from advisor.ranges import default_answer, team

    chosen = best.setting
    try:
        threads, cpus = team(policy.site, chosen.threads, chosen.placement)
    except AdvisorError:
        return None
    return default_answer(policy.site, "all kernels", "")._replace(
        threads=threads,
        cpus=cpus,
        placement=chosen.placement,
        wait_policy=chosen.wait_policy,
        spin=chosen.spin,
        memory_policy=chosen.memory_policy,
        basis=best.basis,
        why=f"the setting that loses least where a server cannot switch, of {best.compared} compared",
    )


def setting_of(found: Sheet) -> Answer:
    """The single setting as an answer.

    Raises:
        BadInput: there is none.
    """
    if found.setting is None:
        raise BadInput(
            "a single setting follows from what was measured at these n",
            got="nothing" if found.single is None else "a placement that makes no sense here",
            next_step="tune the kernels first, or ask at sizes within the tuned region",
        )
    return found.setting


# --- for programs ---


def to_dict(found: Sheet, render: Any) -> dict[str, Any]:
    """The parts of `advisor recommend --json` that only a sheet has.

    Args:
        found: the sheet.
        render: (answer, n) -> the JSON data of one answer.
    """
    phases: dict[str, list[Any]] = {}
    for line in found.lines:
        phases.setdefault(line.phase, []).append(render(line.answer, line.n))
    return {"phases": phases, "single": _single_json(found)}


def _single_json(found: Sheet) -> dict[str, Any] | None:
    best, setting = found.single, found.setting
    if best is None:
        return None
    chosen = best.setting._asdict()
    return {
        **chosen,
        "cpus": None if setting is None or setting.cpus is None else list(setting.cpus),
        "basis": best.basis,
        "loss": best.loss,
        "phases": [{**share._asdict(), "loss": share.loss} for share in best.shares],
        "unmeasured": [{"kernel": kernel, "n": n} for kernel, n in best.unmeasured],
        "unknown": [{"kernel": kernel, "n": n} for kernel, n in best.unknown],
        "compared": best.compared,
    }

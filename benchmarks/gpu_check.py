"""The part `check`: every variant for devices, right on a few problems in every dtype, then timed once; a line each.

    python -m benchmarks.gpu check --out DIR [--seconds S] [--resume] [--kernel forward,fused]

Being right needs no quiet device, so a dozen workers check at a time; times are taken by one worker alone. What is left
of the time goes to other knobs than the defaults, one problem each. A worker that dies costs one problem.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Any, NamedTuple

from gpu_cells import CHAIN, shape_of, spec_of
from gpu_crew import Crew, shares
from gpu_ground import tools
from kernel_race import Deadline

from advisor.kernels.edges import BOUND_TO_SHAPE, FURTHER
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.header import GPU_LANGUAGES, LIBRARY_GPU_LANGUAGES, Variant, read_variant
from advisor.kernels.libraries import FLAGS
from advisor.kernels.registry import folders, is_source
from advisor.kernels.variant import is_valid, knob_sets
from advisor.records import Build, Choice, Machine, Measurement, Pairs, Problem, pairs

KERNELS = (*CHAIN, "norm_linear", "decode")
"""In the order in which they are checked; one without variants for devices has no lines."""

CHECK_S, TIMED_S = 25.0, 30.0
EDGE_N = (131, 17, 1)
TIMED, SERVED_N = (2048, 64, 512), 2048
"""n of the paper's shape, and of the served one."""

MOST_SHAPES = 3
"""Shapes on which a variant is checked that is compiled for each shape apart."""

MOST_CRASHES = 2
"""A variant that crashed, hung or could not even start so often is not run again."""

FIRST_SHARE = 0.6
"""Of the time, what checks with the defaults may take before times are taken."""

FATAL = ("crashed", "timeout", "skipped")
SAMPLES = Ask(3, TIMED_S, 0.001)


class Task(NamedTuple):
    """One variant in one dtype."""

    variant: Variant
    dtype: str

    @property
    def key(self) -> dict[str, str]:
        """What tells its row from others."""
        return {"kernel": self.variant.kernel, "variant": self.variant.name, "dtype": self.dtype}


class Seen(NamedTuple):
    """One problem of a variant: status, error over tolerance (None: unknown), why, medians of times in us."""

    problem: str
    knobs: str
    status: str
    share: float | None
    reason: str
    time_us: float | None = None


# --- what is checked ---


def tasks(kernels: Iterable[str] = KERNELS) -> tuple[list[Task], list[str]]:
    """Every variant in every dtype, our own first and each variant's first dtype before its others; what cannot even be
    read."""
    found, broken = list[Task](), list[str]()
    for kernel in kernels:
        dtypes, known = readable(kernel, broken)
        found += [Task(one, dtype) for one in known for dtype in one.dtypes if dtype in dtypes]
    order = list(kernels)

    def rank(one: Task) -> tuple[bool, int, int]:
        library = one.variant.language in LIBRARY_GPU_LANGUAGES
        return library, one.variant.dtypes.index(one.dtype), order.index(one.variant.kernel)

    return sorted(found, key=rank), broken


def readable(kernel: str, broken: list[str]) -> tuple[tuple[str, ...], list[Variant]]:
    """A kernel's dtypes and the variants whose headers can be read, whatever is wrong with others; that goes into
    `broken`."""
    try:
        dtypes = spec_of(kernel).dtypes
    except Exception as error:  # a module of somebody's that does not even import
        broken.append(f"{kernel}: {type(error).__name__}: {error}")
        return (), []
    known = []
    for folder in folders().get(kernel, ()):
        for path in (os.path.join(folder, name) for name in sorted(os.listdir(folder))):
            try:
                known += [read_variant(path, kernel)] if is_source(path) else []
            except Exception as error:  # as above
                broken.append(f"{kernel} {os.path.basename(path)}: {error}")
    return dtypes, [one for one in known if one.language in GPU_LANGUAGES]


def choice_of(variant: Variant, knobs: Pairs) -> Choice | None:
    """The choice with these knobs; None where there is no tool for its language."""
    tool = next((tool.name for tool in tools() if tool.language == variant.language), None)
    return None if tool is None else Choice(Build(variant.name, variant.source_hash, knobs, tool, FLAGS), None, None)


def usual(variant: Variant, problem: Problem) -> Pairs | None:
    """The default knobs, or the first valid ones; None where the variant does not take the problem."""
    if is_valid(variant, problem, variant.defaults):
        return variant.defaults
    return next(iter(knob_sets(variant, problem)), None)


@functools.cache
def problems(task: Task) -> list[tuple[Problem, str]]:
    """What a variant is checked on, with the draw of inputs, the paper's shape first."""
    spec, variant = spec_of(task.variant.kernel), task.variant
    edges = [one for one in spec.edges() if one.dtype == task.dtype and usual(variant, one) is not None]
    by_shape: dict[Pairs, list[Problem]] = {}
    for one in edges:
        by_shape.setdefault(one.shape, []).append(one)
    shapes = list(by_shape)[: MOST_SHAPES if variant.language in BOUND_TO_SHAPE else None]
    found = []
    for shape in shapes:
        sizes = sorted((one.n for one in by_shape[shape]), reverse=True)
        wanted = [n for n in EDGE_N if n in sizes] or sizes[:1]
        found += [(one, "normal") for n in wanted for one in by_shape[shape] if one.n == n]
    extra = [(found[0][0], draw) for draw in spec.draws if draw != "normal"] if found else []
    return [*found, *extra]


def timed_problems(task: Task) -> list[Problem]:
    """What a variant of the chain is timed on: the paper's shape, and in 16 bits the served one too."""
    kernel, dtype = task.variant.kernel, task.dtype
    if kernel not in CHAIN:
        return []
    shapes = [("P", n) for n in TIMED] + [("S", SERVED_N)] * (dtype in ("bfloat16", "float16"))
    found = [spec_of(kernel).problem(n, dtype, "warm", **shape_of(kernel, name)) for name, n in shapes]
    return [one for one in found if usual(task.variant, one) is not None]


@functools.cache
def others(task: Task) -> list[tuple[Problem, Pairs]]:
    """Knob sets beside the usual ones, each on one problem: they take turns over those of `hard`."""
    found = dict[Pairs, list[Problem]]()
    for problem in hard(task):
        first = usual(task.variant, problem)
        for knobs in knob_sets(task.variant, problem):
            if knobs != first:
                found.setdefault(knobs, []).append(problem)
    return [(places[turn % len(places)], knobs) for turn, (knobs, places) in enumerate(found.items())]


def hard(task: Task) -> list[Problem]:
    """The first problem of a variant, with and without a mask, at its n and beyond: keys in many tiles and splits."""
    found = problems(task)[:1]
    spec = spec_of(task.variant.kernel)
    masks = ({"causal": 0}, {"causal": 1}) if "causal" in spec.parameters else ({},)
    return [
        problem._replace(n=n, shape=pairs(dict(problem.shape) | mask))
        for problem, _ in found
        for n in (problem.n, *FURTHER[:2])
        for mask in masks
    ]


# --- checking ---


def checked(pool: GpuPool, task: Task, deadline: Deadline) -> list[Seen]:
    """A variant on all its problems, until it crashed too often or time is out."""
    seen: list[Seen] = []
    for problem, draw in problems(task):
        if sum(one.status in FATAL for one in seen) >= MOST_CRASHES or not deadline.left_s():
            break
        seen.append(one_check(pool, task.variant, problem, usual(task.variant, problem) or (), draw))
    return seen


def one_check(pool: GpuPool, variant: Variant, problem: Problem, knobs: Pairs, draw: str = "normal") -> Seen:
    """One problem with one set of knobs."""
    choice = choice_of(variant, knobs)
    if choice is None:
        return Seen(words(problem, draw), "", "skipped", None, f"no tool for {variant.language}")
    try:
        found = pool.check(problem, choice, CHECK_S, draw)
    except Exception as error:  # whatever it is, the other variants go on
        found = Measurement(problem, choice, "skipped", reason=f"{type(error).__name__}: {error}")
    named = "" if knobs == variant.defaults else " ".join(f"{key}={value}" for key, value in knobs)
    return Seen(words(problem, draw), named, found.status, share(found.error, found.tolerance), found.reason)


def timed(pool: GpuPool, task: Task, problem: Problem) -> Seen:
    """One problem, checked and timed with the usual knobs, without the edge problems, which were checked before."""
    knobs = usual(task.variant, problem) or ()
    choice = choice_of(task.variant, knobs)
    if choice is None:
        return Seen(words(problem), "", "skipped", None, f"no tool for {task.variant.language}")
    try:
        answer = pool.crew.ask(pool.trial(problem, choice, SAMPLES, "normal"), TIMED_S)
    except Exception as error:  # as above
        return Seen(words(problem), "", "skipped", None, f"{type(error).__name__}: {error}")
    reply = answer.reply
    if reply is None or answer.status != "ok":
        return Seen(words(problem), "", answer.status, None, answer.reason)
    median_us = sorted(reply.samples_ns)[len(reply.samples_ns) // 2] * 1e-3
    return Seen(words(problem), "", "ok", share(reply.error, reply.tolerance), "", median_us)


def share(error: float | None, tolerance: float | None) -> float | None:
    """An error as a share of what is allowed."""
    return None if error is None or not tolerance else error / tolerance


def words(problem: Problem, draw: str = "normal") -> str:
    """A problem in a few words."""
    shape = " ".join(f"{key}={value}" for key, value in problem.shape)
    return f"n={problem.n} {shape}{'' if draw == 'normal' else f' {draw}'}"


# --- the part ---


Row = dict[str, Any]
"""What is known of a variant in one dtype: checks, times, knobs, each a list of Seen; whole: whether that is all."""

Keep = Callable[[Task, Row], None]
"""Takes a row as plain data, each time that it changed."""


class Checking(NamedTuple):
    """One run of the part: workers, what is known so far, when it ends, who keeps rows."""

    crew: Crew
    rows: dict[Task, Row]
    deadline: Deadline
    keep: Keep


def run(machine: Machine, wanted: Sequence[Task], deadline: Deadline, keep: Keep) -> bool:
    """Check, time, then try other knobs; nothing is begun after the deadline. Returns whether all was done."""
    if not wanted:
        return True
    kernels = [one.variant.kernel for one in wanted]
    known = {kernel: [one.variant for one in wanted if one.variant.kernel == kernel] for kernel in kernels}
    with Crew(machine.gpus[0], known, shares(kernels)) as crew:
        run = Checking(crew, {}, deadline, keep)
        checks(run, wanted)
        timings(run)
        knobs_too(run)
        for task, row in run.rows.items():
            row["whole"] = is_whole(task, row)
            keep(task, plain(row))
        return all(row["whole"] for row in run.rows.values())


def checks(run: Checking, wanted: Sequence[Task]) -> None:
    """Check all with the usual knobs, side by side."""
    first = Deadline(FIRST_SHARE * run.deadline.left_s())
    waiting = {
        run.crew.submit(one.variant.kernel, lambda pool, one=one: checked(pool, one, first)): one for one in wanted
    }
    for done in as_completed(waiting):
        task = waiting[done]
        run.rows[task] = {"checks": done.result(), "times": [], "knobs": [], "whole": False}
        run.keep(task, plain(run.rows[task]))
        print(line(task, run.rows[task]), flush=True)


def timings(run: Checking) -> None:
    """Take times, one worker at a time: of each problem those of all variants, which share its operands."""
    able = [task for task, row in run.rows.items() if sum(one.status in FATAL for one in row["checks"]) < MOST_CRASHES]
    wanted: dict[Problem, list[Task]] = {}
    for task in able:
        for problem in timed_problems(task):
            wanted.setdefault(problem, []).append(task)
    for problem in sorted(wanted, key=lambda one: (TIMED.index(one.n), one.kernel, one.dtype)):
        for task in wanted[problem]:
            if run.deadline.left_s() > 1.0:
                do = lambda pool, t=task, p=problem: timed(pool, t, p)  # noqa: E731
                run.rows[task]["times"].append(run.crew.submit(problem.kernel, do).result())
    for task in able:
        run.keep(task, plain(run.rows[task]))
        print(line(task, run.rows[task]), flush=True)


def knobs_too(run: Checking) -> None:
    """Check other knobs, all workers at once; what was wrong with the defaults is left alone."""

    def one(pool: GpuPool, task: Task, problem: Problem, knobs: Pairs) -> Seen | None:
        return one_check(pool, task.variant, problem, knobs) if run.deadline.left_s() > 1.0 else None

    waiting = {}
    for task, problem, knobs in in_turn([task for task, row in run.rows.items() if is_right(row)]):
        do = lambda pool, t=task, p=problem, k=knobs: one(pool, t, p, k)  # noqa: E731
        waiting[run.crew.submit(task.variant.kernel, do)] = task
    for done in as_completed(waiting):
        seen, task = done.result(), waiting[done]
        run.rows[task]["knobs"] += [seen] if seen else []
        if seen and seen.status != "ok":
            print(f"  {headline(task)} {seen.knobs}: {seen.status}: {seen.reason[:300]}", flush=True)


def is_whole(task: Task, row: Row) -> bool:
    """Whether nothing is left to do for a variant."""
    if not is_right(row):
        return any(one.status in FATAL for one in row["checks"]) or len(row["checks"]) == len(problems(task))
    done = len(row["times"]) == len(timed_problems(task)) and len(row["knobs"]) == len(others(task))
    return done and len(row["checks"]) == len(problems(task))


def in_turn(wanted: Sequence[Task]) -> Iterator[tuple[Task, Problem, Pairs]]:
    """Other knobs of all tasks, a set of each in turn."""
    left = [[(task, *one) for one in others(task)] for task in wanted]
    for turn in range(max(map(len, left), default=0)):
        yield from (each[turn] for each in left if turn < len(each))


def is_right(row: Row) -> bool:
    """Whether a variant was right wherever it was checked."""
    return bool(row["checks"]) and all(one.status == "ok" for one in row["checks"])


def plain(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    return {name: [one._asdict() for one in row[name]] for name in ("checks", "times", "knobs")} | {
        "whole": row["whole"]
    }


# --- shown ---


def headline(task: Task) -> str:
    """A variant and dtype in a few words."""
    return f"{task.variant.kernel} {task.variant.name} {task.dtype}"


def line(task: Task, row: Row) -> str:
    """A variant in one line."""
    return shown(headline(task), plain(row))


def shown(name: str, row: dict[str, Any]) -> str:
    """A row of plain data in one line: the worst status, how near to its tolerance, times in us, why not."""
    listed = [*row["checks"], *row["times"], *row["knobs"]]
    bad = [one for one in listed if one["status"] != "ok"]
    near = max((one["share"] for one in listed if one["share"] is not None), default=None)
    times = [f"{one['problem'].split()[0][2:]}: {one['time_us']:.4g}" for one in row["times"] if one["time_us"]]
    counts = f"{len(row['checks'])} checks, {len(row['knobs'])} other knobs"
    about = f"{counts}, error {'-' if near is None else f'{near:.2g}'} of tolerance"
    text = f"{bad[0]['status'] if bad else 'ok':8} {name}: {about}"
    text += f"; us {', '.join(times)}" if times else ""
    if not bad:
        return text
    one = bad[0]
    first = f"; {len(bad)} of {len(listed)} bad, first at {one['problem']}"
    return text + f"{first}{' ' + one['knobs'] if one['knobs'] else ''}: {one['reason'][:400]}"


def summary(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """What is right in one sentence, and a line of each that is not."""
    listed = [(name, shown(name, row)) for name, row in rows]
    bad = [text for _, text in listed if not text.startswith("ok")]
    return [*bad, f"{len(listed) - len(bad)} of {len(listed)} variants and dtypes are right in all that was checked"]

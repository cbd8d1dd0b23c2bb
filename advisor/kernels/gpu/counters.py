"""What a choice really moves on a device, by the hardware's own counters where they may be read. docs/counters.md.

Counting is apart from timing: a profiler replays a kernel pass by pass, so its duration is not the choice's time, and a
counter never overrules a time. Where nobody may count, the outcome says why and what would help; nothing is tried
twice, and no driver or agent is touched.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.executor import Ask
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.counted import COUNTED, MARK, START
from advisor.kernels.gpu.counts import Counters, Kernel, NoCounters, in_total, longest_waits
from advisor.kernels.gpu.messages import Hello, Trial
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.profiled import Ran, Start, Tool, run_under, tool
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Choice, Gpu, Problem

CALLS = 3
"""Calls that are counted, one of a slow choice; a figure is their median, and kernels that differ from call to call are
noticed."""

LIMIT_S = 90.0
"""Wall-clock limit of one counting: starting takes seconds, and ncu waits for other ncus."""

ATTEMPT_S = 45.0
"""Of an attempt: nothing is compiled and no operand is made for it."""

LEAST_S = 4.0
"""Less than this beside what a start costs is not worth a further program."""

MORE_TIME = "give a larger --budget"
"""The remedy where the time for counting was short, not the profiler slow."""

NO_NCU = NoCounters("ncu (Nsight Compute) is not installed", "install it, or put the folder of ncu on PATH")

Counted = Counters | NoCounters
Wanted = tuple[Problem, Choice]


class Source(NamedTuple):
    """A kernel, and the variants of it that choices may name."""

    spec: KernelSpec
    variants: Sequence[Variant]


class Came(NamedTuple):
    """What came of counting: of each choice in the order they were asked for, and of each program its start."""

    each: tuple[Counted, ...]
    starts: tuple[Start, ...] = ()


def count(
    gpu: Gpu, spec: KernelSpec, variant: Variant, problem: Problem, choice: Choice, limit_s: float = LIMIT_S
) -> Counted:
    """Count what one call of a choice does on one problem; see `count_all`."""
    return count_all(gpu, spec, (variant,), ((problem, choice),), limit_s)[0]


def count_all(
    gpu: Gpu,
    spec: KernelSpec,
    variants: Sequence[Variant],
    wanted: Sequence[Wanted],
    limit_s: float = LIMIT_S,
    metrics: Sequence[ncu.Metric] = ncu.CORE,
) -> tuple[Counted, ...]:
    """What `count_kernels` counts of one kernel."""
    return count_kernels(gpu, (Source(spec, variants),), wanted, limit_s, metrics).each


def count_kernels(
    gpu: Gpu,
    sources: Sequence[Source],
    wanted: Sequence[Wanted],
    limit_s: float = LIMIT_S,
    metrics: Sequence[ncu.Metric] = ncu.CORE,
) -> Came:
    """Count what one call of each choice does on its problem, in one program under ncu for each regime.

    Args:
        gpu: the device.
        sources: the kernels of the problems.
        wanted: what is counted, the most wanted first: what there is no time for is not begun. Cold problems: caches
            are flushed before every kernel; warm ones: they keep what the calls before left in them.
        limit_s: wall-clock limit of a program. It ends by itself before that, and what it has counted is kept.
        metrics: what is counted; figures of others are None.

    Returns:
        In the order of `wanted`: the counters, or why there are none: no ncu, no permission, counters held by somebody
        else, a hang, no time, output that cannot be read, or a choice that does not run.
    """
    program = ncu.find()
    if program is None:
        return Came(tuple(NO_NCU for _ in wanted))
    found: dict[Wanted, Counted] = {}
    starts: list[Start] = []
    refused: NoCounters | None = None
    by = Tool(program, metrics, 1 if set(metrics) - set(ncu.CORE) else CALLS)  # many passes, and figures that stay
    for regime in dict.fromkeys(problem.regime for problem, _ in wanted):
        own = [one for one in dict.fromkeys(wanted) if one[0].regime == regime]
        came = Came((refused,) * len(own)) if refused else _of_regime(by, gpu, sources, own, limit_s)
        found.update(zip(own, came.each, strict=True))
        starts += came.starts
        refused = next((one for one in came.each if isinstance(one, NoCounters) and one.everywhere), None)
    return Came(tuple(found[one] for one in wanted), tuple(starts))


def count_fully(
    gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], wanted: Sequence[Wanted], limit_s: float = LIMIT_S
) -> tuple[Counted, ...]:
    """What `count_all` counts, and with the time that is left what explains it: ncu.DETAIL takes many passes, and where
    they do not end in time the first figures stand. Args: as of `count_all`; `limit_s` is of both.
    """
    begun = time.monotonic()
    sources = (Source(spec, variants),)
    came = count_kernels(gpu, sources, wanted, limit_s)
    first = dict(zip(wanted, came.each, strict=True))
    able = [one for one in first if isinstance(first[one], Counters)]
    left_s = limit_s - (time.monotonic() - begun)
    if able and left_s >= LEAST_S + sum(one.cost_s for one in came.starts):
        more = count_kernels(gpu, sources, able, left_s, ncu.DETAIL).each
        first.update((one, joined(first[one], detail)) for one, detail in zip(able, more, strict=True))
    return tuple(first[one] for one in wanted)


def joined(first: Counted, detail: Counted) -> Counted:
    """The first figures with those that only `detail` has, where both are of the same kernels."""
    if isinstance(first, NoCounters) or isinstance(detail, NoCounters):
        return first
    if [one.name for one in first.kernels] != [one.name for one in detail.kernels]:
        return first
    kernels = tuple(_filled(one, more) for one, more in zip(first.kernels, detail.kernels, strict=True))
    passes = max(filter(None, (first.passes, detail.passes)), default=None)
    return first._replace(
        call=in_total(kernels), kernels=kernels, seconds=round(first.seconds + detail.seconds, 3), passes=passes
    )


def _filled(one: Kernel, more: Kernel) -> Kernel:
    lacking = {name: value for name, value in more._asdict().items() if getattr(one, name) is None}
    return one._replace(**lacking)


def attempt(gpu: Gpu, limit_s: float = ATTEMPT_S) -> Start | NoCounters:
    """Count a kernel that does nothing: whether counters can be had on a device at all, and how long a start takes.

    Args:
        gpu: the device.
        limit_s: wall-clock limit.
    """
    program = ncu.find()
    if program is None:
        return NO_NCU
    hello = Hello("", 0, gpu.uuid or "")
    return judged_start(run_under(Tool(program, ncu.CORE, 1), "cold", hello.uuid, (hello,), limit_s))


# --- running ---


class Seen(NamedTuple):
    """The kernels of one call, how many calls they are the medians of, and the most passes that one of them took."""

    kernels: tuple[Kernel, ...]
    calls: int
    passes: int | None = None


def _of_regime(by: Tool, gpu: Gpu, sources: Sequence[Source], wanted: Sequence[Wanted], limit_s: float) -> Came:
    begun = time.monotonic()
    trials, found = _trials(gpu, sources, wanted, limit_s)
    if not trials:
        return Came(tuple(found[one] for one in wanted))
    regime = wanted[0][0].regime
    ran = run_under(by, regime, gpu.uuid or "", _messages(gpu, sources, trials), limit_s)
    caches = "flushed" if ncu.CACHES[regime] == "all" else "kept"
    seconds = (time.monotonic() - begun) / len(trials)
    for one, seen in zip(trials, judged(ran, len(trials)), strict=True):
        found[one] = seen if isinstance(seen, NoCounters) else _of_seen(seen, caches, tool(by.path), seconds)
    return Came(tuple(found[one] for one in wanted), () if ran.start is None else (ran.start,))


def _trials(
    gpu: Gpu, sources: Sequence[Source], wanted: Sequence[Wanted], limit_s: float
) -> tuple[dict[Wanted, Trial], dict[Wanted, Counted]]:
    """What a program is told of each choice; why the others cannot run."""
    trials: dict[Wanted, Trial] = {}
    found: dict[Wanted, Counted] = {}
    with ExitStack() as stack:
        pools = {one.spec.name: stack.enter_context(GpuPool(gpu, one.spec, one.variants)) for one in sources}
        for problem, choice in wanted:
            try:
                trials[problem, choice] = pools[problem.kernel].trial(problem, choice, Ask(0, limit_s), "normal")
            except AdvisorError as error:
                found[problem, choice] = NoCounters(str(error), "", everywhere=False)
    return trials, found


def _messages(gpu: Gpu, sources: Sequence[Source], trials: dict[Wanted, Trial]) -> list[Hello | Trial]:
    """The trials in order, a Hello before each that is of another kernel than the one before it."""
    hellos = {one.spec.name: Hello(origin(one.spec), 0, gpu.uuid or "") for one in sources}
    told: list[Hello | Trial] = []
    last = None
    for (problem, _), trial in trials.items():
        told += [trial] if problem.kernel == last else [hellos[problem.kernel], trial]
        last = problem.kernel
    return told


def _of_seen(seen: Seen, caches: str, by: str, seconds: float) -> Counters:
    whole = in_total(seen.kernels)
    return Counters(whole, seen.kernels, seen.calls, caches, by, round(seconds, 3), seen.passes)


# --- judging ---


def judged(ran: Ran, count: int) -> list[Seen | NoCounters]:
    """For each of so many trials the kernels of one call, or why they are not known."""
    refused = _refused(ran)
    if refused is not None:
        return [refused] * count
    words = ncu.complaint(ran.output)
    try:
        launches = calls_of(ncu.parse(ran.output))
    except BadInput as error:
        unread = NoCounters(f"{error}{f'; ncu said: {words}' if words else ''}", "", everywhere=False)
        return [unread] * count
    return [_of_trial(ran, number, launches.get(number, [])) for number in range(1, count + 1)]


def judged_start(ran: Ran) -> Start | NoCounters:
    """Of a program that counted nothing but its first launch: what that cost, or why nobody can count."""
    if ran.start is None:
        return _refused(ran) or _never_ran(ran)
    known = ncu.refusal(ran.output)
    if known is not None:
        return NoCounters(known.reason, known.remedy)
    try:
        rows = [row for row in ncu.parse(ran.output) if row.name == START and row.figures]
    except BadInput as error:
        return NoCounters(f"{error}; ncu said: {ncu.complaint(ran.output) or 'nothing'}", "")
    return ran.start if rows else NoCounters("a counter must have a value, got n/a in every one", "")


def _refused(ran: Ran) -> NoCounters | None:
    """Why nothing at all was counted, None where something may have been."""
    known = ncu.refusal(ran.output)
    if known is not None:
        return NoCounters(known.reason, known.remedy)
    if ran.status == 124:
        slow = "see whether another profiler is at work, and whether nvidia-smi answers"
        remedy = slow if ran.limit_s >= ATTEMPT_S else MORE_TIME
        begun = f", {ran.start.start_s:.1f} s of which were its start" if ran.start else " before its first launch"
        return NoCounters(f"ncu was ended after {ran.limit_s:.0f} s{begun}", remedy)
    if ran.replies:
        return None
    return _no_time(ran) if ran.start is not None and not ran.status else _never_ran(ran)


def _never_ran(ran: Ran) -> NoCounters:
    last = ncu.complaint(ran.output) or " ".join(ran.output.split())[-200:]
    return NoCounters(f"ncu ran no choice (exit status {ran.status}): {last}", "try `ncu --version` by hand")


def _of_trial(ran: Ran, number: int, calls: list[list[ncu.Row]]) -> Seen | NoCounters:
    if number > len(ran.replies):
        return _not_begun(ran)
    reply = ran.replies[number - 1]
    if reply.status != "ok":
        return NoCounters(f"the choice did not run under ncu: {reply.status}: {reply.reason}", "", everywhere=False)
    wanted = dict(reply.conditions).get(COUNTED, CALLS)
    try:
        passes = [row.passes for rows in calls for row in rows if row.passes is not None]
        return Seen(of_call(calls, wanted), wanted, max(passes, default=None))
    except BadInput as error:
        return NoCounters(str(error), "", everywhere=False)


def _not_begun(ran: Ran) -> NoCounters:
    """Why the program did not get to its last choice."""
    if not ran.replies[-1].sound:
        lost = f"not begun: an earlier choice lost the device ({ran.replies[-1].reason})"
        return NoCounters(lost, "", everywhere=False)
    if ran.status:
        early = f"not begun: the program ended early (exit status {ran.status}) {ncu.complaint(ran.output)}".rstrip()
        return NoCounters(early, "", everywhere=False)
    return _no_time(ran)._replace(everywhere=False)


def _no_time(ran: Ran) -> NoCounters:
    """A program that ended by itself in time, before it came to a choice."""
    start = f", {ran.start.start_s:.1f} s of which ncu took to start" if ran.start else ""
    return NoCounters(f"no time was left within {ran.limit_s:.0f} s{start}", MORE_TIME)


def calls_of(rows: Sequence[ncu.Row]) -> dict[int, list[list[ncu.Row]]]:
    """Number of a trial -> its calls, each the launches between its mark and the next one.

    Raises:
        BadInput: a launch before the first mark, or a mark without a number.
    """
    found: dict[int, list[list[ncu.Row]]] = {}
    last: list[ncu.Row] | None = None
    for row in rows:
        if row.name == START and last is None:
            continue
        if row.name == MARK and row.blocks is not None:
            last = []
            found.setdefault(row.blocks, []).append(last)
        elif last is None or row.name == MARK:
            raise BadInput("launches must come after the mark of their call", got=row.name)
        else:
            last.append(row)
    return found


def of_call(calls: Sequence[Sequence[ncu.Row]], wanted: int = CALLS) -> tuple[Kernel, ...]:
    """The kernels of one call: the same ones in every call, each figure the median.

    Args:
        calls: the launches of each.
        wanted: how many there must be.

    Raises:
        BadInput: calls are missing or differ, or no figure is known.
    """
    each = [[row.name for row in rows] for rows in calls]
    if len(each) != wanted or not each[0] or any(one != each[0] for one in each):
        raise BadInput(f"there must be {wanted} calls of equal launches", got=[one[:6] for one in each])
    if not any(row.figures for row in calls[0]):
        raise BadInput("a counter must have a value", got="n/a in every one")
    return tuple(_median(rows) for rows in zip(*calls, strict=True))


def _median(rows: Sequence[ncu.Row]) -> Kernel:
    figures, stalls = _medians([row.figures for row in rows]), _medians([row.stalls for row in rows])
    return Kernel(rows[0].name, **figures, stalls=longest_waits(stalls))


def _medians(each: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of every figure that each of them has."""
    known = set.intersection(*(set(one) for one in each))
    return {name: statistics.median(one[name] for one in each) for name in known}

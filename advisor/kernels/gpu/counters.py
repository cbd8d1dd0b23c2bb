"""What a choice really moves on a device, by the hardware's own counters where they may be read. docs/counters.md.

Counting is apart from timing: a profiler replays a kernel pass by pass, so its duration is not the choice's time, and a
counter never overrules a time. Where nobody may count, the outcome says why and what would help; nothing is tried
twice, and no driver or agent is touched.
"""

from __future__ import annotations

import functools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput
from advisor.kernels import registry
from advisor.kernels.compilers import private_child
from advisor.kernels.executor import Ask
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.counted import ASKED, COUNTED, MARK, REPLIES
from advisor.kernels.gpu.counts import Counters, Kernel, NoCounters, in_total, longest_waits
from advisor.kernels.gpu.messages import Hello, Trial, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_default
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.messages import Reply, decode
from advisor.kernels.process import run
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, variants
from advisor.paths import cache_dir
from advisor.records import Choice, Gpu, Problem

CALLS = 3
"""Calls that are counted, one of a slow choice; a figure is their median, and kernels that differ from call to call are
noticed."""

LIMIT_S = 90.0
"""Wall-clock limit of one counting: importing, compiling and checking take seconds, and ncu waits for other ncus."""

LEAST_S = 10.0
"""Less than this is not worth a further program."""

MORE_TIME = "tune again with a larger --budget"
"""The remedy where the time for counting was short, not the profiler slow."""

Counted = Counters | NoCounters
Wanted = tuple[Problem, Choice]


class Tool(NamedTuple):
    """The path of ncu, what it counts, and of how many calls."""

    path: str
    metrics: Sequence[ncu.Metric]
    calls: int


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
    """Count what one call of each choice does on its problem, in one small program under ncu for each regime.

    Args:
        gpu: the device.
        spec: of the problems' kernel.
        variants: those that the choices name.
        wanted: what is counted. Cold problems: caches are flushed before every kernel; warm ones: they keep what the
            calls before left in them.
        limit_s: wall-clock limit of a program, after which all of it is ended.
        metrics: what is counted; figures of others are None.

    Returns:
        In the order of `wanted`: the counters, or why there are none: no ncu, no permission, counters held by somebody
        else, a hang, output that cannot be read, or a choice that does not run.
    """
    program = ncu.find()
    if program is None:
        none = NoCounters("ncu (Nsight Compute) is not installed", "install it, or put the folder of ncu on PATH")
        return tuple(none for _ in wanted)
    found: dict[Wanted, Counted] = {}
    refused: NoCounters | None = None
    for regime in dict.fromkeys(problem.regime for problem, _ in wanted):
        own = [one for one in dict.fromkeys(wanted) if one[0].regime == regime]
        by = Tool(program, metrics, 1 if set(metrics) - set(ncu.CORE) else CALLS)  # many passes, and figures that stay
        known = [refused] * len(own) if refused else _of_regime(by, gpu, spec, variants, own, limit_s)
        found.update(zip(own, known, strict=True))
        refused = next((one for one in known if isinstance(one, NoCounters) and one.everywhere), None)
    return tuple(found[one] for one in wanted)


def count_fully(
    gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], wanted: Sequence[Wanted], limit_s: float = LIMIT_S
) -> tuple[Counted, ...]:
    """What `count_all` counts, and with the time that is left what explains it: ncu.DETAIL takes many passes, and where
    they do not end in time the first figures stand. Args: as of `count_all`; `limit_s` is of both.
    """
    begun = time.monotonic()
    first = dict(zip(wanted, count_all(gpu, spec, variants, wanted, limit_s), strict=True))
    able = [one for one in first if isinstance(first[one], Counters)]
    left_s = limit_s - (time.monotonic() - begun)
    if able and left_s >= LEAST_S:
        more = count_all(gpu, spec, variants, able, left_s, ncu.DETAIL)
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


def attempt(gpu: Gpu, limit_s: float = LIMIT_S) -> Counted:
    """Count a small decode, to see whether counters can be had on a device at all."""
    spec, found = registry.spec("decode"), variants("decode", (), GPU_LANGUAGES)
    try:
        problem = spec.problem(64, "float16")
        tools = [(tool.name, tool.language) for tool in gpu_tools()]
        choice = gpu_default(gpu, spec, found, problem, tools)
    except AdvisorError as error:
        return NoCounters(str(error), "", everywhere=False)
    return count_all(gpu, spec, found, ((problem, choice),), limit_s, ncu.ONE)[0]


# --- running ---


class Ran(NamedTuple):
    """How a program under ncu ended.

    Attributes:
        status: ncu's exit status, 124 when it was ended at the limit.
        output: all that ncu and the program printed.
        replies: what the program said of its trials, in order; it may have got to some of them only.
        limit_s: the limit.
    """

    status: int
    output: str
    replies: tuple[Reply, ...]
    limit_s: float


class Seen(NamedTuple):
    """The kernels of one call, how many calls they are the medians of, and the most passes that one of them took."""

    kernels: tuple[Kernel, ...]
    calls: int
    passes: int | None = None


def _of_regime(
    by: Tool, gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], wanted: Sequence[Wanted], limit_s: float
) -> list[Counted]:
    found: dict[Wanted, Counted] = {}
    trials: dict[Wanted, Trial] = {}
    begun = time.monotonic()
    with GpuPool(gpu, spec, variants) as pool:
        for problem, choice in wanted:
            try:
                trials[problem, choice] = pool.trial(problem, choice, Ask(0, limit_s), "normal")
            except AdvisorError as error:
                found[problem, choice] = NoCounters(str(error), "", everywhere=False)
    if trials:
        regime = wanted[0][0].regime
        hello = Hello(origin(spec), 0, gpu.uuid or "")
        each = judged(_run(by, regime, hello, list(trials.values()), limit_s), len(trials))
        caches = "flushed" if ncu.CACHES[regime] == "all" else "kept"
        seconds = (time.monotonic() - begun) / len(trials)
        for one, seen in zip(trials, each, strict=True):
            found[one] = seen if isinstance(seen, NoCounters) else _of_seen(seen, caches, tool(by.path), seconds)
    return [found[one] for one in wanted]


def _of_seen(seen: Seen, caches: str, by: str, seconds: float) -> Counters:
    whole = in_total(seen.kernels)
    return Counters(whole, seen.kernels, seen.calls, caches, by, round(seconds, 3), seen.passes)


def _run(by: Tool, regime: str, hello: Hello, trials: Sequence[Trial], limit_s: float) -> Ran:
    with tempfile.TemporaryDirectory(prefix="advisor-ncu-") as folder:
        with open(os.path.join(folder, ASKED), "wb") as file:
            file.writelines([encode(hello), *map(encode, trials)])
        log_path = os.path.join(folder, "log")
        limits = [str(by.calls), str(max(1, round(limit_s)))]
        target = [sys.executable, "-P", "-m", "advisor.kernels.gpu.counted", folder, *limits]
        command = ncu.command(by.path, regime, log_path, target, by.metrics)
        status, printed = run(command, limit_s, variables=_variables(hello.uuid))
        log, said = _read(log_path), _read(os.path.join(folder, REPLIES))
    return Ran(status, f"{printed}\n{log}", tuple(map(_reply, said.splitlines())), limit_s)


def _variables(uuid: str) -> dict[str, str]:
    """The environment of a bench worker; ncu's lock file in a folder of one's own, where no other user's lies."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    locks = private_child(private_child(cache_dir(), "gpu"), "ncu")
    return {**environment({}, uuid), "PYTHONPATH": path, "TMPDIR": locks}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _reply(line: str) -> Reply:
    try:
        found = decode(line.encode())
    except BadInput as error:
        return Reply("crashed", str(error))
    return found if isinstance(found, Reply) else Reply("crashed", "no reply")


@functools.cache
def tool(program: str) -> str:
    """Name and version of ncu."""
    _, output = run([program, "--version"], 30.0)
    version = re.search(r"\b(\d{4}\.\d+(\.\d+)*)", output)
    return f"ncu {version[1]}" if version else "ncu"


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


def _refused(ran: Ran) -> NoCounters | None:
    """Why nothing at all was counted, None where something may have been."""
    known = ncu.refusal(ran.output)
    if known is not None:
        return NoCounters(known.reason, known.remedy)
    if ran.status == 124:
        slow = "see whether another profiler is at work, and whether nvidia-smi answers"
        remedy = slow if ran.limit_s >= LIMIT_S else MORE_TIME
        return NoCounters(f"ncu was ended after {ran.limit_s:g} s", remedy)
    if not ran.replies:
        last = ncu.complaint(ran.output) or " ".join(ran.output.split())[-200:]
        return NoCounters(f"ncu ran no choice (exit status {ran.status}): {last}", "try `ncu --version` by hand")
    return None


def _of_trial(ran: Ran, number: int, calls: list[list[ncu.Row]]) -> Seen | NoCounters:
    if number > len(ran.replies):
        return NoCounters(f"not begun: {_end(ran)}", "", everywhere=False)
    reply = ran.replies[number - 1]
    if reply.status != "ok":
        return NoCounters(f"the choice did not run under ncu: {reply.status}: {reply.reason}", "", everywhere=False)
    wanted = dict(reply.conditions).get(COUNTED, CALLS)
    try:
        passes = [row.passes for rows in calls for row in rows if row.passes is not None]
        return Seen(of_call(calls, wanted), wanted, max(passes, default=None))
    except BadInput as error:
        return NoCounters(str(error), "", everywhere=False)


def _end(ran: Ran) -> str:
    """Why the program did not get to its last choice."""
    if not ran.replies[-1].sound:
        return f"an earlier choice lost the device ({ran.replies[-1].reason})"
    if ran.status:
        return f"the program ended early (exit status {ran.status}) {ncu.complaint(ran.output)}".rstrip()
    return f"no time was left within {ran.limit_s:g} s"


def calls_of(rows: Sequence[ncu.Row]) -> dict[int, list[list[ncu.Row]]]:
    """Number of a trial -> its calls, each the launches between its mark and the next one.

    Raises:
        BadInput: a launch before the first mark, or a mark without a number.
    """
    found: dict[int, list[list[ncu.Row]]] = {}
    last: list[ncu.Row] | None = None
    for row in rows:
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

"""Timing in a bench worker: samples long enough, and repeated when something else held a thread off its CPU.

What worked best of what was tried (docs/search.md): warm up until the rate is stable, samples of 0.5 to 2 ms, a sample
is rejected when its threads waited for a CPU more than 1 % of it.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Callable
from typing import NamedTuple

WAIT_SHARE = 0.01
"""A sample whose threads together waited longer than this share of it for a CPU is rejected."""

RETRIES = 4
"""Times a rejected sample is repeated; after that the last one is kept and counted as noisy."""

SWITCH_SLICE_NS = 100e6
"""Without run delays: one involuntary switch for each begun 100 ms is let pass, as a 1 ms slice would be 1 % of it."""

AIM = 1.25
"""Calls are chosen to overshoot the least duration by this much, so that it is seldom missed."""

STABLE = 0.1
"""Warm-up ends when the time of a call is within this share of that of the warm-up before."""

WARM_UPS = 8
"""Warm-ups at most, each of twice as many calls as the one before, as far as they stay shorter than a sample."""

WARM_NS = 20e6
"""A further warm-up that would end after this long is not begun: a long call is warmed up by two."""

PILOT_SAMPLES = 3
"""Where nothing is rejected, calls a sample follow from the mean rate over the time of so many: one fast call among
stalls would plan samples of minutes, one stall among fast calls samples too short to hold another."""

PLANS, SHORT = 6, 0.25
"""There the plan is mended so often at most, while a sample takes less than this share of its duration."""

OVERRUN = 100
"""There a sample is cut off after so many times its duration, should every call stall from then on: 2 s of 20 ms. One
long stall does not reach that far, and must not: a sample cut off has fewer calls and counts as much as the others."""

PIECES = 20
"""There a sample is run in so many pieces, so that it can be cut off."""

LONG_NS = 5e8
"""There a first call of so long is its own sample: no stall of a scheduler lasts half a second."""

LEAST_WINDOW = 3
"""Samples of a window at least, however long they take."""

FEW, CONTENDER = 3, 0.625
"""After three samples, the best of which is over 0.625 of what one sample is given up at, no more are taken."""

MOST_CALLS = 1 << 24
_TASKS = "/proc/self/task"


class Reading(NamedTuple):
    """Nanoseconds run and waited by each thread so far, and involuntary switches of the process."""

    ran: dict[int, int]
    waited: dict[int, int]
    switches: int


class Meter:
    """Reads what the scheduler did to this process's threads. Keeps the files open; `close` it."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        first = self._threads()
        self.kind = "schedstat" if any(ran > 0 for ran, _ in first.values()) else "switches"

    def read(self) -> Reading:
        """The counters now."""
        found = self._threads() if self.kind == "schedstat" else {}
        switches = 0 if found else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        return Reading(
            {tid: ran for tid, (ran, _) in found.items()}, {tid: wait for tid, (_, wait) in found.items()}, switches
        )

    def close(self) -> None:
        """Close the files. Idempotent."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _threads(self) -> dict[int, tuple[int, int]]:
        found = {}
        try:
            tids = {int(name) for name in os.listdir(_TASKS)}
        except OSError:
            tids = set()
        for tid in list(self._files):
            if tid not in tids:
                os.close(self._files.pop(tid))
        for tid in tids:
            with contextlib.suppress(OSError, ValueError):
                words = os.pread(self._file(tid), 64, 0).split()
                found[tid] = (int(words[0]), int(words[1]))
        return found

    def _file(self, tid: int) -> int:
        if tid not in self._files:
            self._files[tid] = os.open(f"{_TASKS}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return self._files[tid]


def is_noisy(before: Reading, after: Reading, elapsed_ns: float) -> bool:
    """Whether something else held the threads up between two readings for more than the share that is let pass."""
    if after.waited:
        waited = sum(wait - before.waited.get(tid, 0) for tid, wait in after.waited.items())
        return waited > WAIT_SHARE * elapsed_ns
    return after.switches - before.switches > elapsed_ns / SWITCH_SLICE_NS


class Plan(NamedTuple):
    """How to sample. `calls`: the number a sample started with last time, 0 if unknown. `quiet`: reject noisy ones;
    else that number means nothing, the samples go on for the time of so many, and there may be fewer or more of them.
    """

    samples: int
    sample_ns: float
    give_up_ns: float | None
    calls: int = 0
    quiet: bool = True


class Samples(NamedTuple):
    """Mean time of a call in each sample, and in each rejected one; `kept_noisy` of the kept should have been."""

    samples_ns: tuple[float, ...]
    rejected_ns: tuple[float, ...]
    kept_noisy: int
    calls: int
    kernel_ns: int


Run = Callable[[int], int]
"""Runs so many calls and returns the nanoseconds they took together."""


def sample(run: Run, meter: Meter, plan: Plan) -> Samples:
    """Warm up, then the samples; ends after one that is over `give_up_ns`, after three that are all far from the best.

    A choice whose single call already fills a sample and is hopeless costs no call beyond the first two.
    """
    if not plan.quiet:
        return _window(run, meter, plan)
    spent = run(1)
    before = meter.read()
    warm = run(1)
    spent += warm
    over = plan.give_up_ns is not None and warm >= plan.sample_ns and warm > plan.give_up_ns
    if over and not is_noisy(before, meter.read(), warm):
        return Samples((float(warm),), (), 0, 1, spent)
    calls = plan.calls
    if not calls:
        calls, spent = _warm_up(run, plan.sample_ns, (spent - warm, warm))
    kept: list[float] = []
    rejected: list[float] = []
    noisy = 0
    while len(kept) < plan.samples:
        elapsed, calls, was_noisy, all_ns = _one(run, meter, plan._replace(calls=calls), rejected)
        spent += all_ns
        noisy += was_noisy
        kept.append(elapsed / calls)
        if plan.give_up_ns is not None and _no_contender(kept, plan.give_up_ns):
            break
    return Samples(tuple(kept), tuple(rejected), noisy, calls, spent)


def _window(run: Run, meter: Meter, plan: Plan) -> Samples:
    """Samples of equally many calls, one after another for the time of `plan.samples`, nothing rejected.

    Equally many, so that their mean is the mean of all calls: of samples equally long, those with a stall would hold
    few calls and count as much as the others.
    """
    calls, spent = _pilot(run, plan.sample_ns)
    kept: list[float] = []
    noisy, window_ns, elapsed_ns = 0, plan.samples * plan.sample_ns, 0
    while elapsed_ns < window_ns or len(kept) < min(LEAST_WINDOW, plan.samples):
        before = meter.read()
        elapsed, done = _in_pieces(run, calls, OVERRUN * plan.sample_ns)
        noisy += is_noisy(before, meter.read(), elapsed)
        kept.append(elapsed / done)
        elapsed_ns += elapsed
        if done < calls:
            calls = _filling(plan.sample_ns, elapsed, done)
    return Samples(tuple(kept), (), noisy, calls, spent + elapsed_ns)


def _pilot(run: Run, sample_ns: float) -> tuple[int, int]:
    """(calls that fill a sample at the mean rate of a stretch of time, all time spent). The first call is a warm-up."""
    first = run(1)
    if first >= max(LONG_NS, sample_ns):
        return 1, first
    piece, done, spent = 1, 0, 0
    while spent < PILOT_SAMPLES * sample_ns and done < MOST_CALLS:
        elapsed = run(piece)
        done, spent = done + piece, spent + elapsed
        if elapsed < sample_ns / PIECES:
            piece *= 2
    calls, total = _filling(sample_ns, spent, done), first + spent
    for _ in range(PLANS):
        elapsed, done = _in_pieces(run, calls, OVERRUN * sample_ns)
        total += elapsed
        if elapsed >= SHORT * sample_ns or calls == MOST_CALLS:
            break
        calls = _filling(sample_ns, elapsed, done)
    return calls, total


def _filling(sample_ns: float, elapsed_ns: float, calls: int) -> int:
    """Calls that fill a sample at the rate of `calls` in `elapsed_ns`."""
    return max(1, min(MOST_CALLS, round(calls * sample_ns / max(elapsed_ns, 1))))


def _in_pieces(run: Run, calls: int, limit_ns: float) -> tuple[int, int]:
    """Nanoseconds that calls took, and how many they were: all, or those done when the limit was passed."""
    elapsed = done = 0
    while done < calls and elapsed <= limit_ns:
        piece = min(max(1, calls // PIECES), calls - done)
        elapsed += run(piece)
        done += piece
    return elapsed, done


def _warm_up(run: Run, sample_ns: float, first: tuple[int, int]) -> tuple[int, int]:
    """Warm up until the rate is stable, or that takes too long: (calls that should fill a sample, all time spent).

    For a choice that was not timed before: clocks rise, caches fill, and the scheduler still spreads unpinned threads.

    Args:
        run: runs calls.
        sample_ns: least duration of a sample.
        first: nanoseconds of the first two calls.
    """
    calls, elapsed, spent = 1, first[1], sum(first)
    earlier, latest = float(first[0]), float(first[1])
    for doubling in range(1, WARM_UPS - 1):
        more = max(1, min(1 << doubling, int(sample_ns / max(latest, 1.0))))
        if abs(latest - earlier) <= STABLE * earlier or spent + more * latest > WARM_NS:
            break
        calls, elapsed = more, run(more)
        spent += elapsed
        earlier, latest = latest, elapsed / calls
    return _more(calls, elapsed, sample_ns), spent


def _no_contender(kept: list[float], give_up_ns: float) -> bool:
    """Whether more samples are of no use: the first is hopeless, or the best of three is still far from the best."""
    return kept[0] > give_up_ns or (len(kept) >= FEW and min(kept) > CONTENDER * give_up_ns)


def _one(run: Run, meter: Meter, plan: Plan, rejected: list[float]) -> tuple[int, int, bool, int]:
    """One sample of `plan.calls` calls: (its duration, calls in it, whether it is noisy all the same, all time spent).

    A sample that turns out too short (the number of calls was guessed in a slow moment) is made longer and run again.
    """
    spent, attempts, calls, sample_ns = 0, 0, plan.calls, plan.sample_ns
    while True:
        before = meter.read()
        elapsed = run(calls)
        spent += elapsed
        if elapsed < sample_ns and calls < MOST_CALLS:
            calls = _more(calls, elapsed, sample_ns)
            continue
        noisy = is_noisy(before, meter.read(), elapsed)
        if not noisy or attempts == RETRIES:
            return elapsed, calls, noisy, spent
        rejected.append(elapsed / calls)
        attempts += 1


def _more(calls: int, elapsed_ns: int, sample_ns: float) -> int:
    """Calls that should fill a sample when `calls` took `elapsed_ns`; more than before whenever that was too short."""
    if elapsed_ns >= sample_ns:
        return calls
    return min(MOST_CALLS, max(calls + 1, math.ceil(calls * AIM * sample_ns / max(elapsed_ns, 1))))

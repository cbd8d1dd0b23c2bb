"""The program that ncu looks into, `python -m advisor.kernels.gpu.counted FOLDER CALLS UNTIL`: choices one by one, of
one kernel after another, their calls marked for the profiler.

It is a bench worker's own bench with the same operands; what it is to run lies in the folder, its replies go there.
Only the marked calls are counted: loading programs, operands, the check and the calls that warm up come before. A
profiler prints when this program has ended, so it ends by itself in time.
"""

from __future__ import annotations

import faulthandler
import functools
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.gpu import foreign
from advisor.kernels.gpu.bench import Bench, Refused
from advisor.kernels.gpu.driver import Call, DeviceError, Driver
from advisor.kernels.gpu.geometry import Geometry
from advisor.kernels.gpu.messages import Hello, Program, Trial, decode
from advisor.kernels.gpu.source import STANDARD
from advisor.kernels.messages import Reply, encode
from advisor.kernels.pycall import CallFailed
from advisor.kernels.registry import load_spec
from advisor.records import Problem, pairs

ASKED, REPLIES, TIMES = "asked", "replies", "times"
"""Files in the folder: of each kernel a line of Hello and one a Trial; a line of Reply for each trial that was ended;
when the first launch was counted, and when all was done, in s on the monotonic clock, which all processes share."""

MARK, START = "advisor_mark", "advisor_start"
"""Kernels that do nothing. MARK is launched before each counted call with as many blocks as the trial's number, from 1:
so it is told which launches are of which call, however many kernels a library launches. START is counted once, first
of all: what a profiler needs until then it needs whatever comes after."""

NOTHING = 'extern "C" __global__ void {name}() {{}}'

ORPHAN_S = 30.0
"""So long after its end a program that hangs is ended by a watchdog of its own: nobody else may be left to end it."""

SLOW_S = 0.05
"""A call that takes as long is counted once: ncu runs it again for each pass, and figures of such calls vary little."""

COUNTED = "counted"
"""Of a reply's conditions: how many calls were counted."""

Marked = Callable[[], AbstractContextManager[None]]
"""What the profiler counts is what runs while it is entered."""


class TimeIsUp(Exception):
    """The program is to end now. Never leaves it."""


class CountedBench(Bench):
    """A bench that runs a few calls for a profiler instead of timing them, until a moment on the monotonic clock."""

    until = float("inf")

    def count(self, trial: Trial, number: int, calls: int, marked: Marked) -> Reply:
        """Check the problem itself, warm up, then run so many calls while `marked` is entered; one where it is slow.

        Args:
            trial: what is run; its further checks and samples are passed over.
            number: of the trial, from 1.
            calls: how many are counted at most; cold ones take sets of operands in turn.
            marked: the profiler's range.

        Raises:
            TimeIsUp: between two steps.
            Refused, DeviceError, CallFailed, MemoryError: as Bench.trial.
        """
        alone = trial._replace(checks=(), samples=0, sets=min(trial.sets, calls))
        self.prepare(alone)
        self._in_time()
        reply = self.trial(alone)
        sets = self._blocks((alone.case.problem, alone.case.draw), alone.sets)
        each = self._calls(alone.program, alone.case, sets, self._space(alone.case))
        mark = nothing(self.driver, MARK)
        for call in each:
            self._in_time()
            foreign.run(alone.program, call)
        self.driver.finish()
        calls = calls if self._call_s(alone.program, each[0]) < SLOW_S else 1
        with marked():
            for call in itertools.islice(itertools.cycle(each), calls):
                self._in_time()
                launch(self.driver, mark, number)
                foreign.run(alone.program, call)
            self.driver.finish()
        return reply._replace(conditions=pairs({**dict(reply.conditions), COUNTED: calls}))

    def leave(self) -> None:
        """Let go of large operands: another kernel is next."""
        self._forget()
        self._current = None

    def _rehearse(self, problem: Problem) -> None:
        """Nothing: what an array module compiles needs no limit kept free of it, and mostly lies in its cache."""

    def _in_time(self) -> None:
        if time.monotonic() > self.until:
            raise TimeIsUp

    def _call_s(self, program: Program, call: Call) -> float:
        begun = time.monotonic()
        foreign.run(program, call)
        self.driver.finish()
        return time.monotonic() - begun


def nothing(driver: Driver, name: str) -> object:
    """A kernel of that name that does nothing."""
    return driver.build(NOTHING.format(name=name), (STANDARD,), (name,))


def launch(driver: Driver, kernel: object, blocks: int) -> None:
    """Launch one that does nothing with so many blocks."""
    driver.launch(kernel, Geometry((blocks, 1, 1), 1, 0, 0, 0, ()), ())


def main(folder: str, calls: int, until: float) -> int:
    """Run what lies in the folder until a moment on the monotonic clock."""
    faulthandler.dump_traceback_later(max(0.0, until - time.monotonic()) + ORPHAN_S, exit=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.path.join(folder, ASKED), "rb") as file:
        messages = [decode(line) for line in file.readlines()]
    if not messages or not isinstance(messages[0], Hello):
        raise BadInput("what is counted begins with a Hello", got=messages[:1])
    from cupyx.profiler import profile

    from advisor.kernels.gpu.cuda import CudaDriver

    driver = CudaDriver(messages[0].uuid)
    with open(os.path.join(folder, TIMES), "w", encoding="utf-8") as times:
        begin(driver, profile)
        print(time.monotonic(), file=times, flush=True)
        with open(os.path.join(folder, REPLIES), "wb", buffering=0) as file:
            for reply in replies(benches(driver, until), messages, calls, profile):
                file.write(encode(reply))
        print(time.monotonic(), file=times, flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 0


def begin(driver: Driver, marked: Marked) -> None:
    """Have the profiler count a first launch, of a kernel that does nothing."""
    kernel = nothing(driver, START)
    with marked():
        launch(driver, kernel, 1)
        driver.finish()


def benches(driver: Driver, until: float) -> Callable[[Hello], CountedBench]:
    """What gives the bench of a kernel, the same one each time."""

    @functools.cache
    def bench_of(hello: Hello) -> CountedBench:
        bench = CountedBench(driver, load_spec(hello.spec_path), hello.seed)
        bench.until = until
        return bench

    return bench_of


def replies(
    bench_of: Callable[[Hello], CountedBench], messages: Iterable[Hello | Trial], calls: int, marked: Marked
) -> Iterator[Reply]:
    """A reply for each trial; whatever ends one is a status. A lost context ends them all, and so does the time.

    Args:
        bench_of: the bench of a kernel.
        messages: a Hello, then trials of that kernel; another Hello, and so on.
        calls, marked: see CountedBench.count.
    """
    bench, number = None, 0
    for message in messages:
        if isinstance(message, Hello):
            if bench is not None:
                bench.leave()
            bench = None if message.spec_path == "" else bench_of(message)
        elif bench is not None:
            number += 1
            try:
                reply = _answer(bench, message, number, calls, marked)
            except TimeIsUp:
                return
            yield reply
            if not reply.sound:
                return


def _answer(bench: CountedBench, trial: Trial, number: int, calls: int, marked: Marked) -> Reply:
    try:
        bench._in_time()
        return bench.count(trial, number, calls, marked)
    except Refused as refused:
        return refused.reply
    except DeviceError as error:
        return Reply("crashed", f"{trial.program.symbol}: {error}", sound=not error.sticky)
    except CallFailed as error:
        return Reply("crashed", f"{trial.program.symbol}: {error}", sound=False)
    except MemoryError as error:
        return Reply("skipped", f"out of device memory: {error}")
    except AdvisorError as error:
        return Reply("skipped", str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

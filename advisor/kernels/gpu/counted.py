"""The program that ncu looks into, `python -m advisor.kernels.gpu.counted FOLDER CALLS LIMIT_S`: choices one by one,
their calls marked for the profiler.

It is a bench worker's own bench with the same operands; what it is to run lies in the folder, its replies go there.
Only the marked calls are counted: compiling, operands, the check and the calls that warm up come before.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.gpu import foreign
from advisor.kernels.gpu.bench import Bench, Refused
from advisor.kernels.gpu.driver import Call, DeviceError
from advisor.kernels.gpu.geometry import Geometry
from advisor.kernels.gpu.messages import Hello, Program, Trial, decode
from advisor.kernels.gpu.source import STANDARD
from advisor.kernels.messages import Reply, encode
from advisor.kernels.pycall import CallFailed
from advisor.kernels.registry import load_spec
from advisor.records import pairs

ASKED, REPLIES = "asked", "replies"
"""Files in the folder: a line of Hello and one a Trial; a line of Reply for each trial that was begun."""

MARK = "advisor_mark"
MARK_SOURCE = f'extern "C" __global__ void {MARK}() {{}}'
"""A kernel that does nothing, launched before each counted call with as many blocks as the trial's number, from 1: so
it is told which launches are of which call, however many kernels a library launches."""

ENOUGH = 0.8
"""Of the limit: after that no further choice is begun, so that what was counted is told in time."""

SLOW_S = 0.2
"""A call that takes as long is counted once: ncu runs it again for each pass, and figures of such calls vary little."""

COUNTED = "counted"
"""Of a reply's conditions: how many calls were counted."""

Marked = Callable[[], AbstractContextManager[None]]
"""What the profiler counts is what runs while it is entered."""


class CountedBench(Bench):
    """A bench that runs a few calls for a profiler instead of timing them."""

    def count(self, trial: Trial, number: int, calls: int, marked: Marked) -> Reply:
        """Check the problem itself, warm up, then run so many calls while `marked` is entered; one where it is slow.

        Args:
            trial: what is run; its further checks and samples are passed over.
            number: of the trial, from 1.
            calls: how many are counted at most; cold ones take sets of operands in turn.
            marked: the profiler's range.

        Raises:
            Refused, DeviceError, CallFailed, MemoryError: as Bench.trial.
        """
        alone = trial._replace(checks=(), samples=0, sets=min(trial.sets, calls))
        self.prepare(alone)
        reply = self.trial(alone)
        sets = self._blocks((alone.case.problem, alone.case.draw), alone.sets)
        each = self._calls(alone.program, alone.case, sets, self._space(alone.case))
        mark = self.driver.build(MARK_SOURCE, (STANDARD,), (MARK,))
        for call in each:
            foreign.run(alone.program, call)
        self.driver.finish()
        calls = calls if self._call_s(alone.program, each[0]) < SLOW_S else 1
        with marked():
            for call in itertools.islice(itertools.cycle(each), calls):
                self.driver.launch(mark, Geometry((number, 1, 1), 1, 0, 0, 0, ()), ())
                foreign.run(alone.program, call)
            self.driver.finish()
        return reply._replace(conditions=pairs({**dict(reply.conditions), COUNTED: calls}))

    def _call_s(self, program: Program, call: Call) -> float:
        begun = time.monotonic()
        foreign.run(program, call)
        self.driver.finish()
        return time.monotonic() - begun


def main(folder: str, calls: int, limit_s: int) -> int:
    """Run what lies in the folder; ends by itself at the limit when nobody is left to end it."""
    signal.alarm(limit_s)
    until = time.monotonic() + limit_s * ENOUGH
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.path.join(folder, ASKED), "rb") as file:
        hello, *trials = (decode(line) for line in file.readlines())
    if not isinstance(hello, Hello):
        raise BadInput("what is counted begins with a Hello", got=hello)
    from cupyx.profiler import profile

    from advisor.kernels.gpu.cuda import CudaDriver

    bench = CountedBench(CudaDriver(hello.uuid), load_spec(hello.spec_path), hello.seed)
    with open(os.path.join(folder, REPLIES), "wb", buffering=0) as file:
        for reply in replies(bench, trials, calls, profile, until):
            file.write(encode(reply))
    return 0


def replies(bench: CountedBench, trials: Sequence[Trial], calls: int, marked: Marked, until: float) -> Iterator[Reply]:
    """A reply for each trial; whatever ends one is a status, and a lost context ends them all.

    Args:
        bench: of the device.
        trials: what to run.
        calls, marked: see CountedBench.count.
        until: on the monotonic clock; no trial is begun after it.
    """
    for number, trial in enumerate(trials, 1):
        if number > 1 and time.monotonic() > until:
            return
        reply = _answer(bench, trial, number, calls, marked)
        yield reply
        if not reply.sound:
            return


def _answer(bench: CountedBench, trial: Trial, number: int, calls: int, marked: Marked) -> Reply:
    try:
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
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

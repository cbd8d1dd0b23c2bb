"""The program that ncu looks into, `python -m advisor.kernels.gpu.counted FOLDER CALLS LIMIT_S`: one choice, its calls
marked for the profiler.

It is a bench worker's own bench with the same operands; what it is to run lies in the folder, its reply goes there.
Only the marked calls are counted: compiling, operands, the check and the calls that warm up come before.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from advisor.errors import AdvisorError, BadInput
from advisor.kernels.gpu.bench import Bench, Refused, guarded_call
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.messages import Hello, Trial, decode
from advisor.kernels.messages import Reply, encode
from advisor.kernels.pycall import CallFailed
from advisor.kernels.registry import load_spec

ASKED, REPLY = "asked", "reply"
"""Files in the folder: two lines, Hello and Trial; one line, a Reply."""

Marked = Callable[[], AbstractContextManager[None]]
"""What the profiler counts is what runs while it is entered."""


class CountedBench(Bench):
    """A bench that runs a few calls for a profiler instead of timing them."""

    def count(self, trial: Trial, calls: int, marked: Marked) -> Reply:
        """Check the problem itself, warm up, then run so many calls while `marked` is entered.

        Raises:
            Refused, DeviceError, CallFailed, MemoryError: as Bench.trial.
        """
        alone = trial._replace(checks=(), samples=0, sets=min(trial.sets, calls))
        self.prepare(alone)
        reply = self.trial(alone)
        sets = self._blocks((alone.case.problem, alone.case.draw), alone.sets)
        each = self._calls(alone.program, alone.case, sets, self._space(alone.case))
        for call in each:
            guarded_call(alone.program, call)
        self.driver.finish()
        with marked():
            for call in itertools.islice(itertools.cycle(each), calls):
                guarded_call(alone.program, call)
            self.driver.finish()
        return reply


def main(folder: str, calls: int, limit_s: int) -> int:
    """Run what lies in the folder; ends by itself at the limit when nobody is left to end it."""
    signal.alarm(limit_s)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.path.join(folder, ASKED), "rb") as file:
        hello, trial = (decode(line) for line in file.readlines())
    if not isinstance(hello, Hello) or not isinstance(trial, Trial):
        raise BadInput("what is counted is one trial", got=(hello, trial))
    from cupyx.profiler import profile

    from advisor.kernels.gpu.cuda import CudaDriver

    bench = CountedBench(CudaDriver(hello.uuid), load_spec(hello.spec_path), hello.seed)
    reply = answer(bench, trial, calls, profile)
    with open(os.path.join(folder, REPLY), "wb") as file:
        file.write(encode(reply))
    return 0 if reply.status == "ok" else 1


def answer(bench: CountedBench, trial: Trial, calls: int, marked: Marked) -> Reply:
    """The reply of one trial; whatever ends it is a status."""
    try:
        return bench.count(trial, calls, marked)
    except Refused as refused:
        return refused.reply
    except (DeviceError, CallFailed) as error:
        return Reply("crashed", f"{trial.program.symbol}: {error}")
    except MemoryError as error:
        return Reply("skipped", f"out of device memory: {error}")
    except AdvisorError as error:
        return Reply("skipped", str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

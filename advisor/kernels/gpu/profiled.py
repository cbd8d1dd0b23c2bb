"""One program under ncu: started, told when it must have ended, and what is left of it."""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import BadInput
from advisor.kernels.compilers import private_child
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.counted import ASKED, REPLIES, TIMES
from advisor.kernels.gpu.messages import Hello, Trial, encode
from advisor.kernels.messages import Reply, decode
from advisor.kernels.process import run
from advisor.paths import cache_dir, text_of

END_SHARE, MOST_END_S = 0.2, 10.0
"""Of a limit, what is kept for ncu to print what it has after the program has ended: a share, and so long at most. What
ncu has not printed when it is killed is lost."""


class Tool(NamedTuple):
    """The path of ncu, what it counts, and of how many calls."""

    path: str
    metrics: Sequence[ncu.Metric]
    calls: int


class Start(NamedTuple):
    """What a program under ncu costs beside what it counts.

    Attributes:
        tool: name and version of ncu.
        start_s: from its start to the end of the first counted launch: ncu, imports, context, the counters' set-up.
        end_s: from the program's last step until ncu had printed everything; None where it was killed.
        choices: how many it counted.
    """

    tool: str
    start_s: float
    end_s: float | None
    choices: int

    @property
    def cost_s(self) -> float:
        """All of it; an end that is not known is taken to be as long as is kept for it."""
        return self.start_s + (MOST_END_S if self.end_s is None else self.end_s)


class Ran(NamedTuple):
    """How a program under ncu ended.

    Attributes:
        status: ncu's exit status, 124 when it was killed at the limit.
        output: all that ncu and the program printed.
        replies: what the program said of its trials, in order; it may have got to some of them only.
        limit_s: the limit.
        start: what it cost to start; None where it never got to a first launch.
    """

    status: int
    output: str
    replies: tuple[Reply, ...]
    limit_s: float
    start: Start | None = None


def run_under(by: Tool, regime: str, uuid: str, messages: Sequence[Hello | Trial], limit_s: float) -> Ran:
    """Run a program under ncu.

    Args:
        by: ncu, and what it counts.
        regime: of the problems.
        uuid: of the device.
        messages: a Hello, then trials of that kernel; another Hello, and so on. One without a path of a spec stands
            alone: then nothing but the start is counted.
        limit_s: wall-clock limit. The program stops by itself before that, ncu with all it started is killed then.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-ncu-") as folder:
        with open(os.path.join(folder, ASKED), "wb") as file:
            file.writelines(map(encode, messages))
        log_path, begun = os.path.join(folder, "log"), time.monotonic()
        until = begun + limit_s - min(END_SHARE * limit_s, MOST_END_S)
        target = [sys.executable, "-P", "-m", "advisor.kernels.gpu.counted", folder, str(by.calls), f"{until:.3f}"]
        command = ncu.command(by.path, regime, log_path, target, by.metrics)
        status, printed = run(command, limit_s, variables=_variables(uuid))
        ended, log = time.monotonic(), text_of(log_path)
        replies = tuple(map(read_reply, text_of(os.path.join(folder, REPLIES)).splitlines()))
        times = _times(text_of(os.path.join(folder, TIMES)))
    start = None
    if times:
        end_s = round(ended - times[1], 3) if len(times) > 1 and status != 124 else None
        choices = sum(reply.status == "ok" for reply in replies)
        start = Start(tool(by.path), round(times[0] - begun, 3), end_s, choices)
    return Ran(status, f"{printed}\n{log}", replies, limit_s, start)


def _variables(uuid: str) -> dict[str, str]:
    """The environment of a bench worker; ncu's lock file in a folder of one's own, where no other user's lies."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    locks = private_child(private_child(cache_dir(), "gpu"), "ncu")
    return {**environment({}, uuid), "PYTHONPATH": path, "TMPDIR": locks}


def _times(text: str) -> list[float]:
    """The whole lines of the file of times."""
    return [float(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def read_reply(line: str) -> Reply:
    """A line of the program; one that was torn is a crash."""
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

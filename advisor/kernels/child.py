"""One bench worker as the pool sees it: started by a fresh exec, asked, parked, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

from advisor.errors import BadInput, WorkerDied
from advisor.kernels.messages import Phase, Reply, decode, encode
from advisor.kernels.process import kill_group, widen, worker_environment
from advisor.records import Process

START_LIMIT_S = 60.0
"""A worker imports numpy: a tenth of a second, many seconds from a cold network disk."""

INPUTS_LIMIT_S = 300.0
"""Making inputs and reference is not the choice's doing, so it has a limit of its own."""

TAIL_BYTES = 400
"""How much of a dead worker's standard error a reason carries."""


class Answer(NamedTuple):
    """What came of asking. `reply` is None when the worker died or was killed; `status` and `reason` say why."""

    status: str
    reason: str
    reply: Reply | None


class Program(NamedTuple):
    """What a worker runs.

    Attributes:
        module: started as `python -m`, with the id of this process as its argument.
        environment: all its variables.
        encode: a message as a line for it.
        parked: whether it is stopped between questions, so that its spinning threads disturb nobody.
    """

    module: str
    environment: Mapping[str, str]
    encode: Callable[[Any], bytes]
    parked: bool = True


def cpu_program(process: Process) -> Program:
    """The bench worker of a process part. Raises BadInput for a process part that cannot be."""
    return Program("advisor.kernels.worker", worker_environment(process, os.environ), encode)


def started(make: Callable[[], Child]) -> Child:
    """A new child; a second one where the first was killed before it was ready, as an out-of-memory kill may do.

    Raises:
        WorkerDied: neither got that far.
    """
    try:
        return make()
    except WorkerDied:
        return make()


class Patience(NamedTuple):
    """Seconds that a worker is waited for: of checking and timing, and of making inputs and reference (None: the
    usual)."""

    limit_s: float
    inputs_s: float | None = None


class Child:
    """A running worker. Between questions it is parked (stopped) where its program says so."""

    def __init__(self, program: Program, hello: Any, wait: bool = True) -> None:
        """Start it; see `ready`, which is called at once unless `wait` is False."""
        self._program = program
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (kill closes it)
        self._buffer = b""
        self._parking = self._is_ready = False
        try:
            self._popen = self._start()
        except BaseException:
            self._errors.close()
            raise
        try:
            self._send(hello)
        except BaseException:
            self.kill()
            raise
        if wait:
            self.ready()

    def ready(self) -> None:
        """Wait until it has started, and park it. Raises WorkerDied when it does not get that far."""
        if self._is_ready:
            return
        try:
            first, _ = self._next(time.monotonic() + START_LIMIT_S)
            if first != Phase("ready"):
                raise WorkerDied(
                    "a bench worker must start",
                    got=self._why() if self._ended() else first,
                    next_step=self.tail() or f"try `{sys.executable} -m {self._program.module}` by hand",
                )
        except BaseException:
            self.kill()
            raise
        self._is_ready = True
        self.park()

    def _start(self) -> subprocess.Popen[bytes]:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        variables = dict(self._program.environment)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [package, variables.get("PYTHONPATH", "")]))
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", self._program.module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=variables,
            start_new_session=True,
        )
        widen(started.pid)
        os.set_blocking(self._out(started).fileno(), False)
        return started

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @staticmethod
    def _out(popen: subprocess.Popen[bytes]) -> IO[bytes]:
        if popen.stdout is None:
            raise WorkerDied("a bench worker must have a pipe to answer by")
        return popen.stdout

    def park(self) -> None:
        """Stop it where it stands, if it is one to stop. Returns at once; see `wait_parked`."""
        if self._program.parked:
            self._signal(signal.SIGSTOP)
            self._parking = True

    def wait_parked(self) -> None:
        """Wait until all its threads have stopped: one that waits for a busy CPU takes up to a time slice for it."""
        if self._parking:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._parking = False

    def wake(self) -> None:
        """Let it go on."""
        if self._program.parked:
            self._parking = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def ask(self, trial: Any, limit_s: float, inputs_s: float | None = None) -> Answer:
        """Let it do a trial; it is parked afterwards, or killed when it has died, hung, or is unsound.

        Args:
            trial: what to do, a message that its program takes.
            limit_s: wall-clock limit of checking and timing together.
            inputs_s: the limit of making inputs and reference; None, and at most: INPUTS_LIMIT_S.
        """
        self.wake()
        try:
            answer = self._ask(trial, Patience(limit_s, min(INPUTS_LIMIT_S, inputs_s or INPUTS_LIMIT_S)))
        except BaseException:
            self.kill()
            raise
        if answer.reply is None or not answer.reply.sound:
            self.kill()
        else:
            self.park()
        return answer

    def _ask(self, trial: Any, patience: Patience) -> Answer:
        inputs_s = patience.inputs_s or INPUTS_LIMIT_S
        try:
            self._send(trial)
            message, in_time = self._next(time.monotonic() + inputs_s)
            doing = "making inputs and reference"
            if message == Phase("inputs"):
                message, in_time = self._next(time.monotonic() + inputs_s)
            if message == Phase("run"):
                doing = "running"
                message, in_time = self._next(time.monotonic() + patience.limit_s)
        except (BrokenPipeError, BadInput) as error:
            message, in_time, doing = None, True, str(error)
        if isinstance(message, Reply):
            return Answer(message.status, message.reason, message)
        if not in_time:
            limit = patience.limit_s if doing == "running" else inputs_s
            return Answer("timeout", f"killed after {limit:g} s of {doing}", None)
        return Answer("crashed", self._why(), None)

    def _send(self, message: Any) -> None:
        if self._popen.stdin is not None:
            self._popen.stdin.write(self._program.encode(message))

    def _next(self, deadline: float) -> tuple[Any, bool]:
        """The next message (None: there will be none), and whether it came before the deadline."""
        stream = self._out(self._popen)
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None, False
            piece = stream.read(65536)
            if piece == b"":
                return None, True
            self._buffer += piece or b""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return decode(line), True

    def _ended(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=1)  # its pipe is closed: it is dying, or hung on the way out
        return self._popen.returncode is not None

    def _why(self) -> str:
        """How it ended, in words: the signal's name, or its exit status and last words."""
        if not self._ended():
            return "closed its pipe without ending"
        code = self._popen.returncode
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"killed by {name}{hint}"
        return f"ended with status {code}: {self.tail()}"

    def tail(self) -> str:
        """The last words of its standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL_BYTES))
        return self._errors.read().decode(errors="replace").strip()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """End it and all it started, reap it, close its files. Idempotent."""
        if self._popen.returncode is None or self.alive:
            kill_group(self.pid)
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._popen.wait()
        if not self._errors.closed:
            self._errors.close()

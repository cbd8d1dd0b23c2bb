"""One worker of a device as the pool sees it: another program than a CPU's, in another environment, never parked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from advisor.errors import WorkerDied
from advisor.kernels.child import Answer, Child
from advisor.kernels.compilers import private_child
from advisor.kernels.gpu.messages import Compile, Hello, Trial, encode
from advisor.kernels.process import widen
from advisor.paths import cache_dir
from advisor.records import Process

PROCESS = Process("libgomp", "default", None, "default")
"""Of the host threads of a worker: nothing of a device's times depends on them."""

COMPILE_LIMIT_S = 600.0


def environment(inherited: dict[str, str], uuid: str) -> dict[str, str]:
    """What a worker sees: its own device alone, compiled code cached beside that of the CPU's."""
    folder = private_child(cache_dir(), "gpu")
    caches = {"CUPY_CACHE_DIR": os.path.join(folder, "cupy"), "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
    return {**inherited, **caches, "CUDA_VISIBLE_DEVICES": uuid}


class GpuChild(Child):
    """A running worker of one device."""

    def __init__(self, hello: Hello) -> None:
        """Start it; its context is made before it is ready. Raises WorkerDied."""
        self._uuid = hello.uuid
        super().__init__(PROCESS, hello)  # type: ignore[arg-type]  # sent by _send, below

    def _start(self, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        variables = environment(variables, self._uuid)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [package, variables.get("PYTHONPATH", "")]))
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", "advisor.kernels.gpu.worker", str(os.getpid())],
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

    def park(self) -> None:
        """Nothing: a worker that waits for a line disturbs nobody."""

    def wake(self) -> None:
        """Nothing."""

    def compile(self, asked: Compile) -> Answer:
        """Let it compile ahead."""
        return self.ask(asked, COMPILE_LIMIT_S)  # type: ignore[arg-type]

    def _send(self, message: Any) -> None:
        if self._popen.stdin is not None:
            self._popen.stdin.write(encode(message))


class GpuCrew:
    """The worker of one device: started when it is needed, replaced when it was lost."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._child: GpuChild | None = None
        self.started = 0

    def ask(self, message: Trial | Compile, limit_s: float) -> Answer:
        """Ask the worker, a new one where there is none.

        Raises:
            WorkerDied: none could be started, twice.
        """
        if self._child is not None and not self._child.alive:
            self.close()
        if self._child is None:
            try:
                self._child = self._new()
            except WorkerDied:
                self._child = self._new()
            self.started += 1
        answer = self._child.compile(message) if isinstance(message, Compile) else self._child.ask(message, limit_s)  # type: ignore[arg-type]
        if not self._child.alive:
            self.close()
        return answer

    def _new(self) -> GpuChild:
        return GpuChild(self._hello)

    def close(self) -> None:
        """End the worker. Idempotent."""
        if self._child is not None:
            self._child.kill()
        self._child = None

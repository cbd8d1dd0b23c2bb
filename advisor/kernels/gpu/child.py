"""The worker of one device as the pool sees it: started when it is needed, replaced when it was lost, never parked."""

from __future__ import annotations

import os
from collections.abc import Mapping

from advisor.kernels.child import Answer, Child, Program, started
from advisor.kernels.compilers import private_child
from advisor.kernels.gpu.messages import Compile, Hello, Trial, encode
from advisor.paths import cache_dir

COMPILE_LIMIT_S = 600.0


ROUNDED = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Variables by which libraries round float32 operands to 10 bits. Source: the manuals of cuBLAS and PyTorch."""


def environment(inherited: Mapping[str, str], uuid: str) -> dict[str, str]:
    """What a worker sees: its own device alone, compiled code cached beside that of the CPU's.

    CuPy reduces by its own kernels: CUB's, which it would take, nvcc compiles anew for each range of lengths, seconds
    each. What rounds float32 to tf32 is left out: it would be a product of another dtype.
    """
    folder = private_child(cache_dir(), "gpu")
    caches = {"CUPY_CACHE_DIR": os.path.join(folder, "cupy"), "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
    kept = {name: value for name, value in inherited.items() if name not in ROUNDED}
    return {**kept, **caches, "CUPY_ACCELERATORS": "", "CUDA_VISIBLE_DEVICES": uuid}


def gpu_program(uuid: str) -> Program:
    """The bench worker of a device. It waits in a read, so nothing of it disturbs anybody: it is not parked."""
    return Program("advisor.kernels.gpu.worker", environment(os.environ, uuid), encode, parked=False)


class GpuCrew:
    """The one worker of a device. The pool owns it and closes it."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._child: Child | None = None
        self.started = 0

    def ask(self, message: Trial | Compile, limit_s: float) -> Answer:
        """Ask the worker, a new one where there is none. Compiling has a limit of its own.

        Raises:
            WorkerDied: none could be started, twice.
        """
        if self._child is not None and not self._child.alive:
            self.close()
        if self._child is None:
            self._child = started(lambda: Child(gpu_program(self._hello.uuid), self._hello))
            self.started += 1
        answer = self._child.ask(message, COMPILE_LIMIT_S if isinstance(message, Compile) else limit_s)
        if not self._child.alive:
            self.close()
        return answer

    def close(self) -> None:
        """End the worker. Idempotent."""
        if self._child is not None:
            self._child.kill()
        self._child = None

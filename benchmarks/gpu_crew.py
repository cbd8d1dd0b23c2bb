"""Many workers of one device at a time, for what needs no quiet: checking results, and compiling ahead.

Kernels for devices compile on CPUs, a second or two each where Triton does it; a machine with a GPU has many.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from gpu_cells import spec_of

from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.header import Variant
from advisor.records import Choice, Gpu, Problem

WORKERS = 14
"""Workers at a time: a library's import takes one CPU some seconds, and a machine with a GPU has 16 and more."""

CHECK_S = 60.0


class Crew:
    """Workers that work side by side, each with the pool of one kernel. Close it, or use it as a context manager.

    A worker's process ends with the thread that started it, so the threads live until this is closed.
    """

    def __init__(self, gpu: Gpu, known: Mapping[str, Sequence[Variant]], counts: Mapping[str, int]) -> None:
        """Start nothing yet. Args: the device; kernel -> its variants; kernel -> how many workers it has."""
        self._pools: dict[str, queue.LifoQueue[GpuPool]] = {}
        self._all: list[GpuPool] = []
        self._threads = {kernel: ThreadPoolExecutor(count) for kernel, count in counts.items()}
        for kernel, count in counts.items():
            self._pools[kernel] = queue.LifoQueue()
            for _ in range(count):
                self._all.append(GpuPool(gpu, spec_of(kernel), known[kernel]))
                self._pools[kernel].put(self._all[-1])

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for pool in self._all:
            pool.close()

    def submit(self, kernel: str, do: Callable[[GpuPool], Any]) -> Future[Any]:
        """Let one of a kernel's workers do something, the one that worked last: what it compiled is there."""
        return self._threads[kernel].submit(self._lent, kernel, do)

    def _lent(self, kernel: str, do: Callable[[GpuPool], Any]) -> Any:
        pool = self._pools[kernel].get()
        try:
            return do(pool)
        finally:
            self._pools[kernel].put(pool)


def shares(kernels: Sequence[str], most: int = WORKERS) -> dict[str, int]:
    """How many workers each kernel has, by its tasks; each has one."""
    return {kernel: max(1, round(most * kernels.count(kernel) / len(kernels))) for kernel in dict.fromkeys(kernels)}


class Ahead(NamedTuple):
    """What compiling ahead came to: choices that ran, why others did not, those left for want of time, seconds."""

    done: int
    failed: dict[str, str]
    left: int
    seconds: float


def ahead(
    gpu: Gpu, known: Mapping[str, Sequence[Variant]], wanted: Sequence[tuple[Problem, Choice]], until: float = math.inf
) -> Ahead:
    """Let each choice run once, side by side: it is in the caches of all workers then.

    Args:
        gpu: the device.
        known: kernel -> its variants.
        wanted: what to compile, the most important first.
        until: on the monotonic clock; nothing is begun later.
    """
    begun, failed, done, left = time.monotonic(), dict[str, str](), 0, 0

    def one(pool: GpuPool, problem: Problem, choice: Choice) -> str | None:
        if time.monotonic() >= until:
            return None
        found = pool.check(problem, choice, CHECK_S)
        return "" if found.status == "ok" else f"{found.status}: {found.reason}"

    listed = list(dict.fromkeys(wanted))
    if not listed:
        return Ahead(0, {}, 0, 0.0)
    with Crew(gpu, known, shares([problem.kernel for problem, _ in listed])) as crew:
        waiting = {
            crew.submit(problem.kernel, lambda pool, p=problem, c=choice: one(pool, p, c)): (problem, choice)
            for problem, choice in listed
        }
        for future in as_completed(waiting):
            problem, choice = waiting[future]
            said = future.result()
            done, left = done + (said == ""), left + (said is None)
            if said:
                failed[f"{problem.kernel} {choice.build.variant} {dict(choice.build.knobs)} {problem.dtype}"] = said
    return Ahead(done, failed, left, time.monotonic() - begun)

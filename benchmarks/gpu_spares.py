"""Workers of a device that are started before somebody asks for one: a library's import takes seconds on another CPU.

    with Spares(...) as spares:         within, every new worker of the product is one of these where one is ready

The product starts a fresh worker for each search, each running again and each held-out race; a tuning of ten seconds
would spend most of them waiting. What is measured, and by whom, stays what it is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from advisor.errors import AdvisorError
from advisor.kernels.child import Child, Program
from advisor.kernels.gpu import child as place
from advisor.kernels.gpu.messages import Compile, Hello

READY = 2
"""Spare workers of a kernel at a time: a search and running again come one soon after the other."""

Wanted = tuple[Hello, Compile]
"""What a worker is told first, and what it does then, so that what it imports is there: compile programs, rehearse a
problem."""

WARM_S = 60.0


class Spares:
    """Workers that are started ahead, of the kernels that are expected. Close it, or use it as a context manager.

    A worker's process ends with the thread that started it, so a few threads start all and live until this is closed.
    """

    def __init__(self, start: Callable[[Program, Hello], Child] = Child) -> None:
        self._start = start
        self._starter = ThreadPoolExecutor(2 * READY)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Hello, Future[Child]]] = []
        self._wanted: tuple[Wanted, ...] = ()
        self.used = 0

    def __enter__(self) -> Spares:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers that nobody took."""
        self._wanted = ()
        self._drop([self._waiting.pop() for _ in range(len(self._waiting))])
        self._starter.shutdown()

    def expect(self, wanted: Sequence[Wanted]) -> None:
        """From now on workers of these kernels are wanted; those of others that nobody took are ended."""
        with self._lock:
            self._wanted = tuple(wanted)
            hellos = {hello for hello, _ in wanted}
            self._drop([one for one in self._waiting if one[0] not in hellos])
            self._waiting = [one for one in self._waiting if one[0] in hellos]
            self._fill()

    def take(self, program: Program, hello: Hello) -> Child:
        """A worker: a spare one where there is, another one in its place begun, else a new one."""
        with self._lock:
            found = next((one for one in self._waiting if one[0] == hello), None)
            if found is None:
                return self._start(program, hello)
            self._waiting.remove(found)
            self._fill()
        with contextlib.suppress(AdvisorError):
            worker = found[1].result()
            if worker.alive:
                self.used += 1
                return worker
        return self._start(program, hello)

    def _fill(self) -> None:
        for hello, warm in self._wanted:
            for _ in range(READY - sum(one[0] == hello for one in self._waiting)):
                self._waiting.append((hello, self._starter.submit(self._made, hello, warm)))

    def _made(self, hello: Hello, warm: Compile) -> Child:
        worker = self._start(place.gpu_program(hello.uuid), hello)
        worker.ask(warm, WARM_S)
        return worker

    def _drop(self, listed: Sequence[tuple[Hello, Future[Child]]]) -> None:
        for _, future in listed:
            if not future.cancel():
                future.add_done_callback(_end)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the product's workers of devices are these."""
        before = place.Child
        place.Child = self.take  # type: ignore[assignment,misc]  # called as the class is
        try:
            yield
        finally:
            place.Child = before  # type: ignore[misc]


def _end(done: Future[Any]) -> None:
    with contextlib.suppress(Exception):
        done.result().kill()

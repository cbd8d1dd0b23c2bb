"""The workers of a pool: one a lane, one running at a time, the others stopped.

A lane is a process part, and the library whose calls it serves. With libomp it is a process part and a team: libomp
keeps the threads that a smaller team does not need, spinning on the CPUs they were pinned to, where the next team may
be; libgomp ends them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from advisor.errors import WorkerDied
from advisor.installed import library_of
from advisor.kernels.child import Answer, Child, Patience, cpu_program, started
from advisor.kernels.messages import Hello, Trial
from advisor.records import Choice, Problem, Process, Team

LIBOMP_WORKERS = 4
"""Live workers with libomp at most; the one that was not asked for longest is ended."""

Lane = tuple[Process, Team | None, str]
"""Process part, team with libomp, library (empty for compiled variants). A library brings an OpenMP runtime of its own,
which the frame must join, so it is imported first, in processes of its own."""

EdgeKey = tuple[str, tuple[int, ...], int, Problem]
"""(build, dims, threads, problem) whose edges passed, whichever worker saw it: they need not be sent again.

What a build computes on a small problem does not depend on how its threads wait; every worker still checks the problem
itself before it times, and winners run once more in a fresh process."""


class Resident(NamedTuple):
    """The problem whose operands a worker holds, and the room for scratch that there was beside them."""

    problem: Problem
    scratch_bytes: int | None


class Worker:
    """A child and what is known of it."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.resident: Resident | None = None


def lane_of(choice: Choice) -> Lane | None:
    """The lane a choice runs in, None when it is no choice for a CPU."""
    if choice.process is None or choice.team is None:
        return None
    team = choice.team if choice.process.runtime == "libomp" else None
    return choice.process, team, library_of(choice.build.compiler)


def edge_key(trial: Trial) -> EdgeKey:
    """What names the edges of a trial."""
    return trial.binary.key, trial.dims, trial.threads, trial.problem


class Crew:
    """Workers by lane, the one asked last at the end. The pool owns it and closes it."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self.workers: dict[Lane, Worker] = {}
        self._past_edges: set[EdgeKey] = set()

    def close(self) -> None:
        """End all workers. Idempotent."""
        while self.workers:
            self.drop(next(iter(self.workers)))

    def resident(self, lane: Lane, problem: Problem) -> Resident | None:
        """What a worker holds when that is this problem, else None."""
        found = self.workers.get(lane)
        return found.resident if found and found.resident and found.resident.problem == problem else None

    def passed(self, trial: Trial) -> bool:
        """Whether the edges of a trial have passed."""
        return edge_key(trial) in self._past_edges

    def launch(self, lanes: Iterable[Lane]) -> None:
        """Start workers for lanes that have none, side by side, without waiting: they start while others compile.

        Not those with libomp, of which only a few may live, nor those of a library, which take seconds to import.
        """
        for lane in lanes:
            if lane not in self.workers and lane[1] is None and not lane[2]:
                with contextlib.suppress(WorkerDied, OSError):  # whoever asks for it starts it anew
                    self.workers[lane] = Worker(Child(cpu_program(lane[0]), self._hello, wait=False))

    def settle(self) -> None:
        """Wait until every worker that was launched is ready and parked; those that died are forgotten."""
        for lane, worker in list(self.workers.items()):
            try:
                worker.child.ready()
            except WorkerDied:
                self.drop(lane)

    def ask(self, lane: Lane, trial: Trial, patience: Patience) -> Answer:
        """Ask the worker of a lane, started now when there is none; forget it when it does not come back.

        Raises:
            WorkerDied: no worker could be started.
        """
        worker = self._worker(lane)
        for other in self.workers.values():
            if other is not worker:
                other.child.wait_parked()
        try:
            answer = worker.child.ask(trial, patience.limit_s, patience.inputs_s)
        except BaseException:
            self.drop(lane)
            raise
        if not worker.child.alive:
            self.drop(lane)
            return answer
        worker.resident = Resident(trial.problem, trial.scratch_bytes)
        if answer.status == "ok" and trial.samples:  # a mere check is sent without its edges
            self._past_edges.add(edge_key(trial))
        return answer

    def drop(self, lane: Lane) -> None:
        """End the worker of a lane, when there is one."""
        worker = self.workers.pop(lane, None)
        if worker is not None:
            worker.child.kill()

    def _start(self, lane: Lane) -> Child:
        hello = self._hello._replace(library=lane[2])
        return started(lambda: Child(cpu_program(lane[0]), hello))

    def _worker(self, lane: Lane) -> Worker:
        found = self.workers.pop(lane, None)
        if found is not None and not found.child.alive:
            found.child.kill()
            found = None
        if found is None:
            several = [other for other in self.workers if other[1] is not None]
            if lane[1] is not None and len(several) >= LIBOMP_WORKERS:
                self.drop(several[0])
            found = Worker(self._start(lane))
        self.workers[lane] = found
        found.child.ready()  # one that was launched and never waited for
        return found

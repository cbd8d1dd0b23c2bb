"""WorkerPool: the executor that really runs. Persistent workers; failures become statuses.

A measurement: is it possible here (variant, instruction sets, placement, runtime) -> is there memory -> is it built ->
ask the worker -> did mask or quota change meanwhile. Only one worker runs at a time, the others are stopped.
"""

from __future__ import annotations

import functools
import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple

from advisor.errors import AdvisorError, BadInput, BuildError, OutOfTime, WorkerDied
from advisor.kernels import plausible, shelf
from advisor.kernels.build import Recipe, build, make_recipe
from advisor.kernels.child import Answer, Patience
from advisor.kernels.crew import Crew, Lane, lane_of
from advisor.kernels.edges import edges
from advisor.kernels.executor import Ask
from advisor.kernels.fates import Fates, by_key, check_exists, variant_of
from advisor.kernels.libraries import LANGUAGE as PYTHON
from advisor.kernels.libraries import find_tool
from advisor.kernels.memory import USABLE, need_bytes, operand_sets, room_bytes
from advisor.kernels.messages import Binary, Edge, Hello, Trial
from advisor.kernels.neighbour import neighbour
from advisor.kernels.numa import where
from advisor.kernels.power import Packages
from advisor.kernels.process import LAUNCH_MASK, kill_running, openmp_environment
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, macro_values, missing_isa
from advisor.records import Build, Choice, Machine, Measurement, Problem, Process, Team, pairs
from advisor.topology import limits
from advisor.topology.candidates import groupings
from advisor.topology.files import span
from advisor.topology.placement import evaluate

GRACE_S = 1.0
"""Inputs and references that are being made when the time ends are waited for so long."""


class Prepared(NamedTuple):
    """What `prepare` did: builds that are ready, builds that failed, wall time. When time ends, some are neither."""

    ready: int
    failed: int
    seconds: float


class _Limits(NamedTuple):
    """What must not change around a trial."""

    mask: tuple[int, ...]
    quota: float | None


class _Built(NamedTuple):
    binary: Binary
    seconds: float


class _Room(NamedTuple):
    """Memory for a trial: what it may use as scratch, or why there is none."""

    scratch_bytes: int | None
    reason: str


class WorkerPool:
    """An Executor of real processes. Close it, or use it as a context manager.

    Workers are started by the calling thread and die with it: use one pool from one thread.

    `until`, on the monotonic clock, ends what is no choice's doing and may take long: compilers at work are killed
    then, inputs and references a moment later. What they were for has not failed.
    """

    def __init__(self, machine: Machine, spec: KernelSpec, variants: Sequence[Variant], seed: int = 0) -> None:
        self.machine = machine
        self.spec = spec
        self._variants = by_key(variants)
        self._shelf = shelf.folder()
        self.crew = Crew(Hello(origin(spec), seed, shelf=self._shelf))
        self._binaries: dict[str, Binary] = {}
        self._unbuilt: dict[str, str] = {}
        self._recipes: dict[tuple[Build, str, tuple[tuple[str, int], ...]], Recipe] = {}
        self._edges: dict[tuple[Build, Problem], tuple[Edge, ...]] = {}
        self._fates = Fates()
        self._packages = Packages()
        self.until = math.inf

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, clear their shelf. Idempotent."""
        self.crew.close()
        shutil.rmtree(self._shelf, ignore_errors=True)

    # --- the two questions ---

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """Build if needed, verify against the DNF, pin, warm up, sample; see Executor.

        A choice that crashed a worker or hung is not run again on the same problem: the answer is the one it gave. A
        variant that only ever hung is not run again at all.
        """
        return self._measure(problem, choice, ask, None)

    def check(self, problem: Problem, choice: Choice, limit_s: float, draw: str = "normal") -> Measurement:
        """Compare one choice with the DNF on one problem and draw of inputs, without edges and without timing."""
        return self._measure(problem, choice, Ask(0, limit_s), draw)

    def prepare(self, problem: Problem, choices: Iterable[Choice]) -> Prepared:
        """Compile what these choices need, several at a time within the CPU budget. Failures are remembered.

        Meanwhile the workers that they need start.
        """
        start = time.monotonic()
        choices = tuple(choices)
        self.crew.launch(dict.fromkeys(lane for lane in map(lane_of, choices) if lane is not None))
        wanted: dict[str, tuple[Build, Variant]] = {}
        failed = 0
        for made in dict.fromkeys(choice.build for choice in choices):
            try:
                variant = variant_of(self._variants, made)
                wanted.setdefault(self._recipe(variant, made, problem).key, (made, variant))
            except AdvisorError:
                failed += 1  # the measurement will say why
        with ThreadPoolExecutor(max_workers=self._budget()) as threads:
            futures = [threads.submit(self._build_in_time, variant, made, problem) for made, variant in wanted.values()]
            try:
                built = [future.result() for future in futures]
            except BaseException:
                kill_running()  # Ctrl-C: nobody waits for a compiler that takes its time
                threads.shutdown(cancel_futures=True)
                raise
        self.crew.settle()
        broken = sum(isinstance(one, str) for one in built)
        ready = sum(isinstance(one, _Built) for one in built)
        return Prepared(ready, failed + broken, time.monotonic() - start)

    def joules(self, choice: Choice) -> float | None:
        """What the processor packages used so far; None where that cannot be read."""
        return self._packages.read()

    def disturbed(self, cpu: int) -> AbstractContextManager[None]:
        """While it is entered, one busy process keeps `cpu` busy."""
        return neighbour(cpu)

    # --- the steps ---

    def _measure(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        """`draw` None: normal inputs, edge problems first."""
        return self._fates.measured(problem, choice, lambda: self._attempt(problem, choice, ask, draw))

    def _attempt(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        skipped = Measurement(problem, choice, "skipped")
        lane = lane_of(choice)
        if choice.team is None or choice.process is None or lane is None:
            return skipped._replace(reason="a choice for a CPU needs a team and a process part")
        try:
            variant = self._possible(problem, choice.build, choice.process)
            before = _limits()
            cpus = evaluate(
                choice.team.placement, self.machine.array, before.mask, choice.team.threads, groupings(self.machine)
            )
            memory = where(
                choice.process.memory_policy, self.machine.numa_nodes, cpus or before.mask, self.machine.allowed_mems
            )
            room = self._room(problem, lane)
            if room.reason:
                return skipped._replace(reason=room.reason)
            built = self._build(variant, choice.build, problem)
            if isinstance(built, str):
                return skipped._replace(reason=built)
            trial = self._trial(problem, variant, choice.build, choice.team, ask)
            trial = trial._replace(binary=built.binary, cpus=cpus, mask=before.mask, scratch_bytes=room.scratch_bytes)
            trial = trial._replace(memory=memory)
            if draw is not None:
                trial = trial._replace(draw=draw)
            elif not self.crew.passed(trial):
                trial = trial._replace(edges=self._edges_of(variant, choice.build, problem))
        except AdvisorError as error:
            return skipped._replace(reason=str(error))
        try:
            answer = self.crew.ask(lane, trial, Patience(ask.limit_s, self._inputs_s(ask)))
        except WorkerDied as error:  # not the choice's doing: it may be tried again
            return skipped._replace(reason=str(error), compile_s=built.seconds)
        found = _measurement(problem, choice, answer, trial, (before, _limits()))
        return plausible.checked(self.spec, found)._replace(compile_s=built.seconds)

    def _inputs_s(self, ask: Ask) -> float | None:
        """How long making inputs and reference may take, within the time of all."""
        left = self.until + GRACE_S - time.monotonic()
        allowed = math.inf if ask.inputs_s is None else ask.inputs_s
        return None if math.isinf(min(left, allowed)) else max(GRACE_S, min(left, allowed))

    def _possible(self, problem: Problem, made: Build, process: Process) -> Variant:
        """The variant of a build that can run here. Raises AdvisorError with what is missing."""
        variant = variant_of(self._variants, made)
        missing = missing_isa(variant, self.machine)
        if missing:
            raise BadInput(f"{variant.name} needs instruction sets that this machine lacks", got=" ".join(missing))
        check_exists(self.spec, variant, problem, made)
        openmp_environment(process)
        runtime = find_tool(made.compiler).runtime
        if runtime != process.runtime:
            raise BadInput(
                "compiler and process part must mean the same OpenMP runtime", got=process.runtime, allowed=runtime
            )
        return variant

    def _build(self, variant: Variant, made: Build, problem: Problem) -> _Built | str:
        """The binary of a build, or why there is none. Safe to call from several threads. Raises OutOfTime."""
        recipe = self._recipe(variant, made, problem)
        if recipe.key in self._unbuilt:
            return self._unbuilt[recipe.key]
        if recipe.key in self._binaries:
            return _Built(self._binaries[recipe.key], 0.0)
        try:
            library = build(variant, made, problem, self.until)
        except BuildError as error:
            self._unbuilt[recipe.key] = str(error)
            return self._unbuilt[recipe.key]
        values = tuple(value for _, value in recipe.macros)
        real = (recipe.real.size, recipe.real.code)
        binary = Binary(library.path, variant.symbol, recipe.key, values, real)
        if variant.language == PYTHON:
            binary = binary._replace(source=variant.path, source_hash=variant.source_hash)
        self._binaries[recipe.key] = binary
        return _Built(self._binaries[recipe.key], library.seconds)

    def _build_in_time(self, variant: Variant, made: Build, problem: Problem) -> _Built | str | None:
        """The same; None where the time ended."""
        try:
            return self._build(variant, made, problem)
        except OutOfTime:
            return None

    def _recipe(self, variant: Variant, made: Build, problem: Problem) -> Recipe:
        key = (made, problem.dtype, macro_values(variant, problem, made.knobs))
        if key not in self._recipes:
            self._recipes[key] = make_recipe(variant, made, problem)
        return self._recipes[key]

    def _trial(self, problem: Problem, variant: Variant, made: Build, team: Team, ask: Ask) -> Trial:
        return Trial(
            problem=problem,
            dims=entry_dims(self.spec, variant, problem, made.knobs),
            binary=Binary("", variant.symbol, "", (), ()),
            threads=team.threads,
            cpus=None,
            mask=(),
            edges=(),
            samples=ask.samples,
            sample_s=ask.sample_s,
            give_up_ns=ask.give_up_ns,
            quiet=ask.quiet,
            sets=operand_sets(self.machine, self.spec, problem),
            own_pages=self._own_pages(),
            scratch_bytes=None,
        )

    def _edges_of(self, variant: Variant, made: Build, problem: Problem) -> tuple[Edge, ...]:
        key = (made, problem)
        if key not in self._edges:
            self._edges[key] = edges(self.spec, variant, problem, made.knobs)
        return self._edges[key]

    def _own_pages(self) -> bool:
        """Several nodes with CPUs: where pages lie matters, so each team touches its own first."""
        return sum(bool(node.cpus) for node in self.machine.numa_nodes) > 1

    def _room(self, problem: Problem, lane: Lane) -> _Room:
        """What the workspace may take once the operands are there; parked workers are let go where it is tight.

        Looked up once while a worker keeps a problem: its operands are there already.
        """
        resident = self.crew.resident(lane, problem)
        if resident is not None:
            return _Room(resident.scratch_bytes, "")
        need = need_bytes(self.spec, problem, operand_sets(self.machine, self.spec, problem) + self._own_pages())
        room = room_bytes()
        if room is None:
            return _Room(None, "")
        if need > USABLE * room:
            self.crew.close()
            room = room_bytes() or 0
        left = int(USABLE * room) - need
        if left < 0:
            return _Room(None, f"needs about {need} bytes of memory, {room} are free")
        return _Room(left, "")

    def _budget(self) -> int:
        """CPUs that compilations may use: the launch mask within the quota."""
        quota = self.machine.cpu_quota
        return max(1, len(LAUNCH_MASK) if quota is None else min(len(LAUNCH_MASK), int(quota)))


@functools.cache
def _watch() -> Callable[[], tuple[tuple[int, ...], float | None]]:
    return limits.watch()


def _limits() -> _Limits:
    return _Limits(*_watch()())


def _measurement(
    problem: Problem, choice: Choice, answer: Answer, trial: Trial, around: tuple[_Limits, _Limits]
) -> Measurement:
    """The record of an answer."""
    before, after = around
    found = Measurement(problem, choice, answer.status, reason=answer.reason)
    conditions = {"mask": span(before.mask), "quota": before.quota, "sets": trial.sets}
    if answer.reply is not None:
        reply = answer.reply
        conditions |= dict(reply.conditions)
        found = found._replace(
            samples_ns=reply.samples_ns,
            error=reply.error,
            tolerance=reply.tolerance,
            threads_observed=reply.threads_observed,
            kernel_s=reply.kernel_s,
        )
    if before != after and found.status == "ok":
        conditions["mask_after"], conditions["quota_after"] = span(after.mask), after.quota
        found = found._replace(status="skipped", samples_ns=(), reason="mask or quota changed during the trial")
    return found._replace(conditions=pairs(conditions))

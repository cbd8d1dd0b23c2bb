"""What a worker keeps of a device between trials, and the steps of one: compile, check, record a graph, time it.

A variant is checked before it is timed: on edge problems, on the problem itself with every draw of inputs, and again
on what the timed calls left. Calls are timed as replays of one graph between two events; compiling, the context and
recording are outside. In the cold regime the calls of a graph take sets of operands in turn.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from advisor.kernels.gpu import foreign
from advisor.kernels.gpu import operands as ops
from advisor.kernels.gpu.driver import Call, Driver, Replay
from advisor.kernels.gpu.messages import COMPILERS, Case, Compile, Program, Trial
from advisor.kernels.gpu.source import text
from advisor.kernels.judge import Judgement, compared, worst
from advisor.kernels.messages import Binary, Reply
from advisor.kernels.pycall import load, words
from advisor.kernels.registry import origin
from advisor.kernels.spec import Expected, KernelSpec
from advisor.records import Problem, pairs
from advisor.sources import short_hash

Drawn = tuple[Problem, str]

MOST_GRAPH_CALLS = 256
"""Calls in one graph at most; a longer sample replays it more often."""

KEPT_BYTES = 1 << 28
"""Operands of a problem up to this size stay when another n begins: its edge problems are those of the next n too."""

KEPT_GRAPHS = 24
"""Recorded graphs of the current problem that are kept: a race comes back to a dozen choices each round."""

SPARE = 1.1
"""Of what a call takes, that must be free: an allocator rounds up."""


class Refused(Exception):
    """A trial ends here with a reply. Never leaves the worker."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.reason)
        self.reply = reply


class Ready(NamedTuple):
    """A choice ready to be timed: its graph, how many calls are in it, what one takes, its scratch.

    `each`: its calls, kept because the graph uses memory that they hold.
    """

    replay: Replay
    calls: int
    call_ns: float
    space: ops.Block | None
    each: tuple[Call, ...]


class Bench:
    """The state of one worker. All methods run on one thread."""

    def __init__(self, driver: Driver, spec: KernelSpec, seed: int) -> None:
        self.driver, self.spec, self.seed = driver, spec, seed
        self._dnf = _on_device(spec)
        self._programs: dict[Program, Any] = {}
        self._operands: dict[tuple[Drawn, int], tuple[tuple[ops.Block, ...], ...]] = {}
        self._references: dict[Drawn, dict[str, Expected]] = {}
        self._sums: dict[Drawn, Any] = {}
        self._passed: dict[tuple[Program, Case], Judgement] = {}
        self._ready: dict[tuple[Program, Case, int], Ready] = {}
        self._current: Problem | None = None
        self._rehearsed: set[str] = set()

    # --- compiling ---

    def compile(self, asked: Compile) -> Reply:
        """Compile programs ahead; those that fail are told, and fail again when they are asked for.

        CUDA programs are compiled side by side, a few threads in the compiler at a time.
        """
        start, failed = time.monotonic(), []
        if asked.problem is not None:
            self._rehearse(asked.problem)
        new = [one for one in asked.programs if one.language == "cuda" and one not in self._programs]
        with ThreadPoolExecutor(COMPILERS) as crew:
            built = [(program, crew.submit(self._build, program)) for program in new]
        for program, future in built:
            if future.exception() is None:
                self._programs[program] = future.result()
        for program in asked.programs:
            try:
                self._program(program)
            except Exception as error:  # told again by the trial, as what it is
                failed.append(words(error))
        return Reply("ok", "\n".join(failed), kernel_s=time.monotonic() - start)

    def _build(self, program: Program) -> Any:
        source = text(program.path, program.source_hash)
        return self.driver.build(source, program.options, (program.symbol, *program.then))

    def _program(self, program: Program) -> Any:
        if program not in self._programs:
            if program.language == "cuda":
                self._programs[program] = self._build(program)
            else:
                key = short_hash(repr(program).encode())
                binary = Binary("", program.symbol, key, (), (), program.path, program.source_hash)
                self._programs[program] = load(binary)
        return self._programs[program]

    # --- one trial ---

    def prepare(self, trial: Trial) -> None:
        """Compile, let go of the last problem, make inputs and references: nothing that a limit is for."""
        self._program(trial.program)
        self._rehearse(trial.case.problem)
        if self._current != trial.case.problem:
            self._forget()
            self._current = trial.case.problem
        for case in (*trial.checks, trial.case):
            if (trial.program, case) not in self._passed:
                self._blocks(_drawn(case), 1 if case.problem != trial.case.problem else trial.sets)

    def trial(self, trial: Trial) -> Reply:
        """Check, then time.

        Raises:
            Refused: the choice is wrong.
            DeviceError, CallFailed, MemoryError: it could not run.
        """
        for case in (*trial.checks, trial.case):
            if (trial.program, case) not in self._passed:
                self._passed[trial.program, case] = self._check(trial, case)
        checked = self._passed[trial.program, trial.case]
        if not trial.samples:
            conditions = pairs({"arithmetic": trial.program.arithmetic})
            return Reply("ok", "", (), checked.error, checked.tolerance, conditions=conditions)
        return self._timed(trial, checked)

    def _rehearse(self, problem: Problem) -> None:
        """Make and check operands of this dtype once, of few rows.

        An array module on a device compiles its own kernels when they are first called: for many seconds in all where
        its cache is empty, which would be taken from a trial's time and limit.
        """
        if problem.dtype in self._rehearsed:
            return
        xp, small = self.driver.xp, problem._replace(n=min(problem.n, 3))
        for draw in self.spec.draws:
            inputs = self._dnf.inputs(xp, small, self.seed, draw)
            group = ops.make(xp, self.spec, small, inputs, 1)[0]
            ops.rehearse(xp, group)
            expected = self._reference(small, inputs)
            for name, one in self._outputs(group):
                one.data[...] = 0
                compared(name, one.data, partial(ops.unwritten, one), expected[name], expected[name].tolerance)
        self._rehearsed.add(problem.dtype)

    def _forget(self) -> None:
        """Let go of large operands and of all graphs; those of edge problems stay."""
        self._ready.clear()
        gone = {key for key, sets in self._operands.items() if sum(b.whole.size for s in sets for b in s) > KEPT_BYTES}
        for key in gone:
            del self._operands[key]
        held = {drawn for drawn, _ in self._operands}
        self._references = {drawn: found for drawn, found in self._references.items() if drawn in held}
        self._passed = {key: found for key, found in self._passed.items() if _drawn(key[1]) in held}
        self.driver.release()

    def _blocks(self, drawn: Drawn, sets: int) -> tuple[tuple[ops.Block, ...], ...]:
        """Operands of a problem, its reference made beside them."""
        if (drawn, sets) not in self._operands:
            xp = self.driver.xp
            inputs = self._dnf.inputs(xp, drawn[0], self.seed, drawn[1])
            self._operands[drawn, sets] = ops.make(xp, self.spec, drawn[0], inputs, sets)
            self._references[drawn] = self._reference(drawn[0], inputs)
            self._sums[drawn] = ops.checksums(xp, self._operands[drawn, sets][0][: len(inputs)])
        return self._operands[drawn, sets]

    def _reference(self, problem: Problem, inputs: dict[str, Any]) -> dict[str, Expected]:
        """The reference in the device's memory, so that outputs are judged where they lie: every sample ends with
        that, and a hundred million elements take seconds on a host."""
        xp = self.driver.xp

        def placed(array: Any) -> Any:
            return None if array is None else xp.asarray(array)

        return {
            name: one._replace(values=placed(one.values), rows=placed(one.rows), columns=placed(one.columns))
            for name, one in self._dnf.reference(xp, problem, inputs).items()
        }

    def _outputs(self, group: tuple[ops.Block, ...]) -> list[tuple[str, ops.Block]]:
        """The outputs of a set of operands by name."""
        return list(zip(self.spec.written, group[len(self.spec.buffers) - len(self.spec.written) :], strict=True))

    # --- calls ---

    def _calls(self, program: Program, case: Case, sets: tuple[tuple[ops.Block, ...], ...], space: Any) -> list[Call]:
        """A call for each set of operands."""
        found = self._program(program)
        if program.language != "cuda":
            return [self._prepared(found, case, group) for group in sets]
        geometry, launch = case.geometry, self.driver.launch
        if geometry is None:
            raise Refused(Reply("skipped", "a CUDA program needs a launch"))

        def call_of(group: tuple[ops.Block, ...]) -> Call:
            arrays = [*(one.data for one in group), space.data]
            return lambda: launch(found, geometry, arrays)

        return [call_of(group) for group in sets]

    def _prepared(self, entry: Any, case: Case, group: tuple[ops.Block, ...]) -> Call:
        """A call of Python, which may need the memory that recorded graphs hold."""
        try:
            return foreign.prepared(self.driver, self.spec, entry, case, group)
        except MemoryError:
            if not self._ready:
                raise
        self._ready.clear()
        self.driver.release()
        return foreign.prepared(self.driver, self.spec, entry, case, group)

    def _space(self, case: Case) -> ops.Block | None:
        """The workspace of a call. Graphs that were kept hold theirs, of n^2 numbers each: the oldest make room."""
        geometry = case.geometry
        if geometry is None:
            return None
        while self._ready and self.driver.room_bytes() < SPARE * geometry.workspace_bytes:
            del self._ready[next(iter(self._ready))]
            self.driver.release()
        return ops.scratch(self.driver.xp, geometry.workspace_bytes, geometry.zero_bytes)

    # --- checking ---

    def _check(self, trial: Trial, case: Case) -> Judgement:
        sets = self._blocks(_drawn(case), 1 if case.problem != trial.case.problem else trial.sets)
        space = self._space(case)
        self._mark(sets)
        (call,) = self._calls(trial.program, case, sets[:1], space)
        foreign.keep(self.driver, self.spec, foreign.run(trial.program, call), sets[0], case.problem)
        self.driver.finish()
        return self._right(trial, case, sets[0], space)

    def _mark(self, sets: tuple[tuple[ops.Block, ...], ...]) -> None:
        for group in sets:
            for _, one in self._outputs(group):
                ops.mark(one)

    def _right(self, trial: Trial, case: Case, group: tuple[ops.Block, ...], space: ops.Block | None) -> Judgement:
        """The judgement when all is right.

        Raises:
            Refused: status wrong; unsound where memory was written to that was nobody's to write.
        """
        found = self._judgement(case, group, trial.program.arithmetic)
        spoiled = self._spoiled(case, group, space)
        if not spoiled and not found.reason:
            return found
        problem = case.problem
        where = (
            ""
            if problem == trial.case.problem
            else f" at n={problem.n} ({' '.join(f'{k}={v}' for k, v in problem.shape)})"
        )
        drawn = "" if case.draw == "normal" else f", inputs of {case.draw} scale"
        reason = (spoiled or found.reason) + where + drawn
        raise Refused(Reply("wrong", reason, error=found.error, tolerance=found.tolerance, sound=not spoiled))

    def _judgement(self, case: Case, group: tuple[ops.Block, ...], arithmetic: str) -> Judgement:
        found = []
        for name, one in self._outputs(group):
            expected = self._references[_drawn(case)][name]
            missing = partial(ops.unwritten, one)
            found.append(compared(name, one.data, missing, expected, expected.allowed(arithmetic)))
        return worst(found)

    def _spoiled(self, case: Case, group: tuple[ops.Block, ...], space: ops.Block | None) -> str:
        """What was written that must not be; empty where nothing was."""
        inputs = len(self.spec.buffers) - len(self.spec.written)
        xp, blocks = self.driver.xp, group if space is None else (*group, space)
        if not ops.all_intact(xp, blocks):
            return "wrote outside of an operand" if not ops.all_intact(xp, group) else "wrote outside of its workspace"
        if bool((ops.checksums(xp, group[:inputs]) != self._sums[_drawn(case)]).any()):
            return "wrote to its inputs"
        zeros = case.geometry.zero_bytes if case.geometry else 0
        if space is not None and zeros and bool(space.data[:zeros].any()):
            return "left something else than zero at the start of its workspace"
        return ""

    # --- timing ---

    def _timed(self, trial: Trial, checked: Judgement) -> Reply:
        begun = time.monotonic()
        sets = self._blocks(_drawn(trial.case), trial.sets)
        self._mark(sets)
        ready = self._made_ready(trial, sets)
        before = self.driver.conditions()
        sample_ns = trial.sample_s * 1e9
        times = max(1, math.ceil(sample_ns / (ready.call_ns * ready.calls)))
        samples: list[float] = []
        hopeless = trial.give_up_ns is not None and ready.call_ns > trial.give_up_ns
        while len(samples) < (1 if hopeless else trial.samples):
            samples.append(self._replayed_ns(trial.program, ready.replay, times) / (times * ready.calls))
        last = sets[(ready.calls - 1) % len(sets)]
        self.driver.finish()
        foreign.keep(self.driver, self.spec, ready.replay.result, last, trial.case.problem)
        self.driver.finish()
        after = self._right(trial, trial.case, last, ready.space)
        conditions = {
            "arithmetic": trial.program.arithmetic,
            "timing": "graph",
            "calls": times * ready.calls,
            "graph_calls": ready.calls,
            "before": pairs(before),
            "after": pairs(self.driver.conditions()),
        }
        error = max(checked.error or 0.0, after.error or 0.0)
        seconds = time.monotonic() - begun
        return Reply("ok", "", tuple(samples), error, after.tolerance, None, seconds, pairs(conditions))

    def _made_ready(self, trial: Trial, sets: tuple[tuple[ops.Block, ...], ...]) -> Ready:
        """The recorded graph of a choice: warmed up by two rounds, long enough for a sample or at its most calls."""
        key = (trial.program, trial.case, trial.sets)
        if key in self._ready:
            return self._ready[key]
        while len(self._ready) >= KEPT_GRAPHS:
            del self._ready[next(iter(self._ready))]
        space = self._space(trial.case)
        each = self._calls(trial.program, trial.case, sets, space)
        for call in each[:2]:
            foreign.run(trial.program, call)
        self.driver.finish()
        program = trial.program
        hopeless = self._hopeless(trial, each, space)
        if hopeless:
            return hopeless
        replay, count = self._recorded(program, each), len(each)
        self._replayed_ns(program, replay)
        call_ns = max(1.0, self._replayed_ns(program, replay) / count)
        wanted = min(MOST_GRAPH_CALLS, math.ceil(trial.sample_s * 1e9 / call_ns))
        rounds = max(1, wanted // count)
        if rounds > 1:
            replay, count = self._recorded(program, each * rounds), count * rounds
            self._replayed_ns(program, replay)
            call_ns = max(1.0, self._replayed_ns(program, replay) / count)
        self._ready[key] = Ready(replay, count, call_ns, space, tuple(each))
        return self._ready[key]

    def _hopeless(self, trial: Trial, each: list[Call], space: ops.Block | None) -> Ready | None:
        """One call where that alone takes longer than the trial waits for: a graph of hundreds of sets would take as
        many times as long, only to be given up. It is not kept, since a race measures on all sets."""
        if not trial.give_up_ns or len(each) == 1:
            return None
        replay = self._recorded(trial.program, each[:1])
        self._replayed_ns(trial.program, replay)
        call_ns = self._replayed_ns(trial.program, replay)
        return Ready(replay, 1, call_ns, space, tuple(each[:1])) if call_ns > trial.give_up_ns else None

    def _recorded(self, program: Program, calls: list[Call]) -> Replay:
        replay: Replay = foreign.run(program, self.driver.record, calls, program.language != "cuda")
        return replay

    def _replayed_ns(self, program: Program, replay: Replay, times: int = 1) -> float:
        return float(foreign.run(program, self.driver.time_ns, replay, times))


def _drawn(case: Case) -> Drawn:
    return case.problem, case.draw


class _HostDnf:
    """Inputs and reference of a kernel without a device.py: made by its spec and carried over."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec

    def inputs(self, xp: Any, problem: Problem, seed: int, draw: str) -> dict[str, Any]:
        return {name: xp.asarray(array) for name, array in self.spec.inputs(problem, seed, draw).items()}

    def reference(self, xp: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Expected]:
        host = {name: one.get() if hasattr(one, "get") else one for name, one in arrays.items()}
        return self.spec.reference(problem, host)


def _on_device(spec: KernelSpec) -> Any:
    """The DNF for arrays of a device: device.py beside the spec where there is one."""
    path = os.path.join(os.path.dirname(origin(spec)), "device.py")
    if not os.path.isfile(path):
        return _HostDnf(spec)
    made = importlib.util.spec_from_file_location(f"advisor_device_{short_hash(path.encode())}", path)
    if made is None or made.loader is None:
        return _HostDnf(spec)
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module

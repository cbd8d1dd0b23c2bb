"""What a bench worker keeps between trials, and the steps of one trial: team, operands, check, samples.

A variant is checked before it is timed, always: on small edge problems once a build, on the problem itself once a
(build, run knobs, threads), and again on what the timed calls left behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from advisor.kernels import library as lib
from advisor.kernels import numa, pools
from advisor.kernels import operands as ops
from advisor.kernels.judge import Judgement, judge
from advisor.kernels.library import Loaded
from advisor.kernels.messages import Edge, Reply, Trial
from advisor.kernels.operands import Operands
from advisor.kernels.sampling import Meter, Plan, Reading, Samples, sample
from advisor.kernels.shelf import Shelf
from advisor.kernels.spec import Expected, KernelSpec
from advisor.records import Problem, pairs
from advisor.words import many

KEPT_BYTES = 64 << 20
"""Operands of earlier (edge) problems are kept up to this many bytes together."""

OBSERVE_NS = 50e6
"""Threads that did not run at all are told apart only over at least this long: the kernel books running threads at
ticks of up to 10 ms."""

SETTLE_S = 0.02
"""How long a thread that ends may still be listed: a few milliseconds on a busy machine."""

Team = tuple[int, tuple[int, ...] | None, tuple[int, ...]]
"""(threads, cpus, mask) of a team."""

Drawn = tuple[Problem, str]
"""A problem and what its inputs are drawn from."""


class Refused(Exception):
    """A trial ends here with a reply. Never leaves the worker."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.reason)
        self.reply = reply


class Bench:
    """The state of one worker. All methods run on its only Python thread."""

    def __init__(self, spec: KernelSpec, seed: int, shelf: Shelf) -> None:
        self.spec = spec
        self.seed = seed
        self.shelf = shelf
        self.meter = Meter()
        self._libraries: dict[str, Loaded] = {}
        self._operands: dict[tuple[Drawn, int, Team | None], Operands] = {}
        self._references: dict[Drawn, dict[str, Expected]] = {}
        self._passed: dict[tuple[str, Drawn, tuple[int, ...], int | None], Judgement] = {}
        self._calls: dict[tuple[object, ...], int] = {}
        self._runtimes: tuple[str, ...] = ()
        self._pools: tuple[pools.Pool, ...] = ()
        self._called: set[str] = set()
        self._team: Team | None = None
        self._current: Drawn | None = None
        self._memory = numa.Where("default", ())
        self._lying: dict[tuple[Drawn, int, Team | None], numa.Lying | None] = {}

    def needs_inputs(self, trial: Trial) -> bool:
        """Whether this trial's problem is another than the last one's, so that there may be inputs to make."""
        return _drawn(trial) != self._current

    def prepare(self, trial: Trial) -> None:
        """Let go of the last problem, and make inputs and reference of this one where they are not here yet."""
        self._current = self._team = None
        self._policy(trial.memory)
        os.sched_setaffinity(0, trial.mask)  # this thread was pinned with its team; making inputs may use all CPUs
        self._forget(_drawn(trial))
        self._reference(_drawn(trial), self._any_operands(_drawn(trial), _shared_sets(trial)))
        self._current = _drawn(trial)

    def trial(self, trial: Trial) -> Reply:
        """Check, then time.

        Raises:
            Refused: with the reply, when the choice cannot be launched or is wrong.
            KernelFailed: the entry returned an error code.
            MemoryError: no room.
        """
        self._policy(trial.memory)
        loaded = self._library(trial)
        tids = self._settle(loaded, trial)
        settled = _tasks()
        checked = self._check(loaded, trial)
        if not trial.samples:
            observed = len(tids) + len(_started_since(settled))
            return Reply("ok", "", (), checked.error, checked.tolerance, observed)
        return self._timed(loaded, trial, (set(tids), settled), checked)

    # --- library and team ---

    def _library(self, trial: Trial) -> Loaded:
        key = trial.binary.key
        if key not in self._libraries:
            self._libraries[key] = lib.load(trial.binary)
            self._runtimes = lib.openmp_runtimes()
        return self._libraries[key]

    def _pools_of(self, trial: Trial) -> dict[str, object]:
        """The thread pools of this process, looked for again once another library has run, which may have brought one
        along, and what is wrong with them."""
        if trial.binary.key not in self._called:
            self._called.add(trial.binary.key)
            self._pools = pools.loaded()
        found = pools.of_team(self._pools, trial.threads)
        said, listed = pools.warnings(found, len(trial.mask)), tuple(tuple(pool) for pool in found)
        return {"pools": listed, "pool_warnings": said} if said else {"pools": listed}

    def _settle(self, loaded: Loaded, trial: Trial) -> tuple[int, ...]:
        """Pin the team anew when it is another one than last time; thread ids of the team."""
        wanted: Team = (trial.threads, trial.cpus, trial.mask)
        if self._team != wanted:
            self._team = None
            failed = lib.pin(loaded, trial.threads, trial.cpus, trial.mask)
            if failed:
                raise Refused(
                    Reply("skipped", f"{failed} of {many(trial.threads, 'thread')} could not be bound to {trial.cpus}")
                )
            self._team = wanted
        return lib.team(loaded, trial.threads)[0]

    # --- where pages lie ---

    def _policy(self, wanted: numa.Where) -> None:
        """The memory policy of this thread and of threads it will start; what there is already is left where it lies.

        Raises:
            PolicyRefused: the kernel does not let us.
        """
        if wanted != self._memory:
            numa.set_policy(wanted)
            self._memory = wanted

    def _place(self, blocks: Sequence[ops.Block]) -> None:
        """Give fresh blocks the policy: threads that touch them first may have been started under another one."""
        for one in blocks:
            numa.place(*ops.span(one), self._memory)

    def _lying_of(self, trial: Trial) -> numa.Lying | None:
        """Where the timed operands lie; None on one node under no policy, where there is nothing to tell."""
        if not trial.own_pages and trial.memory.policy == "default":
            return None
        team: Team | None = (trial.threads, trial.cpus, trial.mask) if trial.own_pages else None
        return self._where_they_lie((_drawn(trial), trial.sets, team))

    def _where_they_lie(self, key: tuple[Drawn, int, Team | None]) -> numa.Lying | None:
        """What the kernel says of the pages of operands, asked once; None where it says nothing.

        Raises:
            Refused: the policy that was set is not the one that memory has.
        """
        if key not in self._lying:
            self._lying = {old: found for old, found in self._lying.items() if old in self._operands}
            ranges = [ops.span(one) for group in self._operands[key].sets for one in group]
            found = self._lying[key] = numa.lying(ranges)
            if found is not None and not numa.keeps(found, self._memory):
                reason = f"memory was to have policy {self._memory.policy}, the kernel says {found.policy}"
                raise Refused(Reply("skipped", reason))
        return self._lying[key]

    # --- operands and reference ---

    def _forget(self, current: Drawn) -> None:
        """Let go of what only an earlier problem needed; small operands (edges) stay."""
        earlier = [key for key in self._operands if key[0] != current]
        total = 0
        for key in sorted(earlier, key=lambda k: self._operands[k].bytes):
            total += self._operands[key].bytes
            if total > KEPT_BYTES:
                del self._operands[key]
        held = {key[0] for key in self._operands} | {current}
        self._references = {drawn: found for drawn, found in self._references.items() if drawn in held}

    def _any_operands(self, drawn: Drawn, sets: int = 1) -> Operands:
        """Operands whose pages may lie anywhere."""
        key = (drawn, sets, None)
        if key not in self._operands:
            problem, draw = drawn
            inputs = self.shelf.inputs(drawn, lambda: self.spec.inputs(problem, self.seed, draw))
            self._operands[key] = ops.make(self.spec, problem, inputs, sets, self._place)
        return self._operands[key]

    def _timed_operands(self, loaded: Loaded, trial: Trial) -> Operands:
        """The operands to time with: touched first by the trial's own team where a machine has several nodes."""
        if not trial.own_pages:
            return self._any_operands(_drawn(trial), trial.sets)
        team: Team = (trial.threads, trial.cpus, trial.mask)
        key = (_drawn(trial), trial.sets, team)
        if key not in self._operands:
            for other in [k for k in self._operands if k[0] == key[0] and k[2] is not None]:
                del self._operands[other]  # one team's copy at a time beside the one that all are made from
            source = ops.inputs(self.spec, self._any_operands(_drawn(trial)))

            def touch(blocks: Sequence[ops.Block]) -> None:
                self._place(blocks)
                lib.touch(loaded, blocks, trial.threads)

            self._operands[key] = ops.make(self.spec, trial.problem, source, trial.sets, touch)
        return self._operands[key]

    def _reference(self, drawn: Drawn, operands: Operands) -> dict[str, Expected]:
        if drawn not in self._references:
            inputs = ops.inputs(self.spec, operands)
            self._references[drawn] = self.shelf.expected(drawn, lambda: self.spec.reference(drawn[0], inputs))
        return self._references[drawn]

    # --- checking ---

    def _check(self, loaded: Loaded, trial: Trial) -> Judgement:
        """Edges first, then the problem itself; the judgement of the problem.

        An edge with at least a row for every thread is checked with one team size only.

        Raises:
            Refused: with status wrong.
        """
        for edge in (*trial.edges, Edge(trial.problem, trial.dims, trial.draw)):
            any_team = edge.problem != trial.problem and edge.problem.n > trial.threads
            key = (trial.binary.key, _drawn(edge), edge.dims, None if any_team else trial.threads)
            if key not in self._passed:
                self._passed[key] = self._checked_once(loaded, trial, edge)
        return self._passed[key]

    def _checked_once(self, loaded: Loaded, trial: Trial, edge: Edge) -> Judgement:
        operands = self._any_operands(_drawn(edge), _shared_sets(trial) if _drawn(edge) == _drawn(trial) else 1)
        reference = self._reference(_drawn(edge), operands)
        spaces = self._scratch(loaded, operands, edge, trial)
        for one in spaces:
            one.data[...] = ops.POISON
        outputs = ops.outputs(self.spec, operands)
        for one in outputs.values():
            ops.mark(one)
        lib.runner(loaded, operands, edge.dims, spaces, trial.threads).run(1)
        return _right(judge(outputs, reference), spaces, edge, trial.problem)

    def _scratch(self, loaded: Loaded, operands: Operands, edge: Edge, trial: Trial) -> tuple[ops.Block, ...]:
        """The workspace, then a block a set for what the variant prepares."""
        own, once = (
            lib.workspace_bytes(loaded, operands, edge.dims, trial.threads),
            lib.prepared_bytes(loaded, edge.dims),
        )
        if own < 0 or once < 0:
            raise Refused(Reply("crashed", f"asks for a workspace of {min(own, once)} bytes"))
        size = own + once * len(operands.sets)
        if trial.scratch_bytes is not None and size > trial.scratch_bytes:
            raise Refused(
                Reply("skipped", f"needs a workspace of {size} bytes, there is room for {trial.scratch_bytes}")
            )
        workspace = lib.scratch(0 if trial.binary.source else own)  # a library allocates for itself
        spaces = (workspace, *(lib.scratch(once) for _ in operands.sets if once))
        self._place(spaces)
        return spaces

    # --- timing ---

    def _timed(self, loaded: Loaded, trial: Trial, threads: tuple[set[int], set[int]], checked: Judgement) -> Reply:
        """Time; `threads` are the ids of the team, and of all threads that there were when it had settled."""
        operands = self._timed_operands(loaded, trial)
        lying = self._lying_of(trial)
        spaces = self._scratch(loaded, operands, Edge(trial.problem, trial.dims), trial)
        for index in range(len(operands.sets)):
            for one in ops.outputs(self.spec, operands, index).values():
                ops.mark(one)
        runner = lib.runner(loaded, operands, trial.dims, spaces, trial.threads)
        key = (trial.binary.key, trial.problem, trial.dims, trial.threads, trial.cpus, trial.sample_s)
        plan = Plan(trial.samples, trial.sample_s * 1e9, trial.give_up_ns, self._calls.get(key, 0), trial.quiet)
        steal, before = _steal(), self.meter.read()
        taken = sample(runner.run, self.meter, plan)
        after, stolen, extra = self.meter.read(), _steal(), _started_since(threads[1])
        self._calls[key] = taken.calls
        outputs = ops.outputs(self.spec, operands, runner.last_set)
        edge = Edge(trial.problem, trial.dims, trial.draw)
        after_all = _right(judge(outputs, self._references[_drawn(trial)]), spaces, edge, trial.problem)
        cpus = lib.team(loaded, trial.threads)[1]
        if trial.cpus is not None and cpus != trial.cpus:
            self._team = None  # something moved a thread: bind the team again next time
        conditions = {
            "calls": taken.calls,
            "cpus_observed": cpus,
            "openmp": self._runtimes,
            **self._pools_of(trial),
            "kept_noisy": taken.kept_noisy,
            "rejected": len(taken.rejected_ns),
            "rejected_ns": taken.rejected_ns,
            "run_delay": self.meter.kind,
            "steal_ticks": None if steal is None or stolen is None else stolen - steal,
        }
        if lying is not None:
            conditions |= {"memory_policy": lying.policy, "pages": tuple(lying.pages.items())}
        return Reply(
            status="ok",
            samples_ns=taken.samples_ns,
            error=max(checked.error or 0.0, after_all.error or 0.0),
            tolerance=after_all.tolerance if (after_all.error or 0.0) > (checked.error or 0.0) else checked.tolerance,
            threads_observed=_observed(threads[0], extra, taken, (before, after)),
            kernel_s=taken.kernel_ns * 1e-9,
            conditions=pairs(conditions),
        )


def _observed(team: set[int], extra: set[int], taken: Samples, around: tuple[Reading, Reading]) -> int:
    """Threads that really ran: the team, less those that stood idle, and those the variant made besides.

    A variant that takes threads which a runtime kept from an earlier, larger team (libomp does) is not seen here.
    """
    before, after = around
    if not after.ran or taken.kernel_ns < OBSERVE_NS:
        return len(team | extra)
    ran = {tid for tid, time in after.ran.items() if time > before.ran.get(tid, 0)}
    return len(ran & (team | extra))


def _shared_sets(trial: Trial) -> int:
    """Sets of the operands that are not one team's own: a single one where teams have their own copies."""
    return 1 if trial.own_pages else trial.sets


def _drawn(what: Trial | Edge) -> Drawn:
    return what.problem, what.draw


def _right(found: Judgement, spaces: Sequence[ops.Block], edge: Edge, asked: Problem) -> Judgement:
    """The judgement when all is right.

    Raises:
        Refused: with status wrong, and unsound when memory outside of outputs and scratch was written to.
    """
    overrun = not all(map(ops.intact, spaces))
    if not found.reason and not overrun:
        return found
    problem = edge.problem
    where = "" if problem == asked else f" at n={problem.n} ({' '.join(f'{k}={v}' for k, v in problem.shape)})"
    drawn = "" if edge.draw == "normal" else f", inputs of {edge.draw} scale"
    reason = ("wrote outside of its workspace" if overrun else found.reason) + where + drawn
    raise Refused(
        Reply("wrong", reason, error=found.error, tolerance=found.tolerance, sound=not (overrun or found.spoiled))
    )


def _started_since(earlier: set[int]) -> set[int]:
    """Threads that a variant started and that stay.

    A listing made while threads end (those of a larger team, of the reference) can miss others that live on, so what
    looks new counts only when it is still there a moment later.
    """
    found = _tasks() - earlier
    if found:
        time.sleep(SETTLE_S)
        found &= _tasks()
    return found


def _tasks() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def _steal() -> int | None:
    """Ticks that the hypervisor gave to somebody else, all CPUs together; None where that is not told.

    Source: proc(5), /proc/stat: user nice system idle iowait irq softirq steal.
    """
    try:
        with open("/proc/stat", encoding="utf-8") as file:
            words = file.readline().split()
        return int(words[8])
    except (OSError, IndexError, ValueError):
        return None

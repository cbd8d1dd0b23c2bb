"""GpuPool: the executor of one device, with the methods of WorkerPool: a search need not know the difference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from advisor.errors import AdvisorError, BadInput, WorkerDied
from advisor.kernels.child import Answer
from advisor.kernels.edges import edges
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.child import GpuCrew
from advisor.kernels.gpu.device import missing
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.messages import Case, Compile, Hello, Program, Trial
from advisor.kernels.gpu.source import options
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.memory import ITEM_BYTES, operand_bytes
from advisor.kernels.pool import HANGS, Prepared
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims, is_valid
from advisor.records import Build, Choice, Gpu, Measurement, Problem, pairs

L2_BYTES = 60 << 20
"""What cold operands must exceed twice: the L2 of an H100 or H200, the largest but those of later data-centre chips."""

COLD_FACTOR = 2
MOST_SETS = 512
USABLE = 0.9
"""Share of the device's memory that a trial may take."""

REFERENCE_BYTES = 1 << 30
"""What the reference takes beside its scores: some hundred thousand rows in float64."""


class GpuPool:
    """An Executor of one device. Close it, or use it as a context manager; use it from one thread."""

    def __init__(self, gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], seed: int = 0) -> None:
        self.gpu, self.spec = gpu, spec
        self._variants = {(variant.name, variant.source_hash): variant for variant in variants}
        self.crew = GpuCrew(Hello(origin(spec), seed, gpu.uuid or ""))
        self._fatal: dict[tuple[Problem, Build], Measurement] = {}
        self._hangs: dict[tuple[str, str], int] = {}
        self._returned: set[tuple[str, str]] = set()

    def __enter__(self) -> GpuPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker. Idempotent."""
        self.crew.close()

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """Compile if needed, verify against the DNF, warm up, record a graph, sample; see Executor.

        A choice that crashed or hung is not run again on the same problem, a variant that only ever hung not at all.
        """
        return self._measure(problem, choice, ask, None)

    def check(self, problem: Problem, choice: Choice, limit_s: float, draw: str = "normal") -> Measurement:
        """Compare one choice with the DNF on one problem and draw of inputs, without edges and without timing."""
        return self._measure(problem, choice, Ask(0, limit_s), draw)

    def prepare(self, problem: Problem, choices: Iterable[Choice]) -> Prepared:
        """Compile the CUDA programs of these choices ahead. Failures are told by the measurements."""
        start = time.monotonic()
        programs: dict[Program, None] = {}
        for choice in choices:
            try:
                variant = self._possible(problem, choice.build)
            except AdvisorError:
                continue
            if variant.language == "cuda":
                programs[self._program(variant, problem, choice.build)] = None
        if not programs:
            return Prepared(0, 0, 0.0)
        answer = self.crew.ask(Compile(tuple(programs)), 0.0)
        failed = len(answer.reply.reason.splitlines()) if answer.reply else len(programs)
        return Prepared(len(programs) - failed, failed, time.monotonic() - start)

    # --- the steps ---

    def _measure(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        start = time.monotonic()
        known = self._not_again(problem, choice)
        found = known or self._attempt(problem, choice, ask, draw)
        if known is None:
            self._note_fate(problem, choice, found)
        return found._replace(seconds=time.monotonic() - start)

    def _not_again(self, problem: Problem, choice: Choice) -> Measurement | None:
        known = self._fatal.get((problem, choice.build))
        if known is not None:
            return known._replace(choice=choice, reason=f"not run again: {known.reason}", seconds=0.0, compile_s=0.0)
        variant = choice.build.variant, choice.build.source_hash
        if self._hangs.get(variant, 0) >= HANGS and variant not in self._returned:
            reason = f"not run: {choice.build.variant} hung {HANGS} times and never came back"
            return Measurement(problem, choice, "skipped", reason=reason)
        return None

    def _note_fate(self, problem: Problem, choice: Choice, found: Measurement) -> None:
        variant = choice.build.variant, choice.build.source_hash
        if found.status in ("crashed", "timeout"):
            self._fatal[problem, choice.build] = found
        if found.status == "timeout":
            self._hangs[variant] = self._hangs.get(variant, 0) + 1
        elif found.status == "ok":
            self._returned.add(variant)

    def _attempt(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        skipped = Measurement(problem, choice, "skipped")
        try:
            variant = self._possible(problem, choice.build)
            trial = self._trial(problem, variant, choice, ask, draw)
            lacking = self._lacking(trial)
            if lacking:
                return skipped._replace(reason=lacking)
            answer = self.crew.ask(trial, ask.limit_s)
        except (AdvisorError, WorkerDied) as error:
            return skipped._replace(reason=str(error))
        return _measurement(problem, choice, answer, trial)

    def _possible(self, problem: Problem, made: Build) -> Variant:
        """The variant of a build that can run here. Raises BadInput with what is missing."""
        variant = self._variants.get((made.variant, made.source_hash))
        if variant is None:
            known = ", ".join(f"{name} {digest}" for name, digest in sorted(self._variants))
            got = f"{made.variant} {made.source_hash}"
            raise BadInput("a choice must be of a variant at hand, in this very version", got=got, allowed=known)
        lacking = missing(variant, self.gpu)
        if lacking:
            have = f"compute capability {self.gpu.compute_capability}"
            raise BadInput(f"{variant.name} needs {' '.join(lacking)}", got=have, allowed="that or a later one")
        if problem.kernel != self.spec.name or not is_valid(variant, problem, made.knobs):
            got = f"{problem.kernel} {problem.dtype} {problem.dims()} {dict(made.knobs)}"
            allowed = " and ".join(variant.valid) or ", ".join(variant.dtypes)
            raise BadInput(f"{variant.name} does not exist for this problem with these knobs", got=got, allowed=allowed)
        return variant

    def _program(self, variant: Variant, problem: Problem, made: Build) -> Program:
        words = options(variant, problem, made.knobs) if variant.launch else ()
        return Program(variant.path, variant.source_hash, variant.language, variant.symbol, words)

    def _case(self, variant: Variant, problem: Problem, made: Build, draw: str) -> Case:
        launch = geometry(self.spec, variant, problem, made.knobs) if variant.launch else None
        dims = entry_dims(self.spec, variant._replace(run_knobs=()), problem, made.knobs)
        return Case(problem, draw, dims, made.knobs, launch)

    def _trial(self, problem: Problem, variant: Variant, choice: Choice, ask: Ask, draw: str | None) -> Trial:
        made = choice.build
        checks = []
        if draw is None:
            checks = [
                self._case(variant, e.problem, made, e.draw) for e in edges(self.spec, variant, problem, made.knobs)
            ]
            checks += [self._case(variant, problem, made, other) for other in self.spec.draws if other != "normal"]
        return Trial(
            program=self._program(variant, problem, made),
            case=self._case(variant, problem, made, draw or "normal"),
            checks=tuple(checks),
            sets=sets(self.spec, problem),
            samples=ask.samples,
            sample_s=ask.sample_s,
            give_up_ns=ask.give_up_ns,
        )

    def _lacking(self, trial: Trial) -> str:
        """Why a trial does not fit into the device's memory; empty where it does or nothing is known."""
        need = need_bytes(self.spec, trial.case.problem, trial.sets)
        need += trial.case.geometry.workspace_bytes if trial.case.geometry else 0
        total = self.gpu.memory_bytes
        if total is None or need <= USABLE * total:
            return ""
        return f"needs about {need} bytes of device memory, {self.gpu.name} has {total}"


def sets(spec: KernelSpec, problem: Problem) -> int:
    """Sets of operands that calls rotate through: one when warm, when cold more than the L2 holds twice."""
    if problem.regime != "cold":
        return 1
    one = operand_bytes(spec, problem)
    return min(MOST_SETS, max(2, -(-COLD_FACTOR * L2_BYTES // max(one, 1)) + 1))


def need_bytes(spec: KernelSpec, problem: Problem, copies: int) -> int:
    """Bytes that a trial takes: every set, another draw of inputs, inputs as they are made, the reference."""
    of = problem.dims()
    scores = of.get("heads", 1) * of.get("batch", 1) * problem.n * ITEM_BYTES["float64"]
    return int(operand_bytes(spec, problem) * (2 * copies + 1) + 3 * scores + REFERENCE_BYTES)


def _measurement(problem: Problem, choice: Choice, answer: Answer, trial: Trial) -> Measurement:
    found = Measurement(problem, choice, answer.status, reason=answer.reason)
    if answer.reply is None:
        return found
    reply = answer.reply
    tools = {tool.name: tool.version for tool in gpu_tools()}
    conditions = {**dict(reply.conditions), "sets": trial.sets, "tool": tools.get(choice.build.compiler)}
    return found._replace(
        samples_ns=reply.samples_ns,
        error=reply.error,
        tolerance=reply.tolerance,
        kernel_s=reply.kernel_s,
        conditions=pairs(conditions),
    )

"""GpuPool: the executor of one device, with the methods of WorkerPool: a search need not know the difference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from advisor.errors import AdvisorError, BadInput, WorkerDied
from advisor.kernels.child import Answer
from advisor.kernels.edges import edges
from advisor.kernels.executor import Ask
from advisor.kernels.fates import Fates, by_key, check_exists, variant_of
from advisor.kernels.gpu.child import GpuCrew
from advisor.kernels.gpu.device import missing, shared_bytes
from advisor.kernels.gpu.geometry import MOST_GRID, geometry
from advisor.kernels.gpu.memory import USABLE, need_bytes, sets
from advisor.kernels.gpu.messages import Case, Compile, Hello, Program, Trial
from advisor.kernels.gpu.source import options
from advisor.kernels.gpu.space import is_possible
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.pool import Prepared
from advisor.kernels.power import gpu_joules
from advisor.kernels.registry import origin
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, entry_dims
from advisor.records import Build, Choice, Gpu, Measurement, Problem, pairs


class GpuPool:
    """An Executor of one device. Close it, or use it as a context manager; use it from one thread."""

    def __init__(self, gpu: Gpu, spec: KernelSpec, variants: Sequence[Variant], seed: int = 0) -> None:
        self.gpu, self.spec = gpu, spec
        self._variants = by_key(variants)
        self.crew = GpuCrew(Hello(origin(spec), seed, gpu.uuid or ""))
        self._fates = Fates()
        self._tools = {tool.name: tool.version for tool in gpu_tools()}  # once: it reads folders of packages

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
        """Start the worker, compile or import the programs of these choices ahead, and what checking them takes.

        Failures are told by the measurements, a worker that cannot be started too. What is compiled for a shape,
        Triton's, is compiled by its first call.
        """
        start = time.monotonic()
        programs: dict[Program, None] = {}
        for choice in choices:
            try:
                variant = self._possible(problem, choice.build)
            except AdvisorError:
                continue
            programs[self._program(variant, problem, choice.build)] = None
        failed = self._failed(Compile(tuple(programs), problem))
        return Prepared(len(programs) - failed, failed, time.monotonic() - start)

    def trial(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None = None) -> Trial:
        """What a worker is told to do; `draw` None: normal inputs, edge problems and other draws first.

        Raises:
            BadInput: the choice cannot run here, with what is missing.
        """
        return self._trial(problem, self._possible(problem, choice.build), choice, ask, draw)

    def joules(self, choice: Choice) -> float | None:
        """What the device used since its driver was loaded; None where NVML does not tell, as of a slice."""
        return gpu_joules(self.gpu.uuid or "")

    # --- the steps ---

    def _measure(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        """`draw` None: normal inputs, edge problems and other draws first."""
        return self._fates.measured(problem, choice, lambda: self._attempt(problem, choice, ask, draw))

    def _attempt(self, problem: Problem, choice: Choice, ask: Ask, draw: str | None) -> Measurement:
        skipped = Measurement(problem, choice, "skipped")
        try:
            trial = self.trial(problem, choice, ask, draw)
            lacking = self._lacking(trial)
            if lacking:
                return skipped._replace(reason=lacking)
            answer = self.crew.ask(trial, ask.limit_s)
        except AdvisorError as error:  # WorkerDied too: not the choice's doing, it may be tried again
            return skipped._replace(reason=str(error))
        return _measurement(problem, choice, answer, trial, self._tools)

    def _failed(self, asked: Compile) -> int:
        """How many programs could not be compiled: all of them where the worker did not come through."""
        try:
            reply = self.crew.ask(asked, 0.0).reply
        except WorkerDied:
            return len(asked.programs)
        if reply is None or reply.status != "ok":
            return len(asked.programs)
        return len(reply.reason.splitlines())

    def _possible(self, problem: Problem, made: Build) -> Variant:
        """The variant of a build that can run here. Raises BadInput with what is missing."""
        variant = variant_of(self._variants, made)
        lacking = missing(variant, self.gpu)
        if lacking:
            have = f"compute capability {self.gpu.compute_capability}"
            raise BadInput(f"{variant.name} needs {' '.join(lacking)}", got=have, allowed="that or a later one")
        check_exists(self.spec, variant, problem, made)
        if not is_possible(self.gpu, self.spec, variant, problem, made.knobs):
            raise BadInput(
                f"{variant.name} must ask for a launch that {self.gpu.name} can make",
                got=geometry(self.spec, variant, problem, made.knobs).extents,
                allowed=f"{shared_bytes(self.gpu)} bytes of shared memory a block, grid up to {MOST_GRID}",
            )
        return variant

    def _program(self, variant: Variant, problem: Problem, made: Build) -> Program:
        words = options(variant, problem, made.knobs) if variant.launch else ()
        first, *then = variant.symbols
        return Program(
            variant.path, variant.source_hash, variant.language, first, words, variant.arithmetic, tuple(then)
        )

    def _case(self, variant: Variant, problem: Problem, made: Build, draw: str) -> Case:
        launch = geometry(self.spec, variant, problem, made.knobs) if variant.launch else None
        dims = entry_dims(self.spec, variant._replace(run_knobs=()), problem, made.knobs)
        return Case(problem, draw, dims, made.knobs, launch)

    def _trial(self, problem: Problem, variant: Variant, choice: Choice, ask: Ask, draw: str | None) -> Trial:
        made = choice.build
        checks = []
        if draw is None:
            checks = [
                self._case(variant, e.problem, made, e.draw)
                for e in edges(self.spec, variant, problem, made.knobs)
                if is_possible(self.gpu, self.spec, variant, e.problem, made.knobs)
            ]
            checks += [self._case(variant, problem, made, other) for other in self.spec.draws if other != "normal"]
        return Trial(
            program=self._program(variant, problem, made),
            case=self._case(variant, problem, made, draw or "normal"),
            checks=tuple(checks),
            sets=sets(self.spec, problem, self.gpu),
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


def _measurement(
    problem: Problem, choice: Choice, answer: Answer, trial: Trial, tools: Mapping[str, str]
) -> Measurement:
    found = Measurement(problem, choice, answer.status, reason=answer.reason)
    if answer.reply is None:
        return found
    reply = answer.reply
    conditions = {**dict(reply.conditions), "sets": trial.sets, "tool": tools.get(choice.build.compiler)}
    return found._replace(
        samples_ns=reply.samples_ns,
        error=reply.error,
        tolerance=reply.tolerance,
        kernel_s=reply.kernel_s,
        conditions=pairs(conditions),
    )

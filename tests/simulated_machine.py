"""A machine that exists as a cost model: 2 sockets x 4 NUMA domains x 16 cores as published, and others around it.

The time of a call is

    fork and join (or, in the first call of all, making the threads) + work + slices of the scheduler

    fork and join   `fork_us` for each thread, dearer over several domains and for threads that sleep
    work, decode    n rows at `decode_ns` over all cores, dearer where keys and values do not fit the cores' own
                    caches; in memory all pages lie in one domain (first touch by one thread) and its bandwidth shared
    work, others    n x n pairs at so many ns, dearer beyond the first-level cache (forward) or beyond what the
                    second-level TLB reaches (the backward passes), over all cores, times 1 + contention x log2(threads)
    slices          where a team holds every core, an intruder on one of them is given whole time slices while all
                    others spin: `DECODE_SLICES` of them in each call of decode, one at each of its waits

A scan that does not fit a level misses all of it (least recently used).

What the published figures cannot tell (several placements, waiting, SMT, further builds) is in `Traits`; on the
published machine none of it counts. `simulated_paper.py` reads the figures and fits `Model` to them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fake import FakeExecutor, Noise, fake_machine, quiet

from advisor.kernels.executor import Ask
from advisor.records import Build, Choice, Machine, Measurement, Problem, Process, Team
from advisor.search.space import binary, cpu_budget
from advisor.topology.placement import UNPINNED, evaluate

L1_BYTES, L2_BYTES, L3_BYTES = 32 << 10, 512 << 10, 32 << 20
"""A core's first and second level, a group's third. Source: AMD EPYC 7003 (Milan) data sheet."""

TLB_BYTES = 2048 * 4096
"""Reach of the second-level TLB: 2048 entries of 4 KiB. Source: AMD software optimization guide, family 19h, 2.7."""

ROW_BYTES, PAIR_ROW_BYTES = 1024, 512
"""Keys and values of a row of decode (batch 2, 64 float32); one array's row of the others (64 float64)."""

BACKWARD_ARRAYS = 8
"""Arrays of n rows that a backward pass walks: q, k, v, out and their gradients."""

DECODE_SLICES = 4
"""Slices that a call of decode loses to an intruder: one integer for the whole published plateau, read off it."""


class Model(NamedTuple):
    """The fitted part. ns are core nanoseconds: of a row (decode), of a pair of rows (others), one core working alone.

    Attributes:
        fork_us: entering and leaving a parallel region, a thread, team warm.
        spawn_us, forward_spawn_us: making a thread, in a first call; apart for forward, which is another program.
        slice_ms: what the scheduler gives an intruder at a time.
        decode_ns, decode_far_ns: a row; what it costs more beyond the second level.
        domain_gb_s: memory bandwidth of one domain as the decode kernel uses it.
        forward_ns, forward_far_ns: a pair; more beyond the first level.
        naive_ns, naive_far_ns, fused_ns, fused_far_ns: a pair; more beyond the TLB's reach.
        forward_contention, naive_contention, fused_contention: share that work grows by at every doubling of threads.
    """

    fork_us: float
    spawn_us: float
    forward_spawn_us: float
    slice_ms: float
    decode_ns: float
    decode_far_ns: float
    domain_gb_s: float
    forward_ns: float
    forward_far_ns: float
    forward_contention: float
    naive_ns: float
    naive_far_ns: float
    naive_contention: float
    fused_ns: float
    fused_far_ns: float
    fused_contention: float


FITTED = Model(
    fork_us=1.3853,
    spawn_us=79.646,
    forward_spawn_us=95.099,
    slice_ms=9.5598,
    decode_ns=663.69,
    decode_far_ns=352.08,
    domain_gb_s=4.7658,
    forward_ns=143.98,
    forward_far_ns=72.427,
    forward_contention=0.11301,
    naive_ns=1863.8,
    naive_far_ns=3046.4,
    naive_contention=0.20522,
    fused_ns=1921.1,
    fused_far_ns=3554.1,
    fused_contention=0.12185,
)
"""The published machine: what `fit` in simulated_paper.py finds, five digits; a test fits again."""


class Traits(NamedTuple):
    """What no published figure tells; the defaults leave the model alone.

    Attributes:
        span: share that fork and join grow by for each further domain.
        apart: share that work grows by when the team spans all domains, and again for a second socket.
        crowd: share that work grows by when all cores of a third-level group work.
        smt: throughput of two threads on a core over that of one.
        core_gb_s: what one core can read from memory.
        interleaved: bandwidth of interleaved pages, as a share of all domains' together.
        active, passive, spin: fork and join with this wait policy over that of the runtime's own.
        seed: of the builds' speeds.
    """

    span: float = 0.0
    apart: float = 0.0
    crowd: float = 0.0
    smt: float = 1.0
    core_gb_s: float = math.inf
    interleaved: float = 1.0
    active: float = 1.0
    passive: float = 1.0
    spin: float = 1.0
    seed: int = 0


class Place(NamedTuple):
    """Where a team runs: threads, and how many cores, third-level groups, domains and sockets they hold.

    `fullest`: share of the cores of the fullest group that work; `homes`: domains that memory lies on.
    """

    threads: int
    cores: int
    groups: int
    domains: int
    sockets: int
    fullest: float = 0.0
    homes: int = 1


def published_place(threads: int) -> Place:
    """Threads on the published machine, one a core, one socket filled after the other."""
    return Place(threads, threads, *(max(1, math.ceil(threads / cores)) for cores in (8, 16, 64)))


# --- the cost model ---


def work_s(model: Model, traits: Traits, law: str, n: int, place: Place) -> float:
    """Seconds of work of one call on a quiet machine.

    Args:
        law: decode, forward, naive (forward and backward apart) or fused.
    """
    rate = place.cores + (place.threads - place.cores) * (traits.smt - 1)
    slow = 1 + traits.apart * ((place.domains > 1) * (1 - 1 / place.domains) + (place.sockets > 1))
    slow *= 1 + traits.crowd * place.fullest
    if law == "decode":
        size = n * ROW_BYTES
        each = model.decode_ns + model.decode_far_ns * (size > place.cores * L2_BYTES)
        inside = n * each * 1e-9 / rate * slow
        return inside if size <= place.groups * L3_BYTES else max(inside, size / memory_bytes_s(model, traits, place))
    far = n * PAIR_ROW_BYTES * (2 if law == "forward" else BACKWARD_ARRAYS)
    reach = 2 * L1_BYTES if law == "forward" else TLB_BYTES
    values = model._asdict()
    each = values[f"{law}_ns"] + values[f"{law}_far_ns"] * (far > reach)
    contention = 1 + values[f"{law}_contention"] * math.log2(place.threads)
    return 2 * n * n * each * 1e-9 * contention / rate * slow


def memory_bytes_s(model: Model, traits: Traits, place: Place) -> float:
    """Bandwidth that a team has from memory."""
    shared = place.homes * model.domain_gb_s * (traits.interleaved if place.homes > 1 else 1.0)
    return 1e9 * min(shared, place.cores * traits.core_gb_s)


def fork_s(model: Model, traits: Traits, process: Process | None, place: Place) -> float:
    """Seconds to enter and leave a parallel region, team warm."""
    if place.threads == 1:
        return 0.0
    policy = "default" if process is None else "spin" if process.spin else process.wait_policy
    wait = 1.0 if policy == "default" else traits._asdict()[policy]
    return model.fork_us * 1e-6 * place.threads * (1 + traits.span * (place.domains - 1)) * wait


def spawn_s(model: Model, law: str, threads: int) -> float:
    """Seconds to make a team in a first call."""
    each = model.forward_spawn_us if law == "forward" else model.spawn_us
    return each * 1e-6 * threads if threads > 1 else 0.0


# --- builds ---


def _position(values: Sequence[object], value: object) -> float:
    """Where a knob's value lies among all of the knob's, from 0 to 1."""
    return values.index(value) / (len(values) - 1) if len(values) > 1 else 0.0


class Builds:
    """Hidden speeds of builds: a variant's own, a valley a knob that moves with threads and n, a little chance.

    Args:
        seed: other speeds for another one.
        choices: the space.
    """

    def __init__(self, seed: int, choices: Sequence[Choice]) -> None:
        self._seed = seed
        found: dict[tuple[str, str], set[object]] = {}
        for build in {choice.build for choice in choices}:
            for name, value in build.knobs:
                found.setdefault((build.variant, name), set()).add(value)
        self._values = {key: sorted(values, key=lambda v: (isinstance(v, str), v)) for key, values in found.items()}
        self._draw = functools.cache(self._drawn)
        self._fixed = functools.cache(self._fixed_of)

    def _drawn(self, *name: object) -> random.Random:
        return random.Random(f"{self._seed} {name}")

    def _valley(self, variant: str, knob: str) -> tuple[float, float, float, float]:
        """Depth, place, and how far it moves with threads and with n."""
        rng = random.Random(f"{self._seed} {variant} {knob}")
        return rng.lognormvariate(-1.5, 0.6), rng.random(), rng.gauss(0, 0.3), rng.gauss(0, 0.3)

    def _fixed_of(self, build: Build) -> tuple[float, tuple[tuple[float, float, float, float, float], ...]]:
        rng = random.Random(f"{self._seed} {build.variant}")
        speed = 1.0 if build.variant == "naive" else rng.lognormvariate(math.log(4), 0.4)
        chance = random.Random(f"{self._seed} {build}").lognormvariate(0, 0.01)
        valleys = tuple(
            (_position(self._values[build.variant, name], value), *self._valley(build.variant, name))
            for name, value in build.knobs
        )
        return chance / speed, valleys

    def factor(self, build: Build, n: int, threads: int) -> float:
        """Time of a build's work over that of the published kernel."""
        fixed, valleys = self._fixed(build)
        along_t, along_n = math.log2(threads) / 7 - 0.5, math.log2(n) / 20 - 0.5
        rise = sum(
            depth * (position - place - shift * along_t - drift * along_n) ** 2
            for position, depth, place, shift, drift in valleys
        )
        return fixed * math.exp(rise)


# --- a machine that the tuner can be run on ---


class Simulated:
    """A machine, its model, and the speeds of the builds on it."""

    def __init__(self, machine: Machine, model: Model, traits: Traits, choices: Sequence[Choice]) -> None:
        self.machine, self.model, self.traits = machine, model, traits
        self.builds = Builds(traits.seed, choices)
        self._groups = {name: [frozenset(group) for group in groups] for name, groups in machine.groupings}
        self.place = functools.cache(self._place)

    def _place(self, team: Team, interleaved: bool) -> Place:
        machine, known = self.machine, dict(self.machine.groupings)
        cpus = evaluate(team.placement, machine.array, machine.allowed_cpus, team.threads, known)
        on = frozenset(cpus if cpus and team.placement != UNPINNED else machine.allowed_cpus)
        held = {name: sum(bool(group & on) for group in groups) for name, groups in self._groups.items()}
        cores = self._groups["core"]
        fullest = max(sum(bool(core & on & group) for core in cores) for group in self._groups["l3"])
        size = len(cores) / len(self._groups["l3"])
        homes = len(self._groups["numa"]) if interleaved else 1
        return Place(team.threads, held["core"], held["l3"], held["numa"], held["socket"], fullest / size, homes)

    def seconds(self, problem: Problem, choice: Choice) -> float:
        """True time of one call on the quiet machine, team warm."""
        team, process = choice.team or Team(1, ""), choice.process
        place = self.place(team, process is not None and process.memory_policy == "interleave")
        law = "naive" if problem.kernel == "fused" and choice.build.variant in ("naive", "pair") else problem.kernel
        work = work_s(self.model, self.traits, law, problem.n, place)
        return fork_s(self.model, self.traits, process, place) + work * self.builds.factor(
            choice.build, problem.n, team.threads
        )

    def stalled_s(self, choice: Choice) -> float:
        """What one busy neighbour adds to each call: nothing while a hardware thread is free for it."""
        spins = choice.process is None or choice.process.wait_policy != "passive"
        full = choice.team is not None and choice.team.threads >= len(self.machine.allowed_cpus)
        return DECODE_SLICES * self.model.slice_ms * 1e-3 if spins and full else 0.0


class SimulatedExecutor(FakeExecutor):
    """Runs choices on a simulated machine. Keeps the seconds of races apart in `race_s`, a problem."""

    def __init__(self, simulated: Simulated, noise: Noise = quiet) -> None:
        self.simulated, self._beside = simulated, False
        self.race_s: dict[Problem, float] = {}
        self.compiled: set[Build] = set()
        super().__init__(self._time_ns, noise)

    def _time_ns(self, problem: Problem, choice: Choice) -> float:
        extra = self.simulated.stalled_s(choice) if self._beside else 0.0
        return 1e9 * (self.simulated.seconds(problem, choice) + extra)

    def prepare(self, problem: Problem, choices: Sequence[Choice]) -> None:
        """Compile all at once, one a CPU; knobs that are given at run time need no build of their own."""
        new = {binary(choice.build) for choice in choices} - self.compiled
        self.clock.now += self.build_s * math.ceil(len(new) / cpu_budget(self.simulated.machine))
        self.compiled |= new
        self.built |= {choice.build for choice in choices}

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        found = super().measure(problem, choice, ask)
        if ask.samples == 1:
            self.race_s[problem] = self.race_s.get(problem, 0.0) + found.seconds
        return found

    @contextlib.contextmanager
    def disturbed(self, cpu: int) -> Iterator[None]:
        """A busy neighbour on one CPU."""
        self._beside = True
        yield
        self._beside = False


# --- machines drawn around the published one ---

SPREAD = 0.3
"""Standard deviation of the logarithms of a drawn machine's parameters: two of three within a third."""


class Shape(NamedTuple):
    """Sockets, NUMA domains a socket, third-level groups a domain, cores a group, hardware threads a core."""

    sockets: int
    numa: int
    l3: int
    cores: int
    smt: int


PUBLISHED_SHAPE = Shape(2, 4, 2, 8, 1)


def drawn_shape(rng: random.Random) -> Shape:
    """A shape of 2 to 128 cores; a third of them with two hardware threads a core."""
    while True:
        shape = Shape(*(rng.choice(few) for few in ((1, 2), (1, 2, 4), (1, 2), (1, 2, 4, 8), (1, 1, 2))))
        if math.prod(shape[:4]) >= 2:
            return shape


def drawn_model(rng: random.Random, model: Model) -> Model:
    """The model with every parameter multiplied by a log-normal factor."""
    return Model(*(value * rng.lognormvariate(0, SPREAD) for value in model))


def drawn_traits(rng: random.Random) -> Traits:
    """Traits as machines may have them. `passive` around 6: 47 us against 7.5 us with 16 threads, as once measured."""
    return Traits(
        span=rng.uniform(0, 0.3),
        apart=rng.uniform(0, 0.4),
        crowd=rng.uniform(0, 0.4),
        smt=rng.uniform(0.95, 1.35),
        core_gb_s=rng.lognormvariate(math.log(3), SPREAD),
        interleaved=rng.uniform(0.5, 1.0),
        active=rng.uniform(0.85, 1.1),
        passive=rng.lognormvariate(math.log(6), SPREAD),
        spin=rng.lognormvariate(math.log(1.5), 0.2),
        seed=rng.getrandbits(32),
    )


def machine_of(shape: Shape) -> Machine:
    """A machine of this shape."""
    return fake_machine(*shape)

"""What competes: the tuned choice of this machine's table, or choices that are looked at, by the role they may play.

Roles: `choice` is the best of all, library variants among them; `native` the best of the variants that are compiled
here. For the fused kernel also `fused`, the best native variant that never holds the weights A, and `naive`, the best
that computes forward and then backward with A kept. For kernels around attention each native variant has a role of its
own, named after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import advisor
from advisor.errors import BadInput
from advisor.kernels.libraries import LANGUAGE, flag_sets_of
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, knob_sets, missing_isa, variants
from advisor.paths import machine_dir
from advisor.policy.learn import choose
from advisor.policy.store import tables
from advisor.records import Build, Choice, Machine, Pairs, Problem, Team
from advisor.search.space import Toolchain, cpu_budget, processes, space_options, thread_counts

LAYERS = ("rmsnorm", "rmsnorm_backward", "norm_linear", "mlp", "mlp_backward", "block", "block_backward")
"""Kernels around attention."""

STREAMS = ("norm_linear", "mlp")
FEW_ROWS = 16
"""Up to so many rows these do little else than read their weights, so that they have a read floor."""

OWN = "variant "
"""What the role of a single variant begins with."""

KEEPS_A = ("naive", "pair")
"""Fused variants that are forward and then backward with A kept."""

FLOOR_FOLDERS = (
    os.path.join(os.path.dirname(os.path.abspath(advisor.__file__)), "validate", "kernels"),
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels"),
)
"""Where the read floor may lie."""

MOST_KEPT = 1.6
"""At the next n, builds are looked at again whose rate at the n before was within this of the best of a role."""

LEAST_KEPT = 3
FAR = 3.0
"""So many are looked at again in any case, but none that was slower than the best by more than this."""

ASSUMED_FLOPS_PER_NS = 2.0
"""A thread's rate where nothing was measured yet, for the estimate of a row's time alone."""

REFERENCE_FLOPS = 2e10
"""Float64 arithmetic a second of a worker's reference. Source: attention.SAMPLED_FLOPS (some
30 Gflop/s), less a third."""

FIXED_S = 2.0
"""Start of workers, compilations and edge problems of a row whose builds are known."""

CLIMBS = 2
"""Times that a look goes on from the best choice to those one knob away from it."""

CLIMB_NS = 300e6
"""Calls over this are not looked at around the best choice: what was best at the n before stands."""

TEAM_LOOK_NS = 50e6
"""Calls over this are looked at with the whole team alone: that long, all cores win."""


LOOKED = ("fused", "naive")
"""Roles that are always looked at anew, as those of single variants are: where another one won, a table has their
choices of lesser process parts."""

RACED, RACED_LONG = 8.0, 2.5
"""A single variant that a look finds slower than the best by more than this does not race, the second where its calls
are long: the look says enough."""

LONG_NS = 100e6
"""From here on calls are long."""

Test = Callable[[Choice], bool]


class Field(NamedTuple):
    """What competes in one row.

    Attributes:
        tests: role -> whether a choice may play it.
        tabled: role -> the choices that a table names for it; a role that is not here is filled by a look.
        looked: choices that a look begins with.
    """

    tests: dict[str, Test]
    tabled: dict[str, list[Choice]]
    looked: list[Choice]

    def all(self) -> list[Choice]:
        """Every choice once, in a fixed order."""
        return list(dict.fromkeys([*(one for found in self.tabled.values() for one in found), *self.looked]))

    def fitting(self, role: str, choices: Iterable[Choice]) -> list[Choice]:
        """Those of some choices that may play a role here."""
        own = self.tabled.get(role)
        return [one for one in choices if (one in own if own is not None else self.tests[role](one))]

    def leaders(self, times_ns: dict[Choice, float]) -> dict[str, Choice]:
        """The fastest of every role that somebody can play."""
        found = {role: self.fitting(role, times_ns) for role in self.tests}
        return {role: min(choices, key=times_ns.__getitem__) for role, choices in found.items() if choices}


class Rates:
    """Flops per ns of choices and of PyTorch at the n measured last, to estimate and to narrow what is looked at."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, Choice | str], float] = {}

    def note(self, problem: Problem, what: Choice | str, rate: float) -> None:
        """Remember a rate in flops per ns."""
        self._known[problem.kernel, problem.dtype, what] = rate

    def of(self, problem: Problem, what: Choice | str) -> float | None:
        """A rate, None where there is none yet."""
        return self._known.get((problem.kernel, problem.dtype, what))

    def choices(self, problem: Problem) -> list[Choice]:
        """Choices of which there is a rate."""
        own = problem.kernel, problem.dtype
        return [what for kernel, dtype, what in self._known if (kernel, dtype) == own and isinstance(what, Choice)]


def role_tests(kernel: str, known: Sequence[Variant]) -> dict[str, Test]:
    """Role -> whether a choice may play it."""
    library = {variant.name for variant in known if variant.language == LANGUAGE or variant.libraries}

    def native(choice: Choice) -> bool:
        return choice.build.variant not in library

    found: dict[str, Test] = {"choice": lambda _: True, "native": native}
    if kernel == "fused":
        found["fused"] = lambda choice: native(choice) and choice.build.variant not in KEEPS_A
        found["naive"] = lambda choice: choice.build.variant in KEEPS_A
    if kernel in LAYERS:
        found |= {OWN + variant.name: only(variant.name) for variant in known if variant.name not in library}
    return found


def only(name: str) -> Test:
    """Whether a choice is of one variant."""
    return lambda choice: choice.build.variant == name


def out_of_reach(leaders: dict[str, Choice], seen: dict[Choice, float]) -> dict[str, str]:
    """Roles of single variants that are too slow to race, and how slow."""
    least = min(seen.values(), default=0.0)
    own = {role: seen[one] for role, one in leaders.items() if role.startswith(OWN)}
    slow = {role: ns for role, ns in own.items() if ns > least * (RACED if ns < LONG_NS else RACED_LONG)}
    return {role: f"{ns / least:.1f} x the best in a look" for role, ns in slow.items()}


def field(
    machine: Machine,
    known: Sequence[Variant],
    problem: Problem,
    threads: int | None,
    rates: Rates,
    quick: bool = False,
) -> Field:
    """The choices of a table for every role it has one for, and those that a look for the other roles begins with.

    `quick`: a look at the short list alone.
    """
    tests = role_tests(problem.kernel, known)
    named = tuned(machine, problem, threads)
    answered = {role: test for role, test in tests.items() if role not in LOOKED and not role.startswith(OWN)}
    tabled = {role: found for role, test in answered.items() if (found := [*filter(test, named)])}
    listed = named + candidates(machine, known, problem, threads or cpu_budget(machine), rates)
    if quick:
        listed = short_list(known, listed)
    kept = [narrowed(problem, [*filter(test, listed)], rates) for role, test in tests.items() if role not in tabled]
    return Field(tests, tabled, list(dict.fromkeys(one for found in kept for one in found)))


def short_list(known: Sequence[Variant], choices: list[Choice]) -> list[Choice]:
    """What costs a compilation or two a variant: its first build here and the one of widest vectors, any run knobs."""
    kept = []
    for variant in known:
        own = [one for one in choices if one.build.variant == variant.name]
        vectors = [int(dict(one.build.knobs).get("ADV_V", 0)) for one in own]
        first = own[0] if own else None
        widest = own[vectors.index(max(vectors))] if own else None
        builds = [built(variant, one) for one in (first, widest) if one]
        kept += [one for one in own if built(variant, one) in builds]
    return kept


def built(variant: Variant, choice: Choice) -> tuple[str, Pairs]:
    """What decides the compilation: compiler and build knobs."""
    knobs = choice.build.knobs
    return choice.build.compiler, tuple((key, value) for key, value in knobs if key in dict(variant.build_knobs))


def tuned(machine: Machine, problem: Problem, threads: int | None) -> list[Choice]:
    """What the tables of this machine say for this problem, one a process part; empty without a table."""
    folder = machine_dir(machine.hardware_id, machine.limits_id)
    sections = [
        section
        for found in tables(folder)
        if found.table is not None and found.table.kernel == problem.kernel
        for section in found.table.sections
        if (section.dtype, section.shape, section.regime) == (problem.dtype, problem.shape, problem.regime)
        and section.tuned_n[0] <= problem.n <= section.tuned_n[-1]
    ]
    choices = [choose(section, problem.n) for section in sections]
    return [one for one in choices if one.team and threads in (None, one.team.threads)]


def candidates(
    machine: Machine, known: Sequence[Variant], problem: Problem, threads: int, rates: Rates
) -> list[Choice]:
    """Choices that a look begins with.

    The default knobs of every variant with every compiler, every knob changed alone with the first one, and what was
    looked at before at another n.
    """
    tools = space_options(machine).compilers
    found = []
    for variant in known:
        able = [tool for tool in tools if tool.language == variant.made_with]
        sets = knob_sets(variant, problem)
        if missing_isa(variant, machine) or not able or not sets:
            continue
        default = variant.defaults if variant.defaults in sets else sets[0]
        found += [as_choice(variant, default, tool, threads) for tool in able]
        found += [as_choice(variant, knobs, able[0], threads) for knobs in one_away(sets, default)]
    valid = {(variant.name, knobs) for variant in known for knobs in knob_sets(variant, problem)}
    before = [one for one in rates.choices(problem) if (one.build.variant, one.build.knobs) in valid]
    return list(dict.fromkeys([*found, *(one for one in before if one.team and one.team.threads == threads)]))


def one_away(sets: list[Pairs], knobs: Pairs) -> list[Pairs]:
    """Those sets of knobs that differ from one in a single knob, and the nearest for each value that none of them has.

    Rules tie knobs together (64-byte vectors want other tiles), so that some values are never a single step away.
    """
    near = [other for other in sets if len(set(other) - set(knobs)) == 1]
    had = {pair for other in [knobs, *near] for pair in other}
    far = dict.fromkeys(pair for other in sets for pair in other if pair not in had)
    nearest = [min((s for s in sets if pair in s), key=lambda s: len(set(s) - set(knobs))) for pair in far]
    return [*near, *dict.fromkeys(nearest)]


def neighbours(
    known: Sequence[Variant], problem: Problem, leader: Choice, seen: Iterable[Choice], rates: Rates
) -> list[Choice]:
    """Choices one knob away from the best so far that were not seen, nor known to be slow at another n."""
    variant = next(one for one in known if one.name == leader.build.variant)
    own = rates.of(problem, leader) or 0.0
    found = []
    for knobs in one_away(knob_sets(variant, problem), leader.build.knobs):
        choice = leader._replace(build=leader.build._replace(knobs=knobs))
        rate = rates.of(problem, choice)
        if choice not in seen and (rate is None or rate * MOST_KEPT >= own):
            found.append(choice)
    return found


def as_choice(variant: Variant, knobs: Pairs, tool: Toolchain, threads: int) -> Choice:
    """A choice in the runtime's default process part, compactly placed."""
    (flags,) = flag_sets_of(variant.language, ("native",))
    build = Build(variant.name, variant.source_hash, knobs, tool.name, flags)
    return Choice(build, Team(threads, ""), processes(tool.runtime)[0])


def narrowed(problem: Problem, choices: list[Choice], rates: Rates) -> list[Choice]:
    """Without the builds that were far from the best of these at the n before; unknown ones stay."""
    known = {choice: rate for choice in choices if (rate := rates.of(problem, choice)) is not None}
    if not known:
        return choices
    order = sorted(known, key=known.__getitem__, reverse=True)
    near = [choice for choice in order if known[choice] * MOST_KEPT >= known[order[0]]]
    kept = {*near, *(choice for choice in order[:LEAST_KEPT] if known[choice] * FAR >= known[order[0]])}
    return [choice for choice in choices if choice not in known or choice in kept]


def other_teams(machine: Machine, choice: Choice, threads: int | None, time_ns: float) -> list[Choice]:
    """The same choice with fewer threads, where none were asked for and calls are short enough for it to matter."""
    if threads is not None or choice.team is None or time_ns > TEAM_LOOK_NS:
        return []
    counts = [count for count in thread_counts(machine) if count != choice.team.threads]
    return [choice._replace(team=choice.team._replace(threads=count)) for count in counts]


# --- the floor ---


def floor_folder() -> str:
    """The folder of kernels that holds the read floor. Raises BadInput where there is none."""
    for folder in FLOOR_FOLDERS:
        if os.path.isfile(os.path.join(folder, "read", "spec.py")):
            return folder
    raise BadInput(
        "a kernel that only reads needs the read floor", got="no such folder", allowed=" or ".join(FLOOR_FOLDERS)
    )


def has_floor(problem: Problem) -> bool:
    """Whether a kernel does little else than read at this problem."""
    of = problem.dims()
    return problem.kernel == "decode" or (problem.kernel in STREAMS and of["batch"] * of["n"] <= FEW_ROWS)


def floor_problem(spec: KernelSpec, problem: Problem) -> Problem:
    """The read floor's problem that moves as many bytes as the cache of a decode problem, or the weights of a layer.

    The floor reads float32 where it knows no other dtype: then as many rows as hold the same bytes, one more for odd n.
    """
    if problem.kernel in LAYERS:
        row = spec.problem(1, "float32", problem.regime, batch=1, heads=1, kv_heads=1, head_dim=64)
        numbers = spec_of(problem.kernel).elements(problem).read * (2 if problem.dtype == "float64" else 1)
        return row._replace(n=-(-numbers // spec.elements(row).read))
    if problem.dtype in spec.dtypes:
        return problem._replace(kernel=spec.name)
    size = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}[problem.dtype]
    return problem._replace(kernel=spec.name, dtype="float32", n=max(1, -(-problem.n * size // 4)))


def floors(problem: Problem, choice: Choice, folder: str) -> dict[str, Choice]:
    """The floor's reading orders with a choice's compiler, team and process part."""
    (variant,) = variants("read", [folder])
    made = choice.build
    return {
        "floor " + " ".join(f"{key}={value}" for key, value in knobs): choice._replace(
            build=Build(variant.name, variant.source_hash, knobs, made.compiler, "native")
        )
        for knobs in knob_sets(variant, problem)
    }


# --- how long a row will take ---


def estimate_s(problem: Problem, flops: int, rival: Field, rates: Rates, rounds: int) -> float:
    """About how long a row takes: looks at every choice, rounds of the best of each role and of PyTorch, references.

    Two calls a sample; PyTorch and the best of each role as fast as last time, or as a usual thread of this team.
    """

    def call_s(choice: Choice) -> float:
        usual = ASSUMED_FLOPS_PER_NS * (choice.team.threads if choice.team else 1)
        return flops / (rates.of(problem, choice) or usual) * 1e-9

    looks = [max(0.02, 2 * call_s(choice)) for choice in rival.all()]
    best = [min(map(call_s, rival.fitting(role, rival.all())), default=0.0) for role in rival.tests]
    torch = flops / (rates.of(problem, "torch") or ASSUMED_FLOPS_PER_NS) * 1e-9
    racing = rounds * 2 * (sum(set(best)) + 2 * torch + 0.005 * len(best))
    reference = 3 * flops / REFERENCE_FLOPS
    return sum(looks) + 6 * max(best, default=0.0) + racing + 16 * torch + reference + FIXED_S

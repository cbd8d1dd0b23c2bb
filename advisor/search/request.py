"""What a tuning run is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from advisor.codec import digest
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Choice, Machine, Measurement, Pairs, Problem, Verdict
from advisor.search.pace import FIRST_S
from advisor.search.space import SpaceOptions

TRIAL_LIMIT_S = 20.0
"""Wall-clock limit of one measurement without a budget."""


class Options(NamedTuple):
    """How to tune.

    Attributes:
        space: what is varied.
        budget_s: wall time of the whole run, kept to within one trial's limit; None: no limit.
        exhaustive: measure the whole space too, and report the searched choice's regret.
        quick: fewer samples, a smaller share, shorter races: an answer in a few seconds a problem.
        seed: of everything random.
        resume: go on from what the log has of the same machine, limits, space and environment.
        trial_limit_s: wall-clock limit of one measurement, its build included.
        objective: what a choice shall be best at, one of OBJECTIVES.
    """

    space: SpaceOptions
    budget_s: float | None = None
    exhaustive: bool = False
    quick: bool = False
    seed: int = 0
    resume: bool = False
    trial_limit_s: float = TRIAL_LIMIT_S
    objective: str = "latency"


class Request(NamedTuple):
    """One tuning run. `problems` differ in n alone, ascending. `environment`: versions that measurements depend on.

    `others`: who else used the machine before it began, for the log. `keep`: what the table says now, which races.
    `build_s`: seconds that a build may take, until some were timed.
    """

    machine: Machine
    spec: KernelSpec
    variants: tuple[Variant, ...]
    problems: tuple[Problem, ...]
    options: Options
    session: str
    environment: Pairs = ()
    others: Pairs = ()
    keep: tuple[tuple[Problem, Choice], ...] = ()
    build_s: float = FIRST_S


def space_hash(request: Request) -> str:
    """Twelve hex digits that name the space apart from n: kernel, shape, sources, compilers, flags."""
    shapes = sorted({(p.kernel, p.dtype, p.shape, p.regime) for p in request.problems})
    sources = tuple((variant.name, variant.source_hash) for variant in request.variants)
    return digest((shapes, sources, request.options.space))


class Regret(NamedTuple):
    """The searched choice's time over the best known, from fresh interleaved samples.

    `ratio` is its 25th percentile over the lowest in the race, with a bootstrap 95 % interval.
    """

    problem: Problem
    searched: Choice
    best: Choice
    ratio: float
    ratio_ci95: tuple[float, float]


NO_CHOICE = "no choice"
"""Why a search never began: nothing is valid for the problem there, and no time would change that."""


class Report(NamedTuple):
    """How one problem went.

    Attributes:
        space_size: valid choices.
        looked: first looks of the search, those that failed included.
        stopped: why the search ended.
        search_s: wall time of the search and its race.
        exhaustive_s: wall time of first looks at the whole space and a race; None unless asked and finished.
        exhaustive_looked: first looks at the whole space, the search's included; None unless asked.
    """

    problem: Problem
    space_size: int
    looked: int
    stopped: str
    search_s: float
    exhaustive_s: float | None = None
    exhaustive_looked: int | None = None


class Outcome(NamedTuple):
    """What a run found.

    Attributes:
        verdicts: final, crossing; in the order raced.
        trials: first looks of this run and, when resumed, of the log.
        counts: status -> how many trials ended so.
        seconds: total = in_kernel + compile + overhead. Overhead is all else: verifying, warming up, deciding.
        space_size: valid choices over all problems.
        interrupted: by Ctrl-C; everything measured is in the log.
        regrets: of the searched choices, with `exhaustive`.
        reports: one a problem begun.
        notes: what the user should know: problems without a verdict, log lines left out, the budget's end.
        stolen: measurements beside one busy neighbour.
        energy: measurements with a counter of energy around them.
        build_s: seconds that a build took, several at a time; None where none was made.
    """

    verdicts: tuple[Verdict, ...]
    trials: tuple[Measurement, ...]
    counts: Pairs
    seconds: Pairs
    space_size: int
    interrupted: bool
    regrets: tuple[Regret, ...]
    reports: tuple[Report, ...]
    notes: tuple[str, ...]
    stolen: tuple[Measurement, ...] = ()
    energy: tuple[Measurement, ...] = ()
    build_s: float | None = None


class Progress(Protocol):
    """Told how a run goes; whoever shows it decides how. Calls come from the run's thread."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins: its name, and how many steps it has at most (None: not known)."""

    def advance(self, text: str) -> None:
        """One step was done; a few words on it."""

    def seconds_left(self, seconds: float | None) -> None:
        """At most so much longer for the whole run; None: not known."""


class Silent:
    """Progress that nobody looks at."""

    def stage(self, name: str, total: int | None) -> None:
        """Nothing."""

    def advance(self, text: str) -> None:
        """Nothing."""

    def seconds_left(self, seconds: float | None) -> None:
        """Nothing."""


def check(request: Request) -> None:
    """Refuse a request that cannot be run.

    Raises:
        BadInput: no problems, not ascending in n, not of one shape, or a budget that is not positive.
    """
    from advisor.errors import BadInput

    problems: Sequence[Problem] = request.problems
    shapes = {problem._replace(n=0) for problem in problems}
    if len(shapes) != 1 or list(problems) != sorted(set(problems), key=lambda p: p.n):
        got = [(problem.kernel, problem.n) for problem in problems]
        raise BadInput("problems must be of one kernel and shape, at ascending n", got=got, next_step="tune each apart")
    budget = request.options.budget_s
    if budget is not None and not budget > 0:
        raise BadInput("a budget must be positive", got=budget, allowed="seconds, or no limit")

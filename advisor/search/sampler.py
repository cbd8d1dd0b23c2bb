"""The sampler: Optuna's interface over a list of valid choices.

The study's parameters are real dimensions (variant, knobs, compiler, flags, threads, placement, wait policy, spin), so
that Optuna's own samplers and plots work on the same study. This sampler proposes only listed choices and none twice:
the seeds (enqueued), then a maximin start, then batches with the lowest confidence bounds of a surrogate.

What a batch holds depends on the seed and on the trials before the batch alone. So a study rebuilt from the log by
`add_trial` goes on exactly where the interrupted one would have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from advisor.errors import AdvisorError
from advisor.records import Choice
from advisor.search.features import ABSENT, Array
from advisor.search.space import binary
from advisor.search.strategy import Builds, Strategy

if TYPE_CHECKING:
    from optuna.study import Study

BATCH = 8
"""Proposals at once where builds are compiled side by side and looks grouped by process."""

SURE = 3.0
"""Standard deviations below the mean that still count as a promise; with 1 a search of 8000 choices ended 9 % short."""

FRESH = 4
"""Builds that a batch may add at most, so that a search does not compile nearly everything."""


class Exhausted(AdvisorError, LookupError):
    """Every listed choice was measured or is enqueued."""


def params(choice: Choice, knobs: Sequence[str]) -> dict[str, Any]:
    """The study parameters of a choice; `knobs`: the names of all knobs in the space."""
    own = dict(choice.build.knobs)
    team, process = choice.team, choice.process
    return {
        "variant": choice.build.variant,
        **{f"knob {name}": own.get(name, ABSENT) for name in knobs},
        "compiler": choice.build.compiler,
        "flags": choice.build.flags,
        "threads": team.threads if team else ABSENT,
        "placement": team.placement if team else ABSENT,
        "wait_policy": process.wait_policy if process else ABSENT,
        "spin": process.spin if process and process.spin is not None else ABSENT,
        "memory_policy": process.memory_policy if process else ABSENT,
    }


class Dimensions:
    """A list of configurations as Optuna dimensions, and the way back from parameters to a position in the list.

    Args:
        configurations: choices, or the parameters themselves: name -> number or text.
    """

    def __init__(self, configurations: Sequence[Choice] | Sequence[Mapping[str, Any]]) -> None:
        choices = [one for one in configurations if isinstance(one, Choice)]
        knobs = sorted({name for choice in choices for name, _ in choice.build.knobs})
        self.params = [params(one, knobs) if isinstance(one, Choice) else dict(one) for one in configurations]
        self.names = tuple(dict.fromkeys(name for values in self.params for name in values))
        self._index = {self._key(values): i for i, values in enumerate(self.params)}
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(self._values(name)) for name in self.names
        }

    def _values(self, name: str) -> list[Any]:
        found = {values.get(name) for values in self.params}
        numbers = sorted(value for value in found if isinstance(value, (int, float)))
        return [*numbers, *sorted((value for value in found if not isinstance(value, (int, float))), key=str)]

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(values.get(name) for name in self.names)

    def index(self, values: Mapping[str, Any]) -> int | None:
        """Position of the configuration with these parameters, None when it is not listed."""
        return self._index.get(self._key(values))


class Batches(NamedTuple):
    """How many proposals are made at once.

    Attributes:
        size: in a batch. 1: each knows all trials before it, which nears the optimum in the fewest.
        fresh: builds that a batch may add.
        start: proposals far apart before the first fit; None: the strategy's own number.
    """

    size: int = BATCH
    fresh: int = FRESH
    start: int | None = None


class ListSampler(BaseSampler):
    """Proposes each listed configuration at most once: a `Strategy` as Optuna sees samplers.

    Args:
        configurations: the space, in a fixed order: choices, or name -> number or text.
        seeds: how many trials are enqueued before the first proposal.
        seed: of the strategy.
        prior: log time of every configuration as expected from a neighbouring problem, up to a constant; or None.
        batches: how many proposals are made at once; None: as everywhere.
        others: log slowdown of every configuration on other machines (`portfolio.elsewhere_log`), or None.
    """

    def __init__(
        self,
        configurations: Sequence[Choice] | Sequence[Mapping[str, Any]],
        seeds: int = 0,
        seed: int = 0,
        prior: Array | None = None,
        *,
        batches: Batches | None = None,
        others: Array | None = None,
    ) -> None:
        batches = batches or Batches()
        self.dimensions = Dimensions(configurations)
        self._count, self._seeds, self._seed, self._size = len(configurations), seeds, seed, batches.size
        self._expected = np.zeros(self._count) if prior is None else prior
        self._strategy = Strategy(
            self.dimensions.params,
            seed=seed,
            expected=prior,
            others=others,
            builds=_builds(configurations, batches.fresh),
            start_points=batches.start,
        )
        self.start_points = self._strategy.start_points
        self._at, self._plan_now = -1, list[int]()
        self._known: dict[int, int | None] = {}

    # --- Optuna's interface ---

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions, always: the list couples them."""
        return self.dimensions.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next choice that was neither measured nor enqueued.

        Raises:
            Exhausted: there is none.
        """
        if not search_space:
            return {}
        taken = {index for index in self._taken(study, trial.number).values() if index is not None}
        for index in self._plan(study, self._batch(trial.number)):
            if index not in taken:
                return self.dimensions.params[index]
        left = [index for index in range(self._count) if index not in taken]
        if not left:
            raise Exhausted("every listed choice was measured once", got=self._count, next_step="stop the search")
        return self.dimensions.params[random.Random(f"{self._seed} {trial.number}").choice(left)]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is no dimension of the list.

        Raises:
            AdvisorError: always; the list has no such dimension.
        """
        allowed = ", ".join(self.dimensions.names)
        raise AdvisorError("only the list's dimensions can be asked for", got=param_name, allowed=allowed)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Stop `study.optimize` when the list is used up; ask and tell look at `left` themselves."""
        if self.left(study) == 0 and getattr(study._thread_local, "in_optimize_loop", False):
            study.stop()

    # --- what the tuner asks ---

    def left(self, study: Study) -> int:
        """How many listed choices were neither measured nor enqueued."""
        return self._count - len({i for i in self._taken(study, None).values() if i is not None})

    def batch_start(self, number: int) -> int:
        """Number of the first trial of the batch that trial `number` belongs to."""
        return self._before(self._batch(number))

    def room(self, number: int) -> int:
        """How many trials are left in the batch that trial `number` belongs to, itself included."""
        return self._before(self._batch(number) + 1) - number

    def belief(self, study: Study) -> Array:
        """Expected log time (ns) of every choice after all trials so far; the prior for a neighbouring problem."""
        self._plan(study, self._batch(len(study.get_trials(deepcopy=False))))
        found = self._strategy.belief_with(self._history(study, None))
        return self._expected if found is None else found.mean

    def promise(self, study: Study) -> float:
        """Log of how much faster than the best an unmeasured choice may be, `SURE` deviations from the mean.

        As of the start of the batch that comes next, so that a resumed search decides as an uninterrupted one does.
        Infinite before the first fit, minus infinity when nothing is left.
        """
        batch = self._batch(len(study.get_trials(deepcopy=False)))
        history = self._history(study, self._before(batch))
        good = [value for value in history.values() if value is not None]
        free = [i for i in range(self._count) if i not in history]
        if not good or not free or batch < 1:
            return math.inf if free else -math.inf
        self._plan(study, batch)
        found = self._strategy.current()
        if found is None:
            return math.inf
        return math.log(min(good)) - float((found.mean - SURE * found.deviation)[free].min())

    # --- inside ---

    def _index(self, trial: FrozenTrial) -> int | None:
        if trial.number not in self._known:
            values = trial.params or trial.system_attrs.get("fixed_params", {})
            index = self.dimensions.index(values)
            if index is None:
                return None
            self._known[trial.number] = index
        return self._known[trial.number]

    def _taken(self, study: Study, asking: int | None) -> dict[int, int | None]:
        """Trial number -> position of its choice, for every other trial, whatever its state."""
        trials = study.get_trials(deepcopy=False)
        return {trial.number: self._index(trial) for trial in trials if trial.number != asking}

    def _history(self, study: Study, before: int | None) -> dict[int, float | None]:
        """Position -> time, None for a failure, of finished trials with a number under `before`."""
        found: dict[int, float | None] = {}
        for trial in study.get_trials(deepcopy=False):
            index = self._index(trial)
            if index is None or not trial.state.is_finished() or (before is not None and trial.number >= before):
                continue
            good = trial.state == TrialState.COMPLETE and trial.value is not None and trial.value > 0
            found[index] = trial.value if good else None
        return dict(sorted(found.items()))

    def _batch(self, number: int) -> int:
        """-1 for seeds, 0 for the start, then 1, 2, ... a fit each."""
        past = number - self._seeds
        return -1 if past < 0 else 0 if past < self.start_points else 1 + (past - self.start_points) // self._size

    def _before(self, batch: int) -> int:
        """Number of the first trial of a batch."""
        if batch < 0:
            return 0
        return self._seeds + (self.start_points + (batch - 1) * self._size if batch > 0 else 0)

    def _plan(self, study: Study, batch: int) -> list[int]:
        """What a batch holds. The strategy is told batch by batch, as a study that was not interrupted told it.

        Within a batch trials end in any order, so each batch is told in the order of the list.
        """
        while self._at < batch:
            self._at += 1
            before = self._before(self._at)
            for index, value in self._history(study, before).items():
                if index not in self._strategy.told:
                    self._strategy.tell(index, value)
            early = [i for number, i in self._taken(study, None).items() if number < before and i is not None]
            self._plan_now = self._strategy.propose(self.start_points if self._at == 0 else self._size, early)
        return self._plan_now if batch >= 0 else []


def _builds(configurations: Sequence[Choice] | Sequence[Mapping[str, Any]], fresh: int) -> Builds | None:
    """The builds of choices by number; plain configurations cost nothing before they run."""
    binaries = [binary(one.build) for one in configurations if isinstance(one, Choice)]
    numbers = {made: k for k, made in enumerate(dict.fromkeys(binaries))}
    return Builds(np.array([numbers[made] for made in binaries], int), fresh) if binaries else None

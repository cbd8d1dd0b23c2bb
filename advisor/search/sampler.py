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
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from advisor.errors import AdvisorError
from advisor.records import Choice
from advisor.search.space import binary
from advisor.search.surrogate import (
    CAP_QUANTILE,
    Array,
    Belief,
    Model,
    Scales,
    Wanted,
    believe,
    features,
    fit,
    lowest,
    spread,
)

if TYPE_CHECKING:
    from optuna.study import Study

ABSENT = "-"
"""Value of a dimension that a choice does not have."""

START_POINTS = 8
"""Maximin points before the first fit, half of that with a prior; what recorded spaces of other kernels favoured."""

BATCH = 8
"""Proposals a fit."""

SURE = 3.0
"""Standard deviations below the mean that still count as a promise; with 1 a search of 8000 choices ended 9 % short."""

FRESH = 4
"""Builds that a batch may add, so that a search does not compile nearly everything."""


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
    """A list of choices as Optuna dimensions, and the way back from parameters to a position in the list."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        knobs = sorted({name for choice in choices for name, _ in choice.build.knobs})
        self.params = [params(choice, knobs) for choice in choices]
        self.names = tuple(self.params[0]) if choices else ()
        self._index = {self._key(values): i for i, values in enumerate(self.params)}
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(self._values(name)) for name in self.names
        }

    def _values(self, name: str) -> list[Any]:
        found = {values[name] for values in self.params}
        numbers, names = (sorted(v for v in found if isinstance(v, str) == text) for text in (False, True))
        return [*numbers, *names]

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(values.get(name) for name in self.names)

    def index(self, values: Mapping[str, Any]) -> int | None:
        """Position of the choice with these parameters, None when it is not listed."""
        return self._index.get(self._key(values))


class ListSampler(BaseSampler):
    """Proposes each listed choice at most once.

    Args:
        choices: the space, in a fixed order.
        seeds: how many trials are enqueued before the first proposal.
        seed: of the tie-breaking.
        prior: log time of every choice as expected from a neighbouring problem, up to a constant factor; or None.
    """

    def __init__(self, choices: Sequence[Choice], seeds: int = 0, seed: int = 0, prior: Array | None = None) -> None:
        self.dimensions = Dimensions(choices)
        self._count, self._seeds, self._seed = len(choices), seeds, seed
        self._features = features(choices) if choices else None
        binaries = [binary(choice.build) for choice in choices]
        numbers = {made: k for k, made in enumerate(dict.fromkeys(binaries))}
        self._kinds = np.array([numbers[made] for made in binaries], int)
        self._prior = np.zeros(len(choices)) if prior is None else prior
        self.start_points = START_POINTS if prior is None else START_POINTS // 2
        self._scales: dict[int, Scales | None] = {}
        self._last: tuple[int, Model | None, Belief] | None = None
        self._plans: dict[int, list[int]] = {}
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
        batch = self._batch(trial.number)
        for index in self._plan(study, batch):
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
        batch = self._batch(len(study.get_trials(deepcopy=False)))
        model = self._fit(self._history(study, None), self._start_scales(study, batch))
        if model is None or self._features is None:
            return self._prior
        mean: Array = self._prior + believe(self._features, model).mean
        return mean

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
        _, belief = self._fitted(study, batch)
        return min(good) - float((self._prior + belief.mean - SURE * belief.deviation)[free].min())

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
        """Position -> log time, None for a failure, of finished trials with a number under `before`."""
        found: dict[int, float | None] = {}
        for trial in study.get_trials(deepcopy=False):
            index = self._index(trial)
            if index is None or not trial.state.is_finished() or (before is not None and trial.number >= before):
                continue
            good = trial.state == TrialState.COMPLETE and trial.value is not None and trial.value > 0
            found[index] = math.log(trial.value) if good and trial.value else None
        return dict(sorted(found.items()))

    def _batch(self, number: int) -> int:
        """-1 for seeds, 0 for the start, then 1, 2, ... a fit each."""
        past = number - self._seeds
        return -1 if past < 0 else 0 if past < self.start_points else 1 + (past - self.start_points) // BATCH

    def _before(self, batch: int) -> int:
        """Number of the first trial of a batch."""
        if batch < 0:
            return 0
        return self._seeds + (self.start_points + (batch - 1) * BATCH if batch > 0 else 0)

    def _plan(self, study: Study, batch: int) -> list[int]:
        if batch not in self._plans:
            before = self._before(batch)
            taken = self._taken(study, None)
            early = sorted({i for number, i in taken.items() if number < before and i is not None})
            self._plans[batch] = self._propose(study, early, batch)
        return self._plans[batch]

    def _propose(self, study: Study, early: Sequence[int], batch: int) -> list[int]:
        if self._features is None or batch < 0:
            return []
        known = frozenset(int(self._kinds[index]) for index in early)
        free = np.ones(self._count, bool)
        free[list(early)] = False
        wanted = Wanted(free, self.start_points if batch == 0 else BATCH, self._kinds, known, FRESH if known else BATCH)
        model, belief = self._fitted(study, batch) if batch > 0 else (None, None)
        if model is None or belief is None:
            return spread(self._features, early, wanted)
        return lowest(self._features, model, belief, self._prior, wanted)

    def _start_scales(self, study: Study, batch: int) -> Scales | None:
        """Scales of the fit before this batch, following the chain of fits from the first one."""
        for earlier in range(1, batch):
            if earlier not in self._scales:
                model = self._fit(self._history(study, self._before(earlier)), self._scales.get(earlier - 1))
                self._scales[earlier] = model.scales if model else None
        return self._scales.get(batch - 1)

    def _fitted(self, study: Study, batch: int) -> tuple[Model | None, Belief]:
        """The model of everything before a batch, and what it believes; the last one is kept."""
        if self._last is None or self._last[0] != batch:
            model = self._fit(self._history(study, self._before(batch)), self._start_scales(study, batch))
            self._scales[batch] = model.scales if model else None
            zeros = np.zeros(self._count)
            belief = believe(self._features, model) if model and self._features else Belief(zeros, zeros, zeros)
            self._last = (batch, model, belief)
        return self._last[1], self._last[2]

    def _fit(self, history: dict[int, float | None], start: Scales | None) -> Model | None:
        """Model of what the prior leaves; the worst capped, failures as the worst. None without a success."""
        good = [value for value in history.values() if value is not None]
        if not good or self._features is None:
            return None
        rows = list(history)
        worst = float(np.quantile(good, CAP_QUANTILE)) if len(good) > 3 else max(good)
        values = [min(worst, value) if value is not None else worst for value in history.values()]
        return fit(self._features, rows, list(np.array(values) - self._prior[rows]), start)

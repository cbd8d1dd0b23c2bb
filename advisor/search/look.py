"""The search of one problem: first looks, chosen by the sampler, until more cannot pay."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from advisor.records import Choice, Measurement, Problem
from advisor.search.plan import most_trials
from advisor.search.run import Run, value_of
from advisor.search.sampler import BATCH, ListSampler
from advisor.search.surrogate import Array

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

PATIENCE, PATIENCE_GROWTH = 3 * BATCH, 1.0
"""Trials without an improvement of 1 % after which a search ends: 24, or the root of the space's size."""

WORTH = math.log(1.01)
"""Improvement that counts, and promise under which a search ends: 1 %."""


class Place(NamedTuple):
    """What is searched: the problem, its space in order, its DEFAULT, seeds, and what a neighbouring n expects.

    `prior`: log time of every choice up to a constant, or None.
    """

    problem: Problem
    choices: tuple[Choice, ...]
    default: Choice
    seeds: tuple[Choice, ...]
    prior: Array | None = None


class Found(NamedTuple):
    """How a search ended: why, and the log time it now expects of every choice."""

    stopped: str
    belief: Array


def group_key(choice: Choice) -> tuple[str, int]:
    """Trials are grouped by process part, then team size: changing either costs more than a trial."""
    return str(choice.process), choice.team.threads if choice.team else 0


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna's messages on each study and trial are held back; its own setting is restored."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def search(run: Run, place: Place, until: float) -> Found:
    """Take first looks until nothing promises more, the share of trials is used, or the time is.

    Args:
        run: measures and remembers.
        place: what is searched.
        until: on the run's clock.
    """
    import optuna

    with quiet_optuna():
        sampler = ListSampler(place.choices, len(place.seeds), run.request.options.seed, place.prior)
        study = optuna.create_study(sampler=sampler)
        rebuild(study, sampler, run, place)
        stopped = ""
        while not stopped:
            stopped = _why_stop(run, study, sampler, place) or _batch(run, study, sampler, place, until)
        return Found(stopped, sampler.belief(study))


def rebuild(study: Study, sampler: ListSampler, run: Run, place: Place) -> None:
    """Tell the study what the log knows, in the order measured, and enqueue the seeds that are not among it."""
    from optuna.trial import TrialState, create_trial

    listed = {choice: i for i, choice in enumerate(place.choices)}
    seen = [m for m in run.known.trials.get(place.problem, ()) if m.choice in listed]
    for measurement in seen:
        run.remember(measurement)
        value = value_of(measurement)
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if value is None else TrialState.COMPLETE,
                value=value,
                params=sampler.dimensions.params[listed[measurement.choice]],
                distributions=sampler.dimensions.distributions,
            )
        )
    for choice in place.seeds:
        if all(measurement.choice != choice for measurement in seen):
            study.enqueue_trial(sampler.dimensions.params[listed[choice]])


def _why_stop(run: Run, study: Study, sampler: ListSampler, place: Place) -> str:
    """Why no further batch pays, else the empty text. Decided between batches only, so that a resume decides alike."""
    done = _done(study)
    if done >= len(place.choices):
        return "the whole space was measured"
    if done >= most_trials(run.request.spec, place.problem, len(place.choices), run.request.options.quick):
        return "the share of trials is used"
    if sampler.batch_start(done) != done or done <= len(place.seeds):
        return ""
    patient = _patience(run, place)
    modelled = done - sampler.batch_start(len(place.seeds) + sampler.start_points)
    trusted = place.prior is not None or modelled >= patient  # the first n of a run has nothing but its own few looks
    if trusted and sampler.promise(study) < WORTH:
        return "no choice left promises 1 % more"
    return "no improvement for long" if modelled >= patient and _stale(study, patient) else ""


def _patience(run: Run, place: Place) -> int:
    trials = max(PATIENCE, round(PATIENCE_GROWTH * math.sqrt(len(place.choices))))
    return trials // 2 if run.request.options.quick else trials


def _done(study: Study) -> int:
    """Trials that are finished: told or rebuilt, not enqueued."""
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def _stale(study: Study, patience: int) -> bool:
    """Whether the last trials improved on those before them by less than 1 %."""
    values = [t.value if t.value is not None else math.inf for t in study.get_trials(deepcopy=False)]
    if len(values) <= patience:
        return False
    before, after = min(values[:-patience]), min(values[-patience:])
    return after > before * math.exp(-WORTH)


def _batch(run: Run, study: Study, sampler: ListSampler, place: Place, until: float) -> str:
    """Measure what is left of the current batch, grouped. Returns why to stop, or the empty text."""
    asked = _ask(run, study, sampler, place)
    if not asked:
        return "the whole space was measured"
    if run.out_of_time(until):
        return "the time is used"
    run.prepare(place.problem, [choice for _, choice in asked])
    for trial, choice in sorted(asked, key=lambda pair: group_key(pair[1])):
        if run.out_of_time(until):
            return "the time is used"
        _tell(study, trial, run.look(place.problem, choice))
        run.progress.advance(f"n={place.problem.n}: {_done(study)} looks")
    run.log.sync()
    return ""


def _ask(run: Run, study: Study, sampler: ListSampler, place: Place) -> list[tuple[Trial, Choice]]:
    """The trials left in the current batch, within the share."""
    done = _done(study)
    cap = most_trials(run.request.spec, place.problem, len(place.choices), run.request.options.quick)
    asked = []
    for _ in range(min(sampler.room(done), cap - done, len(place.choices) - done)):
        trial = study.ask(sampler.dimensions.distributions)
        index = sampler.dimensions.index(trial.params)
        if index is not None:
            asked.append((trial, place.choices[index]))
    return asked


def _tell(study: Study, trial: Trial, measurement: Measurement) -> None:
    from optuna.trial import TrialState

    value = value_of(measurement)
    if value is None:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, value)


def ranked(measured: Sequence[Measurement]) -> list[Measurement]:
    """First looks that succeeded, best first; equals in the order of their choices."""
    good = [(value_of(m), repr(m.choice), m) for m in measured]
    return [m for value, _, m in sorted(((v, r, m) for v, r, m in good if v is not None), key=lambda x: x[:2])]

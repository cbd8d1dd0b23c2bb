"""The search of one problem: first looks, chosen by the sampler of what may win, until more cannot pay."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from advisor.device import is_device
from advisor.records import Choice, Measurement, Problem
from advisor.search import behind, bounds, nearby
from advisor.search.features import Array
from advisor.search.known import NEARBY
from advisor.search.least import no_time
from advisor.search.plan import EXCHANGE, LEAST_FINALISTS, WORTH, costs, most_trials
from advisor.search.run import Run, ranked, value_of
from advisor.search.sampler import BATCH, FRESH, Batches, ListSampler
from advisor.search.space import binary, cpu_budget
from advisor.search.steps import around, promising
from advisor.words import many

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

PATIENCE, PATIENCE_GROWTH = 3 * BATCH, 1.0
"""Trials without an improvement of 1 % after which the first search of a run ends: 24, or the root of the space's size.
Where a smaller n is done, half the root is enough, but a batch at least."""

LOADING_SHARE = 2 / 5
"""Of the time left, what the seeds of a device's first n may take: most of a small budget is left to the knobs."""

BUILDING_SHARE = 1 / 4
"""Of a search's time, what building all its seeds before the first look may take."""

RACED_ROUNDS = 3
"""Rounds of a race for which the last looks of a run that has no race yet leave time."""

EXPECTED = 0.13
"""Of a promise (three standard deviations under the mean) what a look is expected to bring: a choice that is thought as
fast as the best so far is expected to improve on it by 0.4 of its standard deviation (of a normal distribution)."""


class Place(NamedTuple):
    """What is searched: the problem, its space in order, its DEFAULT, seeds, and what a neighbouring n says.

    Attributes:
        prior: log time of every choice up to a constant, or None.
        work: the work of a call as far as smaller n tell it; empty when they do not.
        lane: the choice that won at the nearest smaller n, beside whose process part others are only sampled; or None.
        least: of the seeds, those that a device's n must have looked at before its race says anything.
        spare_until: until when a device's tool may compile a program for this search, if that is after its end.
    """

    problem: Problem
    choices: tuple[Choice, ...]
    default: Choice
    seeds: tuple[Choice, ...]
    prior: Array | None = None
    work: bounds.Work | None = None
    lane: Choice | None = None
    least: tuple[Choice, ...] = ()
    spare_until: float = -math.inf


class Found(NamedTuple):
    """How a search ended: why, the log time it now expects of every choice, and what it saw of the work of a call."""

    stopped: str
    belief: Array
    work: bounds.Work


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


class Hunt(NamedTuple):
    """A search under way: the run, what is searched, the choices left of it, how many were looked at as seeds."""

    run: Run
    place: Place
    choices: tuple[Choice, ...]
    seeds: int
    sampler: ListSampler
    study: Study

    @property
    def cap(self) -> int:
        """First looks at most that the sampler chooses, seeds included."""
        return self.most - nearby.reserved(self.most)

    @property
    def most(self) -> int:
        """First looks at most, those beside the best included."""
        return most_looks(self.run, self.place)


def most_in_all(run: Run, place: Place) -> int:
    """First looks at most at a problem, those on top at the knobs of a device's best included."""
    more = nearby.ON_DEVICE if on_device(run) and not run.request.options.quick else 0
    return min(len(place.choices), most_looks(run, place) + more)


def most_looks(run: Run, place: Place) -> int:
    """First looks at most that the share of trials allows."""
    request = run.request
    device, prior, quick = on_device(run), place.prior is not None, request.options.quick
    return most_trials(request.spec, place.problem, len(place.choices), quick=quick, device=device, prior=prior)


def on_device(run: Run) -> bool:
    """Whether choices run on a device."""
    return is_device(run.request.machine.limits_id)


def _sampler(run: Run, choices: Sequence[Choice], seeds: int, prior: Array | None) -> ListSampler:
    """The sampler of a search. On a device a batch is half as large, as no process or team binds its looks together,
    and where a smaller n is done its model is asked at once: points far apart were all slow there."""
    device, seed = on_device(run), run.request.options.seed
    fresh = min(FRESH, cpu_budget(run.request.machine))  # compiled side by side, they take the time of one
    batch = BATCH // 2 if device else BATCH
    start = 0 if device and prior is not None else None
    return ListSampler(choices, seeds, seed, prior, batches=Batches(batch, fresh, start))


def search(run: Run, place: Place, until: float) -> Found:
    """Look at the seeds, leave out what then cannot win, and look at more until that no longer pays.

    Args:
        run: measures and remembers.
        place: what is searched.
        until: on the run's clock.
    """
    import optuna

    stopped = _seeds(run, place, until)
    if on_device(run) and not stopped:
        place = place._replace(seeds=(*place.seeds, *around(run, place, until)))
    work, kept = _kept(run, place)
    choices = tuple(place.choices[i] for i in kept)
    first = sum(choice in run.looks.get(place.problem, {}) for choice in place.seeds)
    prior = None if place.prior is None else place.prior[kept]
    with quiet_optuna():
        sampler = _sampler(run, choices, first, prior)
        hunt = Hunt(run, place, choices, first, sampler, optuna.create_study(sampler=sampler))
        rebuild(hunt, run.looks.get(place.problem, {}).values())
        while not stopped:
            stopped = _why_stop(hunt) or _batch(hunt, until)
        _beside_best(hunt, until)
        belief = _whole(place, kept, sampler.belief(hunt.study), work)
    looks = bounds.seen(place.problem, run.looks.get(place.problem, {}).values())
    return Found(stopped, belief, bounds.joined(looks, work))


def load(run: Run, place: Place) -> None:
    """Look at the seeds of a device's first n, for a part of the time left, before that is shared between all n.

    A tool and the libraries behind it load at their first call, seconds each: an H200's first n of sixteen had looked
    at two choices when its share of 90 s was used, and its choice took 1.7 times the best. And one look at each plain
    variant where it is cheap spares all larger n looks that would take up to two seconds.
    """
    if place.prior is None and on_device(run):
        _seeds(run, place, run.clock() + LOADING_SHARE * (run.deadline - run.clock()))


def _seeds(run: Run, place: Place, until: float) -> str:
    """Look at the seeds, grouped; what an earlier session saw of the problem is remembered first."""
    listed = frozenset(place.choices)
    for measurement in run.known.trials.get(place.problem, ()):
        if measurement.choice in listed:
            run.remember(measurement)
    left = [choice for choice in place.seeds if choice not in run.looks.get(place.problem, {})]
    begun, known = run.clock(), behind.expected(run, place.problem) if on_device(run) else {}
    for some in _parts(run, left, until):
        if _seeds_end(run, place, some[0], until):
            return "the time is used"
        ready = run.prepare(place.problem, some) or some[:1]
        for choice in sorted(ready, key=lambda one: (*_apart(one, place.default), *group_key(one))):
            if _seeds_end(run, place, choice, until):
                return "the time is used"
            if choice not in place.least and behind.too_dear(run, place.problem, known, choice, until - begun):
                continue
            run.look(place.problem, choice)
            run.progress.advance(f"n={place.problem.n}: seeds")
    run.log.sync()
    return ""


def _apart(choice: Choice, default: Choice) -> tuple[bool, bool]:
    """Whether a choice needs another process, and another team, than the DEFAULT, which is looked at first: where calls
    are long there may be no time for a second one, and no team of one thread shall take it."""
    return choice.process != default.process, choice.team != default.team


def _parts(run: Run, seeds: Sequence[Choice], until: float) -> list[list[Choice]]:
    """The seeds as they are built and looked at: together, or, where building all would take much of the time, a build
    for each CPU at a time, so that the first few can race however little time there is."""
    if not seeds or run.build_s(seeds) <= BUILDING_SHARE * (until - run.clock()):
        return [list(seeds)] if seeds else []
    cpus, builds = cpu_budget(run.request.machine), [binary(choice.build) for choice in seeds]
    turn = {made: i // cpus for i, made in enumerate(dict.fromkeys(builds))}
    last = max(turn.values())
    return [[c for c, made in zip(seeds, builds, strict=True) if turn[made] == k] for k in range(last + 1)]


def _seeds_end(run: Run, place: Place, choice: Choice, until: float) -> bool:
    """Whether this seed may be looked at no more. While nothing was raced in this run, two that ran are worth more than
    their share of the time: with them there is a race, and without one no table. So is the least of a device's n."""
    ran = [look for look in run.looks.get(place.problem, {}).values() if look.status == "ok"]
    race_s = RACED_ROUNDS * sum(look.kernel_s for look in ran[:LEAST_FINALISTS])  # inputs are there by then
    if choice in place.least:
        return run.out_of_time(run.deadline - race_s)
    if run.verdicts or not ran:
        return no_time(run, choice, until if run.verdicts else math.inf, place.spare_until)
    return run.out_of_time(run.deadline - race_s) or (len(ran) > 1 and no_time(run, choice, until, place.spare_until))


def _kept(run: Run, place: Place) -> tuple[bounds.Work, list[int]]:
    """What is known of the work of a call, and the positions of the choices that may win, or were looked at.

    Judged by the seeds alone, so that a resumed search leaves out the same. Only the fastest is sought with bounds: who
    wants the steadiest or the thriftiest choice may want one that cannot be the fastest. And only after a smaller n:
    the first search of a run learns from what cannot win, too (replayed without, it ended 3 % short one time in three).
    """
    looks = run.looks.get(place.problem, {})
    seeds = [looks[choice] for choice in place.seeds if choice in looks]
    here = bounds.seen(place.problem, seeds)
    work = here if place.work is None else bounds.joined(here, place.work)
    order = ranked(seeds)
    best_ns = value_of(order[0]) if order else None
    if run.request.options.objective != "latency" or place.prior is None:
        return work, list(range(len(place.choices)))
    alike = bounds.comparable(run.request.machine)
    lanes = {choice.process for choice in (place.default, place.lane, *(m.choice for m in order[:1])) if choice}

    slow = behind.hopeless(run, place.problem, place.seeds) if on_device(run) else set()

    def may_win(choice: Choice) -> bool:
        other_lane = place.lane is not None and choice.process not in lanes
        return (
            choice.build.variant not in slow
            and not other_lane
            and not (alike and bounds.hopeless(choice, work, best_ns or math.inf))
        )

    return work, [i for i, choice in enumerate(place.choices) if choice in looks or may_win(choice)]


def _whole(place: Place, kept: Sequence[int], belief: Array, work: bounds.Work) -> Array:
    """The belief over the whole space; what was left out is thought as fast as its twin that was not, or its bound."""
    listed = {(place.choices[i].build, place.choices[i].team): float(belief[k]) for k, i in enumerate(kept)}
    known = {i: float(belief[k]) for k, i in enumerate(kept)}
    worst = max(known.values(), default=0.0)

    def guess(choice: Choice) -> float:
        bound = bounds.bound_ns(work, bounds.threads_of(choice)) / bounds.SLACK
        return listed.get((choice.build, choice.team), max(worst, math.log(bound)) if bound else worst)

    return np.array([known[i] if i in known else guess(choice) for i, choice in enumerate(place.choices)])


def _beside_best(hunt: Hunt, until: float) -> None:
    """Look beside the best of the search, and again while that finds a better one, as far as the share of trials goes;
    on a device until nothing beside it is left, as looks are cheap there.

    These looks have a phase of their own in the log: a resumed search must not take them for what its model had seen.
    """
    run, problem = hunt.run, hunt.place.problem
    best: Choice | None = None
    device, most = on_device(run), _most_beside(hunt)
    for _ in range(most if device else nearby.PASSES):
        looks = run.looks.get(problem, {})
        near = (promising if device else ranked)(list(looks.values()))
        order = [measurement.choice for measurement in near]
        if order[:1] == [best] and not device:
            return
        best = order[0] if order else None
        wanted = nearby.beside(hunt.choices, order, looks)[: max(0, most - len(looks))]
        if not wanted or run.out_of_time(until):
            return
        before = {m.choice: m for m in run.known.nearby.get(problem, ()) if m.choice in wanted}
        run.prepare(problem, [choice for choice in wanted if choice not in before])
        for choice in sorted(wanted, key=group_key):
            if no_time(run, choice, until, hunt.place.spare_until):
                break
            if choice in before:
                run.remember(before[choice])
            rebuild(hunt, [run.look(problem, choice, NEARBY)])
            run.progress.advance(f"n={problem.n}: beside the best")
        run.log.sync()


def _most_beside(hunt: Hunt) -> int:
    """First looks at most when those beside the best have been taken: on a device, where a look is cheap, enough for
    every knob and every two of them."""
    looks = hunt.run.looks.get(hunt.place.problem, {})
    found = costs(list(looks.values())) if on_device(hunt.run) and not hunt.run.request.options.quick else None
    cheap = found is not None and found.look_s <= nearby.CHEAP_S
    return len(looks) + nearby.ON_DEVICE if cheap else hunt.most


def rebuild(hunt: Hunt, measured: Iterable[Measurement]) -> None:
    """Tell the study what was measured of the choices left, in that order."""
    from optuna.trial import TrialState, create_trial

    listed, dimensions = {choice: i for i, choice in enumerate(hunt.choices)}, hunt.sampler.dimensions
    for measurement in measured:
        if measurement.choice in listed:
            value = value_of(measurement)
            hunt.study.add_trial(
                create_trial(
                    state=TrialState.FAIL if value is None else TrialState.COMPLETE,
                    value=value,
                    params=dimensions.params[listed[measurement.choice]],
                    distributions=dimensions.distributions,
                )
            )


def _why_stop(hunt: Hunt) -> str:
    """Why no further batch pays, else the empty text. Decided between batches only, so that a resume decides alike."""
    done, sampler = _done(hunt.study), hunt.sampler
    if done >= len(hunt.choices):
        everything = len(hunt.choices) == len(hunt.place.choices)
        return "the whole space was measured" if everything else "every choice that may win was measured"
    if done >= hunt.cap:
        return "the share of trials is used"
    if sampler.batch_start(done) != done or done <= hunt.seeds:
        return ""
    modelled = done - sampler.batch_start(hunt.seeds + sampler.start_points)
    if (hunt.place.prior is not None or modelled >= _patience(hunt)) and sampler.promise(hunt.study) < price(
        len(hunt.place.choices)
    ):
        return "more search cannot pay for itself"
    return "no improvement for long" if modelled >= _patience(hunt) and _stale(hunt.study, _patience(hunt)) else ""


def price(space_size: int) -> float:
    """The promise, in log time, that a batch of looks must have: what is expected of it must be worth its time.

    A look costs the share 1 / size of an exhaustive pass, and EXCHANGE says what that pass is worth.
    """
    return max(WORTH, EXCHANGE * BATCH / space_size / EXPECTED)


def _patience(hunt: Hunt) -> int:
    """Modelled looks without an improvement that end a search; the first n of a run has nothing but its own looks."""
    trials = max(PATIENCE, round(PATIENCE_GROWTH * math.sqrt(len(hunt.place.choices))))
    if hunt.place.prior is not None:
        return max(BATCH, round(math.sqrt(len(hunt.place.choices)) / 2))
    return trials // 2 if hunt.run.request.options.quick else trials


def _done(study: Study) -> int:
    """Trials that are finished: told or rebuilt."""
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def _stale(study: Study, patience: int) -> bool:
    """Whether the last trials improved on those before them by less than 1 %."""
    values = [t.value if t.value is not None else math.inf for t in study.get_trials(deepcopy=False)]
    if len(values) <= patience:
        return False
    before, after = min(values[:-patience]), min(values[-patience:])
    return after > before * math.exp(-WORTH)


def _batch(hunt: Hunt, until: float) -> str:
    """Measure what is left of the current batch, grouped. Returns why to stop, or the empty text."""
    run, problem = hunt.run, hunt.place.problem
    asked = _ask(hunt)
    if not asked:
        return "the whole space was measured"
    if run.out_of_time(until):
        return "the time is used"
    run.prepare(problem, [choice for _, choice in asked])
    for trial, choice in sorted(asked, key=lambda pair: group_key(pair[1])):
        if no_time(run, choice, until, hunt.place.spare_until):
            return "the time is used"
        _tell(hunt.study, trial, run.look(problem, choice))
        run.progress.advance(f"n={problem.n}: {many(_done(hunt.study), 'look')}")
    run.log.sync()
    return ""


def _ask(hunt: Hunt) -> list[tuple[Trial, Choice]]:
    """The trials left in the current batch, within the share."""
    done, sampler = _done(hunt.study), hunt.sampler
    asked = []
    for _ in range(min(sampler.room(done), hunt.cap - done, len(hunt.choices) - done)):
        trial = hunt.study.ask(sampler.dimensions.distributions)
        index = sampler.dimensions.index(trial.params)
        if index is not None:
            asked.append((trial, hunt.choices[index]))
    return asked


def _tell(study: Study, trial: Trial, measurement: Measurement) -> None:
    from optuna.trial import TrialState

    value = value_of(measurement)
    if value is None:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, value)

import math
import random

import numpy as np
import optuna
import pytest
from fake import FakeSpec, decode_ns, fake_machine, fake_variant, fake_variants
from optuna.trial import TrialState, create_trial

from advisor.errors import AdvisorError
from advisor.search.sampler import BATCH, Exhausted, ListSampler
from advisor.search.space import SpaceOptions, Toolchain, space
from advisor.search.strategy import START_POINTS

GCC = Toolchain("gcc", "libgomp")
SPEC = FakeSpec()
SMALL = space(
    fake_machine(cores=1),
    SPEC,
    (fake_variant("split", 1, {"ADV_BLOCK": (16, 32, 64, 128), "ADV_UNROLL": (1, 2, 4)}, {}),),
    SPEC.problem(64),
    SpaceOptions((GCC,)),
)


def big(n=1024, machine=None):
    return space(machine or fake_machine(cores=16), SPEC, fake_variants(), SPEC.problem(n), SpaceOptions((GCC,)))


@pytest.fixture(autouse=True)
def quiet_optuna():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def step(study, sampler, times):
    trial = study.ask(sampler.dimensions.distributions)
    index = sampler.dimensions.index(trial.params)
    value = times(index)
    if value is None:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, value)
    return index


def test_a_space_of_twelve_asked_forty_times_gives_twelve_distinct_and_stops():
    assert len(SMALL) == 12
    sampler = ListSampler(SMALL)
    study = optuna.create_study(sampler=sampler)
    seen = []

    def objective(trial):
        for name, distribution in sampler.dimensions.distributions.items():
            trial.suggest_categorical(name, distribution.choices)
        seen.append(sampler.dimensions.index(trial.params))
        return 1.0 + seen[-1]

    study.optimize(objective, n_trials=40)
    assert sorted(seen) == list(range(12))
    assert sampler.left(study) == 0
    with pytest.raises(Exhausted):
        study.ask(sampler.dimensions.distributions)


def test_no_repeat_among_seeds_enqueued_failed_and_measured():
    sampler = ListSampler(SMALL, seeds=2)
    study = optuna.create_study(sampler=sampler)
    for index in (7, 3):
        study.enqueue_trial(sampler.dimensions.params[index])
    seen = [step(study, sampler, lambda i: None if i % 3 == 0 else 1.0 + i) for _ in range(12)]
    assert seen[:2] == [7, 3]
    assert sorted(seen) == list(range(12))


def test_parameters_are_real_dimensions_that_optunas_own_samplers_can_use():
    sampler = ListSampler(big())
    names = set(sampler.dimensions.names)
    assert {"variant", "knob ADV_BLOCK", "compiler", "flags", "threads", "placement", "wait_policy", "spin"} <= names
    assert "-" in sampler.dimensions.distributions["knob ADV_BLOCK"].choices  # the naive variant has no block
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=2))
    for _ in range(6):
        trial = study.ask(sampler.dimensions.distributions)
        study.tell(trial, 1.0)
    other = ListSampler(big())
    study.sampler = other
    trial = study.ask(other.dimensions.distributions)
    assert other.dimensions.index(trial.params) is not None


def test_every_choice_is_found_again_from_its_parameters():
    sampler = ListSampler(big())
    assert [sampler.dimensions.index(values) for values in sampler.dimensions.params] == list(range(len(big())))
    assert sampler.dimensions.index({"variant": "gone"}) is None


@pytest.mark.parametrize("asked", [3, START_POINTS + 2, START_POINTS + BATCH, 30])
def test_a_study_rebuilt_from_finished_trials_goes_on_alike(asked):
    choices = big()

    def times(index):
        return None if index % 17 == 0 else decode_ns(SPEC.problem(1024), choices[index], 16)

    def fresh():
        sampler = ListSampler(choices, seed=4)
        return sampler, optuna.create_study(sampler=sampler)

    sampler, study = fresh()
    whole = [step(study, sampler, times) for _ in range(40)]
    sampler, study = fresh()
    done = whole[:asked]
    start = sampler.batch_start(asked)
    tail = done[start:]
    random.Random(0).shuffle(tail)  # trials of one batch are measured in another order than asked
    for index in (*done[:start], *tail):
        value = times(index)
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        study.add_trial(
            create_trial(
                state=state,
                value=value,
                params=sampler.dimensions.params[index],
                distributions=sampler.dimensions.distributions,
            )
        )
    assert whole[asked:] == [step(study, sampler, times) for _ in range(40 - asked)]


def test_it_finds_the_optimum_of_a_decode_like_space_with_a_small_share_of_trials():
    choices, found = big(), []
    true = np.array([decode_ns(SPEC.problem(1024), choice, 16) for choice in choices])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sampler = ListSampler(choices, seed=seed)
        study = optuna.create_study(sampler=sampler)
        noise = rng.lognormal(0.0, 0.03, 60)
        seen = [step(study, sampler, lambda i, factor=noise[k]: true[i] * factor) for k in range(60)]
        found.append(true[seen].min() / true.min())
    assert max(found) <= 1.05
    assert len(choices) > 600


def test_a_prior_from_a_neighbouring_n_leads_at_once_to_good_choices():
    choices = big()
    near, here = (np.array([decode_ns(SPEC.problem(n), c, 16) for c in choices]) for n in (4096, 8192))
    sampler = ListSampler(choices, prior=np.log(near))
    study = optuna.create_study(sampler=sampler)
    seen = [step(study, sampler, lambda i: here[i]) for _ in range(12)]
    assert here[seen].min() <= 1.02 * here.min()


def test_promise_falls_as_the_space_is_understood():
    choices = big()
    true = [decode_ns(SPEC.problem(1024), choice, 16) for choice in choices]
    sampler = ListSampler(choices)
    study = optuna.create_study(sampler=sampler)
    assert sampler.promise(study) == math.inf
    for _ in range(START_POINTS):
        step(study, sampler, lambda i: true[i])
    early = sampler.promise(study)
    for _ in range(9 * BATCH):
        step(study, sampler, lambda i: true[i])
    assert sampler.promise(study) < early / 3


def test_only_listed_dimensions_can_be_asked_for():
    sampler = ListSampler(SMALL)
    study = optuna.create_study(sampler=sampler)
    with pytest.raises(AdvisorError, match="dimensions"):
        study.ask().suggest_float("temperature", 0, 1)

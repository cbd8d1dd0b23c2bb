"""The ladder: what each way takes from made-up machines, and which one answers first."""

import math

import pytest
from elsewhere_fixtures import GROUP, SPEC, known, machine, options, runs_all, timed

from advisor.records import pairs
from advisor.search.learned import learn
from advisor.search.portable import RULES, Portable, able, by_program, carried_threads, listed
from advisor.search.rungs import MODELS, RUNGS, Asked, Way, check, common, folds, guessed, learned, nearest
from advisor.search.space import space
from advisor.search.traits import Spot, distance, model_of, spot_of

SPOTS = {16: Spot(16, 2, {}), 8: Spot(8, 4, {}), 4: Spot(4, 1, {})}


def asked(cpus=4, n=1024, runs=lambda what: True, **more):
    return Asked(spot_of(machine(cpus)), runs, GROUP, n, **more)


def nothing(*_):
    return None


# --- distance ---


def test_numbers_are_compared_by_ratio_and_what_one_side_lacks_says_nothing():
    assert distance({"cpus": 4.0, "l3": 100.0}, {"cpus": 16.0, "numa": 2.0}) == 2.0
    assert distance({"vendor": "AMD", "cpus": 4.0}, {"vendor": "Intel", "cpus": 4.0}) == 1.0
    assert distance({}, {"cpus": 2.0}) == 0.0


def test_traits_are_of_the_part_in_reach():
    whole, part = machine(16), machine(16, allowed=(0, 1))
    assert (spot_of(whole).cpus, spot_of(part).cpus) == (16, 2)
    assert distance(spot_of(whole).traits, spot_of(part).traits) == pytest.approx(3.0)
    assert model_of(whole) == model_of(part)


# --- threads ---


@pytest.mark.parametrize(
    ("rule", "threads", "there", "here", "expected"),
    [
        ("share", 8, 16, 4, 2),
        ("share", 12, 16, 8, 6),
        ("count", 8, 16, 4, 4),
        ("count", 2, 16, 4, 2),
        ("caches", 8, 16, 8, 8),
        ("caches", 4, 16, 4, 2),
    ],
)
def test_threads_follow_a_rule(rule, threads, there, here, expected):
    assert carried_threads(threads, SPOTS[there], SPOTS[here], rule) == expected


@pytest.mark.parametrize("rule", RULES)
def test_one_thread_stays_one_and_all_stay_all(rule):
    assert carried_threads(1, SPOTS[4], SPOTS[16], rule) == 1
    assert carried_threads(0, SPOTS[4], SPOTS[16], rule) == 0
    assert carried_threads(4, SPOTS[4], SPOTS[16], rule) == 16


# --- what this machine cannot run ---


def test_variants_and_knobs_that_this_instruction_set_cannot_run_are_skipped():
    variants = options.variants(wide=("avx512f",))
    can = able(variants, machine(4))
    assert can(Portable("split", pairs({"ADV_BLOCK": 64, "ADV_UNROLL": 1}), 2))
    assert not can(Portable("wide", (), 2))
    assert not can(Portable("not at hand", (), 2))
    assert able(variants, machine(4)._replace(isa=("avx2", "avx512f")))(Portable("wide", (), 2))


def test_the_next_best_answers_where_the_best_cannot_run():
    one = known("a", machine(16), {1024: {timed("wide", 16): 100.0, timed("split", 16): 120.0}})
    guess = nearest([one], asked(runs=lambda what: what.variant != "wide"), "share")
    assert (guess.what.variant, guess.what.threads) == ("split", 4)


# --- the ways ---


def test_the_nearest_machine_that_knows_the_problem_answers():
    near = known("near", machine(8), {1024: {timed("split", 2): 100.0, timed("naive", 8): 300.0}})
    far = known("far", machine(64), {1024: {timed("naive", 64): 100.0, timed("split", 2): 300.0}})
    assert nearest([far, near], asked(), "count").machines == ("near",)
    assert nearest([far, near], asked(n=1 << 20), "count") is None
    assert nearest([far], asked(n=2048), "share").what.threads == 4


def test_the_common_choice_does_well_everywhere_rather_than_best_somewhere():
    times = [{"a": 100.0, "b": 900.0, "c": 120.0}, {"a": 900.0, "b": 100.0, "c": 120.0}]
    two = [
        known(f"m{i}", machine(8 + i), {1024: {timed(name, 1): ns for name, ns in each.items()}})
        for i, each in enumerate(times)
    ]
    guess = common(two, asked(), "share")
    assert (guess.what.variant, guess.machines) == ("c", ("m0", "m1"))
    assert guess.spread == pytest.approx(0.0)
    assert nearest(two, asked(), "share").spread > 1.0


def test_what_one_machine_alone_knows_is_least_sure():
    one = known("a", machine(8), {1024: {timed("split", 1): 100.0}})
    assert math.isinf(nearest([one], asked(), "share").spread)


def test_only_the_process_parts_asked_for_count():
    passive = timed("split", 8, wait="passive")
    one = known("a", machine(8), {1024: {passive: 100.0, timed("split", 8): 200.0}})
    assert nearest([one], asked(), "share").what.wait_policy == "passive"
    plain = frozenset({("default", None, "default")})
    assert nearest([one], asked(processes=plain), "share").what.wait_policy == "default"


def growing(cpus, n):
    """Made-up times: one thread is best below n = 512, all from there; `naive` is three times as slow."""
    return {
        timed(name, threads): factor * (n / threads + 100.0 * (threads > 1) * 4)
        for name, factor in (("split", 1.0), ("naive", 3.0))
        for threads in {1, 2, cpus}
    }


def three(models=3):
    return [
        known(f"m{cpus}", machine(cpus, model=f"model {min(i, models - 1)}"), {n: growing(cpus, n) for n in (64, 4096)})
        for i, cpus in enumerate((4, 8, 32))
    ]


def test_the_model_learns_how_threads_depend_on_n_and_needs_two_machines():
    machines = three()
    assert learn(machines[:1], GROUP) is None
    assert learned(machines[:1], asked(16), None) is None
    model = learn(machines, GROUP)
    small, large = (learned(machines, asked(16, n), model) for n in (64, 4096))
    assert (small.what.variant, small.what.threads) == ("split", 1)
    assert (large.what.variant, large.what.threads) == ("split", 16)
    assert small.machines == ("m4", "m8", "m32")


# --- checking ---


def test_the_way_that_was_off_least_answers_first():
    machines = three()
    found = check(machines, GROUP, runs_all, nothing)
    ranks = [checked.rank for _, checked in found.ways]
    assert ranks == sorted(ranks)
    first, checked = found.ways[0]
    assert checked.regret == pytest.approx(1.0, abs=0.02)
    assert len(checked.known) == 6
    assert guessed(first, machines, asked(16, 4096), learn(machines, GROUP)).what.threads == 16


def test_with_one_machine_nothing_is_checked_and_the_nearest_comes_first():
    found = check(three()[:1], GROUP, runs_all, nothing)
    assert [way.rung for way, _ in found.ways] == sorted((way.rung for way, _ in found.ways), key=RUNGS.index)
    assert all(checked.counted == () and math.isinf(checked.rank) for _, checked in found.ways)
    assert found.claimed(found.ways[0][0]) is None


@pytest.mark.parametrize("models", [1, 2, 3])
def test_no_regret_is_claimed_below_three_models_of_machine(models):
    found = check(three(models), GROUP, runs_all, nothing)
    assert found.models == models
    claimed = found.claimed(found.ways[0][0])
    assert (claimed is None) == (models < MODELS)


def test_from_three_models_on_no_machine_answers_for_its_own_silicon():
    machines = [*three(), known("part", machine(2, model="model 0"), {64: growing(2, 64)})]
    others = {one.name: [m.name for m in rest] for one, rest in folds(machines)}
    assert others["m4"] == ["m8", "m32"]
    assert others["m8"] == ["m4", "m32", "part"]


def test_a_choice_that_was_not_measured_counts_as_the_middle_and_claims_nothing():
    models = [
        known(f"m{i}", machine(4 + i, model=str(i)), {64: {timed(f"own{i}", 1): 100.0, timed("all", 1): 400.0}})
        for i in range(3)
    ]
    found = dict(check(models, GROUP, runs_all, nothing).ways)
    off = found[Way("nearest", "share")]
    assert off.known == ()
    assert off.regret is None
    assert off.counted == pytest.approx([math.log(2.5)] * 3)


def test_the_cost_model_is_checked_like_the_others():
    found = dict(check(three(), GROUP, runs_all, lambda *_: Portable("split", (), 1)).ways)
    assert len(found[Way("model")].counted) == 6
    assert found[Way("model")].rank > 0.3


# --- back to a choice ---


def test_the_nearest_listed_team_is_meant_and_what_is_not_listed_is_none():
    choices = space(machine(4), SPEC, options.variants(), SPEC.problem(1024), options.space)
    programs = by_program(choices)
    knobs = pairs({"ADV_BLOCK": 64, "ADV_UNROLL": 1})
    found = listed(Portable("split", knobs, 64, "passive"), None, programs)
    assert (found.build.knobs, found.team.threads, found.process.wait_policy) == (knobs, 4, "passive")
    assert listed(Portable("split", pairs({"ADV_BLOCK": 7}), 2), None, programs) is None

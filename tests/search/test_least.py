"""What a device's n must have looked at before its race: with a small budget few sizes get an answer, and those a good
one."""

import pytest
from device_tables import gpu, whole
from h200_bf16_model import SHAPE, SIZES, TOOLS, VARIANTS, Attention16, Gpu16, us
from h200_model import times

from advisor.kernels.gpu.device import machine_of
from advisor.search import least
from advisor.search.log import Log
from advisor.search.plan import time_slice
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Run
from advisor.search.space import default_choice, space
from advisor.search.tune import tune
from advisor.tuning_result import missing

SPEC = Attention16()
MACHINE = machine_of(whole({}), gpu())
LIBRARIES = {"flash", "cudnn", "efficient", "math"}
BUDGET_S = 20.5
"""What a command of 25 s had left once it had started."""


def at(n):
    return SPEC.problem(n, "bfloat16", **SHAPE)


def listed(n):
    return space(MACHINE, SPEC, VARIANTS, at(n), TOOLS)


def asked(sizes=SIZES, **options):
    return Request(MACHINE, SPEC, VARIANTS, tuple(at(n) for n in sizes), Options(TOOLS, **options), "s")


def go(path, request, executor):
    with Log(str(path)) as log:
        return tune(request, executor, log, clock=executor.clock)


def lost(outcome):
    """Size -> how many times the best the winner takes, of the sizes with an answer."""
    found = {}
    for verdict in outcome.verdicts:
        if verdict.purpose == "final":
            best = min(times(us)(verdict.problem, choice) for choice in listed(verdict.problem.n))
            found[verdict.problem.n] = times(us)(verdict.problem, verdict.winner) / best
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    executor, path = Gpu16(times(us)), tmp_path_factory.mktemp("swept") / "m.jsonl"
    return go(path, asked(budget_s=BUDGET_S), executor), executor, path


def test_every_answer_of_a_small_budget_is_near_the_best(swept):
    """It was one look at the own kernel from n = 128 on: 1.06 times the best at 512, 1.7 from 2048 on."""
    outcome, executor, _ = swept
    found = lost(outcome)
    assert set(SIZES[:6]) <= set(found)
    assert max(found.values()) < 1.02, found
    assert executor.clock.now - 1000.0 <= BUDGET_S + 1.0


def test_every_answer_saw_the_own_kernel_and_the_libraries_near_it(swept):
    outcome, _, _ = swept
    for n in lost(outcome):
        looked = {t.choice.build.variant for t in outcome.trials if t.problem.n == n}
        assert looked >= {"fused_triton", "cudnn", "flash"}, n
    assert {t.choice.build.variant for t in outcome.trials if t.problem.n == 64} >= LIBRARIES


def test_no_race_has_one_entrant_alone_while_there_are_others(swept):
    outcome, _, _ = swept
    assert all(len([s for s in v.standings if s.summary]) > 1 for v in outcome.verdicts if v.purpose == "final")


def test_a_program_that_compiles_for_seconds_waits_until_every_size_has_its_least(swept, tmp_path):
    outcome, _, _ = swept
    more = go(tmp_path / "m.jsonl", asked(budget_s=60.0), Gpu16(times(us)))
    programs = [{t.choice.build for t in o.trials if t.choice.build.variant == "fused_triton"} for o in (outcome, more)]
    assert len(programs[0]) == 1
    assert len(programs[1]) > 4
    assert set(lost(more)) == {*SIZES}


def test_what_has_no_answer_is_told_and_a_resumed_run_gives_it(swept):
    outcome, _, path = swept
    without = set(SIZES) - set(lost(outcome))
    assert without
    said, failed = missing(outcome, asked(budget_s=BUDGET_S), None)
    assert not failed
    assert all(str(n) in said for n in without)
    assert "--resume" in said
    resumed = go(path, asked(budget_s=BUDGET_S, resume=True), Gpu16(times(us)))
    assert set(lost(resumed)) == {*SIZES}
    assert max(lost(resumed).values()) < 1.02


def test_without_a_look_at_any_library_there_is_no_answer(tmp_path):
    """Six seconds are what the own kernel's tool takes to load."""
    outcome = go(tmp_path / "m.jsonl", asked((64, 128), budget_s=4.7), Gpu16(times(us)))
    assert outcome.trials
    assert not outcome.verdicts
    assert any("no time was left to look at" in note and "cudnn" in note for note in outcome.notes)


def test_the_first_answer_needs_one_library_only_or_there_might_be_no_table(tmp_path):
    outcome = go(tmp_path / "m.jsonl", asked((64, 128), budget_s=8.0), Gpu16(times(us)))
    looked = {t.choice.build.variant for t in outcome.trials if t.problem.n == 64}
    assert looked < LIBRARIES | {"fused_triton"}
    assert 64 in lost(outcome)


# --- which looks ---


def looked(tmp_path, call_us, sizes, names=("fused_triton", *LIBRARIES), then=()):
    """A run with a look at the first choice of some variants at some sizes; then of one at another."""
    executor = Gpu16(times(call_us))
    with Log(str(tmp_path / "m.jsonl")) as log:
        run = Run(asked(), executor, log, Silent(), executor.clock)
        for n in sizes:
            for choice in {c.build.variant: c for c in reversed(listed(n)) if c.build.variant in names}.values():
                run.look(at(n), choice)
        for n, name in then:
            run.look(at(n), next(c for c in listed(n) if c.build.variant == name))
    return run


def must(run, n):
    default = default_choice(MACHINE, SPEC, VARIANTS, at(n), TOOLS)
    return [choice.build.variant for choice in least.least(run, at(n), listed(n), default)]


def test_at_the_first_size_the_default_and_every_library_once(tmp_path):
    found = must(looked(tmp_path, us, ()), 64)
    assert found[0] == "fused_triton"
    assert sorted(found[1:]) == sorted(LIBRARIES)


def test_then_the_best_own_one_and_the_libraries_within_four_times_of_the_best_nearest_first(tmp_path):
    run = looked(
        tmp_path, lambda n, name, knobs: {"flash": 3.0, "cudnn": 2.0, "efficient": 5.0, "math": 9.0}.get(name, 1), (64,)
    )
    assert must(run, 128) == ["fused_triton", "cudnn", "flash"]


def test_a_library_never_looked_at_is_wanted_at_every_size(tmp_path):
    run = looked(tmp_path, us, (64,), ("fused_triton", "flash"))
    assert must(run, 128) == ["fused_triton", "flash", "cudnn", "efficient", "math"]


def launches(n, name, knobs):
    """As RMSNorm at n = 1: every library takes 13 us, most of it its launch."""
    return {"flash": 14.0, "cudnn": 13.0, "efficient": 15.0, "math": 16.0}.get(name, 1.0) + 1e-3 * n


def test_libraries_that_are_all_behind_are_looked_at_again_once_n_has_grown_sixteen_times(tmp_path):
    run = looked(tmp_path, launches, (64,))
    assert must(run, 128) == must(run, 512) == ["fused_triton"]
    assert must(run, 1024) == ["fused_triton", "cudnn", "flash", "efficient", "math"]


def test_what_is_behind_again_waits_for_another_sixteen_times(tmp_path):
    run = looked(tmp_path, launches, (64,), then=((1024, "fused_triton"), (1024, "cudnn")))
    assert "cudnn" not in must(run, 2048)
    assert "flash" in must(run, 2048)


def test_a_sweep_over_launch_bound_libraries_looks_at_one_at_its_larger_sizes_too(tmp_path):
    outcome = go(tmp_path / "m.jsonl", asked((64, 512, 1024, 8192), budget_s=40.0), Gpu16(times(launches)))
    assert any(t.choice.build.variant in LIBRARIES for t in outcome.trials if t.problem.n == 1024)


def test_no_look_for_that_is_begun_which_may_take_a_tenth_of_the_time(tmp_path):
    run = looked(tmp_path, lambda n, name, knobs: {"math": 200e3}.get(name, 1.0), (64,))
    assert "math" in must(run, 1024)
    run.deadline = run.clock() + 20.0
    assert "math" not in must(run, 1024)


# --- how time is shared ---


def test_a_size_with_a_small_share_has_its_least_and_the_others_share_the_rest():
    problems = [at(64), at(8192)]
    shared = time_slice(0.0, 10.0, SPEC, problems, True, 0.0)
    kept = time_slice(0.0, 10.0, SPEC, problems, True, 0.0, (2.0, 3.0))
    other = time_slice(0.0, 10.0, SPEC, problems, True, 0.0, (0.0, 9.0))
    assert other.race_until < shared.race_until < kept.race_until == 2.0
    assert kept.spare_until == pytest.approx(0.5 * (9.2 - 5.0))
    assert other.race_until == pytest.approx(0.2)

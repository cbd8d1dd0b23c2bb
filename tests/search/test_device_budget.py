"""What a search on a device does with a small budget, on a made-up GPU through times that were measured on one."""

import pytest
from device_tables import gpu, whole
from fake import fake_machine, synthetic_noise
from h200_model import FORWARD, FUSED, PLAIN, SIZES, TOOLS, Attention, Gpu, forward_us, fused_us, times

from advisor.kernels.gpu.device import machine_of
from advisor.search import behind, nearby
from advisor.search.log import Log
from advisor.search.plan import STOLEN_SHARE, kept_after, time_slice
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Run
from advisor.search.space import space
from advisor.search.tune import tune

SPEC = Attention()
MACHINE = machine_of(whole({}), gpu())
BUDGET_S = 23.6
"""For eight sizes: what a run of 30 s had left once it had started."""


def at(n):
    return SPEC.problem(n, "float64")


def listed(variants, n):
    return space(MACHINE, SPEC, variants, at(n), TOOLS)


def asked(variants, sizes, **options):
    return Request(MACHINE, SPEC, variants, tuple(at(n) for n in sizes), Options(TOOLS, **options), "s")


def go(path, request, executor):
    with Log(str(path)) as log:
        return tune(request, executor, log, clock=executor.clock)


def lost(outcome, of, variants, n):
    """How many times the best the winner of a final takes."""
    call_ns = times(of)
    winner = next(v.winner for v in outcome.verdicts if v.purpose == "final" and v.problem.n == n)
    return call_ns(at(n), winner) / min(call_ns(at(n), choice) for choice in listed(variants, n))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    executor = Gpu(times(fused_us))
    request = asked(FUSED, SIZES, budget_s=BUDGET_S)
    return go(tmp_path_factory.mktemp("swept") / "m.jsonl", request, executor), executor


def test_every_size_of_a_small_budget_ends_near_its_best(swept):
    """Before knobs came first: 1.48 at n = 64 and 128, 1.37 at 256, 1.14 at the last two."""
    outcome, executor = swept
    found = {n: lost(outcome, fused_us, FUSED, n) for n in SIZES}
    assert max(found.values()) < 1.15, found
    assert max(found[n] for n in SIZES[3:]) < 1.03, found
    assert executor.clock.now - 1000.0 <= BUDGET_S + 1.0


def test_plain_variants_are_looked_at_once_where_that_is_cheap_and_knobs_of_the_best_everywhere(swept):
    outcome, _ = swept
    plain = [t for t in outcome.trials if t.choice.build.variant in PLAIN]
    assert {t.choice.build.variant for t in plain if t.problem.n == SIZES[0]} == set(PLAIN)
    assert sum(t.seconds for t in plain if t.problem.n > SIZES[0]) < 0.02 * BUDGET_S  # was a sixth of it
    for n in SIZES:
        here = [t.choice.build for t in outcome.trials if t.problem.n == n]
        assert len({build for build in here if build.variant in ("tiled", "tiled_atomic")}) >= 8, n


def test_libraries_are_looked_at_at_every_size_though_they_load_for_long(swept):
    outcome, _ = swept
    assert {t.problem.n for t in outcome.trials if t.choice.build.variant == "math"} == set(SIZES)


def test_what_loads_at_a_first_look_is_not_the_first_sizes_share(swept):
    outcome, _ = swept
    first = [t.choice.build for t in outcome.trials if t.problem.n == SIZES[0] and t.choice.build.variant == "tiled"]
    assert len(first) >= 4


@pytest.mark.parametrize("seed", range(3))
def test_alone_and_without_a_budget_a_size_ends_within_five_percent(tmp_path, seed):
    """With seed 0 the choice was 18 % behind after 24 looks: two knobs had to change together."""
    executor = Gpu(times(forward_us), noise=synthetic_noise(seed, 0.005, lucky=0.0))
    outcome = go(tmp_path / "m.jsonl", asked(FORWARD, (512,), seed=seed), executor)
    assert lost(outcome, forward_us, FORWARD, 512) < 1.05
    (report,) = outcome.reports
    assert 24 < report.looked < 0.65 * report.space_size


def test_a_race_of_precise_samples_ends_soon_for_what_is_five_percent_behind(swept):
    outcome, _ = swept
    few = [
        s
        for v in outcome.verdicts
        if v.purpose == "final"
        for s in v.standings
        if s.summary and s.choice not in (v.winner, v.default) and s.ratio > 1.06
    ]
    assert few
    assert {s.summary.samples for s in few} == {3}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    return go(tmp_path_factory.mktemp("whole") / "m.jsonl", asked(FUSED, (128, 512)), Gpu(times(fused_us)))


@pytest.mark.parametrize("stop", [18, 60])
def test_a_search_on_a_device_that_was_stopped_goes_on_as_it_would_have(tmp_path, stop, whole_run):
    sizes = (128, 512)
    halted = go(tmp_path / "m.jsonl", asked(FUSED, sizes), Gpu(times(fused_us), interrupt_at=stop))
    assert halted.interrupted
    resumed = go(tmp_path / "m.jsonl", asked(FUSED, sizes, resume=True), Gpu(times(fused_us)))
    assert {(t.problem, t.choice) for t in resumed.trials} == {(t.problem, t.choice) for t in whole_run.trials}
    assert [v.winner for v in resumed.verdicts] == [v.winner for v in whole_run.verdicts]


def test_exhaustive_measures_what_the_search_left_out_too(tmp_path):
    outcome = go(tmp_path / "m.jsonl", asked(FUSED, (128, 512), exhaustive=True), Gpu(times(fused_us)))
    for report in outcome.reports:
        assert report.exhaustive_looked == report.space_size > report.looked


# --- what is behind ---


def looked(tmp_path, variants, us, n):
    """A run with a look at the defaults of every variant at an n."""
    executor = Gpu(times(us))
    first = {choice.build.variant: choice for choice in reversed(listed(variants, n))}
    with Log(str(tmp_path / "m.jsonl")) as log:
        run = Run(asked(variants, SIZES), executor, log, Silent(), executor.clock)
        for choice in first.values():
            run.look(at(n), choice)
    return run, first


def test_what_grew_from_beyond_its_launches_is_hopeless_and_a_librarys_launch_is_not(tmp_path):
    def us(n, name, knobs):
        return {"packed": 26.0 * n, "math": 65.0}.get(name, 6.6)

    run, first = looked(tmp_path, FUSED, us, 256)
    run.best_ns[at(4096)] = 27e3
    known = behind.expected(run, at(4096))
    assert known["math"].least == pytest.approx(65e3)
    assert known["packed"].least > 0.5 * 26e3 * 4096
    dear = {name for name, choice in first.items() if behind.too_dear(run, at(4096), known, choice, 10.0)}
    assert dear == {"packed"}


def test_a_look_that_may_be_long_is_left_out_where_it_would_take_a_tenth_of_the_search(tmp_path):
    def us(n, name, knobs):
        return 180.0 if name == "lane" else 45.0

    run, first = looked(tmp_path, FUSED, us, 256)
    run.best_ns[at(8192)] = 4.9e6
    known = behind.expected(run, at(8192))
    assert known["lane"].least < 4.9e6 < known["lane"].most
    assert [behind.too_dear(run, at(8192), known, first["lane"], seconds) for seconds in (2.0, 100.0)] == [True, False]
    assert not behind.too_dear(run, at(8192), known, first["tiled"], 0.001)  # near the best at 256: always looked at


def test_seeds_come_as_they_did_at_a_smaller_n_and_those_never_looked_at_last(tmp_path):
    run, first = looked(tmp_path, FUSED[:4], fused_us, 256)
    unknown = next(c for c in listed(FUSED, 512) if c.build.variant == "packed")
    wanted = [unknown, *reversed(first.values())]
    order = behind.in_order(run, at(512), wanted, {first["pair_tiled"]})
    assert [c.build.variant for c in order] == ["pair_tiled", "tiled_atomic", "tiled", "lane", "packed"]


# --- beside the best ---


def of(variant, **knobs):
    return next(c for c in listed(FUSED, 512) if c.build.variant == variant and dict(c.build.knobs) == knobs)


def test_beside_the_best_are_its_knobs_in_siblings_then_one_step_then_two():
    default = of("tiled", SPLITS=2, STAGES=2, STEP=16, TILES=2)
    best, other = default, of("tiled_atomic", SPLITS=4, STAGES=2, STEP=16, TILES=2)
    better = of("tiled", SPLITS=4, STAGES=2, STEP=16, TILES=1)
    order = [better, best, other]
    tried, found = set(order), []
    while looks := nearby.beside(listed(FUSED, 512), order, tried):
        found += looks
        tried |= {*looks}
    assert found[0] == of("tiled_atomic", SPLITS=4, STAGES=2, STEP=16, TILES=1)
    steps = [sum(a != b for a, b in zip(c.build.knobs, better.build.knobs, strict=True)) for c in found]
    own = [k for k, c in zip(steps, found, strict=True) if c.build.variant == "tiled"]
    assert own == sorted(own)
    assert set(own) == {1, 2}
    assert of("tiled", SPLITS=8, STAGES=1, STEP=16, TILES=1) in found


def test_nothing_is_kept_for_a_busy_neighbour_on_a_device():
    request = asked(FUSED, SIZES)
    thrifty = request._replace(options=request.options._replace(objective="efficiency"))
    cpu = request._replace(machine=fake_machine())
    kept = [kept_after(one) for one in (request, thrifty, cpu)]
    assert kept == [0.0, STOLEN_SHARE, STOLEN_SHARE]
    ends = [time_slice(0.0, 100.0, SPEC, [at(64)], True, share).race_until for share in kept]
    assert ends == pytest.approx([92.0, 82.0, 82.0])

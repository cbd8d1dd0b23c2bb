"""The search over the choices of a device, with made-up times: flat while a call is its launch, then as the traffic."""

import pytest
from device_tables import SOURCES, gpu, spec, whole
from fake import FakeExecutor

from advisor.kernels.gpu.device import machine_of
from advisor.kernels.gpu.geometry import geometry
from advisor.search import nearby
from advisor.search.log import Log
from advisor.search.request import NO_CHOICE, Options, Request
from advisor.search.seeds import seeds
from advisor.search.space import SpaceOptions, Toolchain, space
from advisor.search.tune import tune
from advisor.tuning_result import missing

TOOLS = SpaceOptions((Toolchain("cupy-14.2", "cuda", "cuda"), Toolchain("triton-3.6", "cuda", "triton")), ("none",))
OWN = tuple(v for v in SOURCES.values() if v.language == "cuda" or v.name == "batched_triton")
SHAPE = {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}
LANES = 132 * 32
"""Warps that run at once, a quarter of what fits, so that small n do not fill the device."""


def call_ns(problem, choice):
    """Launch, merging, the cache over what the warps can read together; batched variants read it once a group."""
    variant, knobs = SOURCES[choice.build.variant], dict(choice.build.knobs)
    if variant.launch:
        found = geometry(spec(), variant, problem, choice.build.knobs)
        blocks, warps = found.grid[0] * found.grid[1], found.block // 32
    else:
        blocks, warps = knobs["splits"] * 8, knobs["warps"] // knobs["stages"]
    again = 1.0 if variant.name.startswith("batched") else 1.4
    share = min(1.0, blocks * warps / LANES)
    unrolled = 1.0 + 0.03 * abs(knobs.get("ADV_UNROLL", 4) - 4)
    return 2500.0 + 3.0 * blocks + again * unrolled * problem.n * 8 * 128 * 4 / 4800.0 / share


def test_every_variant_of_a_device_is_looked_at_and_the_default_is_beaten(tmp_path):
    problems = tuple(spec().problem(n, "float16", **SHAPE) for n in (1024, 16384, 262144))
    machine, executor = machine_of(whole({}), gpu()), FakeExecutor(call_ns)
    request = Request(machine, spec(), OWN, problems, Options(TOOLS), "s")
    with Log(str(tmp_path / "log.jsonl")) as log:
        outcome = tune(request, executor, log, clock=executor.clock)
    assert outcome.notes == ()
    for problem, report in zip(problems, outcome.reports, strict=True):
        looked = {trial.choice.build.variant for trial in outcome.trials if trial.problem == problem}
        assert problem.n > 1024 or looked == {variant.name for variant in OWN}
        verdict = next(v for v in outcome.verdicts if v.purpose == "final" and v.problem == problem)
        assert call_ns(problem, verdict.winner) <= call_ns(problem, verdict.default)
        assert len(looked) < report.looked < report.space_size / 2


class Starting(FakeExecutor):
    """Takes eight seconds to be ready, whenever it is first asked to be."""

    def __init__(self):
        super().__init__(call_ns)
        self.ready = False

    def prepare(self, problem, choices):
        self.clock.now += 0.0 if self.ready else 8.0
        self.ready = True

    def measure(self, problem, choice, ask):
        self.prepare(problem, ())
        return super().measure(problem, choice, ask)


def sweep(tmp_path, executor, sizes, **options):
    problems = tuple(spec().problem(n, "float16", **SHAPE) for n in sizes)
    request = Request(machine_of(whole({}), gpu()), spec(), OWN, problems, Options(TOOLS, **options), "s")
    with Log(str(tmp_path / "log.jsonl")) as log:
        return tune(request, executor, log, clock=executor.clock)


def test_the_time_a_worker_takes_to_start_is_no_problems_share(tmp_path):
    outcome = sweep(tmp_path, Starting(), (1024, 16384), budget_s=16.0)
    assert {verdict.problem.n for verdict in outcome.verdicts if verdict.purpose == "final"} == {1024, 16384}


class Loading(FakeExecutor):
    """Every variant loads for a second and a half when it is first called."""

    def __init__(self):
        super().__init__(call_ns)
        self.loaded = set()

    def measure(self, problem, choice, ask):
        self.clock.now += 0.0 if choice.build.variant in self.loaded else 1.5
        self.loaded.add(choice.build.variant)
        return super().measure(problem, choice, ask)


def test_what_variants_load_at_their_first_call_is_not_the_first_problems_share(tmp_path):
    sizes = (1024, 1919, 1920, 1921)
    outcome = sweep(tmp_path, Loading(), sizes, budget_s=40.0)
    first = {trial.choice.build.variant for trial in outcome.trials if trial.problem.n == 1024}
    assert first == {variant.name for variant in OWN}
    assert {verdict.problem.n for verdict in outcome.verdicts if verdict.purpose == "final"} == {*sizes}


def test_loading_takes_no_more_than_a_part_of_a_small_budget(tmp_path):
    outcome = sweep(tmp_path, Loading(), (1024, 16384), budget_s=8.0)
    small = next(report for report in outcome.reports if report.problem.n == 1024)
    assert small.search_s < 0.75 * 8.0
    assert any(verdict.problem.n == 16384 for verdict in outcome.verdicts)


def listed(n=16384):
    machine, problem = machine_of(whole({}), gpu()), spec().problem(n, "float16", **SHAPE)
    return space(machine, spec(), OWN, problem, TOOLS)


def test_beside_the_best_on_a_device_is_one_knob_a_step_up_or_down():
    choices = listed()
    best = next(c for c in choices if c.build.variant == "batched_triton")
    tried = {next(c for c in choices if c.build.variant == variant.name) for variant in OWN}
    looks = nearby.beside(choices, [best, *tried], {best, *tried})
    assert looks
    assert looks[0].build.variant == best.build.variant
    leaders = {choice.build.variant: dict(choice.build.knobs) for choice in (*tried, best)}
    for choice in looks:
        knobs = leaders[choice.build.variant]
        ((name, value),) = set(choice.build.knobs) - set(knobs.items())
        values = sorted({dict(c.build.knobs)[name] for c in choices if c.build.variant == choice.build.variant})
        assert abs(values.index(value) - values.index(knobs[name])) == 1


def test_variants_far_behind_at_a_smaller_n_have_no_seed_at_a_larger_one(tmp_path):
    slow = {"split_w1": 9.0}

    def times(problem, choice):
        return call_ns(problem, choice) * slow.get(choice.build.variant, 1.0)

    outcome = sweep(tmp_path, FakeExecutor(times), (1024, 16384))
    looked = [{t.choice.build.variant for t in outcome.trials if t.problem.n == n} for n in (1024, 16384)]
    assert "split_w1" in looked[0]
    assert "split_w1" not in looked[1]
    assert "batched_triton" in looked[1]  # far behind at the first, too, but the best of its tool


def test_time_is_shared_by_a_devices_speed(tmp_path):
    outcome = sweep(tmp_path, FakeExecutor(call_ns), (1024, 1048576), budget_s=40.0)
    small, large = outcome.reports
    assert large.search_s < 3 * small.search_s


@pytest.mark.parametrize("seed", range(2))
def test_a_sweep_ends_near_the_best_of_every_n_after_looks_at_few(tmp_path, seed):
    sizes = (1024, 4096, 16384, 65536, 262144)
    outcome = sweep(tmp_path, FakeExecutor(call_ns), sizes, seed=seed)
    lost = []
    for report in outcome.reports:
        verdict = next(v for v in outcome.verdicts if v.problem == report.problem and v.purpose == "final")
        best = min(call_ns(report.problem, choice) for choice in listed(report.problem.n))
        lost.append(call_ns(report.problem, verdict.winner) / best)
        assert report.looked <= 48
    assert max(lost) < 1.02, lost


def test_each_tool_has_had_a_look_where_time_is_short():
    choices = listed()
    first = seeds(spec(), spec().problem(16384, "float16", **SHAPE), choices, choices[0], ())
    assert {choice.build.compiler for choice in first[:2]} == {"cupy-14.2", "triton-3.6"}
    assert {choice.build.variant for choice in first} == {variant.name for variant in OWN}


def test_a_size_that_no_variant_takes_is_told_as_that_and_not_as_a_lack_of_time(tmp_path):
    short = tuple(variant._replace(valid=(*variant.valid, "n <= 4096")) for variant in OWN[-1:])
    problems = tuple(spec().problem(n, "float16", **SHAPE) for n in (1024, 16384))
    request = Request(machine_of(whole({}), gpu()), spec(), short, problems, Options(TOOLS, quick=True), "s")
    executor = Starting()
    with Log(str(tmp_path / "log.jsonl")) as log:
        outcome = tune(request, executor, log, clock=executor.clock)
    assert [report.stopped == NO_CHOICE for report in outcome.reports] == [False, True]
    assert missing(outcome, request, None) == ("nothing can be tried at n = 16384", True)

"""Measuring on a device that is none: what is asked and counted, in which order, what a budget or Ctrl-C leaves."""

from __future__ import annotations

import json

import pytest
from gpu_fixtures import H200
from made_up import made
from made_up_lab import FORBIDDEN, MACHINE, TOOLS, FakeLab, counters

from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.gpu.counters import MORE_TIME
from advisor.kernels.gpu.counts import NoCounters
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.validate.device_counting import EXPLAIN_CALLS, count_group, to_count, to_explain, worth_counting
from advisor.validate.device_plan import BLOCK_SIZES, device_cells, device_problems, grids, own
from advisor.validate.device_report import SCHEMA, device_document, device_report
from advisor.validate.device_show import device_shown
from advisor.validate.plan import LEAST_ROUNDS, MOST_ROUNDS
from advisor.validate.request import Request
from advisor.validate.roles import ROLES, STEPS, pairs_of, role_of

CHAIN = ("forward", "backward", "fused")


def test_every_role_is_a_variant_with_the_knobs_it_says():
    for role in ROLES:
        (variant,) = [v for v in variants(role.kernel, (), GPU_LANGUAGES) if v.name == role.variant]
        for knob, value in role.knobs:
            assert value in dict(variant.build_knobs)[knob], role
        assert role_of(role.kernel, role.name) == role
    assert len({(role.kernel, role.name) for role in ROLES}) == len(ROLES)


def test_every_step_has_a_pair_in_two_mappings_at_least():
    for step in STEPS:
        pairs = pairs_of(step)
        assert len({new.mapping for new, _ in pairs}) >= 2, step
        assert all(new.mapping == old.mapping and new != old for new, old in pairs)


def test_variants_of_the_chain_are_timed_in_turns_at_the_papers_shape():
    lab = FakeLab()
    found = lab.run(kernels=CHAIN, sizes=(64, 128), budget_s=10_000)
    assert (found.missing, found.interrupted, found.uncounted) == ((), False, "")
    assert {s.problem.kernel for s in found.series} == set(CHAIN)
    assert {(s.problem.dtype, s.threads, s.item_bytes) for s in found.series} == {("float64", 0, 8)}
    assert {dict(s.problem.shape)["batch"] for s in found.series} == {2}
    assert all(len(s.samples_ns) == MOST_ROUNDS for s in found.series)
    names = {s.variant for s in found.series if s.problem.kernel == "fused"}
    assert {role.name for role in ROLES if role.kernel == "fused"} <= names
    assert all(pool.closed for pool in lab.pools.values())
    assert found.cold_start_s == (0.31, 0.29, 0.3)


def test_forms_of_one_variant_are_cells_of_their_own():
    spec, (problem,) = device_problems(Request(sizes=(64,)), "backward")
    cells = device_cells(H200, spec, own("backward"), problem, TOOLS)
    both = {c.name: dict(c.choice.build.knobs) for c in cells if c.variant.name == "gk_atomic_packed"}
    assert both == {"gk_atomic_packed": {"ADV_PERSIST": 1}, "gk_atomic_packed ADV_PERSIST=0": {"ADV_PERSIST": 0}}
    launched = {g.variant: g.launches for g in grids(spec, problem, cells)}
    assert launched["gk_atomic_packed"][0] == (2, 128), "a block of 128 rows for each sequence"
    assert set(launched) == {c.name for c in cells}


def test_decode_is_in_float32_and_sizes_are_the_papers():
    assert device_problems(Request(), "decode")[1][-1].n == 1048576
    assert {p.dtype for p in device_problems(Request(), "decode")[1]} == {"float32"}
    assert tuple(p.n for p in device_problems(Request(), "block")[1]) == BLOCK_SIZES
    assert [p.n for p in device_problems(Request(), "forward")[1]] == [64 << i for i in range(8)]


def test_what_is_counted_is_what_ran_cold_at_one_n():
    lab = FakeLab(lambda p, c: 1e6, statuses=lambda p, c: "wrong" if c.build.variant == "packed" else "ok")
    found = lab.run(kernels=("forward",), sizes=(64, 2048, 4096), budget_s=10_000)
    assert {(p.regime, p.n) for p, _ in lab.asked} == {("cold", 4096)}
    assert "packed" not in {c.build.variant for _, c in lab.asked}
    assert {c.variant for c in found.counts} == {c.build.variant for _, c in lab.asked}
    assert {s.variant for s in found.series if s.status == "wrong"} == {"packed"}
    assert all(c.call.dram_read_bytes == 5e8 and c.predicted.dram_written_bytes > 0 for c in found.counts)


def test_of_the_gradients_each_mapping_is_counted_at_one_n_in_both_kernels():
    lab = FakeLab(times=lambda p, c: 60.0 * p.n**2 if "packed" in c.build.variant else float(p.n**2))
    lab.run(kernels=("backward", "fused"), sizes=(512, 1024, 2048), budget_s=90)
    sizes = {}
    for problem, choice in lab.asked:
        sizes.setdefault(choice.build.variant, set()).add(problem.n)
    assert sizes["gk_atomic_packed"] == sizes["fused_two_atomics_packed"] == sizes["gk_atomic_rotated"]
    assert sizes["gk_atomic_one_lane"] == sizes["fused_two_atomics_one_lane"] == {2048}
    assert sizes["gk_atomic_lane"] == {2048} | sizes["gk_atomic_packed"], "beside packed rows too: another pattern"
    assert max(sizes["gk_atomic_packed"]) < 2048, "slow mappings at a smaller n"
    assert "fused_no_atomic_recomputed_packed" not in sizes


def test_what_was_counted_is_explained_at_a_small_n_if_there_is_time():
    lab = FakeLab(lambda p, c: 1e6)
    found = lab.run(kernels=("backward", "block"), sizes=(512, 2048), budget_s=10_000)
    assert {(p.kernel, p.n, p.regime) for p, _ in lab.explained} == {("backward", 512, "cold")}
    assert {c.build.variant for _, c in lab.explained} == {
        c.build.variant for p, c in lab.asked if p.kernel == "backward"
    }
    assert {c.n for c in found.waits} == {512}


def test_the_cheapest_are_explained_first():
    spec = registry.spec("forward")
    problem = spec.problem(512, dtype="float64")
    cells = {problem: device_cells(H200, spec, own("forward"), problem, TOOLS)}
    times = {c.name: 1e6 * (1 + i) for i, c in enumerate(cells[problem])}
    series = [made("forward", name, 512, 0, ns)._replace(problem=problem) for name, ns in times.items()]
    wanted, _ = to_count(cells, series, 1e9)
    assert len(to_explain(wanted, cells, series, 1e9)) == len(times)
    few = to_explain(wanted, cells, series, EXPLAIN_CALLS * 3.5e-3)
    assert [w.cell.name for w in few] == list(times)[:2]
    assert to_explain(wanted, cells, series, -1.0) == ()


def test_groups_without_time_are_told():
    spec = registry.spec("forward")
    problems = [spec.problem(n, dtype="float64") for n in (512, 4096)]
    cells = {p: device_cells(H200, spec, own("forward"), p, TOOLS) for p in problems}
    series = [made("forward", c.name, p.n, 0, 1e9)._replace(problem=p) for p in problems for c in cells[p]]
    wanted, left = to_count(cells, series, 1.0)
    assert (wanted, left) == ((), ("forward",))
    wanted, left = to_count(cells, series, 1e9)
    assert {w.problem.n for w in wanted} == {4096}
    assert left == ()


@pytest.mark.parametrize(
    ("kernel", "name", "group"),
    [
        ("block", "anything", "block"),
        ("decode", "split_w1", None),
        ("backward", "gk_atomic_rotated", "packed"),
        ("backward", "gk_atomic_packed ADV_PERSIST=0", None),
        ("backward", "gk_atomic_lane ADV_PERSIST=0", "lane"),
        ("fused", "tiled", "tiled"),
    ],
)
def test_what_is_counted_together(kernel, name, group):
    assert count_group(kernel, name) == group


def test_without_permission_times_are_there_and_counts_say_what_headers_predict():
    found = FakeLab(counted=lambda p, c: FORBIDDEN).run(kernels=("fused",), sizes=(2048,), budget_s=10_000)
    assert "administrators" in found.uncounted
    assert found.remedy == "ask one"
    assert found.missing == ()
    assert found.series
    assert found.counts
    assert all(c.call is None and c.predicted.atomics >= 0 for c in found.counts)


def test_a_program_that_was_ended_says_nothing_of_the_others():
    late = NoCounters("ncu was ended after 10 s", MORE_TIME)

    def some(problem, choice):
        return late if problem.kernel == "backward" else counters()

    found = FakeLab(counted=some).run(kernels=("backward", "fused"), sizes=(2048,), budget_s=10_000)
    assert found.uncounted == ""
    assert [m for m in found.missing if m.startswith("counters of backward: ") and m.endswith("after 10 s")]
    assert {c.call is None for c in found.counts if c.kernel == "fused"} == {False}


def test_one_that_cannot_be_counted_is_named():
    def some(problem, choice):
        broken = choice.build.variant == "lane_shared"
        return NoCounters("it crashed", "", everywhere=False) if broken else counters()

    found = FakeLab(lambda p, c: 1e6, counted=some).run(kernels=("forward",), sizes=(4096,), budget_s=10_000)
    assert found.uncounted == ""
    assert [m for m in found.missing if "lane_shared" in m and "it crashed" in m]


def test_a_budget_is_kept_and_what_is_left_out_is_named():
    lab = FakeLab(times=lambda p, c: 1e9 if p.n == 4096 else 1e6)
    begun = lab.clock()
    found = lab.run(kernels=("forward", "backward"), sizes=(64, 4096), budget_s=20)
    assert lab.clock() - begun <= 22
    assert [m for m in found.missing if "n=4096" in m and "no time" in m]
    assert {s.problem.n for s in found.series if s.status == "ok"} >= {64}


def test_slow_calls_get_few_rounds_and_no_interval():
    lab = FakeLab(times=lambda p, c: 1.5e9)
    found = lab.run(kernels=("forward",), sizes=(8192,), budget_s=30)
    rounds = {len(s.samples_ns) for s in found.series}
    assert rounds
    assert max(rounds) < MOST_ROUNDS
    shown = device_shown(device_report(Request(kernels=("forward",)), found), found.series)
    assert ("few rounds" in shown) == (max(rounds) < LEAST_ROUNDS)


def test_what_counting_leaves_goes_to_what_had_no_time():
    found = FakeLab(times=lambda p, c: 1e6).run(kernels=("forward",), sizes=(8192,), budget_s=15)
    assert [s for s in found.series if s.samples_ns]
    assert not [m for m in found.missing if "any variant" in m]


def test_what_no_variant_takes_is_told_once_and_a_dtype_of_none_is_refused():
    found = FakeLab().run(kernels=("forward", "fused"), sizes=(64,), dtype="bfloat16", budget_s=10_000)
    assert [m for m in found.missing if "no variant" in m] == ["fused n=64: no variant for bfloat16 and this shape"]
    with pytest.raises(BadInput, match="fused must have a variant in the dtype"):
        FakeLab().run(kernels=("fused",), sizes=(64,), dtype="bfloat16")


def test_programs_that_count_are_started_as_far_as_there_is_time():
    chain = ["backward", "block", "forward", "fused"]
    assert worth_counting(chain, 1000) == ("forward", "backward", "fused", "block")
    assert worth_counting(chain, 30) == ("forward", "backward")
    assert worth_counting(["block", "fused"], 20) == ("fused",)
    assert worth_counting(chain, 5) == worth_counting(chain, -5) == ()


def test_counting_keeps_to_what_is_left():
    lab = FakeLab(times=lambda p, c: 1.2e9 if c.build.variant == "packed" else 1e6)
    found = lab.run(kernels=("forward",), sizes=(4096,), budget_s=60)
    assert (lab.asked, found.missing) == ([], ("counters of forward: no time",))
    lab.run(kernels=("forward",), sizes=(4096,), budget_s=1000)
    assert "packed" in {c.build.variant for _, c in lab.asked}
    assert all(limit <= 100 for limit in lab.limits)


def test_an_interrupt_keeps_what_was_measured():
    lab = FakeLab(interrupt_at=40)
    found = lab.run(kernels=CHAIN, budget_s=10_000)
    assert found.interrupted
    assert found.missing[-1].startswith("interrupted")
    assert {s.problem.n for s in found.series if s.problem.kernel == "forward"} >= {64}
    assert all(pool.closed for pool in lab.pools.values())


def test_a_worker_that_is_not_ready_in_time_is_left_out():
    lab = FakeLab()
    opened = lab.open

    def late(gpu, spec, variants):
        pool = opened(gpu, spec, variants)
        if spec.name == "backward":

            def slow(problem, choices):
                raise BadInput("no worker")

            pool.prepare = slow
        return pool

    lab.open = late
    with pytest.raises(BadInput, match="no worker"):
        lab.run(kernels=CHAIN, sizes=(64,), budget_s=100)
    assert all(pool.closed for pool in lab.pools.values())


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"threads": (2,)}, BadInput, "threads are those of CPUs"),
        ({"kernels": ("mlp_backward",)}, UnknownName, "has a CUDA variant"),
        ({"kernels": ("forward",), "shape": (("d_ff", 4),)}, BadInput, "d_ff=4"),
    ],
)
def test_what_makes_no_sense_on_a_device_is_refused(asked, error, said):
    with pytest.raises(error, match=said):
        FakeLab().run(**asked)


def test_the_document_has_every_table_and_its_samples():
    request = Request(kernels=("forward", "fused"), sizes=(64, 2048, 4096), budget_s=10_000, device="cuda:0")
    found = FakeLab().run(**{k: v for k, v in request._asdict().items() if k in ("kernels", "sizes", "budget_s")})
    report = device_report(request, found)
    told = json.loads(json.dumps(device_document(report, found), allow_nan=False))
    assert told["schema"] == SCHEMA
    assert told["device"]["name"] == "NVIDIA H200"
    assert {"steps", "counts", "growth", "findings", "series", "grids", "crossings", "cold_start_s"} <= set(told)
    assert len(told["series"]) == len(found.series)
    text = device_shown(report, found.series)
    for words in ("paper: H200", "Steps", "Counted", "reductions", "Findings of the paper", "132 multiprocessors"):
        assert words in text
    assert MACHINE.gpus[0].name in text.splitlines()[0]

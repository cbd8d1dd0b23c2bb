"""Measuring on a device that is none: what is asked and counted, in which order, what a budget or Ctrl-C leaves."""

from __future__ import annotations

import json
import threading
import time
from functools import partial

import fake_ncu
import pytest
from gpu_fixtures import H200
from made_up import made
from made_up_lab import FORBIDDEN, MACHINE, START, TOOLS, FakeLab, counters

from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.gpu import profiled
from advisor.kernels.gpu.counters import MORE_TIME, attempt, count_kernels
from advisor.kernels.gpu.counts import NoCounters
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.search.request import Silent
from advisor.validate import device_counting
from advisor.validate.device_counting import (
    COUNT_SHARE,
    LEAST_COUNT_S,
    MOST_COUNT_S,
    count_group,
    reserve_s,
    to_count,
    to_explain,
    within,
    worth_trying,
)
from advisor.validate.device_measure import READY_SHARE, measure_device
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


def forward_cells(*sizes):
    """Cells of forward at these sizes."""
    spec = registry.spec("forward")
    problems = [spec.problem(n, dtype="float64") for n in sizes]
    return {p: device_cells(H200, spec, own("forward"), p, TOOLS) for p in problems}


def timed(cells, ns):
    """All of them took so long, in ns of their place in the list."""
    return [
        made("forward", c.name, p.n, 0, ns(i))._replace(problem=p) for p, cs in cells.items() for i, c in enumerate(cs)
    ]


FORWARDS = {role.name for role in ROLES if role.kernel == "forward"}


def test_the_cheapest_are_explained_first():
    cells = forward_cells(512)
    (listed,) = cells.values()
    series = timed(cells, lambda i: 1e6 * (10 - i))
    wanted, _ = to_count(cells, series, 1e9)
    assert {w.cell.name for w in wanted} == FORWARDS
    ordered = [c.name for c in reversed(listed) if c.name in FORWARDS]
    assert [w.cell.name for w in wanted] == ordered
    assert [w.cell.name for w in to_explain(wanted, cells, series)] == ordered
    assert to_explain(wanted[:2], cells, series) == wanted[:2]
    assert to_explain(wanted, forward_cells(1024), series) == ()


def test_groups_that_do_not_fit_come_last_at_their_cheapest():
    cells = forward_cells(512, 4096)
    series = timed(cells, lambda i: 1e9 * (10 - i))
    wanted, late = to_count(cells, series, 1.0)
    assert wanted == ()
    assert {w.problem.n for w in late} == {512}
    assert [w.cost_s for w in late] == sorted(w.cost_s for w in late)
    wanted, late = to_count(cells, series, 1e9)
    assert {w.problem.n for w in wanted} == {4096}
    assert late == ()


def test_forward_is_counted_at_a_larger_n_after_all_else_if_there_is_time():
    cells = forward_cells(4096, 8192)
    series = timed(cells, lambda i: 1e6)
    wanted, _ = to_count(cells, series, 1e9)
    assert [w.problem.n for w in wanted] == [4096] * len(FORWARDS) + [8192] * len(FORWARDS)
    one_s = wanted[0].cost_s
    few, _ = to_count(cells, series, one_s * (len(FORWARDS) + 2.5))
    assert [w.problem.n for w in few] == [4096] * len(FORWARDS) + [8192] * 2
    assert {w.problem.n for w in within(wanted, 2.5 * one_s)} == {4096}
    assert len(within(wanted, 2.5 * one_s)) == 2


def test_what_the_findings_need_most_is_counted_first():
    lab = FakeLab(lambda p, c: 1e6)
    lab.run(kernels=(*CHAIN, "block"), sizes=(256, 512, 2048, 4096), budget_s=10_000)
    order = [count_group(p.kernel, role_name(p.kernel, c)) for p, c in lab.asked]
    assert list(dict.fromkeys(order)) == ["forward", "block", "lane", "one_lane", "packed", "tiled"]
    assert len(lab.limits) == 2, "one program for all kernels, and one for what explains"
    assert {p.n for p, _ in lab.asked if p.kernel == "block"} == {4096}


def role_name(kernel, choice):
    """The name of its form that stands in the table of roles."""
    known = [role for role in ROLES if (role.kernel, role.variant) == (kernel, choice.build.variant)]
    knobs = dict(choice.build.knobs)
    fitting = [role for role in known if role.knobs and set(role.knobs) <= set(knobs.items())]
    return (fitting or known)[0].name if known else choice.build.variant


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
    lab = FakeLab(tried=FORBIDDEN)
    found = lab.run(kernels=("fused",), sizes=(2048,), budget_s=10_000)
    assert "administrators" in found.uncounted
    assert found.remedy == "ask one"
    assert found.missing == ()
    assert found.series
    assert found.counts
    assert all(c.call is None and c.predicted.atomics >= 0 for c in found.counts)
    assert lab.asked == [], "nothing is asked again"
    (program,) = found.programs
    assert (program.what, program.start, program.asked) == ("tried", None, 0)


def test_permission_that_is_lost_after_the_attempt_is_told():
    found = FakeLab(counted=lambda p, c: FORBIDDEN).run(kernels=("fused",), sizes=(2048,), budget_s=10_000)
    assert found.uncounted == FORBIDDEN.reason
    assert all(c.call is None for c in found.counts)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BadInput("a folder must be one's own")])
def test_an_error_of_counting_leaves_the_times(error):
    def fails(*_):
        raise error

    lab = FakeLab()
    lab.count = fails
    found = lab.run(kernels=("forward",), sizes=(4096,), budget_s=10_000)
    assert [s for s in found.series if s.samples_ns]
    assert [m for m in found.missing if "counting was not possible" in m and str(error) in m]
    assert found.uncounted == ""
    lab = FakeLab()
    lab.attempt = fails
    found = lab.run(kernels=("forward",), sizes=(4096,), budget_s=10_000)
    assert str(error) in found.uncounted
    assert [s for s in found.series if s.samples_ns]


def test_what_the_program_had_no_time_for_says_so_and_the_rest_is_kept():
    late = NoCounters("no time was left within 40 s", MORE_TIME, everywhere=False)

    def some(problem, choice):
        return late if problem.kernel == "backward" else counters()

    found = FakeLab(counted=some).run(kernels=("backward", "fused"), sizes=(2048,), budget_s=10_000)
    assert found.uncounted == ""
    (words,) = [m for m in found.missing if "backward" not in m and "no time was left within 40 s" in m]
    assert words.startswith("not counted: ")
    assert "gk_atomic_lane n=2048" in words
    assert words.endswith("; give --budget 10020s")
    assert {c.call is None for c in found.counts if c.kernel == "fused"} == {False}
    report = device_report(Request(kernels=("backward", "fused")), found)
    (finding,) = [f for f in report.findings if f.finding == "its atomic kernel is the bottleneck (lane, A kept)"]
    assert "no time was left within 40 s" in finding.why


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


def test_time_is_kept_for_counters_where_an_attempt_got_some():
    assert reserve_s(100.0, START) == COUNT_SHARE * 100
    assert reserve_s(1e6, START) == MOST_COUNT_S
    assert reserve_s(100.0, FORBIDDEN) == reserve_s(100.0, None) == 0.0
    assert worth_trying(LEAST_COUNT_S / COUNT_SHARE)
    assert not worth_trying(LEAST_COUNT_S / COUNT_SHARE - 1)


def test_counters_are_tried_once_before_anything_is_timed_and_what_a_start_takes_is_told():
    lab = FakeLab(lambda p, c: 1e6)
    found = lab.run(kernels=("forward",), sizes=(512, 4096), budget_s=100)
    assert lab.attempts == [READY_SHARE * 100]
    assert [(one.what, one.asked > 0) for one in found.programs] == [
        ("tried", False),
        ("counted", True),
        ("explained", True),
    ]
    text = device_shown(device_report(Request(kernels=("forward",)), found), found.series)
    assert "tried by ncu 2025.3: 8.0 s to the first launch, 2.0 s from its last step to ncu's end, 0.0 s in all" in text
    assert f"counted by ncu 2025.3: {len(FORWARDS)} of {len(FORWARDS)} choices, 8.0 s to the first launch" in text
    assert "every cache is flushed before each pass" in text


@pytest.mark.parametrize("kernels", [("decode",), ("rmsnorm", "mlp")])
def test_where_nothing_is_counted_nothing_is_tried(kernels):
    lab = FakeLab()
    assert lab.run(kernels=kernels, sizes=(64,), budget_s=1000).programs == ()
    assert lab.attempts == []


def test_a_small_budget_is_for_times_alone_and_says_what_counters_need():
    lab = FakeLab()
    found = lab.run(kernels=("forward",), sizes=(64,), budget_s=30)
    assert (lab.attempts, lab.asked, found.programs) == ([], [], ())
    (words,) = [m for m in found.missing if "counters" in m]
    assert words.startswith("not counted: ")
    assert words.endswith("too little of the budget is for counters; give --budget 60s at least")
    assert {c.reason for c in found.counts} == {words.split(": ", 2)[2]}


def test_the_budget_that_is_advised_is_above_what_was_given_of_which_looking_took_some():
    asked = Request(device="cuda:0", kernels=("forward",), sizes=(64,), budget_s=60)
    found = measure_device(asked, MACHINE, Silent(), FakeLab().lab(), looked_s=40.0)
    assert [m for m in found.missing if m.endswith("give --budget 90s at least")], found.missing


def test_a_start_that_takes_all_that_is_left_is_told_with_the_budget_that_would_do():
    lab = FakeLab(tried=START._replace(start_s=40.0, end_s=5.0))
    found = lab.run(kernels=("forward",), sizes=(4096,), budget_s=60)
    assert (lab.asked, lab.explained) == ([], [])
    (words,) = found.missing
    assert "counters take 45 s to start and end here, " in words
    assert " s were left; give --budget " in words
    budget_s = int(words.rsplit("--budget ", 1)[1].rstrip("s"))
    assert budget_s % 30 == 0
    assert budget_s > 60
    report = device_report(Request(kernels=("forward",)), found)
    text = device_shown(report, found.series)
    assert "not counted: " in text
    assert any("counters take 45 s" in f.why for f in report.findings if f.finding.startswith("M_fwd can be met"))
    assert all(c.reason == words.split(": ", 2)[2] for c in found.counts)
    larger = FakeLab(tried=START._replace(start_s=40.0, end_s=5.0))
    assert larger.run(kernels=("forward",), sizes=(4096,), budget_s=budget_s + 30).counts[0].call is not None


def test_sectors_and_waits_need_time_for_a_second_start():
    def slow(lab):
        counted = lab.count

        def count(*told):
            lab.clock.now += 75.0
            return counted(*told)

        lab.count = count
        return lab

    lab = slow(FakeLab(lambda p, c: 1e4))
    found = lab.run(kernels=("forward",), sizes=(512, 4096), budget_s=90)
    assert lab.asked
    assert lab.explained == []
    (words,) = [m for m in found.missing if m.startswith("sectors and waits not counted")]
    assert "counters take 10 s to start and end here" in words


def test_all_kernels_are_counted_by_one_program_and_each_variant_gets_its_own_launches(tmp_path, monkeypatch):
    """With a program that stands for ncu and counts whatever it is told to."""
    folder, calls = fake_ncu.install(tmp_path / "bin", fake_ncu.whole())
    monkeypatch.setenv("PATH", folder)
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    profiled.tool.cache_clear()
    lab = FakeLab(lambda p, c: 1e6)
    lab.attempt, lab.count = partial(attempt, H200), partial(count_kernels, H200)
    found = lab.run(kernels=(*CHAIN, "block"), sizes=(256, 512, 2048, 4096), budget_s=10_000)
    assert found.missing == ()
    assert [one.what for one in found.programs] == ["tried", "counted", "explained"]
    counted, explained = found.programs[1:]
    assert counted.start.choices == counted.asked == len(found.counts) > 20
    assert explained.start.choices == explained.asked == len(found.waits) > 10
    known = {v.name: v.symbols for kernel in (*CHAIN, "block") for v in own(kernel)}
    for one in found.counts:
        assert [k.name for k in one.kernels] == list(known[one.variant.split()[0]]), one.variant
    assert len([line for line in calls.read_text().splitlines() if "--version" not in line]) == 3


@pytest.mark.parametrize(("budget_s", "most_s"), [(60.0, 57.0), (10_000.0, MOST_COUNT_S)])
def test_counting_keeps_to_what_is_left(budget_s, most_s):
    lab = FakeLab(lambda p, c: 1e6)
    begun = lab.clock()
    lab.run(kernels=("forward",), sizes=(4096,), budget_s=budget_s)
    assert 0 < lab.limits[0] <= most_s
    assert lab.clock() - begun <= budget_s


def test_what_is_not_expected_to_fit_is_asked_for_last(monkeypatch):
    """The program ends by itself in time, so it costs nothing to ask."""
    swapped = device_counting.to_count
    monkeypatch.setattr(device_counting, "to_count", lambda *told: swapped(*told)[::-1])
    lab = FakeLab(lambda p, c: 1e6)
    lab.run(kernels=("forward",), sizes=(4096,), budget_s=1000)
    assert len(lab.asked) == len(FORWARDS), "late ones too"


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


def test_the_threads_that_started_the_workers_live_as_long_as_they_are_asked():
    """A worker's process ends with the thread that started it: it would be measured as a crash, or start again."""
    lab, starters = FakeLab(), {}
    opened = lab.open

    def watched(gpu, spec, variants):
        pool = opened(gpu, spec, variants)
        measure = pool.measure

        def prepare(problem, choices):
            starters.setdefault(spec.name, threading.current_thread())

        def asked(problem, choice, ask):
            assert starters[spec.name].is_alive()
            return measure(problem, choice, ask)

        pool.prepare, pool.measure = prepare, asked
        return pool

    lab.open = watched
    found = lab.run(kernels=CHAIN, sizes=(64,), budget_s=100)
    assert {series.problem.kernel for series in found.series} == set(CHAIN)
    deadline = time.monotonic() + 10
    while any(one.is_alive() for one in starters.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(one.is_alive() for one in starters.values())

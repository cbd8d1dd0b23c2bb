"""The chain as a table: who takes turns, how often, and what the rows say of each step beside the published figures."""

import json

import gpu_cells
import gpu_chain
import gpu_chain_judge as judge
import pytest
from gpu_bench_fixtures import STATE, samples
from gpu_ground import Tuned
from gpu_race import spread
from gpu_rows import Row
from gpu_stub_fixtures import stub_ground
from kernel_race import Refused

from advisor.codec import to_json

NOTHING = dict.fromkeys(gpu_chain.KERNELS, Tuned(None, {}))


def time_ns(problem, choice):
    """A packed variant takes a thousand times as long as a lane's; one of backward fails."""
    name = choice.build.variant
    if name == "gk_atomic_rotated":
        return None
    return problem.n * (500_000.0 if "packed" in name or "one_lane" in name else 50.0)


def row(n, **times):
    """A row of the chain: kernel__variant -> time in ns; three more rounds for whoever is fast."""
    names = {tuple(name.split("__")): time for name, time in times.items()}
    listed = [
        {"name": " ".join(key), "kernel": key[0], "variant": key[1], "knob_sets": 1, "default": True, "mapping": "m",
         "look_ns": time, "choice": {}}
        for key, time in names.items()
    ]  # fmt: skip
    taken = {" ".join(key): samples(time, 6 if time > 1e6 else 24, i) for i, (key, time) in enumerate(names.items())}
    data = {"variants": listed, "samples": taken, "left_out": {}, "rounds_s": 1.0, "regime": "warm"}
    return Row("chain", {"n": n}, {}, STATE, 3.0, data)


def curve(rows, title):
    (found,) = (one for one in judge.curves(rows) if one.step.title == title)
    return found


def test_a_row_has_every_own_variant_in_turn_and_says_what_failed():
    at = stub_ground(time_ns, *gpu_chain.KERNELS)
    data, conditions = gpu_chain.measure(at, NOTHING, 64)
    json.dumps(data, allow_nan=False)
    assert dict(conditions)["after"] == {"sm_mhz": 1980}
    kernels = {one["kernel"] for one in data["variants"]}
    assert kernels == set(gpu_chain.KERNELS)
    names = {one["variant"] for one in data["variants"]}
    assert {"fused_two_atomics_packed", "pair_lane", "gk_atomic_lane", "lane_shared"} <= names
    assert "illegal address" in data["left_out"]["backward gk_atomic_rotated"]
    rounds = {one["variant"]: len(data["samples"][one["name"]]) for one in data["variants"]}
    assert rounds["pair_lane"] == gpu_chain.ROUNDS
    assert gpu_chain.LEAST_ROUNDS <= rounds["pair_packed"] < gpu_chain.ROUNDS
    assert {problem.regime for arena in at.arenas.values() for problem, _ in arena.pool.asked} == {"warm"}
    assert judge.lines([Row("chain", {"n": 64}, {}, STATE, 1.0, data)])


def test_the_knobs_that_a_tuning_saw_fastest_are_looked_at():
    problem = gpu_cells.problem_of(gpu_chain.LABELS["fused"], 64)
    at = stub_ground(time_ns, *gpu_chain.KERNELS)
    tiled = [one for one in at.choices(problem._replace(regime="warm")) if one.build.variant == "tiled"]
    late = next(one for one in tiled if one not in spread(tiled, gpu_chain.KNOBS))

    for looks, picked in (({}, False), ({problem: {late: 1.0}}, True)):
        for usual_ns in (50.0, 2 * gpu_chain.LONG_NS):
            chosen = knobs_of_tiled(looks, lambda _, one, usual_ns=usual_ns: 1.0 if one == late else usual_ns)
            assert (chosen == to_json(late)) is picked


def knobs_of_tiled(looks, times):
    """The choice of fused's `tiled` in a row after a tuning with these looks."""
    at = stub_ground(times, *gpu_chain.KERNELS)
    data, _ = gpu_chain.measure(at, NOTHING | {"fused": Tuned(None, looks)}, 64)
    (found,) = (one["choice"] for one in data["variants"] if one["variant"] == "tiled")
    return found


@pytest.mark.parametrize(("look_ns", "rounds"), [(1e3, 16), (16e6, 16), (40e6, 10), (400e6, 5), (4e9, 5)])
def test_what_takes_long_has_fewer_rounds(look_ns, rounds):
    assert gpu_chain.rounds(look_ns) == rounds


def test_where_nothing_runs_the_row_is_refused_with_reasons():
    with pytest.raises(Refused, match="illegal address"):
        gpu_chain.measure(stub_ground(lambda *_: None, *gpu_chain.KERNELS), NOTHING, 64)


def test_a_step_is_a_ratio_of_the_rounds_that_both_sides_had():
    found = curve([row(64, fused__fused_two_atomics_packed=3e6, fused__pair_packed=0.5e6)],
                  "fused, two atomics / naive, packed")  # fmt: skip
    (point,) = found.points
    assert point.rounds == 6
    assert point.ratio.value == pytest.approx(6.0, rel=0.01)
    assert found.verdict == "yes"


def test_naive_stands_beside_the_sum_of_forward_and_backward():
    times = {"fused__pair_lane": 300.0, "forward__lane_global": 100.0, "backward__gk_atomic_lane": 150.0}
    (point,) = curve([row(64, **times)], "naive / forward + backward, lane").points
    assert point.ratio.value == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize(
    ("ratios", "verdict", "crossings"),
    [
        ((0.8, 0.9, 1.3), "yes", 1),
        ((1.3, 0.9, 0.8), "in part", 1),
        ((0.8, 0.9, 0.95), "no", 0),
        ((0.8, 1.3, 0.8), "in part", 2),
    ],
)
def test_a_step_that_turns_is_faster_at_small_n_and_slower_at_large(ratios, verdict, crossings):
    rows = [
        row(n, fused__fused_no_atomic_packed=1000.0 * r, fused__fused_gv_columns_packed=1000.0)
        for n, r in zip((2048, 4096, 8192), ratios, strict=True)
    ]
    found = curve(rows, "GK's step in fused, packed")
    assert (found.verdict, len(found.crossings)) == (verdict, crossings)


TWO, ONE, PAIR = "fused__fused_two_atomics_lane", "fused__fused_gv_columns_lane", "fused__pair_lane"


@pytest.mark.parametrize(
    ("title", "over", "under", "ratios", "verdict"),
    [
        ("fused, two atomics / naive, lane", TWO, PAIR, (1.2, 1.3), "yes"),
        ("fused, two atomics / naive, lane", TWO, PAIR, (1.2, 0.9), "in part"),
        ("fused, two atomics / naive, lane", TWO, PAIR, (0.9, 1.0), "no"),
        ("GV's step in fused, lane", ONE, TWO, (0.45, 0.5), "yes"),
        ("GV's step in fused, lane", ONE, TWO, (0.8, 0.5), "in part"),
        ("GV's step in fused, lane", ONE, TWO, (0.8, 0.7), "no"),  # faster, but nowhere in half the time
    ],
)
def test_a_step_goes_as_published_where_it_does_so_at_every_n(title, over, under, ratios, verdict):
    rows = [row(n, **{over: 1000.0 * r, under: 1000.0}) for n, r in zip((64, 128), ratios, strict=True)]
    assert curve(rows, title).verdict == verdict


def test_fused_is_judged_against_the_pair_and_against_forward_and_backward():
    pair = {"fused__pair_tiled": 300.0, "forward__tiled_dmma": 90.0, "forward__packed": 500.0}
    rows = [row(n, fused__tiled=200.0, backward__tiled_tensor=at, **pair) for n, at in ((256, 50.0), (512, 60.0))]
    by_pair, by_parts = judge.says(rows)
    assert (by_pair.met, by_parts.met) == (True, False)
    assert by_parts.text.endswith("(float64, warm, 1 n >= 512): not at n = 512")
    text = "\n".join(judge.duels(rows))
    assert "| 512 | tiled | 0.20 us | tiled_dmma + tiled_tensor | 0.15 us | 1.33 [1.33, 1.33] | slower |" in text
    assert judge.says([row(512, fused__tiled=200.0)]) == []


def test_tables_and_sentences_name_times_the_best_and_what_was_published():
    rows = [
        row(n, fused__fused_two_atomics_packed=2e3 * n, fused__pair_packed=1e3 * n, fused__pair_lane=10.0 * n * n,
            fused__fused_no_atomic_lane=9.0 * n * n)
        for n in (64, 128)
    ]  # fmt: skip
    text = "\n".join(judge.lines(rows))
    for part in (
        "| fused | fused_two_atomics_packed | 128",
        "| 1.00 |",
        "| 2.00 |",
        "| 64 | fused_no_atomic_lane | ",
        "| 0.90 [0.90, 0.90] | faster |",
        "- fused, two atomics / naive, packed: 2.00 to 2.00; slower at 2 of 2 n. Published: A100 1.14",
        "reproduced: yes.",
    ):
        assert part in text
    json.dumps(judge.plain(judge.curves(rows)), allow_nan=False)
    assert judge.lines([]) == []


def test_every_step_names_variants_that_there_are():
    from gpu_cells import known_of

    known = {(kernel, one.name) for kernel in gpu_chain.KERNELS for one in known_of(kernel)}
    named = {name for step in judge.STEPS for name in (*step.over, *step.under)}
    published = {name for step in judge.STEPS if step.published for name in (*step.over, *step.under)}
    assert len(named & known) > 15
    assert all(one in known for one in published if one[1].endswith("packed"))

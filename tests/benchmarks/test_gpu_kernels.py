"""Races of kernels other than decode: who stands for what, what is compiled ahead, which counters are wanted."""

import contextlib
import os

import gpu
import gpu_ahead
import gpu_cells
import gpu_chain
import gpu_compact
import gpu_counters
import gpu_crew
import gpu_ground
import gpu_judge
import gpu_race
import gpu_show
import pytest
from gpu_bench_fixtures import STATE, entrant, samples
from gpu_machine_fixtures import MACHINE
from gpu_rows import Row, read
from gpu_stub_fixtures import ALL, stub_ground

from advisor.records import Measurement

NOTHING = gpu_ground.Tuned(None, {})


def time_ns(problem, choice):
    """Libraries take 1000 ns, naive pairs 900, other own variants 800."""
    name = choice.build.variant
    return 1000.0 if name.startswith(("sdpa", "torch")) else 900.0 if name.startswith("pair") else 800.0


@pytest.mark.parametrize(("n", "slow"), [(64, True), (512, False)])
def test_fused_races_beside_the_naive_pair_and_slow_mappings_only_where_n_is_small(n, slow):
    at = stub_ground(time_ns, "fused", options=ALL)
    data, _ = gpu_race.measure(at, NOTHING, "fused-f64-P", n)
    roles = {role: one for one in data["entrants"] for role in one["roles"]}
    assert {"own", "naive", "fused", "library"} <= set(roles)
    assert roles["naive"]["name"].startswith("pair")
    assert not roles["fused"]["name"].startswith("pair")
    looked = {choice.build.variant for _, choice in at.arenas["fused"].pool.asked}
    assert any("packed" in name for name in looked) == slow
    (found,) = gpu_judge.races([Row("race", {"shape": "fused-f64-P", "n": n}, {}, STATE, 1.0, data)])
    assert found.ratio("fused", "naive").value == pytest.approx(8 / 9, rel=0.01)
    said = [one for one in gpu_judge.race_says([found]) if "naive pair" in one.text]
    assert [one.met for one in said] == ([] if slow else [True])


@pytest.mark.parametrize(
    ("label", "own", "limit", "met"),
    [
        ("forward-bf16-P", 1179.0, ("library", 1.18), True),
        ("forward-bf16-P", 1190.0, ("library", 1.18), False),
        ("forward-bf16-S", 1340.0, ("library", 1.35), True),
        ("forward-f32-P", 1010.0, ("efficient", 1.0), False),
        ("forward-f64-P", 690.0, ("math", 0.7), True),
    ],
)
def test_an_own_forward_is_judged_against_the_backend_of_its_bar(label, own, limit, met):
    def times(problem, choice):
        return 1000.0 if choice.build.variant.startswith(("sdpa", "torch")) else own

    data, _ = gpu_race.measure(stub_ground(times, "forward", options=ALL), NOTHING, label, 1024)
    (found,) = gpu_judge.races([Row("race", {"shape": label, "n": 1024}, {}, STATE, 1.0, data)])
    (bar,) = found.bars
    assert (bar.under, bar.limit, bar.met) == (*limit, met)
    text = [one.text for one in gpu_judge.race_says([found]) if "own forward" in one.text]
    assert len(text) == 1
    assert ("not at" in text[0]) == (not met)


def test_large_operands_are_judged_after_some_samples_not_after_each():
    at = stub_ground(time_ns, "forward", options=ALL)
    small, large = (gpu_cells.problem_of("forward-bf16-S", n) for n in (64, 8192))
    assert gpu_race.samples_a_turn(at, small) == gpu_race.TURN
    assert gpu_race.samples_a_turn(at, large) == gpu_race.LARGE_TURN
    data, _ = gpu_race.measure(at, NOTHING, "forward-bf16-S", 8192)
    assert {len(taken) for taken in data["samples"].values()} == {gpu_race.SAMPLES}
    assert data["turns"] * gpu_race.LARGE_TURN == data["rounds"] == gpu_race.SAMPLES


def test_an_untuned_cell_is_compiled_in_part_and_a_tuned_one_as_its_race_needs(monkeypatch):
    monkeypatch.setattr(gpu_ahead, "space_options", lambda _: ALL)
    monkeypatch.setattr(gpu_ahead, "tuned", lambda *_: NOTHING)
    labels = ("forward-bf16-P", "forward-bf16-P-causal")
    found = gpu_ahead.to_compile("x", MACHINE, labels)
    languages = {one.name: one.language for one in gpu_cells.known_of("forward")}
    assert {languages[choice.build.variant] for _, choice in found} <= {"cuda", "triton"}
    assert len(found) > 10
    (problem, choice), seen = found[0], gpu_cells.problem_of("forward-bf16-P", 4096)
    left = gpu_ground.Tuned(None, {seen: {choice: 1.0}})
    monkeypatch.setattr(gpu_ahead, "tuned", lambda *_: left)
    assert gpu_ahead.to_compile("x", MACHINE, labels[:1]) == [(problem, choice)]
    assert len(gpu_ahead.to_compile("x", MACHINE, labels[:1], whole=labels[:1])) > 10
    chain = gpu_ahead.to_compile("x", MACHINE, ["fused-f64-P"])
    assert {"pair_packed", "fused_two_atomics_lane"} <= {one.build.variant for _, one in chain}


def test_compiling_ahead_runs_each_choice_once_and_tells_what_failed(monkeypatch):
    calls = []

    class Pool:
        def __init__(self, gpu, spec, known):
            pass

        def check(self, problem, choice, limit_s):
            calls.append(choice)
            status = "wrong" if choice == choices[1] else "ok"
            return Measurement(problem, choice, status, reason="off by one")

        def close(self):
            pass

    monkeypatch.setattr(gpu_crew, "GpuPool", Pool)
    at = stub_ground(time_ns, "forward", options=ALL)
    problem = gpu_cells.problem_of("forward-bf16-P", 512, "warm")
    choices = at.choices(problem)[:4]
    wanted = [(problem, one) for one in (*choices, choices[0])]
    found = gpu_crew.ahead(MACHINE.gpus[0], {"forward": gpu_cells.known_of("forward")}, wanted)
    assert (found.done, found.left) == (3, 0)
    assert list(found.failed.values()) == ["wrong: off by one"]
    assert sorted(map(repr, calls)) == sorted(map(repr, choices))
    late = gpu_crew.ahead(MACHINE.gpus[0], {"forward": gpu_cells.known_of("forward")}, wanted, until=0.0)
    assert (late.done, late.left) == (0, 4)
    assert gpu_crew.ahead(MACHINE.gpus[0], {}, []).done == 0


def test_counters_are_wanted_of_every_own_variant_where_the_published_ones_were_taken(monkeypatch):
    asked = []

    def counted(gpu, spec, known, wanted, limit_s):
        asked.extend(wanted)
        return [gpu_counters.NoCounters("no permission", "ask")] * len(wanted)

    monkeypatch.setattr(gpu_counters, "count_all", counted)
    (row,) = (one for one in gpu_counters.WANTED if one.label == "backward-f64-P" and one.n == 2048)
    data, _ = gpu_counters.measure(stub_ground(time_ns, "backward", options=ALL), NOTHING, row)
    names = {choice.build.variant for _, choice in asked}
    assert {"gk_atomic_packed", "gk_atomic_lane", "no_atomic_packed"} <= names
    assert not any(name.startswith("sdpa") for name in names)
    assert len(data["choices"]) == len(names) == len(asked)
    assert {len(taken) for taken in data["samples"].values()} == {gpu_counters.CHAIN_ROUNDS}


def test_every_counted_variant_exists():
    for row in gpu_counters.WANTED:
        known = {one.name for one in gpu_cells.known_of(gpu_cells.CELLS[row.label].kernel)}
        assert set(row.variants) <= known


def race_row(label, n, times):
    """A race of a cell: role or kind -> time in ns."""
    listed = [
        entrant(f"{name} k=1", "library" if name.startswith("sdpa") else "own", *roles) for name, roles, _ in times
    ]
    taken = {one["name"]: samples(time) for one, (_, _, time) in zip(listed, times, strict=True)}
    data = {"entrants": listed, "samples": taken, "rounds": 24, "left_out": {}, "cache_bytes": 1, "evicted": True}
    return Row("race", {"shape": label, "n": n}, {}, STATE, 1.0, data)


def test_a_cell_is_a_line_with_what_was_missed_in_bold():
    ours, flash = ("tiled_mma", ("table", "own")), ("sdpa_flash", ("library",))
    rows = [
        race_row("forward-bf16-P", 512, [(*ours, 9000.0), (*flash, 9500.0)]),
        race_row("forward-bf16-P", 2048, [(*ours, 30e3), (*flash, 20e3)]),
        race_row("fused-f64-P", 512, [("tiled", ("own", "fused"), 9000.0), ("pair_tiled", ("naive",), 8000.0)]),
    ]
    text = "\n".join(gpu_compact.lines(gpu_judge.races(rows)))
    for part in (
        "| cell | n = 512 | n = 2048 | choices of the table |",
        "| forward-bf16-P | 9 / 9.5 = 0.95 | **30 / 20 = 1.50** | tiled_mma 2 |",
        "| forward-bf16-P | 0.95 | **1.50** |",
        "| fused-f64-P | no table |",
        "| fused-f64-P | **1.1",
    ):
        assert part in text
    assert gpu_compact.lines([]) == []


@pytest.fixture
def device(monkeypatch):
    """A device whose variants take the time that `time_ns` says; no profiler."""

    @contextlib.contextmanager
    def opened(machine, deadline, kernels):
        yield stub_ground(time_ns, *dict.fromkeys(kernels), options=ALL)

    monkeypatch.setattr(gpu, "opened", opened)
    monkeypatch.setattr(gpu, "device_machine", lambda: MACHINE)
    refused = gpu_counters.NoCounters("no permission", "ask")
    monkeypatch.setattr(gpu_counters, "count_all", lambda gpu, spec, known, wanted, limit_s: [refused] * len(wanted))


@pytest.mark.parametrize(
    ("words", "keys", "regime"),
    [
        (["race", "--shapes", "forward-bf16-P,mlp-f32-P", "--n", "64,512"],
         [("forward-bf16-P", 64), ("forward-bf16-P", 512), ("mlp-f32-P", 64), ("mlp-f32-P", 512)], "cold"),
        (["chain", "--n", "64,128"], [(None, 64), (None, 128)], "warm"),
        (["counters", "--kernel", "backward"], [("backward-f64-P", 2048), ("backward-f64-P", 4096)], "cold"),
    ],
)  # fmt: skip
def test_parts_of_all_kernels_leave_their_rows_with_the_sources_they_depend_on(tmp_path, device, words, keys, regime):
    command = gpu.parsed([*words[:1], "--out", str(tmp_path), "--resume", *words[1:]])
    assert gpu.run(command) == 0
    rows = read(str(tmp_path)).rows
    assert [(row.key.get("shape"), row.key["n"]) for row in rows] == keys
    assert {row.state["regime"] for row in rows} == {regime}
    kernels = {gpu_cells.CELLS[label].kernel for label, _ in keys if label} or set(gpu_chain.KERNELS)
    for row in rows:
        assert not row.failed
        assert row.sources
        assert any(one.name in row.sources for kernel in kernels for one in gpu_cells.known_of(kernel))
    size = os.path.getsize(tmp_path / "rows.jsonl")
    assert gpu.run(command) == 0
    assert os.path.getsize(tmp_path / "rows.jsonl") == size
    assert gpu_show.lines(gpu_show.judged(str(tmp_path)))

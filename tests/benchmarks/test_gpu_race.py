"""Who races on a device, and what a race and the read floor leave behind, with a stand-in for the device."""

import json

import gpu_cells
import gpu_ground
import gpu_judge
import gpu_race
import gpu_show
import numpy as np
import pytest
from gpu_fixtures import DECODE
from gpu_machine_fixtures import FLOOR, MACHINE, TwoKernels, ground
from gpu_rows import Row
from gpu_stub_fixtures import stub_ground
from kernel_race import Refused

from advisor.codec import to_json
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.driver import DeviceError
from advisor.records import Measurement, Section, Table

SMALL = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}


@pytest.fixture(autouse=True)
def small_cold(monkeypatch):
    """Two sets of operands are enough where there is no L2; edge problems are the pool's tests' to check."""
    import advisor.kernels.gpu.pool

    for module in (gpu_race, advisor.kernels.gpu.pool):
        monkeypatch.setattr(module, "sets", lambda *_: 2)
    monkeypatch.setattr(advisor.kernels.gpu.pool, "edges", lambda *_: ())
    monkeypatch.setattr(gpu_race, "MOST_LOOKS", 2)


# --- the floor ---


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 3, 64, 1000])
def test_the_floor_reads_the_operands_of_decode_and_a_device_makes_the_same_reference(dtype, n):
    problem = FLOOR.problem(n, dtype, **{**SMALL, "heads": 4, "kv_heads": 2, "head_dim": 128})
    host = FLOOR.inputs(problem, 7)
    decode = DECODE.inputs(DECODE.problem(n, dtype, **dict(problem.shape)), 7)
    assert set(host) == {"k", "v"}
    assert all(np.array_equal(host[name], decode[name]) for name in host)
    module = ground().arenas["read"].pool.crew._bench._dnf
    made = module.inputs(np, problem, 7, "normal")
    assert {name: (a.shape, a.dtype) for name, a in made.items()} == {n: (a.shape, a.dtype) for n, a in host.items()}
    for arrays in (host, made):
        one, other = FLOOR.reference(problem, arrays)["out"], module.reference(np, problem, arrays)["out"]
        assert (one.values, one.tolerance) == (other.values, 0.0)
        assert 0 <= one.values[0] < 1
        assert np.float32(one.values[0]) == one.values[0]


def test_one_word_left_out_is_seen():
    problem = FLOOR.problem(100, "float32", **SMALL)
    arrays = FLOOR.inputs(problem, 1)
    whole = FLOOR.reference(problem, arrays)["out"].values
    arrays["v"].reshape(-1)[-1] = 0
    assert FLOOR.reference(problem, arrays)["out"].values != whole


class Lazy(TwoKernels):
    """Its floor leaves out what it should have read last."""

    def launch(self, functions, geometry, arrays):
        super().launch(functions, geometry, arrays)
        if functions == ("read_floor",):
            arrays[2][0] = (arrays[2][0] + 1 / (1 << 24)) % 1


@pytest.mark.parametrize(("driver", "status"), [(TwoKernels, "ok"), (Lazy, "wrong")])
def test_the_floor_is_checked_like_any_kernel(driver, status):
    at = ground(driver())
    problem = gpu_cells.problem_of("paper", 64)._replace(kernel="read")
    choice = at.choices(problem)[0]
    assert at.measure(problem, choice, Ask(1, 30.0)).status == status


# --- who races ---


def test_a_race_has_ours_the_floor_and_the_pair_and_every_entrant_says_its_mapping():
    at, left = ground(), gpu_ground.Tuned(None, {})
    data, conditions = gpu_race.measure(at, left, "paper", 32)
    json.dumps(data, allow_nan=False)
    roles = {role for one in data["entrants"] for role in one["roles"]}
    assert roles == {"own", "one warp", "more warps", "floor"}
    assert all(one["mapping"] for one in data["entrants"])
    warps = {role: one["warps"] for one in data["entrants"] for role in one["roles"]}
    assert warps["one warp"] == 1
    assert warps["more warps"] in (4, 8)
    assert {len(taken) for taken in data["samples"].values()} == {gpu_race.SAMPLES}
    assert gpu_race.SAMPLES >= gpu_judge.LEAST_ROUNDS
    assert data["cache_bytes"] == 2 * 2 * 32 * 64 * 4 + 4
    about = gpu_ground.state(MACHINE, conditions)
    assert about["card"]["name"] == "NVIDIA H200"
    assert about["clocks"]["before"] == {"sm_mhz": 1980}
    row = Row("race", {"shape": "paper", "n": 32}, {}, about, 1.0, data)
    (found,) = gpu_judge.races([row])
    assert found.verdict == ""  # no table and no library
    assert found.ratio("own", "floor")
    assert any("one warp" in line or "split_w1" in line for line in gpu_show.mappings([row]))


def tables(choice, problem, tuned=(64, 512)):
    """A table with one choice everywhere."""
    from advisor.records import Row as TableRow

    rows = (TableRow(64, 512, choice, (), ()),)
    section = Section(problem.dtype, problem.shape, problem.regime, None, tuned, rows, choice, (), None, "today")
    return Table("decode", "h", "device", (), (section,), ())


def test_the_tables_choice_races_inside_the_tuned_region_alone():
    at = ground()
    problem = gpu_cells.problem_of("paper", 100)
    choice = at.choices(problem)[-1]
    table = tables(choice, problem)
    assert gpu_ground.table_choice(table, problem) == choice
    assert gpu_ground.table_choice(table, problem._replace(n=600)) is None
    assert gpu_ground.table_choice(table, problem._replace(regime="warm")) is None
    assert gpu_ground.table_choice(None, problem) is None
    found = gpu_race.field(at, gpu_ground.Tuned(table, {problem: {choice: 1.0}}), problem)
    (one,) = (one for one in found.entrants if "table" in one.roles)
    assert one.choice == choice
    assert "own" in one.roles


def test_first_looks_of_a_log_say_who_is_likely(tmp_path):
    at = ground()
    problem = gpu_cells.problem_of("paper", 100)
    choices = at.choices(problem)
    path = tmp_path / "measurements.jsonl"
    listed = [
        Measurement(problem, choices[0], "ok", (900.0, 1000.0, 1100.0)),
        Measurement(problem, choices[1], "wrong"),
        Measurement(problem, choices[2], "ok", (500.0,)),
        Measurement(problem, choices[3], "ok", (700.0,)),
    ]
    lines = [json.dumps({"kind": "trial", "measurement": to_json(one)}) for one in listed]
    path.write_text("\n".join([*lines, '{"kind":"verdict"}', '{"kind":"trial","measurement":{}}', '{"kind":"tr']))
    looks = gpu_ground.looks_of(str(path))[problem]
    assert looks == {choices[0]: 950.0, choices[2]: 500.0, choices[3]: 700.0}
    assert gpu_race.likely(looks, choices) == [choices[2], choices[3]]
    few = gpu_race.likely({}, choices)
    assert {one.build.variant for one in few} == {one.build.variant for one in choices}
    assert (
        max(sum(one.build.variant == name for one in few) for name in ("split_w1", "split_w4")) <= gpu_race.MOST_LOOKS
    )


class Told:
    """Looks that are told."""

    def __init__(self, ns):
        self.ns = ns

    def best(self, problem, choices, keep=1):
        return sorted((one for one in choices if one in self.ns), key=self.ns.__getitem__)[:keep]


def test_libraries_near_the_best_race_and_cudnn_always():
    at = ground()
    problem = gpu_cells.problem_of("40:8", 1024)
    (like, *_) = at.choices(problem)

    def named(name):
        return like._replace(build=like.build._replace(variant=name))

    names = ("sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "sdpa_math", "cublas_matmul")
    choices = [named(name) for name in names]
    looks = Told({named("sdpa_flash"): 100.0, named("sdpa_efficient"): 124.0, named("sdpa_cudnn"): 300.0,
                  named("cublas_matmul"): 126.0})  # fmt: skip
    found = [one.build.variant for one in gpu_race.libraries(at, looks, problem, choices)]
    assert found == ["sdpa_flash", "sdpa_efficient", "sdpa_cudnn"]
    assert gpu_race.libraries(at, Told({}), problem, choices) == []


def test_nothing_of_ours_is_refused_with_the_reasons():
    class Broken(TwoKernels):
        def launch(self, functions, geometry, arrays):
            raise DeviceError("no such launch", sticky=False)

    with pytest.raises(Refused, match="no such launch"):
        gpu_race.measure(ground(Broken()), gpu_ground.Tuned(None, {}), "paper", 64)


def test_a_lost_context_ends_the_process_and_no_room_does_not():
    at = ground(TwoKernels(fails=DeviceError("illegal address", sticky=True)))
    problem = gpu_cells.problem_of("paper", 64)
    with pytest.raises(gpu_ground.Lost, match="illegal address"):
        at.measure(problem, at.choices(problem)[0], Ask(1, 30.0))
    at = ground(TwoKernels(fails=MemoryError("2 bytes")))
    assert at.measure(problem, at.choices(problem)[0], Ask(1, 30.0)).status == "skipped"


def test_the_best_pair_races_though_a_tuning_looked_at_another():
    problem = gpu_cells.problem_of("fused-f64-P", 2048)

    def time_ns(problem, choice):
        name = choice.build.variant
        return 450.0 if name == "pair_tiled" else 7000.0 if name.startswith("pair") else 340.0

    at = stub_ground(time_ns, "fused")
    seen = {one: 7000.0 for one in at.choices(problem) if one.build.variant == "pair_no_atomic_lane"}
    found = gpu_race.field(at, gpu_ground.Tuned(None, {problem: seen}), problem)
    (naive,) = (one.choice.build.variant for one in found.entrants if "naive" in one.roles)
    assert naive == "pair_tiled"

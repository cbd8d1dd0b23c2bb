"""The part `tune`: what the product is asked, workers that wait for it, what is kept and shipped."""

import gzip
import json
import os
import threading
from typing import ClassVar

import gpu
import gpu_cells
import gpu_ground
import gpu_ship
import gpu_spares
import gpu_tune
import pytest
from gpu_machine_fixtures import CUDA, MACHINE, OneWorker
from gpu_spares import Spares
from gpu_stub_fixtures import ALL
from kernel_race import Refused

from advisor.errors import BadInput
from advisor.kernels.gpu import child
from advisor.kernels.gpu.messages import Compile, Hello

HELLO, OTHER = Hello("forward/spec.py", 0, "GPU-0"), Hello("fused/spec.py", 0, "GPU-0")
WARM = Compile(())


class Worker:
    """Counts who was started, who was asked what, who was ended."""

    started: ClassVar = []

    def __init__(self, program, hello):
        self.hello, self.alive, self.asked = hello, True, []
        Worker.started.append(self)

    def ask(self, message, limit_s):
        self.asked.append(message)

    def kill(self):
        self.alive = False


@pytest.fixture
def spares(monkeypatch):
    monkeypatch.setattr(Worker, "started", [])
    with Spares(Worker) as found:
        yield found


def settled(spares):
    """Wait until all spare workers have started."""
    for _, future in list(spares._waiting):
        future.result(10)


def test_a_spare_worker_is_warm_and_taken_once_and_another_begun(spares):
    spares.expect([(HELLO, WARM)])
    settled(spares)
    assert len(Worker.started) == gpu_spares.READY
    taken = [spares.take(None, HELLO) for _ in range(3)]
    assert len(set(map(id, taken))) == 3
    assert all(one.asked == [WARM] for one in taken)
    assert spares.used == 3
    settled(spares)
    assert len(Worker.started) == 3 + gpu_spares.READY


def test_workers_of_another_kernel_are_ended_and_a_dead_one_is_not_given(spares):
    spares.expect([(HELLO, WARM)])
    settled(spares)
    first = list(Worker.started)
    spares.expect([(OTHER, WARM)])
    settled(spares)
    assert not any(one.alive for one in first)
    for one in Worker.started:
        one.alive = False
    found = spares.take(None, OTHER)
    assert found.alive
    assert found.asked == []  # a new one, as the product starts it
    assert spares.used == 0


def test_who_is_not_expected_gets_a_new_worker_and_all_end_with_it():
    Worker.started = []
    with Spares(Worker) as spares:
        assert spares.take(None, HELLO).asked == []
        spares.expect([(HELLO, WARM)])
        settled(spares)
        waiting = [future.result() for _, future in spares._waiting]
    assert waiting
    assert not any(one.alive for one in waiting)
    assert threading.active_count() < 20


def test_within_the_product_takes_spares_and_after_it_its_own(spares):
    before = child.Child
    with spares.in_place():
        assert child.Child == spares.take
    assert child.Child is before


# --- what is asked and kept ---


def test_the_product_is_asked_for_the_cell_cold_and_with_what_it_had():
    asked = gpu_tune.request("fused-bf16-S-causal", (64, 512), 12.0)
    assert asked.kernels == ("fused",)
    assert (asked.dtype, asked.regime, asked.device, asked.sizes) == ("bfloat16", "cold", "cuda:0", (64, 512))
    shape = dict(asked.shape)
    assert (shape["heads"], shape["head_dim"], shape["causal"]) == (16, 128, 1)
    assert asked.resume
    assert asked.budget_s == 12.0


def left_behind(folder, kernel):
    """A tuning's state: a table, a log, the machine."""
    place = folder / "home" / kernel / "machines" / "x"
    place.mkdir(parents=True)
    card = {"uuid": "GPU-1-2", "name": "NVIDIA H200", "pci": "00000000:00:06.0", "slice_of": None}
    (place / f"{kernel}.table.json").write_text(json.dumps({"kernel": kernel}))
    (place / f"{kernel}.table.json.lock").write_text("")
    (place / "machine.json").write_text(json.dumps({"hardware_id": "h1", "gpus": [card]}))
    trial = {"kind": "trial", "session": f"s-{kernel}", "measurement": {"problem": {"kernel": kernel},
             "conditions": {"after": {"sm_mhz": 1500}}}}  # fmt: skip
    (place / "measurements.jsonl").write_text(json.dumps(trial) + f'\n{{"kind": "race", "session": "s-{kernel}"}}\n')
    return place


class Result:
    def __init__(self, place, table):
        self.table, self.missing, self.log_path = table, "no time", str(place / "measurements.jsonl")


def test_a_cell_is_tuned_in_a_home_of_its_kernel_and_its_table_and_log_are_kept(tmp_path, monkeypatch, spares):
    place, homes = left_behind(tmp_path, "forward"), []

    def product(request, progress):
        homes.append(os.environ["ADVISOR_HOME"])
        return [Result(place, {} if len(homes) == 1 else None)]

    monkeypatch.setattr(gpu_tune.tuning, "tune", product)
    monkeypatch.setattr(gpu_tune.tuning_result, "result_json", lambda _: {"trials": {"ok": 7}})
    monkeypatch.setattr(gpu_tune, "expect", lambda *_: None)
    at = gpu_tune.Tuner(str(tmp_path), MACHINE, spares)
    before = os.environ.get("ADVISOR_HOME")
    data, conditions = gpu_tune.measure(at, ["forward-bf16-P"], (64,), 1.0)
    assert homes == [str(tmp_path / "home" / "forward")]
    assert os.environ.get("ADVISOR_HOME") == before
    assert conditions == {"after": {"sm_mhz": 1500}}
    assert data["budget_s"] == gpu_tune.LEAST_S
    kept = tmp_path / "policy"
    assert sorted(os.listdir(kept)) == ["forward.measurements.jsonl", "forward.table.json", "machine.json"]
    (card,) = json.loads((kept / "machine.json").read_text())["gpus"]
    assert card == {"uuid": None, "name": "NVIDIA H200", "pci": None, "slice_of": None}
    with pytest.raises(Refused, match="no time"):
        gpu_tune.measure(at, ["forward-bf16-P"], (64,), 1.0)


def test_workers_to_come_import_what_variants_in_python_need_also_of_the_next_kernel(monkeypatch):
    asked = []
    monkeypatch.setattr(gpu_tune, "space_options", lambda _: ALL)
    spares = type("Spares", (), {"expect": lambda self, wanted: asked.extend(wanted)})()
    at = gpu_tune.Tuner("x", MACHINE, spares)
    gpu_tune.expect(at, ["forward-bf16-P", "forward-f32-P", "fused-bf16-P", "mlp-f32-P"])
    assert [hello.spec_path.split("/")[-2] for hello, _ in asked] == ["forward", "fused"]
    for _, warm in asked:
        assert {one.language for one in warm.programs} <= {"triton", "torch"}
        assert warm.programs
        assert warm.problem.dtype == "bfloat16"
    asked.clear()
    gpu_tune.expect(at, ["forward-bf16-P"])
    assert len(asked) == 1


def test_the_product_tunes_a_cell_in_this_process_with_workers_that_waited(tmp_path, monkeypatch):
    from advisor.kernels.gpu import pool

    monkeypatch.setenv("ADVISOR_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(gpu_tune.tuning, "target", lambda *_: MACHINE)
    for where in (gpu_tune.tuning, gpu_tune):
        monkeypatch.setattr(where, "space_options", lambda *_, **__: CUDA)
    monkeypatch.setattr(pool, "edges", lambda *_: ())
    monkeypatch.setattr(pool, "sets", lambda *_: 2)
    with Spares(OneWorker) as spares, spares.in_place():
        data, _ = gpu_tune.measure(gpu_tune.Tuner(str(tmp_path), MACHINE, spares), ["paper"], (16,), 60.0)
    assert data["said"]["trials"]["ok"] > 0
    assert data["spare_workers"] >= 1
    left = gpu_ground.tuned(str(tmp_path), "decode")
    assert gpu_ground.table_choice(left.table, gpu_cells.problem_of("paper", 16)) is not None
    assert left.looks


def test_time_is_shared_among_cells_by_their_sizes(tmp_path, monkeypatch):
    budgets = {}

    def one(at, listed, sizes, budget_s):
        budgets[listed[0]] = budget_s
        return {}, {}

    monkeypatch.setattr(gpu_tune, "measure", one)
    monkeypatch.setattr(gpu, "device_machine", lambda: MACHINE)
    words = ["tune", "--out", str(tmp_path), "--seconds", "200", "--shapes", "forward-bf16-P,fused-bf16-S-causal"]
    assert gpu.run(gpu.parsed(words)) == 0
    assert budgets["forward-bf16-P"] == pytest.approx(200 * 16 / 20, abs=2)
    assert budgets["fused-bf16-S-causal"] == pytest.approx(200, abs=2)  # the other one took no time


# --- cells ---


def test_cells_have_labels_of_their_own_and_problems_of_their_kernels():
    for label, cell in gpu_cells.CELLS.items():
        if gpu_cells.exists(label):
            problem = gpu_cells.problem_of(label, cell.sizes[0])
            assert (problem.kernel, problem.dtype, problem.regime) == (cell.kernel, cell.dtype, "cold")
            assert problem.shape == tuple(sorted(problem.shape))
    assert set(gpu_cells.labels(["decode"])) == {"paper", "40:8", "28:4"}
    assert gpu_cells.labels(gpu_cells.CHAIN)[0] == "forward-bf16-P"
    assert gpu_cells.CELLS["rmsnorm-f32-P"].sizes[0] == 1


def test_the_most_telling_races_come_first():
    assert gpu.rank("forward-bf16-P", 64) < gpu.rank("forward-f16-P", 512) < gpu.rank("forward-bf16-P", 128)
    assert gpu.rank("forward-f16-P", 512) < gpu.rank("forward-f16-P", 64)
    assert gpu.rank("40:8", 1919) == 0


# --- shipping ---


def record(session, kernel=None):
    """A line of a log; a session's first one and races name no kernel."""
    problem = {"measurement": {"problem": {"kernel": kernel}}} if kernel else {}
    return json.dumps({"kind": "trial" if kernel else "session", "session": session, **problem}) + "\n"


def shipped_folder(tmp_path, hardware="h1"):
    target = tmp_path / "policies"
    target.mkdir()
    (target / "machine.json").write_text(json.dumps({"hardware_id": hardware}))
    (target / "decode.table.json").write_text("{}")
    old = record("d") + record("d", "decode") + record("f") + record("f", "forward")
    with gzip.open(target / "measurements.jsonl.gz", "wt") as file:
        file.write(old)
    return target


def test_a_new_tuning_takes_the_place_of_its_kernels_old_one_and_of_no_other(tmp_path):
    target = shipped_folder(tmp_path)
    left_behind(tmp_path, "forward")
    gpu_tune.keep(str(tmp_path), "forward")
    said = gpu_ship.ship(str(tmp_path), str(target))
    assert said[0] == "forward.table.json"
    with gzip.open(target / "measurements.jsonl.gz", "rt") as file:
        sessions = [json.loads(line).get("session") for line in file]
    assert sessions == ["d", "d", "s-forward", "s-forward"]
    assert (target / "decode.table.json").exists()
    assert (target / "forward.table.json").exists()
    assert gpu_ship.main([str(tmp_path), str(target)]) == 0
    with gzip.open(target / "measurements.jsonl.gz", "rt") as file:
        assert len(file.readlines()) == 4


def test_tables_of_another_machine_are_not_shipped(tmp_path, capsys):
    target = shipped_folder(tmp_path, "h2")
    assert gpu_ship.main([str(tmp_path), str(target)]) == 1
    left_behind(tmp_path, "forward")
    gpu_tune.keep(str(tmp_path), "forward")
    with pytest.raises(BadInput, match="machine"):
        gpu_ship.ship(str(tmp_path), str(target))

"""The first look at all variants of a device: what is checked, in which order, what is kept, what a crash costs."""

import types

import gpu
import gpu_check
import gpu_ground
import pytest
from gpu_machine_fixtures import MACHINE, OneWorker
from gpu_rows import read
from kernel_race import Deadline

from advisor.kernels.child import Answer
from advisor.kernels.compilers import Compiler
from advisor.kernels.gpu import child
from advisor.kernels.gpu.driver import DeviceError

TOOLS = (Compiler("cupy-14.2", "", "14.2.0", "cuda", "cuda"),)


def spoiled(arrays):
    """One number of the output a little off."""
    arrays[3].reshape(-1)[0] += 1.0


class Worker(OneWorker):
    """Its device may spoil results or fail."""

    fails = spoil = None

    def __init__(self, program, hello):
        super().__init__(program, hello)
        self.driver.fails, self.driver.spoil = type(self).fails, type(self).spoil

    def ask(self, message, limit_s):
        try:
            return super().ask(message, limit_s)
        except gpu_ground.Lost as error:
            self.alive = False
            return Answer("crashed", str(error), None)


@pytest.fixture
def device(monkeypatch):
    """Workers that are none; a few edge problems; split_w1 and split_w4 of decode in two dtypes."""
    monkeypatch.setattr(child, "Child", Worker)
    monkeypatch.setattr(Worker, "fails", None)
    monkeypatch.setattr(Worker, "spoil", None)
    monkeypatch.setattr(gpu_check, "tools", lambda: TOOLS)
    monkeypatch.setattr(gpu_check, "EDGE_N", (17,))
    monkeypatch.setattr(gpu_check, "TIMED", (64,))
    timed = [gpu_check.spec_of("decode").problem(64, dtype, "warm") for dtype in ("float32", "float16")]
    monkeypatch.setattr(gpu_check, "timed_problems", lambda task: [one for one in timed if one.dtype == task.dtype])
    monkeypatch.setattr(gpu, "device_machine", lambda: MACHINE)
    whole = gpu_check.tasks

    def few(kernels):
        found, broken = whole(kernels)
        wanted = [one for one in found if one.variant.name in ("split_w1", "split_w4")]
        return [one for one in wanted if one.dtype in ("float32", "float16")], broken

    edges, others = gpu_check.problems, gpu_check.others
    edges.cache_clear()
    monkeypatch.setattr(gpu_check, "tasks", few)
    monkeypatch.setattr(gpu_check, "problems", lambda task: edges(task)[-3:])
    monkeypatch.setattr(gpu_check, "others", lambda task: others(task)[:2])
    return Worker


def command(folder, *more):
    return gpu.check(gpu.parsed(["check", "--out", str(folder), "--kernel", "decode", *more]))


def test_every_variant_has_a_line_and_a_row_with_all_that_was_checked_and_timed(tmp_path, device, capsys):
    assert command(tmp_path) == 0
    out = capsys.readouterr().out
    for name in ("split_w1", "split_w4"):
        for dtype in ("float32", "float16"):
            assert f"ok       decode {name} {dtype}: " in out
    assert "us 64: 10," in out or "us 64: 10\n" in out
    assert "4 of 4 variants and dtypes are right in all that was checked" in out
    rows = read(str(tmp_path)).rows
    assert [row.key["kernel"] for row in rows] == ["decode"] * 4
    for row in rows:
        assert row.data["whole"]
        assert len(row.data["knobs"]) == 2
        assert {one["status"] for name in ("checks", "times", "knobs") for one in row.data[name]} == {"ok"}
        draws = [one["problem"] for one in row.data["checks"]]
        assert any("outlier" in one for one in draws)


def test_what_was_checked_whole_is_left_out_with_resume_and_again_when_its_source_changes(tmp_path, device, capsys):
    command(tmp_path)
    begun = Worker.begun
    assert command(tmp_path, "--resume") == 0
    assert Worker.begun == begun
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text().replace('"split_w1":"', '"split_w1":"x'))
    capsys.readouterr()
    command(tmp_path, "--resume")
    assert Worker.begun > begun
    assert "split_w4" not in capsys.readouterr().out.split("variants and dtypes")[0].split("split_w1")[0]


def test_what_is_wrong_is_named_with_its_problem_and_not_tried_with_other_knobs(tmp_path, device, monkeypatch, capsys):
    monkeypatch.setattr(Worker, "spoil", staticmethod(spoiled))
    command(tmp_path)
    out = capsys.readouterr().out
    assert "wrong    decode split_w1 float32" in out
    assert "over the tolerance" in out
    assert "0 of 4 variants and dtypes are right" in out
    assert all(not row.data["knobs"] for row in read(str(tmp_path)).rows)


def test_a_device_that_crashes_costs_two_problems_a_variant_and_no_other_variant(device, monkeypatch):
    monkeypatch.setattr(Worker, "fails", DeviceError("illegal address", sticky=True))
    wanted, _ = gpu_check.tasks(("decode",))
    kept = {}
    gpu_check.run(MACHINE, wanted, Deadline(60.0), kept.__setitem__)
    assert set(kept) == set(wanted)
    for row in kept.values():
        assert 1 <= len(row["checks"]) <= gpu_check.MOST_CRASHES
        assert not row["times"]
        assert "illegal address" in row["checks"][0]["reason"]


def test_without_time_nothing_is_begun_and_nothing_is_whole(device):
    wanted, _ = gpu_check.tasks(("decode",))
    kept = {}
    assert not gpu_check.run(MACHINE, wanted, Deadline(0.0), kept.__setitem__)
    assert all(not row["checks"] and not row["times"] and not row["whole"] for row in kept.values())


def test_our_own_come_first_and_each_in_its_first_dtype_before_others():
    found, broken = gpu_check.tasks(("decode",))
    assert not broken
    libraries = [one.variant.language == "torch" for one in found]
    assert libraries == sorted(libraries)
    own = [one for one in found if one.variant.language != "torch"]
    places = [one.variant.dtypes.index(one.dtype) for one in own]
    assert places == sorted(places)


def test_a_header_that_cannot_be_read_costs_its_own_variant_alone(tmp_path, monkeypatch):
    (tmp_path / "lies.cu").write_text("/* variant {} */")
    known = gpu_check.folders
    monkeypatch.setattr(gpu_check, "folders", lambda: {k: (*v, str(tmp_path)) for k, v in known().items()})
    found, broken = gpu_check.tasks(("decode", "nothing"))
    assert {one.variant.name for one in found} >= {"split_w1", "batched"}
    assert [text.split(":")[0] for text in broken] == ["decode lies.cu", "nothing"]


def test_workers_are_dealt_by_tasks_and_every_kernel_has_one():
    assert gpu_check.shares(["a"] * 9 + ["b"] * 3 + ["c"], 12) == {"a": 8, "b": 3, "c": 1}


@pytest.mark.parametrize(("dtype", "served"), [("float64", 0), ("float32", 0), ("bfloat16", 1), ("float16", 1)])
def test_timed_problems_are_the_papers_and_for_sixteen_bits_a_served_one(dtype, served, monkeypatch):
    monkeypatch.setattr(gpu_check, "usual", lambda *_: ())
    task = gpu_check.Task(types.SimpleNamespace(kernel="forward"), dtype)
    listed = gpu_check.timed_problems(task)
    assert [one.dims()["head_dim"] for one in listed] == [64] * 3 + [128] * served
    assert {one.n for one in listed} == set(gpu_check.TIMED)
    assert not gpu_check.timed_problems(task._replace(variant=types.SimpleNamespace(kernel="decode")))


def test_the_command_takes_kernels():
    asked = gpu.parsed(["check", "--out", "x", "--kernel", "forward,fused"])
    assert asked.kernel == ("forward", "fused")
    assert gpu.parsed(["check", "--out", "x"]).kernel == ()

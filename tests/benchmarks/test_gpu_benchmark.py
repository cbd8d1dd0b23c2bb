"""The GPU benchmark as a command: parts that stop and go on, what it shows, what a sweep pays once."""

import argparse
import contextlib
import json
import os
import subprocess
import sys

import gpu
import gpu_cells
import gpu_cold
import gpu_counters
import gpu_show
import pytest
from fake import FakeClock
from gpu_bench_fixtures import cold, counted, race, regret, sweep
from gpu_cells import sources
from gpu_ground import Lost
from gpu_machine_fixtures import CUDA, MACHINE, OneWorker, ground
from gpu_rows import Row, Store, read
from kernel_race import Deadline, Refused

from advisor.kernels.gpu.driver import DeviceError


@pytest.fixture
def part(monkeypatch):
    """A part of three rows of ten seconds each on a clock of its own, and what was measured, in order."""
    clock, done, ends = FakeClock(), [], {}

    def one(n):
        done.append(n)
        clock.now += 10.0
        if n in ends:
            raise ends[n]
        return {"n": n}, {"before": {"sm_mhz": 1980}}

    @contextlib.contextmanager
    def steps(call):
        yield [gpu.Step({"n": n}, ("decode", "read"), lambda n=n: one(n)) for n in (1, 2, 3)]

    monkeypatch.setitem(gpu.PARTS, "race", steps)
    monkeypatch.setattr(gpu, "device_machine", lambda: MACHINE)
    monkeypatch.setattr(gpu, "Deadline", lambda seconds: Deadline(seconds, clock))
    return done, ends


def command(folder, *more):
    return gpu.run(gpu.parsed(["race", "--out", str(folder), *more]))


def test_a_part_keeps_every_row_with_card_versions_and_clocks(tmp_path, part):
    assert command(tmp_path) == 0
    assert part[0] == [1, 2, 3]
    rows = read(str(tmp_path)).rows
    assert [row.data for row in rows] == [{"n": 1}, {"n": 2}, {"n": 3}]
    state = rows[0].state
    assert state["card"]["name"] == "NVIDIA H200"
    assert state["card"]["power_limit_w"] == 700.0
    assert state["regime"] == "cold"
    assert state["clocks"]["before"] == {"sm_mhz": 1980}
    assert state["versions"]["sm_count"] == 132
    assert rows[0].sources == sources(("decode", "read"))
    assert {"batched", "sdpa_cudnn", "read"} <= set(rows[0].sources)


def test_a_part_goes_on_where_it_stopped(tmp_path, part, capsys):
    assert command(tmp_path, "--seconds", "15") == 3
    assert part[0] == [1]
    assert "missing: n=2: no time" in capsys.readouterr().err
    assert command(tmp_path, "--seconds", "15", "--resume") == 3
    assert command(tmp_path, "--resume") == 0
    assert part[0] == [1, 2, 3]
    assert command(tmp_path, "--resume") == 0
    assert part[0] == [1, 2, 3]
    assert command(tmp_path) == 0
    assert part[0] == [1, 2, 3] * 2


def test_a_row_cut_short_by_a_kill_is_made_again_and_no_other(tmp_path, part):
    command(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    part[0].clear()
    assert command(tmp_path, "--resume") == 0
    assert part[0] == [3]
    assert [row.key["n"] for row in read(str(tmp_path)).rows] == [1, 2, 3]


def test_a_row_of_other_sources_is_made_again(tmp_path, part, monkeypatch):
    command(tmp_path)
    part[0].clear()
    monkeypatch.setattr(gpu, "sources", lambda kernels: {"torch": "3.0"})
    assert command(tmp_path, "--resume") == 0
    assert part[0] == [1, 2, 3]


def test_what_cannot_be_measured_is_a_row_with_the_reason_and_tried_again_last(tmp_path, part, capsys):
    part[1][1] = Refused("nothing of ours has a time")
    assert command(tmp_path) == 3
    assert read(str(tmp_path)).rows[0].failed == "nothing of ours has a time"
    assert "n=1: nothing of ours" in capsys.readouterr().err
    part[0].clear()
    part[1].clear()
    with Store(str(tmp_path)) as store:
        store.add(store.found.rows[1]._replace(sources={}))
    assert command(tmp_path, "--resume") == 0
    assert part[0] == [2, 1]


def test_a_lost_device_ends_the_call_and_keeps_others_from_nothing(tmp_path, part):
    part[1][1] = Lost("illegal address")
    assert command(tmp_path) == 1
    assert part[0] == [1]
    assert command(tmp_path, "--resume") == 1
    assert part[0] == [1, 2, 3, 1]
    assert [row.failed for row in read(str(tmp_path)).rows] == ["illegal address", "", ""]


def test_steps_that_build_on_each_other_keep_their_order(tmp_path):
    with Store(str(tmp_path)) as store:
        store.add(regret(1)._replace(data={}, failed="x"))
        call = gpu.Call(gpu.parsed(["regret", "--out", "x"]), store, MACHINE, Deadline(1.0))
        walked = [gpu.Step({"shape": "40:8", "n": n}, ("decode",), lambda: ({}, {}), lambda: None) for n in (1, 2)]
        assert gpu.ordered(call, walked) == walked
        free = [one._replace(skip=None) for one in walked]
        assert gpu.ordered(call, free) == free[::-1]


def test_without_a_device_it_says_so(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "race", "--out", str(tmp_path)],
        cwd=os.path.dirname(os.path.dirname(gpu.__file__)), capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert run.returncode == 1
    assert "cuda:0" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("words", [["race", "--out", "x", "--shapes", "9:9"], ["race"], ["nothing"]])
def test_what_makes_no_sense_is_refused(words):
    with pytest.raises(SystemExit) as ended:
        gpu.parsed(words)
    assert ended.value.code == 2


# --- show ---


def filled(folder):
    """A folder with a row of every kind."""
    said = [{"kernel": "decode", "trials": {"ok": 300, "wrong": 3}}]
    tune = race()._replace(part="tune", key={"shape": "40:8"}, data={"budget_s": 110.0, "said": said}, seconds=109.0)
    rows = [
        tune,
        race(n=64, table=1020.0, own=1030.0, flash=1000.0, cudnn=1010.0, floor=700.0, one=900.0, more=1000.0),
        race(n=1024, table=1000.0, own=1060.0, flash=1500.0, cudnn=1000.0, one=1200.0, more=1000.0),
        race("paper", 65536, table=22_000.0, flash=90_000.0, floor=18_000.0),
        regret(),
        cold(right=False),
        sweep(),
        counted(),
        counted(n=16384, refused=True),
        Row("race", {"shape": "28:4", "n": 1}, {}, tune.state, 1.0, {}, "nothing has a time"),
    ]
    with Store(str(folder)) as store:
        for row in rows:
            store.add(row)


def test_everything_is_shown_with_its_verdict(tmp_path):
    filled(tmp_path)
    lines = gpu_show.lines(gpu_show.judged(str(tmp_path)))
    text = "\n".join(lines)
    assert "NVIDIA H200, 132 multiprocessors, power limit 700.0 W" in text
    assert "driver 580.1, cupy 14.2.0, torch 2.11.0" in text
    assert "sm_mhz 1965 to 1980" in text
    for part_of in (
        "| 40:8 | 64 | batched_mma blocks=264 | 1.02 us | sdpa_flash | 1.00 us | 1.02 [1.02, 1.02] | slower | ",
        "| 40:8 | 1024 | batched_mma blocks=264 | 1.00 us | sdpa_cudnn as_rows=1 |",
        "1.45: met",
        "| 40:8 | 109 | 110 | 300 of 303 |",
        "| 40:8 | 1024 | 222 | 25 | 2.40 | 222 | 30.0 | 0.080 | 1.01 [1.00, 1.02] | 1.01 us | 1.00 us |",
        "| batched blocks=264 | empty, 2 processes | 12 | 400 | 250 | 1200 | 0.2 | 12.5 | 6.5 | yes |",
        "| batched blocks=264 | full, 2 processes | 12 | 400 | 250 | - | - | 12.5 | 6.5 | NO |",
        "A sweep of 3 trials: 1 worker started, the first trial took 2.50 s, no later one over 0.40 s.",
        "| batched blocks=264 | 80.04 us | 268,000,000 | 268,435,456 | 8,400,000 | 8,388,608 | 0.5 | - |",
        "No counters: no permission (ERR_NVGPUCTRPERM). ask an administrator",
        "40:8: one warp and more warps take equally long at n = ",
        "stay in the L2 at 40:8 n=64.",
        "- mapping of sdpa_flash: how sdpa_flash is mapped (arithmetic of the cache)",
        "- MISSED: the table's choice is slower than the best library at 1 of 3 rows: 40:8 n=64",
        "- met: own over cuDNN: bar met at 2 of 2 rows",
        "- met: worst regret 1.010, bar 1.05",
        "- no figures: race {'shape': '28:4', 'n': 1}: nothing has a time",
    ):
        assert part_of in text
    widths = [line.count("|") for line in lines if line.startswith("|")]
    assert all(width > 3 for width in widths)


def test_what_was_judged_is_plain_data(tmp_path, capsys, monkeypatch):
    filled(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "show", str(tmp_path), "--json"])
    assert gpu.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in found["races"]] == ["faster", "slower", "tie"]
    assert found["failed"][0]["failed"] == "nothing has a time"
    assert [one["met"] for one in found["said"]].count(False) == 1


def test_an_empty_folder_has_no_verdict_that_is_met(tmp_path):
    found = gpu_show.judged(str(tmp_path))
    assert all(one.met is None for one in found.said)
    assert "no rows" in gpu_show.lines(found)


def script(folder, *parts, **variables):
    """The machine's script, run."""
    path = os.path.join(os.path.dirname(gpu.__file__), "gpu.sh")
    return subprocess.run(
        ["bash", path, str(folder), *parts], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHON": sys.executable, **variables},
    )  # fmt: skip


def test_the_script_shows_packs_and_goes_on_from_what_it_packed(tmp_path):
    filled(tmp_path / "one")
    packed = str(tmp_path / "packed.tar.gz")
    done = script(tmp_path / "one", "show", "pack", PACK=packed)
    assert done.returncode == 0, done.stderr
    assert "- MISSED: the table's choice is slower" in done.stdout
    done = script(tmp_path / "two", "no-such-part", FROM=packed)
    assert done.returncode == 2
    assert "no such part: no-such-part" in done.stderr
    assert read(str(tmp_path / "two")).rows == read(str(tmp_path / "one")).rows
    assert json.loads((tmp_path / "two" / "judged.json").read_text())["races"]
    assert "NVIDIA H200" in (tmp_path / "two" / "tables.txt").read_text()


def test_a_share_that_is_unknown_is_a_dash(tmp_path):
    with Store(str(tmp_path)) as store:
        store.add(regret(share=None))
    lines = gpu_show.searches(gpu_show.judged(str(tmp_path)))
    assert any("| - |" in line for line in lines if "1024" in line)


# --- cold start ---


def test_a_sweep_starts_one_worker_and_compiles_each_program_once(monkeypatch):
    from advisor.kernels.gpu import child, pool

    monkeypatch.setattr(child, "Child", OneWorker)
    monkeypatch.setattr(pool, "edges", lambda *_: ())
    monkeypatch.setattr(pool, "sets", lambda *_: 2)
    monkeypatch.setattr(gpu_cold, "space_options", lambda _: CUDA)
    monkeypatch.setattr(gpu_cold, "SHAPE", "paper")
    monkeypatch.setattr(OneWorker, "begun", 0)
    found, conditions = gpu_cold.sweep(MACHINE, sizes=(16, 64, 100))
    assert dict(conditions["after"]) == {"sm_mhz": 1980}
    assert {one[2] for one in found["trials"]} == {"ok"}
    assert len(found["trials"]) == 3 * len({one[1] for one in found["trials"]}) >= 9
    assert (OneWorker.begun, found["workers_started"]) == (1, 1)
    built = OneWorker.last.driver.built
    assert len(built) == len(set(built)) == len({one[1] for one in found["trials"]})
    assert not OneWorker.last.alive


def test_a_start_is_the_very_trial_of_a_worker():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_cold, "space_options", lambda _: CUDA)
        (default,) = gpu_cold.starts(MACHINE)
    lines = gpu_cold.asked(MACHINE, gpu_cold.problem_of("40:8", 64), default).splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == ["hello", "trial"]


@pytest.mark.parametrize("variant", ["batched_mma", "sdpa_flash"])
def test_caches_are_empty_at_first_and_what_one_left_is_found_again(monkeypatch, variant):
    folders = []

    def process(machine, path, caches):
        folders.append(os.path.basename(caches))
        return {"phases": []}

    monkeypatch.setattr(gpu_cold, "space_options", lambda _: CUDA)
    monkeypatch.setattr(gpu_cold, "run", process)
    monkeypatch.setattr(gpu_cold, "asked", lambda *_: b"{}\n{}\n")
    (default,) = gpu_cold.starts(MACHINE)
    data = gpu_cold.measure(MACHINE, default._replace(build=default.build._replace(variant=variant)))
    assert folders == (["0", "1", "0", "0"] if variant == "batched_mma" else ["0", "1"])
    assert {name: len(found) for name, found in data["processes"].items()}["empty"] == gpu_cold.PROCESSES


def test_a_process_that_does_not_end_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_cold, "CHILD", str(tmp_path / "child.py"))
    monkeypatch.setattr(gpu_cold, "LIMIT_S", 0.2)
    (tmp_path / "child.py").write_text("import time; time.sleep(60)")
    with pytest.raises(Refused, match=r"did not end within 0\.2 s"):
        gpu_cold.run(MACHINE, "x", str(tmp_path))


def test_a_device_that_cannot_be_opened_ends_the_part_with_its_reason(monkeypatch, tmp_path, capsys):
    @contextlib.contextmanager
    def lost(call):
        raise DeviceError("no context", sticky=True)
        yield

    monkeypatch.setattr(gpu, "device_machine", lambda: MACHINE)
    monkeypatch.setitem(gpu.PARTS, "race", lost)
    assert gpu.run(argparse.Namespace(out=str(tmp_path), part="race", seconds=9.0)) == 1
    assert "race: no context" in capsys.readouterr().err


@pytest.mark.parametrize(("left_s", "limit_s"), [(5.0, 5.0), (1e4, gpu_counters.LIMIT_S)])
def test_counting_ends_with_the_time_that_is_left(monkeypatch, left_s, limit_s):
    given = []
    monkeypatch.setattr(gpu_counters, "count_all", lambda *told: given.append(told[4]) or ())
    found, wanted = ground(seconds=left_s), [(gpu_cells.problem_of("paper", 64), None)]
    gpu_counters.counters(found._replace(deadline=Deadline(left_s, lambda: 0.0)), wanted)
    assert given == [limit_s]


def test_a_process_that_fails_is_refused_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_cold, "CHILD", str(tmp_path / "child.py"))
    (tmp_path / "child.py").write_text("raise SystemExit('no device')")
    with pytest.raises(Refused, match="no device"):
        gpu_cold.run(MACHINE, "x", str(tmp_path))
    (tmp_path / "child.py").write_text(
        "import json, os, time\nprint('noise')\nat = os.environ['CUPY_CACHE_DIR']\n"
        "print(json.dumps({'begun_ns': time.monotonic_ns(), 'phases': [['a', 1.0]], 'at': at}))"
    )
    said = gpu_cold.run(MACHINE, "x", str(tmp_path))
    assert [name for name, _ in said["phases"]] == ["interpreter", "a"]
    assert said["phases"][0][1] > 0
    assert said["at"] == str(tmp_path / "cupy_cache_dir")


@pytest.mark.parametrize(
    ("part", "taken", "need"),
    [("race", [], 6.0), ("race", [40.0, 3.0, 4.0], 6.0), ("race", [40.0, 8.0, 9.0], 9.0), ("tune", [200.0], 4.0)],
)
def test_a_row_needs_what_half_the_rows_before_took(part, taken, need):
    assert gpu.needed_s(part, taken) == need

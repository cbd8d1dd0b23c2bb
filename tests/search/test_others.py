"""Who else uses the machine, read from made-up /proc trees."""

from __future__ import annotations

import os

import pytest

from advisor.codec import to_json
from advisor.search import others

TICK = os.sysconf("SC_CLK_TCK")


def put(root, name, text):
    path = root / "proc" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tell(root, busy=0.0, idle=0.0, stolen=0.0, stalled=0.0, processes=()):
    """Counters in seconds; processes: pid -> (name, seconds used)."""
    ticks = [round(value * TICK) for value in (busy, 0, 0, idle, 0, 0, 0, stolen, 0, 0)]
    put(root, "stat", f"cpu  {' '.join(map(str, ticks))}\n")
    put(root, "pressure/cpu", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={round(stalled * 1e6)}\n")
    put(root, "loadavg", "1.25 0.50 0.10 2/300 12345\n")
    for pid, (name, used) in dict(processes).items():
        rest = " ".join(["S", *["0"] * 10, str(round(used * TICK)), "0", *["0"] * 5])
        put(root, f"{pid}/stat", f"{pid} ({name}) {rest}\n")


def look(root, after):
    """What is seen when the counters change meanwhile as told; the clock moves by one second."""
    now = iter((10.0, 11.0))
    return others.look(str(root), lambda seconds: tell(root, **after), lambda: next(now))


def test_a_quiet_machine_gives_no_reason(tmp_path):
    tell(tmp_path, idle=100.0)
    found = look(tmp_path, {"idle": 104.0})
    assert found.reasons == ()
    assert others.sentence(found) == ""
    assert (found.steal, found.others, found.delay, found.load_1min) == (0.0, 0.0, 0.0, 1.25)


def test_who_takes_the_time_is_named_with_how_much(tmp_path):
    before = {41: ("cc1 (old)", 1.0), 42: ("python3", 5.0), 43: ("python3", 5.0), 44: ("idle", 9.0)}
    after = {41: ("cc1 (old)", 1.3), 42: ("python3", 5.9), 43: ("python3", 5.9), 44: ("idle", 9.0)}
    tell(tmp_path, idle=100.0, processes=before)
    found = look(tmp_path, {"idle": 102.0, "busy": 2.0, "processes": after})
    assert found.users == (others.User("python3", 2, pytest.approx(1.8)), others.User("cc1 (old)", 1, 0.3))
    assert found.others == pytest.approx(0.5, abs=0.05)
    words = others.sentence(found)
    assert words.startswith("this machine is not quiet (load 1.25): ")
    assert "python3 x2 1.8 CPUs, cc1 (old) 0.3 CPUs" in words


def test_steal_and_waiting_tasks_are_told(tmp_path):
    tell(tmp_path, idle=100.0)
    found = look(tmp_path, {"idle": 103.0, "stolen": 1.0, "stalled": 0.4})
    assert (found.steal, found.delay) == (0.25, pytest.approx(0.4))
    assert len(found.reasons) == 2
    assert "25.0% of the CPUs' time is stolen" in found.reasons[0]
    assert "40% of the time some task waits" in found.reasons[1]


def test_a_process_of_the_same_number_is_another_one(tmp_path):
    tell(tmp_path, idle=100.0, processes={42: ("old", 50.0)})
    assert look(tmp_path, {"idle": 104.0, "processes": {42: ("new", 60.0)}}).users == ()


def test_a_machine_that_tells_nothing_is_not_accused(tmp_path):
    found = others.look(str(tmp_path), lambda seconds: None)
    assert found == others.Others(None, None, None, None, (), ())


def test_the_log_gets_plain_data(tmp_path):
    tell(tmp_path, idle=100.0, processes={42: ("python3", 5.0)})
    found = look(tmp_path, {"idle": 102.0, "busy": 2.0, "processes": {42: ("python3", 6.0)}})
    record = to_json(dict(others.recorded(found)))
    assert record["users"] == [{"name": "python3", "processes": 1, "cpus": 1.0}]
    assert len(record["reasons"]) == 1


def test_only_the_cpus_in_reach_count(tmp_path):
    rows = {"cpu": 500, "cpu0": 0, "cpu1": 500}
    lines = [f"{name} {busy} 0 0 1000 0 0 0 0 0 0" for name, busy in rows.items()]
    put(tmp_path, "stat", "\n".join([*lines, "intr 1 2 3"]))
    assert [others.stat(str(tmp_path), cpus).busy * TICK for cpus in ((), {0}, {1}, {0, 1}, {7})] == [
        500,
        0,
        500,
        500,
        500,
    ]

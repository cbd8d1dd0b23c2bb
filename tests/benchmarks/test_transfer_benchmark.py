"""benchmarks/transfer.py on made-up spaces: who knows whom, what is compared, and how it ends."""

import json

import numpy as np
import pytest
import transfer
from recorded import put, small
from spaces_judge import Done

from advisor.search.replay import load


@pytest.fixture
def folder(tmp_path):
    for seed, device in enumerate(("A", "B", "C")):
        put(tmp_path / f"kernel-{device}.T4.json", small(seed, slower=1.0 + seed))
    put(tmp_path / "alone-A.T4.json", small(7))
    put(tmp_path / "notes.json", {"no": "space"})
    return tmp_path


def test_a_space_without_another_device_is_left_out(folder):
    found = transfer.spaces(folder, [])
    assert [space.label for space in found] == ["kernel-A", "kernel-B", "kernel-C"]
    assert [one.device for one in transfer.others(found[1], found)] == ["A", "C"]


def test_a_draw_keeps_most_of_a_space_and_is_the_same_again(folder):
    space = load(folder / "kernel-A.T4.json")
    one, same, other = (transfer.drawn(space, seed) for seed in (1, 1, 2))
    assert one.configurations == same.configurations != other.configurations
    assert 30 < len(one.configurations) < 48
    assert np.isfinite(one.optimum_ms)


def test_the_nearest_is_told_by_the_devices_figures(folder):
    found = transfer.spaces(folder, [])
    devices = {"A": {"multiprocessors": 100.0}, "B": {"multiprocessors": 10.0}, "C": {"multiprocessors": 90.0}}
    known = transfer.others(found[0], found)
    made = dict(transfer.strategies(found[0], known, devices, 0))
    order = np.argsort(transfer.logs(found[0], known)[1], kind="stable")
    assert [made["nearest"].ask() for _ in range(3)] == [int(index) for index in order[:3]]
    assert set(made) == {"ours", "common", "nearest"}


def test_at_no_trials_the_first_choice_counts():
    assert [transfer.at(trials) for trials in (0, 10, 25)] == [1, 10, 25]
    curve = {"ours": 1.0, "common": 2.0, "nearest": 4.0}
    done = [
        Done(n, "k-A", "k", seed, (first,) + (1.0,) * 24, 1.0, 0.0) for n, first in curve.items() for seed in (0, 1)
    ]
    verdicts = {(one.peer, one.budget): one for one in transfer.judged(done)["all"]}
    assert verdicts["common", 0].ratio.value == pytest.approx(0.5)
    assert verdicts["nearest", 0].verdict == "ahead"
    assert verdicts["nearest", 10].verdict == "tie"


def test_the_command_prints_and_writes_every_search(folder, tmp_path, capsys):
    path = tmp_path / "out" / "found.json"
    path.parent.mkdir()
    assert transfer.main([str(folder), "--draws", "2", "--json", str(path)]) == 0
    told = json.loads(path.read_text())
    assert len(told["searches"]) == 2 * 3 * 3
    assert {"all", "kernel"} == set(told["verdicts"])
    assert "ours over nearest at 25 trials" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--draws", "1"], ["--kernel", "none"]])
def test_what_makes_no_sense_is_refused(folder, capsys, words):
    assert transfer.main([str(folder), *words]) == 1
    assert "transfer: " in capsys.readouterr().err

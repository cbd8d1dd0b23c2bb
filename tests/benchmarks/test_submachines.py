"""benchmarks/submachines.py: which parts there are, what its figures are; nothing is tuned."""

import json

import pytest
import submachines
from submachines import Row, geomean, judged, parts, rows, shown


def row(cpus, n=1024, **ratios):
    whole = {"own": 1.0, "transfer": 1.1, "nearest": 1.2, "common": 1.3, "default": 2.0, **ratios}
    return Row(cpus, "decode", n, "nearest", 9, whole)


def test_parts_are_the_first_cpus_in_reach_as_far_as_there_are(monkeypatch):
    monkeypatch.setattr(submachines.os, "sched_getaffinity", lambda pid: {5, 3, 4, 9})
    assert parts([1, 2, 4, 8]) == [(3,), (3, 4), (3, 4, 5, 9)]


def test_ways_are_compared_on_the_same_races():
    lacking = row(4)._replace(ratios={"own": 1.0, "transfer": 9.0})
    found = judged([row(1), row(2, transfer=1.21), lacking])
    assert found["transfer"]["geomean"] == pytest.approx((1.1 * 1.21) ** 0.5)
    assert (found["transfer"]["worst"], found["nearest"]["races"]) == (1.21, 2)
    assert judged([lacking]) == {}


def test_a_mean_lies_in_its_interval():
    mean, low, high = geomean([1.0, 1.1, 1.4, 0.9])
    assert low < mean < high


def test_a_race_that_was_run_again_replaces_the_earlier_one(tmp_path):
    assert rows(tmp_path) == []
    lines = [row(1), row(1, n=64), row(1, transfer=1.5)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one._asdict()) + "\n" for one in lines))
    found = rows(tmp_path)
    assert [(one.n, one.ratios["transfer"]) for one in found] == [(1024, 1.5), (64, 1.1)]
    assert shown(found).startswith("same silicon")


def test_one_part_is_refused(tmp_path, capsys):
    assert submachines.main([str(tmp_path), "--cpus", "1"]) == 1
    assert "two parts are needed" in capsys.readouterr().err

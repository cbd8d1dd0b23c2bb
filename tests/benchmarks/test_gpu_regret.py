"""Our search beside an exhaustive pass on a device that is none: a whole row, and what is left when one is cut off."""

import json
import os
import time

import gpu_judge
import gpu_regret
import pytest
from gpu_bench_fixtures import STATE
from gpu_machine_fixtures import CUDA, MACHINE, OneWorker
from gpu_rows import Row

from advisor.search.log import read


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """The device, its workers in this process; two sets of operands, no edges."""
    from advisor.kernels.gpu import child, pool

    monkeypatch.setattr(child, "Child", OneWorker)
    monkeypatch.setattr(pool, "edges", lambda *_: ())
    monkeypatch.setattr(pool, "sets", lambda *_: 2)
    monkeypatch.setattr(gpu_regret, "space_options", lambda _: CUDA)
    monkeypatch.setattr(gpu_regret, "FRESH_S", 0.0)  # a dozen rounds all the same


def walked(folder):
    wanted = gpu_regret.request(MACHINE, "paper", (32, 16))
    return wanted.problems, gpu_regret.walking(str(folder), "paper", wanted)


def test_a_row_has_both_searches_a_race_and_what_the_next_row_learns_from(tmp_path, monkeypatch):
    problems, walking = walked(tmp_path)
    until = time.monotonic() + 60
    with walking as walk:
        data, before = gpu_regret.measure(walk, problems[0], None, until)
        assert before is not None
    json.dumps(data, allow_nan=False)
    assert data["exhaustive"]["whole"]
    assert data["exhaustive"]["looked"] == data["space"]
    assert 0 < data["spent"]["ours"]["trials"] <= data["space"]
    assert data["share"] == data["spent"]["ours"]["seconds"] / data["exhaustive"]["seconds"]
    assert set(data["samples"]) == {"ours", "exhaustive"}
    row = Row("regret", {"shape": "paper", "n": 16}, {}, STATE, 1.0, data)
    assert len(gpu_judge.regret_says([row])) == 3

    whole = tmp_path / "regret-paper.whole.jsonl"
    kept = whole.read_bytes()
    with open(tmp_path / "regret-paper.jsonl", "ab") as file:  # a second row that was cut off
        file.write(kept)
    problems, walking = walked(tmp_path)
    with walking as walk:
        assert len(read(walk.log.path).records) == kept.count(b"\n") + 1  # the session of this call
        worker = OneWorker.last
        monkeypatch.setattr(OneWorker, "ask", lambda *_: pytest.fail("all of it is in the log"))
        assert gpu_regret.step(walk, problems[0], None) is not None
        assert OneWorker.last is worker
    assert os.path.getsize(tmp_path / "regret-paper.jsonl") < 2 * len(kept)


def test_without_whole_rows_a_log_begins_anew(tmp_path):
    (tmp_path / "regret-paper.jsonl").write_text('{"kind":"trial"}\n')
    _, walking = walked(tmp_path)
    with walking as walk:
        assert [r["kind"] for r in read(walk.log.path).records] == ["session"]

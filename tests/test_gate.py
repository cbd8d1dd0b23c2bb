"""The landing gate in whole tunings: what is faster lands, what is not stays out, what is wrong does not stay.

All but the measuring is real: a pool answers with times that are made up.
"""

from __future__ import annotations

import os

import pytest
from commanding import SCALE
from fake import FakeExecutor

from advisor import codec, tuning
from advisor.gate import Bar
from advisor.policy import history, ledger
from advisor.policy.learn import choose
from advisor.policy.store import load_table
from advisor.records import Measurement
from advisor.search.known import same_program
from advisor.search.request import Silent
from advisor.topology import probe as topology
from advisor.tuning_result import best_section


class Pool(FakeExecutor):
    """Choices take from 1 to 2 ms, each its own time; those named in `bad` end so, everywhere."""

    def __init__(self, slow, bad, unchecked):
        super().__init__(self.ns, statuses=lambda _, choice: bad.get(same_program(choice), "ok"))
        self.slow, self.unchecked, self.crew = slow, unchecked, self

    def ns(self, problem, choice):
        part = int(codec.digest(same_program(choice))[:6], 16) / 16**6
        return problem.n * 1e6 * (1 + part) * self.slow.get(same_program(choice), 1.0)

    def check(self, problem, choice, limit_s):
        status = "skipped" if self.unchecked else self.statuses(problem, choice)
        return Measurement(problem, choice, status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Nothing is open."""


class Lab:
    """A machine with results of its own; `slow`: choice -> factor, `bad`: choice -> status, for tunings from now on."""

    def __init__(self):
        self.slow, self.bad, self.unchecked = {}, {}, False

    def pool_for(self, *_):
        return Pool(self.slow, self.bad, self.unchecked)

    def tuned(self, *sizes, bar=Bar()):  # noqa: B008 (an immutable record)
        asked = tuning.TuneRequest(("scale",), sizes, budget_s=20.0, quick=True, kernel_dirs=(SCALE[-1],), bar=bar)
        (result,) = tuning.tune(asked, Silent())
        return result


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    found = Lab()
    monkeypatch.setattr("advisor.kernels.executors.pool_for", found.pool_for)
    machine = topology.probe()
    monkeypatch.setattr("advisor.topology.probe.probe", lambda *_: machine)
    monkeypatch.setattr("advisor.kernels.registry._entry_point_folders", list)
    monkeypatch.setattr(tuning, "_look", lambda _: tuning._Seen("", ()))
    monkeypatch.setattr("advisor.search.tune.beside_neighbour", lambda _: None)
    monkeypatch.setattr("advisor.search.tune.meter_finalists", lambda _: None)
    return found


def content(path):
    with open(path, "rb") as file:
        return file.read()


def says(path, n):
    return same_program(choose(best_section(load_table(path), n), n))


def sizes_of(path):
    return sorted({n for section in load_table(path).sections for n in section.tuned_n})


def test_a_candidate_lands_once_it_is_checked_and_beats_the_bar(lab):
    lab.unchecked = True
    first = lab.tuned(64)
    path, best, before = first.table_path, says(first.table_path, 64), content(first.table_path)
    assert first.decision.verdict == "first"

    lab.slow = {best: 3.0}
    waits = lab.tuned(64)
    assert (waits.decision.verdict, content(path) == before) == ("unchecked", True)
    assert any("fresh process" in note for note in waits.notes)

    lab.unchecked = False
    assert lab.tuned(64, bar=Bar(1e6)).decision.verdict == "kept"
    assert (content(path) == before, says(path, 64)) == (True, best)

    faster = lab.tuned(64)
    assert (faster.decision.verdict, faster.decision.taken) == ("faster", (64,))
    assert says(path, 64) == faster.decision.compared[0].candidate != best
    line = ledger.read(os.path.dirname(path), "scale")[-1]
    assert (line["landed"], line["compared"][0]["ratio"]) == (True, faster.decision.gain)
    ids = [kept.table_id for kept in history.entries(path)]
    assert ids == [first.table.table_id, faster.table.table_id]


@pytest.mark.parametrize("log", ["kept", "removed"])
def test_an_n_that_is_not_tuned_now_stays_with_and_without_the_log(lab, log):
    first = lab.tuned(64)
    path, best = first.table_path, says(first.table_path, 64)
    if log == "removed":
        os.unlink(first.log_path)
    lab.slow = {best: 3.0}
    wider = lab.tuned(96)
    assert (wider.decision.verdict, wider.decision.added) == ("extended", (96,))
    assert (sizes_of(path), says(path, 64)) == ([64, 96], best)


@pytest.mark.parametrize("status", ["crashed", "wrong"])
def test_a_choice_of_the_table_that_fails_now_is_gone_whatever_the_process_part(lab, status):
    first = lab.tuned(64)
    path, best = first.table_path, says(first.table_path, 64)
    lab.bad = {best: status}
    again = lab.tuned(64)
    assert (again.decision.verdict, again.decision.taken) == ("wrong", (64,))
    rows = [row for section in load_table(path).sections for row in section.rows]
    assert best not in {same_program(row.choice) for row in rows}

"""The landing gate in real tunings: what is faster lands, what is not is in the ledger, and stays out later too."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import tabling
from commanding import SCALE
from tabling import FOUR, ONE, TWO

from advisor import gate, tuning
from advisor.policy import history, ledger
from advisor.policy.learn import choose
from advisor.policy.store import ids_of, load_table, put, with_id
from advisor.policy.workload import Workload
from advisor.probing import folder_of
from advisor.records import pairs
from advisor.search.known import same_program
from advisor.search.request import Outcome, Silent
from advisor.tuning_result import best_section

NOTHING = Outcome((), (), (), (), 0, False, (), (), ())
NEVER, ALWAYS = gate.Bar(1e6), gate.Bar(-0.99)


@pytest.fixture
def home(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path_factory.getbasetemp() / "pipeline-cache"))
    return tmp_path


def tuned(*sizes, bar=NEVER):
    asked = tuning.TuneRequest(("scale",), sizes, budget_s=10.0, quick=True, kernel_dirs=(SCALE[-1],), bar=bar)
    (result,) = tuning.tune(asked, Silent())
    return result


def content(path):
    with open(path, "rb") as file:
        return file.read()


def says(path, n):
    table = load_table(path)
    return choose(best_section(table, n), n)


def take_another(path, verdict):
    """Put the slowest that raced into the table, at all its n. Returns the choice."""
    table = load_table(path)
    other = max((s for s in verdict.standings if s.summary), key=lambda s: s.summary.p25_ns).choice
    sections = [
        section._replace(
            rows=tuple(row._replace(choice=other, points=()) for row in section.rows),
            alternatives=(),
            wins=pairs({"latency": section.tuned_n if section.process == other.process else ()}),
        )
        for section in table.sections
        if section.process == other.process
    ]
    put(path, with_id(table._replace(sections=tuple(sections))))
    return other


@pytest.mark.slow
def test_a_candidate_lands_or_stays_out_also_later(home):
    first = tuned(64)
    path, folder = first.table_path, os.path.dirname(first.table_path)
    assert first.decision.verdict == "first"
    other = take_another(path, first.outcome.verdicts[0])

    wider = tuned(64, 96)
    assert (wider.decision.verdict, wider.decision.lands, wider.decision.added) == ("extended", False, (96,))
    assert same_program(says(path, 64)) == same_program(other)
    assert wider.outcome.verdicts[0].winner == same_program(other)
    assert any("under the bar" in note for note in wider.notes)
    line = ledger.read(folder, "scale")[-1]
    assert (line["verdict"], line["landed"]) == ("extended", False)
    assert line["compared"][0]["mechanism"]
    assert line["compared"][0]["ratio"] > 0

    faster = tuned(64, bar=ALWAYS)
    assert faster.decision.verdict == "faster"
    assert same_program(says(path, 64)) == same_program(faster.outcome.verdicts[0].winner) != same_program(other)
    ids = [kept.table_id for kept in history.entries(path)]
    assert ids[0] == first.table.table_id
    assert ids[-1] == load_table(path).table_id
    assert len(ids) == len(set(ids)) == 4


# --- without measuring: the shape of the records is that of tuning, the times are made up ---


def asked(variants=(("made_up", "0123456789ab"),), sizes=(64,)):
    return SimpleNamespace(
        problems=tuple(map(tabling.problem, sizes)),
        variants=[SimpleNamespace(name=name, source_hash=digest) for name, digest in variants],
        options=SimpleNamespace(objective="latency"),
        spec=SimpleNamespace(name="decode"),
        machine=tabling.machine(),
        session="s2",
    )


def ran(times):
    verdicts = tuple(tabling.race(n, at) for n, at in times.items())
    return NOTHING._replace(verdicts=verdicts)


def test_what_stays_stays_to_the_byte(home):
    stands = tabling.table()
    landed = gate.land(stands, ran({64: {ONE: 1.001, TWO: 1.0}}), asked(), gate.Bar())
    assert (landed.decision.verdict, landed.table) == ("kept", stands)
    assert landed.outcome.verdicts[0].winner == ONE


def test_what_failed_is_no_candidate_and_is_in_the_ledger(home):
    ran_out = ran({64: {ONE: 1.0, TWO: float("inf")}})
    decision = gate.land(tabling.table(), ran_out, asked(), gate.Bar()).decision
    assert decision.failed == ((64, TWO),)
    gate.record(decision, str(home / "decode.table.json"), asked(), tabling.table())
    (line,) = ledger.read(str(home))
    assert line["failed"][0]["candidate"]["team"]["threads"] == 2


def test_a_workload_says_which_n_count(home):
    times = {64: {ONE: 1.3, TWO: 1.0}, 4096: {FOUR: 1.0, TWO: 1.1}}
    for count, verdict in ((1, "kept"), (1000, "faster")):
        load = Workload(pairs({"decode": ((70, count), (4000, 100))}))
        landed = gate.land(tabling.table(), ran(times), asked(sizes=(64, 4096)), gate.Bar(workload=load))
        assert landed.decision.verdict == verdict


def test_calls_of_a_workload_that_count_for_nothing_are_told(home):
    load = Workload(pairs({"decode": ((64, 1), (1000, 3))}))
    decision = gate.land(None, ran({64: {ONE: 1.0}}), asked(), gate.Bar(workload=load)).decision
    assert decision.outside.startswith("75% of the workload's calls")
    assert decision.outside in gate.record(decision, str(home / "decode.table.json"), asked(), tabling.table())


def test_a_choice_whose_source_is_no_longer_at_hand_gives_way(home):
    now = asked(variants=(("made_up", "ffffffffffff"),))
    decision = gate.land(tabling.table(), ran({64: {TWO: 1.0}}), now, gate.Bar()).decision
    assert (decision.verdict, decision.lands) == ("gone", True)


def test_a_changed_environment_makes_the_table_stale(home):
    folder = folder_of(tabling.machine())
    os.makedirs(folder)
    tabling.write_machine(folder, tabling.machine(environment=pairs({"kernel": "6.9.0", "gcc": "12.2.0"})))
    decision = gate.land(tabling.table(), ran({64: {ONE: 1.0, TWO: 2.0}}), asked(), gate.Bar()).decision
    assert decision.verdict == "stale"
    assert "kernel was 6.1, is 6.9" in decision.why


@pytest.mark.parametrize("change", [None, {"hardware_id": "another"}, {"limits_id": "another"}, {"kernel": "fused"}])
def test_a_broken_or_foreign_table_is_no_incumbent_and_is_set_aside_at_once(tmp_path, change):
    path = tmp_path / "decode.table.json"
    path.write_text("{", "utf-8") if change is None else put(str(path), with_id(tabling.table(**change)))
    found, notes = gate.standing(str(path), ids_of(tabling.table()))
    assert (found, len(notes), path.exists()) == (None, 1, False)
    assert history.entries(str(path)) == ()
    assert gate.land(None, ran({64: {ONE: 1.0}}), asked(), gate.Bar()).decision.verdict == "first"


def test_a_published_section_is_no_incumbent():
    sections = tuple(s._replace(extra=pairs({"basis": "PUBLISHED"})) for s in tabling.table().sections)
    assert gate.picks(tabling.table()._replace(sections=sections), tabling.problem(64)) == {}
    assert gate.picks(tabling.table(), tabling.problem(64))[64] == ONE

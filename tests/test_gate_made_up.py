"""The landing gate on made-up races: what stands at every n afterwards. Nothing is measured."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import tabling
from tabling import DEFAULT, FOUR, MADE, ONE, PASSIVE, SPIN, TWO, choice, contended, of_rounds, race

from advisor import gate, paths, tuning
from advisor.concluding import RanAgain, Tuning
from advisor.lookup import Policy
from advisor.policy import history, ledger
from advisor.policy.learn import choose, learn
from advisor.policy.store import load_table, put, save_table, with_id
from advisor.policy.workload import Workload
from advisor.probing import folder_of
from advisor.records import Measurement, pairs
from advisor.search.known import Past, same_program
from advisor.search.request import Outcome
from advisor.tuning_result import best_section

NOTHING = Outcome((), (), (), (), 0, False, (), (), ())
CLANG = FOUR._replace(build=FOUR.build._replace(compiler="clang-14"))
FOUR_PASSIVE = FOUR._replace(process=PASSIVE)
PASSIVE_TWO = tabling.choice(threads=2, process=PASSIVE)
NAMES = ("made_up", "a", "b", "c")
INF = float("inf")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def path(home):
    return str(home / "decode.table.json")


def asked(sizes=(64,), objective="latency", digest="0123456789ab"):
    return SimpleNamespace(
        problems=tuple(map(tabling.problem, sizes)),
        variants=[SimpleNamespace(**{**vars(tabling.variant(name=name)), "source_hash": digest}) for name in NAMES],
        options=SimpleNamespace(objective=objective),
        spec=SimpleNamespace(name="decode"),
        machine=tabling.machine(),
        session="s2",
    )


def saved(path, *races, objective="latency"):
    """A table learned of races, where the user's own lies."""
    return save_table(path, learn(tabling.machine(), races, [], MADE._replace(objective=objective))).table


class Ran:
    """A tuning whose search and checks are over before it begins."""

    def __init__(self, path, times, objective="latency", log=(), **outcome):
        self.path, self.request = path, asked(tuple(times), objective)
        self.stands = gate.standing(path, self.request)
        verdicts = tuple(race(n, at) for n, at in times.items())
        before = gate.remembered(Past(tuple(log)), self.stands.table, self.request)
        found = NOTHING._replace(verdicts=verdicts, **outcome)
        self.tuning = Tuning(self.request, SimpleNamespace(crew=self), self, None, found, None, before)
        self.objective = objective

    def close(self):
        """Of the worker pool, and of the log."""

    def settle(self, bar=gate.Bar(), checked=True, between=lambda: None):  # noqa: B008 (an immutable record)
        """Through the gate and into the file. Returns the decision and the table that stands."""
        checks = [Measurement(v.problem, s.choice, "ok") for v in self.tuning.outcome.verdicts for s in v.standings]
        again = RanAgain(self.tuning.outcome, None, tuple(checks) if checked else ())
        request = tuning.TuneRequest(("decode",), objective=self.objective, bar=bar)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tuning, "run_again", lambda tuned, table, *_: again._replace(table=table))
            ended = tuning._settled(self.tuning, self.stands, request)
        between()
        ended, _ = tuning._saved(ended, self.tuning, self.path, self.stands.replaces)
        return ended.decision, ended.table


def says(table, n):
    return same_program(choose(best_section(table, n), n))


def tuned_n(table):
    return {section.process: section.tuned_n for section in table.sections}


TWO_N = (race(64, {CLANG: 1000.0, ONE: 1200.0}), race(4096, {CLANG: 10000.0, ONE: 50000.0}))


# --- which n ---


def test_what_stays_stays_to_the_byte(path):
    saved(path, race(64, {ONE: 1.0, TWO: 2.0}))
    with open(path, "rb") as file:
        before = file.read()
    decision, table = Ran(path, {64: {ONE: 1.001, TWO: 1.0}}).settle()
    assert (decision.verdict, decision.changes) == ("kept", False)
    assert says(table, 64) == ONE
    with open(path, "rb") as file:
        assert file.read() == before


def test_where_the_table_s_choice_was_not_raced_it_stays_though_another_n_lands(path):
    saved(path, *TWO_N)
    decision, table = Ran(
        path, {64: {CLANG: 1100.0, ONE: 1000.0}, 4096: {ONE: 50000.0, TWO: 40000.0}}, log=TWO_N
    ).settle()
    assert (decision.verdict, decision.taken) == ("faster", (64,))
    assert (says(table, 64), says(table, 4096)) == (ONE, CLANG)


def test_a_choice_that_failed_gives_way_and_elsewhere_the_bar_decides(path):
    saved(path, race(64, {FOUR: 1000.0, ONE: 1200.0}), race(4096, {FOUR: 1000.0, ONE: 5000.0}))
    times = {64: {FOUR: INF, ONE: 1200.0}, 4096: {FOUR: 1000.0, TWO: 990.0}}
    decision, table = Ran(path, times).settle()
    assert (decision.verdict, decision.taken) == ("wrong", (64,))
    assert (says(table, 64), says(table, 4096)) == (ONE, FOUR)


@pytest.mark.parametrize(
    ("times", "verdict", "sizes"),
    [
        ({64: {CLANG: 1000.0, ONE: 2000.0}}, "same", (64, 4096)),
        ({64: {CLANG: 1100.0, ONE: 1000.0}}, "faster", (64, 4096)),
        ({128: {CLANG: 1100.0, ONE: 1000.0}}, "extended", (64, 128, 4096)),
        ({128: {TWO: 1100.0, ONE: 1000.0}}, "extended", (64, 128, 4096)),
    ],
)
def test_without_a_log_the_n_that_were_not_raced_keep_their_rows_and_figures(path, times, verdict, sizes):
    before = saved(path, *TWO_N)
    decision, table = Ran(path, times).settle()
    assert (decision.verdict, tuned_n(table)) == (verdict, {DEFAULT: sizes})
    assert says(table, 4096) == CLANG
    old, new = (next(row.points for row in t.sections[0].rows if row.high == 4096)[-1] for t in (before, table))
    assert old == new
    assert dict(table.sections[0].wins)["latency"] == sizes


def test_what_is_stale_is_not_remembered(path):
    saved(path, *TWO_N)
    os.makedirs(folder_of(tabling.machine()))
    newer = pairs({"kernel": "6.9.0", "gcc": "12.2.0"})
    tabling.write_machine(folder_of(tabling.machine()), tabling.machine(environment=newer))
    decision, table = Ran(path, {64: {CLANG: 1000.0, ONE: 2000.0}}).settle()
    assert (decision.verdict, tuned_n(table)) == ("stale", {DEFAULT: (64,)})
    assert "kernel was 6.1, is 6.9" in decision.why


def test_a_choice_whose_source_is_no_longer_at_hand_gives_way():
    decision = gate.judge(
        gate.incumbent(tabling.table(), asked(digest="ffffffffffff")),
        NOTHING._replace(verdicts=(race(64, {TWO: 1.0}),)),
        tabling.table(),
        asked(),
        gate.Bar(),
    )
    assert (decision.verdict, decision.lands) == ("gone", True)


@pytest.mark.parametrize("log", [True, False])
def test_what_did_not_land_does_not_come_in_by_a_later_tuning(path, log):
    saved(path, *TWO_N)
    times = {64: {ONE: 1200.0, TWO: 1300.0}, 4096: {ONE: 9000.0, TWO: 60000.0}}
    assert Ran(path, times, log=TWO_N).settle()[0].verdict == "unraced"
    lost = tuple(race(n, at) for n, at in times.items())
    decision, table = Ran(path, {128: {CLANG: 1000.0, ONE: 1500.0}}, log=(*TWO_N, *lost) if log else lost).settle()
    assert decision.verdict == "extended"
    assert {says(table, n) for n in (64, 128, 4096)} == {CLANG}


def test_a_little_faster_neighbour_does_not_come_in_by_a_wider_range(path):
    saved(path, race(64, {ONE: 1000.0, TWO: 1500.0}))
    times = {64: {ONE: 1010.0, TWO: 1000.0}, 128: {ONE: 2000.0, TWO: 1000.0}}
    decision, table = Ran(path, times).settle()
    assert (decision.verdict, says(table, 64), says(table, 128)) == ("extended", ONE, TWO)


def test_what_is_judged_is_what_the_table_would_say(path):
    """At 64 and 256 the candidate's own race is won by A; in one range with 128 it takes C, which is slower there."""
    a, b, c = (choice(name, 4) for name in "abc")
    races = [race(64, {a: 1000.0, b: 1500.0}), race(128, {b: 1000.0, a: 1500.0}), race(256, {a: 1000.0, b: 1500.0})]
    saved(path, *races)
    slower = {a: 1000.0, c: 1014.0, b: 1500.0}
    decision, table = Ran(path, {64: slower, 128: {c: 980.0, b: 1000.0, a: 1500.0}, 256: slower}).settle()
    assert {one.n: one.candidate for one in decision.compared} == dict.fromkeys((64, 128, 256), c)
    assert (decision.verdict, decision.gain < 1) == ("kept", True)
    assert [says(table, n) for n in (64, 128, 256)] == [a, b, a]


# --- whose choice the table's is ---


def answer_of(path, n):
    """What `recommend` says where nothing is set: threads and wait policy."""
    place = tabling.write_machine(os.path.dirname(path), tabling.machine())
    answer = Policy.load(path, machine=place).best("decode", n)
    return answer.threads, answer.wait_policy, answer.spin


def bare(path, *races, wins=True):
    """A table as an older version wrote it: without `wins`."""
    table = saved(path, *races)
    sections = tuple(s if wins else s._replace(wins=()) for s in table.sections)
    os.unlink(path)
    return save_table(path, table._replace(sections=sections)).table


@pytest.mark.parametrize("wins", [True, False])
@pytest.mark.parametrize("rival", [0.5, 0.98, 0.99, 1.0, 1.5])
@pytest.mark.parametrize("process", [PASSIVE, SPIN])
def test_the_incumbent_is_what_recommend_answers(path, wins, rival, process):
    """Also where no race names a process part: the plain one, unless another is faster by the bar."""
    other = FOUR._replace(process=process)
    table = bare(path, *(race(n, {FOUR: 1000.0, other: 1000.0 * rival}) for n in (64, 4096)), wins=wins)
    for n in (64, 500, 4096):
        pick = choose(best_section(table, n), n)
        assert answer_of(path, n) == (pick.team.threads, pick.process.wait_policy, pick.process.spin)
    picks = gate.picks(table, tabling.problem(64))
    assert {n: choice.process for n, choice in picks.items()} == dict.fromkeys(
        (64, 4096), process if rival < (1.0 if wins else 1 / 1.015) else DEFAULT
    )


def test_one_thread_that_won_for_every_process_part_answers_from_the_plain_one(path):
    """Its rows may share another choice that is as good by the bound: the one of the plain part is meant."""
    times = {n: {ONE: 1000.0, PASSIVE_TWO: 1010.0, FOUR: 1300.0} for n in (64, 4096)}
    times[4096] = {ONE: 2000.0, PASSIVE_TWO: 1000.0, FOUR: 1300.0}
    table = bare(path, *(race(n, at) for n, at in times.items()))
    assert gate.picks(table, tabling.problem(64))[64] == ONE
    assert answer_of(path, 64) == (1, "default", None)


# --- objectives and checks ---


def stolen(n, **times):
    return tuple(Measurement(tabling.problem(n), c, "ok", (ns,) * 9) for c, ns in times.values())


def test_a_robust_choice_is_judged_by_its_time_beside_a_neighbour(path):
    beside = stolen(64, one=(ONE, 1200.0), four=(FOUR, 9000.0))
    saved(path, race(64, {FOUR: 1000.0, TWO: 1500.0}), objective="robust")
    times = {64: {FOUR: 1000.0, ONE: 1030.0}}
    decision, table = Ran(path, times, "robust", stolen=beside).settle()
    assert (decision.verdict, decision.gain) == ("faster", pytest.approx(7.5))
    assert says(table, 64) == ONE


def test_without_figures_beside_a_neighbour_a_robust_choice_stays(path):
    saved(path, race(64, {ONE: 1100.0, FOUR: 1100.5}), objective="robust")
    decision, table = Ran(path, {64: {FOUR: 1000.0, ONE: 1100.0}}, "robust").settle()
    assert (decision.verdict, says(table, 64)) == ("unraced", ONE)


def test_efficiency_is_judged_by_core_seconds_among_the_nearly_fastest(path):
    saved(path, race(64, {FOUR: 1000.0, TWO: 1100.0}), objective="efficiency")
    decision, table = Ran(path, {64: {FOUR: 1000.0, TWO: 1030.0}}, "efficiency").settle()
    assert (decision.verdict, decision.gain) == ("faster", pytest.approx(4000 / 2060))
    assert says(table, 64) == TWO
    slow = Ran(path, {64: {FOUR: 1000.0, TWO: 1500.0}}, "efficiency").settle()[0]
    assert (slow.verdict, slow.gain) == ("faster", 1.5)


def test_nothing_lands_over_a_table_that_has_not_run_in_a_fresh_process(path):
    times = {64: {ONE: 2.0, TWO: 1.0}}
    assert Ran(path, {64: {ONE: 1.0, TWO: 2.0}}).settle(checked=False)[0].verdict == "first"
    decision, table = Ran(path, times).settle(checked=False)
    assert (decision.verdict, says(table, 64)) == ("unchecked", ONE)
    assert "fresh process" in decision.why
    assert Ran(path, times).settle()[0].verdict == "faster"


def test_for_another_objective_what_failed_goes_and_what_is_not_checked_waits(path):
    saved(path, *(race(n, {ONE: 1000.0, FOUR: 1100.0}) for n in (64, 128)), objective="robust")
    times = {64: {ONE: INF, TWO: 900.0}, 128: {ONE: 1000.0, TWO: 900.0}, 256: {TWO: 900.0, ONE: 1000.0}}
    decision, table = Ran(path, times).settle(checked=False)
    assert (decision.verdict, decision.taken) == ("objective", (64, 256))
    assert [says(table, n) for n in (64, 128, 256)] == [TWO, ONE, TWO]
    assert {section.objective for section in table.sections} == {"latency"}


# --- the file ---


def test_no_process_part_answers_that_has_failed(path):
    saved(path, *(race(n, {FOUR: 1000.0, FOUR_PASSIVE: 2000.0}) for n in (64, 4096)))
    decision, table = Ran(path, {n: {FOUR: INF, FOUR_PASSIVE: 2000.0} for n in (64, 4096)}).settle()
    assert (decision.verdict, tuned_n(table)) == ("wrong", {PASSIVE: (64, 4096)})
    place = tabling.write_machine(os.path.dirname(path), tabling.machine())
    policy = Policy.load(path, machine=place)
    assert policy.choose("decode", 64).basis == "DEFAULT"
    assert (policy.best("decode", 64).threads, policy.best("decode", 64).wait_policy) == (4, "passive")


def test_every_process_part_keeps_what_was_not_raced(path):
    spin = FOUR._replace(process=SPIN)
    saved(path, *(race(n, {FOUR: 1000.0, spin: 2000.0, ONE._replace(process=PASSIVE): 1100.0}) for n in (64, 4096)))
    _, table = Ran(path, {64: {FOUR: 900.0, TWO: 1000.0}}).settle()
    assert tuned_n(table) == dict.fromkeys((DEFAULT, SPIN, PASSIVE), (64, 4096))
    found = {section.process: choose(section, 64) for section in table.sections}
    assert found == {DEFAULT: FOUR, SPIN: ONE._replace(process=SPIN), PASSIVE: ONE._replace(process=PASSIVE)}


@pytest.mark.parametrize("worse", [lambda r: of_rounds(r, 4), contended])
def test_the_table_s_figures_stay_beside_a_race_that_knows_them_worse_with_and_without_the_log(path, worse):
    """A shipped table has no log beside it, and the worse race is in the log from then on."""
    saved(path, race(64, {ONE: 100.0, FOUR: 120.0}))
    bad = worse(race(64, {ONE: 110.0, FOUR: 150.0}))
    for log in ((), (bad,)):
        ran = Ran(path, {64: {ONE: 1.0}}, log=log)
        ran.tuning = ran.tuning._replace(outcome=ran.tuning.outcome._replace(verdicts=(bad,)))
        decision, table = ran.settle()
        assert (decision.verdict, [p.summary.p25_ns for p in table.sections[0].rows[0].points]) == ("same", [100.0])


def test_an_import_while_a_tuning_runs_stays(path):
    other = learn(tabling.machine(), [race(64, {TWO: 500.0, ONE: 1200.0})], [], MADE)

    def import_it():
        save_table(path, other)

    for ours, verdict in ((1001.0, "kept"), (2000.0, "overtaken")):
        saved(path, race(64, {CLANG: 1000.0, ONE: 1200.0}))
        times = {64: {CLANG: ours, ONE: 1000.0}}
        decision, _ = Ran(path, times).settle(between=import_it)
        assert decision.verdict == verdict
        assert load_table(path).sections == other.sections


def test_a_table_that_was_removed_while_a_tuning_ran_does_not_come_back(path):
    saved(path, *TWO_N)
    decision, table = Ran(path, {64: {CLANG: 2000.0, ONE: 1000.0}}).settle(between=lambda: os.unlink(path))
    assert (decision.verdict, table, os.path.exists(path)) == ("overtaken", None, False)


def test_a_shipped_table_is_the_incumbent_where_the_lookup_answers_from_it(home, monkeypatch):
    shipped, own = home / "shipped" / "machine", folder_of(tabling.machine())
    monkeypatch.setattr(paths, "shipped_policies", lambda: str(home / "shipped"))
    monkeypatch.setattr("advisor.gather.shipped_policies", lambda: str(home / "shipped"))
    for folder in (str(shipped), own):
        os.makedirs(folder)
        tabling.write_machine(folder, tabling.machine())
    save_table(str(shipped / "decode.table.json"), learn(tabling.machine(), TWO_N, [], MADE))
    path = os.path.join(own, "decode.table.json")
    other, _ = Ran(path, {64: {TWO: 1001.0, ONE: 1000.0}}).settle()
    assert (other.verdict, os.path.exists(path)) == ("unraced", False)
    decision, table = Ran(path, {64: {CLANG: 1100.0, ONE: 1000.0}}).settle()
    assert (decision.verdict, tuned_n(table)) == ("faster", {DEFAULT: (64, 4096)})
    assert (says(load_table(path), 64), says(load_table(path), 4096)) == (ONE, CLANG)


@pytest.mark.parametrize("change", [None, {"hardware_id": "another"}, {"limits_id": "another"}, {"kernel": "fused"}])
def test_a_broken_or_foreign_table_is_no_incumbent_and_is_set_aside_at_once(path, change):
    if change is None:
        with open(path, "w", encoding="utf-8") as file:
            file.write("{")
    else:
        put(path, with_id(tabling.table(**change)))
    found = gate.standing(path, asked())
    assert (found.table, len(found.notes), os.path.exists(path)) == (None, 1, False)
    assert history.entries(path) == ()
    assert Ran(path, {64: {ONE: 1.0}}).settle()[0].verdict == "first"


def test_a_published_section_is_no_incumbent():
    sections = tuple(s._replace(extra=pairs({"basis": "PUBLISHED"})) for s in tabling.table().sections)
    assert gate.picks(tabling.table(), tabling.problem(64))[64] == ONE
    assert gate.incumbent(tabling.table()._replace(sections=sections), asked()).picks == {}


# --- the workload and the ledger ---


def test_what_failed_is_no_candidate_and_is_in_the_ledger(path):
    saved(path, race(64, {ONE: 1.0, TWO: 2.0}))
    ran = Ran(path, {64: {ONE: 1.0, TWO: INF}})
    decision, table = ran.settle()
    assert decision.failed == ((64, TWO),)
    gate.record(decision, path, ran.request, table)
    (line,) = ledger.read(os.path.dirname(path))
    assert line["failed"][0]["candidate"]["team"]["threads"] == 2


@pytest.mark.parametrize(("count", "verdict"), [(1, "kept"), (1000, "faster")])
def test_a_workload_says_which_n_count(path, count, verdict):
    saved(path, race(64, {ONE: 1.0, TWO: 2.0}), race(4096, {FOUR: 1.0, TWO: 2.0}))
    load = Workload(pairs({"decode": ((70, count), (4000, 100))}))
    times = {64: {ONE: 1.3, TWO: 1.0}, 4096: {FOUR: 1.0, TWO: 1.1}}
    assert Ran(path, times).settle(gate.Bar(workload=load))[0].verdict == verdict


def test_calls_of_a_workload_that_count_for_nothing_are_told(path):
    load = Workload(pairs({"decode": ((64, 1), (1000, 3))}))
    ran = Ran(path, {64: {ONE: 1.0}})
    decision, table = ran.settle(gate.Bar(workload=load))
    assert decision.outside.startswith("75% of the workload's calls")
    assert decision.outside in gate.record(decision, path, ran.request, table)

"""The landing gate, decided from made-up races: what lands, what stays, and what is said of it."""

import datetime

import pytest
from tabling import DEFAULT, FOUR, ONE, PASSIVE, TWO, choice, problem, race

from advisor.policy import landing, ledger
from advisor.policy.landing import Found, Incumbent, compare, decide, mechanism
from advisor.search.objective import figures_of

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def found(times, **more):
    """times: n -> choice -> ns. The fastest is the candidate."""
    races = [race(n, at) for n, at in times.items()]
    return [Found(r, r.winner, figures_of(r, (), ()), **more) for r in races]


def judged(times, picks, weights=None, bar=landing.BAR, checked=True, **old):
    """times: n -> choice -> ns; picks: n -> what the table says. The fastest is the candidate."""
    stands = Incumbent(picks, **old)
    compared = compare(found(times, checked=checked), stands, "latency", weights or {})
    added = [n for n in times if n not in picks]
    return decide(stands, compared, "latency", added, bar)


def test_a_first_table_lands():
    decision = judged({64: {ONE: 2.0, TWO: 1.0}}, {})
    assert (decision.verdict, decision.lands, decision.gain) == ("first", True, None)


@pytest.mark.parametrize(("ratio", "verdict"), [(1.016, "faster"), (1.0149, "kept"), (1.0001, "kept")])
def test_the_bar_decides(ratio, verdict):
    decision = judged({64: {ONE: ratio, TWO: 1.0}}, {64: ONE})
    assert (decision.verdict, decision.lands) == (verdict, verdict == "faster")


def with_interval(n, interval, ratio=1.2):
    compared = landing.Compared(n, ONE, TWO, 0.5, ratio, interval)
    return compared, Incumbent({n: ONE})


def test_a_tie_is_no_gain_however_large_its_ratio():
    """A second tuning that told nothing apart said 6.9 % better and took the place of the first."""
    compared, old = with_interval(64, (0.98, 1.67))
    decision = decide(old, (compared,), "latency", (), landing.BAR)
    assert (decision.verdict, decision.gain, decision.taken) == ("kept", 1.0, ())


def of_rounds(rounds, outcome):
    """A race in which TWO beats the table's ONE by 7 %, its interval a point as after one round."""
    (one,) = found({64: {ONE: 1.07, TWO: 1.0}})
    standings = [
        s if s.choice == TWO else s._replace(outcome=outcome, ratio_ci95=(1.07, 1.07)) for s in one.race.standings
    ]
    return one._replace(race=one.race._replace(rounds=rounds, standings=tuple(standings)))


@pytest.mark.parametrize(
    ("rounds", "outcome", "verdict"),
    [(1, "tie", "kept"), (8, "slower", "kept"), (9, "tie", "kept"), (9, "slower", "faster")],
)
@pytest.mark.parametrize("objective", ["latency", "efficiency"])
def test_a_tie_and_a_race_of_few_rounds_land_nothing(rounds, outcome, verdict, objective):
    """Wherever its interval lies, a point after one round. Of effort an outcome in time says nothing."""
    old = Incumbent({64: ONE}, objective=objective)
    one = of_rounds(rounds, outcome)
    figures = [f._replace(joules=f.quiet.p25_ns) for f in one.figures]
    compared = compare([one._replace(figures=figures)], old, objective, {})
    decision = decide(old, compared, objective, (), landing.BAR)
    expected = "faster" if objective == "efficiency" and rounds >= 9 else verdict
    assert (decision.verdict, decision.taken) == (expected, (64,) if expected == "faster" else ())


def test_beside_a_gain_a_tie_stays_with_the_table():
    sure, _ = with_interval(128, (1.1, 1.3))
    tied, _ = with_interval(64, (0.9, 1.4))
    decision = decide(Incumbent({64: ONE, 128: ONE}), (tied, sure), "latency", (), landing.BAR)
    assert (decision.verdict, decision.taken) == ("faster", (128,))


def test_another_bar_decides_otherwise():
    times, picks = {64: {ONE: 1.05, TWO: 1.0}}, {64: ONE}
    assert judged(times, picks, bar=0.1).verdict == "kept"
    assert judged(times, picks, bar=0.0).verdict == "faster"


def test_without_a_workload_only_the_n_that_differ_count():
    times = {n: {ONE: 1.0, TWO: 9.0} for n in (64, 128, 256, 512)}
    times[1024] = {ONE: 1.1, TWO: 1.0}
    decision = judged(times, dict.fromkeys(times, ONE))
    assert decision.verdict == "faster"
    assert decision.gain == pytest.approx(1.1)


def test_a_workload_weighs_the_n():
    times = {64: {ONE: 1.2, TWO: 1.0}, 1024: {ONE: 1.0, TWO: 1.0001}}
    picks = {64: ONE, 1024: ONE}
    assert judged(times, picks, {64: 0.9, 1024: 0.1}).verdict == "faster"
    rare = judged(times, picks, {64: 0.01, 1024: 0.99})
    assert rare.verdict == "kept"
    assert rare.gain == pytest.approx(1.2**0.01)


def test_a_gain_here_and_a_loss_there_are_weighed_against_each_other():
    both = [Found(one.race, TWO, one.figures) for one in found({64: {ONE: 1.3, TWO: 1.0}, 1024: {ONE: 1.0, TWO: 1.4}})]
    stands = Incumbent({64: ONE, 1024: ONE})
    decision = decide(stands, compare(both, stands, "latency", {}), "latency", (), 0.015)
    assert (decision.verdict, decision.taken) == ("kept", ())


def test_the_same_choices_are_measured_anew():
    decision = judged({64: {ONE: 1.0, TWO: 2.0}}, {64: ONE})
    assert (decision.verdict, decision.lands, decision.changes) == ("same", True, True)


def test_what_is_stale_gone_or_wrong_gives_way_at_its_own_n():
    times = {n: {ONE: 1.001, TWO: 1.0} for n in (64, 128)}
    picks, lost = dict.fromkeys(times, ONE), frozenset({64})
    stale = judged(times, picks, changed=("compiler was 12, is 13",), lost=lost)
    assert (stale.verdict, stale.taken) == ("stale", (64,))
    assert "compiler was 12, is 13" in stale.why
    gone = judged(times, picks, gone=("split",), lost=lost)
    assert (gone.verdict, gone.taken) == ("gone", (64,))
    wrong = judged({**times, 64: {ONE: float("inf"), TWO: 1.0}}, picks)
    assert (wrong.verdict, wrong.taken) == ("wrong", (64,))


def test_another_objective_lands_at_every_n_once_it_is_checked():
    times, picks = {64: {ONE: 1.001, TWO: 1.0}, 128: {TWO: 1.0, FOUR: 2.0}}, {64: ONE, 128: ONE}
    decision = judged(times, picks, objective="robust")
    assert (decision.verdict, decision.taken) == ("objective", (64, 128))
    waiting = judged(times, picks, objective="robust", checked=False)
    assert (waiting.verdict, waiting.changes) == ("unchecked", False)


def test_another_objective_waits_only_at_the_n_that_are_not_checked():
    """What failed cannot stay for it, and what the table did not have is not lost for it."""
    times = {64: {ONE: float("inf"), TWO: 1.0}, 128: {ONE: 2.0, TWO: 1.0}, 256: {TWO: 1.0, ONE: 2.0}}
    picks = {64: ONE, 128: ONE}
    decision = judged(times, picks, objective="robust", checked=False)
    assert (decision.verdict, decision.taken) == ("objective", (64, 256))
    assert "at n = 128" in decision.why
    settled = landing.settled(Incumbent(picks, objective="robust"), dict.fromkeys(times, TWO), decision, "latency")
    assert settled == {64: TWO, 128: ONE, 256: TWO}


def test_a_candidate_that_is_not_checked_replaces_only_what_cannot_stay():
    times = {n: {ONE: 2.0, TWO: 1.0} for n in (64, 128)}
    picks = dict.fromkeys(times, ONE)
    assert judged(times, picks, checked=False).verdict == "unchecked"
    decision = judged({64: {ONE: float("inf"), TWO: 1.0}, 128: times[128]}, picks, checked=False)
    assert (decision.verdict, decision.taken) == ("wrong", (64,))


def test_new_n_are_added_and_the_old_ones_stay():
    decision = judged({64: {ONE: 1.001, TWO: 1.0}, 96: {ONE: 2.0, TWO: 1.0}}, {64: ONE})
    assert (decision.verdict, decision.lands, decision.changes, decision.added) == ("extended", False, True, (96,))
    assert "n = 96 added" in decision.why


def test_a_table_s_choice_that_was_in_no_race_stays():
    decision = judged({64: {TWO: 1.0, FOUR: 2.0}}, {64: ONE})
    assert (decision.verdict, decision.gain) == ("unraced", None)
    assert not decision.changes


def test_the_mechanism_names_what_differs():
    assert mechanism(ONE, FOUR) == "threads 1 -> 4"
    assert mechanism(choice(unroll=1), choice(unroll=4)) == "unroll 1 -> 4"
    assert mechanism(choice(process=DEFAULT), choice(process=PASSIVE)) == "wait_policy default -> passive"
    assert mechanism(choice("a"), choice("b")) == "variant a -> b"
    assert mechanism(ONE, ONE) == ""


def test_the_ledger_has_the_reason_the_mechanism_and_the_figures(tmp_path):
    decision = judged({64: {ONE: 1.01, TWO: 1.0}, 1024: {ONE: 1.0, TWO: 3.0}}, {64: ONE, 1024: ONE})
    ledger.append(str(tmp_path), ledger.entry(decision, problem(64), "s1", "0123456789ab", NOW))
    (line,) = ledger.read(str(tmp_path), "decode")
    assert (line["verdict"], line["landed"], line["kernel"]) == ("kept", False, "decode")
    assert line["gain"] == pytest.approx(1.01)
    (one,) = line["compared"]
    assert (one["n"], one["mechanism"]) == (64, "threads 1 -> 2")
    assert ledger.read(str(tmp_path), "forward") == ()


def test_the_ledger_is_bounded_and_survives_a_torn_line(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "MOST", 5)
    (tmp_path / ledger.NAME).write_text('{"kernel": "decode", "torn', "utf-8")
    for i in range(9):
        ledger.append(str(tmp_path), {"kernel": "decode", "i": i})
    assert [line["i"] for line in ledger.read(str(tmp_path))] == [4, 5, 6, 7, 8]

"""What people see, on whatever stands at the other end."""

from __future__ import annotations

import io
import sys

import pytest
from tabling import FOUR, ONE, look, of_rounds, race

from advisor import render, show, tuning_result
from advisor.doctor import Finding
from advisor.kernels.verify import Row
from advisor.records import STATUSES, Problem, pairs
from advisor.search.request import Outcome, Report


def drawn():
    table = render.table()
    for name in ("n", "time"):
        table.add_column(name)
    table.add_row("64", "1 us")
    return render.rendered(table)


@pytest.mark.parametrize(("encoding", "fits"), [("utf-8", False), ("latin-1", True), ("ascii", True)])
def test_a_table_is_drawn_with_what_the_output_can_show(monkeypatch, encoding, fits):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert drawn().isascii() is fits
    drawn().encode(encoding)


@pytest.mark.parametrize(("encoding", "sign"), [("utf-8", "\xb1"), ("latin-1", "\xb1"), ("ascii", "+-")])
def test_a_sign_is_one_the_output_can_show(monkeypatch, encoding, sign):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert render.sign("plus or minus") == sign


def test_a_table_can_be_drawn_without_any_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert "64" in drawn()


def test_progress_goes_on_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    said = []
    with show.progress(said.append) as progress:
        progress.stage("n=64", 3)
        progress.seconds_left(2.0)
        progress.advance("one")
        progress.stage("n=128", 1)
    assert said == ["n=64: at most 3 steps", "  at most 2 s left", "n=128: at most 1 step"]


def test_findings_have_a_mark_and_their_remedy_below():
    text = show.examined([Finding("a", "b", ""), Finding("c", "d", "mend it", needed=True), Finding("e", "f", "well")])
    assert text.splitlines() == ["ok      a: b", "MISSING c: d", "        mend it", "note    e: f", "        well"]


def row(variant, error, status="ok", **more):
    problem = Problem("forward", more.pop("dtype", "float32"), (("causal", 1),), more.pop("n", 17), "warm")
    reason = "" if status == "ok" else "it says why"
    draw, knobs = more.pop("draw", "normal"), (("ADV_M", 4),)
    return "forward", Row(
        variant, knobs, "gcc-12", "o2", 3, problem, draw, error, more.pop("tolerance", 1e-3), status, reason
    )


def test_a_verification_has_the_worst_error_beside_its_tolerance_for_each_dtype_and_draw():
    rows = [
        row("tiled", 1e-5),
        row("tiled", 2e-5, n=65, tolerance=1e-4),
        row("tiled", 5e-4, draw="outlier"),
        row("tiled", 1e-9, dtype="float64"),
    ]
    text = show.verified(rows)
    lines = [line.split() for line in text.splitlines() if line.split()[:2] == ["forward", "tiled"]]
    assert [line[2:4] for line in lines] == [["float32", "normal"], ["float32", "outlier"], ["float64", "normal"]]
    assert lines[0][4:10] == ["2", "2.0e-05", "1.0e-04", "n=65,", "3", "threads"]  # nearest its own tolerance
    assert text.splitlines()[-1] == "made with gcc-12 (o2)"


def test_a_failure_is_told_with_all_that_repeats_it_and_many_are_not_all_told():
    found = show.verified([row("bad", 0.5, "wrong", draw="outlier"), *[row("bad", None, "crashed")] * 9]).splitlines()
    assert found[-5] == (
        "wrong: forward bad ADV_M=4 gcc-12 o2, 3 threads, n=17 causal=1 float32, outlier inputs: it says why"
    )
    assert [line.split(":")[0] for line in found[-4:-1]] == ["crashed"] * 3
    assert found[-1] == "and 6 more of forward bad; --json has them all"


def test_skipped_checks_have_no_error_and_no_tool():
    text = show.verified([row("amx", None, "skipped", tolerance=None)])
    assert "1 skipped" in text
    assert "made with" not in text


# --- the sheet of a tuning ---


def tuned_result(verdicts, stolen=(), objective="latency", regime="warm"):
    """The result of a tuning with these verdicts; its report is of the first one."""
    problem = verdicts[0].problem._replace(regime=regime)
    verdicts = tuple(v._replace(problem=v.problem._replace(regime=regime)) for v in verdicts)
    stolen = tuple(m._replace(problem=m.problem._replace(regime=regime)) for m in stolen)
    seconds = pairs({"total": 2.0, "in_kernel": 1.0, "compile": 0.5, "overhead": 0.5})
    counts = pairs(dict.fromkeys(STATUSES, 0))
    reports = (Report(problem, 9, 3, "done", 1.0),)
    outcome = Outcome(verdicts, (), counts, seconds, 9, False, (), reports, (), stolen)
    return tuning_result.TuneResult("decode", outcome, None, "t", "l", "", (), False, objective)


def tuned_sheet(verdicts, stolen=(), objective="latency", regime="warm"):
    """Lines of the sheet, words of each; its report is of the first verdict."""
    result = tuned_result(verdicts, stolen, objective, regime)
    return show.tuned(result), tuning_result.result_json(result)["best"]


def test_the_sheet_names_the_choice_of_the_objective_with_both_figures():
    verdict = race(64, {FOUR: 100.0, ONE: 400.0})
    stolen = [look(64, FOUR, 9e4), look(64, ONE, 410.0)]
    text, (best,) = tuned_sheet([verdict], stolen)
    assert "shared core" in text
    assert (best["choice"]["team"]["threads"], best["p25_ns"]) == (4, 100.0)
    assert best["fragility"] == pytest.approx(best["stolen_mean_ns"] / 100.0)
    assert "chosen for" not in text
    text, (best,) = tuned_sheet([verdict], stolen, "robust")
    assert best["choice"]["team"]["threads"] == 1
    assert best["stolen_p99_ns"] >= best["stolen_mean_ns"]
    assert "chosen for robust" in text
    assert "+300.0% of the fastest" in text


def test_the_sheet_names_the_regime_that_is_not_the_usual_one():
    assert "cold cache" in tuned_sheet([race(64, {FOUR: 100.0})], regime="cold")[0]
    assert "cache" not in tuned_sheet([race(64, {FOUR: 100.0})])[0]


@pytest.mark.parametrize("which", [ONE, FOUR])
def test_a_contended_figure_gives_no_ratio_to_the_default(which):
    verdict = race(64, {FOUR: 400.0, ONE: 100.0})
    standings = tuple(s._replace(contended=s.choice == which) for s in verdict.standings)
    assert "4.00x" in tuned_sheet([verdict])[0]
    text, (best,) = tuned_sheet([verdict._replace(standings=standings)])
    assert "4.00x" not in text
    assert "contended" in text
    assert best["contended"] is (which == ONE)


def test_a_default_that_failed_after_some_samples_gives_no_ratio():
    verdict = race(64, {FOUR: 400.0, ONE: 100.0})
    standings = tuple(s._replace(outcome="failed") if s.choice == FOUR else s for s in verdict.standings)
    assert "4.00x" not in tuned_sheet([verdict._replace(standings=standings)])[0]


def test_after_few_rounds_no_margin_is_told_and_of_a_tie_none_either():
    times = {FOUR: 100.0, ONE: 106.9}
    after = {rounds: of_rounds(race(64, times), rounds) for rounds in (1, 8, 9)}
    told = {rounds: tuned_sheet([verdict])[0] for rounds, verdict in after.items()}
    assert ["few samples" in text for text in told.values()] == [True, True, False]
    assert ["+6.9%" in text for text in told.values()] == [False, False, True]
    tied = tuple(
        s._replace(outcome="tie", ratio_ci95=(1.01, 1.1)) if s.choice == ONE else s for s in after[9].standings
    )
    text, _ = tuned_sheet([after[9]._replace(standings=tied)])
    assert "a tie [1.010, 1.100]" in text
    assert "few samples" in tuned_sheet([after[8]], [look(64, FOUR, 9e4), look(64, ONE, 410.0)], "robust")[0]


def test_several_kernels_stand_under_their_names_and_what_holds_for_all_is_said_once():
    first = tuned_result([race(64, {FOUR: 100.0, ONE: 400.0})])._replace(notes=("this machine is not quiet",))
    second = first._replace(kernel="mlp", outcome=first.outcome._replace(reports=()))
    text = show.all_tuned([first, second])
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("decode", "mlp"))] == ["decode", "mlp"]
    assert "heads=32" in text
    assert text.count("this machine is not quiet") == text.count("log   l") == 1

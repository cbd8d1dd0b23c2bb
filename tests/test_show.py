"""What people see, on whatever stands at the other end."""

from __future__ import annotations

import io
import sys

import pytest

from advisor import render, show
from advisor.doctor import Finding
from advisor.kernels.verify import Row
from advisor.records import Problem


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
    assert said == ["n=64: at most 3 steps", "  at most 2 s left"]


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

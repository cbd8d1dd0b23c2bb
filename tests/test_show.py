"""What people see, on whatever stands at the other end."""

from __future__ import annotations

import io
import sys

import pytest

from advisor import show
from advisor.doctor import Finding


def drawn():
    table = show._table()
    for name in ("n", "time"):
        table.add_column(name)
    table.add_row("64", "1 us")
    return show._rendered(table)


@pytest.mark.parametrize(("encoding", "fits"), [("utf-8", False), ("latin-1", True), ("ascii", True)])
def test_a_table_is_drawn_with_what_the_output_can_show(monkeypatch, encoding, fits):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert drawn().isascii() is fits
    drawn().encode(encoding)


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

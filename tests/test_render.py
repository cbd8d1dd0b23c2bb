"""Tables on terminals of any width."""

from __future__ import annotations

import sys

import pytest

from advisor import render

WORDS = ("recomputed", "float64", "0.123456", "[0.935, 1.278]", "18.1x")


@pytest.mark.parametrize("columns", [1, 20, 40, 80, 200])
def test_no_word_is_cut_on_a_narrow_terminal(monkeypatch, columns):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = render.rows(["variant", "dtype", "worst error", "next best", "shared core"], [WORDS])
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for word in " ".join(WORDS).split():
        assert word in text
    if columns == 200:
        assert max(len(line) for line in text.splitlines()) <= columns

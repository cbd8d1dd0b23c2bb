"""The doctor finds what is missing, and does not fall ill itself."""

from __future__ import annotations

import pytest

from advisor.doctor import examine


def needed(findings):
    return {finding.what: finding for finding in findings if finding.needed and finding.remedy}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("folders")
def test_a_good_machine_has_nothing_missing():
    assert needed(examine()) == {}


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("ADVISOR_HOME", "/dev/null/x", "results are kept in"),
        ("ADVISOR_CACHE", "/dev/null/x", "compiled variants are kept in"),
        ("CC", "'half a word", "C compiler with OpenMP"),
        ("PATH", "/nonexistent", "C compiler with OpenMP"),
    ],
)
def test_what_is_broken_is_a_finding_with_a_remedy(monkeypatch, name, value, what):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv(name, value)
    assert what in needed(examine())

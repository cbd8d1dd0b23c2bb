"""The doctor finds what is missing, and does not fall ill itself."""

from __future__ import annotations

import pytest

from advisor import doctor
from advisor.doctor import examine
from advisor.kernels import libraries


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
    ],
)
def test_what_is_broken_is_a_finding_with_a_remedy(monkeypatch, name, value, what):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv(name, value)
    assert what in needed(examine())


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("version", "found", "ill"), [("2.13.0", "calls of torch-2.13", False), (None, "no var", True)]
)
def test_without_a_compiler_calls_of_a_library_are_left_and_without_those_nothing(monkeypatch, version, found, ill):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(libraries, "installed", lambda name: version)
    finding = next(one for one in examine() if one.what == "C compiler with OpenMP")
    assert found in finding.found
    assert "apt-get install gcc" in finding.remedy
    assert finding.needed == ill


@pytest.mark.usefixtures("folders")
def test_everything_that_is_used_from_outside_is_looked_at():
    found = {finding.what for finding in examine()}
    assert found >= {"C compiler with OpenMP", "OpenMP runtime", doctor.COUNTERS, doctor.BINDING, "NVIDIA GPU", "lscpu"}


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("allowed", ""),
        ("refused (EACCES)", "perf_event_paranoid"),
        ("refused (EPERM)", "CAP_PERFMON"),
        ("refused (ENOENT)", "offers none"),
        ("refused (EOPNOTSUPP)", "offers none"),
        ("refused (ENOSYS)", "perf events"),
    ],
)
def test_counters_that_are_refused_have_a_remedy(word, remedy):
    finding = doctor._counters(word)
    assert finding.found.startswith(word)
    assert not finding.needed
    assert (remedy in finding.remedy) if remedy else finding.remedy == ""


@pytest.mark.parametrize(
    ("policy", "found", "remedy"),
    [
        ({"mbind": "allowed", "set_mempolicy": "allowed"}, "allowed", ""),
        ({"mbind": "allowed", "set_mempolicy": "refused (EPERM)"}, "set_mempolicy refused (EPERM)", "CAP_SYS_NICE"),
        ({"mbind": "refused (ENOSYS)", "set_mempolicy": "refused (ENOSYS)"}, "ENOSYS", "without NUMA"),
        (None, "not known", ""),
    ],
)
def test_memory_binding_that_is_refused_has_a_remedy(policy, found, remedy):
    finding = doctor._memory_binding(policy)
    assert found in finding.found
    assert (remedy in finding.remedy) if remedy else finding.remedy == ""


def test_a_gpu_on_the_bus_without_a_driver_is_a_finding(monkeypatch):
    monkeypatch.setattr(doctor.identity, "pci_gpus", lambda: ("10de:2335",))
    finding = doctor._gpu()
    if "none that answers" in finding.found:
        assert "1 on the PCI bus" in finding.found
        assert finding.remedy


def test_a_missing_lscpu_is_only_a_note(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    finding = doctor._lscpu()
    assert (finding.found, finding.needed) == ("none", False)
    assert "util-linux" in finding.remedy

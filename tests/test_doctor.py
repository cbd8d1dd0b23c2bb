"""The doctor finds what is missing, and does not fall ill itself."""

from __future__ import annotations

import pytest

from advisor import doctor
from advisor.doctor import examine
from advisor.kernels import libraries
from advisor.kernels.gpu import counters, tools
from advisor.kernels.gpu.counts import NoCounters
from advisor.kernels.gpu.profiled import Start
from advisor.records import Gpu
from advisor.topology import gpu


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


def gpu_counters(monkeypatch, outcome, found=("cupy",), gpus=(True,)):
    """The finding where counting a small choice has this outcome."""
    seen = tuple(Gpu(0, "GPU-0", "H200", None, None, "9.0", None, None, visible=visible) for visible in gpus)
    monkeypatch.setattr(tools, "gpu_tools", lambda: found)
    monkeypatch.setattr(gpu, "find", lambda _: gpu.NONE._replace(gpus=seen))
    monkeypatch.setattr(counters, "attempt", lambda _: outcome)
    return doctor._gpu_counters()


def test_counters_of_a_gpu_that_can_be_read_have_no_remedy(monkeypatch):
    found = gpu_counters(monkeypatch, Start("ncu 2025.3", 11.8, 1.4, 0))
    took = "readable by ncu 2025.3, which took 11.8 s to its first count, 13.2 s to its end"
    assert (found.what, found.found, found.remedy) == (doctor.GPU_COUNTERS, took, "")


def test_counters_of_a_gpu_that_are_refused_have_a_remedy_and_are_not_needed(monkeypatch):
    found = gpu_counters(monkeypatch, NoCounters("counters are for administrators", "on the host, set X"))
    assert found.found == "none: counters are for administrators"
    assert found.remedy.startswith("on the host, set X; without them bytes are predicted")
    assert not found.needed


@pytest.mark.parametrize(
    ("how", "words"), [({"found": ()}, "no CuPy"), ({"gpus": ()}, "no GPU"), ({"gpus": (False,)}, "no GPU")]
)
def test_counters_are_not_tried_where_nothing_could_run(monkeypatch, how, words):
    found = gpu_counters(monkeypatch, AssertionError("tried"), **how)
    assert words in found.found
    assert found.remedy == ""

"""T-04: platforms without an affinity call or with one that is cut in groups, and masks beyond 64 and 1024 CPUs."""

import os
import sys

import pytest
from trees import affinity, build

from advisor import identity
from advisor.search.space import teams, thread_counts
from advisor.topology import foreign, limits
from advisor.topology.probe import topology


@pytest.fixture
def mac(monkeypatch):
    """macOS with 8 and 2 cores: no affinity call, sysctl in its place."""
    told = {"hw.nperflevels": "2", "hw.perflevel0.logicalcpu": "8", "hw.perflevel1.logicalcpu": "2"}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(foreign, "sysctl", {**told, "machdep.cpu.brand_string": "Apple M9"}.get)


@pytest.fixture
def windows(monkeypatch):
    """Windows with two processor groups of 48."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(foreign, "processor_groups", lambda: (48, 48))


@pytest.mark.usefixtures("windows")
def test_t04a_all_processor_groups_are_counted_and_no_mask_is_made():
    found = topology("/")
    assert len(found.online_cpus) == 96
    assert {team.placement for team in teams(found)} == {"none"}
    assert 96 in thread_counts(found)
    assert any("not controlled" in warning for warning in found.warnings)


@pytest.mark.parametrize("allowed", ["1024-1030,1919"])
def test_t04b_ids_beyond_1024(tmp_path, allowed):
    ids = [*range(1024, 1031), 1919]
    root = build(tmp_path, "2s4c", ids=ids)
    affinity(root, allowed)
    found = topology(str(root))
    assert found.allowed_cpus == tuple(ids)
    assert found.array.cpus == tuple(ids)
    assert identity.here(str(root)).budget == 8


@pytest.mark.usefixtures("mac")
def test_t04c_thread_counts_of_a_mac_are_those_of_its_kinds_of_cores():
    found = topology("/")
    assert found.model_name == "Apple M9"
    assert [len(kind.cpus) for kind in found.core_classes] == [8, 2]
    assert {8, 10} <= set(thread_counts(found))
    assert {team.placement for team in teams(found)} == {"none"}
    assert limits.affinity() is None
    assert any("not controlled" in warning for warning in found.warnings)


@pytest.mark.usefixtures("mac")
def test_an_older_mac_has_one_kind(monkeypatch):
    monkeypatch.setattr(foreign, "sysctl", {}.get)
    (kind,) = topology("/").core_classes
    assert len(kind.cpus) == os.cpu_count()


def test_this_platform_has_files():
    assert not foreign.is_here()
    assert foreign.processor_groups() == ()
    assert foreign.sysctl("no.such.name") is None

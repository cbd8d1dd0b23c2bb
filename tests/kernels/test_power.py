"""Counters of energy, read from a made-up powercap tree."""

from __future__ import annotations

import sys
import types

import pytest

from advisor.kernels import power


def zone(root, name, label, uj, wraps=1_000_000):
    folder = root / power.POWERCAP / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps}\n")
    return folder / "energy_uj"


def test_packages_are_summed_and_nothing_is_counted_twice(tmp_path):
    one, other = zone(tmp_path, "intel-rapl:0", "package-0", 100), zone(tmp_path, "intel-rapl:1", "package-1", 900)
    core, psys = zone(tmp_path, "intel-rapl:0:0", "core", 7), zone(tmp_path, "intel-rapl:2", "psys", 7)
    counter = power.Packages(str(tmp_path))
    assert counter.read() == 0.0
    one.write_text("600"), other.write_text("1900"), core.write_text("70000"), psys.write_text("70000")
    assert counter.read() == pytest.approx(1.5e-3)


def test_a_counter_that_wraps_goes_on(tmp_path):
    energy = zone(tmp_path, "intel-rapl:0", "package-0", 999_000)
    counter = power.Packages(str(tmp_path))
    energy.write_text("1000")
    assert counter.read() == pytest.approx(2e-3)
    energy.write_text("3000")
    assert counter.read() == pytest.approx(4e-3)


def test_nothing_is_known_where_a_package_cannot_be_read(tmp_path):
    assert power.Packages(str(tmp_path)).read() is None
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    energy = zone(tmp_path, "intel-rapl:1", "package-1", 1)
    counter = power.Packages(str(tmp_path))
    assert counter.read() == 0.0
    energy.unlink()
    assert counter.read() is None
    assert power.Packages(str(tmp_path)).read() is None
    energy.write_text("no number")
    assert power.domains(str(tmp_path)) == ()


def test_a_gpu_tells_its_own(monkeypatch):
    told = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-1": 1}.__getitem__,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 2500,
    )
    monkeypatch.setitem(sys.modules, "pynvml", told)
    assert power.gpu_joules("GPU-1") == 2.5
    assert power.gpu_joules("GPU-2") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert power.gpu_joules("GPU-1") is None

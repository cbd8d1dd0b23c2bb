"""What benchmarks/probe.py makes of times: medians, ratios of each round, and the bar. No time is asserted."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "probe.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_of_the_probe", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ratios_are_of_each_round(benchmark):
    times = {benchmark.BASE: [1.0, 10.0, 2.0], "topology, in process": [2.0, 20.0, 4.0]}
    base, own = benchmark.judge(times)
    assert (base.ratio, own.ratio, own.ratio_low, own.ratio_high) == (1.0, 2.0, 2.0, 2.0)
    assert own.median_ms == 4.0


def test_without_lscpu_there_are_times_and_no_ratios(benchmark):
    (own,) = benchmark.judge({"topology, in process": [2.0, 3.0]})
    assert own.ratio is None
    assert "| - | - |" in benchmark.table([own])


@pytest.mark.parametrize(("ms", "passed"), [(5.0, True), (500.0, False)])
def test_the_bar_is_judged(benchmark, ms, passed):
    lines = benchmark.judge({"topology, in process": [ms, ms]})
    assert benchmark.document(lines, 2)["bar"]["passed"] is passed


def test_a_round_times_every_candidate(benchmark, monkeypatch):
    called = []
    monkeypatch.setattr(benchmark, "candidates", lambda: {name: lambda name=name: called.append(name) for name in "ab"})
    assert {name: len(samples) for name, samples in benchmark.measure(3).items()} == {"a": 3, "b": 3}
    assert sorted(called) == ["a"] * 4 + ["b"] * 4

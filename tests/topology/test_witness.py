import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
from trees import Shape, build, machine

from advisor.topology import child, lscpu, probe, witness
from advisor.topology.probe import topology


@pytest.fixture
def dual(tmp_path):
    """Two packages that repeat core ids 0-13."""
    return topology(str(machine(tmp_path, Shape(sockets=2, cores=14))))


@pytest.mark.parametrize(
    ("told", "word"), [(None, None), (28, None), (14, "believed"), (1, "believed"), (0, "ignored"), (65536, "ignored")]
)
def test_p02_counts_of_physical_cores_are_never_used(dual, told, word):
    notes = witness.core_count_notes(told, dual)
    assert dual.cores == 28
    assert notes == () if word is None else word in notes[0]


def test_p02_a_guest_with_a_package_for_each_cpu(tmp_path):
    twelve = topology(str(build(tmp_path, "12s1c")))
    assert (twelve.sockets, twelve.cores) == (12, 12)
    (note,) = witness.core_count_notes(1, twelve)
    assert "advisor 12" in note


def test_a_flat_machine_is_not_compared(tmp_path):
    flat = topology(str(tmp_path))
    said = lscpu.Said((0, 1), {}, {}, ())
    assert "2 online CPUs" in witness.lscpu_notes(said, flat)[0]


# --- P-01: py-cpuinfo ---


@pytest.fixture
def asked(monkeypatch):
    """Which programs py-cpuinfo's child was asked to run."""
    probe._ask_cpuinfo.cache_clear()
    calls = []
    monkeypatch.setattr(probe.child, "ask_python", lambda script, limit_s: calls.append(limit_s))
    return calls


def test_p01_cpuinfo_is_not_asked_where_the_kernel_names_the_model(asked):
    assert probe.probe("/").model_name
    assert asked == [] or probe.topology("/").model_name is None


def test_p01_a_cpuinfo_that_never_returns_costs_its_limit_and_no_more(asked):
    assert probe._model_name(None) is None
    assert asked == [probe._NAME_LIMIT_S]


def test_p01_lscpu_names_an_arm_part_before_cpuinfo_is_asked(asked):
    said = lscpu.Said(None, {}, {"model name": "Cortex-A76"}, ())
    assert probe._model_name(said) == "Cortex-A76"
    assert asked == []
    assert probe._model_name(said._replace(fields={"model name": "-"})) is None


@pytest.fixture
def brought(tmp_path, monkeypatch):
    """Puts a module `cpuinfo` of this text in front of the installed one, for child processes."""
    probe._ask_cpuinfo.cache_clear()

    def bring(text):
        (tmp_path / "cpuinfo.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return bring


def test_p01_a_real_cpuinfo_that_never_returns_is_ended(brought, monkeypatch):
    brought("import time\ndef get_cpu_info(): time.sleep(600)\n")
    monkeypatch.setattr(probe, "_NAME_LIMIT_S", 1.0)
    start = time.monotonic()
    assert probe._model_name(None) is None
    assert time.monotonic() - start < 60  # not the 600 s of the call


def test_p01_the_probe_may_be_called_inside_a_spawned_worker(brought):
    brought("def get_cpu_info(): return {'brand_raw': 'Stub 1'}\n")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(probe._model_name, None).result(timeout=60) == "Stub 1"
        assert pool.submit(topology, "/").result(timeout=60).hardware_id == topology("/").hardware_id


@pytest.mark.parametrize("told", ["Stub 1", ""])
def test_p01_cpuinfo_is_asked_once_a_run_even_where_it_fails(monkeypatch, told):
    probe._ask_cpuinfo.cache_clear()
    calls = []
    monkeypatch.setattr(probe.child, "ask_python", lambda script, limit_s: calls.append(script) or told or None)
    assert [probe._model_name(None) for _ in range(3)] == [told or None] * 3
    assert len(calls) == 1


def test_p01_without_it_the_kernel_names_model_and_instruction_sets(tmp_path):
    found = topology(str(build(tmp_path, "1s4c")))
    assert found.model_name == "Fake(R) CPU @ 2.00GHz"
    assert "avx2" in found.isa


def test_p01_cpuinfo_is_no_import_of_the_probe():
    line = "import sys, advisor.topology.probe, advisor.cli; sys.exit('cpuinfo' in sys.modules)"
    assert child.ask_python(line, 60) == ""

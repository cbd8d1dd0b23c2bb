import pytest
from trees import Shape, build, machine

from advisor.topology import lscpu, probe, witness
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

import pytest
from trees import Shape, machine

from advisor.topology import witness
from advisor.topology.probe import topology


@pytest.fixture
def dual(tmp_path):
    return topology(str(machine(tmp_path, Shape(sockets=2, cores=14))))


def rows(sockets, cores):
    return [{"cpu": c, "core": c, "socket": c % sockets, "node": str(c % sockets)} for c in range(cores)]


def test_a_witness_that_agrees_is_silent(dual):
    assert witness.lscpu_notes(rows(2, 28), dual) == ()


def test_each_disagreement_says_what_was_believed(dual):
    notes = witness.lscpu_notes(rows(1, 28), dual)
    assert len(notes) == 2
    assert all("believed" in note for note in notes)


def test_a_witness_that_does_not_know_is_no_disagreement(dual):
    unknown = [{"cpu": c, "core": None, "socket": "-", "node": None} for c in range(28)]
    assert witness.lscpu_notes(unknown, dual) == ()


@pytest.mark.parametrize(
    ("told", "word"), [(None, None), (28, None), (14, "believed"), (0, "ignored"), (65536, "ignored")]
)
def test_p02_counts_of_physical_cores_are_never_used(dual, told, word):
    notes = witness.core_count_notes(told, dual)
    assert dual.cores == 28
    assert notes == () if word is None else word in notes[0]

"""Records: immutable, equal by content, hashable; the words they use are the design's."""

import pytest
from tabling import FOUR, ONE, figures, machine, problem, table

from advisor import records
from advisor.records import pairs


def test_pairs_do_not_depend_on_order():
    assert pairs({"b": 1, "a": 2}) == pairs({"a": 2, "b": 1}) == (("a", 2), ("b", 1))


def test_equal_records_are_one_key():
    assert len({ONE, ONE._replace(), FOUR}) == 2
    assert hash(problem(64)) == hash(problem(64))


@pytest.mark.parametrize("record", [machine(), ONE, problem(64), figures(1.0), table()])
def test_records_cannot_be_changed(record):
    with pytest.raises(AttributeError):
        setattr(record, record._fields[0], None)


def test_a_problem_gives_all_its_dimensions():
    assert problem(64).dims() == {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128, "n": 64}


def test_the_words_of_the_design():
    assert records.BASES == ("EXACT", "INTERPOLATED", "PUBLISHED", "TRANSFERRED", "MODELLED", "STALE", "DEFAULT")
    assert records.STATUSES == ("ok", "wrong", "crashed", "timeout", "skipped")

"""The history of a table: what stood is kept, a bounded number, and can be gone back to."""

import datetime
import os

import pytest
from tabling import table, write

from advisor import tablefile
from advisor.errors import BadInput, Missing, UnknownName
from advisor.policy import history
from advisor.policy.store import ids_of, load_table, put, with_id
from advisor.records import pairs

IDS = ids_of(table())


def landed(folder, number, **changes):
    """Another table lands: the same rows, other provenance. Returns its id."""
    path = os.path.join(folder, "decode.table.json")
    made = with_id(table()._replace(provenance=pairs({"session": f"landed {number}"}), **changes))
    put(path, made)
    history.keep(path, datetime.datetime(2026, 1, 1, 0, 0, number, tzinfo=datetime.UTC))
    return made.table_id


def test_every_table_is_kept_once_oldest_first(tmp_path):
    path = write(tmp_path, table())
    first = load_table(path).table_id
    history.keep(path, datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC))
    history.keep(path)
    ids = [first, *(landed(tmp_path, i) for i in range(3))]
    assert [kept.table_id for kept in history.entries(path)] == ids
    assert [load_table(kept.path).table_id for kept in history.entries(path)] == ids


def test_a_bounded_number_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 3)
    ids = [landed(tmp_path, i) for i in range(6)]
    assert [kept.table_id for kept in history.entries(str(tmp_path / "decode.table.json"))] == ids[-3:]


def back(path, to=None):
    return history.rollback(path, IDS, to).table.table_id


def kept(path):
    return [one.table_id for one in history.entries(path)]


def test_one_goes_back_to_the_last_or_to_any_and_that_is_in_the_history(tmp_path):
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(3)]
    assert back(path) == load_table(path).table_id == ids[1]
    assert kept(path) == [ids[0], ids[2], ids[1]]
    assert back(path) == ids[2]
    assert back(path, ids[0][:6]) == load_table(path).table_id == ids[0]
    assert kept(path) == [ids[1], ids[2], ids[0]]


def test_going_back_and_forth_pushes_nothing_out(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 3)
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(3)]
    for i in range(6):
        assert back(path) == ids[1 + i % 2]
    assert set(kept(path)) == set(ids)


def test_the_oldest_one_kept_can_be_gone_back_to_from_a_table_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 2)
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(2)]
    put(path, with_id(table()))
    assert back(path, ids[0]) == ids[0]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "advisor.table/9.0"}', None])
@pytest.mark.parametrize("count", [1, 3])
def test_a_table_that_is_gone_or_damaged_gives_way_to_the_last_good_one(tmp_path, content, count):
    path = tmp_path / "decode.table.json"
    ids = [landed(tmp_path, i) for i in range(count)]
    path.unlink() if content is None else path.write_text(content, "utf-8")
    found = history.rollback(str(path), IDS)
    assert found.table.table_id == load_table(str(path)).table_id == ids[-1]
    aside = [*tmp_path.glob("*.broken-*"), *tmp_path.glob("*.newer-*")]
    assert [one.read_text("utf-8") for one in aside] == ([] if content is None else [content])
    assert len(found.notes) == len(aside)


def test_what_is_of_another_machine_is_neither_kept_nor_gone_back_to(tmp_path):
    path = str(tmp_path / "decode.table.json")
    own = landed(tmp_path, 0)
    foreign = landed(tmp_path, 1, hardware_id="another00000")  # as a history without this check has it
    put(path, with_id(table(limits_id="another00000")))
    history.keep(path, ids=IDS)
    assert kept(path) == [own, foreign]
    with pytest.raises(BadInput, match="one kernel of one machine"):
        back(path, foreign)
    assert back(path) == own
    assert len(list(tmp_path.glob("*.foreign-*"))) == 1
    put(path, with_id(table(kernel="forward")))
    history.keep(path)
    assert kept(path) == [foreign, own]


def test_what_is_not_there_cannot_be_gone_back_to(tmp_path):
    path = write(tmp_path, table())
    with pytest.raises(Missing, match="earlier table"):
        back(path)
    with pytest.raises(Missing, match="earlier table"):
        back(str(tmp_path / "nowhere" / "decode.table.json"))
    history.keep(path)
    with pytest.raises(Missing, match="earlier table"):
        back(path)
    with pytest.raises(UnknownName, match="no such table"):
        back(path, "ffff")
    landed(tmp_path, 2)
    with pytest.raises(BadInput, match="name one table"):
        back(path, "")


def test_a_damaged_past_that_is_named_is_refused_and_the_present_stays(tmp_path):
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(2)]
    with open(history.entries(path)[0].path, "a", encoding="utf-8") as file:
        file.write("x")
    with pytest.raises(BadInput):
        back(path, ids[0])
    with pytest.raises(Missing, match=r"passed over: .*readable JSON file"):
        back(path)
    assert load_table(path).table_id == ids[1]


def test_a_table_that_cannot_be_trusted_is_not_kept(tmp_path):
    path = tmp_path / "decode.table.json"
    path.write_text("{", "utf-8")
    history.keep(str(path))
    assert history.entries(str(path)) == ()


def test_history_is_no_table_of_the_folder(tmp_path):
    landed(tmp_path, 1)
    assert tablefile.names(str(tmp_path)) == (str(tmp_path / "decode.table.json"),)


def test_a_damaged_file_in_the_history_is_passed_over_and_named(tmp_path):
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(3)]
    spoilt = next(one.path for one in history.entries(path) if one.table_id == ids[1])
    with open(spoilt, "w", encoding="utf-8") as file:
        file.write("{")
    found = history.rollback(path, IDS)
    assert (found.table.table_id, load_table(path).table_id) == (ids[0], ids[0])
    assert any(spoilt in note for note in found.notes)

"""The history of a table: what stood is kept, a bounded number, and can be gone back to."""

import datetime
import os

import pytest
from tabling import FOUR, ONE, race, table, write

from advisor.errors import BadInput, Missing, UnknownName
from advisor.policy import history
from advisor.policy.store import load_table, put, with_id
from advisor.records import pairs


def landed(folder, number):
    """Another table lands: the same rows, other provenance. Returns its id."""
    path = os.path.join(folder, "decode.table.json")
    made = with_id(table()._replace(provenance=pairs({"session": f"s{number}"})))
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


def test_one_goes_back_to_the_last_or_to_any_and_that_is_in_the_history(tmp_path):
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(3)]
    assert history.rollback(path).table_id == load_table(path).table_id == ids[1]
    assert history.rollback(path, ids[0][:6]).table_id == load_table(path).table_id == ids[0]
    assert [kept.table_id for kept in history.entries(path)] == [*ids, ids[1], ids[0]]


def test_what_is_not_there_cannot_be_gone_back_to(tmp_path):
    path = write(tmp_path, table())
    with pytest.raises(Missing, match="earlier table"):
        history.rollback(path)
    with pytest.raises(UnknownName, match="no such table"):
        history.rollback(path, "ffff")
    landed(tmp_path, 2)
    with pytest.raises(BadInput, match="name one table"):
        history.rollback(path, "")


def test_a_damaged_past_is_refused_and_the_present_stays(tmp_path):
    path = str(tmp_path / "decode.table.json")
    ids = [landed(tmp_path, i) for i in range(2)]
    with open(history.entries(path)[0].path, "a", encoding="utf-8") as file:
        file.write("x")
    with pytest.raises(BadInput):
        history.rollback(path)
    assert load_table(path).table_id == ids[1]


def test_a_table_that_cannot_be_trusted_is_not_kept(tmp_path):
    path = tmp_path / "decode.table.json"
    path.write_text("{", "utf-8")
    history.keep(str(path))
    assert history.entries(str(path)) == ()


def test_history_is_no_table_of_the_folder(tmp_path):
    from advisor import tablefile

    landed(tmp_path, 1)
    assert tablefile.names(str(tmp_path)) == (str(tmp_path / "decode.table.json"),)
    assert race(64, {ONE: 1.0, FOUR: 2.0}).winner == ONE

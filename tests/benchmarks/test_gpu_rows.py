"""The rows of the GPU benchmark on disk: none lost, a torn line dropped, what is done told from what is not."""

import json
import os

import pytest
from gpu_bench_fixtures import race, regret
from gpu_rows import FILE, Store, latest, read


def path_of(folder):
    return os.path.join(folder, FILE)


def test_rows_come_back_as_they_went(tmp_path):
    folder = str(tmp_path / "new")
    rows = (race(n=1, table=100.0), race(n=64, table=200.0), regret())
    with Store(folder) as store:
        for row in rows:
            store.add(row)
        assert store.found.rows == rows
        assert store.of("regret") == [rows[2]]
    assert read(folder).rows == rows
    assert read(str(tmp_path / "none")).rows == ()


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_torn_last_line_is_dropped_and_the_next_row_is_whole(tmp_path, cut):
    folder = str(tmp_path)
    with Store(folder) as store:
        store.add(race(n=1, table=100.0))
        store.add(race(n=2, table=100.0))
    with open(path_of(folder), "r+b") as file:
        file.truncate(os.path.getsize(path_of(folder)) - cut)
    left = [1, 2] if cut == 1 else [1]  # a line without its end alone is whole
    assert [row.key["n"] for row in read(folder).rows] == left
    with Store(folder) as store:
        assert [row.key["n"] for row in store.found.rows] == left
        store.add(race(n=3, table=100.0))
    found = read(folder)
    assert [row.key["n"] for row in found.rows] == [*left, 3]
    assert len(found.notes) == (cut != 1)


def test_every_way_to_cut_a_file_loses_the_last_row_at_most(tmp_path):
    folder = str(tmp_path)
    with Store(folder) as store:
        for n in (1, 2):
            store.add(regret(n=n))
    with open(path_of(folder), "rb") as file:
        whole = file.read()
    first = whole.index(b"\n") + 1
    for size in range(first, len(whole), 37):
        with open(path_of(folder), "wb") as file:
            file.write(whole[:size])
        assert [row.key["n"] for row in read(folder).rows] == [1]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    folder = str(tmp_path)
    with Store(folder) as store:
        store.add(race(n=1, table=100.0))
    with open(path_of(folder), "ab") as file:
        file.write(b"\n" + json.dumps({"part": "race"}).encode() + b"\n[1]\n\xff\n")
    with Store(folder) as store:
        store.add(race(n=2, table=100.0))
    found = read(folder)
    assert [row.key["n"] for row in found.rows] == [1, 2]
    assert found.notes == tuple(f"{FILE} line {i}: damaged, left out" for i in (3, 4, 5))


def test_the_last_row_of_a_key_counts_and_the_order_of_keys_stays():
    old, other, new = race(n=1, table=100.0), race(n=2, table=100.0), race(n=1, table=50.0)
    assert latest([old, other, new]) == (new, other)


def test_done_is_a_row_with_figures_of_the_same_sources(tmp_path):
    with Store(str(tmp_path)) as store:
        row = race(n=1, table=100.0)
        store.add(row)
        assert store.done("race", row.key, row.sources)
        assert not store.done("race", row.key, {"batched": "b"})
        assert not store.done("regret", row.key, row.sources)
        assert not store.failed("race", row.key)
        store.add(row._replace(key={"n": 5}, data={}, failed="lost"))
        assert not store.done("race", {"n": 5}, row.sources)
        assert store.failed("race", {"n": 5})


def test_what_is_no_number_is_refused_and_leaves_no_line(tmp_path):
    with Store(str(tmp_path)) as store:
        with pytest.raises(ValueError, match="JSON"):
            store.add(race(n=1, table=100.0)._replace(seconds=float("nan")))
        store.add(race(n=2, table=100.0))
    assert [row.key["n"] for row in read(str(tmp_path)).rows] == [2]

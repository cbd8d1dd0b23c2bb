"""Tables on disk: nothing lost, nothing half read, nothing silently replaced."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from filelock import FileLock
from tabling import FOUR, MADE, ONE, machine, race, table, write

from advisor import codec, tablefile
from advisor.errors import BadInput, Busy, Missing, SchemaError
from advisor.policy import store
from advisor.policy.learn import learn

WRITER = """
import sys
sys.path[:0] = sys.argv[1:3]
from tabling import FOUR, MADE, ONE, machine, race
from advisor.policy import store
from advisor.policy.learn import learn
path, batch, count = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
mine = {}
for i in range(count):
    heads = 8 * (i % 4 + 1)
    verdict = race(64, {FOUR: 4.0, ONE: 1.0}, batch=batch, heads=heads)
    mine[heads] = made = f"{i}"
    saved = store.save_table(path, learn(machine(), [verdict], [], MADE._replace(created=made)), lock_limit_s=60)
    sections = [s for s in store.load_table(path).sections if dict(s.shape)["batch"] == batch]
    found = {dict(s.shape)["heads"]: s.created for s in sections}
    if found != mine or saved.notes:
        sys.exit(f"lost: {mine} became {found}, {saved.notes}")
"""


def writer(path, batch, count):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return subprocess.Popen([sys.executable, "-c", WRITER, here, os.path.dirname(here), path, str(batch), str(count)])


def edited(path, change):
    """Change a table file and give it a fitting id, as another program would write it."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    change(document)
    document["table_id"] = ""
    text = json.dumps(document)
    document["table_id"] = (
        tablefile.content_id(json.loads(text)) if "NaN" not in text and "Infinity" not in text else "0"
    )
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)


def test_what_is_saved_is_loaded(tmp_path):
    path = write(tmp_path, table())
    assert store.load_table(path) == table()
    assert store.load_table(path).table_id == store.with_id(table()).table_id
    assert os.listdir(tmp_path).count("decode.table.json") == 1


def test_sections_are_merged_by_their_key(tmp_path):
    path = write(tmp_path, table())
    other = learn(machine(), [race(64, {FOUR: 4.0, ONE: 1.0}, heads=8)], [], MADE)
    saved = store.save_table(path, other)
    assert len(saved.table.sections) == 2
    again = store.save_table(path, table())
    assert len(again.table.sections) == 2
    assert again.notes == ()


def test_a_kept_section_remembers_its_environment(tmp_path):
    path = write(tmp_path, table())
    newer = machine(environment=(("kernel", "7.0.0"),))
    saved = store.save_table(path, learn(newer, [race(64, {FOUR: 4.0, ONE: 1.0}, heads=8)], [], MADE)).table
    kept = next(s for s in saved.sections if dict(s.shape)["heads"] == 32)
    assert dict(kept.extra)["environment"]["kernel"] == "6.1.0"
    assert dict(saved.environment)["kernel"] == "7.0.0"
    assert store.load_table(path).table_id == saved.table_id


def test_two_writers_lose_nothing(tmp_path):  # case A-08
    path = str(tmp_path / "decode.table.json")
    writers = [writer(path, batch, 200) for batch in (1, 2)]
    while any(w.poll() is None for w in writers):
        if os.path.exists(path):
            store.load_table(path)  # a reader never sees half a file
        time.sleep(0.01)  # and leaves the processors to the writers
    assert [w.returncode for w in writers] == [0, 0]
    found = [(dict(s.shape)["batch"], dict(s.shape)["heads"], s.created) for s in store.load_table(path).sections]
    assert sorted(found) == [(batch, 8 * (i + 1), f"{196 + i}") for batch in (1, 2) for i in range(4)]
    assert not [name for name in os.listdir(tmp_path) if "broken" in name]


def test_a07_whatever_a_reader_keys_by_is_a_number_and_metadata_lies_apart(tmp_path):
    with open(write(tmp_path, table()), encoding="utf-8") as file:
        document = json.load(file)
    for section in document["sections"]:
        keys = [*section["shape"].values(), *section["tuned_n"]]
        keys += [row[end] for row in section["rows"] for end in ("low", "high")]
        assert {type(key) for key in keys} == {int}
        assert not {"schema", "advisor", "version", "created"} & set(section["shape"])


def test_a_killed_writer_leaves_a_whole_file(tmp_path):  # case A-08
    path = str(tmp_path / "decode.table.json")
    for _ in range(3):
        process = writer(path, 1, 10000)
        before = os.stat(path).st_mtime_ns if os.path.exists(path) else 0
        while not os.path.exists(path) or os.stat(path).st_mtime_ns == before:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert store.load_table(path).sections
    assert store.save_table(path, table()).notes == ()


def test_a_truncated_file_is_set_aside_at_any_offset(tmp_path):  # case A-08
    path = write(tmp_path, table())
    with open(path, "rb") as file:
        whole = file.read()
    for i in range(20):
        cut = whole[: len(whole) * i // 20]
        with open(path, "wb") as file:
            file.write(cut)
        with pytest.raises(BadInput):
            store.load_table(path)
        saved = store.save_table(path, table())
        assert len(saved.notes) == 1
        assert store.load_table(path) == table()
    aside = [name for name in os.listdir(tmp_path) if ".broken-" in name]
    assert len(aside) == 20


def test_a_newer_table_is_set_aside_whole(tmp_path):
    path = write(tmp_path, table())
    edited(path, lambda d: d.update(schema="advisor.table/2.0"))
    with pytest.raises(SchemaError, match="newer"):
        store.load_table(path)
    saved = store.save_table(path, table())
    assert "newer" in saved.notes[0]
    assert [name for name in os.listdir(tmp_path) if ".newer-" in name]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0, None, "1.0"])
def test_times_that_make_no_sense_are_refused(tmp_path, value):
    path = write(tmp_path, table())

    def spoil(document):
        document["sections"][0]["rows"][0]["points"][0]["summary"]["p25_ns"] = value

    edited(path, spoil)
    with pytest.raises(BadInput):
        store.load_table(path)


def test_a_table_with_times_that_make_no_sense_is_not_written(tmp_path):
    (section,) = table().sections
    (point, *rest) = section.default_points
    bad = section._replace(default_points=(point._replace(summary=point.summary._replace(p25_ns=-1.0)), *rest))
    with pytest.raises(BadInput, match="above zero"):
        write(tmp_path, table(sections=(bad,)))
    assert not os.path.exists(tmp_path / "decode.table.json")


def test_a_hand_edited_table_is_refused(tmp_path):
    path = write(tmp_path, table())
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace('"threads": 4', '"threads": 3'))
    with pytest.raises(BadInput, match="changed after it was written"):
        store.load_table(path)


def test_unknown_fields_are_kept(tmp_path):
    path = write(tmp_path, table())

    def add(document):
        document["schema"] = "advisor.table/1.7"
        document["colour"] = "blue"
        document["sections"][0]["mood"] = {"a": [1, 2]}
        document["sections"][0]["rows"][0]["note"] = "x"

    edited(path, add)
    other = learn(machine(), [race(64, {FOUR: 4.0, ONE: 1.0}, heads=8)], [], MADE)
    store.save_table(path, other)
    document = tablefile.read_table(path)
    old = next(s for s in document["sections"] if s["shape"]["heads"] == 32)
    assert (document["colour"], old["mood"], old["rows"][0]["note"]) == ("blue", {"a": [1, 2]}, "x")


@pytest.mark.parametrize("change", [{"hardware_id": "other"}, {"limits_id": "other"}, {"kernel": "forward"}])
def test_another_machine_s_file_is_set_aside_and_not_overwritten(tmp_path, change):
    path = write(tmp_path, table(**change))
    saved = store.save_table(path, table())
    assert store.load_table(path) == saved.table == table()
    assert "one kernel of one machine" in saved.notes[0]
    (aside,) = tmp_path.glob("*.foreign-*")
    assert store.load_table(str(aside)) == store.with_id(table(**change))
    with pytest.raises(BadInput, match="one kernel of one machine"):
        store.merge(table(**change), table())


def test_a_held_lock_is_reported(tmp_path):
    path = write(tmp_path, table())
    with FileLock(f"{path}.lock"), pytest.raises(Busy, match="one writer at a time"):
        store.save_table(path, table(), lock_limit_s=0.05)


def test_the_tables_of_a_folder_are_listed_with_what_is_wrong(tmp_path):
    write(tmp_path, table())
    (tmp_path / "broken.table.json").write_text("{")
    bad, good = store.tables(str(tmp_path))
    assert bad.table is None
    assert "JSON" in bad.note
    assert good.table == table()
    assert store.tables(str(tmp_path / "absent")) == ()


def test_a_missing_table_is_missing(tmp_path):
    with pytest.raises(Missing):
        store.load_table(str(tmp_path / "x.table.json"))


def test_the_id_speaks_of_the_content_alone():
    one = store.with_id(table())
    assert one.table_id == tablefile.content_id({**codec.to_json(table()), "schema": "advisor.table/1.9"})
    assert store.with_id(table(kernel="forward")).table_id != one.table_id

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading

import pytest

from advisor.errors import BadInput, Busy, Missing, SchemaError
from advisor.search import log as module
from advisor.search.log import SCHEMA, Log, file_system, is_network, of_sessions, read, set_aside

SESSION = {"kind": "session", "schema": SCHEMA, "session": "s"}


def write(path, count=5):
    with Log(str(path)) as log:
        log.append(SESSION)
        for k in range(count):
            log.append({"kind": "race", "session": "s", "round": k, "sample_ns": 1.5 * k})
    return path


def test_records_come_back_in_order(tmp_path):
    found = read(str(write(tmp_path / "deep" / "m.jsonl")))
    assert found.notes == ()
    assert [r.get("round") for r in found.records] == [None, 0, 1, 2, 3, 4]


def test_a_log_torn_at_any_of_twenty_places_still_loads(tmp_path):
    whole = write(tmp_path / "m.jsonl", 20).read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for k in range(20):
        cut = len(whole) - 1 - k * 67
        torn = tmp_path / f"torn{k}.jsonl"
        torn.write_bytes(whole[:cut])
        found = read(str(torn))
        complete = sum(end <= cut + 1 for end in ends)  # a whole last line without its newline is a whole record
        assert len(found.records) == complete
        assert bool(found.notes) == (cut not in ends and cut + 1 not in ends)


def test_appending_after_a_tear_loses_nothing_but_the_torn_line(tmp_path):
    path = write(tmp_path / "m.jsonl", 3)
    path.write_bytes(path.read_bytes()[:-7])
    write(path, 2)
    found = read(str(path))
    assert [r.get("round") for r in found.records] == [None, 0, 1, None, 0, 1]
    assert len(found.notes) == 1
    assert "damaged" in found.notes[0]


def test_unknown_kinds_are_skipped_and_newer_minors_read_with_a_note(tmp_path):
    path = tmp_path / "m.jsonl"
    newer = {**SESSION, "schema": "advisor.measurements/1.7", "mood": "good"}
    path.write_text("\n".join(map(json.dumps, ({"kind": "weather"}, newer, [1]))) + "\n")
    found = read(str(path))
    assert found.records == (newer,)
    assert len(found.notes) == 3
    assert "weather" in found.notes[0]
    assert "1.7" in found.notes[1]


def test_a_newer_major_and_another_schema_are_refused(tmp_path):
    for schema in ("advisor.measurements/2.0", "advisor.table/1.0", "advisor.measurements/1.x"):
        path = tmp_path / "m.jsonl"
        path.write_text(json.dumps({**SESSION, "schema": schema}) + "\n")
        with pytest.raises(SchemaError):
            read(str(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(Missing, match="nothing"):
        read(str(tmp_path / "nothing.jsonl"))


def test_what_is_not_a_record_is_refused_and_leaves_no_trace(tmp_path):
    log = Log(str(tmp_path / "m.jsonl"))
    for bad in ({"kind": "weather"}, {}, {"kind": "race", "sample_ns": float("nan")}):
        with pytest.raises(BadInput):
            log.append(bad)
    log.close()
    log.close()
    with pytest.raises(BadInput):
        log.append(SESSION)
    assert (tmp_path / "m.jsonl").read_bytes() == b""


def test_one_write_a_record_and_synced_by_the_end(tmp_path, monkeypatch):
    writes, syncs = [], []
    true_write, true_sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: (writes.append(data), true_write(fd, data))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (syncs.append(len(writes)), true_sync(fd))[1])
    write(tmp_path / "m.jsonl", 4)
    assert len(writes) == 5
    assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)
    assert syncs[-1] == 5


def test_a_record_is_synced_without_anybody_asking(tmp_path, monkeypatch):
    synced = threading.Event()
    monkeypatch.setattr("advisor.search.log.SYNC_S", 0.01)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.set())
    with Log(str(tmp_path / "m.jsonl")) as log:
        log.append(SESSION)
        assert synced.wait(10)


def test_two_writers_at_once_lose_nothing(tmp_path):
    path = str(tmp_path / "m.jsonl")

    def work(name):
        with Log(path) as log:
            for k in range(200):
                log.append({"kind": "race", "session": name, "round": k, "text": "x" * 300})

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(path)
    assert found.notes == ()
    for name in "ab":
        assert [r["round"] for r in found.records if r["session"] == name] == list(range(200))


@pytest.mark.parametrize(
    "damage",
    [
        b"[" * 300_000,
        b"\0" * 4096,
        b'{"kind": "session"}',
        b'{"kind": "session", "schema": 5}',
        b'{"kind": "verdict", "session": [1]}\n5\nnull\n"x"',
    ],
    ids=["deep", "zeros", "bare session", "odd schema", "odd values"],
)
def test_damage_costs_its_own_lines_only(tmp_path, damage):
    path = write(tmp_path / "m.jsonl")
    with open(path, "ab") as file:
        file.write(damage + b"\n")
    write(path)
    found = read(str(path))
    assert found.notes
    assert len(of_sessions(found.records, ["s"])) == 12


def test_thousands_of_damaged_lines_are_few_notes(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text("x\n" * 5000)
    notes = read(str(path)).notes
    assert len(notes) < 10
    assert notes[-1].endswith(f"{5000 - len(notes) + 1} more such lines")


def test_a_pipe_in_the_place_of_a_log_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="regular file"):
        read(str(tmp_path / "pipe"))
    with pytest.raises(BadInput, match="regular file"):
        Log(str(tmp_path / "pipe"))


# --- case O-01: many writers, and disks that other machines write to ---

JOIN = """
import sys
from advisor.search.log import SCHEMA, Log
path, name = sys.argv[1:]
sys.stdin.readline()  # all at once
with Log(path) as log:
    log.append({"kind": "session", "schema": SCHEMA, "session": name})
    for k in range(50):
        log.append({"kind": "race", "session": name, "round": k, "text": "x" * 300})
"""


def test_o01_six_processes_that_begin_a_log_at_once_lose_nothing(tmp_path):
    path = str(tmp_path / "machines" / "m.jsonl")
    command = [sys.executable, "-c", JOIN, path]
    running = [subprocess.Popen([*command, name], stdin=subprocess.PIPE) for name in "abcdef"]
    for one in running:
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert [one.wait(timeout=60) for one in running] == [0] * 6
    for one in running:
        one.stdin.close()
    found = read(path)
    assert found.notes == ()
    for name in "abcdef":
        assert [r["round"] for r in found.records if r["session"] == name and r["kind"] == "race"] == list(range(50))


MOUNTS = r"""/dev/root / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/ada/fast\040disk xfs rw 0 0
tmpfs /home/bob tmpfs rw 0 0
server:/b /home/bob nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x.jsonl", "ext4", False),
        ("/home/ada/x.jsonl", "nfs4", True),
        ("/home/ada/fast disk/x.jsonl", "xfs", False),
        ("/home/bob/x.jsonl", "nfs", True),  # mounted later, on top
        ("/homely", "ext4", False),
    ],
)
def test_o01_the_file_system_of_a_path_is_that_of_the_nearest_mount(path, kind, network, tmp_path):
    (tmp_path / "mounts").write_text(MOUNTS)
    found = file_system(path, str(tmp_path / "mounts"))
    assert (found, is_network(found)) == (kind, network)
    assert file_system(path, str(tmp_path / "none")) is None


def test_o01_on_a_network_disk_one_machine_at_a_time_writes_and_the_other_is_told(tmp_path, monkeypatch):
    path = str(tmp_path / "m.jsonl")
    monkeypatch.setattr(module, "file_system", lambda _: "nfs4")
    monkeypatch.setattr(module, "WRITER_WAIT_S", 0.0)
    with Log(path) as log:
        read(path)  # a reader that closes the file does not end the lock
        with pytest.raises(Busy, match="ADVISOR_HOME"):
            Log(path)
        log.append(SESSION)
    write(tmp_path / "m.jsonl")  # the other one has ended
    assert read(path).notes == ()


def test_o01_a_network_disk_without_locks_is_refused(tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module, "file_system", lambda _: "nfs")
    monkeypatch.setattr(fcntl, "flock", refuses)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadInput, match=r"No locks available.*ADVISOR_HOME"):
        Log(str(tmp_path / "m.jsonl"))
    assert len(os.listdir("/proc/self/fd")) == before


# --- a full disk ---


def test_a_disk_that_fills_within_a_record_leaves_a_log_that_loads_and_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "m.jsonl"
    true_write = os.write
    with Log(str(path)) as log:
        log.append(SESSION)
        monkeypatch.setattr(os, "write", lambda fd, data: true_write(fd, data[: len(data) // 2]))
        with pytest.raises(OSError, match="is it full"):
            log.append({"kind": "race", "session": "s", "round": 0})
    monkeypatch.undo()
    found = read(str(path))
    assert [r["kind"] for r in found.records] == ["session"]
    assert ["torn last line" in note for note in found.notes] == [True]
    write(path, 2)
    assert [r.get("round") for r in read(str(path)).records] == [None, None, 0, 1]


def test_a_disk_that_fails_behind_our_back_ends_the_next_record(tmp_path, monkeypatch):
    """A late failure is told by fsync alone, on the timer's thread: it must not be lost there."""
    failed = threading.Event()

    def full(_descriptor):
        failed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "SYNC_S", 0.01)
    monkeypatch.setattr(os, "fsync", full)
    log = Log(str(tmp_path / "m.jsonl"))
    log.append(SESSION)
    assert failed.wait(10)
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)
    with pytest.raises(OSError, match="No space left"):
        log.append(SESSION)
    with pytest.raises(OSError, match="No space left"):
        log.close()
    log.close()


# --- case O-03: what a newer program left ---


def test_o03_a_log_of_a_newer_program_is_set_aside_whole_and_never_added_to(tmp_path):
    path = tmp_path / "m.jsonl"
    for count in range(3):
        newer = write(path).read_bytes().replace(SCHEMA.encode(), b"advisor.measurements/99.0")
        path.write_bytes(newer)
        note = set_aside(str(path))
        assert "newer" in note
        assert not path.exists()
        assert (tmp_path / f"m.jsonl.newer{f'.{count}' if count else ''}").read_bytes() == newer
    assert set_aside(str(path)) == ""
    write(path)
    assert set_aside(str(path)) == ""
    assert path.exists()


def test_a_log_is_read_once_until_something_is_written(tmp_path):
    path = str(tmp_path / "log")
    with Log(path) as log:
        log.append({"kind": "trial", "i": 1})
        first = read(path)
        assert read(path) is first
        log.append({"kind": "trial", "i": 2})
        assert [record["i"] for record in read(path).records] == [1, 2]
    with open(path, "a", encoding="utf-8") as file:  # by another program
        file.write('{"kind": "trial", "i": 3}\n')
    assert [record["i"] for record in read(path).records] == [1, 2, 3]
    os.unlink(path)
    with pytest.raises(Missing):
        read(path)

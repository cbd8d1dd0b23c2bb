"""One tuner at a time on a machine (cases A-05, O-01): who waits, for whom, and what ends a wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import signal
import subprocess
import sys
import time

import pytest

from advisor import turn
from advisor.errors import BadInput, Busy

HOLD = """
import sys
from advisor.turn import alone
with alone(None, 0.0):
    print("held", flush=True)
    sys.stdin.read()
"""


class Heard:
    """Progress that remembers what it was told."""

    def __init__(self):
        self.stages = []

    def stage(self, name, total):
        self.stages.append(name)

    def advance(self, text):
        pass

    def seconds_left(self, seconds):
        pass


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


@contextlib.contextmanager
def another_tuner(**how):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how
    ) as running:
        try:
            assert running.stdout.readline() == "held\n"
            yield running
        finally:
            running.kill()


def test_a05_the_second_tuner_is_told_who_holds_the_machine_and_waits(folder):
    heard = Heard()
    with another_tuner() as other:
        with pytest.raises(Busy, match=f"process {other.pid}.*kill {other.pid}.*ADVISOR_LOCK"), turn.alone(heard, 0.0):
            pytest.fail("both hold it")
        me = pwd.getpwuid(os.getuid()).pw_name
        (said,) = heard.stages
        assert f"process {other.pid}, of user {me}, since " in said
        assert f"`{os.path.basename(sys.executable)}" in said or f"`{sys.executable} -c" in said
        other.stdin.close()
        with turn.alone(heard, 30.0):  # it ends now, and its lock with it
            assert len(heard.stages) <= 2
    with turn.alone(heard, 0.0):
        pass


def test_a05_a_killed_owner_holds_nothing(folder):
    with another_tuner() as other:
        other.kill()
        other.wait()
        with turn.alone(Heard(), 0.0):
            assert os.listdir(folder) == [turn.NAME]


def test_a05_an_owner_that_stands_still_is_named_as_such(folder):
    with another_tuner() as other:
        os.kill(other.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED)
        with pytest.raises(Busy, match=rf"stopped.*kill -CONT {other.pid}"), turn.alone(Heard(), 0.0):
            pytest.fail("both hold it")


def test_a05_what_an_owner_starts_does_not_inherit_the_lock(folder):
    with turn.alone(Heard(), 0.0):
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        with turn.alone(Heard(), 20.0):  # an exec closes its descriptors a moment after it let its parent go on
            assert left.poll() is None
    finally:
        left.kill()
        left.wait()


@pytest.mark.parametrize("owner", ["this user", "another user"])
def test_a05_a_lock_that_can_only_be_read_is_a_lock(folder, owner):
    """Made by another user, in a folder that is read-only by now."""
    folder.mkdir()
    path = folder / turn.NAME
    path.touch(mode=0o444)
    if owner == "another user":
        if os.getuid():
            pytest.skip("only root can give a file away")
        os.chown(path, 65534, 65534)
    folder.chmod(0o555)
    with another_tuner() as other, pytest.raises(Busy, match=str(other.pid)), turn.alone(Heard(), 0.0):
        pytest.fail("both hold it")
    folder.chmod(0o755)
    assert path.read_bytes() == b""


def test_a05_a_lock_made_by_root_holds_for_everybody(folder):
    folder.parent.chmod(0o755)
    with turn.alone(Heard(), 0.0):
        assert os.stat(folder / turn.NAME).st_mode & 0o777 == 0o444
        descriptor = os.open(folder / turn.NAME, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_folders_that_cannot_be_used_are_left_out(tmp_path, monkeypatch):
    monkeypatch.delenv("ADVISOR_LOCK")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    good = tmp_path / "good"
    good.mkdir()
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / turn.NAME)
    (tmp_path / "link").mkdir()
    os.symlink("/etc/passwd", tmp_path / "link" / turn.NAME)
    bad = ("/proc/nowhere", str(tmp_path / "pipe"), str(tmp_path / "link"))
    monkeypatch.setattr(turn, "FOLDERS", (*bad, str(good)))
    with turn.alone(Heard(), 0.0), pytest.raises(Busy), turn.alone(Heard(), 0.0):
        pytest.fail("both hold it")
    assert not (tmp_path / "home").exists()
    monkeypatch.setattr(turn, "FOLDERS", bad)
    with turn.alone(Heard(), 0.0), pytest.raises(Busy), turn.alone(Heard(), 0.0):
        pytest.fail("both hold it")
    assert os.listdir(tmp_path / "home") == [turn.NAME]


def test_a_file_system_without_locks_is_left_out_and_a_named_one_refused(folder, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(BadInput, match=r"ADVISOR_LOCK"), turn.alone(Heard(), 0.0):
        pytest.fail("there is no lock")


def test_all_shared_folders_are_locked_or_none(tmp_path, monkeypatch):
    """Whoever holds one of them holds the machine; nobody keeps a part of it while waiting."""
    monkeypatch.delenv("ADVISOR_LOCK")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(turn, "FOLDERS", (str(first), str(second)))
    with another_tuner(env={**os.environ, "ADVISOR_LOCK": str(second)}):
        with pytest.raises(Busy), turn.alone(Heard(), 0.0):
            pytest.fail("both hold it")
        monkeypatch.setattr(turn, "FOLDERS", (str(first),))
        with turn.alone(Heard(), 0.0):
            pass


@pytest.mark.parametrize("locks", ["", "1: FLOCK  ADVISORY  WRITE 0 00:00:1 0 EOF\n", "rubbish\n"])
def test_a_holder_that_cannot_be_seen_is_not_made_up(tmp_path, locks):
    (tmp_path / "locks").write_text(locks)
    with open(tmp_path / "locks", "rb") as file:
        found = turn.holder_of(file.fileno(), str(tmp_path))
    assert found == turn.UNSEEN
    assert "another container" in turn.words(found)


def test_a_hidden_process_is_named_by_its_number_and_an_odd_command_cannot_write_to_a_terminal(tmp_path):
    path = tmp_path / "locks"
    path.touch()
    path.write_text(f"1: FLOCK  ADVISORY  WRITE 4711 ff:ff:{path.stat().st_ino} 0 EOF\n")
    with open(path, "rb") as file:
        assert turn.words(turn.holder_of(file.fileno(), str(tmp_path))) == "process 4711"
        (tmp_path / "4711").mkdir()
        (tmp_path / "4711" / "cmdline").write_text("advisor\0tune\0\x1b[2J" + "x" * 500 + "\0")
        said = turn.words(turn.holder_of(file.fileno(), str(tmp_path)))
    assert "`advisor tune ?[2Jx" in said
    assert len(said) < 200


def test_waiting_takes_no_longer_than_told(folder):
    with another_tuner():
        begun = time.monotonic()
        with pytest.raises(Busy), turn.alone(Heard(), 0.3):
            pytest.fail("both hold it")
        assert time.monotonic() - begun >= 0.3

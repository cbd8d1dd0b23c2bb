"""Ctrl-C at any moment is one line and a status, and the line is true of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import typer

from advisor import guard, start


class _Interrupted:
    """Import machinery at the moment of Ctrl-C."""

    def find_spec(self, name, _path=None, _target=None):
        if name == "advisor.cli":
            raise KeyboardInterrupt


def test_ctrl_c_while_the_libraries_are_imported(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "advisor.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        start.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (guard.PARTLY, "")
    assert err.startswith("advisor: interrupted")
    assert err.count("\n") == 1


def test_the_command_is_that_of_the_command_line(monkeypatch):
    monkeypatch.setattr("advisor.cli.main", lambda: sys.exit(17))
    with pytest.raises(SystemExit) as end:
        start.main()
    assert end.value.code == 17


@pytest.mark.parametrize(("raised", "status"), [(130, guard.PARTLY), (0, 0), (2, 2)])
def test_an_interrupt_while_words_are_read_says_so_too(raised, status, capsys):
    def app(**_options):
        sys.exit(raised)

    with pytest.raises(SystemExit) as end:
        guard.run(app)
    assert end.value.code == status
    assert ("interrupted" in capsys.readouterr().err) == (status == guard.PARTLY)


@pytest.mark.parametrize(
    ("command", "said"),
    [("tune", "--resume"), ("verify", "--variant"), ("probe", "run it again"), (None, "run it again")],
)
def test_the_line_of_an_interrupted_command_speaks_of_that_command(command, said):
    assert said in guard.interrupted(command)
    assert ("--resume" in guard.interrupted(command)) == (command == "tune")


def test_an_interrupted_command_says_so_by_its_name(capsys):
    app = typer.Typer(cls=guard.Guarded)

    @app.command()
    def verify():
        raise KeyboardInterrupt

    @app.command()
    def tune():
        pass

    with pytest.raises(SystemExit) as end:
        app(["verify"], standalone_mode=True)
    assert end.value.code == guard.PARTLY
    assert guard.interrupted("verify") in capsys.readouterr().err


BEGIN = """
import signal, sys
from advisor.start import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs ignore it
sys.argv = ["advisor", "doctor"]
print(flush=True)
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.02, 0.2])
def test_a_polite_signal_in_the_first_moments_is_one_line(number, after_s):
    command = [sys.executable, "-c", BEGIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.readline()
        time.sleep(after_s)
        os.kill(running.pid, number)
        err = running.communicate(timeout=60)[1]
    assert running.returncode == guard.PARTLY, err
    assert err.startswith("advisor: interrupted"), err
    assert err.count("\n") == 1

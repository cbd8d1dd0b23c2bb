"""The checks of one submission: what fails ends them, with its status, and nothing goes on behind their back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
APT = "#!/bin/sh\necho $$ >>pids.new && mv pids.new pids\nsleep {seconds}\n"
MAKE = """#!/bin/sh
until [ -s pids ]; do sleep 0.02; done
echo "make $1" >>told
[ "$1" != {fails} ] || exit 7
"""


def alive(pid):
    """Whether a process is there and is not one that merely waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ran(tmp_path, fails, apt_s):
    """The script's status with a make of which one target fails, and an apt-get that takes so many seconds."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {
        "apt-get": APT.format(seconds=apt_s),
        "make": MAKE.format(fails=fails),
        "id": "#!/bin/sh\necho 0\n",
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    own = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": sys.executable}
    run = [str(tmp_path / ".ci" / "run")]
    return subprocess.run(run, env=own, timeout=30, stdout=subprocess.DEVNULL, check=False).returncode


@pytest.mark.parametrize("fails", [".venv/.ready-dev", "lint"])
def test_what_fails_ends_the_packages_that_are_still_on_their_way(tmp_path, fails):
    try:
        assert ran(tmp_path, fails, 60) == 7
        made = (tmp_path / "told").read_text().splitlines()
        assert f"make {fails}" in made
        assert "make test" not in made
        assert [pid for pid in (tmp_path / "pids").read_text().split() if alive(pid)] == []
    finally:
        with suppress(FileNotFoundError):
            for pid in (tmp_path / "pids").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)


@pytest.mark.parametrize(("fails", "status"), [("nothing", 0), ("test", 7)])
def test_the_tests_come_last_and_say_how_it_ends(tmp_path, fails, status):
    assert ran(tmp_path, fails, 0.1) == status
    assert (tmp_path / "told").read_text().splitlines()[-1] == "make test"

"""What the tests of the command share: the real command in a process of its own, with folders of its own."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from typing import NamedTuple

ADVISOR = [sys.executable, "-m", "advisor.cli"]
SCALE = (
    "--kernel",
    "scale",
    "--kernel-dir",
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "kernels"),
)


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class Site(NamedTuple):
    """The folders of one test: results of its own, compiled variants shared by all tests."""

    home: str
    cache: str

    def environment(self, **changes):
        """The environment of a command; None removes a variable."""
        merged = {**os.environ, "ADVISOR_HOME": self.home, "ADVISOR_CACHE": self.cache, **changes}
        return {name: value for name, value in merged.items() if value is not None}

    def start(self, *words, **changes):
        """The command, running, in a process group of its own."""
        return subprocess.Popen(
            [*ADVISOR, *words],
            env=self.environment(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def advisor(self, *words, **changes):
        """The command, run to its end."""
        done = subprocess.run(
            [*ADVISOR, *words], env=self.environment(**changes), capture_output=True, timeout=120, check=False
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def shell(self, line, **changes):
        """A line for bash in which $ADVISOR is the command."""
        environment = self.environment(ADVISOR=" ".join(ADVISOR), **changes)
        done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, timeout=120, check=False)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def file(self, name):
        """The path of a file of this machine's folder."""
        (found,) = glob.glob(os.path.join(self.home, "machines", "*", name))
        return found

    def log(self):
        """The records of the log."""
        with open(self.file("measurements.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def workers_of(pid):
    """Process ids of the bench workers that a tuner started; they carry its id as their last argument."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"advisor.kernels.worker" in words and str(pid).encode() in words:
            found.append(int(path.split("/")[2]))
    return found

"""Ask another program, for a limited time: a wedged driver or a hanging tool must not hang the probe."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence


def ask(argv: Sequence[str], limit_s: float) -> str | None:
    """Standard output of a command run in the C locale; None when it is missing, fails, or is not done in time.

    A child that does not even die when it is killed (stuck inside a driver) is left behind, not waited for.

    Args:
        argv: program and arguments; no shell.
        limit_s: seconds to wait.
    """
    env = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    try:
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return None
    try:
        output, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _abandon(child)
        return None
    except ValueError:  # not text
        return None
    return output if child.returncode == 0 else None


def _abandon(child: subprocess.Popen[str]) -> None:
    child.kill()
    if child.stdout is not None:
        child.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=0.2)


def ask_python(script: str, limit_s: float) -> str | None:
    """Standard output of a Python file, or of a program text after `-c`, run by this interpreter.

    `-P` keeps the file's folder out of the module path: `array.py` there would hide the standard one.
    """
    where = [script] if script.endswith(".py") else ["-c", script]
    return ask([sys.executable, "-P", *where], limit_s)

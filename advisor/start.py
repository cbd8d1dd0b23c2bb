"""Where the `advisor` command begins: what comes before the libraries of the command line are imported.

They take a few tenths of a second, and Ctrl-C may come before `advisor.guard` is there to answer it.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar

STATUS = 3
"""Exit status of an interrupted run, as `advisor.guard.PARTLY`, which is not imported yet."""


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def polite() -> None:
    """SIGTERM and SIGHUP end the program like Ctrl-C from here on."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and means it
            signal.signal(number, _interrupt)


BEGUN: ContextVar[float | None] = ContextVar("BEGUN", default=None)
"""When the command under way began, on the monotonic clock: budgets count from then. None where there is no command."""


def main() -> None:
    """Entry point of the `advisor` command."""
    before = BEGUN.set(time.monotonic())
    try:
        _command()()
    finally:
        BEGUN.reset(before)


def _command() -> Callable[[], None]:
    """The command line, imported; ends the program where that is interrupted."""
    try:
        polite()
        from advisor.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("advisor: interrupted before it began; nothing was written\n")
        sys.exit(STATUS)
    return command

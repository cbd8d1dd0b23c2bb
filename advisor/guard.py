"""What stands around every command: no traceback reaches a user, and one line says what went wrong and what next.

ADVISOR_DEBUG=1 lets exceptions through, for those who mend advisor itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from advisor import start
from advisor.errors import AdvisorError

DONE, FAILED, USAGE, PARTLY = 0, 1, 2, 3

_SILENT = 130
"""How the command-line library ends, without a word, when Ctrl-C comes while it still reads the words of a command."""

KEPT = {
    "tune": "what was measured is kept, `advisor tune --resume` goes on",
    "validate": "nothing was kept, a smaller --budget takes less time",
    "verify": "nothing was kept, --variant and --dtype take a part of it",
}
"""What becomes of an interrupted command's work, and the next step. The others are done in a moment: run them again."""

_PLACES = "check space, permissions and limits there; ADVISOR_HOME, ADVISOR_CACHE and TMPDIR name other folders"


def say(text: str) -> None:
    """One line to standard error. Nobody may be listening there, and no run ends for that."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(text, err=True)


def interrupted(command: str | None) -> str:
    """What is said when Ctrl-C or a polite signal ended a command, or came before one was known (None)."""
    return f"interrupted; {KEPT.get(command or '', 'nothing was changed, run it again')}"


def one_line(text: str) -> str:
    """A text with its lines joined, so that a log has one line an error."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())


class Guarded(TyperGroup):
    """The command group; what a command raises becomes a line on standard error and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say(f"advisor: {interrupted(ctx.invoked_subcommand)}")
            raise typer.Exit(PARTLY) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or os.environ.get("ADVISOR_DEBUG"):
                raise  # the exit status and the usage errors of the command-line library itself
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever read our results has closed the pipe: a quiet end
            say(f"advisor: {one_line(reason(error))}")
            raise typer.Exit(FAILED) from None


def reason(error: Exception) -> str:
    """What an exception says to a user: what is wrong, and the next step."""
    if isinstance(error, AdvisorError):
        return str(error)
    if isinstance(error, OSError):
        return f"the system refused: {error}; {_PLACES}"
    if isinstance(error, MemoryError):
        return "out of memory; free some, or raise the limit (ulimit -v, the control group's)"
    kind = type(error).__name__
    return f"this should not happen ({kind}: {error}); please report it with what ADVISOR_DEBUG=1 prints"


def run(app: Callable[..., Any]) -> None:
    """Run the app as a process: tolerant streams, and a polite end by SIGTERM or SIGHUP like one by Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a sign shows its number
            stream.reconfigure(errors="backslashreplace")
    start.polite()
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        say(f"advisor: {interrupted(None)}")
        sys.exit(PARTLY)
    except SystemExit as end:
        if end.code != _SILENT:
            raise
        say(f"advisor: {interrupted(None)}")
        sys.exit(PARTLY)
    finally:
        _flush()


def _flush() -> None:
    """Flush now. What cannot be written goes nowhere, or the interpreter would complain about it on its way out."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nothing, stream.fileno())
            os.close(nothing)

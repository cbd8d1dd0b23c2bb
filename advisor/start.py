"""Where the `advisor` command begins: what comes before the libraries of the command line are imported.

They take a few tenths of a second, and Ctrl-C may come before `advisor.guard` is there to answer it.
"""

from __future__ import annotations

import sys

STATUS = 3
"""Exit status of an interrupted run, as `advisor.guard.PARTLY`, which is not imported yet."""


def main() -> None:
    """Entry point of the `advisor` command."""
    try:
        from advisor.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("advisor: interrupted before it began; nothing was written\n")
        sys.exit(STATUS)
    command()

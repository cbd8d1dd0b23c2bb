"""Tables of text for people, drawn with what standard output can show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


WIDE = 180
"""Columns of a table with a column a size, where there is no terminal to say otherwise."""

_LEAST = 40
"""Columns below which a table is not squeezed: at a few of them Rich draws nothing at all."""


def table() -> Table:
    """An empty table with a rule below its head."""
    from rich import box
    from rich.table import Table

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "\N{BOX DRAWINGS LIGHT HORIZONTAL}".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return Table(box=box.ASCII2, show_edge=False, pad_edge=False)
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def sign(name: str) -> str:
    """A sign by its name, or plain letters where standard output cannot show it."""
    wanted, plain = {"plus or minus": ("\N{PLUS-MINUS SIGN}", "+-")}[name]
    try:
        wanted.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return wanted


def rendered(drawn: Table, elsewhere: int = 120) -> str:
    """The text of a Rich table at the width of the terminal, so many columns where there is none.

    Never so narrow that a word is cut: figures that a small terminal wraps can be read, those replaced by dots cannot.
    """
    from rich.console import Console

    width = max(_LEAST, Console().width) if sys.stdout is not None and sys.stdout.isatty() else elsewhere
    text = _at(drawn, width)
    while "\N{HORIZONTAL ELLIPSIS}" in text and width < WIDE:
        width += 8
        text = _at(drawn, width)
    return text


def _at(drawn: Table, width: int) -> str:
    """The text of a Rich table, so many columns wide."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, no_color=True, highlight=False)
    console.print(drawn)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def rows(columns: Sequence[str], cells: Sequence[Sequence[str]], right: int = 0) -> str:
    """A whole table; from column `right` on, cells are aligned to the right (none: a number past the last)."""
    drawn = table()
    for index, name in enumerate(columns):
        drawn.add_column(name, justify="right" if index >= right else "left")
    for line in cells:
        drawn.add_row(*line)
    return rendered(drawn, elsewhere=WIDE)

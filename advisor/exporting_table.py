"""A deployment table as text for other programs and for people: JSON as its file has it, CSV, Markdown."""

from __future__ import annotations

import csv
import io

from advisor import codec
from advisor.policy.differ import COLUMNS, lines
from advisor.records import Table


def text(table: Table, output: str) -> str:
    """The text of a table.

    Args:
        output: json, csv or markdown.
    """
    return {"json": _json, "csv": _csv, "markdown": _markdown}[output](table)


def _json(table: Table) -> str:
    return codec.dumps(table, "table", indent=1) + "\n"


def _csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines(table))
    return file.getvalue()


def _markdown(table: Table) -> str:
    def cell(value: object) -> str:
        return "" if value is None else str(value).replace("|", "\\|")

    rows = [[cell(line[name]) for name in COLUMNS] for line in lines(table)]
    told = [list(COLUMNS), ["---"] * len(COLUMNS), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in told)

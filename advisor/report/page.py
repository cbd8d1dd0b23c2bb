"""A report as one HTML file: every text that came from a file is escaped, nothing is loaded from anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from advisor.report.assets import SCRIPT, STYLE
from advisor.report.figures import Figure

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the page may do: run and style what it holds itself. Nothing may be loaded or sent."""


class Part(NamedTuple):
    """A chapter: an id of the page, its title, and HTML below it."""

    name: str
    title: str
    body: str


class Page(NamedTuple):
    """A whole report: title, a line below it, chapters, and the figures that they hold."""

    title: str
    about: str
    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]


def html(page: Page, plotly: str) -> str:
    """The file's text.

    Args:
        page: what stands on it.
        plotly: the source of plotly.js.
    """
    links = "".join(f'<li><a href="#{part.name}">{escape(part.title)}</a></li>' for part in page.parts)
    chapters = "\n".join(
        f'<section id="{part.name}"><h2>{escape(part.title)}</h2>\n{part.body}</section>' for part in page.parts
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f'<header><h1>{escape(page.title)}</h1><p class="soft">{escape(page.about)}</p>'
        f"<nav><ul>{links}</ul></nav></header>\n<main>\n{chapters}\n</main>\n"
        f'<script type="application/json" id="figures">{data(page.figures)}</script>\n'
        f"<script>{plotly}</script>\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


def data(figures: Iterable[Figure]) -> str:
    """Figures as JSON in which nothing ends a script element."""
    told = [{"name": one.name, "data": one.data, "layout": one.layout} for one in figures]
    text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def figures(found: Sequence[Figure], wide: Sequence[str] = ()) -> str:
    """Places for figures, those named in `wide` over the whole width."""
    cards = [
        f'<div class="figure{" wide" if one.name in wide else ""}"><h3>{escape(one.title)}</h3>'
        f'<p class="soft">{escape(one.about)}</p><div class="plot" id="{one.name}"></div></div>'
        for one in found
    ]
    return f'<div class="figures">{"".join(cards)}</div>\n'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of texts; columns in `numbers` are aligned to the right."""
    kinds = [' class="number"' if i in numbers else "" for i in range(len(head))]
    top = "".join(f"<th{kind}>{escape(word)}</th>" for kind, word in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(word)}</td>" for kind, word in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>\n'


def paragraph(text: str, kind: str = "") -> str:
    """One paragraph."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>\n"


def points(lines: Iterable[str]) -> str:
    """A list of sentences; nothing of none."""
    found = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{found}</ul>\n" if found else ""

"""The picture as SVG: nested boxes in the colours that lstopo's users know, without scripts or outside references.

Every box is drawn, none is counted. Threads in reach are white, those out of reach red, holes dashed; the threads of a
placement are green, with the number of their worker on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from advisor.records import Machine
from advisor.topology.boxes import Box, Core, Thread, boxes, tail
from advisor.topology.facts import facts, head, team_line
from advisor.topology.files import span
from advisor.words import many

FONT = 12.0
LETTER = 7.3
"""Width of one letter of the monospaced font at this size, in pixels; a little more than any such font needs."""

LINE, GAP, RADIUS = 16.0, 8.0, 3.0
ASPECT = 4 / 3
"""Width over height that groups are arranged for, as lstopo does."""

COLOURS = {"socket": "#dedede", "die": "#dedede", "numa": "#efdfde", "l3": "#ffffff", "cluster": "#f2f2f2"}
CORE, REACH, OUT, HOLE, WORKER = "#bebebe", "#ffffff", "#f08080", "#ffffff", "#7bdc7b"
"""Sources: hwloc utils/lstopo/lstopo-draw.c for cores, packages and nodes; red and green as there for forbidden and
running."""

SCOPE = "advisor-machine"
"""Class of the drawing: its style says nothing of other drawings on the same page."""

_STYLE = (
    f".{SCOPE} text{{font:{FONT:g}px monospace;fill:#000}}"
    f".{SCOPE} rect{{stroke:#000;stroke-width:1}}"
    f".{SCOPE} .hole{{stroke-dasharray:3 3;stroke:#888}}"
    f".{SCOPE} .worker{{font-weight:bold}}"
)


class Piece(NamedTuple):
    """A part of the drawing with its upper left corner at the origin. `parts`: (x, y, piece) inside it."""

    width: float
    height: float
    shapes: tuple[str, ...]
    parts: tuple[tuple[float, float, Piece], ...] = ()


def svg(machine: Machine, chosen: Sequence[int] = ()) -> str:
    """The text of an SVG file.

    Args:
        machine: what the probe found.
        chosen: CPU ids of a team, worker 0 first.
    """
    words = [*head(machine), "", *_legend(machine, chosen), *facts(machine), *team_line(chosen)]
    top = grid([_box(box) for box in boxes(machine, chosen)])
    width = max(top.width, max(map(len, words)) * LETTER) + 2 * GAP
    height = top.height + 3 * GAP + LINE * len(words)
    lines = [_text(GAP, top.height + 3 * GAP + LINE * i + FONT / 2, word) for i, word in enumerate(words) if word]
    title = f"{machine.model_name or 'machine'}, {many(len(machine.online_cpus), 'CPU')}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE}" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label={quoteattr(title)}>',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width:g}" height="{height:g}" fill="#fff" stroke="none"/>',
            *_placed(top, GAP, GAP),
            *lines,
            "</svg>",
            "",
        ]
    )


def _placed(piece: Piece, x: float, y: float) -> list[str]:
    """The shapes of a piece and of all inside it, moved to a place."""
    inner = [line for dx, dy, part in piece.parts for line in _placed(part, dx, dy)]
    return [f'<g transform="translate({x:g} {y:g})">', *piece.shapes, *inner, "</g>"]


def grid(pieces: Sequence[Piece]) -> Piece:
    """Pieces in rows of as many as bring the whole nearest to ASPECT without leaving much of the last row empty."""
    if not pieces:
        return Piece(0.0, 0.0, ())
    wide, high = max(piece.width for piece in pieces), max(piece.height for piece in pieces)

    def off(columns: int) -> float:
        rows = math.ceil(len(pieces) / columns)
        empty = (rows * columns - len(pieces)) / len(pieces)
        return abs(math.log(columns * (wide + GAP) / (rows * (high + GAP)) / ASPECT)) + 2 * empty

    columns = min(range(1, len(pieces) + 1), key=off)
    parts = tuple((i % columns * (wide + GAP), i // columns * (high + GAP), piece) for i, piece in enumerate(pieces))
    rows = math.ceil(len(pieces) / columns)
    return Piece(columns * (wide + GAP) - GAP, rows * (high + GAP) - GAP, (), parts)


def _box(box: Box) -> Piece:
    """A frame with its label, and the grid of what lies inside."""
    label = box.label + (f" ({box.note})" if box.note else "")
    cores, holes = tail([child for child in box.children if isinstance(child, Core)])
    pieces = [*map(_core, cores), *(_box(child) for child in box.children if isinstance(child, Box))]
    inner = grid([*pieces, *([_holes(holes)] if holes else [])])
    width = max(inner.width, len(label) * LETTER) + 2 * GAP
    height = LINE + GAP + (inner.height + GAP if box.children else 0.0)
    colour = COLOURS.get(box.axis, "#ffffff")
    about = f"{label}: CPUs {span(box.cpus)}" if box.cpus else label
    place = f'width="{width:g}" height="{height:g}" rx="{RADIUS:g}" fill="{colour}"'
    frame = f"<rect {place}><title>{escape(about)}</title></rect>"
    return Piece(width, height, (frame, _text(GAP, LINE, label)), ((GAP, LINE + GAP, inner),))


def _holes(count: int) -> Piece:
    """So many cores that are not there, as one dashed frame."""
    width, height = 8 * LETTER + GAP, 2 * LINE + GAP
    title = f"<title>{many(count, 'hole')}</title>"
    shape = f'<rect class="hole" width="{width:g}" height="{height:g}" fill="{HOLE}">{title}</rect>'
    return Piece(width, height, (shape, _text(GAP / 2, LINE, f"-- x {count}" if count > 1 else "--")))


def _core(core: Core) -> Piece:
    """A core with its threads side by side; a core that is not there at all is dashed."""
    threads = [_thread(thread) for thread in core.threads]
    width = sum(piece.width for piece in threads) + GAP / 2 * (len(threads) + 1)
    height = max(piece.height for piece in threads) + GAP + (LINE if core.kind else 0.0)
    hole = all(thread.cpu is None for thread in core.threads)
    kind = f' class="hole" fill="{HOLE}"' if hole else f' fill="{CORE}"'
    shapes = [f'<rect width="{width:g}" height="{height:g}" rx="{RADIUS:g}"{kind}/>']
    if core.kind:
        width = max(width, len(core.kind) * LETTER + GAP)
        shapes = [f'<rect width="{width:g}" height="{height:g}" rx="{RADIUS:g}"{kind}/>']
        shapes.append(_text(GAP / 2, height - GAP / 2, core.kind))
    parts, x = [], GAP / 2
    for piece in threads:
        parts.append((x, GAP / 2, piece))
        x += piece.width + GAP / 2
    return Piece(width, height, tuple(shapes), tuple(parts))


def _thread(thread: Thread) -> Piece:
    width, height = 4 * LETTER + GAP, 2 * LINE
    if thread.cpu is None:
        shape = f'<rect class="hole" width="{width:g}" height="{height:g}" fill="{HOLE}"><title>hole</title></rect>'
        return Piece(width, height, (shape,))
    colour = OUT if not thread.in_reach else REACH if thread.worker is None else WORKER
    about = f"CPU {thread.cpu}" + ("" if thread.in_reach else ", out of reach")
    about += "" if thread.worker is None else f", worker {thread.worker}"
    shapes = [
        f'<rect width="{width:g}" height="{height:g}" fill="{colour}"><title>{about}</title></rect>',
        _text(GAP / 2, LINE - 3, str(thread.cpu)),
    ]
    if thread.worker is not None:
        shapes.append(_text(GAP / 2, 2 * LINE - 5, f"#{thread.worker}", "worker"))
    return Piece(width, height, tuple(shapes))


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named} xml:space="preserve">{escape(words)}</text>'


def _legend(machine: Machine, chosen: Sequence[int]) -> list[str]:
    """What the colours mean, only those that were used."""
    found = ["grey: a core, in it its hardware threads with their CPU ids"]
    if set(machine.online_cpus) - set(machine.allowed_cpus):
        found.append("red: out of reach")
    if -1 in machine.array.cpus:
        found.append("dashed: hole (offline or absent)")
    if chosen:
        found.append("green #w: worker w of the placement")
    return [*found, ""]

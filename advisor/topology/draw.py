"""A picture of the array that a person reads at a glance: nested boxes as lstopo's users know them, in 80 columns.

Groups that look alike are drawn once or twice and then counted. `picture` is plain text; `sheet` is the same text with
styles, for a terminal.

    0+48    core with two hardware threads, CPUs 0 and 48
    (3)     out of reach of this process
    --      hole: offline, or this machine is ragged here
    5#2     CPU 5, where worker 2 of the placement runs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from advisor.records import Machine
from advisor.topology.array import ABSENT
from advisor.topology.boxes import Box, Core, Thread, boxes, tail
from advisor.topology.facts import WIDTH, facts, head, team_line, wrap
from advisor.topology.files import span
from advisor.words import many

_SHOWN_ALIKE = 2
_MOST_CELLS = 24
_MOST_SIDE_BY_SIDE = 8
_REMARK = "  ... "

Block = list[Text]
"""Lines of a drawing, all as wide as the widest."""


class Lines(NamedTuple):
    """What boxes are drawn with. corner: upper left and right, lower left and right."""

    corner: tuple[str, str, str, str]
    level: str
    upright: str


PLAIN = Lines(("+", "+", "+", "+"), "-", "|")
DRAWN = Lines(
    (
        "\N{BOX DRAWINGS LIGHT ARC DOWN AND RIGHT}",
        "\N{BOX DRAWINGS LIGHT ARC DOWN AND LEFT}",
        "\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}",
        "\N{BOX DRAWINGS LIGHT ARC UP AND LEFT}",
    ),
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}",
    "\N{BOX DRAWINGS LIGHT VERTICAL}",
)

STYLES = {"reach": "", "out": "dim", "hole": "red", "worker": "bold green", "frame": "cyan", "note": "dim"}


def picture(machine: Machine, chosen: Sequence[int] = ()) -> str:
    """The picture of a machine and one line each for its limits, caches, memory, GPUs, compilers and warnings.

    Args:
        machine: what the probe found.
        chosen: CPU ids of a team, worker 0 first.

    Returns:
        Plain text without a final newline; no line is longer than WIDTH.
    """
    return sheet(machine, chosen, PLAIN).plain


def sheet(machine: Machine, chosen: Sequence[int] = (), lines: Lines = DRAWN) -> Text:
    """The same with styles, for a Rich console; see `picture`."""
    drawn = _flow(_alike(boxes(machine, chosen), WIDTH, lines), WIDTH)
    under = [Text(line, STYLES["note"]) for line in _legend(machine, chosen)]
    words = [Text(line) for line in ["", *facts(machine), *team_line(chosen)]]
    above = [Text(line) for line in [*head(machine), ""]]
    return Text("\n").join(_trimmed(line) for line in [*above, *drawn, *under, *words])


def _trimmed(line: Text) -> Text:
    line.rstrip()
    return line


# --- the array ---


def _alike(found: Sequence[Box], width: int, lines: Lines) -> list[Block]:
    """Blocks of sibling boxes; of those that look like their neighbours two, then how many more."""
    blocks: list[Block] = []
    for first, count in _runs([_look(box) for box in found]):
        shown = count if count <= _SHOWN_ALIKE + 1 else _SHOWN_ALIKE
        blocks += [_box(box, width, lines) for box in found[first : first + shown]]
        if shown < count:
            rest = [cpu for box in found[first + shown : first + count] for cpu in box.cpus]
            text = f"{many(count - shown, f'more {found[first].axis} group')} alike" + (
                f": CPUs {span(rest)}" if rest else ""
            )
            blocks.append([Text(line) for line in wrap(_REMARK, text, width)])
    return blocks


def _box(box: Box, width: int, lines: Lines) -> Block:
    """One box, as narrow as its content allows and at most `width` wide."""
    inner = width - 4
    title = box.label + (f" ({box.note})" if box.note else "")
    cores = [child for child in box.children if isinstance(child, Core)]
    inside = [child for child in box.children if isinstance(child, Box)]
    body = _cells(cores, inner) if cores else []
    body += _flow(_alike(inside, inner, lines), inner) if inside else []
    wide = max([len(title) + 2, *(line.cell_len for line in body)])
    left, right, low_left, low_right = lines.corner
    top = f"{left}{lines.level} {title} ".ljust(wide + 3, lines.level) + right
    style = STYLES["frame"]
    rows = []
    for line in body:
        line.pad_right(wide - line.cell_len)
        rows.append(Text.assemble((f"{lines.upright} ", style), line, (f" {lines.upright}", style)))
    return [Text(top, style), *rows, Text(low_left + lines.level * (wide + 2) + low_right, style)]


def _flow(blocks: Sequence[Block], width: int) -> Block:
    """Blocks side by side as long as they fit, each row as high as its highest; a remark has its own row."""
    out: Block = []
    row: list[Block] = []
    for block in blocks:
        remark = any(part[0].plain.startswith(_REMARK) for part in (block, *row))
        full = sum(map(_wide, row)) + len(row) + _wide(block) > width or len(row) == _MOST_SIDE_BY_SIDE
        if row and (full or remark):
            out += _beside(row)
            row = []
        row.append(block)
    return [*out, *(_beside(row) if row else [])]


def _wide(block: Block) -> int:
    return max(line.cell_len for line in block)


def _beside(row: Sequence[Block]) -> Block:
    out = []
    widths = [_wide(block) + 1 for block in row]
    for index in range(max(map(len, row))):
        line = Text()
        for block, wide in zip(row, widths, strict=True):
            part = block[index] if index < len(block) else Text()
            part.pad_right(wide - part.cell_len)
            line.append_text(part)
        line.rstrip()
        out.append(line)
    return out


def _look(part: Box | Core) -> object:
    """Equal for what is drawn alike but for its numbers: threads there, out of reach, holes, and who runs there."""
    if isinstance(part, Core):
        return (part.kind, *(_state(t) if t.worker is None else (t.cpu, t.worker) for t in part.threads))
    return (part.note, tuple(_look(child) for child in part.children), bool(part.cpus))


def _state(thread: Thread) -> str:
    return "hole" if thread.cpu is None else "reach" if thread.in_reach else "out"


def _runs(looks: Sequence[object]) -> list[tuple[int, int]]:
    """(first, length) of each run of equal elements."""
    runs: list[tuple[int, int]] = []
    for i, look in enumerate(looks):
        if runs and looks[runs[-1][0]] == look:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((i, 1))
    return runs


# --- cores ---


def _cells(cores: Sequence[Core], width: int) -> Block:
    """One cell a core, wrapped; of many that look alike the first three and the last; holes at the end are counted."""
    there, holes = tail(cores)
    note = [f"-- x {holes}" if holes > 1 else "--"] if holes else []
    cells = [_cell(core) for core in there]
    if len(cells) > _MOST_CELLS and len({_look(core) for core in there}) == 1:
        cpus = [thread.cpu for core in there for thread in core.threads if thread.cpu is not None]
        note = [f"({many(len(cells), 'core')}: CPUs {span(cpus)})", *note]
        cells = [*cells[:3], Text("..."), cells[-1]]
    wide = max(cell.cell_len for cell in cells)
    each = max(1, (width + 2) // (wide + 2))
    rows = [_beside_cells(cells[i : i + each], wide) for i in range(0, len(cells), each)]
    for text in note:
        if rows[-1].cell_len + 2 + len(text) <= width:
            rows[-1].append(f"  {text}", STYLES["note"])
        else:
            rows += [Text(line, STYLES["note"]) for line in wrap("", text, width)]
    return rows


def _beside_cells(cells: Sequence[Text], wide: int) -> Text:
    line = Text()
    for cell in cells:
        cell.pad_right(wide - cell.cell_len + 2)
        line.append_text(cell)
    line.rstrip()
    return line


def _cell(core: Core) -> Text:
    """`0+48`: the threads of a core; brackets around all of it where none is in reach."""
    if all(thread.cpu is None for thread in core.threads):
        return Text("--", STYLES["hole"])
    if not any(thread.in_reach for thread in core.threads):
        return Text("(" + "+".join("--" if t.cpu is None else str(t.cpu) for t in core.threads) + ")", STYLES["out"])
    return Text("+").join(_thread(thread) for thread in core.threads)


def _thread(thread: Thread) -> Text:
    if thread.cpu is None:
        return Text("--", STYLES["hole"])
    if not thread.in_reach:
        return Text(f"({thread.cpu})", STYLES["out"])
    if thread.worker is not None:
        return Text(f"{thread.cpu}#{thread.worker}", STYLES["worker"])
    return Text(str(thread.cpu))


# --- in words ---


def _legend(machine: Machine, chosen: Sequence[int]) -> list[str]:
    """What the marks mean, only those that were drawn."""
    found = []
    if machine.threads_per_core > 1:
        found.append("a+b: hardware threads of one core")
    if set(machine.online_cpus) - set(machine.allowed_cpus):
        found.append("(n): out of reach")
    if ABSENT in machine.array.cpus:
        found.append("--: hole (offline or absent)")
    if chosen:
        found.append("n#w: worker w of the placement runs on CPU n")
    return wrap("  ", "; ".join(found)) if found else []

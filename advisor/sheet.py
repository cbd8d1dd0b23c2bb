"""A sheet for people: what a server's prefill and decode should run with, and the one setting for both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor import render
from advisor.answers import Answer
from advisor.errors import BadInput
from advisor.policy import launch
from advisor.policy.single import Cell, Single
from advisor.serving import DECODE, PREFILL, TRAINING, Line, Sheet
from advisor.topology.files import span
from advisor.words import many

TITLES = {
    PREFILL: "prefill: a prompt of n rows",
    DECODE: "decode: one token against a cache of n rows; the other kernels at one row a sequence",
    TRAINING: "training",
}
"""Phase -> what stands above its table."""

COLUMNS = ("kernel", "n", "run", "threads", "CPUs", "wait policy", "time", "vs default", "basis")


def text(found: Sheet) -> str:
    """The sheet, a table a phase, then the single setting with the lines that apply it."""
    parts = []
    for phase, title in TITLES.items():
        lines = [line for line in found.lines if line.phase == phase]
        if lines:
            parts.append("\n".join([title, _table(lines), *_reasons(lines)]))
    return "\n\n".join([*parts, *filter(None, [single_text(found)])])


def single_text(found: Sheet) -> str:
    """The single setting, what it loses, and the lines that apply it."""
    return "\n".join(_single(found))


def _table(lines: Sequence[Line]) -> str:
    table = render.table()
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("n", "threads", "time", "vs default") else "left")
    for line in lines:
        table.add_row(*_row(line))
    return render.rendered(table, elsewhere=render.WIDE)


def _row(line: Line) -> list[str]:
    answer = line.answer
    knobs = " ".join(f"{name.removeprefix('ADV_')}={value}" for name, value in answer.knob_pairs)
    run = " ".join(filter(None, [answer.variant or "any variant", knobs]))
    gain = "-" if answer.gain is None else f"{answer.gain:.2f}x"
    wait = answer.wait_policy if answer.spin is None else f"{answer.wait_policy}, spin {answer.spin}"
    return [line.label, str(line.n), run, str(answer.threads), _cpus(answer), wait, _time(line), gain, answer.basis]


def _cpus(answer: Answer) -> str:
    return "not pinned" if answer.cpus is None else span(answer.cpus)


def _time(line: Line) -> str:
    answer = line.answer
    if answer.expected_ns is not None:
        return launch.duration(answer.expected_ns)
    guess = answer.estimate(line.n)
    return "-" if guess is None else f"about {launch.duration(guess)}"


def _reasons(lines: Iterable[Line]) -> list[str]:
    """Why an answer is none of a measurement, and warnings, each once with the places that it holds for."""
    said: dict[str, list[str]] = {}
    for line in lines:
        words = [line.answer.why] if line.answer.basis not in ("EXACT", "INTERPOLATED") else []
        for one in (*words, *line.answer.warnings):
            said.setdefault(one, []).append(f"{line.label} n={line.n}")
    return [f"  {', '.join(places)}: {words}" for words, places in said.items()]


# --- the single setting ---


def _single(found: Sheet) -> list[str]:
    best = found.single
    if best is None:
        return ["no single setting: nothing here was measured at these n"] if _on_host(found) else []
    lines = [f"where a server cannot switch: {_setting_words(best, found.setting)}"]
    lines.append(f"  loses    {best.loss:.1%} against switching ({_shares(best)})")
    lines.append(f"  sure     {best.basis}; settings compared: {best.compared}")
    return [*lines, *(f"  {name:<9}{words}" for name, words in left_out(best)), *_apply(found.setting)]


def left_out(best: Single) -> list[tuple[str, str]]:
    """What the single setting says nothing or little of: a name for a line, and the words."""
    found = [("unknown", f"{_cells(best.unmeasured)}: not measured under it")] if best.unmeasured else []
    missing = f"{_cells(best.unknown)}: not measured at all, so not part of it"
    return [*found, *([("missing", missing)] if best.unknown else [])]


def _on_host(found: Sheet) -> bool:
    return all(line.answer.device is None for line in found.lines)


def _setting_words(best: Single, setting: Answer | None) -> str:
    if setting is None:
        return f"{many(best.setting.threads, 'thread')}, placement {best.setting.placement}, which makes no sense here"
    return f"threads {launch.team_words(setting)}, {launch.process_words(setting)}"


def _shares(best: Single) -> str:
    return ", ".join(f"{share.name} n={share.n} {share.loss:.1%}" for share in best.shares)


def _cells(cells: Sequence[Cell]) -> str:
    return ", ".join(f"{kernel} n={n}" for kernel, n in cells)


def _apply(setting: Answer | None) -> list[str]:
    """The lines that start a process with a setting, as far as each format can say it."""
    if setting is None:
        return []
    found = []
    for name in ("env", "numactl"):
        try:
            said = launch.render(name, setting, 1)
        except BadInput:
            continue  # a memory policy that this format cannot set, or nodes of another machine
        found += [f"  {name if i == 0 else '':<9}{line}" for i, line in enumerate(said.splitlines())]
    return found

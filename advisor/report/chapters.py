"""The chapters of a report: the machine, each problem that was tuned, what failed, where the tables come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from advisor.policy.launch import FRAGILE, duration, process_words
from advisor.records import Machine, Table
from advisor.report import figures as drawn
from advisor.report.digest import Dot, HeldOutAt, Key, Step
from advisor.report.failures import Failures
from advisor.report.figures import Figure, short
from advisor.report.material import Material
from advisor.report.page import Part, figures, paragraph, points, table
from advisor.report.traffic import Moved, ReadFloor
from advisor.show import choice_words
from advisor.words import many

MOST_SESSIONS = 40


class Told(NamedTuple):
    """All that is known of one problem."""

    key: Key
    dots: tuple[Dot, ...]
    steps: tuple[Step, ...]
    held: tuple[HeldOutAt, ...]
    moved: tuple[Moved, ...]


def title_of(key: Key) -> str:
    """A problem in a line."""
    shape = " ".join(f"{name}={value}" for name, value in key.shape)
    return " ".join(filter(None, [key.kernel, key.dtype, shape, key.regime]))


# --- the machine ---


def machine(material: Material) -> Part:
    """The array, drawn, and the GPU that the tables are of."""
    from advisor.topology.svg import svg

    found = material.machine
    if found is None:
        return Part("machine", "The machine", points(material.notes))
    body = f'<div class="drawing">{svg(found)}</div>\n' + _gpus(found)
    return Part("machine", "The machine", body + points(material.notes))


def _gpus(found: Machine) -> str:
    rows = [
        [
            str(gpu.index),
            gpu.name or "unknown",
            "-" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.4g} GiB",
            _known(gpu.sm_count),
            _known(gpu.compute_capability),
            _known(gpu.power_limit_w, " W"),
        ]
        for gpu in found.gpus
    ]
    head = ("GPU", "model", "memory", "multiprocessors", "compute capability", "power limit")
    return table(head, rows, (2, 3, 4, 5)) if rows else ""


def _known(value: object, unit: str = "") -> str:
    return "-" if value is None else f"{value}{unit}"


# --- one problem ---


def problem(told: Told, floors: Sequence[ReadFloor], number: int) -> tuple[Part, tuple[Figure, ...]]:
    """The figures and tables of one problem.

    Args:
        told: what is known of it.
        floors: rates of the machine's signature.
        number: of the chapter, for ids.
    """
    name = f"problem-{number}"
    device = any(step.choice.team is None for step in told.steps)
    time = drawn.over_n if device else drawn.over_threads
    first = time(f"{name}-time", told.dots, told.steps)
    rest = [drawn.beside(f"{name}-beside", told.steps), drawn.regret(f"{name}-regret", told.steps, told.held)]
    if any(one.gb_per_s is not None for one in told.moved):
        rest.append(drawn.rates(f"{name}-rates", told.moved, floors))
    found = tuple(one for one in (first, *rest) if one.data and any(trace["x"] for trace in one.data))
    body = paragraph(_summary(told)) + figures(found, (first.name,)) + _choices(told.steps) + _traffic(told, floors)
    return Part(name, title_of(told.key), body), found


def _summary(told: Told) -> str:
    """How sure the table is, in a sentence or two."""
    low, high = told.steps[0].n, told.steps[-1].n
    foreign = sorted({step.basis for step in told.steps} - {"EXACT"})
    how = "Tuned" if not foreign else f"Not measured on this machine ({', '.join(foreign)}); known"
    words = [f"{how} at {many(len(told.steps), 'size')} from n = {low} to {high}."]
    if told.held:
        product = 1.0
        for one in told.held:
            product *= one.regret
        mean, worst = product ** (1 / len(told.held)) - 1, max(one.regret for one in told.held) - 1
        most = f", at most {worst:.1%}" if len(told.held) > 1 else ""
        words.append(f"At {many(len(told.held), 'held-out size')} {mean:.1%} above the best known time{most}.")
    else:
        words.append("No size was held out.")
    fragile = [step.n for step in told.steps if (_fragility(step) or 0.0) >= FRAGILE]
    if fragile:
        words.append(f"Fragile beside a busy neighbour at n = {', '.join(map(str, fragile))}.")
    return " ".join(words)


def _fragility(step: Step) -> float | None:
    point = step.point
    if point is None or point.stolen is None or point.fragility is not None:
        return None if point is None else point.fragility
    return point.stolen.mean_ns / point.summary.p25_ns  # files of version 1.0 do not write it


def _choices(steps: Iterable[Step]) -> str:
    """What the table says at each tuned n."""
    rows = []
    for step in steps:
        team, process = step.choice.team, step.choice.process
        ns = step.ns
        rows.append(
            [
                str(step.n),
                "-" if ns is None else duration(ns),
                "-" if step.gain is None else f"{step.gain:.2f}x",
                _times(_fragility(step)),
                "-" if step.regret is None else f"{step.regret - 1:.1%}",
                "-" if team is None else str(team.threads),
                "-" if team is None else team.placement or "the array as it stands",
                "-" if process is None else process_words(process),
                choice_words(step.choice) + "".join(f" ({word})" for word in step.doubts),
            ]
        )
    head = ("n", "time", "vs default", "busy", "regret", "threads", "placement", "process", "run")
    return table(head, rows, (0, 1, 2, 3, 4, 5))


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}x" + (" fragile" if value >= FRAGILE else "")


def _traffic(told: Told, floors: Sequence[ReadFloor]) -> str:
    """Predicted elements beside what was achieved."""
    if not told.moved:
        return paragraph("This kernel is not installed here, so nothing is predicted of its traffic.", "soft")
    memory = next((floor.gb_per_s for floor in floors if floor.level == "memory"), None)
    rows = [
        [
            str(one.n),
            f"{one.least:,}",
            "-" if one.predicted is None else f"{one.predicted[0]:,}",
            "-" if one.predicted is None else f"{one.predicted[1]:,}",
            "-" if one.dram_bytes is None else f"{one.dram_bytes:,.0f}",
            "-" if one.gb_per_s is None else f"{one.gb_per_s:.3g}",
            "-" if one.gb_per_s is None or memory is None else f"{one.gb_per_s / memory:.2f}",
        ]
        for one in told.moved
    ]
    head = ("n", "least elements", "variant reads", "variant writes", "bytes counted", "GB/s", "of the read floor")
    about = (
        "Elements are predicted: the least that the definition moves, and what the variant's header says it reads and "
        "writes. More than the read floor of memory means that caches kept what was read."
    )
    return paragraph(about, "soft") + table(head, rows, range(7))


# --- failures ---


def failed(found: Failures) -> Part:
    """Trials by status, then each kind of failure with its reason."""
    heads = next(iter(found.counts.values()), {})
    counts = [[kernel, *(str(count) for count in row.values())] for kernel, row in found.counts.items()]
    body = table(("kernel", *heads), counts, range(1, len(heads) + 1)) if counts else ""
    rows = [
        [one.kernel, one.variant, one.status, str(one.trials), _sizes(one.sizes), one.reason or "-"]
        for one in found.kinds
    ]
    if rows:
        body += table(("kernel", "variant", "status", "trials", "n", "reason"), rows, (3,))
    else:
        body += paragraph("No trial of the log failed." if counts else "There is no log to tell.", "soft")
    more = (
        f"{many(found.more, 'more kind', 'more kinds')} of failure {'is' if found.more == 1 else 'are'} in the log."
        if found.more
        else ""
    )
    return Part("failed", "What failed and why", body + (paragraph(more) if more else ""))


def _sizes(sizes: Sequence[int]) -> str:
    few = [short(n) for n in sizes]
    return ", ".join(few) if len(few) <= 8 else f"{', '.join(few[:7])} and {len(few) - 7} more"


# --- provenance ---


def provenance(material: Material) -> Part:
    """Tables with their ids and tools, and the sessions that measured."""
    rows = [_table_row(found) for found in material.tables]
    head = ("kernel", "table", "hardware", "limits", "made", "by", "environment")
    body = table(head, rows)
    sessions = [row for row in map(_session_row, material.records) if row]
    if sessions:
        body += "<h3>Sessions of the log</h3>\n"
        if len(sessions) > MOST_SESSIONS:
            body += paragraph(f"The last {MOST_SESSIONS} of {len(sessions)}.", "soft")
        body += table(
            ("session", "time", "advisor", "protocol", "who else used the machine"), sessions[-MOST_SESSIONS:]
        )
    return Part("provenance", "Where the tables come from", body)


def _table_row(found: Table) -> list[str]:
    made = sorted({section.created for section in found.sections if section.created})
    span = made[0] if len(made) == 1 else f"{made[0]} to {made[-1]}" if made else "-"
    facts = ", ".join(f"{name} {_flat(value)}" for name, value in found.environment)
    how = ", ".join(f"{name} {_flat(value)}" for name, value in found.provenance)
    return [found.kernel, found.table_id, found.hardware_id, found.limits_id, span, how or "-", facts or "-"]


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _session_row(record: dict[str, Any]) -> list[str] | None:
    if record.get("kind") != "session":
        return None
    others = record.get("others")
    reasons = others.get("reasons") if isinstance(others, dict) else None
    quiet = "not told" if not isinstance(reasons, list) else "; ".join(map(str, reasons)) or "nobody"
    return [*(str(record.get(name, "-")) for name in ("session", "time", "advisor", "protocol")), quiet]

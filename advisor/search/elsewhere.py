"""Seeds from elsewhere: what won on other machines, as far as it exists here.

Tables are read as data, through the records. A choice of another machine is taken over by its variant and knobs; its
threads become the same share of this machine, all else is as here by default. It is looked at early, no more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from advisor import codec
from advisor.errors import AdvisorError
from advisor.paths import shipped_policies
from advisor.records import Choice, Machine, Problem, Row, Section, Table
from advisor.search.space import cpu_budget, is_default_process

MOST = 2
"""Choices taken over for a problem: they are guesses, and each costs a first look and perhaps a build."""


class Foreign(NamedTuple):
    """A table of another machine, and how many CPUs that machine had in reach."""

    table: Table
    cpus: int


def foreign(kernel: str, hardware_id: str, folder: str | None = None) -> tuple[Foreign, ...]:
    """The tables of one kernel that other machines left; what cannot be read is passed over.

    Args:
        kernel: its name.
        hardware_id: of this machine, whose own tables are not among them.
        folder: of machines, each a folder with machine.json and tables; None: those shipped.
    """
    found = []
    with contextlib.suppress(AdvisorError, OSError):
        root = shipped_policies() if folder is None else folder
        for name in sorted(os.listdir(root)):
            with contextlib.suppress(AdvisorError, OSError):
                one = _read(os.path.join(root, name), kernel)
                found += [one] if one.table.hardware_id != hardware_id else []
    return tuple(found)


def _read(folder: str, kernel: str) -> Foreign:
    table, machine = (_document(os.path.join(folder, f"{name}.json")) for name in (f"{kernel}.table", "machine"))
    codec.check_schema(table, "table", folder)
    return Foreign(codec.from_json(Table, table, folder), cpu_budget(codec.from_json(Machine, machine, folder)))


def _document(path: str) -> object:
    with open(path, encoding="utf-8") as file:
        return codec.loads(file.read(), path)


def taken_over(
    tables: Sequence[Foreign], machine: Machine, problem: Problem, choices: Sequence[Choice]
) -> tuple[Choice, ...]:
    """What other machines' tables would take here, their fastest first.

    Args:
        tables: of other machines.
        machine: this one.
        problem: what is tuned.
        choices: the space here.
    """
    found: dict[Choice, None] = {}
    for one in tables:
        for choice in _best(one.table, problem)[:MOST]:
            here = _here(choice, one.cpus, machine, choices)
            if here is not None:
                found[here] = None
    return tuple(found)[:MOST]


def _best(table: Table, problem: Problem) -> list[Choice]:
    """Its choices at this n, fastest process part first; of another shape where it has none of this one."""
    sections = [s for s in table.sections if s.dtype == problem.dtype and s.rows]
    if not sections:
        return []
    differing = {s.shape: len(set(s.shape) ^ set(problem.shape)) for s in sections}
    nearest = min(differing, key=lambda shape: (differing[shape], shape))
    ranked = sorted(_at(s, problem.n) for s in sections if s.shape == nearest)
    return [choice for _, _, choice in ranked]


def _at(section: Section, n: int) -> tuple[float, str, Choice]:
    """(time there, a tie-break, choice) of the row that holds n, or of the nearest one."""
    row = min(section.rows, key=lambda r: (max(r.low - n, n - r.high, 0), r.low))
    return _time(row, n), repr(row.choice), row.choice


def _time(row: Row, n: int) -> float:
    """Its measured time at the n nearest to this one, divided by that n, so that parts tuned elsewhere compare."""
    nearest = min(row.points, key=lambda p: abs(p.n - n), default=None)
    return float("inf") if nearest is None else nearest.summary.p25_ns / nearest.n


def _here(choice: Choice, cpus: int, machine: Machine, choices: Sequence[Choice]) -> Choice | None:
    """The listed choice with this variant and these knobs, the nearest share of the machine, by default otherwise."""
    made, team = choice.build, choice.team
    alike = [
        c
        for c in choices
        if (c.build.variant, c.build.knobs) == (made.variant, made.knobs) and is_default_process(c.process)
    ]
    if not alike or team is None:
        return None
    share = team.threads * cpu_budget(machine) / cpus
    wanted = 1.0 if team.threads == 1 else share  # one thread is one thread anywhere: nothing was worth sharing
    return min(alike, key=lambda c: abs((c.team.threads if c.team else 1) - wanted))

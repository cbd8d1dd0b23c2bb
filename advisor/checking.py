"""Check: whether this machine's tables still hold. What their rows depend on is compared at once, then a few of their
choices are timed beside the default choice.

Nothing is written: not to the tables, and not to the log either. A race of two says nothing about the best of a space,
so no tuning shall learn from it, and a check every hour would fill the log with what nobody reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec, gather
from advisor.carried import is_carried, is_published
from advisor.device import CPU, is_device
from advisor.errors import AdvisorError, Busy, Missing
from advisor.kernels import registry
from advisor.kernels.gpu.device import target
from advisor.pipeline import variants_for
from advisor.policy.cells import Cell, cells, ranked
from advisor.ranges import changes
from advisor.records import Machine, Pairs, Row, Section
from advisor.search import others
from advisor.search.duel import FAILED, NO_FIGURES, NO_TIME, SLOWER, UNKNOWN, WRONG, Duel, Judged, duel
from advisor.search.race import RaceOptions
from advisor.search.request import Progress
from advisor.search.space import cpu_budget
from advisor.site import Site
from advisor.tablefile import read_table
from advisor.topology import probe as topology
from advisor.topology.candidates import groupings
from advisor.turn import alone

if TYPE_CHECKING:
    from advisor.kernels.executor import Executor
    from advisor.search.run import Clock

BUDGET_S = 5.0
"""Time for measuring where none is given: one kernel's workers and three or four cells."""

BAR = 0.05
"""How much slower a choice may have become. Source: race.KEEP_REACH, about what the figures of two races differ by."""

WAIT_S = 1.0
"""How long another tuner is waited for: whoever calls a check by the clock comes again."""

LEAST_KERNEL_S, LEAST_CELL_S = 1.0, 0.3
"""No kernel and no cell begins with less time left: workers alone take a good part of the first."""

MOST_CELLS = 4
"""Cells of a kernel: what a few do not show, a longer look at one kernel (`--kernel`) may."""

LIMIT_S = 5.0
"""Wall-clock limit of one sample: longer means that it hangs."""


GONE = "not at hand"
"""Stands in the place of a digest where there is no such source any more."""

Changes = tuple[tuple[str, Any, Any], ...]
"""(field, then, now)."""


class CheckRequest(NamedTuple):
    """What `advisor check` is asked. `kernels` none: all that have a table. `bar`: how much slower is too slow."""

    kernels: tuple[str, ...] = ()
    device: str = CPU
    budget_s: float = BUDGET_S
    bar: float = BAR
    kernel_dirs: tuple[str, ...] = ()
    seed: int = 0


class Stale(NamedTuple):
    """Rows of which something that they depend on has changed. `changes`: (field, then, now).

    `low`, `high`: n from the first of these rows to the last; `rows`: how many they are, of all process parts.
    """

    kernel: str
    dtype: str
    shape: Pairs
    regime: str
    low: int
    high: int
    rows: int
    changes: Changes


class Looked(NamedTuple):
    """One cell and what came of it."""

    cell: Cell
    judged: Judged


class Checked(NamedTuple):
    """What came of a check.

    Attributes:
        tables: kernels that have a table which counts.
        stale, looked: what was found.
        refused: file of a table -> why it cannot be trusted.
        total: cells that there are; those beyond `looked` were not chosen, or had no time.
        notes: what the user should know, such as who else uses the machine.
        seconds: that the measuring took.
    """

    tables: tuple[str, ...]
    stale: tuple[Stale, ...]
    looked: tuple[Looked, ...]
    refused: Pairs
    total: int
    notes: tuple[str, ...]
    seconds: float

    @property
    def broken(self) -> bool:
        """Whether something no longer holds."""
        verdicts = {one.judged.verdict for one in self.looked}
        return bool(self.stale or self.refused or verdicts & {SLOWER, WRONG, FAILED})

    @property
    def partly(self) -> bool:
        """Whether something that should have been told could not be."""
        return any(one.judged.verdict == UNKNOWN for one in self.looked)


def check(asked: CheckRequest, progress: Progress, clock: Clock = time.monotonic) -> Checked:
    """Compare and measure; see the module.

    Raises:
        Missing: there is no table that was measured on this machine, or on this device.
        BadInput: no such device.
    """
    machine = target(topology.probe(), asked.device)
    found = tables(asked, machine)
    stale, fresh = compared(site_of(machine, found.hashes), found)
    per_kernel: dict[str, list[Cell]] = {}
    for key, sections in fresh.items():
        per_kernel.setdefault(key[0], []).extend(cells(key[0], sections))
    order = {name: ranked(one) for name, one in per_kernel.items() if one}
    begun = clock()
    looked, note = _measured(_Rest(asked, machine, begun, clock), order, progress)
    total, notes = sum(map(len, order.values())), (*found.notes, *filter(None, [note]))
    return Checked(tuple(per_kernel), stale, tuple(looked), found.refused, total, notes, round(clock() - begun, 3))


# --- what there is ---


class Tables(NamedTuple):
    """The sections that answer on a machine, as their files have them: key -> (table, section) pairs.

    `hashes`: (kernel, variant) -> digest of the source that is at hand; `refused` and `notes` as of `Checked`.
    """

    sections: Mapping[gather.Key, Sequence[tuple[dict[str, Any], dict[str, Any]]]]
    hashes: Mapping[tuple[str, str], str | None]
    refused: Pairs
    notes: tuple[str, ...]


def tables(asked: CheckRequest, machine: Machine) -> Tables:
    """The tables that answer on a machine, of the kernels asked for, without what nobody measured here.

    Raises:
        Missing: there is none, and none that cannot be trusted.
    """
    site = site_of(machine, {})
    paths = gather.files(site, None, None)
    sections, _, notes = gather.read(site, paths)
    own = {key: pairs for key, pairs in sections.items() if not any(_is_foreign(one) for _, one in pairs)}
    wanted = {key: pairs for key, pairs in own.items() if not asked.kernels or key[0] in asked.kernels}
    names = {key[0] for key in wanted}
    broken = _refused(paths, asked.kernels)
    if not wanted and not broken:
        known = ", ".join(sorted({key[0] for key in own}))  # none: the step alone is of use
        where = "" if asked.device == CPU else f" --device {asked.device}"
        raise Missing(
            "there must be a table that was measured on this machine under these limits",
            allowed=known,
            **({"got": ", ".join(asked.kernels)} if asked.kernels else {}),
            next_step=f"make one: advisor tune{where}" + "".join(f"; {note}" for note in notes[:1]),
        )
    hashes = _hashes(names, asked, machine)
    told = tuple(note for note in notes if not note.startswith(tuple(f"{path} was refused" for path in broken)))
    return Tables(wanted, hashes, tuple(sorted(broken.items())), told)


def _refused(paths: Iterable[str], kernels: Sequence[str]) -> dict[str, str]:
    """File -> why it cannot be trusted, of the kernels asked for."""
    found = {}
    for path in paths:
        if kernels and os.path.basename(path).split(".")[0] not in kernels:
            continue
        try:
            read_table(path)
        except AdvisorError as error:
            found[path] = str(error)
    return found


def _is_foreign(section: Mapping[str, Any]) -> bool:
    """Whether nobody measured it here: there is nothing that it could be compared with."""
    return is_carried(dict(section)) or is_published(dict(section))


def _hashes(names: Iterable[str], asked: CheckRequest, machine: Machine) -> dict[tuple[str, str], str | None]:
    """The sources at hand of some kernels."""
    found: dict[tuple[str, str], str | None] = {}
    for name in names:
        try:
            found |= {(name, one.name): one.source_hash for one in variants_for(name, asked.kernel_dirs, machine)}
        except AdvisorError:  # a kernel of the user's whose folder was not named: its sources cannot be compared
            continue
    return found


def site_of(machine: Machine, hashes: Mapping[tuple[str, str], str | None]) -> Site:
    """The machine as the lookup sees it, with all versions that a probe finds and a lookup cannot afford to ask for.

    Args:
        machine: probed just now, or the machine of a device.
        hashes: (kernel, variant) -> digest of the source at hand.
    """
    gpu = machine.gpus[0]._asdict() if is_device(machine.limits_id) else None
    return Site(
        machine.hardware_id,
        machine.limits_id,
        machine.array,
        machine.allowed_cpus,
        cpu_budget(machine),
        dict(machine.environment),
        isa=machine.isa,
        hashes=dict(hashes),
        groupings=groupings(machine),
        gpu=gpu,
    )


# --- comparing ---


def compared(site: Site, found: Tables) -> tuple[tuple[Stale, ...], dict[gather.Key, list[Section]]]:
    """What the rows depend on and is not as it was; and the sections as records, with the other rows alone."""
    grouped: dict[tuple[gather.Key, Changes], list[dict[str, Any]]] = {}
    fresh: dict[gather.Key, list[Section]] = {}
    for key, pairs in found.sections.items():
        for table, section in pairs:
            kept = []
            for row in section["rows"]:
                changed = _changes(site, table, section, row, found.hashes)
                if changed:
                    grouped.setdefault((key, changed), []).append(row)
                else:
                    kept.append(row)
            record = codec.from_json(Section, section)
            rows = tuple(codec.from_json(Row, row) for row in kept)
            fresh.setdefault(key, []).append(record._replace(rows=rows))
    return tuple(_stale(key, changed, rows) for (key, changed), rows in grouped.items()), fresh


def _changes(
    site: Site,
    table: dict[str, Any],
    section: dict[str, Any],
    row: dict[str, Any],
    hashes: Mapping[tuple[str, str], str | None],
) -> Changes:
    """What the lookup sees; and a source that is no longer there where those of its kernel are."""
    found = changes(site, table, section, row)
    build, kernel = row["choice"]["build"], table["kernel"]
    at_hand = [variant for name, variant in hashes if name == kernel]
    if at_hand and build["variant"] not in at_hand and "source_hash" in row["depends"]:
        found = (*(one for one in found if one[0] != "source_hash"), ("source_hash", build["source_hash"], GONE))
    return found


def _stale(key: gather.Key, changed: Changes, rows: Sequence[dict[str, Any]]) -> Stale:
    kernel, dtype, regime, shape = key
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    return Stale(kernel, dtype, shape, regime, low, high, len(rows), changed)


# --- measuring ---


class _Rest(NamedTuple):
    """What measuring goes by: the request, the machine, when it ends on the clock."""

    asked: CheckRequest
    machine: Machine
    until: float
    clock: Clock


def _measured(rest: _Rest, per_kernel: Mapping[str, Sequence[Cell]], progress: Progress) -> tuple[list[Looked], str]:
    """The cells of every kernel in turn, those with the largest gain first; a note on who else uses the machine.

    Where another tuner measures nothing is timed, and each kernel says so.
    """
    order = sorted(per_kernel, key=lambda name: -max(cell.gain or 0.0 for cell in per_kernel[name]))
    try:
        with alone(progress, WAIT_S):
            note = "" if is_device(rest.machine.limits_id) or not order else others.sentence(others.look())
            rest = rest._replace(until=rest.clock() + rest.asked.budget_s)
            looked = []
            for done, name in enumerate(order):
                share_s = (rest.until - rest.clock()) / (len(order) - done)
                looked += _kernel(rest, per_kernel[name], share_s, progress)
            return looked, note
    except Busy as error:
        return [_untold(per_kernel[name][0], f"busy: {error}") for name in order], ""


def _untold(cell: Cell, why: str) -> Looked:
    return Looked(cell, Judged(UNKNOWN, why))


def _kernel(rest: _Rest, found: Sequence[Cell], share_s: float, progress: Progress) -> list[Looked]:
    """The first cells of a kernel, as far as its share of the time goes."""
    from advisor.kernels.executors import pool_for

    asked, name = rest.asked, found[0].problem.kernel
    if share_s < LEAST_KERNEL_S:
        return [_untold(found[0], f"no time left for {name}; a larger --budget, or --kernel {name}")]
    progress.stage(f"check {name}", min(MOST_CELLS, len(found)))
    ends = rest.clock() + share_s
    try:
        spec = registry.spec(name, asked.kernel_dirs)
        known = variants_for(name, asked.kernel_dirs, rest.machine)
    except AdvisorError as error:
        return [_untold(found[0], f"{error}; --kernel-dir names the folder that it was tuned from")]
    looked: list[Looked] = []
    with pool_for(rest.machine, spec, known, asked.seed) as pool:
        for cell in found[:MOST_CELLS]:
            if looked and ends - rest.clock() < LEAST_CELL_S:
                break
            looked.append(measured(pool, cell, asked, ends, rest.clock))
            progress.advance(f"n={cell.problem.n}: {looked[-1].judged.verdict}")
            if looked[-1].judged.reason == NO_TIME and len(looked) > 1:
                return looked[:-1]  # what more time would have told is no finding
    return looked


def measured(executor: Executor, cell: Cell, asked: CheckRequest, ends: float, clock: Clock) -> Looked:
    """One cell beside its reference.

    Args:
        executor: of its kernel.
        cell: what is run.
        asked: bar and seed.
        ends: on the clock; nothing starts after it.
        clock: seconds.
    """
    prepare = getattr(executor, "prepare", None)
    if prepare is not None:  # both are compiled side by side while their workers start
        prepare(cell.problem, tuple(dict.fromkeys((cell.choice, cell.reference))))
    seed = int(codec.digest((asked.seed, cell.problem)), 16) % 2**32
    what = Duel(cell.problem, cell.choice, cell.reference, cell.recorded, asked.bar)
    judged = duel(executor, what, RaceOptions(seed=seed, limit_s=LIMIT_S, deadline=ends, clock=clock))
    if cell.why and judged.reason == NO_FIGURES:
        judged = judged._replace(reason=f"{judged.reason}: {cell.why}")
    return Looked(cell, judged)

"""Make the tables of a folder again from its log, as this version learns, and say what is another choice now.

    python benchmarks/relearn.py policies/intel-xeon-16cpu-vm [--borders] [--write]

Nothing is measured. What is learned from is what the log has of the tables' machine, limits and environment, of
variants that are at hand unchanged. Held-out regret is that of the new choices in the races of then, at those n where
they ran. With --borders every choice stays, and rows end where their variants do. Without --write the tables stay.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from advisor import codec, tablefile
from advisor.device import is_device
from advisor.kernels.registry import spec as spec_of
from advisor.kernels.variant import made_at
from advisor.pipeline import variants_for
from advisor.policy.counted import with_counters
from advisor.policy.existing import within
from advisor.policy.landing import mechanism
from advisor.policy.learn import Beside, Made, choose, learn, with_heldout
from advisor.policy.rule import with_rules
from advisor.policy.store import key, load_table, save_table, with_id
from advisor.records import Choice, Machine, Problem, Row, Section, Table
from advisor.search.counting import recorded
from advisor.search.known import Past, past
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions

LOGS = ("measurements.jsonl", "measurements.jsonl.gz")


class Change(NamedTuple):
    """A tuned n at which a section takes another choice than before."""

    kernel: str
    section: Section
    n: int
    what: str


def machine_of(folder: str) -> Machine:
    """The machine of a folder."""
    machine: Machine = codec.from_json(Machine, tablefile.read_json(os.path.join(folder, "machine.json")), "machine")
    return machine


def log_of(folder: str, scratch: str) -> str:
    """The folder's log, unpacked where it is packed.

    Raises:
        FileNotFoundError: it has none.
    """
    plain, packed = (os.path.join(folder, name) for name in LOGS)
    if os.path.exists(plain):
        return plain
    path = os.path.join(scratch, LOGS[0])
    with gzip.open(packed, "rb") as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    return path


def relearned(old: Table, machine: Machine, log_path: str) -> Table:
    """A table as this version learns it from the log; each section keeps the date of its measurements."""
    spec, first = spec_of(old.kernel), old.sections[0]
    problem = Problem(old.kernel, first.dtype, first.shape, first.tuned_n[0], first.regime)
    options = Options(SpaceOptions(()), objective=first.objective)
    request = Request(machine, spec, variants_for(old.kernel, (), machine), (problem,), options, "", old.environment)
    known = past(log_path, request, every_shape=True)
    shapes = dict.fromkeys(v.problem._replace(n=1) for v in known.verdicts if v.purpose == "final")
    tables = [_of_shape(shape, old, request, known) for shape in sorted(shapes)]
    table = with_heldout(tables[0]._replace(sections=tuple(s for one in tables for s in one.sections)), known.verdicts)
    if is_device(machine.limits_id):
        table = with_counters(table, recorded(log_path))
    dates = {key(section): section.created for section in old.sections}
    kept = tuple(s._replace(created=dates.get(key(s), s.created)) for s in table.sections)
    table = table._replace(sections=kept, environment=old.environment, extra=old.extra)
    return with_rules(with_id(table), known.verdicts, known.trials, request.variants)


def _of_shape(shape: Problem, old: Table, request: Request, known: Past) -> Table:
    """What is learned of one shape, whose header bounds hold for it alone."""
    verdicts, trials, stolen, energy = (
        [one for one in all_of if one.problem._replace(n=1) == shape]
        for all_of in (known.verdicts, known.trials, known.stolen, known.energy)
    )
    first, exists = old.sections[0], made_at(request.variants, shape)
    made = Made(first.created, old.provenance, first.rows[0].depends, first.objective, exists=exists)
    return learn(request.machine, verdicts, trials, made, Beside(stolen, energy))


def bounded(old: Table, machine: Machine) -> Table:
    """A table whose choices are the same, its rows no longer than the headers of their variants allow.

    Between two tuned n the border moves to where both choices are made; the tuned n themselves keep their rows.
    """
    known = variants_for(old.kernel, (), machine)
    sections = []
    for one in old.sections:
        exists = made_at(known, Problem(old.kernel, one.dtype, one.shape, 1, one.regime))
        others = tuple(more._replace(rows=_ended(more.rows, one.tuned_n, exists)) for more in one.alternatives)
        sections.append(one._replace(rows=_ended(one.rows, one.tuned_n, exists), alternatives=others))
    return with_id(old._replace(sections=tuple(sections)))


def _ended(rows: Sequence[Row], tuned: Sequence[int], exists: Callable[[Choice, int], bool]) -> tuple[Row, ...]:
    found = list(rows)
    for i, (left, right) in enumerate(pairwise(rows)):
        last = max((n for n in tuned if left.low <= n <= left.high), default=0)
        first = min((n for n in tuned if right.low <= n <= right.high), default=0)
        if last and first and exists(left.choice, last) and exists(right.choice, first):
            place = within(right.low, (last, left.choice), (first, right.choice), exists)
            found[i], found[i + 1] = found[i]._replace(high=place - 1), right._replace(low=place)
    return tuple(found)


def changes(old: Table, new: Table) -> Iterator[Change]:
    """Where the two take another choice at a tuned n."""
    before = {key(section): section for section in old.sections}
    for section in new.sections:
        known = before.get(key(section), section)
        for n in sorted({*known.tuned_n} & {*section.tuned_n}):
            was, now = choose(known, n), choose(section, n)
            if was != now:
                yield Change(new.kernel, section, n, mechanism(was, now))


def lines(old: Table, new: Table) -> list[str]:
    """What became of a table, in words."""
    rows = [sum(len(section.rows) for section in table.sections) for table in (old, new)]
    out = [f"{new.kernel}: {len(old.sections)} sections, {rows[0]} rows; now {len(new.sections)}, {rows[1]}"]
    for one in changes(old, new):
        shape = " ".join(f"{name}={value}" for name, value in one.section.shape)
        process = one.section.process.wait_policy if one.section.process else "-"
        out.append(f"  {one.section.dtype} {shape} {process} n={one.n}: {one.what}")
    for rule in dict(new.extra).get("rules", ()):
        out.append(f"  a rule from {rule['shapes']} shapes, validated regret {rule['validated_regret']}")
    return out


def main(words: Sequence[str] | None = None) -> int:
    """Learn, print, and write where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--borders", action="store_true", help="keep the choices, end rows where their variants do")
    parser.add_argument("--write", action="store_true", help="save the new tables in the folder")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        machine, log_path = machine_of(asked.folder), log_of(asked.folder, scratch)
        for path in tablefile.names(asked.folder):
            old = load_table(path)
            new = bounded(old, machine) if asked.borders else relearned(old, machine, log_path)
            print("\n".join(lines(old, new)))
            if asked.write:
                save_table(path, new)
                os.unlink(f"{path}.lock")
    return 0


if __name__ == "__main__":
    sys.exit(main())

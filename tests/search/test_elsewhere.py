"""What other machines measured, read from their folders as data."""

import gzip
import json
import os

import pytest
from fake import FakeSpec, fake_machine

from advisor import codec
from advisor.records import Build, Choice, Point, Process, Row, Section, Summary, Table, Team, pairs
from advisor.search import elsewhere
from advisor.search.elsewhere import machines
from advisor.search.portable import Portable, portable

SPEC = FakeSpec()
HERE = fake_machine(cores=4)
PROBLEM = SPEC.problem(4096)
GROUP = ("float32", "warm", PROBLEM.shape)
GOMP = Process("libgomp", "default", None, "default")
KNOBS = {"ADV_BLOCK": 32, "ADV_UNROLL": 4}


def choice(variant="split", threads=16, **knobs):
    build = Build(variant, "f" * 12, pairs(knobs or KNOBS), "gcc-13", "native")
    return Choice(build, Team(threads, "smt core"), GOMP)


def summary(ns):
    return Summary(ns, ns, ns, ns, (ns, ns), 40)


def section(made, ns=1000.0, n=1024, **extra):
    row = Row(n, n, made, (Point(n, summary(ns), True, None),), ())
    default, its = choice("naive", threads=1), (Point(n, summary(5 * ns), True, None),)
    found = Section("float32", PROBLEM.shape, "warm", GOMP, (n,), (row,), default, its, None, "")
    return found._replace(extra=pairs(extra))


def write(folder, made, machine, log=()):
    os.makedirs(folder)
    (folder / "machine.json").write_text(codec.dumps(machine, "machine"))
    (folder / "decode.table.json").write_text(codec.dumps(made, "table"))
    with gzip.open(folder / "measurements.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in log)


def table(*sections, hardware="other", limits="limits"):
    return Table("decode", hardware, limits, (), tuple(sections), ())


def other(hardware="other", limits="limits", cores=16):
    return fake_machine(cores=cores)._replace(hardware_id=hardware, limits_id=limits)


def trial(made, samples, n=1024, status="ok", phase="search"):
    problem = codec.to_json(PROBLEM._replace(n=n))
    told = {"problem": problem, "choice": codec.to_json(made), "status": status, "samples_ns": samples}
    return {"kind": "trial", "phase": phase, "measurement": told}


def test_a_machine_knows_what_its_table_and_its_log_measured(tmp_path):
    slow, beside = choice(threads=8), choice(threads=4)
    log = [trial(slow, [3000.0, 2000.0, 2500.0, 2600.0]), trial(beside, [5.0], phase="stolen"), {"kind": "trial"}]
    write(tmp_path / "a", table(section(choice())), other(), [*log, trial(choice("torn"), [], status="crashed")])
    (one,) = machines("decode", HERE, [str(tmp_path)])
    cell = one.cells[GROUP][1024]
    assert {what.threads: timed.ns for what, timed in cell.items()} == {16: 1000.0, 8: 2500.0, 1: 5000.0}
    assert (one.name, one.spot.cpus, one.picks[GROUP][1024]) == ("a", 16, choice())
    assert one.defaults[GROUP].team.threads == 1


def plain(folder, lines):
    """A log that is not packed, in place of the packed one."""
    (folder / "measurements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def threads_of(root):
    (one,) = machines("decode", HERE, [str(root)])
    return {what.threads for what in one.cells[GROUP][1024]}, one.unread


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_long_log_the_newest_part_is_read_and_what_is_passed_over_is_counted(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(elsewhere, "MOST_BYTES", 1 << 20)
    old, new = trial(choice(threads=8), [2000.0]), trial(choice(threads=4), [2500.0])
    log = [old, {"kind": "race", "filler": "x" * (5 << 19)}, new]
    write(tmp_path / "a", table(section(choice())), other(), log)
    if not packed:
        plain(tmp_path / "a", log)
    found, unread = threads_of(tmp_path)
    assert found == {16, 4, 1}
    whole = sum(len(json.dumps(line)) + 1 for line in log)
    assert unread == whole - len(json.dumps(new)) - 2


def test_a_log_is_read_again_only_when_it_or_the_table_was_written(tmp_path, monkeypatch):
    reads = []
    kept = elsewhere._tail
    monkeypatch.setattr(elsewhere, "_tail", lambda path: reads.append(path) or kept(path))
    write(tmp_path / "a", table(section(choice())), other())
    plain(tmp_path / "a", [trial(choice(threads=8), [2000.0])])
    assert threads_of(tmp_path) == threads_of(tmp_path) == ({16, 8, 1}, 0)
    assert len(reads) == 1
    plain(tmp_path / "a", [trial(choice(threads=n), [2000.0]) for n in (8, 4)])
    assert threads_of(tmp_path)[0] == {16, 8, 4, 1}
    (tmp_path / "a" / "decode.table.json").write_text(codec.dumps(table(section(choice(threads=2))), "table"))
    assert threads_of(tmp_path)[0] == {2, 8, 4, 1}
    assert len(reads) == 3


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[: len(raw) // 2], lambda raw: b"\x1f\x8b" + raw[:9], lambda raw: b""]
)
def test_a_damaged_log_leaves_the_table(tmp_path, spoil):
    write(tmp_path / "a", table(section(choice())), other(), [trial(choice(threads=8), [2000.0])])
    path = tmp_path / "a" / "measurements.jsonl.gz"
    path.write_bytes(spoil(path.read_bytes()))
    assert threads_of(tmp_path)[0] >= {16, 1}


def test_what_a_race_said_counts_before_a_look(tmp_path):
    standings = [{"choice": codec.to_json(choice(threads=8)), "outcome": "slower", "summary": {"p25_ns": 1500.0}}]
    race = {"kind": "verdict", "verdict": {"problem": codec.to_json(PROBLEM._replace(n=1024)), "standings": standings}}
    write(tmp_path / "a", table(section(choice())), other(), [race, trial(choice(threads=8), [900.0])])
    (one,) = machines("decode", HERE, [str(tmp_path)])
    assert one.cells[GROUP][1024][portable(choice(threads=8))].ns == 1500.0


def test_this_machine_is_left_out_and_its_other_limits_are_another(tmp_path):
    own = HERE.hardware_id
    write(tmp_path / "a", table(section(choice())), HERE)
    write(tmp_path / "b", table(section(choice())), other(own, "a part", cores=2))
    assert [one.name for one in machines("decode", HERE, [str(tmp_path)])] == ["b"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "advisor.table/9.0"}'])
def test_what_cannot_be_read_is_passed_over(tmp_path, text):
    write(tmp_path / "a", table(section(choice())), other())
    write(tmp_path / "b", table(section(choice())), other("third"))
    (tmp_path / "a" / "decode.table.json").write_text(text)
    assert [one.name for one in machines("decode", HERE, [str(tmp_path)])] == ["b"]
    assert machines("forward", HERE, [str(tmp_path)]) == ()
    assert machines("decode", HERE, [str(tmp_path / "none")]) == ()


def test_what_was_not_measured_on_a_machine_says_nothing_of_it(tmp_path):
    write(tmp_path / "a", table(section(choice(), basis="PUBLISHED")), other())
    assert machines("decode", HERE, [str(tmp_path)]) == ()


def test_the_shipped_tables_can_be_read():
    found = machines("decode", HERE)
    assert found
    assert all(one.spot.cpus >= 1 and one.picks for one in found)
    assert max(len(cell) for one in found for cells in one.cells.values() for cell in cells.values()) > 20


def test_a_portable_choice_has_no_machine():
    assert portable(choice()) == Portable("split", pairs(KNOBS), 16)


def test_a_search_that_never_came_to_the_default_says_nothing(tmp_path):
    cut = section(choice())._replace(default_points=())
    write(tmp_path / "a", table(cut), other())
    assert machines("decode", HERE, [str(tmp_path)]) == ()
    write(tmp_path / "b", table(cut), other("third"), [trial(choice("naive", threads=4), [900.0])])
    assert [one.name for one in machines("decode", HERE, [str(tmp_path)])] == ["b"]

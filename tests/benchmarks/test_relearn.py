"""Tables made again from a log: the same where the log has all, and what changed is named."""

import gzip
import json
import os
from pathlib import Path

import pytest
import relearn
from tabling import FOUR, MADE, ONE, TWO, machine, race

from advisor import codec
from advisor.kernels.registry import spec
from advisor.kernels.variant import made_at, variants
from advisor.pipeline import variants_for
from advisor.policy.existing import PROBES
from advisor.policy.learn import choose, learn
from advisor.policy.store import load_table, save_table
from advisor.records import Problem
from advisor.search import protocol


def real(choice):
    """A made-up choice of a variant that is at hand."""
    known = sorted(variants("decode"), key=lambda variant: variant.name)[0]
    return choice._replace(build=choice.build._replace(variant=known.name, source_hash=known.source_hash))


A, B, C = map(real, (ONE, FOUR, TWO))


@pytest.fixture
def folder(tmp_path):
    """A machine, its log with a final and a crossing race that overturns it, and a table of the final alone."""
    assert spec("decode").name == "decode"
    here = machine()
    finals = [race(64, {A: 110.0, C: 120.0}, default=C), race(4096, {B: 100.0, C: 300.0}, default=C)]
    crossing = race(64, {B: 90.0, A: 110.0, C: 120.0}, "crossing", default=C)
    conditions = {"hardware_id": here.hardware_id, "limits_id": here.limits_id, "protocol": protocol.VERSION}
    session = {"kind": "session", "schema": "advisor.measurements/1.0", "session": "s1", **conditions}
    records = [{**session, "environment": codec.to_json(dict(here.environment))}]
    records += [
        {"kind": "verdict", "session": "s1", "race": "r", "verdict": codec.to_json(v)} for v in (*finals, crossing)
    ]
    with gzip.open(tmp_path / "measurements.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    (tmp_path / "machine.json").write_text(codec.dumps(here, "machine"))
    save_table(str(tmp_path / "decode.table.json"), learn(here, finals, [], MADE))
    return tmp_path


def test_a_table_is_learned_again_and_saved_only_where_asked(folder, capsys):
    path = str(folder / "decode.table.json")
    before = load_table(path)
    assert relearn.main([str(folder)]) == 0
    told = capsys.readouterr().out
    assert "n=64: threads 1 -> 4" in told
    assert load_table(path) == before
    assert relearn.main([str(folder), "--write"]) == 0
    after = load_table(path)
    assert [choose(after.sections[0], n) for n in (64, 4096)] == [B, B]
    assert (after.sections[0].created, after.provenance) == (before.sections[0].created, before.provenance)
    assert not os.path.exists(f"{path}.lock")
    capsys.readouterr()
    relearn.main([str(folder)])
    assert "n=" not in capsys.readouterr().out


def test_rows_end_where_their_variants_do(folder, monkeypatch):
    monkeypatch.setattr(relearn, "made_at", lambda known, problem: lambda choice, n: choice != A or n <= 100)
    with gzip.open(folder / "measurements.jsonl.gz", "rt") as file:
        but_crossing = file.readlines()[:-1]
    with gzip.open(folder / "measurements.jsonl.gz", "wt") as file:
        file.writelines(but_crossing)
    relearn.main([str(folder), "--write"])
    (section,) = load_table(str(folder / "decode.table.json")).sections
    assert [(row.low, row.high, row.choice) for row in section.rows] == [(64, 100, A), (101, 4096, B)]


def test_borders_alone_move_and_every_choice_stays(folder, monkeypatch):
    before = load_table(str(folder / "decode.table.json")).sections[0]
    last = before.rows[-1].choice
    monkeypatch.setattr(relearn, "made_at", lambda known, problem: lambda choice, n: choice != last or n >= 4000)
    relearn.main([str(folder), "--borders", "--write"])
    (after,) = load_table(str(folder / "decode.table.json")).sections
    assert [row.choice for row in after.rows] == [row.choice for row in before.rows]
    assert (after.rows[-2].high, after.rows[-1].low) == (3999, 4000)


SHIPPED = sorted((Path(__file__).resolve().parents[2] / "policies").glob("*/*.table.json"))


@pytest.mark.parametrize(
    "path",
    [path for path in SHIPPED if (path.parent / "measurements.jsonl.gz").exists()],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_no_shipped_table_names_a_choice_where_its_variant_is_not_made(path):
    """Nor at n that were not tuned, where the default answers, as far as there is a variant for all n."""
    table, machine = load_table(str(path)), relearn.machine_of(str(path.parent))
    assert relearn.bounded(table, machine) == table
    known = variants_for(table.kernel, (), machine)
    for one in table.sections:
        made = made_at(known, Problem(table.kernel, one.dtype, one.shape, 1, one.regime))
        for row in (*one.rows, *(row for more in one.alternatives for row in more.rows)):
            asked = {*range(row.low, min(row.high, row.low + 40) + 1), (row.low + row.high) // 2, row.high}
            assert all(made(row.choice, n) for n in asked), (one.dtype, one.shape, row.low, row.choice.build)
        assert all(made(one.default, n) for n in (*PROBES, *one.tuned_n)), (one.dtype, one.shape, one.default.build)


def test_a_folder_without_a_log_is_refused(folder):
    os.unlink(folder / "measurements.jsonl.gz")
    with pytest.raises(FileNotFoundError):
        relearn.main([str(folder)])

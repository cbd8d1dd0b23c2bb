"""advisor table: what a user is told of the tables, and what happens to them."""

import json
import os
import shutil

import pytest
import tabling
from commanding import SCALE
from tabling import FOUR, MADE, ONE, SPIN, choice, figures, here, machine, race, write, write_machine
from typer.testing import CliRunner

from advisor import admitted, gather, paths, shelf, site, tablefile
from advisor.cli import app
from advisor.kernels.variant import variants
from advisor.lookup import Policy
from advisor.policy import history, ledger
from advisor.policy.learn import learn
from advisor.policy.store import document, load_table, put, save_table, with_id
from advisor.records import Rows, Standing, Team, pairs

DIRS = (SCALE[-1],)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The folder of the made-up machine, which is the one at hand; its table is kept in its history."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    own = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(own)
    history.keep(write(own, tabling.table()))
    return own


def run(*words, status=0):
    done = CliRunner().invoke(app, ["table", *words])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.output


def told(*words):
    return json.loads(run(*words, "--json"))


def another(folder):
    """A second table lands: four threads everywhere. Returns both ids."""
    path = os.path.join(folder, "decode.table.json")
    first = load_table(path)
    (section,) = first.sections
    rows = (section.rows[1]._replace(low=64),)
    second = with_id(first._replace(sections=(section._replace(rows=rows),), provenance=pairs({"session": "s2"})))
    put(path, second)
    history.keep(path)
    return first.table_id, second.table_id


def test_tables_are_listed_with_what_counts(folder):
    (one,) = told("list")["tables"]
    assert (one["kernel"], one["first_n"], one["last_n"], one["basis"]) == ("decode", 64, 4096, "EXACT")
    assert one["table_id"] == load_table(one["path"]).table_id
    assert one["table_id"] in run("list")


def test_a_table_that_cannot_be_trusted_is_listed_with_why(folder):
    with open(os.path.join(folder, "forward.table.json"), "w", encoding="utf-8") as file:
        file.write("{")
    assert [one["kernel"] for one in told("list")["tables"] if "refused" in one] == ["forward"]
    os.unlink(os.path.join(folder, "decode.table.json"))
    assert "JSON" in run("list", status=1)


def test_without_tables_the_list_says_how_to_make_one(folder):
    os.unlink(os.path.join(folder, "decode.table.json"))
    assert "advisor tune" in run("list")
    assert told("list")["tables"] == []


def test_a_table_is_shown_by_kernel_id_or_file(folder):
    path = os.path.join(folder, "decode.table.json")
    for which in ("decode", load_table(path).table_id[:6], path):
        assert told("show", which)["table_id"] == load_table(path).table_id
    assert "64: 1 us" in run("show", "decode")


@pytest.mark.parametrize("which", ["forward", "ffff", "../decode", "/nowhere.json", "", "a b"])
def test_a_table_that_is_not_there_is_refused(folder, which):
    assert "advisor:" in run("show", which, status=1)


def test_the_difference_of_two_tables_is_told_by_ranges_of_n(folder):
    first, second = another(folder)
    kept = history.entries(os.path.join(folder, "decode.table.json"))
    (change,) = told("diff", first, second)["changes"]
    assert (change["low"], change["high"]) == (64, load_table(kept[0].path).sections[0].rows[0].high)
    assert (change["what"], change["ratio"]) == ("threads 1 -> 4", pytest.approx(4000 / 5000))
    assert "threads 1 -> 4" in run("diff", first, "decode")
    assert "the same choices" in run("diff", "decode", second)


def alike():
    """Two process parts that differ in their spin count alone, one of them known of a few contended samples."""
    spin = choice(threads=4, process=SPIN)
    rough = race(64, {FOUR: 1000.0, ONE: 9000.0})
    few = Standing(spin, "slower", figures(3000.0)._replace(samples=3), 3.0, None, contended=True)
    rough = rough._replace(standings=(*rough.standings, few))
    return learn(machine(), [rough], [], MADE)


def test_rows_that_differ_in_a_spin_count_do_not_look_alike(folder):
    path = os.path.join(folder, "decode.table.json")
    os.unlink(path)
    save_table(path, alike())
    shown = run("show", "decode")
    rows = [line for line in shown.splitlines() if "float32" in line]
    assert ("spin" in shown, len(rows), len({line.split("0123")[0] for line in rows})) == (True, 2, 2)
    assert any("10000" in line and "(few" in line for line in rows)
    line = next(line for line in run("export", "decode", "--format", "csv").splitlines() if "10000" in line)
    assert line.endswith('EXACT,"few samples, contended"')
    other = alike()
    moved = tuple(
        s._replace(rows=tuple(r._replace(choice=r.choice._replace(team=Team(3, ""))) for r in s.rows))
        for s in other.sections
    )
    put(os.path.join(folder, "other.table.json"), with_id(other._replace(sections=moved)))
    changes = run("diff", "decode", os.path.join(folder, "other.table.json"))
    told_apart = [line for line in changes.splitlines() if "->" in line]
    assert ["spin 10000" in line for line in told_apart].count(True) == 1 < len(told_apart)


def test_usual_columns_that_tell_nothing_apart_are_left_out(folder):
    assert not {"spin", "memory_policy", "runtime", "compiler", "flags"} & set(run("show", "decode").split())


def test_a_rollback_counts_at_once_and_is_in_the_history(folder):
    first, second = another(folder)
    assert Policy.load().choose("decode", 64).threads == 4
    assert told("rollback", "decode")["table_id"] == first
    assert Policy.load().choose("decode", 64).threads == 1
    assert told("rollback", "decode", "--to", second[:5])["table_id"] == second
    found = told("history", "decode")
    assert [one["table_id"] for one in found["tables"]] == [first, second]
    assert [line["verdict"] for line in found["ledger"]] == ["rolled back", "rolled back"]
    assert first in run("history", "decode")


def test_a_rollback_to_nothing_is_refused(folder):
    assert "earlier table" in run("rollback", "decode", status=1)
    assert "no such table" in run("rollback", "decode", "--to", "ffff", status=1)
    assert "earlier table" in run("rollback", "forward", status=1)
    assert "nothing is known" in run("history", "forward")


def test_a_damaged_table_is_set_aside_by_a_rollback_and_named(folder):
    first = history.entries(path := os.path.join(folder, "decode.table.json"))[-1].table_id
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    found = told("rollback", "decode")
    assert (found["table_id"], len(found["notes"])) == (first, 1)
    assert "set aside as decode.table.json.broken-" in found["notes"][0]
    os.unlink(path)
    assert f"table {first} counts now" in run("rollback", "decode")


@pytest.mark.parametrize("how", ["cut", "changed", "swapped"])
def test_a_damaged_table_of_the_history_is_listed_with_why_and_refused(folder, how):
    first, second = another(folder)
    old, new = history.entries(path := os.path.join(folder, "decode.table.json"))
    with open(old.path, encoding="utf-8") as file:
        text = file.read()
    spoilt = {"cut": text[:99], "changed": text.replace("made_up", "made_up2")}
    if how == "swapped":
        shutil.copy(new.path, old.path)
    else:
        with open(old.path, "w", encoding="utf-8") as file:
            file.write(spoilt[how])
    why = {"cut": "readable JSON", "changed": "changed after it was written", "swapped": "the table that its name says"}
    found = {one["table_id"]: one["damage"] for one in told("history", "decode")["tables"]}
    assert (why[how] in found[first], found[second]) == (True, None)
    shown = run("history", "decode")
    assert why[how] in shown.replace("\n", " ")
    assert (os.path.basename(old.path) in shown, os.path.dirname(old.path) in shown) == (True, False)
    refused = run("rollback", "decode", "--to", first, status=1)
    assert "damaged since it was kept cannot be gone back to (" in refused
    assert f"); got '{first}'; allowed: {second}; give --to with one that is whole" in refused.replace("\n", " ")
    assert why[how] in refused
    assert load_table(path).table_id == second


def test_an_exported_table_can_be_imported_again(folder, tmp_path):
    path, out = os.path.join(folder, "decode.table.json"), str(tmp_path / "copy.json")
    before = load_table(path)
    run("export", "decode", "--out", out)
    out = shutil.copy(out, tmp_path / os.fsdecode(b"a \xff.json"))
    os.unlink(path)
    assert told("import", str(out))["table_id"] == before.table_id
    assert load_table(path) == before
    assert [ledger.read(folder)[-1][name] for name in ("verdict", "why")] == ["imported", "from a \ufffd.json"]


def test_an_import_keeps_what_stood_there(folder, tmp_path):
    first, second = another(folder)
    old = shutil.copy(history.entries(os.path.join(folder, "decode.table.json"))[0].path, tmp_path / "old.json")
    assert told("import", str(old))["table_id"] == first
    assert [one["table_id"] for one in told("history", "decode")["tables"]] == [second, first]


def foreign(table):
    return table._replace(hardware_id="hw0000000002")


def climbing(table):
    return table._replace(kernel="../../climbing")


@pytest.mark.parametrize(("change", "why"), [(foreign, "this is another"), (climbing, "kernel's name")])
def test_what_is_not_for_this_machine_is_not_imported(folder, tmp_path, change, why):
    out = str(tmp_path / "copy.json")
    put(out, with_id(change(tabling.table())))
    assert why in run("import", out, status=1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "advisor.table/9.0"}', '{"schema": NaN}'])
def test_what_is_no_table_is_not_imported(folder, tmp_path, content):
    out = tmp_path / "odd.json"
    out.write_text(content, "utf-8")
    before = load_table(os.path.join(folder, "decode.table.json"))
    run("import", str(out), status=1)
    run("import", str(tmp_path), status=1)
    run("import", str(tmp_path / "none.json"), status=1)
    assert load_table(os.path.join(folder, "decode.table.json")) == before


@pytest.mark.parametrize("basis", tablefile.CARRIED)
def test_what_was_carried_over_is_not_imported(folder, tmp_path, basis):
    out, path = str(tmp_path / "decode.transfer.table.json"), os.path.join(folder, "decode.table.json")
    (section,) = tabling.table().sections
    put(out, with_id(tabling.table(sections=(section._replace(extra=pairs({"basis": basis})),))))
    before = load_table(path)
    assert "must have been measured on this machine" in run("import", out, status=1)
    assert load_table(path) == before


def spoilt(folder, change):
    """The table in its place with a change in its document, and a fitting id."""
    path = os.path.join(folder, "decode.table.json")
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    change(found["sections"][0])
    found["table_id"] = tablefile.content_id(found)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return path


def nulls(section):
    section.update(dict.fromkeys(("basis", "origin", "no_counters", "heldout")))
    section["rows"][0].update(dict.fromkeys(("published", "whole", "why")))


def test_what_a_table_calls_null_is_absent(folder, tmp_path):
    plain = (run("show", "decode"), run("export", "decode", "--format", "csv"), told("list")["tables"][0]["basis"])
    path = spoilt(folder, nulls)
    told_now = (run("show", "decode"), run("export", "decode", "--format", "csv"), told("list")["tables"][0]["basis"])
    assert [text.splitlines()[1:] for text in told_now] == [text.splitlines()[1:] for text in plain]
    copy = shutil.copy(path, tmp_path / "copy.json")
    assert told("import", str(copy))["table_id"] == load_table(path).table_id


def too_many(section):
    section["rows"][1]["choice"]["team"]["threads"] = 100_000


def of_nowhere(section):
    section["rows"][0]["choice"]["team"]["placement"] = "take socket 99"


def default_of_nowhere(section):
    section["default"]["team"]["placement"] = "take cpu 1 | "


def other_objective(section):
    rows = [{**section["rows"][0], "high": section["rows"][-1]["high"], "choice": section["rows"][0]["choice"]}]
    rows[0]["choice"]["team"]["placement"] = "take socket 99"
    section["rows"][0] = {
        **rows[0],
        "low": 64,
        "high": section["rows"][0]["high"],
        "choice": section["rows"][1]["choice"],
    }
    section["alternatives"] = [{"objective": "robust", "rows": rows}]


def no_time(section):
    section["rows"][0]["points"][0]["summary"]["p25_ns"] = -1.0


def crossed(section):
    section["rows"][0]["points"][0]["summary"]["ci95_ns"] = [2000.0, 1000.0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (too_many, "the table's placement cannot be used here"),
        (of_nowhere, "the table's placement cannot be used here"),
        (default_of_nowhere, "float32 warm: "),
        (other_objective, "the table's placement cannot be used here"),
        (no_time, "finite and above zero"),
        (crossed, "ends of an interval in order"),
    ],
)
def test_a_signed_table_of_which_a_lookup_would_make_nothing_is_not_imported(folder, tmp_path, change, why):
    path = os.path.join(folder, "decode.table.json")
    good, out = shutil.copy(path, tmp_path / "good.json"), tmp_path / "odd.json"
    shutil.move(spoilt(folder, change), out)
    shutil.copy(good, path)
    assert why in run("import", str(out), status=1)
    assert Policy.load().choose("decode", 64).basis == "EXACT"
    assert load_table(path) == load_table(str(good))
    shutil.copy(out, path)  # what the refusal spares a server
    robust = Policy.load(objective="robust")
    assert change is default_of_nowhere or "DEFAULT" in {
        p.choose("decode", n).basis for p in (Policy.load(), robust) for n in (64, 4096)
    }


def test_what_a_lookup_would_not_answer_as_things_are_is_marked_and_imported(folder, tmp_path):
    older = tabling.table()
    older = with_id(older._replace(environment=pairs({**dict(older.environment), "kernel": "5.4.0"})))
    put(str(tmp_path / "old.json"), older)
    notes = told("import", str(tmp_path / "old.json"))["notes"]
    assert any("stale (kernel was 5.4, is 6.1" in note and "from n = 64" in note for note in notes), notes
    assert any("no such variant of decode is installed here: made_up" in note for note in notes)
    assert Policy.load().choose("decode", 64).basis == "DEFAULT"


def known(name="columns", knobs=(("ADV_U", 4), ("ADV_V", 32)), kernel="rmsnorm", dirs=(), n=64):
    """A signed table of one choice of a variant that is installed here, measured at n alone."""
    (variant,) = [one for one in variants(kernel, dirs) if one.name == name]
    what = choice(variant.name)
    what = what._replace(build=what.build._replace(source_hash=variant.source_hash, knobs=knobs))
    one = race(n, {what: 1000.0})
    shape = pairs({"batch": 1, "d_model": 64} if kernel == "rmsnorm" else {"width": 16})
    return learn(machine(), [one._replace(problem=one.problem._replace(kernel=kernel, shape=shape))], [], MADE)


@pytest.mark.parametrize(
    ("knobs", "n", "why"),
    [
        ({"ADV_U": 999, "ADV_V": -3}, 64, "says: columns needs the knob ADV_V; got -3; allowed: (32, 64)"),
        ({"ADV_U": 4}, 64, "needs the knob ADV_V; got None"),
        ({"ADV_U": 4, "ADV_V": 32, "ADV_W": 1}, 64, "has no knob ADV_W, but ADV_V, ADV_U"),
        ({"ADV_U": 4, "ADV_V": 32}, 256, "its header demands batch * n <= 128"),
    ],
)
def test_a_choice_that_its_header_rules_out_is_not_imported(folder, tmp_path, knobs, n, why):
    assert Policy.load().choose("rmsnorm", 64).basis == "DEFAULT"
    put(out := str(tmp_path / "odd.json"), known(knobs=pairs(knobs), n=n))
    refused = " ".join(run("import", out, status=1).split())
    assert why in refused
    assert "must be one that the header of its variant has" in refused
    assert f"float32 warm, n = {n}: columns with ADV_U=" in refused
    assert f"float32 warm, the default choice at n = {n}: " in refused
    assert not os.path.exists(os.path.join(folder, "rmsnorm.table.json"))
    put(out, known())
    assert told("import", out)["notes"] == []
    assert os.path.exists(os.path.join(folder, "rmsnorm.table.json"))


def test_a_choice_is_asked_about_at_the_ends_of_its_row_and_of_other_objectives(folder, tmp_path):
    good, far = known(), known("one_pass", (), n=256)
    (section,), rows = good.sections, (good.sections[0].rows[0], far.sections[0].rows[0])
    section = section._replace(tuned_n=(64, 256), rows=(rows[0]._replace(high=128), rows[1]._replace(low=129)))
    assert admitted.judge(shelf.shelf().site, document(with_id(good._replace(sections=(section,))))).refused == ()
    beyond = (rows[0]._replace(high=129), rows[1]._replace(low=130))
    wide = [section._replace(rows=beyond), section._replace(alternatives=(Rows("robust", beyond),))]
    found = [admitted.judge(shelf.shelf().site, document(with_id(good._replace(sections=(one,))))) for one in wide]
    for one in found:
        assert [words for words in one.refused if words.startswith("float32 warm, n = 129: ")], one


def test_of_another_source_than_the_one_here_nothing_is_known(folder):
    text = json.dumps(document(known(knobs=pairs({"ADV_U": 999}))))
    (variant,) = [one for one in variants("rmsnorm") if one.name == "columns"]
    table = json.loads(text.replace(variant.source_hash, "0" * len(variant.source_hash)))
    table["table_id"] = tablefile.content_id(table)
    assert admitted.judge(shelf.shelf().site, table).refused == ()


def test_a_table_of_a_kernel_that_is_not_known_here_is_imported_with_its_folder_only(folder, tmp_path):
    put(out := str(tmp_path / "scale.json"), known("plain", (), "scale", DIRS))
    refused = " ".join(run("import", out, status=1).split())
    assert "must be of a kernel that is known here; got 'scale'; allowed: backward, " in refused
    assert "give --kernel-dir" in refused
    assert not os.path.exists(os.path.join(folder, "scale.table.json"))
    assert told("import", out, "--kernel-dir", *DIRS)["kernel"] == "scale"
    assert [one["kernel"] for one in told("list")["tables"]] == ["decode", "scale"]


@pytest.mark.parametrize("text", ["\ud800", "x\udfff", "\udc00\ud800"])
def test_half_a_surrogate_pair_is_no_text(folder, tmp_path, text):
    path = spoilt(folder, lambda section: section["rows"][0]["choice"]["team"].update(placement=text))
    copy = shutil.copy(path, tmp_path / "copy.json")
    assert "surrogates not allowed" in run("import", str(copy), status=1)
    assert "surrogates not allowed" in run("list", status=1)
    spoilt(folder, lambda section: section["rows"][0]["choice"]["team"].update(placement="\U0001f600 \\ud800"))
    assert "\U0001f600" in run("show", "decode")


def test_rows_are_exported_as_csv_and_markdown(folder):
    lines = run("export", "decode", "--format", "csv").splitlines()
    assert lines[0].startswith("dtype,shape,regime")
    assert len(lines) == 1 + 4
    text = run("export", "decode", "--format", "markdown")
    assert text.splitlines()[1].startswith("| --- |")
    assert len({line.count("|") for line in text.splitlines()}) == 1
    assert "no such format" in run("export", "decode", "--format", "xml", status=1)
    assert json.loads(run("export", "decode"))["kernel"] == "decode"


def test_the_tables_beside_a_machine_description_can_be_looked_at(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write(other, tabling.table())
    told_of = write_machine(other, machine())
    assert told("list", "--machine", told_of)["folder"] == str(other)
    assert "must be a machine" in run("list", "--machine", os.path.join(folder, "decode.table.json"), status=1)


def test_published_tables_are_made_in_place(tmp_path):
    own = tmp_path / "anvil"
    shutil.copytree(os.path.join(paths.shipped_policies(), "purdue-anvil-cpu"), own)
    os.unlink(own / "decode.table.json")
    assert told("import", "--published", str(own))["written"] == [str(own / "decode.table.json")]
    assert load_table(str(own / "decode.table.json")).kernel == "decode"

"""advisor report: a file, whole or not at all, from this machine's folder or another's."""

import json

import pytest
from report_fixtures import folder
from typer.testing import CliRunner

from advisor.cli import app

plotly = pytest.importorskip("plotly", reason="no plotly here")


def report(*words, home=None):
    environment = {} if home is None else {"ADVISOR_HOME": str(home)}
    done = CliRunner().invoke(app, ["report", *words], env=environment)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("command"))


def test_it_writes_one_file_and_says_how_large(place, tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    code, out, err = report("--machine", f"{place}/machine.json", "--out", str(path))
    assert (code, err) == (0, "")
    assert "4 figures" in out
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert [found.name for found in tmp_path.iterdir()] == ["r.html"]


def test_for_programs_it_lists_the_chapters(place, tmp_path):
    path = tmp_path / "r.html"
    code, out, _ = report("--machine", f"{place}/machine.json", "--out", str(path), "--json")
    told = json.loads(out)
    assert (code, told["path"], told["figures"], told["notes"]) == (0, str(path), 4, [])
    assert told["chapters"][0] == "The machine"


def test_a_kernel_without_a_table_is_refused(place, tmp_path):
    words = ("--machine", f"{place}/machine.json", "--kernel", "forward", "--out", str(tmp_path / "r.html"))
    code, _, err = report(*words)
    assert code == 1
    assert "a report needs a table of forward" in err
    assert "allowed: what has a table here: decode; ask for decode by --kernel" in err
    assert "advisor tune" not in err  # it would not make one of a kernel that does not exist
    assert list(tmp_path.iterdir()) == []


def test_an_untuned_machine_is_told_to_tune(tmp_path):
    code, _, err = report("--out", str(tmp_path / "r.html"), home=tmp_path)
    assert code == 1
    assert "advisor: a report needs a table, and this folder has no table; got '" in err
    assert err.endswith("'; allowed: a folder in which a tuning left a table; run `advisor tune` first\n")
    assert "machine.json" not in err  # no matter as long as there is no table


def test_a_folder_whose_tables_are_all_refused_says_why_each_is(tmp_path):
    (tmp_path / "decode.table.json").write_text("{", "utf-8")
    code, _, err = report("--machine", str(tmp_path / "machine.json"), "--out", str(tmp_path / "r.html"))
    assert code == 1
    assert "no table that can be read" in err
    assert "decode.table.json was refused" in err


def test_a_place_that_cannot_be_written_to_is_named(place, tmp_path):
    code, _, err = report("--machine", f"{place}/machine.json", "--out", str(tmp_path / "absent" / "r.html"))
    assert code == 1
    assert f"got '{tmp_path / 'absent' / 'r.html'}'; No such file or directory" in err


def test_half_a_character_of_a_reason_is_written_as_an_escape(place, tmp_path):
    """A log is JSON, whose texts may hold one; UTF-8 cannot."""
    odd = folder(tmp_path)
    log = tmp_path / "measurements.jsonl"
    log.write_text(
        log.read_text("utf-8")
        .replace('"reason":"crashed', '"reason":"\\ud800 crashed')
        .replace('"reason": "crashed', '"reason": "\\ud800 crashed'),
        "utf-8",
    )
    code, _, err = report("--machine", f"{odd}/machine.json", "--out", str(tmp_path / "r.html"))
    assert (code, err) == (0, "")
    assert "\\ud800 crashed" in (tmp_path / "r.html").read_text("utf-8")

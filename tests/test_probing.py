"""What `advisor probe` does with its options, as a function and as a command."""

from __future__ import annotations

import json
import subprocess

import pytest
from commanding import Site
from tabling import table, write
from trees import affinity, build

from advisor.errors import BadInput, Missing, PlacementError
from advisor.probing import Wanted, document, tell
from advisor.topology.probe import machine_json, topology


@pytest.fixture
def root(tmp_path):
    return str(build(tmp_path / "tree", "2s1n4c2t"))


@pytest.fixture
def site(tmp_path):
    return Site(str(tmp_path / "home"), str(tmp_path / "cache"))


def test_a_team_is_that_of_the_placement(root):
    told = tell(Wanted(root, placement="take smt 1", threads=5))
    assert told.team == (0, 1, 2, 3, 4)
    found = document(told, Wanted(root, placement="take smt 1", threads=5))
    assert found["team"] == {"placement": "take smt 1", "threads": 5, "cpus": (0, 1, 2, 3, 4)}
    assert "team" not in document(tell(Wanted(root)), Wanted(root))


def test_threads_alone_are_of_the_empty_placement(root):
    assert tell(Wanted(root, threads=3)).team == (0, 8, 1)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"placement": "take nowhere 1"}, PlacementError),
        ({"threads": 17}, PlacementError),
        ({"placement": "none"}, PlacementError),
        ({"record": "x.zip"}, BadInput),
        ({"compare": "/nonexistent/machine.json"}, Missing),
    ],
)
def test_nonsense_is_refused(root, wanted, kind):
    with pytest.raises(kind):
        tell(Wanted(root, **wanted))


def test_a_sysroot_that_is_no_folder_is_refused():
    with pytest.raises(BadInput, match="folder"):
        tell(Wanted("/nonexistent"))


def test_comparing_counts_the_rows_of_tables_beside_the_file(root, tmp_path):
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "machine.json").write_text(machine_json(topology(root)))
    write(str(folder), table())
    same = tell(Wanted(root, compare=str(folder / "machine.json"))).compared
    assert same.verdict == "EXACT stays"
    assert ["decode.table.json" in text and "EXACT" in text for text in same.tables] == [True]
    affinity(tmp_path / "tree", "0-1")
    other = tell(Wanted(root, compare=str(folder / "machine.json"))).compared
    assert other.verdict == "never EXACT"
    assert "none of its" in other.tables[0]


def test_the_command_records_draws_and_compares(site, root, tmp_path):
    archive, drawing, stored = (str(tmp_path / name) for name in ("odd.tar.gz", "odd.svg", "machine.json"))
    (tmp_path / "machine.json").write_text(machine_json(topology(root)))
    words = ("probe", "--sysroot", root, "--json")
    done = site.advisor(*words, "--record", archive, "--svg", drawing, "--compare", stored, "--threads", "2")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["recorded"]["differs"] == []
    assert found["compared"]["verdict"] == "EXACT stays"
    assert "<svg" in (tmp_path / "odd.svg").read_text()
    subprocess.run(["tar", "-xzf", archive, "-C", str(tmp_path)], check=True)
    again = json.loads(site.advisor("probe", "--json", "--sysroot", str(tmp_path / "odd")).out)
    assert again == json.loads(site.advisor(*words).out)


def test_the_command_refuses_to_overwrite_a_record_in_one_line(site, root, tmp_path):
    (tmp_path / "odd.tgz").write_text("mine")
    done = site.advisor("probe", "--sysroot", root, "--record", str(tmp_path / "odd.tgz"))
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert (tmp_path / "odd.tgz").read_text() == "mine"


def test_a_drawing_that_cannot_be_written_is_one_line(site, root):
    done = site.advisor("probe", "--sysroot", root, "--svg", "/nonexistent/x.svg")
    assert (done.status, done.out) == (1, "")
    assert done.err.count("\n") == 1


def test_the_picture_has_the_team_and_plain_letters_where_it_must(site, root):
    plain = site.advisor("probe", "--sysroot", root, "--threads", "3", PYTHONIOENCODING="ascii")
    assert plain.status == 0
    assert "0#0+8#1" in plain.out
    assert "team     3 threads on CPUs 0,8,1" in plain.out
    assert plain.out.isascii()
    assert "\x1b" not in site.advisor("probe", "--sysroot", root, PYTHONIOENCODING="utf-8").out


def test_the_command_says_where_it_drew(site, root, tmp_path):
    drawing = str(tmp_path / "all.svg")
    done = site.advisor("probe", "--sysroot", root, "--svg", drawing)
    assert (done.status, done.out.splitlines()[-1]) == (0, f"{drawing}: a drawing of every group, for a browser")

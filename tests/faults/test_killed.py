"""A tuner killed with no warning, at any record and within its write: nothing but the trial in flight is lost, and
with the same times `--resume` ends with the identical table (cases A-02, O-02)."""

from __future__ import annotations

import glob
import json
import os
import random
import subprocess
import sys

import pytest

from advisor.codec import SCHEMAS
from advisor.policy.store import load_table
from advisor.search.log import read

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = (256, 16384)


@pytest.fixture(scope="module")
def tune():
    """Run a stubbed tuner: how it ended, as an exit status or the negated number of the signal."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(HERE), *sys.path])}
    command = [sys.executable, os.path.join(HERE, "stub_tuner.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as serving:
        assert serving.stdout.readline() == "ready\n"

        def run(home, **asked):
            line = {"home": str(home), "sizes": SIZES, "resume": True, **asked}
            print(json.dumps(line), file=serving.stdin, flush=True)
            return int(serving.stdout.readline())

        yield run
        serving.stdin.close()


@pytest.fixture(scope="module")
def whole(tune, tmp_path_factory):
    """The folder of a run that nothing happened to."""
    home = tmp_path_factory.mktemp("whole")
    assert tune(home, resume=False) == 0
    return home


def file_of(home, name):
    (found,) = glob.glob(os.path.join(str(home), "machines", "*", name))
    return found


def table_text(home):
    """The table as text, apart from when and in which session it was made."""
    with open(file_of(home, "decode.table.json"), encoding="utf-8") as file:
        table = json.load(file)
    table.pop("table_id")  # a digest of all, the session included
    table["provenance"].pop("session")
    for section in table["sections"]:
        section.pop("created", None)
    return json.dumps(table, indent=1)


def records(home):
    return read(file_of(home, "measurements.jsonl")).records


def looks(home):
    """(problem and choice) of every first look, in order."""
    found = [r for r in records(home) if r["kind"] == "trial" and r.get("phase") == "search"]
    return [(json.dumps(r["measurement"]["problem"]), r["choice_id"]) for r in found]


def killed_and_resumed(tune, whole, home, chance, kills):
    """Kill within a random record `kills` times, each time further on; then let it end."""
    total = len(records(whole))
    for die_at in sorted(chance.randrange(total) for _ in range(kills)):
        before = records(home) if os.path.exists(home) else ()
        new = max(0, die_at - len(before))
        ended = tune(home, die_at=new, torn=chance.randrange(2000))
        assert ended in (-9, 0)
        if ended == 0:  # less was left to do than the record to die at
            break
        after = records(home)
        assert after[: len(before)] == before
        assert len(after) - len(before) in (new, new + 1)  # whole but for the end of its line
    assert tune(home) == 0
    found = looks(home)
    assert len(found) == len(set(found)), "something was looked at twice"
    assert sorted(found) == sorted(looks(whole))
    assert table_text(home) == table_text(whole)


@pytest.mark.parametrize("seed", range(5))
def test_a_tuner_killed_within_any_record_ends_with_the_identical_table(tune, whole, tmp_path, seed):
    killed_and_resumed(tune, whole, tmp_path / "home", random.Random(seed), 1 + seed % 2)


@pytest.mark.soak
def test_a_hundred_kills_end_with_the_identical_table(tune, whole, tmp_path):
    chance = random.Random(11)
    for k in range(25):
        killed_and_resumed(tune, whole, tmp_path / str(k), chance, 4)


@pytest.mark.soak
def test_kills_from_outside_at_any_time_end_with_the_identical_table(tune, whole, tmp_path):
    chance = random.Random(12)
    for k in range(20):
        home = tmp_path / str(k)
        for _ in range(3):
            assert tune(home, kill_after_s=chance.uniform(0.0, 1.5)) in (-9, 0)
        assert tune(home) == 0
        assert table_text(home) == table_text(whole)


def test_a02_ctrl_c_leaves_a_valid_table_of_what_is_done_and_a_resume_ends_with_the_identical_one(
    tune, whole, tmp_path
):
    home = tmp_path / "home"
    finals = [
        (place, record["verdict"]["problem"]["n"])
        for place, record in enumerate(records(whole), 1)
        if record["kind"] == "verdict" and record["verdict"]["purpose"] == "final"
    ]
    place, n = finals[0]
    assert tune(home, resume=False, stop_at=place + 5) == 0
    assert place + 5 <= len(records(home)) < len(records(whole))
    table = load_table(file_of(home, "decode.table.json"))
    raced = {(p.n, p.raced) for section in table.sections for row in section.rows for p in row.points}
    assert (n, True) in raced
    assert all(other == n for other, so in raced if so)
    assert tune(home) == 0
    assert table_text(home) == table_text(whole)


def test_o02_killed_in_the_first_trial_of_five_leaves_no_orphan_and_five_results(tune, whole, tmp_path):
    """A trial is a record once it has ended: what was in flight is in no file, and is measured by whoever resumes."""
    home = tmp_path / "home"
    assert tune(home, die_at=1, torn=700) == -9  # record 0 is the session
    assert [record["kind"] for record in records(home)] == ["session"]
    assert tune(home, die_at=6) == -9
    assert looks(home) == looks(whole)[:5]


def test_o03_another_space_is_another_run_and_the_old_one_stays(tune, whole, tmp_path):
    home = tmp_path / "home"
    assert tune(home, sizes=(256,)) == 0
    before = looks(home)
    assert tune(home, sizes=(256,), cores=8) == 0
    folders = glob.glob(os.path.join(str(home), "machines", "*", "measurements.jsonl"))
    assert len(folders) == 2  # another mask is another folder: the old results are neither used nor lost
    assert tune(home, sizes=(256,), one_more=True) == 0
    (log,) = [path for path in folders if len(read(path).records) > len(before) and "one-more" in open_text(path)]
    hashes = [record["space_hash"] for record in read(log).records if record["kind"] == "session"]
    assert len(set(hashes)) == len(hashes) == 2


def open_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_o03_a_log_of_an_unknown_schema_is_set_aside_with_a_message(tune, whole, tmp_path):
    home = tmp_path / "home"
    assert tune(home, sizes=(256,), die_at=20) == -9
    path = file_of(home, "measurements.jsonl")
    schema = f"advisor.measurements/{SCHEMAS['measurements'][0]}."
    newer = open_text(path).replace(schema, "advisor.measurements/99.")
    with open(path, "w", encoding="utf-8") as file:
        file.write(newer)
    assert tune(home, sizes=(256,), note="set aside as measurements.jsonl.newer") == 0
    assert open_text(f"{path}.newer") == newer
    assert read(path).notes == ()


@pytest.mark.parametrize("kib", [1, 40, 100])
def test_a_disk_that_fills_leaves_what_was_there_and_a_resume_ends_with_the_identical_table(tune, whole, tmp_path, kib):
    """Files of the run may have so many KiB: it ends within the first record, or within a later one."""
    home = tmp_path / "home"
    assert tune(home, disk_bytes=kib << 10) == 77
    kept = looks(home) if kib > 1 else []
    assert kept == looks(whole)[: len(kept)]
    assert glob.glob(os.path.join(str(home), "machines", "*", "*.table.json*")) == []
    assert tune(home) == 0
    assert looks(home)[: len(kept)] == kept
    assert table_text(home) == table_text(whole)

"""A log as T4 files: which samples, which failures, which file."""

from __future__ import annotations

import json
import os

import pytest
from tabling import choice, problem
from typer.testing import CliRunner

from advisor import exporting
from advisor.cli import app
from advisor.codec import digest, schema_of, to_json
from advisor.errors import BadInput, Missing, UnknownName
from advisor.records import Measurement, pairs
from advisor.search.known import AGAIN, DRIFT, ENERGY, STOLEN
from advisor.search.log import Log
from advisor.search.replay import load

FAST, SLOW = choice(threads=2, block=8), choice(threads=1, block=8)


def trial(what, status="ok", ns=(1e6, 3e6), phase="search", size=1024, **changes):
    samples = tuple(ns) if status == "ok" else ()
    measured = Measurement(problem(size), what, status, samples, seconds=0.5, compile_s=0.2, kernel_s=0.1)
    document = to_json(measured._replace(**changes))
    return {"kind": "trial", "session": "s1", "choice_id": digest(what), "phase": phase, "measurement": document}


def sample(what, ns, **changes):
    fields = {"problem_id": digest(problem(1024)), "choice_id": digest(what), "status": "ok", "rejected": False}
    return {"kind": "race", "session": "s1", "race": "r", "sample_ns": ns, **fields, **changes}


@pytest.fixture
def export(tmp_path):
    """Records to the spaces that are read back, by size."""

    def write(*records, hardware="hw1"):
        session = {"kind": "session", "schema": schema_of("measurements"), "session": "s1", "time": "2026-01-02"}
        with Log(str(tmp_path / "log.jsonl")) as log:
            for record in ({**session, "hardware_id": hardware}, *records):
                log.append(record)
        return exporting.export(str(tmp_path / "log.jsonl"), "t4", str(tmp_path / "out"))

    return write


def read(exported):
    """The first space, as configuration -> milliseconds of its runs."""
    space = load(exported.files[0])
    spots = [space.names.index(name) for name in ("variant", "threads", "knob block")]
    return {tuple(row[k] for k in spots): runs for row, runs in zip(space.configurations, space.runs_ms, strict=True)}


def test_samples_of_trials_and_races_are_the_runs(export):
    found = export(trial(FAST), trial(SLOW, ns=(4e6,)), sample(FAST, 2e6), sample(FAST, 9e6, rejected=True))
    assert found.results == (2,)
    assert read(found) == {("made_up", 2, 8): (1.0, 3.0, 2.0), ("made_up", 1, 8): (4.0,)}


def test_a05_contended_looks_are_left_out_unless_asked_for(export, tmp_path):
    noisy = {"conditions": pairs({"kept_noisy": 2})}
    found = export(trial(FAST), trial(SLOW, **noisy))
    assert found.results == (1,)
    assert found.notes == ("left out: 1 contended look; --contended keeps them",)
    kept = exporting.export(str(tmp_path / "log.jsonl"), "t4", str(tmp_path / "all"), contended=True)
    assert (kept.results, kept.notes) == ((2,), ())


def test_a05_nothing_but_contended_looks_is_refused_with_the_way_out(export):
    with pytest.raises(BadInput, match="--contended keeps them"):
        export(trial(SLOW, conditions=pairs({"kept_noisy": 1})))


def test_compile_time_and_overhead_are_told_apart(export):
    space = load(export(trial(FAST)).files[0])
    assert space.compile_ms[0] == pytest.approx(200)
    assert space.overhead_ms[0] == pytest.approx(200)


@pytest.mark.parametrize("phase", [STOLEN, DRIFT, ENERGY])
def test_times_of_another_regime_are_left_out(export, phase):
    assert read(export(trial(FAST, ns=(1e6,)), trial(FAST, ns=(7e6,), phase=phase))) == {("made_up", 2, 8): (1.0,)}


@pytest.mark.parametrize(
    ("status", "compile_s", "invalidity"),
    [
        ("wrong", 0.1, "correctness"),
        ("crashed", 0.1, "runtime"),
        ("timeout", 0.1, "timeout"),
        ("skipped", 0.1, "compile"),
        ("skipped", 0.0, "constraints"),
    ],
)
def test_a_choice_that_failed_once_is_written_as_failed(export, status, compile_s, invalidity):
    found = export(trial(FAST), sample(FAST, 2e6), trial(FAST, status, compile_s=compile_s), trial(SLOW))
    results = exporting.t4.read(found.files[0]).results
    assert [(r.invalidity, r.runs_ms) for r in results] == [(invalidity, ()), ("correct", (1.0, 3.0))]


def test_a_check_that_had_no_room_says_nothing_against_a_choice(export):
    assert read(export(trial(FAST), trial(FAST, "skipped", phase=AGAIN))) == {("made_up", 2, 8): (1.0, 3.0)}
    assert load(export(trial(SLOW), trial(FAST, "crashed", phase=AGAIN)).files[0]).failed.tolist() == [True, False]


def test_each_size_and_machine_has_its_file_and_one_kernel(export):
    export(trial(FAST), trial(FAST, size=2048))
    found = export(trial(FAST), hardware="hw2")
    names = [os.path.basename(path) for path in found.files]
    assert len(set(names)) == 3
    assert [name for name in names if "_n2048_" in name and name.endswith("hw1.T4.json.gz")]
    assert {load(path).kernel for path in found.files} == {"decode"}


def test_the_later_version_of_a_source_counts(export):
    newer = FAST._replace(build=FAST.build._replace(source_hash="fedcba987654"))
    assert read(export(trial(FAST), trial(newer, ns=(5e6,)))) == {("made_up", 2, 8): (5.0,)}


def test_what_cannot_be_exported_is_refused(export, tmp_path):
    with pytest.raises(UnknownName, match="t4"):
        exporting.export("log.jsonl", "csv", "out")
    with pytest.raises(Missing, match="log must exist"):
        exporting.export(str(tmp_path / "none"), "t4", str(tmp_path / "out"))
    with pytest.raises(BadInput, match="must have a trial"):
        export(sample(FAST, 1e6))


def test_the_command_names_its_files(export, tmp_path):
    export(trial(FAST))
    words = ["export", str(tmp_path / "log.jsonl"), "--format", "t4", "--out", str(tmp_path / "new")]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, "1 configuration\n" in told.output) == (0, True)
    (file,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["files"]
    assert (os.path.isfile(file["path"]), file["results"]) == (True, 1)

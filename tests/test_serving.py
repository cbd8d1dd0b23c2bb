"""The sheet of a server: phases, the single setting, text and JSON, on made-up tables."""

from __future__ import annotations

import json

import pytest
from tabling import FOUR, MADE, ONE, look, machine, race, table, write, write_machine
from test_model import LLAMA
from typer.testing import CliRunner

from advisor import codec, pipeline, serving
from advisor.cli import app
from advisor.policy.learn import learn
from advisor.records import Problem, pairs
from advisor.search import protocol

WIDTH = pairs({"batch": 1, "d_model": 4096})


def norm(n, times):
    made = race(n, times)
    return made._replace(problem=Problem("rmsnorm", "float32", WIDTH, n))


def table_of_rows():
    """One thread at one row, four threads from 64 on."""
    raced = [norm(1, {FOUR: 5000.0, ONE: 500.0}), norm(64, {FOUR: 6000.0, ONE: 20000.0})]
    return learn(machine(), [*raced, norm(4096, {FOUR: 90000.0, ONE: 300000.0})], [], MADE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine's folder with tables of decode and rmsnorm, and a model's configuration."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    write(tmp_path, table())
    write(tmp_path, table_of_rows(), "rmsnorm")
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "float32"}))
    return tmp_path


def recommended(place, *words):
    done = CliRunner().invoke(app, ["recommend", "--machine", write_machine(place, machine()), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


MODEL = ("--kernel", "decode,rmsnorm", "--model-config")


def test_the_sheet_has_a_table_a_phase_and_the_lines_that_apply_the_one_setting(place):
    said = recommended(place, "--n", "4096", *MODEL, str(place))
    prefill, decode, single = said.split("\n\n" + "decode:")[0], said.split("decode:")[1], said.split("\n\n")[-1]
    assert "rmsnorm" in prefill
    assert "decode" in decode
    assert "where a server cannot switch: threads 4 on CPUs 0,1,2,3" in single
    assert "prefill n=4096 0.0%" in single
    assert "export OMP_NUM_THREADS=4" in single
    assert "numactl" in single


def test_programs_get_the_same_beside_the_answers(place):
    told = json.loads(recommended(place, "--n", "4096", *MODEL, str(place), "--json"))
    assert [(one["kernel"], one["n"]) for one in told["answers"]] == [("rmsnorm", 4096), ("decode", 4096)]
    assert [(one["kernel"], one["n"]) for one in told["phases"]["decode"]] == [("rmsnorm", 1), ("decode", 4096)]
    assert [(one["kernel"], one["n"]) for one in told["phases"]["prefill"]] == [("rmsnorm", 4096)]
    single = told["single"]
    assert (single["threads"], single["cpus"], single["basis"]) == (4, [0, 1, 2, 3], "EXACT")
    step = next(share for share in single["phases"] if share["name"] == "decode")
    assert step["loss"] == pytest.approx((30000 + 5000) / (30000 + 500) - 1)
    assert single["loss"] == pytest.approx((1 + step["loss"]) ** 0.5 - 1)
    assert (single["unmeasured"], single["unknown"]) == ([], [])


def test_one_kernel_is_told_as_before_and_several_without_a_model_as_a_sheet(place):
    one = recommended(place, "--n", "64", "--kernel", "decode")
    assert one.startswith("decode n=64")
    assert "where a server" not in one
    assert set(json.loads(recommended(place, "--n", "64", "--kernel", "decode", "--json"))) == {"answers"}
    assert "where a server cannot switch" in recommended(place, "--n", "64")


def test_a_log_beside_the_tables_is_compared_too(place):
    passive = ONE._replace(process=ONE.process._replace(wait_policy="passive"), team=ONE.team._replace(threads=3))
    session = {"kind": "session", "schema": "advisor.measurements/1.2", "session": "s1", "protocol": protocol.VERSION}
    verdict = {
        "kind": "verdict",
        "session": "s1",
        "race": "r",
        "verdict": codec.to_json(race(4096, {passive: 25000.0})),
    }
    trial = {"kind": "trial", "session": "s1", "phase": "search", "measurement": codec.to_json(look(4096, ONE, 1e5))}
    torn = {"kind": "verdict", "session": "s1", "verdict": {"problem": {}}}
    lines = [json.dumps(record) for record in (session, verdict, trial, torn)]
    (place / "measurements.jsonl").write_text("\n".join(lines) + "\n")
    told = json.loads(recommended(place, "--n", "4096", *MODEL, str(place), "--json"))["single"]
    step = next(share for share in told["phases"] if share["name"] == "decode")
    assert step["best_ns"] == pytest.approx(25000 + 500)
    failed = codec.to_json(look(4096, passive, 1.0, status="crashed"))
    again = {"kind": "trial", "session": "s1", "phase": "again", "measurement": failed}
    (place / "measurements.jsonl").write_text("\n".join([*lines, json.dumps(again)]) + "\n")
    told = json.loads(recommended(place, "--n", "4096", *MODEL, str(place), "--json"))["single"]
    step = next(share for share in told["phases"] if share["name"] == "decode")
    assert step["best_ns"] == pytest.approx(30000 + 500)  # what did not run again does not count


def test_a_later_race_counts_and_not_the_lucky_one_of_the_table(place):
    """The table has 30000 ns of four threads at 4096; the log's last race has 36000: what an operator would see now."""
    session = {"kind": "session", "schema": "advisor.measurements/1.2", "session": "s1", "protocol": protocol.VERSION}
    verdict = {"kind": "verdict", "session": "s1", "verdict": codec.to_json(race(4096, {FOUR: 36000.0}))}
    (place / "measurements.jsonl").write_text("\n".join(json.dumps(one) for one in (session, verdict)) + "\n")
    told = json.loads(recommended(place, "--n", "4096", *MODEL, str(place), "--json"))["single"]
    step = next(share for share in told["phases"] if share["name"] == "decode")
    assert (step["ns"], step["best_ns"]) == (pytest.approx(36000 + 5000), pytest.approx(36000 + 500))


def test_a_model_without_tables_gets_careful_answers_and_no_single_setting(place):
    for name in ("decode", "rmsnorm"):
        (place / f"{name}.table.json").unlink()
    said = recommended(place, "--n", "4096", *MODEL, str(place))
    assert "DEFAULT" in said
    assert "no single setting" in said
    assert json.loads(recommended(place, "--n", "4096", *MODEL, str(place), "--json"))["single"] is None


def test_a_model_that_cannot_be_read_is_refused(place):
    done = CliRunner().invoke(app, ["recommend", "--n", "64", "--model-config", str(place / "none")])
    assert done.exit_code == 1


def test_the_single_setting_can_be_had_in_any_format(place):
    words = ("--n", "4096", *MODEL, str(place), "--single")
    assert recommended(place, *words).startswith("where a server cannot switch")
    assert "export OMP_NUM_THREADS=4" in recommended(place, *words, "--format", "env")
    told = json.loads(recommended(place, *words, "--json"))
    assert [(one["kernel"], one["threads"]) for one in told["answers"]] == [("all kernels", 4)]
    (place / "decode.table.json").unlink()
    (place / "rmsnorm.table.json").unlink()
    done = CliRunner().invoke(app, ["recommend", *words, "--format", "env"])
    assert done.exit_code == 1


def test_shapes_of_one_kernel_are_told_apart_by_what_differs(place):
    policy, answers = pipeline.recommend("decode", [64], {}, pipeline.Where(write_machine(place, machine())))
    (first, n), other = answers[0], answers[0][0]._replace(shape_pairs=pairs({**answers[0][0].shape, "heads": 8}))
    assert policy.site.gpu is None
    labels = [one.label for one in serving.questions_of([(first, n), (other, n), (first, n)])]
    assert labels == ["decode heads=32", "decode heads=8"]

"""advisor check with real workers: a table that claims too much, one that is right, bad variants, a busy machine."""

import json
import os
import shutil
import subprocess

import pytest
from commanding import ADVISOR
from tabling import MADE, figures
from typer.testing import CliRunner

from advisor import paths
from advisor.cli import app
from advisor.kernels.compilers import compilers
from advisor.kernels.registry import spec
from advisor.kernels.variant import variants
from advisor.policy.learn import learn
from advisor.policy.store import save_table
from advisor.records import Build, Choice, Process, Standing, Team, Verdict, pairs
from advisor.search.request import Silent
from advisor.topology import probe
from advisor.turn import alone

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
FAR_TOO_FAST, FAR_TOO_SLOW = 1e-3, 1e3
"""What a table claims of a choice: a thousandth of the default's time, which nothing holds, and a thousand times it."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder with the test kernel: right variants, one that is wrong, one that crashes."""
    folder = tmp_path_factory.mktemp("kernels")
    shutil.copytree(os.path.join(DATA, "kernels", "scale"), folder / "scale")
    for name in ("wrong_tail", "segfault_64"):
        shutil.copy(os.path.join(DATA, "variants", f"{name}.c"), folder / "scale")
    return str(folder)


@pytest.fixture(scope="module")
def machine():
    return probe.probe()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def told(monkeypatch, tmp_path, cache, kernels):
    """Run the command: exit status, document, what was said on standard error."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_CACHE", cache)
    monkeypatch.setattr("advisor.search.duel.noisy_samples", lambda measurement: 0)  # however crowded it is here

    def run(*words, status):
        done = CliRunner().invoke(app, ["check", "--kernel-dir", kernels, *words])
        assert done.exit_code == status, done.output
        return json.loads(done.stdout) if "--json" in words else done.output

    return run


@pytest.fixture
def keep(machine, kernels, told):
    """Keep a table: n -> (variant, what it claims of its time beside the default's), the fastest first."""

    def write(**claims):
        known = {one.name: one for one in variants("scale", [kernels])}
        default = choice(known["rows"], block=8)
        races = [_race(int(n[1:]), choice(known[name]), claim, default) for n, (name, claim) in claims.items()]
        table = learn(machine, races, [], MADE)
        return save_table(
            os.path.join(paths.machine_dir(machine.hardware_id, machine.limits_id), "scale.table.json"), table
        )

    def choice(variant, **knobs):
        tool = compilers()[0]
        made = Build(variant.name, variant.source_hash, pairs({**dict(variant.defaults), **knobs}), tool.name, "native")
        return Choice(made, Team(1, ""), Process(tool.runtime, "default", None, "default"))

    def _race(n, own, claim, default):
        problem = spec("scale", [kernels]).problem(n, "float32")
        times = {own: 1e5 * claim, default: 1e5}
        standings = tuple(Standing(one, "winner", figures(ns), 1.0, None) for one, ns in times.items())
        return Verdict(problem, "final", own, default, 20, standings)

    return write


def verdicts(document):
    return {cell["problem"]["n"]: cell["verdict"] for cell in document["cells"]}


def test_every_kind_of_cell_is_told_and_the_status_is_one(keep, told):
    keep(
        n96=("plain", FAR_TOO_SLOW),
        n160=("wrong_tail", 0.5),
        n256=("segfault_64", 0.4),
        n320=("plain", FAR_TOO_FAST),
    )
    found = told("--json", "--budget", "40s", status=1)
    assert verdicts(found) == {96: "holds", 160: "wrong", 256: "failed", 320: "slower"}
    assert (found["verdict"], found["cells_total"], found["stale"]) == ("broken", 4, [])
    slower = next(cell for cell in found["cells"] if cell["verdict"] == "slower")
    assert slower["change_ci95"][0] > 1.05
    assert slower["rounds"] >= 9
    assert slower["gain"] == pytest.approx(1000)


def test_a_table_that_holds_says_so_a_line_a_cell_and_writes_nothing(keep, told, tmp_path):
    keep(n96=("plain", FAR_TOO_SLOW))
    before = {name: os.path.getmtime(name) for name in _files(tmp_path / "home")}
    lines = told("--budget", "30s", status=0).splitlines()
    assert lines[0].startswith("scale float32 width=16 n=96: holds: ")
    assert lines[1].startswith("all hold: 1 of 1 cell looked at, 1 kernel,")
    assert {name: os.path.getmtime(name) for name in _files(tmp_path / "home")} == before


def _files(folder):
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]


def test_rows_that_are_stale_are_not_measured(keep, told, machine):
    saved = keep(n96=("plain", FAR_TOO_SLOW)).table
    older = pairs({**dict(saved.environment), "kernel": "2.4.1"})
    path = os.path.join(paths.machine_dir(machine.hardware_id, machine.limits_id), "scale.table.json")
    os.unlink(path)
    save_table(path, saved._replace(environment=older))
    (line, whole) = told(status=1).splitlines()[:2]
    now = ".".join(dict(machine.environment)["kernel"].split(".")[:2])
    assert line == f"scale float32 width=16 n=96..96: STALE: kernel was 2.4, is {now}"
    assert whole.startswith("the tables no longer hold: 0 of 0 cells")
    (found,) = told("--json", status=1)["stale"]
    assert found["changes"] == [{"field": "kernel", "was": "2.4", "is": now}]


def test_where_another_tuner_measures_nothing_is_timed(keep, told, monkeypatch):
    monkeypatch.setattr("advisor.checking.WAIT_S", 0.1)
    keep(n96=("plain", FAR_TOO_SLOW))
    with alone(Silent()):
        found = told("--json", status=3)
    assert (found["verdict"], verdicts(found)) == ("partly", {96: "unknown"})
    assert f"process {os.getpid()}" in found["cells"][0]["reason"]


def test_without_time_the_status_is_three_and_the_step_is_named(keep, told):
    keep(n96=("plain", FAR_TOO_SLOW))
    assert "a larger --budget" in told("--budget", "0.5s", status=3)


def test_without_a_table_the_step_is_named(told):
    done = told(status=1)
    assert "advisor tune" in done


def test_a_bar_and_a_budget_must_make_sense(told):
    told("--bar", "0", status=2)
    assert "duration" in told("--budget", "soon", status=1)


def test_in_a_process_of_its_own_no_progress_is_printed(keep, told, kernels):
    keep(n96=("plain", FAR_TOO_SLOW))
    words = [*ADVISOR, "check", "--kernel-dir", kernels, "--json", "--budget", "30s"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    expected = {0: "holds", 3: "partly"}  # a crowded machine may disturb most samples
    assert json.loads(done.stdout)["verdict"] == expected[done.returncode], done.stderr
    assert all("not quiet" in line for line in done.stderr.splitlines())

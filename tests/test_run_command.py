"""advisor run: real commands see the mask and the environment, and end as they end."""

import json
import os
import shutil
import signal
import subprocess

import pytest
from commanding import Site
from tabling import DEFAULT, PASSIVE, choice, race
from typer.testing import CliRunner

from advisor import paths, running
from advisor.answers import Answer
from advisor.cli import app
from advisor.errors import BadInput
from advisor.policy import store
from advisor.policy.learn import Made, learn
from advisor.records import pairs
from advisor.sources import source_hash
from advisor.topology import probe
from advisor.topology.files import parse_list
from advisor.topology.placement import evaluate

CPUS = sorted(os.sched_getaffinity(0))
TEAM = list(evaluate("", probe.probe().array, CPUS)[:2])
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="the table's team has two threads")
SHOW = "echo $OMP_NUM_THREADS,$OMP_PLACES,$OMP_WAIT_POLICY; grep Cpus_allowed_list /proc/self/status"
SOURCE = os.path.join(os.path.dirname(paths.__file__), "kernels", "decode", "split.c")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A home with a table of this machine: two threads, passive, are best at 1024 and 4096. Its times are made up."""
    here = probe.probe()
    folder = tmp_path_factory.mktemp("run")

    made = source_hash(SOURCE)
    teams = [choice("split", threads=2, process=process) for process in (PASSIVE, DEFAULT)]
    teams = [one._replace(build=one.build._replace(source_hash=made)) for one in teams]
    verdicts = [race(n, {one: n * ns for one, ns in zip(teams, (5.0, 10.0), strict=True)}) for n in (1024, 4096)]
    table = learn(here, verdicts, [], Made("2026-01-02T03:04:05Z", pairs({"session": "made up"})))
    place = folder / "machines" / f"{here.hardware_id}-{here.limits_id}"
    place.mkdir(parents=True)
    store.save_table(str(place / "decode.table.json"), table)
    return Site(str(folder), str(folder / "cache"))


PLAIN = {"OMP_NUM_THREADS": None, "OMP_PLACES": None, "OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None}


def test_the_command_runs_under_the_answer_and_standard_output_is_its_own(site):
    ran = site.advisor("run", "--n", "4096", "--", "sh", "-c", SHOW, **PLAIN)
    first, mask = ran.out.splitlines()
    assert first == f"2,{{{TEAM[0]}}},{{{TEAM[1]}}},passive"
    assert parse_list(mask.split()[1]) == tuple(sorted(TEAM))
    assert "threads 2 on CPUs" in ran.err
    assert "wait policy passive" in ran.err
    assert "EXACT" in ran.err


def test_without_an_answer_it_runs_as_it_is_and_says_so(site):
    words = ("run", "--kernel", "rmsnorm", "--n", "64", "--", "sh", "-c", SHOW)
    ran = site.advisor(*words, **{**PLAIN, "OMP_NUM_THREADS": "7"})
    first, mask = ran.out.splitlines()
    assert first == "7,,"
    assert mask == subprocess.run(["sh", "-c", SHOW], capture_output=True, text=True, check=True).stdout.splitlines()[1]
    assert "runs as it is; DEFAULT" in ran.err


@pytest.fixture
def become(site, monkeypatch):
    """The command in this process, which stays what it is: argv, environment and mask of what it would become, and what
    it said."""

    def execve(path, argv, environment):
        raise SystemExit(json.dumps([argv, environment]))

    def run(*words, home=None):
        pinned = []
        monkeypatch.setattr(os, "execve", execve)
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: pinned.append(list(cpus)))
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        for name in PLAIN:
            monkeypatch.delenv(name, raising=False)
        done = CliRunner().invoke(app, ["run", *words], env={"ADVISOR_HOME": home or site.home})
        argv, environment = json.loads(done.stdout)
        return argv, environment, pinned[0] if pinned else None, done.stderr

    return run


def team_of(environment):
    return tuple(environment.get(name) for name in ("OMP_NUM_THREADS", "OMP_PLACES", "OMP_WAIT_POLICY"))


@pytest.mark.parametrize("words", [(), ("--n", "1k,4k")])
def test_at_several_sizes_or_all_it_runs_under_the_one_setting_that_loses_least(become, words):
    _, environment, mask, said = become(*words, "--", "true")
    assert team_of(environment) == ("2", f"{{{TEAM[0]}}},{{{TEAM[1]}}}", "passive")
    assert mask == TEAM
    assert "loses least where a server cannot switch" in said


def test_several_sizes_without_any_answer_change_nothing(become, tmp_path):
    _, environment, mask, said = become("--n", "1k,4k", "--", "true", home=str(tmp_path))
    assert (team_of(environment), mask) == ((None, None, None), None)
    assert "runs as it is; DEFAULT" in said


def test_what_is_named_by_hand_is_set_without_a_table(become, tmp_path):
    words = ("--placement", "", "--threads", "1", "--wait-policy", "active", "--spin", "5", "true")
    _, environment, mask, said = become(*words, home=str(tmp_path))
    assert team_of(environment) == ("1", f"{{{CPUS[0]}}}", "active")
    assert (environment["GOMP_SPINCOUNT"], mask) == ("5", CPUS[:1])
    assert "BY HAND" in said


def test_by_hand_replaces_parts_of_an_answer(become):
    words = ("--n", "4096", "--wait-policy", "active", "--threads", "1")
    assert team_of(become(*words, "true")[1]) == ("1", f"{{{CPUS[0]}}}", "active")


def test_for_programs_the_line_is_json_on_standard_error(become):
    *_, said = become("--n", "4096", "--json", "--", "true")
    told = json.loads(said)
    assert (told["basis"], told["set"]["cpus"]) == ("EXACT", TEAM)
    assert told["set"]["environment"]["OMP_WAIT_POLICY"] == "passive"


def test_options_behind_the_command_are_its_own(become):
    assert become("--threads", "1", "echo", "--n", "--help", "-x")[0] == ["echo", "--n", "--help", "-x"]


@pytest.mark.parametrize(("line", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_the_exit_status_is_the_commands(site, line, status):
    process = site.start("run", "--threads", "1", "--", "sh", "-c", line)
    process.communicate(timeout=60)
    assert process.returncode == status


def test_signals_reach_the_command_itself(site):
    """The process that was started is the command: one that answers a signal ends as it wants to."""
    line = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    process = site.start("run", "--threads", "1", "--", "sh", "-c", line)
    try:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (out, process.returncode) == ("caught\n", 5)


def test_a_broken_pipe_ends_the_command_as_it_would_without_us(site):
    """Python ignores SIGPIPE; a command that inherited that would write on, or complain."""
    ran = site.shell("$ADVISOR run --threads 1 -- sh -c 'kill -PIPE $$; echo survived'")
    assert "survived" not in ran.out


def refused(home, *words):
    """The command in this process: it ends before it becomes another."""
    done = CliRunner().invoke(app, ["run", *words], env={"ADVISOR_HOME": home})
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ((), 1, "a command must follow"),
        (("no-such-program",), 127, "must be on PATH"),
        ((__file__,), 126, "must be an executable file"),
    ],
)
def test_a_command_that_cannot_be_is_refused_in_one_line(site, command, status, said):
    code, told = refused(site.home, "--threads", "1", "--", *command)
    assert code == status
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_file_that_the_system_does_not_run_is_named(site, tmp_path):
    (tmp_path / "odd").write_bytes(b"\x7fnot a program")
    (tmp_path / "odd").chmod(0o755)
    ran = site.advisor("run", "--threads", "1", "--", str(tmp_path / "odd"))
    assert ran.status == 126
    assert "the system must run the command" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--n", "many"), "many"),
        (("--placement", "take nowhere 1"), "no such axis"),
        (("--wait-policy", "lazy"), "unknown wait policy"),
        (("--memory-policy", "here; true"), "unknown memory policy"),
        (("--placement", "", "--threads", "100000"), "a CPU to every thread"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(site, tmp_path, words, said):
    code, told = refused(site.home, *words, "--", "touch", str(tmp_path / "ran"))
    assert code == 1
    assert said in told
    assert not (tmp_path / "ran").exists()


# --- parts ---


def test_a_placement_of_none_pins_nothing():
    base = Answer("decode", threads=3, cpus=(0,), placement="", wait_policy="passive", basis="EXACT", expected_ns=1.0)
    found = running.by_hand(running.Asked(placement="none"), base)
    assert (found.threads, found.cpus, found.wait_policy, found.basis) == (3, None, "passive", running.BY_HAND)


def test_the_memory_policy_is_inherited_or_the_command_starts_without(site):
    ran = site.advisor("run", "--memory-policy", "interleave", "--", "head", "-1", "/proc/self/numa_maps")
    assert "interleave" in ran.out or "the memory policy stays as it was" in ran.err


def test_a_gpus_answer_sets_the_variant_and_clears_old_knobs(monkeypatch):
    monkeypatch.setenv("ADVISOR_KNOB_OLD", "3")
    gpu = Answer("decode", variant="split_w4", compiler="cupy-14.2", knob_pairs=(("blocks", 528),), device="H200")
    wanted = running.setting(gpu)
    found = running.environment(wanted, {"ADVISOR_KNOB_OLD": "3", "HOME": "/"})
    assert found == {
        "HOME": "/",
        "ADVISOR_VARIANT": "split_w4",
        "ADVISOR_TOOL": "cupy-14.2",
        "ADVISOR_KNOB_blocks": "528",
    }
    assert wanted.cpus is None
    assert running.words(gpu).startswith("split_w4 on H200; DEFAULT")


def test_a_table_edited_by_hand_sets_nothing_odd():
    with pytest.raises(BadInput):
        running.setting(Answer("decode", threads="2; reboot", basis="EXACT"))


def test_unset_variables_are_gone_and_others_stay():
    wanted = running.setting(Answer("decode", threads=2))
    found = running.environment(wanted, {"OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0", "LANG": "C"})
    assert found == {"LANG": "C", "OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "false"}


def test_cpus_that_went_away_do_not_keep_the_command_from_starting(monkeypatch):
    said, started = [], []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    running.start(shutil.which("true"), ["true"], running.Setting({}, (100000,), "default"), said.append)
    assert len(started) == 1
    assert "not pinned" in said[0]

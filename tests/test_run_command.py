"""advisor run: real commands see the mask and the environment, and end as they end."""

import json
import os
import shutil
import signal
import types

import pytest
from commanding import Site
from tabling import DEFAULT, PASSIVE, choice, race
from typer.testing import CliRunner

from advisor import paths, running, untuned
from advisor.answers import Answer
from advisor.cli import app
from advisor.commands import run as command
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


@pytest.fixture
def become(site, monkeypatch):
    """The command in this process, which stays what it is: argv, environment and mask of what it would become, and what
    it said."""

    def execve(path, argv, environment):
        raise SystemExit(json.dumps([argv, environment]))

    real = os.sched_setaffinity  # a compiler that is asked for its version is pinned as well

    def run(*words, home=None, **environment):
        pinned = []
        monkeypatch.setattr(os, "execve", execve)
        pin = lambda pid, cpus: real(pid, cpus) if pid else pinned.append(list(cpus))  # noqa: E731
        monkeypatch.setattr(os, "sched_setaffinity", pin)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        for name in PLAIN:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
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


@pytest.fixture
def alone(monkeypatch):
    """No other machine is known."""
    monkeypatch.setattr(untuned, "machines", lambda *_: ())


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("words", [("--n", "64"), ("--n", "1k,4k"), ("--kernel", "decode,rmsnorm", "--n", "64")])
def test_without_any_answer_nothing_is_changed(become, tmp_path, words):
    _, environment, mask, said = become(*words, "--", "true", home=str(tmp_path), OMP_NUM_THREADS="7")
    assert (team_of(environment), mask) == (("7", None, None), None)
    assert "runs as it is; DEFAULT" in said


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--wait-policy", "passive"), {"OMP_WAIT_POLICY": "passive"}),
        (("--spin", "5"), {"GOMP_SPINCOUNT": "5"}),
        (("--memory-policy", "default"), {}),
        (("--threads", "1"), {"OMP_NUM_THREADS": "1", "OMP_DYNAMIC": "false"}),
        (("--placement", "none"), {"OMP_PLACES": None, "OMP_PROC_BIND": "false"}),
    ],
)
def test_by_hand_that_alone_is_set(become, tmp_path, words, changed):
    old = {"OMP_NUM_THREADS": "3", "OMP_PLACES": "cores", "KMP_AFFINITY": "none", "OMP_THREAD_LIMIT": "9"}
    _, environment, mask, said = become(*words, "true", home=str(tmp_path), **old)
    gone = {"--threads": {"OMP_THREAD_LIMIT"}, "--placement": {"KMP_AFFINITY"}}.get(words[0], set())
    wanted = {**{name: value for name, value in old.items() if name not in gone}, **changed}
    names = ("OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_DYNAMIC", "KMP_AFFINITY", "OMP_THREAD_LIMIT")
    names += ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    assert {name: environment.get(name) for name in names} == {name: wanted.get(name) for name in names}
    assert mask is None
    assert "all else is as it was" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--threads", "1", "--device", "cuda:0"), "a GPU has no team"),
        (("--threads", "1", "--n", "64", "--device", "cuda:0"), "a GPU has no team"),
        (("--threads", "1", "--heads", "4"), "got 'heads'"),
        (("--spin", "1" * 23), "only whole numbers"),
        (("--threads", "1" * 23), "only whole numbers"),
    ],
)
def test_by_hand_nothing_is_passed_over_in_silence(site, words, said):
    code, told = refused(site.home, *words, "--", "true")
    assert (code, len(told.splitlines())) == (1, 1)
    assert said in told


def test_what_the_one_setting_leaves_out_is_said(become):
    *_, said = become("--n", "1k,1m", "--", "true")
    assert "missing: decode n=1048576: not measured at all, so not part of it" in said
    told = json.loads(become("--n", "1k,1m", "--json", "--", "true")[3])
    assert told["warnings"] == ["missing: decode n=1048576: not measured at all, so not part of it"]


@pytest.mark.usefixtures("alone")
def test_a_kernel_of_which_nothing_is_known_is_named(become):
    *_, said = become("--kernel", "decode,rmsnorm", "--n", "1k", "--", "true")
    assert "EXACT" in said
    assert "nothing is known of rmsnorm" in said


def test_how_to_start_the_process_is_no_advice_where_that_is_done(become):
    *_, said = become("--n", "4096", "--", "true")
    assert "start the process" not in said


def test_what_is_named_by_hand_is_set_without_a_table(become, tmp_path):
    words = ("--placement", "", "--threads", "1", "--wait-policy", "active", "--spin", "5", "true")
    _, environment, mask, said = become(*words, home=str(tmp_path))
    assert team_of(environment) == ("1", f"{{{CPUS[0]}}}", "active")
    assert (environment["GOMP_SPINCOUNT"], mask) == ("5", CPUS[:1])
    assert "BY HAND" in said


@pytest.mark.usefixtures("alone")
def test_beside_something_by_hand_the_careful_rule_is_not_set_either(become):
    words = ("--kernel", "rmsnorm", "--n", "64", "--wait-policy", "passive")
    _, environment, mask, _ = become(*words, "true", OMP_NUM_THREADS="7")
    assert (team_of(environment), mask) == (("7", None, "passive"), None)


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
        (("./no-such-program",), 127, "must be a file that is there"),
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

MODELLED = Answer("decode", threads=2, cpus=(0, 1), placement="", basis="TRANSFERRED", why="as another machine")


def test_answers_that_agree_are_one_also_where_nobody_measured():
    found = command._agreed([(MODELLED, 64), (MODELLED, 128)])
    assert (found.basis, found.cpus) == ("TRANSFERRED", (0, 1))
    assert found.why == "all 2 answers agree; the first: as another machine"


@pytest.mark.parametrize(
    ("other", "n", "said"),
    [
        (MODELLED._replace(threads=1), 128, "differ in size (64 to 128: name one with --n)"),
        (MODELLED._replace(wait_policy="passive", kernel="forward"), 64, "kernel (decode, forward: name one with"),
        (MODELLED._replace(spin=3, shape_pairs=(("heads", 4),)), 64, "differ in shape (name --heads and the like)"),
        (MODELLED._replace(basis="MODELLED"), 128, "size (64 to 128"),
    ],
)
def test_where_answers_disagree_it_is_said_what_to_name(other, n, said):
    found = command._agreed([(MODELLED, 64), (other, n)])
    assert found.basis == "DEFAULT"
    assert said in found.why


def test_the_hint_how_to_start_is_left_out_once_it_is_followed():
    answer = MODELLED._replace(spin=10000, why="measured; start the process with GOMP_SPINCOUNT=10000")
    assert running.plan(answer).why == "measured"
    faster = "measured; start the process with OMP_WAIT_POLICY=active: 2x faster here"
    assert running.plan(answer._replace(why=faster)).why == faster  # another process part than the one that is set


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
    assert running.plan(gpu._replace(basis="EXACT")).what == "split_w4 on H200"
    assert running.plan(gpu).setting is None  # DEFAULT


def test_a_table_edited_by_hand_sets_nothing_odd():
    with pytest.raises(BadInput):
        running.setting(Answer("decode", threads="2; reboot", basis="EXACT"))


def test_unset_variables_are_gone_and_others_stay():
    wanted = running.setting(Answer("decode", threads=2))
    found = running.environment(wanted, {"OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0", "LANG": "C"})
    assert found == {"LANG": "C", "OMP_NUM_THREADS": "2", "OMP_DYNAMIC": "false", "OMP_PROC_BIND": "false"}


@pytest.mark.parametrize(
    ("cpus", "said"), [((100000,), "not pinned: "), ((CPUS[0], 100000), "the other CPUs of the team alone: 100000 ")]
)
def test_cpus_that_went_away_do_not_keep_the_command_from_starting(monkeypatch, cpus, said):
    """Of CPUs that are not all there the kernel takes the others without a word."""
    told, started = [], []
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    mask = os.sched_getaffinity(0)
    try:
        running.start(shutil.which("true"), ["true"], running.Setting({}, cpus, "default"), told.append)
        assert os.sched_getaffinity(0) == ({CPUS[0]} if len(cpus) > 1 else mask)
    finally:
        os.sched_setaffinity(0, mask)
    assert len(started) == 1
    assert said in told[0]


@pytest.mark.parametrize(
    ("bases", "sizes"),
    [
        ({None: (64, 128), "TRANSFERRED": (4096,), "MODELLED": (8192,)}, (64, 128)),
        ({"TRANSFERRED": (4096,), "MODELLED": (8192,)}, (4096, 8192)),
        ({}, ()),
    ],
)
def test_without_a_size_those_tuned_here_are_meant_and_not_what_was_carried_over(bases, sizes):
    sections = [{"tuned_n": list(n), **({"basis": basis} if basis else {})} for basis, n in bases.items()]
    policy = types.SimpleNamespace(sections=lambda kernel: sections)
    assert running.tuned_sizes(policy, ["decode"]) == sizes

"""Formats of an answer: shells and OpenMP runtimes accept them, and nothing unexpected gets into a shell line."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from advisor.answers import Answer
from advisor.errors import BadInput, UnknownName
from advisor.policy import launch
from advisor.records import NumaNode

CPUS = tuple(sorted(os.sched_getaffinity(0)))
FULL = Answer(
    "decode",
    dtype="float32",
    shape_pairs=(("heads", 32),),
    regime="warm",
    variant="made_up",
    source_hash="0" * 12,
    knob_pairs=(("block", 64),),
    compiler="gcc-12",
    flags="native",
    threads=len(CPUS),
    cpus=CPUS,
    placement="",
    wait_policy="passive",
    spin=300,
    basis="EXACT",
    expected_ns=12345.0,
    ci95_ns=(12000.0, 13000.0),
    spread=1.5,
    gain=1.8,
    regret_bound=1.02,
    in_tuned_region=True,
    table_id="t",
    hardware_id="h",
    why="measured at n = 4096 in an interleaved race",
    points=((1024, 4000.0), (4096, 12345.0)),
)
DESIGN_KEYS = {
    *("kernel", "shape", "dtype", "regime", "n", "variant", "knobs", "compiler", "threads", "cpus", "placement"),
    *("wait_policy", "memory_policy", "basis", "expected_ns", "ci95_ns", "spread", "regret_bound", "in_tuned_region"),
    *("fragility", "table_id", "hardware_id", "why", "warnings"),
}


def shell(lines, command, **environment):
    return subprocess.run(
        ["sh", "-c", f"{lines}\n{command}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


def test_the_environment_reaches_a_child_and_old_values_do_not():
    done = shell(launch.env(FULL), "env", GOMP_CPU_AFFINITY="7", OMP_PLACES="cores")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["OMP_NUM_THREADS"] == str(len(CPUS))
    assert found["OMP_PLACES"] == ",".join(f"{{{cpu}}}" for cpu in CPUS)
    assert (found["OMP_WAIT_POLICY"], found["GOMP_SPINCOUNT"], found["OMP_PROC_BIND"]) == ("passive", "300", "true")
    assert "GOMP_CPU_AFFINITY" not in found


def test_an_unpinned_default_answer_unsets_what_it_does_not_need():
    done = shell(launch.env(Answer("decode", threads=2)), "env", OMP_WAIT_POLICY="active", OMP_PLACES="cores")
    assert "OMP_WAIT_POLICY" not in done.stdout
    assert "OMP_PLACES" not in done.stdout
    assert "OMP_PROC_BIND=false" in done.stdout
    assert "OMP_DYNAMIC=false" in done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build an OpenMP program with")
    folder = tmp_path_factory.mktemp("omp")
    (folder / "p.c").write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() == 0; }")
    subprocess.run(["gcc", "-fopenmp", "-o", str(folder / "p"), str(folder / "p.c")], check=True)
    return str(folder / "p")


def test_libgomp_accepts_the_environment(program):
    done = shell(launch.env(FULL), program, OMP_DISPLAY_ENV="VERBOSE")
    assert "Invalid" not in done.stderr
    assert re.search(rf"OMP_NUM_THREADS = '{len(CPUS)}'", done.stderr)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
    assert "GOMP_SPINCOUNT = '300'" in done.stderr
    assert "OMP_PROC_BIND = 'TRUE'" in done.stderr
    places = re.search(r"OMP_PLACES = '(.*)'", done.stderr)
    assert places[1] == ",".join(f"{{{cpu}}}" for cpu in CPUS)


@pytest.mark.parametrize("tool", ["numactl", "taskset"])
def test_the_line_runs_under_the_tool(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    line = getattr(launch, tool)(FULL, ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS"])
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    if done.returncode and "not permitted" in done.stderr:
        pytest.skip("this sandbox forbids memory policies")
    assert done.returncode == 0, done.stderr
    status, threads = done.stdout.splitlines()
    assert threads == str(len(CPUS))
    spans = [span.partition("-") for span in status.split()[1].split(",")]
    allowed = [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]
    assert allowed == list(CPUS)


def test_commands_are_quoted():
    line = launch.numactl(FULL, ["echo", "a b", "$(touch /tmp/x)"])
    assert shlex.split(line)[-3:] == ["echo", "a b", "$(touch /tmp/x)"]


@pytest.mark.parametrize(
    "change",
    [
        {"threads": "2; rm -rf /"},
        {"threads": 0},
        {"threads": True},
        {"cpus": (0, "1")},
        {"cpus": (-1,)},
        {"wait_policy": "passive; true"},
        {"spin": "1k"},
        {"spin": 10**22},
        {"threads": 1 << 31},
        {"memory_policy": "bind; true"},
        {"memory_policy": "default\nExecStart=/bin/false"},
    ],
)
def test_values_outside_the_known_ones_never_reach_a_shell(change):
    for form in launch.LINES:
        with pytest.raises(BadInput):
            launch.render(form, FULL._replace(**change), 1)


NODES = (NumaNode(0, CPUS[:1], None, ()), NumaNode(1, CPUS[1:] or (999,), None, ()), NumaNode(7, (), 1 << 30, ()))


@pytest.mark.parametrize(
    ("policy", "option"),
    [("local", "--localalloc"), ("interleave", "--interleave=0-1"), ("bind", "--membind=0")],
)
def test_numactl_names_the_nodes_that_follow_from_the_placement(policy, option):
    answer = FULL._replace(memory_policy=policy, cpus=CPUS[:1], threads=1)
    words = shlex.split(launch.numactl(answer, ["true"], NODES))
    assert words[words.index("sh") : words.index("sh") + 4] == [
        *("sh", "-c", launch.GUARD, f"--physcpubind={CPUS[0]} {option}")
    ]


def test_nodes_of_another_machine_are_not_guessed():
    answer = FULL._replace(memory_policy="interleave", refusal="the answer is for another machine")
    with pytest.raises(BadInput, match="node numbers"):
        launch.numactl(answer)
    assert "--interleave=0-1" in launch.numactl(answer, (), NODES)
    assert "--localalloc" in launch.numactl(answer._replace(memory_policy="local"))


@pytest.mark.parametrize("form", ["env", "taskset", "llama.cpp", "vllm", "kubernetes"])
def test_a_memory_policy_that_a_format_cannot_set_is_said(form):
    answer = FULL._replace(memory_policy="interleave", cpus=(0, 1), threads=2)
    assert launch.render(form, answer, 1)
    (said,) = [words for words in launch.unsaid(form, answer) if "memory lies" in words]
    assert "advisor run" in said


@pytest.mark.parametrize(
    ("numactl", "said"),
    [
        ('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nPINNED=1 exec "$@"\n', "1 a b"),
        ("#!/bin/sh\necho 'set_mempolicy: Operation not permitted' >&2\nexit 1\n", " a b"),
        ("", " a b"),
    ],
)
def test_n01_the_line_starts_where_memory_binding_is_denied(tmp_path, numactl, said):
    """numactl works, is refused by the kernel, or is not there."""
    for name in ("env", "sh", "true"):
        (tmp_path / name).symlink_to(shutil.which(name))
    if numactl:
        (tmp_path / "numactl").write_text(numactl)
        (tmp_path / "numactl").chmod(0o755)
    line = launch.numactl(FULL._replace(memory_policy="interleave"), ["sh", "-c", 'echo "$PINNED $0"', "a b"], NODES)
    done = subprocess.run(
        [shutil.which("sh"), "-c", line], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{said}\n"
    assert done.stderr == ""


def test_an_unknown_memory_policy_is_refused():
    with pytest.raises(BadInput, match="memory policy"):
        launch.numactl(FULL._replace(memory_policy="--hax"))


def test_the_json_has_every_key_of_the_design():
    data = json.loads(json.dumps(launch.to_dict(FULL, 4096), allow_nan=False))
    assert set(data) >= DESIGN_KEYS
    assert (data["n"], data["cpus"], data["knobs"]) == (4096, list(CPUS), {"block": 64})
    assert data["estimate_ns"] == 12345.0


def test_the_sheet_says_what_how_sure_and_what_it_gains():
    sheet = launch.render("text", FULL, 4096)
    for words in ("decode n=4096", "made_up (block=64)", "passive", "12.3 us", "1.80x the speed", "2.0% above", "race"):
        assert words in sheet
    assert "interpolated, not measured" in launch.text(FULL._replace(expected_ns=None, basis="INTERPOLATED"), 2000)
    assert "none was tuned here" in launch.text(Answer("decode"), 1)


def test_an_unknown_format_is_refused():
    with pytest.raises(UnknownName, match="no such format"):
        launch.render("yaml", FULL, 1)

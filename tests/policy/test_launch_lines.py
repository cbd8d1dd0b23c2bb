"""Launch lines of other programs: their own parsers read them where they can be had, a written grammar elsewhere."""

import argparse
import csv
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answers import Answer
from advisor.errors import BadInput, UnknownName
from advisor.policy import launch
from advisor.records import NumaNode

CPUS = tuple(sorted(os.sched_getaffinity(0)))
PLAIN = Answer("decode", threads=2)
WIDE = Answer("decode", threads=4, cpus=(0, 2, 8, 9), wait_policy="passive", spin=300)
NODES = (NumaNode(0, (0, 1, 2, 3), None, ()), NumaNode(1, (8, 9), None, ()))
HERE = WIDE._replace(threads=len(CPUS), cpus=CPUS)
TEAMS = st.lists(st.integers(0, 400), min_size=1, max_size=40, unique=True)


def team(cpus):
    return Answer("decode", threads=len(cpus), cpus=tuple(cpus))


def cpus_of(mask):
    """The bits of a hexadecimal mask."""
    value = int(mask, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def listed(text):
    """CPUs of a list of ranges, as numactl, taskset and vLLM read it."""
    spans = [span.partition("-") for span in text.split(",")]
    return [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]


# --- OpenMP ---


def places(text):
    """Places of OMP_PLACES: {cpu} or {cpu}:length:stride, comma separated. Source: OpenMP 5.0, section 6.5."""
    found = []
    for one in text.split(","):
        cpu, length, stride = re.fullmatch(r"\{(\d+)\}(?::(\d+):(-?\d+))?", one).groups()
        found += [int(cpu) + i * int(stride or 1) for i in range(int(length or 1))]
    return found


@settings(max_examples=200, deadline=None)
@given(TEAMS)
def test_omp_places_are_the_team_in_its_order(cpus):
    assert places(launch.omp_places(team(cpus))) == cpus


def test_evenly_spaced_places_are_one_interval():
    assert launch.omp_places(team(range(0, 128, 2))) == "{0}:64:2"
    assert launch.omp_places(team([3, 2, 1, 0])) == "{3}:4:-1"
    assert launch.omp_places(team([0, 8])) == "{0},{8}"


def test_omp_places_cannot_say_that_nothing_is_pinned():
    with pytest.raises(BadInput, match="not to be pinned"):
        launch.omp_places(PLAIN)


TEAM_OF = """#include <omp.h>
#include <stdio.h>
int main(void) {
    #pragma omp parallel
    #pragma omp single
    fprintf(stderr, "team %d places %d\\n", omp_get_num_threads(), omp_get_num_places());
    return 0;
}
"""


@pytest.fixture(scope="module", params=["gcc", "clang"])
def program(request, tmp_path_factory):
    """A program that starts one team, and its compiler."""
    folder = tmp_path_factory.mktemp("omp")
    (folder / "p.c").write_text(TEAM_OF)
    line = [request.param, "-fopenmp", "-o", str(folder / "p"), str(folder / "p.c")]
    if shutil.which(request.param) is None or subprocess.run(line, capture_output=True, check=False).returncode:
        pytest.skip(f"no {request.param} with OpenMP here")
    return str(folder / "p"), request.param


def test_openmp_runtimes_take_the_places(program):
    """libgomp shows them in its environment, libomp tells where each thread runs."""
    path, compiler = program
    shown = {"gcc": ("OMP_DISPLAY_ENV", "true"), "clang": ("OMP_DISPLAY_AFFINITY", "true")}[compiler]
    environment = {
        **os.environ,
        "OMP_PLACES": launch.omp_places(HERE),
        shown[0]: shown[1],
        "OMP_AFFINITY_FORMAT": "at %A",
    }
    environment["OMP_NUM_THREADS"] = str(len(CPUS))
    done = subprocess.run([path], env=environment, capture_output=True, text=True, check=True)
    told = done.stdout + done.stderr
    assert not re.search(r"warning|invalid", told, re.IGNORECASE)
    if compiler == "gcc":
        assert re.search(r"OMP_PLACES = '(.*)'", told)[1] == ",".join(f"{{{cpu}}}" for cpu in CPUS)
    else:
        assert sorted(int(cpu) for cpu in re.findall(r"at (\d+)", told)) == list(CPUS)


OLD = (
    *("OMP_DYNAMIC=true", "OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0", "GOMP_CPU_AFFINITY=0"),
    *("KMP_DEVICE_THREAD_LIMIT=1", "KMP_ALL_THREADS=1", "KMP_LIBRARY=serial", "KMP_AFFINITY=disabled"),
    *("KMP_AFFINITY=none", "KMP_HW_SUBSET=1c", "KMP_PLACE_THREADS=1c", "KMP_BLOCKTIME=infinite"),
)
"""Settings of somebody else under which a team is smaller, runs elsewhere or waits otherwise."""


@pytest.mark.parametrize("old", OLD)
def test_the_team_is_as_announced_whatever_was_set_before(program, old):
    words = shlex.split(launch.taskset(HERE._replace(spin=None), [program[0]]))
    name, _, value = old.partition("=")
    done = subprocess.run(words, env={**os.environ, name: value}, capture_output=True, text=True, check=True)
    assert done.stderr == f"team {len(CPUS)} places {len(CPUS)}\n"


@pytest.mark.parametrize("program", ["clang"], indirect=True)
def test_libomp_takes_the_environment(program):
    """What libgomp shows of it is read in test_launch.py."""
    path, _ = program
    lines = f'{launch.env(HERE)}\n"$0"'
    done = subprocess.run(
        ["sh", "-c", lines, path],
        env={**os.environ, "OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "warning" not in done.stderr.lower()
    assert re.search(rf"OMP_NUM_THREADS='{len(CPUS)}'", done.stderr)
    assert re.search(r"OMP_WAIT_POLICY='PASSIVE'", done.stderr)


# --- llama.cpp ---


def llama_flags(text):
    """Flags and values as llama.cpp's common/arg.cpp reads them: a name, then one value each."""
    words = shlex.split(text)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_llama_gets_threads_mask_and_polling():
    flags = llama_flags(launch.llama(WIDE))
    assert flags == {"--threads": "4", "--cpu-mask": "0x305", "--cpu-strict": "1", "--poll": "0"}
    assert llama_flags(launch.llama(PLAIN)) == {"--threads": "2"}
    assert llama_flags(launch.llama(PLAIN._replace(wait_policy="active")))["--poll"] == "100"


def test_the_prompt_has_flags_of_its_own():
    flags = llama_flags(launch.llama(WIDE._replace(kernel="forward")))
    assert {name.removesuffix("-batch") for name in flags} == {"--threads", "--cpu-mask", "--cpu-strict", "--poll"}
    assert all(name.endswith("-batch") for name in flags)


@settings(max_examples=100, deadline=None)
@given(TEAMS)
def test_a_mask_has_a_bit_for_each_cpu(cpus):
    """common.cpp, parse_cpu_mask: hexadecimal digits, lowest last, an 0x in front is skipped."""
    mask = llama_flags(launch.llama(team(cpus)))["--cpu-mask"]
    assert re.fullmatch(r"0x[0-9a-f]{1,128}", mask)
    assert cpus_of(mask) == sorted(cpus)


def test_a_cpu_beyond_llamas_masks_is_refused():
    with pytest.raises(BadInput, match="masks"):
        launch.llama(team([0, 512]))


# --- vLLM ---


@settings(max_examples=100, deadline=None)
@given(TEAMS)
def test_vllm_gets_a_list_of_ranges(cpus):
    """vLLM parts ranks at | and reads each list as numactl does."""
    (line,) = re.findall(r"^export VLLM_CPU_OMP_THREADS_BIND=(.*)$", launch.vllm(team(cpus)), re.MULTILINE)
    (text,) = shlex.split(line)
    assert re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text)
    assert listed(text) == sorted(cpus)


def test_vllm_binds_alone():
    lines = f"{launch.vllm(WIDE)}\nenv"
    old = {**os.environ, "OMP_PLACES": "cores", "OMP_PROC_BIND": "true"}
    done = subprocess.run(["sh", "-c", lines], env=old, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert (found["VLLM_CPU_OMP_THREADS_BIND"], found["OMP_WAIT_POLICY"]) == ("0,2,8-9", "passive")
    assert not {"OMP_PLACES", "OMP_PROC_BIND"} & set(found)
    assert "VLLM_CPU_OMP_THREADS_BIND=nobind" in launch.vllm(PLAIN)


# --- PyTorch ---


@pytest.fixture(scope="module")
def launcher():
    """PyTorch's launcher from its file alone: PyTorch takes seconds to import, its parser needs none of it."""
    found = importlib.util.find_spec("torch")  # finds, and imports nothing
    folders = [] if found is None else found.submodule_search_locations
    file = next((path for folder in folders for path in Path(folder).glob("backends/xeon/run_cpu.py")), None)
    if file is None:
        pytest.skip("no PyTorch here")
    spec = importlib.util.spec_from_file_location("run_cpu_alone", file)
    module = importlib.util.module_from_spec(spec)
    names = [".".join(["torch", "distributed", "elastic", "multiprocessing"][:end]) for end in range(1, 5)]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setitem(sys.modules, name, MagicMock())
        spec.loader.exec_module(module)
    return module


def torch_arguments(launcher, text):
    words = shlex.split(text)
    at = words.index("torch.backends.xeon.run_cpu")
    assert words[at - 2 : at] == ["python", "-m"]
    parser = argparse.ArgumentParser()
    launcher.create_args(parser)
    return parser.parse_args([*words[at + 1 :], "script.py", "--of-script"])


def test_pytorchs_launcher_reads_its_line(launcher):
    read = torch_arguments(launcher, launch.torch(WIDE))
    assert (read.ninstances, read.ncores_per_instance, read.core_list) == (1, 4, "0,2,8,9")
    assert (read.disable_numactl, read.disable_taskset, read.disable_iomp) == (True, False, True)
    assert (read.program, read.program_args) == ("script.py", ["--of-script"])


def test_pytorchs_launcher_binds_memory_where_that_is_the_policy_and_nothing_where_nothing_is_pinned(launcher):
    assert torch_arguments(launcher, launch.torch(WIDE._replace(memory_policy="bind"))).disable_numactl is False
    read = torch_arguments(launcher, launch.torch(PLAIN))
    assert (read.core_list, read.disable_numactl, read.disable_taskset) == (None, True, True)
    assert read.ncores_per_instance == 2


# --- systemd ---


def verified(folder, drop_in):
    """What systemd-analyze says of a service with a drop-in; nothing where it takes it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    (folder / "made-up.service.d").mkdir()
    (folder / "made-up.service").write_text(f"[Service]\nExecStart={shutil.which('true')}\n")
    (folder / "made-up.service.d" / "advisor.conf").write_text(f"{drop_in}\n")
    line = ["systemd-analyze", "verify", str(folder / "made-up.service")]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd-analyze cannot verify in this sandbox")
    return [said for said in done.stderr.splitlines() if "advisor.conf" in said]


@pytest.mark.parametrize("policy", ["default", "local", "interleave", "bind"])
def test_systemd_takes_the_drop_in(tmp_path, policy):
    drop_in = launch.systemd(WIDE._replace(memory_policy=policy), NODES)
    assert ("NUMAMask=0-1" in drop_in) == (policy in ("interleave", "bind"))
    assert verified(tmp_path, drop_in) == []


def test_systemd_would_say_what_it_does_not_take(tmp_path):
    assert len(verified(tmp_path, launch.systemd(WIDE).replace("CPUAffinity=0", "CPUAffinity=q"))) == 1


def test_a_drop_in_replaces_what_was_pinned_and_set_before():
    lines = launch.systemd(WIDE).splitlines()
    assert lines.index("CPUAffinity=") < lines.index("CPUAffinity=0 2 8 9")
    assert "Environment=OMP_PLACES={0},{2},{8},{9}" in lines
    unset = next(line for line in lines if line.startswith("UnsetEnvironment="))
    assert {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_THREAD_LIMIT"} <= set(unset.partition("=")[2].split())
    assert not any(line.startswith("CPUAffinity") for line in launch.systemd(PLAIN).splitlines())


# --- Slurm ---


def srun_options(text):
    words = shlex.split(text)
    options = words[words.index("srun") + 1 :]
    return {one.partition("=")[0]: one.partition("=")[2] for one in options}, words[: words.index("srun")]


@settings(max_examples=100, deadline=None)
@given(TEAMS)
def test_slurm_gets_the_teams_mask_on_a_whole_node(cpus):
    """srun(1): --cpu-bind=mask_cpu:<list of hexadecimal masks>, one a task. Nothing makes the step exact, which with
    one task would leave it one core: --exclusive does, and what a job has in its environment.
    """
    options, before = srun_options(launch.slurm(team(cpus)))
    assert set(options) == {"--nodes", "--ntasks", "--cpu-bind"}
    unset = {name for flag, name in pairwise(before) if flag == "-u"}
    assert {"SLURM_EXCLUSIVE", "SLURM_EXACT", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK"} <= unset
    assert cpus_of(re.fullmatch(r"mask_cpu:(0x[0-9a-f]+)", options["--cpu-bind"])[1]) == sorted(cpus)
    assert f"OMP_NUM_THREADS={len(cpus)}" in before


def test_slurm_counts_cpus_where_nothing_is_pinned_and_binds_memory_where_it_can():
    assert srun_options(launch.slurm(PLAIN))[0] == {"--nodes": "1", "--ntasks": "1", "--cpus-per-task": "2"}
    bound = launch.slurm(WIDE._replace(memory_policy="bind"), (), NODES)
    assert srun_options(bound)[0]["--mem-bind"] == "mask_mem:0x3"
    assert srun_options(launch.slurm(WIDE._replace(memory_policy="local")))[0]["--mem-bind"] == "local"
    spread = WIDE._replace(memory_policy="interleave")
    assert "--mem-bind" not in srun_options(launch.slurm(spread))[0]
    assert any("memory lies" in words for words in launch.unsaid("slurm", spread))


def test_the_job_is_told_to_have_its_node_alone_where_the_mask_needs_it():
    assert any("sbatch or salloc --exclusive" in words for words in launch.unsaid("slurm", WIDE))
    assert launch.unsaid("slurm", PLAIN._replace(basis="EXACT")) == ()
    assert "SLURM" not in launch.slurm(PLAIN)  # its --cpus-per-task counts before them


def test_the_environment_reaches_what_srun_starts(tmp_path):
    """srun hands on its environment; one that is not there is stood in for by a script that does the same."""
    (tmp_path / "srun").write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    line = launch.slurm(WIDE, ["sh", "-c", 'echo "$OMP_NUM_THREADS $OMP_PLACES $OMP_WAIT_POLICY"'])
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", line], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == "4 {0},{2},{8},{9} passive\n"


# --- Kubernetes ---


def container(text):
    yaml = pytest.importorskip("yaml", reason="no YAML parser here")
    return yaml.safe_load(text)


def test_kubernetes_gets_whole_cpus_and_an_environment_of_texts():
    """API reference: resources.requests and limits are quantities, env is a list of name and value, both texts."""
    found = container(launch.kubernetes(WIDE))
    assert set(found) == {"resources", "env"}
    assert found["resources"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    assert all(set(one) == {"name", "value"} and isinstance(one["value"], str) for one in found["env"])
    values = {one["name"]: one["value"] for one in found["env"]}
    assert values == {
        "OMP_NUM_THREADS": "4",
        "OMP_DYNAMIC": "false",
        "OMP_PROC_BIND": "false",
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "300",
    }


def test_a_pod_with_it_is_one(tmp_path):
    """kubectl decodes a pod without a server for commands that are local."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    part = "\n".join("    " + line for line in launch.kubernetes(WIDE).splitlines())
    pod = f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: c\n    image: i\n{part}\n"
    (tmp_path / "pod.yaml").write_text(pod)
    line = ["kubectl", "set", "env", "--local", "-f", str(tmp_path / "pod.yaml"), "--list"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert {"OMP_NUM_THREADS=4", "OMP_WAIT_POLICY=passive"} <= set(done.stdout.split())


# --- what a format does not say ---


@pytest.mark.parametrize("form", launch.LINES)
def test_every_part_of_an_answer_is_said_or_named(form):
    answer = HERE._replace(memory_policy="interleave")
    both = launch.render(form, answer._replace(refusal=""), 1) + "\n".join(launch.unsaid(form, answer))
    for words in ("300", "interleave", str(len(CPUS))):
        assert words in both, words
    assert re.search("passive|--poll", both)


def test_an_order_that_a_mask_loses_is_named():
    turned = team([3, 1])
    assert any("ascending" in words for words in launch.unsaid("llama.cpp", turned))
    assert not any("ascending" in words for words in launch.unsaid("numactl", turned))


def test_a_format_that_says_all_has_nothing_beside_it():
    told = WIDE._replace(basis="EXACT")
    assert launch.unsaid("numactl", told) == launch.unsaid("systemd", told) == launch.unsaid("text", told) == ()


def test_how_an_answer_was_come_by_is_told_beside_it_unless_it_was_measured():
    carried = WIDE._replace(basis="TRANSFERRED", why="from elsewhere")
    assert launch.unsaid("numactl", carried) == ("TRANSFERRED: from elsewhere",)
    assert launch.unsaid("env", carried._replace(device="a GPU")) == ("TRANSFERRED: from elsewhere",)


@pytest.mark.parametrize("form", sorted(set(launch.LINES) - {"env"}))
def test_a_gpus_answer_pins_nothing(form):
    with pytest.raises(BadInput, match="GPU"):
        launch.render(form, PLAIN._replace(device="NVIDIA H200"), 1)


# --- data ---

NASTY = '=cmd|"a, b"`<script>alert(1)</script>*[x](y)'


def test_csv_and_json_hold_every_answer():
    asked = [(WIDE, 1024), (PLAIN._replace(expected_ns=12.5), 4096)]
    lines = list(csv.DictReader(io.StringIO(launch.tabled("csv", asked))))
    assert [(line["n"], line["threads"], line["cpus"], line["expected_ns"]) for line in lines] == [
        ("1024", "4", "0 2 8 9", ""),
        ("4096", "2", "", "12.5"),
    ]
    assert [one["n"] for one in json.loads(launch.tabled("json", asked))["answers"]] == [1024, 4096]


def test_a_cell_is_no_formula_and_no_markup():
    answer = PLAIN._replace(variant=NASTY)
    (line,) = csv.DictReader(io.StringIO(launch.csv([(answer, 1)])))
    assert line["variant"] == f"'{NASTY}"
    table = launch.markdown([(answer, 1)])
    assert "<" not in table
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()} == {
        len(table.splitlines()[0].split("|")) - 1
    }


def test_an_unknown_table_is_refused():
    with pytest.raises(UnknownName, match="no such format"):
        launch.tabled("xml", [(PLAIN, 1)])

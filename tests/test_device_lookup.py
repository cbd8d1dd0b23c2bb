"""Answers for a GPU: from its table, and a miss with the differing field named where anything changed (case A-06)."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from device_tables import DRIVER, FEW, MANY, SHAPE, VERSIONS, gpu, keep, none, report, whole
from devices import H200, variables
from tabling import machine, write_machine

from advisor import gather, installed, ranges
from advisor.errors import BadInput
from advisor.lookup import Policy
from advisor.policy import launch
from advisor.topology import gpu as probe


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder with the table of one H200, on a machine that has it; no shipped table is beside it."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    keep(tmp_path, monkeypatch)
    here(monkeypatch, report({}))
    return tmp_path


def here(monkeypatch, found, versions=VERSIONS):
    """This machine has these GPUs, and these packages."""
    monkeypatch.setattr(probe, "find", lambda nodes: found)
    monkeypatch.setattr(ranges, "installed", versions.get)
    monkeypatch.setattr(ranges, "nvrtc", lambda: versions.get("nvrtc"))


def ask(n=4096, device="cuda:0", **more):
    return Policy.load(device=device, **more).choose("decode", n=n)


# --- answers ---


def test_a_table_of_a_gpu_answers_inside_its_region(home):
    policy = Policy.load(device="cuda:0")
    assert policy.notes == ()
    at, between, outside = (policy.choose("decode", n=n) for n in (4096, 8000, 100_000))
    assert (at.basis, at.variant, at.expected_ns, at.device) == ("EXACT", "split_w4", 5000.0, "NVIDIA H200")
    assert (between.basis, between.variant) == ("INTERPOLATED", "split_w4")
    assert 5000 < between.estimate(8000) < 9000
    assert (outside.basis, outside.variant) == ("DEFAULT", "split_w4")
    assert policy.choose("decode", n=300).variant == "split_w1"
    assert policy.best("decode", 4096) == at


def test_there_is_nothing_to_apply_to_the_host(home):
    answer = ask()
    assert (answer.threads, answer.cpus, answer.placement) == (1, None, "none")
    before = os.sched_getaffinity(0)
    with answer.applied() as state:
        assert "no team" in state.note
        assert os.sched_getaffinity(0) == before


def test_bound_lookups_never_raise(home):
    bound = Policy.load(device="cuda:0").bind("decode", **SHAPE)
    assert bound(4096).variant == "split_w4"
    assert bound(None).basis == "DEFAULT"


def test_a_kernel_without_a_table_is_the_default_without_a_host_team(home):
    answer = Policy.load(device="cuda:0").choose("forward", n=64)
    assert (answer.basis, answer.variant, answer.device, answer.cpus) == ("DEFAULT", None, "NVIDIA H200", None)
    assert "NUMA" not in answer.why


def test_the_cpu_answers_are_those_of_the_cpu(home):
    assert Policy.load().site.gpu is None
    assert Policy.load(device="cpu").choose("decode", n=4096).device is None


@pytest.mark.parametrize("name", ["cuda:1", "cuda:", "cuda:-1", "gpu"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(home, name):
    with pytest.raises(BadInput, match="allowed: cpu, cuda:0"):
        Policy.load(device=name)


def test_a_machine_without_a_gpu_says_where_to_look(home, monkeypatch):
    here(monkeypatch, none())
    with pytest.raises(BadInput, match="advisor doctor"):
        Policy.load(device="cuda:0")


def test_a_gpu_that_does_not_tell_what_it_is_is_refused_with_the_reason(home, monkeypatch):
    here(monkeypatch, report({"compute_capability": None, "reasons": {"compute_capability": "Not Supported"}}))
    with pytest.raises(BadInput, match="compute_capability: Not Supported"):
        Policy.load(device="cuda:0")


def test_parts_of_a_machine_are_parts_of_its_cpus(home):
    with pytest.raises(BadInput, match="share the CPUs"):
        Policy.load(device="cuda:0", instance=0, of=2)


# --- staleness: case A-06 ---

OTHERS = {**VERSIONS, "cupy": "15.0.0"}
EDITS = {
    "power limit": (report({"power_limit_w": 350.0}), VERSIONS, "power_limit_w was 690.0, is 350.0"),
    "multiprocessors": (report({"sm_count": 114}), VERSIONS, "sm_count was 132, is 114"),
    "slice": (report({"mig": "3g.71gb", "sm_count": 60}), VERSIONS, "mig was disabled, is 3g.71gb"),
    "driver": (report({}, driver="590.44"), VERSIONS, "driver was 580, is 590"),
    "library": (report({}), OTHERS, "compiler was 14.2.0, is 15.0.0"),
    "compiler of the library": (report({}), {**VERSIONS, "nvrtc": "12"}, "nvrtc was 13, is 12"),
    "no library": (report({}), {}, "compiler was 14.2.0, is not installed"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a06_each_edit_is_a_miss_with_the_differing_field_named(home, monkeypatch, edit):
    found, versions, named = EDITS[edit]
    here(monkeypatch, found, versions)
    answer = ask()
    assert answer.basis == "DEFAULT"
    assert named in answer.why
    assert answer.expected_ns is None
    assert answer.cpus is None


@pytest.mark.parametrize("edit", EDITS)
def test_a06_only_force_overrides_and_the_field_is_still_named(home, monkeypatch, edit):
    found, versions, named = EDITS[edit]
    here(monkeypatch, found, versions)
    answer = ask(stale="use")
    assert (answer.basis, answer.variant) == ("STALE", "split_w4")
    assert named in answer.why
    assert named in " ".join(answer.warnings)


def test_what_tells_no_nvrtc_is_no_change(home, monkeypatch):
    here(monkeypatch, report({}), {**VERSIONS, "nvrtc": None})
    assert ask().basis == "EXACT"


def test_nvrtc_makes_stale_what_cupy_compiles_and_nothing_else():
    environment = {"nvrtc": "12"}
    told = [ranges._value("nvrtc", environment, {"build": {"compiler": tool}}) for tool in ("cupy-14.2", "triton-3.6")]
    assert told == ["12", None]


@pytest.mark.parametrize(("distribution", "version"), [("cupy_cuda12x", "12"), ("cupy_cuda13x", "13"), ("cupy", None)])
def test_the_distribution_of_cupy_tells_its_nvrtc(tmp_path, monkeypatch, distribution, version):
    (tmp_path / f"{distribution}-14.2.0.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert (installed.installed("cupy"), installed.nvrtc()) == ("14.2.0", version)
    monkeypatch.setattr("sys.path", [])
    assert installed.nvrtc() is None


def test_a06_an_edited_source_is_a_miss_and_force_overrides(home, monkeypatch):
    monkeypatch.setattr(ranges, "here_hash", lambda kernel, variant: "0" * 12)
    assert "source_hash was" in ask().why
    assert ask().basis == "DEFAULT"
    assert ask(stale="use").basis == "STALE"


def test_a_later_number_of_the_same_driver_branch_is_no_change(home, monkeypatch):
    here(monkeypatch, report({}, driver="580.126.01"))
    assert DRIVER != "580.126.01"
    assert ask().basis == "EXACT"


@pytest.mark.parametrize("changes", [{"name": "NVIDIA H100"}, {"compute_capability": "10.0"}])
def test_nothing_of_another_model_is_used_even_by_force(home, monkeypatch, changes):
    here(monkeypatch, report(changes))
    for stale in ("default", "use"):
        answer = ask(stale=stale)
        assert (answer.basis, answer.variant) == ("DEFAULT", None)


def test_its_own_table_goes_before_one_of_another_slice(home, monkeypatch):
    keep(home, monkeypatch, gpu(power_limit_w=350.0))
    here(monkeypatch, report({"power_limit_w": 350.0}))
    for stale in ("default", "use"):
        policy = Policy.load(device="cuda:0", stale=stale)
        assert policy.notes == ()
        assert policy.choose("decode", n=4096).basis == "EXACT"


# --- a machine without a GPU answers from descriptions ---


def test_a_description_kept_with_a_gpus_table_answers_for_it(home, monkeypatch):
    here(monkeypatch, none(), {})
    place = os.path.join(home, "machines", f"{gpu().device_id}-device")
    answer = Policy.load(machine=os.path.join(place, "machine.json")).choose("decode", n=4096)
    assert (answer.basis, answer.variant, answer.device) == ("EXACT", "split_w4", "NVIDIA H200")
    assert "not for this one" in answer.refusal


def test_of_several_gpus_the_one_that_is_named_answers(home, tmp_path_factory, monkeypatch):
    here(monkeypatch, none(), {})
    folder = tmp_path_factory.mktemp("several")
    path = write_machine(folder, whole({"power_limit_w": 350.0}, {}))
    assert "power_limit_w was 690.0, is 350.0" in ask(machine=path).why
    assert ask(device="cuda:1", machine=path).basis == "EXACT"
    with pytest.raises(BadInput, match="allowed: cpu, cuda:0, cuda:1"):
        ask(device="cuda:2", machine=path)
    assert Policy.load(machine=path).site.gpu is None


def uncounted(*numbers):
    """GPUs that NVML counts in this order and CUDA as the numbers say, None where that is not known."""
    found = report(*({} for _ in numbers))
    rows = [
        one._replace(cuda_index=number, visible=None if number is None else True)
        for one, number in zip(found.gpus, numbers, strict=True)
    ]
    return found._replace(gpus=tuple(rows))


def test_the_number_is_cudas_and_never_nvmls(home, monkeypatch):
    here(monkeypatch, uncounted(1, None))
    assert Policy.load(device="cuda:1").site.gpu["uuid"] == "GPU-0"
    with pytest.raises(BadInput, match=r"cannot be told here.*allowed: cpu, cuda:1.*CUDA_DEVICE_ORDER"):
        Policy.load(device="cuda:0")


@pytest.mark.parametrize("name", ["cuda:0", "cuda:1"])
def test_of_gpus_whose_numbers_are_unknown_none_is_taken(home, monkeypatch, name):
    here(monkeypatch, uncounted(None, None))
    with pytest.raises(BadInput, match=r"cannot be told here.*allowed: cpu[^,]"):
        Policy.load(device=name)


def test_a_gpu_that_is_there_alone_is_number_zero(home, monkeypatch):
    here(monkeypatch, uncounted(None))
    assert ask().basis == "EXACT"


def test_a_table_beside_a_description_counts_before_those_of_the_home_folder(home, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("empty-home")
    monkeypatch.setenv("ADVISOR_HOME", str(folder))
    path = os.path.join(home, "machines", f"{gpu().device_id}-device", "machine.json")
    assert ask(device=None, machine=path).basis == "EXACT"


def test_a_description_without_gpus_has_no_device(tmp_path):
    path = write_machine(tmp_path, machine(gpus=()))
    with pytest.raises(BadInput, match="no GPU answers"):
        ask(machine=path)
    kept = write_machine(tmp_path, machine(gpus=(), limits_id="device"))
    with pytest.raises(BadInput, match="must describe its GPUs"):
        ask(device=None, machine=kept)


# --- what it costs ---

CODE = """
import sys
before = set(sys.modules)
from advisor.lookup import Policy
policy = Policy.load(device="cuda:0")
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(policy.site.gpu["name"], *sorted(loaded - set(sys.stdlib_module_names)))
"""


def test_no_third_party_module_is_loaded_to_find_a_gpu(tmp_path):
    environment = {**os.environ, **variables(tmp_path, [H200]), "ADVISOR_HOME": str(tmp_path)}
    told = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, env=told)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "NVIDIA H200 advisor\n"


# --- formats ---


def test_people_are_told_the_device_and_the_launch_and_no_threads(home):
    sheet = launch.text(ask(), 4096)
    assert "device   NVIDIA H200" in sheet
    assert "blocks of 4 warps (128 threads)" in sheet
    assert "threads  " not in sheet
    assert "process" not in sheet


def test_programs_get_the_launch_and_the_device(home):
    data = launch.to_dict(ask(), 4096)
    assert (data["device"], data["launch"]["warps"], data["launch"]["block"]) == ("NVIDIA H200", 4, 128)
    assert data["launch"]["grid"][0] > 1
    json.dumps(data, allow_nan=False)


def test_a_launch_of_another_version_of_the_source_is_unknown(home):
    data = launch.to_dict(ask()._replace(source_hash="0" * 12), 4096)
    assert data["launch"] is None


def test_the_environment_names_variant_tool_and_knobs_and_nothing_of_openmp(home):
    lines = launch.env(ask()).splitlines()
    knobs = dict(MANY.build.knobs)
    assert lines[1:3] == ["export ADVISOR_VARIANT=split_w4", "export ADVISOR_TOOL=cupy-14.2"]
    assert set(lines[3:]) == {f"export ADVISOR_KNOB_{name}={value}" for name, value in knobs.items()}
    assert launch.env(ask(n=300)).splitlines()[1] == f"export ADVISOR_VARIANT={FEW.build.variant}"


def exported(*answers):
    """The ADVISOR_ variables of a shell that took some answers one after another."""
    script = "\n".join([*(f"eval {shlex.quote(launch.env(one))}" for one in answers), "env"])
    clean = {"PATH": os.environ["PATH"], "ADVISOR_KNOBS": "kept"}
    done = subprocess.run(["sh", "-euc", script], env=clean, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if line.startswith("ADVISOR_")}


def test_of_two_answers_in_a_row_a_shell_keeps_the_second_alone(home):
    first, second = ask()._replace(knob_pairs=(("old", 1), ("blocks", 7))), ask()._replace(knob_pairs=(("blocks", 8),))
    assert "ADVISOR_KNOB_old=1" in exported(first)
    assert exported(first, second) == exported(second)
    assert "ADVISOR_KNOB_blocks=8" in exported(second)
    assert exported(first, ask()._replace(variant=None)) == {"ADVISOR_KNOBS=kept"}


@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "a; rm -rf"},
        {"compiler": "$(x)"},
        {"knob_pairs": (("a b", 1),)},
        {"knob_pairs": (("a", "`x`"),)},
        {"knob_pairs": (("a", -1),)},
    ],
)
def test_what_is_no_plain_word_reaches_no_shell(home, changes):
    with pytest.raises(BadInput):
        launch.env(ask()._replace(**changes))


@pytest.mark.parametrize("output", ["numactl", "taskset"])
def test_formats_that_pin_are_refused(home, output):
    with pytest.raises(BadInput, match="pins the threads"):
        launch.render(output, ask(), 4096)

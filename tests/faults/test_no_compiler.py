"""Case A-09, an image without a compiler: PATH leads to none, in every process that is started here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig

import pytest
import tabling
from commanding import ADVISOR, SCALE, Ran, Site

from advisor import probing
from advisor.installed import ABSENT
from advisor.kernels import registry
from advisor.kernels.bench import OBSERVE_NS
from advisor.kernels.compilers import compilers
from advisor.kernels.libraries import libraries
from advisor.kernels.variant import for_machine, variants
from advisor.policy.learn import learn
from advisor.records import Build, Choice, Process
from advisor.search.space import space, space_options
from advisor.topology import probe
from advisor.topology.placement import evaluate

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
N = 256
POWERLESS = """
import ctypes, os, sys
for power in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: with them the superuser may write everywhere
    ctypes.CDLL(None).prctl(24, power, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
STEPS = ("apt-get install gcc", "pip install onf-advisor[torch]")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Changes to an environment that leave no compiler in reach."""
    return {"PATH": str(tmp_path_factory.mktemp("empty")), "CC": None}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where results end up when nothing tells where: in a folder of this user's in the temporary one."""
    spare = tmp_path_factory.mktemp("no-compiler") / f"advisor-{os.getuid()}"
    return Site(str(spare / "state"), str(spare / "cache"))


@pytest.fixture(scope="module")
def container(site, bare, tmp_path_factory):
    """The command in an image: no compiler, HOME=/, a working directory and a cache folder that nothing can be written
    to, the latter another user's where this one may make such a folder, and no power to write nevertheless."""
    foreign, here = tmp_path_factory.mktemp("foreign"), tmp_path_factory.mktemp("read-only")
    (foreign / "advisor").mkdir()
    if os.getuid() == 0:
        os.chown(foreign / "advisor", 12345, 12345)
    os.chmod(foreign / "advisor", 0o700 if os.getuid() == 0 else 0)
    here.chmod(0o555)
    nowhere = {
        "HOME": "/",
        "XDG_DATA_HOME": None,
        "XDG_CACHE_HOME": str(foreign),
        "TMPDIR": os.path.dirname(os.path.dirname(site.home)),
    }
    changes = {**bare, **nowhere, "ADVISOR_HOME": None, "ADVISOR_CACHE": None}

    def advisor(*words):
        command = [sys.executable, "-c", POWERLESS, *ADVISOR, *words]
        ran = subprocess.run(
            command, env=site.environment(**changes), cwd=here, capture_output=True, text=True, timeout=120, check=False
        )
        assert os.listdir(here) == []
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    yield advisor
    os.chmod(foreign / "advisor", 0o700)


@pytest.fixture(scope="module")
def tuned(container):
    """What a tune of every choice that there is said; the budget is for a crowded machine."""
    return container(
        "tune", "--kernel", "decode", "--n", str(N), "--exhaustive", "--quick", "--budget", "100s", "--json"
    )


@needs_torch
def test_a09_in_an_image_without_home_cache_and_compiler_a_tune_ends_well_and_says_where_things_are(site, tuned):
    assert tuned.status == 0, tuned.err
    assert f"results are kept in {site.home}; set ADVISOR_HOME" in tuned.err
    assert f"it is made in {site.cache}; set ADVISOR_CACHE" in tuned.err
    assert json.loads(tuned.out)["table_path"] == site.file("decode.table.json")


def measured(site):
    """Of every choice that was timed its last record."""
    looks = [r["measurement"] for r in site.log() if r["kind"] == "trial" and r["measurement"]["samples_ns"]]
    return {json.dumps(one["choice"], sort_keys=True): one for one in looks}


@needs_torch
def test_a09_calls_of_a_library_are_tuned_over_the_same_choices_as_with_a_compiler(site, tuned):
    machine, spec = probe.probe(), registry.spec("decode")
    ground = (machine, spec, for_machine(variants("decode"), machine), spec.problem(N))
    listed = [one for one in space(*ground, space_options(machine)) if one.build.compiler.startswith("torch-")]
    assert json.loads(tuned.out)["space_size"] == len(listed)
    found = list(measured(site).values())
    assert len(found) == len(listed)
    told = {(one.build.variant, one.team, one.process) for one in listed}
    assert {(m["choice"]["build"]["variant"], *parts(m["choice"])) for m in found} == told
    assert {one.variant for one in {choice.build for choice in listed}} == {"torch_sdpa", "torch_matmul"}


def parts(choice):
    """Team and process part of a choice in a log, as records."""
    return tabling.Team(**choice["team"]), Process(**choice["process"])


@needs_torch
def test_a09_every_choice_is_checked_timed_and_seen_on_the_cpus_that_were_asked_for(site, tuned):
    machine = probe.probe()
    for one in measured(site).values():
        team, conditions = parts(one["choice"])[0], one["conditions"]
        assert one["status"] == "ok"
        assert one["error"] <= one["tolerance"]
        if one["kernel_s"] * 1e9 >= OBSERVE_NS:  # PyTorch keeps one more thread, which shows as idle only then
            assert one["threads_observed"] == team.threads
        asked = evaluate(team.placement, machine.array, machine.allowed_cpus, team.threads)
        assert tuple(conditions["cpus_observed"]) == asked
        assert conditions["openmp"] == ["libgomp"]


@needs_torch
def test_a09_a_table_is_written_and_recommended_from(container, tuned):
    (best,) = json.loads(tuned.out)["best"]
    done = container("recommend", "--kernel", "decode", "--n", str(N), "--json")
    assert done.status == 0, done.err
    (answer,) = json.loads(done.out)["answers"]
    assert (answer["basis"], answer["compiler"]) == ("EXACT", libraries()[0].name)
    assert answer["variant"] == best["choice"]["build"]["variant"]


def test_a09_the_probe_marks_what_needs_a_compiler_with_reason_and_next_step(container):
    done = container("probe", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)["unavailable"]
    in_c = {(kernel, one.name) for kernel in registry.kernels() for one in variants(kernel) if one.language == "c"}
    assert {(one["kernel"], one["variant"]) for one in found if one["language"] == "c"} == in_c
    for one in found:
        assert one["reason"].startswith("there is no ")
        assert "install" in one["next_step"]
    told = container("probe").out
    assert "not available here, since there is no C compiler with OpenMP (Debian: apt-get install gcc" in told
    assert "  decode: grouped, split, naive" in told.splitlines()


@pytest.mark.skipif(not (compilers() and libraries()), reason="something is missing here")
def test_a09_where_nothing_is_missing_nothing_is_marked(site):
    assert [
        one for one in json.loads(site.advisor("probe", "--json").out)["unavailable"] if one["language"] == "c"
    ] == []


@needs_torch
def test_a09_the_doctor_says_what_is_left(container):
    done = container("doctor", "--json")
    assert done.status == 0, done.err
    (found,) = [one for one in json.loads(done.out)["findings"] if one["what"] == "C compiler with OpenMP"]
    assert "only calls of torch-" in found["found"]
    assert "apt-get install gcc" in found["remedy"]


@needs_torch
@pytest.mark.parametrize("words", [("tune", *SCALE, "--n", "64"), ("validate",)])
def test_a09_what_needs_a_compiler_is_refused_before_anything_is_written(bare, tmp_path, words):
    other = Site(str(tmp_path / "home"), str(tmp_path / "cache"))
    done = other.advisor(*words, **bare)
    assert (done.status, done.out) == (1, "")
    assert "C compiler with OpenMP" in done.err
    assert "apt-get install gcc" in done.err
    assert not os.path.exists(other.home)


# --- neither a compiler nor a library ---


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """A folder with all that is installed here but PyTorch."""
    folder = tmp_path_factory.mktemp("site")
    installed = sysconfig.get_path("purelib")
    for name in os.listdir(installed):
        if not name.startswith(("torch", "functorch")):
            os.symlink(os.path.join(installed, name), folder / name)
    return os.pathsep.join([os.path.dirname(os.path.dirname(os.path.abspath(probing.__file__))), str(folder)])


@pytest.mark.parametrize("words", [("tune", "--kernel", "decode"), ("doctor",)])
def test_a09_with_neither_the_command_says_what_to_install_and_writes_nothing(bare, without_torch, tmp_path, words):
    other = Site(str(tmp_path / "home"), str(tmp_path / "cache"))
    command = [sys.executable, "-S", "-m", "advisor.cli", *words]
    environment = other.environment(PYTHONPATH=without_torch, **bare)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    done = Ran(ran.returncode, ran.stdout, ran.stderr)
    assert done.status == 1
    assert all(step in done.out + done.err for step in STEPS)
    assert "Traceback" not in done.err
    left = [name for _, _, names in os.walk(other.home) for name in names]
    assert left == []


# --- a table that was tuned with a compiler ---

CHOOSE = """
import json
from advisor.lookup import Policy
asked = [(stale, n) for stale in ("default", "use") for n in (64, 1024, 4096, 1 << 20)]
found = [Policy.load(stale=stale).choose("decode", n) for stale, n in asked]
print(json.dumps([[a.basis, a.variant, a.compiler, a.why] for a in found]))
"""


@pytest.fixture
def made_with_a_compiler(tmp_path):
    """A table for this machine: compiled code won at 64, a library's call from 1024 on."""
    machine, ours = probe.probe(), {one.name: one for one in variants("decode")}

    def choice(name, tool, flags, threads=1, process=tabling.DEFAULT):
        made = Build(name, ours[name].source_hash, ours[name].defaults, tool, flags)
        return Choice(made, tabling.Team(threads, ""), process)

    compiled, called = choice("naive", "gcc-12", "native"), choice("torch_sdpa", libraries()[0].name, "none")
    asleep = choice("naive", "gcc-12", "native", 2, tabling.PASSIVE)  # what is fastest of all in its process part
    races = [
        tabling.race(64, {compiled: 1e3, called: 9e3, asleep: 5e2}, default=compiled),
        tabling.race(1024, {compiled: 9e4, called: 3e4, asleep: 1e4}, default=compiled),
        tabling.race(4096, {compiled: 9e5, called: 3e5, asleep: 1e5}, default=compiled),
    ]
    with_gcc = machine._replace(
        environment=(*((k, v) for k, v in machine.environment if k != "gcc"), ("gcc", "12.2.0"))
    )
    home = tmp_path / "home"
    folder = home / "machines" / os.path.basename(probing.folder_of(machine))
    folder.mkdir(parents=True)
    tabling.write(str(folder), learn(with_gcc, races, [], tabling.MADE))
    return Site(str(home), str(tmp_path / "cache"))


@needs_torch
def test_a09_a_table_is_read_where_nothing_can_be_written(made_with_a_compiler, tmp_path):
    folders = [folder for folder, _, _ in os.walk(tmp_path)]
    changes = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "ADVISOR_CACHE": None}
    for folder in folders:
        os.chmod(folder, 0o555)
    before = [list(found) for found in os.walk(tmp_path)]
    command = [sys.executable, "-c", POWERLESS, *ADVISOR, "recommend", "--kernel", "decode", "--n", "1024", "--json"]
    environment = made_with_a_compiler.environment(**changes)
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    for folder in folders:
        os.chmod(folder, 0o755)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["answers"][0]["basis"] == "EXACT"
    assert [list(found) for found in os.walk(tmp_path)] == before


def told_with_a_compiler(environment):
    """Why the answer at 1024 is what it is, where something called gcc can be found."""
    tools = os.path.join(environment["PATH"], "tools")
    os.makedirs(tools, exist_ok=True)
    os.symlink(sys.executable, os.path.join(tools, "gcc"))
    ran = subprocess.run(
        [sys.executable, "-c", CHOOSE], env={**environment, "PATH": tools}, capture_output=True, check=True
    )
    return json.loads(ran.stdout)[1][3]


@needs_torch
def test_a06_a_compiled_row_is_a_miss_without_its_compiler_and_a_row_of_a_library_answers(made_with_a_compiler, bare):
    environment = made_with_a_compiler.environment(**bare)
    ran = subprocess.run([sys.executable, "-c", CHOOSE], env=environment, capture_output=True, check=True, text=True)
    called = libraries()[0].name
    small, *large, outside, forced, _, _, _ = json.loads(ran.stdout)
    assert "; start the process with OMP_WAIT_POLICY=passive: 3x faster here" in told_with_a_compiler(environment)
    assert small[:3] == ["DEFAULT", "torch_sdpa", called]
    assert f"compiler was 12.2.0, is {ABSENT}" in small[3]
    assert "gcc-12 is not here" in small[3]
    assert [one[:3] for one in large] == [["EXACT", "torch_sdpa", called]] * 2
    assert not any("start the process" in one[3] for one in large)
    assert outside[:3] == ["DEFAULT", "torch_sdpa", called]
    assert forced[:3] == ["STALE", "naive", "gcc-12"]

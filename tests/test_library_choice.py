"""A library call as the choice, from tuning to the answer: found, told, put into a shell, stale when it changes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import calling as library
import pytest
from commanding import SCALE, Site

from advisor.kernels.compilers import compilers
from advisor.ranges import changed_fields, section_default
from advisor.site import Site as Place
from advisor.topology.array import build

needs_frame = pytest.mark.skipif(
    not any(one.runtime == "libgomp" for one in compilers()), reason="no gcc, whose libgomp the library loads"
)

APPLIED = """
import os, torch
from advisor.lookup import Policy
torch.set_num_threads(2)
torch.get_num_threads()  # PyTorch sets its own count once, the first time it looks
answer = Policy.load().choose("forward", n=64)._replace(threads=1, cpus=(max(os.sched_getaffinity(0)),))
with answer.applied() as state:
    print(torch.get_num_threads(), os.sched_getaffinity(0) == set(answer.cpus), state.note)
print(torch.get_num_threads())
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A table of the test kernel whose only variant is a library call, the library's folder, and where it lies."""
    folder = tmp_path_factory.mktemp("called")
    stub = library.install(folder / "site")
    kernel = folder / "scale"
    kernel.mkdir()
    with open(os.path.join(SCALE[3], "scale", "spec.py"), encoding="utf-8") as file:
        (kernel / "spec.py").write_text(file.read())
    library.write(kernel / "called.py")
    site = Site(str(folder / "home"), str(folder / "cache"))
    words = ("--kernel", "scale", "--kernel-dir", str(folder), "--n", "64,128", "--budget", "8s")
    ran = site.advisor("tune", *words, PYTHONPATH=str(stub))
    assert ran.status in (0, 3), ran.err
    return site, stub, ran


@needs_frame
def test_a_library_call_is_found_and_recommended(tuned):
    site, stub, ran = tuned
    assert "torch-9.9" in ran.out
    got = site.advisor("recommend", "--kernel", "scale", "--n", "64", PYTHONPATH=str(stub))
    assert got.status == 0, got.err
    assert "called, torch-9.9\n" in got.out
    told = site.advisor("recommend", "--kernel", "scale", "--n", "64", "--json", PYTHONPATH=str(stub)).out
    (found,) = json.loads(told)["answers"]
    assert (found["variant"], found["compiler"], found["basis"]) == ("called", "torch-9.9", "EXACT")
    lines = site.advisor("recommend", "--kernel", "scale", "--n", "64", "--format", "env", PYTHONPATH=str(stub)).out
    assert f"export OMP_NUM_THREADS={found['threads']}\n" in lines


@needs_frame
def test_another_version_or_none_makes_its_rows_stale(tuned):
    site, stub, _ = tuned
    words = ("recommend", "--kernel", "scale", "--n", "64")
    try:
        library.install(stub, version="9.10.0")
        assert "compiler was 9.9.1, is 9.10.0" in site.advisor(*words, PYTHONPATH=str(stub)).out
    finally:
        library.install(stub)
    assert "compiler was" not in site.advisor(*words, PYTHONPATH=str(stub)).out


def test_a_library_that_is_gone_makes_its_rows_stale(monkeypatch):
    """And the OpenMP runtime of the system is not the library's."""
    choice = {"build": {"compiler": "torch-2.13"}, "process": {"runtime": "libgomp"}}
    row = {"depends": ["compiler", "openmp"], "choice": choice}
    then = {"environment": {"torch": "2.13.0", "libgomp": "1.0.0"}}
    place = Place("hw", "limits", build({}, (0,)), (0,), 1, {"libgomp": "2.0.0"})
    monkeypatch.setattr("advisor.ranges.installed", lambda name: None)
    assert changed_fields(place, {"kernel": "scale"}, then, row) == ("compiler was 2.13.0, is not installed",)
    elsewhere = place._replace(environment={"torch": "2.13.0"}, refusal="another machine")
    assert changed_fields(elsewhere, {"kernel": "scale"}, then, row) == ()
    compiled = {**row, "choice": {**choice, "build": {"compiler": "gcc-12"}}}
    assert changed_fields(place, {"kernel": "scale"}, then, compiled) == ("openmp was 1.0.0, is 2.0.0",)


@pytest.mark.parametrize("known", [{"gcc": "12.2.0"}, {"kernel": "6.1"}])
def test_a_compiler_that_is_gone_makes_its_rows_stale(monkeypatch, tmp_path, known):
    """Also where the table was added to without it, so that its environment has none."""
    row = {"depends": ["compiler"], "choice": {"build": {"compiler": "gcc-12"}, "process": {"runtime": "libgomp"}}}
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    def changed():
        place = Place("hw", "limits", build({}, (0,)), (0,), 1, {})
        return changed_fields(place, {"kernel": "scale"}, {"environment": known}, row)

    assert changed() == (f"compiler was {known.get('gcc', 'gcc-12')}, is not installed",)
    for name in ("clang", "gfortran"):  # others than that compiler, or any
        (tmp_path / name).touch(mode=0o755)
    assert len(changed()) == 1
    for name in ("gcc-12", "gcc", "cc"):
        (tmp_path / name).touch(mode=0o755)
        assert changed() == ()  # one that may be it
        (tmp_path / name).unlink()
    monkeypatch.setenv("CC", "clang -m64")
    assert changed() == ()


def test_where_the_defaults_compiler_is_gone_the_row_that_answers_is_named_by_its_tool(monkeypatch, tmp_path):
    """Here another compiler's, and no library's."""

    def choice(compiler, variant):
        build = {"variant": variant, "source_hash": "1", "knobs": {}, "compiler": compiler, "flags": "native"}
        return {"build": build, "team": {"threads": 1, "placement": ""}, "process": None}

    section = {
        **{"dtype": "float32", "shape": {"d": 1}, "regime": "warm", "process": None},
        "default": choice("gcc-12", "tiled"),
        "rows": [{"choice": choice("gcc-12", "tiled")}, {"choice": choice("clang-14", "rows")}],
    }
    table = {"kernel": "scale", "table_id": "t", "hardware_id": "hw"}
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "clang-14").touch(mode=0o755)
    place = Place("hw", "limits", build({}, (0,)), (0,), 1, {})
    found = section_default(place, table, section, "outside")
    assert (found.variant, found.compiler, found.basis) == ("rows", "clang-14", "DEFAULT")
    assert found.why == "outside, but gcc-12 is not here: clang-14's row, with the default team"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_applied_answer_is_how_many_threads_torch_takes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", APPLIED],
        env={**os.environ, "ADVISOR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == ["1 True ", "2"], done.stderr

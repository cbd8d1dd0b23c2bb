"""Builds are named by content, made once, and never trusted when they were touched."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput, BuildError, OutOfTime, UnknownName
from advisor.kernels import build as module
from advisor.kernels.build import build, make_recipe
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.library import load
from advisor.kernels.messages import Binary
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant
from advisor.records import pairs


@pytest.fixture(scope="module")
def known():
    """The compilers of this machine, found once."""
    return {compiler.name: compiler for compiler in compilers()}


@pytest.fixture
def cache(tmp_path, monkeypatch, known):
    """An empty cache folder; the compilers are known already."""
    own = tmp_path / "cache"
    own.mkdir(mode=0o700)
    choices = fixtures.compilers()
    monkeypatch.setenv("ADVISOR_CACHE", str(own))
    monkeypatch.setattr(fixtures, "compilers", lambda: choices)
    monkeypatch.setattr(module, "find_tool", known.__getitem__)
    return own


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def made(variant, **knobs):
    return fixtures.choice(variant, **knobs).build


def test_once_per_content(cache):
    variant, problem = fixtures.good("rows"), fixtures.problem(64)
    first = build(variant, made(variant), problem)
    assert first.seconds > 0
    assert build(variant, made(variant), problem) == first._replace(seconds=0.0)
    assert build(variant, made(variant, block=64), problem).path == first.path  # a run knob is no other build
    others = [
        build(variant, made(variant, ADV_STEP=8), problem),
        build(variant, made(variant), fixtures.problem(64, width=32)),
        build(variant, made(variant), fixtures.problem(64, "float64")),
        build(variant, made(variant)._replace(flags="native"), problem),
    ]
    assert len({first.path, *(other.path for other in others)}) == 5


def test_the_library_says_what_it_is(cache):
    variant, problem = fixtures.good("rows"), fixtures.problem(64, width=8)
    recipe = make_recipe(variant, made(variant, ADV_STEP=8), problem)
    library = ctypes.CDLL(build(variant, made(variant, ADV_STEP=8), problem).path)
    assert (ctypes.c_char * 16).in_dll(library, "advisor_build_key").value.decode() == recipe.key
    assert tuple((ctypes.c_int64 * 2).in_dll(library, "advisor_macro_values")) == (8, 8)


@pytest.mark.parametrize("harm", ["cut", "other", "writable", "link", "no note", "bad note"])
def test_a_library_that_was_touched_is_built_again(cache, harm, tmp_path):
    variant, problem = fixtures.good("plain"), fixtures.problem(64)
    path = build(variant, made(variant), problem).path
    whole = read(path)
    if harm == "cut":
        os.truncate(path, 1000)
    elif harm == "other":
        write(path, whole + b"x")
    elif harm == "writable":
        os.chmod(path, 0o777)
    elif harm == "link":
        os.rename(path, tmp_path / "elsewhere.so")
        os.symlink(tmp_path / "elsewhere.so", path)
    elif harm == "no note":
        os.unlink(f"{path}.json")
    else:
        write(f"{path}.json", b"[]")
    again = build(variant, made(variant), problem)
    assert again.seconds > 0
    assert not os.path.islink(path)
    assert read(path) == whole  # compilation is reproducible
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_cache_of_somebody_elses_is_refused(cache):
    os.chmod(cache, 0o777)
    variant = fixtures.good("plain")
    with pytest.raises(BadInput, match="cache folder"):
        build(variant, made(variant), fixtures.problem(64))


def test_compile_errors_carry_the_compilers_words(cache):
    variant = fixtures.bad("no_compile")
    with pytest.raises(BuildError, match=r"no_compile.*error"):
        build(variant, made(variant), fixtures.problem(64))
    assert not [name for name in os.listdir(cache / "build") if not name.endswith(".lock")]


def test_a_source_that_changed_is_refused(cache, tmp_path):
    path = tmp_path / "plain.c"
    text = read(fixtures.good("plain").path).decode()
    path.write_text(text)
    variant = read_variant(str(path), "scale")
    path.write_text(text + "\n/* changed */\n")
    with pytest.raises(BadInput, match="changed"):
        build(variant, made(variant), fixtures.problem(64))
    with pytest.raises(BadInput, match="tune again"):
        build(read_variant(str(path), "scale"), made(variant), fixtures.problem(64))


def test_unknown_flags_dtype_and_knobs(cache):
    variant = fixtures.good("plain")
    with pytest.raises(UnknownName):
        build(variant, made(variant)._replace(flags="fastest"), fixtures.problem(64))
    with pytest.raises(BadInput, match="dtype"):
        build(variant, made(variant), fixtures.problem(64)._replace(dtype="int8"))
    rows = fixtures.good("rows")
    with pytest.raises(BadInput, match="ADV_STEP"):
        build(rows, made(rows)._replace(knobs=pairs({"block": 8})), fixtures.problem(64))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_a_library_says_what_it_computes_in_and_what_is_stored(cache, dtype):
    """One made for another dtype is refused, storage of 16 bits included, where the arithmetic is the same."""
    variant, problem = fixtures.good("plain"), fixtures.problem(64)._replace(dtype=dtype)
    recipe, path = make_recipe(variant, made(variant), problem), build(variant, made(variant), problem).path
    real = (8 if dtype == "float64" else 4, module.REALS[dtype].code)
    binary = Binary(path, variant.symbol, recipe.key, tuple(value for _, value in recipe.macros), real)
    assert load(binary).binary == binary
    for other in module.REALS.values():
        if (other.size, other.code) != real:
            with pytest.raises(BuildError, match="asked for"):
                load(binary._replace(real=(other.size, other.code)))


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """Every compiler hangs."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 600\n")
    slow.chmod(0o700)
    compiler = fixtures.compilers()[0]._replace(path=str(slow))
    monkeypatch.setattr(module, "find_tool", lambda name: compiler)


def test_a_compiler_at_work_when_the_time_ends_is_killed_and_has_not_failed(cache, hanging):
    variant = fixtures.good("plain")
    for left_s in (0.3, -1.0):
        with pytest.raises(OutOfTime, match="the budget ended before it was built"):
            build(variant, made(variant), fixtures.problem(64), time.monotonic() + left_s)


def test_a_pool_whose_time_ends_while_it_compiles_has_failed_nothing(cache, hanging):
    variant, problem = fixtures.good("plain"), fixtures.problem(64)
    choice = fixtures.choice(variant)
    with WorkerPool(fixtures.here(), fixtures.scale(), (variant,)) as pool:
        pool.until = time.monotonic() + 0.3
        prepared = pool.prepare(problem, [choice])
        assert (prepared.ready, prepared.failed) == (0, 0)
        found = pool.measure(problem, choice, Ask(1, 60.0))
    assert found.status == "skipped"
    assert "the budget ended before it was built" in found.reason


def test_a_compiler_that_hangs_is_killed(cache, hanging, monkeypatch):
    variant = fixtures.good("plain")
    monkeypatch.setattr(module, "COMPILE_LIMIT_S", 0.5)
    with pytest.raises(BuildError, match="killed after"):
        build(variant, made(variant), fixtures.problem(64))


BUILD_IT = """
import sys
import time
sys.path.insert(0, sys.argv[1])
import kernel_fixtures as fixtures
from advisor.kernels.build import build
variant = fixtures.good("rows")
print(build(variant, fixtures.choice(variant, ADV_STEP=1).build, fixtures.problem(64)))
"""


def test_two_processes_that_build_the_same_thing(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "ADVISOR_CACHE": str(tmp_path / "shared")}
    command = [sys.executable, "-c", BUILD_IT, here]
    children = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len({line.split("seconds")[0] for line in said}) == 1
    libraries = [name for name in os.listdir(tmp_path / "shared" / "build") if name.endswith(".so")]
    assert len(libraries) == 1

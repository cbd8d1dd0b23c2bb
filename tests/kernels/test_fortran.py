"""Variants in Fortran: compilers found by building, headers checked, and the binary that was asked for is what ran."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import stat

import kernel_fixtures as fixtures
import psutil
import pytest
from attention_fixtures import default_knobs

from advisor import doctor
from advisor.errors import BadInput, BuildError, UnknownName
from advisor.kernels import available, fortran, registry
from advisor.kernels.build import build
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.fortran import fortran_compilers
from advisor.kernels.libraries import find_tool, tools
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import evaluate, is_valid, names, read_variant, variants
from advisor.kernels.verify import rows
from advisor.records import Build, Choice, Process, Team
from advisor.search.space import default_choice, first_of_each_language, space_options
from advisor.topology.placement import UNPINNED

needs_fortran = pytest.mark.skipif(not fortran_compilers(), reason="no Fortran compiler with OpenMP here")

SOURCE = os.path.join(fixtures.DATA, "fortran", "stepped.f90")
with open(SOURCE, encoding="utf-8") as file:
    TEXT = file.read()


def written(folder, old="", new="", name="stepped"):
    """The source with one thing changed."""
    assert old in TEXT
    path = folder / f"{name}.f90"
    path.write_text(TEXT.replace(old, new) if old else TEXT)
    return read_variant(str(path), "scale")


def chosen(variant, threads=1, **knobs):
    """A choice with the first Fortran compiler."""
    tool = fortran_compilers()[0]
    own = {**dict(variant.defaults), **knobs}
    made = Build(variant.name, variant.source_hash, tuple(own.items()), tool.name, "o2")
    return Choice(made, Team(threads, ""), Process(tool.runtime, "default", None, "default"))


# --- compilers ---


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_fortran
def test_each_is_a_tool_with_a_frame_compiler_of_its_runtime():
    for one in fortran_compilers():
        family, major = one.name.split("-")
        assert family in fortran.FAMILIES
        assert major in one.version
        assert (one.language, one.runtime) == ("fortran", fortran.frame_compiler(one).runtime)
        assert one in tools()
        assert find_tool(one.name) == one


@needs_fortran
def test_the_first_compilers_have_one_of_it():
    found = first_of_each_language(space_options(fixtures.here()).compilers)
    assert [tool.name for tool in found if tool.language == "fortran"] == [fortran_compilers()[0].name]


@pytest.mark.parametrize(
    "text",
    [
        "exit 1",
        "echo hello 12.2",
        'case $1 in --version) echo "GNU Fortran (x) 99.1.0";; *) exit 1;; esac',
        'case $1 in --version) echo "flang version 99.1.0";; *) exit 0;; esac',
    ],
)
def test_one_that_cannot_build_is_left_out(tmp_path, text):
    program(tmp_path / "gfortran", text)
    program(tmp_path / "flang-99", text)
    assert fortran._fortran_compilers(str(tmp_path), compilers(), str(tmp_path / "cache")) == ()


@needs_fortran
def test_one_without_a_c_compiler_of_its_runtime_is_left_out(tmp_path):
    path, cache = os.environ["PATH"], str(tmp_path / "cache")
    other = tuple(one._replace(runtime="libother") for one in compilers())
    assert fortran._fortran_compilers(path, other, cache) == ()
    assert fortran._fortran_compilers(path, (), cache) == ()


@needs_fortran
def test_without_a_c_compiler_of_its_runtime_that_is_the_reason(monkeypatch):
    """In what is not available, in a refusal, and in the doctor's finding."""
    tool = fortran_compilers()[0]
    for module in (fortran, available):
        monkeypatch.setattr(module, "without_frame", lambda: (tool,))
    monkeypatch.setattr(fortran, "fortran_compilers", lambda: ())
    monkeypatch.setattr(available, "tools", compilers)
    reason, step = available._lacking()["fortran"]
    assert reason == f"there is no C compiler with {tool.runtime} for the frame of {tool.name}"
    assert step == available.FRAMES[tool.runtime]
    with pytest.raises(BadInput, match=f"frame of {tool.name}"):
        available.check([read_variant(SOURCE, "scale")], ("python",))
    finding = doctor._fortran()
    assert tool.name in finding.found
    assert (finding.remedy, finding.needed) == (step, False)


@needs_fortran
def test_with_one_nothing_lacks_a_frame(monkeypatch, tmp_path):
    tool = fortran_compilers()[0]
    assert tool.name not in [one.name for one in fortran.without_frame()]
    assert doctor._fortran() == (doctor._fortran().what, doctor._fortran().found, "", False)
    monkeypatch.setattr(fortran, "compilers", lambda: ())
    assert tool.name in [one.name for one in fortran.without_frame()]


def test_one_that_is_not_here_is_told_with_what_fortran_needs():
    with pytest.raises(UnknownName, match="Fortran") as caught:
        find_tool("gfortran-99")
    assert "gfortran" in caught.value.next_step
    with pytest.raises(UnknownName) as caught:
        find_tool("gcc-99")
    assert "gfortran" not in str(caught.value)


@needs_fortran
def test_each_is_tried_once(tmp_path):
    count, cache, real = tmp_path / "count", str(tmp_path / "cache"), fortran_compilers()[0].path
    program(tmp_path / "gfortran", f'echo x >> {count}; exec {real} "$@"')
    found = fortran._fortran_compilers(str(tmp_path), compilers(), cache)
    calls = len(count.read_text().split())
    fortran._fortran_compilers.cache_clear()
    fortran._working.cache_clear()
    assert fortran._fortran_compilers(str(tmp_path), compilers(), cache) == found
    assert len(found) == 1
    assert len(count.read_text().split()) == calls > 0


# --- headers ---


def test_reads_all():
    found = read_variant(SOURCE, "scale")
    assert (found.name, found.language, found.symbol, found.rank) == ("stepped", "fortran", "scale_stepped", 30)
    assert dict(found.build_knobs) == {"ADV_STEP": (1, 4)}
    assert registry.is_source(SOURCE)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"language": "fortran"', '"language": "c"', "fortran"),
        ("! variant {", "! a variant {", "must begin with"),
        ('"rank": 30', '"rank": 30,', "JSON"),
        ('bind(C, name="scale_stepped")', 'bind(C, name="scale_other")', "symbol"),
        (
            "integer(c_int64_t) function scale_stepped_workspace",
            "integer(c_int) function scale_stepped_workspace",
            "symb",
        ),
        ("#ifndef ADV_STEP\n#define ADV_STEP 4\n#endif\n", "", "ADV_STEP"),
        ("#ifndef ADV_STEP\n", "#ifndef ADV_OTHER\n#define ADV_OTHER 1\n#endif\n#ifndef ADV_STEP\n", "ADV_OTHER"),
        ("  implicit none\n", "#undef ADV_STEP\n#define ADV_STEP 1\n  implicit none\n", "ADV_STEP"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, old, new, said):
    with pytest.raises(BadInput, match=said):
        written(tmp_path, old, new)


def test_a_commented_entry_does_not_count(tmp_path):
    with pytest.raises(BadInput, match="symbol"):
        written(tmp_path, "integer(c_int) function", "! integer(c_int) function")


# --- what runs ---


@needs_fortran
def test_it_is_right_in_all_that_can_differ():
    found = list(rows(fixtures.here(), fixtures.scale(), [read_variant(SOURCE, "scale")]))
    assert {row.status for row in found} == {"ok"}, [row.reason for row in found if row.status != "ok"][:3]
    assert {row.compiler for row in found} == {one.name for one in fortran_compilers()}
    assert {dict(row.knobs)["ADV_STEP"] for row in found} == {1, 4}
    assert {row.threads for row in found} >= {1, 2, 3}


@needs_fortran
def test_the_binary_that_was_asked_for_is_the_one_that_ran(tmp_path):
    """C and Fortran of one kernel side by side: an error that only the Fortran source has shows in its result alone."""
    plus = written(tmp_path, "+ 1\n    end do", "+ 1.25\n    end do", "off")
    plain, right = fixtures.good("plain"), read_variant(SOURCE, "scale")
    problem = fixtures.problem(65)
    with WorkerPool(fixtures.here(), fixtures.scale(), [plain, right, plus]) as pool:
        found = {
            name: pool.check(problem, choice, 60.0)
            for name, choice in {
                "c": fixtures.choice(plain),
                "fortran": chosen(right),
                "off": chosen(plus),
                "c again": fixtures.choice(plain),
            }.items()
        }
    assert {name: one.status for name, one in found.items()} == {
        "c": "ok",
        "fortran": "ok",
        "off": "wrong",
        "c again": "ok",
    }
    assert found["off"].error == pytest.approx(0.25, rel=1e-5)


@needs_fortran
def test_the_library_holds_the_entry_of_the_source_and_no_other():
    variant = read_variant(SOURCE, "scale")
    made = build(variant, chosen(variant).build, fixtures.problem(4))
    library = ctypes.CDLL(made.path)
    assert library.scale_stepped
    assert not hasattr(library, "scale_plain")
    assert library.advisor_time, "the frame lies in it"
    with open(made.path, "rb") as file:
        assert b"scale_stepped" in file.read()


@needs_fortran
def test_c_and_fortran_compilers_are_not_taken_for_each_other():
    variant = read_variant(SOURCE, "scale")
    made = chosen(variant).build
    with pytest.raises(BadInput, match="in fortran"):
        build(variant, made._replace(compiler=compilers()[0].name), fixtures.problem(4))
    plain = fixtures.good("plain")
    in_c = fixtures.choice(plain).build
    with pytest.raises(BadInput, match="in c"):
        build(plain, in_c._replace(compiler=made.compiler), fixtures.problem(4))


@needs_fortran
def test_what_does_not_compile_says_so(tmp_path):
    variant = written(tmp_path, "  scale_stepped = 0\n", "  scale_stepped = nothing\n")
    with pytest.raises(BuildError, match="nothing"):
        build(variant, chosen(variant).build, fixtures.problem(4))


@needs_fortran
def test_threads_are_those_asked_for():
    machine, variant = fixtures.here(), read_variant(SOURCE, "scale")
    with WorkerPool(machine, fixtures.scale(), [variant]) as pool:
        found = [pool.measure(fixtures.problem(65), chosen(variant, t), Ask(1, 60.0)) for t in (1, 2)]
    assert [one.status for one in found] == ["ok", "ok"]
    assert [one.threads_observed for one in found] == [1, 2]
    assert dict(found[0].conditions)["openmp"] == (fortran_compilers()[0].runtime,)


# --- the kernels of the package ---

KERNELS = [kernel for kernel in registry.kernels() if any(one.language == "fortran" for one in variants(kernel))]


@needs_fortran
@pytest.mark.parametrize("kernel", KERNELS)
def test_c_and_fortran_agree_with_the_dnf_to_the_same_tolerance(kernel):
    """The C variant that it mirrors, and each Fortran compiler; `advisor verify` goes on to every knob and flag set."""
    spec, every = registry.spec(kernel), {one.name: one for one in variants(kernel)}
    own = [one for one in every.values() if one.language == "fortran"]
    wanted = {p.dtype: p for p in spec.edges() if p.n in (17, 65) and p.dtype in own[0].dtypes}.values()
    ran = set()
    with WorkerPool(fixtures.here(), spec, list(every.values())) as pool:
        for problem, draw, one in itertools.product(wanted, spec.draws, own):
            in_c = [*(every[name] for name in one.mirrors), *(v for v in every.values() if v.made_with == "c")]
            twin = next(v for v in in_c if default_knobs(v, problem) is not None)
            asked = [(twin, compilers()[0]), *((one, tool) for tool in fortran_compilers())]
            for variant, tool in asked:
                made = Build(variant.name, variant.source_hash, default_knobs(variant, problem), tool.name, "native")
                choice = Choice(made, Team(3, UNPINNED), Process(tool.runtime, "passive", None, "default"))
                got = pool.check(problem, choice, 60.0, draw)
                assert (got.status, got.reason) == ("ok", "")
                assert got.error <= got.tolerance
                ran.add((variant.language, problem.dtype, draw, tool.name))
    assert len(ran) == (1 + len(fortran_compilers())) * len(wanted) * len(spec.draws)


def test_there_is_fortran_in_the_package():
    assert {"decode", "rmsnorm", "rmsnorm_backward", "mlp", "mlp_backward"} <= set(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_fortran_mirrors_is_there_and_moves_as_much(kernel):
    """The same ONF in two languages: the C variants exist, and the first one that is valid moves as many elements."""
    spec, every = registry.spec(kernel), {one.name: one for one in variants(kernel)}
    for own in (one for one in every.values() if one.mirrors):
        assert {every[name].language for name in own.mirrors} == {"c"}
        for problem in spec.edges():
            if not is_valid(own, problem, own.defaults):
                continue
            twin = next(
                (every[name] for name in own.mirrors if is_valid(every[name], problem, every[name].defaults)), None
            )
            if twin is not None:
                assert [evaluate(text, names(problem, twin.defaults)) for text in (twin.reads, twin.writes)] == [
                    evaluate(text, names(problem, own.defaults)) for text in (own.reads, own.writes)
                ]


# --- which compiler made what ran ---


def made_by(path):
    """Who says in a library to have made a part of it: .comment, and the producers of its debug information."""
    with open(path, "rb") as file:
        content = file.read()
    found = re.findall(
        rb"GNU Fortran[0-9]* [0-9.]+|flang(?:-new)? version [0-9.]+|clang version [0-9.]+|GCC: \([^)]*\) [0-9.]+",
        content,
    )
    return {text.decode() for text in found}


def loaded(folder):
    """The libraries under a folder that processes started from here have loaded."""
    maps = [one for child in psutil.Process().children(recursive=True) for one in child.memory_maps()]
    return {one.path for one in maps if one.path.startswith(folder) and one.path.endswith(".so")}


SAYS = {
    "gcc": ("GCC: ", ("GNU Fortran", "clang", "flang")),
    "clang": ("clang version ", ("GNU Fortran", "flang")),
    "gfortran": ("GNU Fortran", ("clang", "flang")),
    "flang": ("flang", ("GNU Fortran",)),
}
"""Family -> how it names itself in what it made, and what must not stand there. crt files say GCC everywhere, and a
Fortran library holds the frame of the C compiler behind it."""


@pytest.mark.parametrize("family", SAYS)
def test_the_file_that_the_worker_loaded_is_of_the_compiler_that_was_asked_for(family, tmp_path, monkeypatch):
    tool = next((one for one in tools() if one.name.partition("-")[0] == family), None)
    if tool is None:
        pytest.skip(f"no {family} with OpenMP, or for Fortran no C compiler with its OpenMP runtime")
    own = {one.name: one for one in variants("rmsnorm")}
    variant = own["fortran"] if tool.language == "fortran" else own[own["fortran"].mirrors[0]]
    made = Build(variant.name, variant.source_hash, variant.defaults, tool.name, "native")
    choice = Choice(made, Team(2, ""), Process(tool.runtime, "default", None, "default"))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path))
    spec = registry.spec("rmsnorm")
    with WorkerPool(fixtures.here(), spec, [variant]) as pool:
        got = pool.check(spec.problem(65), choice, 60.0)
        assert got.status == "ok", got.reason
        (path,) = loaded(str(tmp_path))
    says, never = SAYS[family]
    major = tool.name.partition("-")[2]
    assert [word for word in made_by(path) if word.startswith(says) and f" {major}." in word], made_by(path)
    assert not [word for word in made_by(path) if word.startswith(never)]
    library = ctypes.CDLL(path)
    assert getattr(library, variant.symbol)
    others = {one.symbol for one in own.values() if one.language in ("c", "fortran")} - {variant.symbol}
    assert not [name for name in others if hasattr(library, name)]


def test_fortran_is_never_the_default_where_c_can_run():
    machine = fixtures.here()
    options = space_options(machine)
    for kernel in KERNELS:
        spec = registry.spec(kernel)
        made = default_choice(machine, spec, variants(kernel), spec.problem(64), options).build
        assert {one.name: one.language for one in variants(kernel)}[made.variant] == "c"


@needs_fortran
def test_the_example_of_the_page_runs(tmp_path):
    page = os.path.join(os.path.dirname(fixtures.DATA), os.pardir, "docs", "add-a-variant.md")
    with open(page, encoding="utf-8") as file:
        (tmp_path / "example.f90").write_text(re.search(r"```fortran\n(.*?)```", file.read(), re.S)[1])
    (example,) = [one for one in variants("scale", [fixtures.KERNELS, str(tmp_path)]) if one.name == "example"]
    with WorkerPool(fixtures.here(), fixtures.scale(), [example]) as pool:
        got = pool.measure(fixtures.problem(65), chosen(example), Ask(1, 60.0))
    assert got.status == "ok", got.reason

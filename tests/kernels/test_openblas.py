"""OpenBLAS as a library that variants link: which build is taken, why another is refused, and whose threads run it."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, scratch_bytes
from row_fixtures import check_shapes
from threadpoolctl import threadpool_info

from advisor import doctor, linked
from advisor.errors import BadInput, UnknownName
from advisor.kernels import available, openblas, pools, registry
from advisor.kernels.build import build
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.libraries import find_tool, tools
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant, variants
from advisor.linked import Shared
from advisor.ranges import changed_fields
from advisor.records import Build, Choice, Process, Team
from advisor.search.space import default_choice, first_of_each_language, space, space_options
from advisor.site import Site
from advisor.topology import array, software

needs_openblas = pytest.mark.skipif(
    openblas.find().tool is None, reason=f"{openblas.find().reason}: {openblas.find().remedy}"
)
KERNELS = ("mlp", "norm_linear")
THREADED = Shared("/somewhere/openblas-pthread/libopenblasp-r0.3.21.so", ("libm.so.6", "libc.so.6"), "ab")


def blas(kernel):
    return next(one for one in variants(kernel) if one.name == "blas")


def chosen(variant, threads, wait_policy="passive"):
    tool = openblas.find().tool
    made = Build(variant.name, variant.source_hash, variant.defaults, tool.name, "native")
    return Choice(made, Team(threads, ""), Process(tool.runtime, wait_policy, None, "default"))


# --- which build is taken ---


@needs_openblas
def test_it_is_a_tool_of_its_own_that_names_version_build_and_compiler():
    (tool,) = openblas.tools()
    assert (tool.language, tool.runtime) == ("c+openblas", "libgomp")
    assert tool in tools()
    assert find_tool(tool.name) == tool
    assert linked.version("openblas") in tool.version
    assert "USE_OPENMP" in tool.version
    assert any(one.version in tool.version for one in compilers())
    assert dict(software.environment())["openblas"] == linked.version("openblas")
    assert tool.name in [one.name for one in first_of_each_language(space_options(fixtures.here()).compilers)]


@needs_openblas
def test_another_version_is_not_taken_for_it():
    with pytest.raises(UnknownName, match="build that can be linked"):
        find_tool("openblas-9.9")


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (THREADED, "threads of its own (pthread build)"),
        (THREADED._replace(path="/somewhere/libopenblas-r0.3.21.so"), "is single-threaded"),
        (THREADED._replace(needed=("libomp.so.5",)), "runs on libomp.so.5, and the frame on libgomp"),
        (None, "no OpenBLAS"),
    ],
)
def test_a_build_that_does_not_count_is_refused_with_reason_and_remedy(monkeypatch, library, said):
    """In what is not available, when a tuning begins, and in the doctor's finding."""
    monkeypatch.setattr(linked, "candidates", lambda: iter([library] if library else []))
    found = openblas.find()
    assert found.tool is None
    assert said in found.reason
    assert "libopenblas-openmp-dev" in found.remedy
    assert "/somewhere" not in found.reason
    told = {(one.kernel, one.variant): one for one in available.unavailable()}
    assert {kernel for kernel, name in told if name == "blas"} == set(KERNELS)
    assert said in told["mlp", "blas"].reason
    finding = doctor._openblas()
    assert (said in finding.found, finding.needed) == (True, False)
    assert "libopenblas-openmp-dev" in finding.remedy
    with pytest.raises(BadInput, match="OpenMP build"):
        available.check([blas("mlp")], ("c",))


def test_numpys_own_is_one_that_does_not_count():
    own = [one["filepath"] for one in threadpool_info() if one.get("threading_layer") == "pthreads"]
    if not own:
        pytest.skip("numpy has no OpenBLAS with threads of its own here")
    library = linked.read(own[0])
    assert library is not None
    assert not linked.counts(library)


@needs_openblas
def test_without_its_headers_or_a_compiler_of_its_runtime_that_is_the_reason(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(linked, "headers", lambda library: "")
        assert "cblas.h" in openblas.find().reason
    monkeypatch.setattr(openblas, "compilers", lambda: tuple(o for o in compilers() if o.runtime != "libgomp"))
    found = openblas.find()
    assert "no C compiler that links libgomp" in found.reason
    assert "gcc" in found.remedy


@needs_openblas
def test_a_core_that_the_environment_forces_is_told_where_it_is_another(monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert openblas.core_note() == ""
    if "DYNAMIC_ARCH" not in openblas.find().tool.version or fixtures.here().architecture != "x86_64":
        pytest.skip("this build has one core only, or its cores have other names")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    assert "Nehalem" in openblas.core_note()
    assert "unset it" in doctor._openblas().remedy


# --- headers ---


def test_only_c_may_name_a_library_and_only_one_that_is_known(tmp_path):
    with open(fixtures.good("plain").path, encoding="utf-8") as file:
        text = file.read()
    for said, good in (('["openblas"]', True), ('["mkl"]', False), ('["openblas", "openblas"]', False)):
        path = tmp_path / "linking.c"
        path.write_text(text.replace('"language": "c"', f'"language": "c", "libraries": {said}'))
        if good:
            assert read_variant(str(path), "scale").made_with == "c+openblas"
        else:
            with pytest.raises(BadInput, match="libraries"):
                read_variant(str(path), "scale")


@needs_openblas
def test_a_compiler_alone_does_not_make_it_nor_it_what_links_nothing():
    one, problem = blas("mlp"), registry.spec("mlp").problem(4)
    made = chosen(one, 1).build
    with pytest.raises(BadInput, match=r"in c\+openblas"):
        build(one, made._replace(compiler=compilers()[0].name), problem)
    plain = fixtures.good("plain")
    in_c = fixtures.choice(plain).build
    with pytest.raises(BadInput, match="in c"):
        build(plain, in_c._replace(compiler=made.compiler), fixtures.problem(4))


# --- what runs ---


SHAPES = ({"batch": 2, "d_model": 64}, {"batch": 1, "d_model": 83})


@needs_openblas
@pytest.mark.parametrize(
    ("kernel", "dtype", "entry"), [("mlp", "float32", "d_ff"), ("norm_linear", "float64", "d_out")]
)
def test_it_is_right_for_one_row_and_many(kernel, dtype, entry):
    shapes = tuple({**shape, entry: 3 * shape["d_model"]} for shape in SHAPES)
    assert check_shapes(kernel, "blas", dtype, shapes, (1, 17, 65)) == 12


@needs_openblas
@pytest.mark.parametrize("kernel", KERNELS)
def test_it_is_in_the_space_and_never_the_default(kernel):
    spec, machine = registry.spec(kernel), fixtures.here()
    options = space_options(machine)
    found = space(machine, spec, variants(kernel), spec.problem(64), options)
    assert {c.build.compiler for c in found if c.build.variant == "blas"} == {openblas.find().tool.name}
    for n in (1, 64, 4096):
        made = default_choice(machine, spec, variants(kernel), spec.problem(n), options).build
        assert made.variant != "blas"


@needs_openblas
def test_its_threads_are_the_pinned_ones_of_the_frame_and_no_pool_of_its_own():
    """A product large enough that OpenBLAS takes all threads; then one thread, then both again."""
    machine, spec, one = fixtures.here(), registry.spec("norm_linear"), blas("norm_linear")
    teams = sorted({1, min(2, len(machine.allowed_cpus))})
    with WorkerPool(machine, spec, [one]) as pool:
        for threads in (teams[-1], 1, teams[-1]):
            got = pool.measure(spec.problem(256, d_model=256, d_out=256), chosen(one, threads), Ask(1, 60.0, 0.06))
            told = dict(got.conditions)
            assert got.status == "ok", got.reason
            assert got.threads_observed == threads
            assert told["cpus_observed"] == machine.allowed_cpus[:threads]
            assert told["openmp"] == ("libgomp",)
            listed = [pools.Pool(*found) for found in told["pools"]]
            assert [found.own for found in listed if found.file.startswith("libopenblas")] == [False]
            assert "pool_warnings" not in told


@needs_openblas
def test_it_keeps_rows_after_the_norm_and_nothing_else():
    assert scratch_bytes("norm_linear", "blas", 100, batch=1, d_model=64, d_out=8) == 4 * 100 * 64
    one = blas("mlp")
    check(Case("mlp", one, registry.spec("mlp").problem(1, batch=1, d_model=70, d_ff=90), one.defaults, 3), "outlier")


# --- what a table says of it later ---


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("0.3.21 build aa", ()),
        ("0.3.21 build bb", ("compiler was 0.3.21 build aa, is 0.3.21 build bb",)),
        (None, ("compiler was 0.3.21 build aa, is not installed",)),
    ],
)
def test_rows_are_stale_where_its_version_or_build_is_another(monkeypatch, now, said):
    monkeypatch.setattr(linked, "version", lambda library: now)
    choice = {"build": {"compiler": "openblas-0.3"}, "process": {"runtime": "libgomp"}}
    row = {"depends": ["compiler"], "choice": choice}
    then = {"environment": {"openblas": "0.3.21 build aa"}}
    place = Site("hw", "limits", array.build({}, (0,)), (0,), 1, {})
    assert changed_fields(place, {"kernel": "mlp"}, then, row) == said


def test_its_openmp_runtime_is_the_systems_unlike_that_of_a_library_that_is_called():
    choice = {"build": {"compiler": "openblas-0.3"}, "process": {"runtime": "libgomp"}}
    row = {"depends": ["openmp"], "choice": choice}
    place = Site("hw", "limits", array.build({}, (0,)), (0,), 1, {"libgomp": "2.0.0", "openblas": "x"})
    then = {"environment": {"libgomp": "1.0.0"}}
    assert changed_fields(place, {"kernel": "mlp"}, then, row) == ("openmp was 1.0.0, is 2.0.0",)

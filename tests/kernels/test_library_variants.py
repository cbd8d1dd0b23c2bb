"""Variants in Python that call a library: header, tool, worker, timing, failures."""

from __future__ import annotations

import json
import re
import sys

import calling as library
import kernel_fixtures as fixtures
import pytest

from advisor import installed
from advisor.errors import BadInput, UnknownName
from advisor.kernels import libraries as module
from advisor.kernels import registry
from advisor.kernels.build import build
from advisor.kernels.compilers import compilers
from advisor.kernels.crew import lane_of
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import variants
from advisor.search.space import Toolchain, default_choice, first_of_each_language, space, space_options

pytestmark = pytest.mark.skipif(
    not any(one.runtime == "libgomp" for one in compilers()),
    reason="no gcc, whose libgomp the tests' own library loads",
)
CHECK_S = 60.0


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """The tests' own library in front of everything, here and in workers; gives its folder."""
    folder = library.install(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "scale"
    folder.mkdir()
    return folder


def measured(one, n=65, threads=1, limit_s=CHECK_S, samples=1, **more):
    with WorkerPool(fixtures.here(), fixtures.scale(), [one]) as pool:
        return pool.measure(fixtures.problem(n), library.choice(one, threads, **more), Ask(samples, limit_s))


# --- the header ---


def test_a_python_file_with_a_header_is_a_variant_and_others_are_not(here):
    library.write(here / "called.py")
    (here / "helper.py").write_text('"""Something else."""\n')
    (here / "spec.py").write_text('"""Not a variant."""\n')
    assert "scale" in registry.folders([str(here.parent)])
    (one,) = variants("scale", [str(here.parent)])
    assert (one.name, one.language, one.symbol, one.rank) == ("called", "python", "prepare", 95)


def test_a_loose_python_file_names_its_kernel(tmp_path):
    header = json.dumps({"kernel": "scale", **json.loads(library.HEADER)})
    library.write(tmp_path / "called.py", header=header)
    assert [one.name for one in variants("scale", [fixtures.KERNELS, str(tmp_path)])] == ["rows", "plain", "called"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"symbol": "absent"}, "absent"),
        ({"language": "c"}, "language"),
        ({"macros": {"ADV_WIDTH": "width"}}, "run_knobs"),
        ({"build_knobs": {"ADV_STEP": [1, 2]}, "defaults": {"ADV_STEP": 1}}, "run_knobs"),
        ({"idea": 3}, "idea"),
        ({"speed": "high"}, "keys"),
        ({"dtypes": ["float8"]}, "dtypes"),
    ],
)
def test_a_header_that_lies_is_refused(here, change, words):
    header = json.dumps({**json.loads(library.HEADER), **change})
    with pytest.raises(BadInput, match=words):
        library.variant(here, header=header)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def prepare(:", "must be Python"),
        ("def prepare(buffers, dims, threads): pass", "prepare_workspace"),
        (library.RIGHT.replace("dims, threads", "dims"), "prepare"),
    ],
)
def test_a_source_that_does_not_keep_it_is_refused(here, code, words):
    with pytest.raises(BadInput, match=words):
        library.variant(here, code)


def test_a_header_that_is_no_json_is_refused(here):
    with pytest.raises(BadInput, match="JSON"):
        library.variant(here, header='{"idea": }')


# --- the tool ---


def test_a_library_is_a_tool_named_after_its_version(stub):
    (tool,) = module.libraries()
    assert (tool.name, tool.language, tool.runtime) == ("torch-9.9", "python", "libgomp")
    assert tool.version == "torch 9.9.1"
    assert module.find_tool("torch-9.9") == tool
    assert "torch" not in sys.modules or sys.modules["torch"].__file__ != str(stub / "torch.py")
    assert installed.installed("torch") == "9.9.1"
    with pytest.raises(UnknownName, match=r"torch-9\.9"):
        module.find_tool("torch-1.0")
    assert module.find_tool(compilers()[0].name) == compilers()[0]


def test_without_the_library_its_variants_are_not_in_the_space(monkeypatch, here):
    monkeypatch.setattr(module, "installed", lambda name: None)
    assert module.libraries() == ()
    machine, spec, problem = fixtures.here(), fixtures.scale(), fixtures.problem(64)
    both = [fixtures.good("plain"), library.variant(here)]
    options = space_options(machine)
    assert {choice.build.variant for choice in space(machine, spec, both, problem, options)} == {"plain"}
    assert default_choice(machine, spec, both, problem, options).build.variant == "plain"
    with pytest.raises(UnknownName, match="none found"):
        module.find_tool("torch-9.9")


def test_a_library_needs_no_compiler(stub, here, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert compilers() == ()
    assert [tool.name for tool in module.tools()] == ["torch-9.9"]
    one = library.variant(here)
    assert build(one, library.choice(one).build, fixtures.problem(8)) == ("", 0.0)
    assert measured(one).status == "ok"


def test_a_library_is_in_the_space_but_never_the_default(stub, here):
    machine, spec, problem = fixtures.here(), fixtures.scale(), fixtures.problem(64)
    header = json.dumps({**json.loads(library.HEADER), "rank": 0})
    both = [library.variant(here, header=header), fixtures.good("plain")]
    options = space_options(machine)
    called = [one for one in space(machine, spec, both, problem, options) if one.build.variant == "called"]
    assert {(one.build.compiler, one.build.flags) for one in called} == {("torch-9.9", "none")}
    assert {one.team.threads for one in called} >= {1}
    default = default_choice(machine, spec, both, problem, options)
    assert (default.build.variant, default.build.compiler) == ("plain", compilers()[0].name)
    alone = default_choice(machine, spec, both[:1], problem, options)
    assert (alone.build.variant, alone.build.flags) == ("called", "none"), "nothing else can run"


def test_the_first_compilers_are_the_first_of_each_language():
    found = [
        Toolchain("gcc-12", "libgomp"),
        Toolchain("clang-14", "libomp"),
        Toolchain("torch-2.13", "libgomp", "python"),
    ]
    assert [one.name for one in first_of_each_language(found)] == ["gcc-12", "torch-2.13"]


def test_a_tool_of_another_language_is_refused(stub, here):
    one = library.variant(here)
    made = library.choice(one).build
    with pytest.raises(BadInput, match="a library"):
        build(one, made._replace(flags="native"), fixtures.problem(8))
    with pytest.raises(UnknownName):
        build(one, made._replace(compiler="gcc-1"), fixtures.problem(8))
    plain = fixtures.good("plain")
    with pytest.raises((BadInput, UnknownName), match="compiler"):
        build(plain, fixtures.choice(plain).build._replace(compiler="torch-9.9"), fixtures.problem(8))


# --- the worker ---


def test_a_call_is_checked_timed_and_placed(stub, here):
    one = library.variant(here)
    machine = fixtures.here()
    got = measured(one, placement=f"take {machine.array.axes[0]} -1", samples=3)
    assert got.status == "ok", got.reason
    assert len(got.samples_ns) == 3
    assert all(time > 0 for time in got.samples_ns)
    assert got.error is not None
    assert dict(got.conditions)["openmp"] == ("libgomp",)
    assert dict(got.conditions)["cpus_observed"] == machine.allowed_cpus[-1:]
    assert got.threads_observed == 1


def test_knobs_come_behind_the_dims(stub, here):
    header = json.dumps({**json.loads(library.HEADER), "run_knobs": {"step": [1, 5]}, "defaults": {"step": 1}})
    code = library.body("y[...] = x * 3 + (1 if dims == (16, 65, 5) else 2)")
    one = library.variant(here, code, header=header)
    with WorkerPool(fixtures.here(), fixtures.scale(), [one]) as pool:
        for step, status in ((5, "ok"), (1, "wrong")):
            assert pool.check(fixtures.problem(65), library.choice(one, step=step), CHECK_S).status == status


def test_every_set_of_operands_is_called_and_the_last_result_is_judged(stub, here):
    """Cold: sets are rotated through. The call goes wrong for good after 40 calls: only the last check can see that."""
    code = library.body(
        """
        count[0] += 1
        return 3 * x + (1 if count[0] < 40 else 2)
        """,
        before="count = [0]",
    )
    one = library.variant(here, code)
    with WorkerPool(fixtures.here(), fixtures.scale(), [one]) as pool:
        got = pool.measure(fixtures.problem(65), library.choice(one), Ask(5, CHECK_S, 0.005))
        assert got.status == "wrong"
        right = library.variant(here)
    cold = fixtures.problem(4099)._replace(regime="cold")
    with WorkerPool(fixtures.here(), fixtures.scale(), [right]) as pool:
        got = pool.measure(cold, library.choice(right), Ask(1, CHECK_S))
    assert got.status == "ok", got.reason
    assert dict(got.conditions)["sets"] > 1


FAILURES = {
    "raises": ("raise ValueError('so it goes')", "crashed", "ValueError: so it goes"),
    "wrong": ("return 3 * x", "wrong", "tolerance"),
    "lazy": ("return None", "wrong", "unwritten"),
    "too_few": ("return x[1:]", "crashed", "elements"),
    "two": ("return x, x", "crashed", "elements"),
    "text": ("return 'done'", "crashed", "elements"),
    "exits": ("os._exit(3)", "crashed", "status 3"),
    "writes_inputs": ("x[...] = 0", "crashed", "SIGSEGV"),
}


def test_what_goes_wrong_is_a_status(stub, here):
    own = {name: library.variant(here, library.body(call), name) for name, (call, _, _) in FAILURES.items()}
    with WorkerPool(fixtures.here(), fixtures.scale(), list(own.values())) as pool:
        for name, (_, status, words) in FAILURES.items():
            got = pool.measure(fixtures.problem(65), library.choice(own[name]), Ask(1, CHECK_S))
            assert (name, got.status) == (name, status), got.reason
            assert words in got.reason


NO_ROOM = """
if len(y) >= 64:
    {fate}
return 3 * x + 1
"""


@pytest.mark.parametrize(
    ("fate", "words"),
    [("raise MemoryError('so much')", "out of memory: so much"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_c03_out_of_memory_ends_one_trial_and_neither_other_n_nor_other_variants(stub, here, fate, words):
    """In a real child: a call that raises MemoryError from 64 rows on, and one that the kernel kills there."""
    greedy, right = library.variant(here, library.body(NO_ROOM.format(fate=fate)), "greedy"), library.variant(here)
    with WorkerPool(fixtures.here(), fixtures.scale(), [greedy, right]) as pool:

        def measure(one, n):
            return pool.measure(fixtures.problem(n), library.choice(one), Ask(1, CHECK_S))

        assert measure(greedy, 33).status == "ok"
        got = measure(greedy, 64)
        assert (got.status, got.samples_ns) == ("crashed", ())
        assert words in got.reason
        assert measure(right, 64).status == "ok"
        assert measure(greedy, 33).status == "ok"


def test_a_call_that_hangs_is_killed(stub, here):
    got = measured(library.variant(here, library.body("time.sleep(60)")), limit_s=1.0)
    assert (got.status, got.samples_ns) == ("timeout", ())


def test_a_source_that_cannot_prepare_is_a_status(stub, here):
    got = measured(library.variant(here, library.RIGHT.replace("x, y = buffers", "x, y = 1 / 0")))
    assert got.status == "crashed"
    assert "ZeroDivisionError" in got.reason
    got = measured(library.variant(here, "import absent_module\n" + library.RIGHT, name="unimportable"))
    assert got.status == "skipped"
    assert "absent_module" in got.reason


def test_a_call_without_room_is_skipped(stub, here):
    got = measured(library.variant(here, library.body("return 3 * x + 1", workspace="1 << 60")))
    assert got.status == "skipped"
    assert str(1 << 60) in got.reason


def test_after_an_exception_the_worker_goes_on(stub, here):
    raising = library.variant(here, library.body("raise ValueError"), name="raising")
    right = library.variant(here)
    with WorkerPool(fixtures.here(), fixtures.scale(), [raising, right]) as pool:
        assert pool.measure(fixtures.problem(65), library.choice(raising), Ask(1, CHECK_S)).status == "crashed"
        (before,) = [one.child.pid for one in pool.crew.workers.values()]
        assert pool.measure(fixtures.problem(65), library.choice(right), Ask(1, CHECK_S)).status == "ok"
        assert [one.child.pid for one in pool.crew.workers.values()] == [before]


def test_calls_and_compiled_variants_never_share_a_process(stub, here):
    called, plain = library.choice(library.variant(here)), fixtures.choice(fixtures.good("plain"))
    called = called._replace(process=plain.process)
    assert lane_of(called) != lane_of(plain)


def test_a_library_on_another_openmp_runtime_is_refused(stub, here):
    """A placement would be applied to the frame's team, while the library's own runs wherever it likes."""
    libomp = next((one for one in compilers() if one.runtime == "libomp"), None)
    if libomp is None:
        pytest.skip("no second OpenMP runtime here")
    plain = fixtures.good("plain")
    made = fixtures.choice(plain).build._replace(compiler=libomp.name)
    path = build(plain, made, fixtures.problem(8)).path
    other = f"import ctypes\nctypes.CDLL({path!r})\n"
    for code, words in (
        (other, r"got 'libomp \(libomp\S*\)'"),
        (library.RUNTIME + other, r"got 'libgomp \(libgomp\S*\), libomp \(libomp\S*\)'"),
        ("", "got 'none'"),
    ):
        library.install(stub, code=code)
        got = measured(library.variant(here))
        assert got.status == "skipped"
        assert re.search(words, got.reason)


def test_a_library_that_cannot_be_imported_is_a_reason(stub, here):
    library.install(stub, code="raise ImportError('half installed')\n")
    got = measured(library.variant(here))
    assert got.status == "skipped"
    assert "half installed" in got.reason

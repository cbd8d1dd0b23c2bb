"""Every C variant of RMSNorm against the DNF: shapes, knobs, teams, outliers; PyTorch's call."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, check_knobs, default_knobs, needs_compiler, scratch_bytes, variant
from row_fixtures import check_shapes

from advisor.kernels.compilers import compilers
from advisor.kernels.rmsnorm.spec import SPEC
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows
from advisor.search.space import default_choice, space_options

C = ("two_pass", "one_pass", "rows", "columns")
SHAPES = (
    {"batch": 2, "d_model": 64},
    {"batch": 1, "d_model": 7},
    {"batch": 3, "d_model": 515},
    {"batch": 2, "d_model": 1},
)

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants("rmsnorm") if one.name in C] == ["rows", "columns", "one_pass", "two_pass"]
    assert default_knobs(variant("rmsnorm", "columns"), SPEC.problem(128)) is None, "for few rows only"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", C)
def test_shapes_and_teams(name, dtype):
    assert check_shapes("rmsnorm", name, dtype, SHAPES) >= 24


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_every_knob(name):
    check_knobs("rmsnorm", name, SPEC.problem(17, d_model=339), 3)


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("d_model", [64, 65])
def test_stores_past_the_caches_where_rows_lie_on_vectors_and_where_not(d_model, past):
    one = variant("rmsnorm", "rows")
    knobs = tuple((name, past if name == "past" else value) for name, value in one.defaults)
    check(Case("rmsnorm", one, SPEC.problem(33, d_model=d_model), knobs, 2))


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
def test_more_threads_than_lines_of_a_row(threads):
    one = variant("rmsnorm", "columns")
    check(Case("rmsnorm", one, SPEC.problem(3, batch=1, d_model=100), one.defaults, threads))


def test_scratch():
    assert [scratch_bytes("rmsnorm", name, 64) for name in C] == [4 * 128, 0, 0, 2 * 4 * 128]


def test_pytorch_is_right_and_never_the_default():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    machine, own = fixtures.here(), [one for one in variants("rmsnorm") if one.language == "python"]
    problems = [SPEC.problem(17, dtype, d_model=80) for dtype in ("float32", "float64")]
    found = list(rows(machine, SPEC, own, problems))
    assert {row.status for row in found} == {"ok"}
    assert {row.problem.dtype for row in found} == {"float32", "float64"}
    chosen = default_choice(machine, SPEC, variants("rmsnorm"), SPEC.problem(64), space_options(machine))
    assert chosen.build.variant == "rows"

"""Every C variant of RMSNorm's gradients against the DNF: shapes, teams, outliers, small stacks; PyTorch's autograd."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, default_knobs, needs_compiler, run_on_small_stacks, scratch_bytes, variant
from row_fixtures import check_shapes

from advisor.kernels.compilers import compilers
from advisor.kernels.rmsnorm_backward.spec import SPEC
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows

KERNEL = "rmsnorm_backward"
C = ("naive", "partial", "columns")
SHAPES = (
    {"batch": 2, "d_model": 64},
    {"batch": 1, "d_model": 7},
    {"batch": 3, "d_model": 515},
    {"batch": 2, "d_model": 1},
)

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants(KERNEL) if one.name in C] == ["partial", "columns", "naive"]
    assert default_knobs(variant(KERNEL, "columns"), SPEC.problem(128)) is None, "for few rows only"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", C)
def test_shapes_and_teams(name, dtype):
    assert check_shapes(KERNEL, name, dtype, SHAPES) >= 24


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("name", ["partial", "columns"])
def test_sums_of_every_team_are_merged(name, threads):
    """One row only: most threads add nothing, and what they hold must not be what lay in the workspace."""
    for rows_at_all in (1, 5):
        one = variant(KERNEL, name)
        check(Case(KERNEL, one, SPEC.problem(rows_at_all, batch=1, d_model=100), one.defaults, threads))


def test_scratch_does_not_grow_with_n_where_sums_are_merged():
    assert scratch_bytes(KERNEL, "partial", 64) == scratch_bytes(KERNEL, "partial", 65536) == 2 * 4 * 64
    assert scratch_bytes(KERNEL, "naive", 64) == 4 * 128


@pytest.mark.parametrize("name", ["naive", "partial"])
def test_wide_rows_on_small_stacks(name):
    """A gain of 8 MiB: sums on the stack would crash."""
    one = variant(KERNEL, name)
    problem = SPEC.problem(2, "float64", batch=1, d_model=1 << 20)
    assert run_on_small_stacks(Case(KERNEL, one, problem, one.defaults, 2)) == 0


def test_pytorch_is_right():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    own = [one for one in variants(KERNEL) if one.language == "python"]
    found = list(rows(fixtures.here(), SPEC, own, [SPEC.problem(17, dtype, d_model=80) for dtype in SPEC.dtypes]))
    assert {row.status for row in found} == {"ok"}
    assert {row.problem.dtype for row in found} == set(SPEC.dtypes)

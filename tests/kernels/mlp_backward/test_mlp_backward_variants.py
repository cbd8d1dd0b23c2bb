"""Every C variant of the gated MLP's gradients against the DNF: shapes, knobs, teams, outliers; PyTorch's autograd."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, check_knobs, default_knobs, needs_compiler, run_on_small_stacks, variant
from attention_fixtures import scratch_bytes as scratch
from row_fixtures import check_shapes

from advisor.kernels.compilers import compilers
from advisor.kernels.mlp_backward.spec import SPEC
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows

KERNEL = "mlp_backward"
TILED = ("partial", "tiled")
C = (*TILED, "naive")
SHAPES = (
    {"batch": 2, "d_model": 64, "d_ff": 256},
    {"batch": 1, "d_model": 7, "d_ff": 5},
    {"batch": 1, "d_model": 270, "d_ff": 83},
    {"batch": 2, "d_model": 1, "d_ff": 1},
)
"""The paper's, one below a vector, one past a slice of a sum and between panels, one element of each."""

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    said = "tiled first: up to 96 rows are one block of partial, so one thread's"
    assert [one.name for one in variants(KERNEL) if one.name in C] == ["tiled", "partial", "naive"], said
    large = SPEC.problem(4, d_model=4096, d_ff=14336)
    assert default_knobs(variant(KERNEL, "partial"), large) is None, "a copy of the gradients a thread"
    assert default_knobs(variant(KERNEL, "tiled"), large) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", C)
def test_shapes_and_teams(name, dtype):
    assert check_shapes(KERNEL, name, dtype, SHAPES, (1, 2, 49, 131)) >= 24


@pytest.mark.slow
@pytest.mark.parametrize("name", TILED)
def test_every_knob(name):
    check_knobs(KERNEL, name, SPEC.problem(150, d_model=70, d_ff=90), 3)


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("name", C)
def test_sums_of_every_team_are_merged(name, threads):
    """One row only: most threads add nothing, and what they hold must not be what lay in the workspace."""
    one = variant(KERNEL, name)
    check(Case(KERNEL, one, SPEC.problem(1, batch=1, d_model=20, d_ff=36), one.defaults, threads))


@pytest.mark.parametrize("name", TILED)
def test_more_rows_than_a_slice_of_a_sum(name):
    one = variant(KERNEL, name)
    check(Case(KERNEL, one, SPEC.problem(300, d_model=20, d_ff=36), one.defaults, 2))


def test_only_partial_has_scratch_that_does_not_grow_with_n():
    growth = {name: scratch(KERNEL, name, 65536) / scratch(KERNEL, name, 256) for name in C}
    assert growth["partial"] == 1
    assert growth["tiled"] > 50
    assert growth["naive"] == 256


@pytest.mark.parametrize("name", C)
def test_wide_rows_on_small_stacks(name):
    """Gradients of 8 MiB: sums on the stack would crash."""
    one = variant(KERNEL, name)
    problem = SPEC.problem(3, "float64", batch=1, d_model=1024, d_ff=1024)
    assert run_on_small_stacks(Case(KERNEL, one, problem, one.defaults, 2)) == 0


def test_pytorch_is_right():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    own = [one for one in variants(KERNEL) if one.language == "python"]
    problems = [SPEC.problem(17, dtype, d_model=80, d_ff=33) for dtype in SPEC.dtypes]
    found = list(rows(fixtures.here(), SPEC, own, problems))
    assert {row.status for row in found} == {"ok"}
    assert {row.problem.dtype for row in found} == set(SPEC.dtypes)

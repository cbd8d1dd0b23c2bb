"""Every variant of the transformer block's gradients against the DNF: shapes, knobs, teams, outliers; autograd."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import (
    Case,
    check,
    check_run_knobs,
    needs_compiler,
    run_on_small_stacks,
    scratch_bytes,
    variant,
)
from block_fixtures import SHAPES
from row_fixtures import check_shapes

from advisor.kernels.block_backward.spec import SPEC
from advisor.kernels.compilers import compilers
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows

KERNEL = "block_backward"
C = ("chain_best", "chain_naive")
SMALL = {"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": 7, "d_model": 20, "d_ff": 36}

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants(KERNEL) if one.name in C] == list(C)
    assert not any(one.prepares for one in variants(KERNEL))


@pytest.mark.parametrize(
    ("name", "dtype", "shapes"),
    [
        ("chain_best", "float32", SHAPES[2:]),
        ("chain_best", "float64", SHAPES[2:3]),
        ("chain_naive", "float32", SHAPES[2:]),
    ],
)
def test_shapes_and_teams(name, dtype, shapes):
    """One head_dim is a build, which takes seconds: not all of them in both types. Fewer rows have tests below."""
    assert check_shapes(KERNEL, name, dtype, shapes, (49,)) == 2 * len(shapes)


def test_every_run_knob():
    """Builds with other tiles are tested with the MLP's gradients, whose headers these are."""
    shape = {**SMALL, "d_model": 70, "d_ff": 90}
    check_run_knobs(KERNEL, "chain_best", SPEC.problem(101, **shape), 3)


@pytest.mark.parametrize("threads", [2, 40])
@pytest.mark.parametrize("name", C)
def test_sums_of_every_team_are_merged(name, threads):
    """One row a sequence: most threads add nothing to the gains' gradients, and what lay in the workspace must not."""
    one = variant(KERNEL, name)
    check(Case(KERNEL, one, SPEC.problem(1, **SMALL), one.defaults, threads), "outlier")


def test_more_rows_than_a_slice_of_a_sum():
    one = variant(KERNEL, "chain_best")
    check(Case(KERNEL, one, SPEC.problem(150, **SMALL), one.defaults, 2))


def test_scores_are_never_stored_whole():
    for name in C:
        assert scratch_bytes(KERNEL, name, 65536, **SMALL) <= 65536 / 256 * scratch_bytes(KERNEL, name, 256, **SMALL)
        assert scratch_bytes(KERNEL, name, 65536, **SMALL) < 2 << 30


@pytest.mark.parametrize("name", C)
def test_wide_rows_on_small_stacks(name):
    """Gradients of several MiB: sums on the stack would crash."""
    one = variant(KERNEL, name)
    problem = SPEC.problem(2, "float64", **{**SMALL, "d_model": 512, "d_ff": 1024})
    assert run_on_small_stacks(Case(KERNEL, one, problem, one.defaults, 2)) == 0


def test_pytorch_is_right():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    own = [one for one in variants(KERNEL) if one.language == "python"]
    problems = [SPEC.problem(17, dtype, **{**SMALL, "causal": causal}) for causal, dtype in enumerate(SPEC.dtypes)]
    found = list(rows(fixtures.here(), SPEC, own, problems))
    assert {row.status for row in found} == {"ok"}
    assert {(row.variant, row.problem.dtype) for row in found} == {("torch_autograd", dtype) for dtype in SPEC.dtypes}

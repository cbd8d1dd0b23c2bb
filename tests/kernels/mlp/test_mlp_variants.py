"""Every variant of the gated MLP against the DNF: shapes, knobs, teams, outliers, packed weights; PyTorch's call."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, check_knobs, default_knobs, needs_compiler, scratch_bytes, variant
from row_fixtures import check_shapes

from advisor.kernels.compilers import compilers
from advisor.kernels.mlp.spec import SPEC
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows
from advisor.search.space import default_choice, space_options

PACKED = ("packed", "fused")
C = (*PACKED, "repacked", "few", "naive")
SHAPES = (
    {"batch": 2, "d_model": 64, "d_ff": 256},
    {"batch": 1, "d_model": 7, "d_ff": 5},
    {"batch": 1, "d_model": 300, "d_ff": 83},
    {"batch": 2, "d_model": 1, "d_ff": 1},
)
"""The paper's, one below a vector, one past a slice of a sum and between panels, one element of each."""

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants("mlp") if one.name in C] == ["few", "packed", "fused", "repacked", "naive"]
    assert default_knobs(variant("mlp", "few"), SPEC.problem(16)) is None, "for few rows only"
    assert {one.name for one in variants("mlp") if one.prepares} == set(PACKED)


@pytest.mark.parametrize(("n", "name"), [(1, "few"), (16, "few"), (17, "packed"), (48, "packed")])
def test_the_default_shares_few_rows_among_all_threads(n, name):
    """Where `fused` has one block of rows, and so one thread."""
    machine = fixtures.here()
    chosen = default_choice(machine, SPEC, variants("mlp"), SPEC.problem(n, batch=1), space_options(machine))
    assert chosen.build.variant == name


def test_few_asks_for_a_and_b_and_nothing_else():
    assert scratch_bytes("mlp", "few", 4, batch=1, d_model=64, d_ff=256) == 2 * 4 * 4 * 256


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in C), *((name, "float64") for name in ("fused", "few", "naive"))],
)
def test_shapes_and_teams(name, dtype):
    assert check_shapes("mlp", name, dtype, SHAPES, (1, 2, 5, 49, 65)) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("name", ["few", "fused"])
def test_every_knob(name):
    check_knobs("mlp", name, SPEC.problem(3 if name == "few" else 53, d_model=70, d_ff=90), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["packed", "repacked"])
def test_every_knob_of_two_phases(name):
    check_knobs("mlp", name, SPEC.problem(101, d_model=70, d_ff=90), 3)


@pytest.mark.parametrize("rows_at_all", range(1, 17))
def test_few_rows_of_every_count(rows_at_all):
    one = variant("mlp", "few")
    check(Case("mlp", one, SPEC.problem(rows_at_all, batch=1, d_model=72, d_ff=40), one.defaults, 3))


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("name", ["few", "packed"])
def test_more_threads_than_outputs(name, threads):
    one = variant("mlp", name)
    check(Case("mlp", one, SPEC.problem(2, batch=1, d_model=20, d_ff=36), one.defaults, threads), "outlier")


def test_only_packing_in_every_call_asks_for_room_for_weights():
    shape = {"batch": 1, "d_model": 1024, "d_ff": 2048}
    weights = 4 * 3 * 1024 * 2048
    asked = {name: scratch_bytes("mlp", name, 4, **shape) for name in C}
    assert {name for name, size in asked.items() if size >= weights} == {"repacked"}, asked


def test_pytorch_is_right_and_never_the_default():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    machine, own = fixtures.here(), [one for one in variants("mlp") if one.language == "python"]
    problems = [SPEC.problem(17, dtype, d_model=80, d_ff=33) for dtype in ("float32", "float64")]
    found = list(rows(machine, SPEC, own, problems))
    assert {row.status for row in found} == {"ok"}
    assert {(row.variant, row.problem.dtype) for row in found} == {(one.name, d) for one in own for d in one.dtypes}
    chosen = default_choice(machine, SPEC, variants("mlp"), SPEC.problem(64), space_options(machine))
    assert chosen.build.variant == "packed"

"""Every C variant of RMSNorm with its projection against the DNF: shapes, knobs, teams; libraries."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, check_run_knobs, default_knobs, needs_compiler, scratch_bytes, variant
from row_fixtures import check_shapes

from advisor.kernels.compilers import compilers
from advisor.kernels.norm_linear.spec import SPEC
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows
from advisor.search.space import default_choice, space_options

C = ("few", "fused", "packed", "chain")
SHAPES = (
    {"batch": 2, "d_model": 64, "d_out": 192},
    {"batch": 3, "d_model": 7, "d_out": 5},
    {"batch": 1, "d_model": 300, "d_out": 83},
    {"batch": 2, "d_model": 1, "d_out": 1},
)
"""The paper's, one below a vector, one past a slice of a sum and between panels, one element of each."""

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants("norm_linear") if one.name in C] == list(C)
    assert default_knobs(variant("norm_linear", "few"), SPEC.problem(16)) is None, "for few rows only"
    assert {one.name: one.prepares for one in variants("norm_linear") if one.prepares} == {
        "fused": ("g", "w"),
        "packed": ("w",),
    }


@pytest.mark.parametrize(("n", "name"), [(1, "few"), (16, "few"), (17, "fused"), (4096, "fused")])
def test_the_default_is_for_the_number_of_rows(n, name):
    machine = fixtures.here()
    chosen = default_choice(machine, SPEC, variants("norm_linear"), SPEC.problem(n, batch=1), space_options(machine))
    assert chosen.build.variant == name


@pytest.mark.parametrize("name", C)
def test_shapes_and_teams(name):
    assert check_shapes("norm_linear", name, "float32", SHAPES, (1, 5, 65)) >= 14


@pytest.mark.parametrize("name", ["few", "fused"])
def test_float64(name):
    """The others are made of the same products."""
    assert check_shapes("norm_linear", name, "float64", SHAPES[2:3], (5,)) == 2


@pytest.mark.parametrize("name", ["few", "fused"])
def test_every_run_knob(name):
    """Builds with other tiles are tested with the MLP, whose headers these are; `packed` has the knobs of `fused`."""
    check_run_knobs("norm_linear", name, SPEC.problem(3 if name == "few" else 53, d_model=70, d_out=90), 3)


@pytest.mark.parametrize("threads", [1, 3, 40])
@pytest.mark.parametrize("name", ["few", "fused"])
def test_more_threads_than_outputs(name, threads):
    one = variant("norm_linear", name)
    check(Case("norm_linear", one, SPEC.problem(2, batch=1, d_model=20, d_out=36), one.defaults, threads), "outlier")


def test_fused_has_no_room_for_rows_after_the_norm():
    asked = {name: scratch_bytes("norm_linear", name, 4096, batch=1, d_model=512, d_out=64) for name in C[1:]}
    rows_bytes = 4 * 4096 * 512
    assert asked["chain"] == rows_bytes
    assert asked["packed"] > rows_bytes
    assert asked["fused"] < rows_bytes / 50


def test_pytorch_is_right_and_never_the_default():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    own = [one for one in variants("norm_linear") if one.language == "python"]
    problems = [SPEC.problem(17, dtype, d_model=80, d_out=33) for dtype in ("float32", "float64")]
    found = list(rows(fixtures.here(), SPEC, own, problems))
    assert {(row.variant, row.problem.dtype, row.status) for row in found} == {
        ("torch_linear", dtype, "ok") for dtype in ("float32", "float64")
    }

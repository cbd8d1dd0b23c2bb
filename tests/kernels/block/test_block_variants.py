"""Every variant of the transformer block against the DNF: shapes, knobs, teams, outliers, packed weights; PyTorch."""

import importlib.util

import kernel_fixtures as fixtures
import pytest
from attention_fixtures import Case, check, check_run_knobs, needs_compiler, scratch_bytes, variant
from block_fixtures import SHAPES
from row_fixtures import check_shapes

from advisor.kernels.block.spec import SPEC
from advisor.kernels.compilers import compilers
from advisor.kernels.variant import variants
from advisor.kernels.verify import rows
from advisor.search.space import default_choice, space_options

KERNEL = "block"
DTYPES = ("float32", "float64")
PACKED = ("chain_best", "fused_norm")
C = (*PACKED, "chain_naive")
SMALL = {"batch": 2, "heads": 2, "kv_heads": 1, "head_dim": 7, "d_model": 20, "d_ff": 36}

pytestmark = needs_compiler


def test_the_ladder_and_its_order():
    assert [one.name for one in variants(KERNEL) if one.name in C] == list(C)
    assert {one.name for one in variants(KERNEL) if one.prepares} == set(PACKED)
    assert set(variant(KERNEL, "fused_norm").prepares) - set(variant(KERNEL, "chain_best").prepares) == {"g1", "g2"}


@pytest.mark.parametrize(
    ("name", "dtype", "shapes"),
    [
        ("chain_best", "float32", SHAPES[1:]),
        ("chain_best", "float64", SHAPES[2:3]),
        ("fused_norm", "float32", SHAPES[2:]),
        ("chain_naive", "float32", SHAPES[2:]),
    ],
)
def test_shapes_and_teams(name, dtype, shapes):
    """One head_dim is a build, which takes seconds: not all of them in both types. Fewer rows have tests below."""
    assert check_shapes(KERNEL, name, dtype, shapes, (49,)) == 2 * len(shapes)


def test_every_run_knob():
    """Builds with other tiles are tested with the MLP, whose headers these are; `chain_best` has the same knobs."""
    shape = {**SMALL, "d_model": 70, "d_ff": 90}
    check_run_knobs(KERNEL, "fused_norm", SPEC.problem(101, **shape), 3)


@pytest.mark.parametrize("threads", [2, 40])
@pytest.mark.parametrize("name", C)
def test_more_threads_than_work(name, threads):
    one = variant(KERNEL, name)
    check(Case(KERNEL, one, SPEC.problem(1, **SMALL), one.defaults, threads), "outlier")


@pytest.mark.parametrize("name", PACKED)
def test_a_block_of_rows_reaches_over_sequences(name):
    one = variant(KERNEL, name)
    check(Case(KERNEL, one, SPEC.problem(5, **{**SMALL, "batch": 31}), one.defaults, 2))


def test_scores_are_never_stored_whole():
    """Scratch grows with n, not with its square: 65536 rows would have 17 GB of scores."""
    for name in C:
        assert scratch_bytes(KERNEL, name, 65536, **SMALL) <= 65536 / 256 * scratch_bytes(KERNEL, name, 256, **SMALL)
        assert scratch_bytes(KERNEL, name, 65536, **SMALL) < 1 << 30


def test_normalised_rows_lie_in_memory_of_the_chain_only():
    kept = {name: scratch_bytes(KERNEL, name, 4096, **{**SMALL, "d_model": 64}) for name in PACKED}
    assert kept["chain_best"] - kept["fused_norm"] == 4 * 2 * 4096 * 64


def test_pytorch_is_right_and_never_the_default():
    if importlib.util.find_spec("torch") is None or not any(one.runtime == "libgomp" for one in compilers()):
        pytest.skip("needs PyTorch and a compiler with libgomp")
    machine, own = fixtures.here(), [one for one in variants(KERNEL) if one.language == "python"]
    problems = [SPEC.problem(17, dtype, **{**SMALL, "causal": causal}) for causal, dtype in enumerate(DTYPES)]
    found = list(rows(machine, SPEC, own, problems))
    assert {row.status for row in found} == {"ok"}
    assert {(row.variant, row.problem.dtype) for row in found} == {("torch_block", dtype) for dtype in DTYPES}
    chosen = default_choice(machine, SPEC, variants(KERNEL), SPEC.problem(64), space_options(machine))
    assert chosen.build.variant == "chain_best"

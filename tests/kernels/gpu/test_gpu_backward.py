"""CUDA variants of backward on a CPU, their threads as fibers: each mapping computes the DNF, in every form it has."""

import pytest
from emulation import emulated, needs_compiler, share, taken
from tile_assembler import TENSOR_TILES

from advisor.kernels.backward.spec import SPEC
from advisor.kernels.expressions import evaluate
from advisor.kernels.gpu.geometry import check_header, launch_names
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import knob_sets, variants

VARIANTS = {one.name: one for one in variants("backward", (), GPU_LANGUAGES)}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
SHARED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 7, "causal": 1}
ALONE = {**PAPER, "batch": 1}
CAUSAL = {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 64, "causal": 1}
SERVED = {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128}
CHAIN = ("gk_atomic_packed", "gk_atomic_one_lane", "gk_atomic_lane", "gk_atomic_rotated", "gk_atomic_warp_reduced")
NO_ATOMIC = ("no_atomic_packed", "no_atomic_one_lane", "no_atomic_lane")


@needs_compiler
@pytest.mark.parametrize(
    ("name", "persist"), [*((name, 1) for name in CHAIN + NO_ATOMIC), ("gk_atomic_packed", 0), ("no_atomic_lane", 0)]
)
def test_a_simple_mapping_computes_the_dnf(tmp_path, name, persist):
    """Grouped causal heads in float64 where P and GS are persisted, the paper's in float32 where not."""
    variant, run = VARIANTS[name], None
    dtype, shape = ("float64", SHARED) if persist else ("float32", {**PAPER, "head_dim": 16})
    for n, draw in ((1, "normal"), (37, "outlier"), (130, "normal")):
        problem = SPEC.problem(n, dtype, **shape)
        knobs = taken(variant, problem, ADV_PERSIST=persist)
        run = run or emulated(tmp_path, SPEC, variant, problem, knobs)
        assert share(run, problem, knobs, draw) < 1


TILED = (
    ("tiled_recomputed", "float32", CAUSAL, {"ADV_ROWS": 64, "ADV_THREADS": 128}),
    ("tiled_tensor", "float64", ALONE, {"ADV_TILES": 2, "ADV_SPLITS": 2, "ADV_STEP": 16, "ADV_STAGES": 1}),
    ("tiled_tensor_gq_atomic", "float32", CAUSAL, {"ADV_TILES": 2, "ADV_SPLITS": 2, "ADV_STEP": 16, "ADV_STAGES": 2}),
    ("tiled_tensor_persisted", "float32", ALONE, {"ADV_TILES": 1, "ADV_SPLITS": 4, "ADV_STEP": 16, "ADV_STAGES": 1}),
    ("tiled_tensor_persisted", "float64", CAUSAL, {"ADV_TILES": 4, "ADV_SPLITS": 1, "ADV_STEP": 32, "ADV_STAGES": 1}),
)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "named"), TILED, ids=lambda one: one if isinstance(one, str) else ""
)
def test_tiles_compute_the_dnf(tmp_path, name, dtype, shape, named):
    variant, run = VARIANTS[name], None
    for n, draw in ((1, "normal"), (37, "outlier"), (67, "normal")):
        problem = SPEC.problem(n, dtype, **shape)
        knobs = taken(variant, problem, **named)
        run = run or emulated(tmp_path, SPEC, variant, problem, knobs, TENSOR_TILES)
        assert share(run, problem, knobs, draw) < 1


def test_headers_have_values_at_every_size_and_choices_are_few():
    for one in VARIANTS.values():
        for shape in (PAPER, {**PAPER, "causal": 1}, SERVED, {**SERVED, "causal": 1}):
            problems = [SPEC.problem(n, dtype, **shape) for n in (2, 131, 8192) for dtype in one.dtypes]
            check_header(SPEC, one, problems)
            assert 1 <= len(knob_sets(one, problems[0])) <= (12 if one.language == "triton" else 60)


def test_only_those_that_add_by_atomics_say_so():
    for name in CHAIN + NO_ATOMIC:
        one, problem = VARIANTS[name], SPEC.problem(512, "float64", **PAPER)
        pairs = 2 * 512 * 512 * 64
        found = evaluate(one.atomics, launch_names(one, problem, one.defaults))
        assert found == {"gk_atomic_warp_reduced": pairs // 32}.get(name, pairs if name in CHAIN else 0)


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("shape", [PAPER, SERVED], ids=["paper", "served"])
def test_each_dtype_has_variants_of_ours_and_of_the_library_at_the_shapes_that_are_served(dtype, shape):
    for n in (1, 64, 1000, 8192):
        problem = SPEC.problem(n, dtype, **shape)
        able = [one for one in VARIANTS.values() if knob_sets(one, problem)]
        assert any(one.language == "torch" for one in able)
        assert any(one.language != "torch" for one in able)

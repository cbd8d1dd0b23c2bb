"""GPU variants of fused on a CPU: CUDA's threads as fibers, those of the library's backends that run there, headers."""

import importlib.util

import numpy as np
import pytest
from emulation import emulated, needs_compiler, share, taken
from tile_assembler import TENSOR_TILES

from advisor.kernels.expressions import evaluate
from advisor.kernels.fused.spec import SPEC
from advisor.kernels.gpu.geometry import check_header, launch_names
from advisor.kernels.header import GPU_LANGUAGES, OWN_GPU_LANGUAGES
from advisor.kernels.judge import relative_error
from advisor.kernels.variant import knob_sets, variants

VARIANTS = {one.name: one for one in variants("fused", (), GPU_LANGUAGES)}
CUDA = {name: one for name, one in VARIANTS.items() if one.language == "cuda"}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
SERVED = {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128}
SHARED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 7, "causal": 1}
WIDE = {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 128, "causal": 1}
CAUSAL = {**PAPER, "batch": 1, "causal": 1}

PLAIN = (
    ("pair_packed", SHARED, "float32"),
    ("pair_no_atomic_lane", SHARED, "float64"),
    ("fused_two_atomics_one_lane", SHARED, "float64"),
    ("fused_two_atomics_recomputed_packed", SHARED, "float32"),
    ("fused_two_atomics_lane", SHARED, "float32"),
)
OTHERS = sorted({name for name in CUDA if "tiled" not in name} - {name for name, _, _ in PLAIN})

TILED = (
    ("tiled", "float64", {**PAPER, "batch": 1}, (70,), {"ADV_FRONT": 1, "ADV_TILES": 1, "ADV_SPLITS": 8}),
    ("tiled", "float32", CAUSAL, (1, 67), {"ADV_FRONT": 4, "ADV_TILES": 2, "ADV_SPLITS": 2, "ADV_STAGES": 2}),
    ("pair_tiled", "float64", CAUSAL, (67,), {"ADV_TILES": 2, "ADV_SPLITS": 2, "ADV_STEP": 32, "ADV_STAGES": 2}),
    ("tiled_gq_atomic", "float64", CAUSAL, (67,), {"ADV_FRONT": 8, "ADV_SPLITS": 4}),
    ("tiled_gq_atomic", "float32", WIDE, (65,), {"ADV_FRONT": 2, "ADV_SPLITS": 2, "ADV_STAGES": 2}),
    ("pair_tiled", "float32", WIDE, (65,), {"ADV_TILES": 4, "ADV_SPLITS": 1, "ADV_STEP": 32}),
)


@needs_compiler
@pytest.mark.parametrize(("name", "shape", "dtype"), PLAIN, ids=lambda one: one if isinstance(one, str) else "")
def test_a_plain_variant_computes_the_dnf(tmp_path, name, shape, dtype):
    run = None
    for n, draw in ((1, "outlier"), (37, "normal")):
        problem = SPEC.problem(n, dtype, **shape)
        run = run or emulated(tmp_path, SPEC, CUDA[name], problem, ())
        assert share(run, problem, (), draw) < 1


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", OTHERS)
def test_so_do_the_others(tmp_path, name):
    test_a_plain_variant_computes_the_dnf(tmp_path, name, {**PAPER, "head_dim": 80}, "float64")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", sorted(name for name in CUDA if name.endswith("_lane")))
def test_lanes_take_more_columns_than_a_block_has_threads(tmp_path, name):
    problem = SPEC.problem(130, "float32", **SHARED)
    assert share(emulated(tmp_path, SPEC, CUDA[name], problem, ()), problem, ()) < 1


@needs_compiler
@pytest.mark.parametrize(("name", "dtype", "shape", "sizes", "named"), TILED)
def test_tiles_compute_the_dnf(tmp_path, name, dtype, shape, sizes, named):
    """Rows past the end, columns past the diagonal, warps that see nothing of a row, two stages, shared heads.

    Forward has a shape of its own.
    """
    for n, draw in zip(sizes, ("normal", "outlier"), strict=False):
        problem = SPEC.problem(n, dtype, **shape)
        knobs = taken(CUDA[name], problem, **named)
        assert named.items() <= dict(knobs).items()
        run = emulated(tmp_path, SPEC, CUDA[name], problem, knobs, TENSOR_TILES)
        assert share(run, problem, knobs, draw) < 1


def test_a_scheme_says_how_many_atomic_additions_it_makes_and_two_are_twice_one():
    for shape, pairs in ((PAPER, 2 * 512 * 512), (CAUSAL, 512 * 513 // 2)):
        problem = SPEC.problem(512, "float64", **shape)
        for name in CUDA.keys() - {"tiled_gq_atomic"}:
            one = CUDA[name]
            sums = 2 if "two_atomics" in name else 0 if "no_atomic" in name or "tiled" in name else 1
            found = evaluate(one.atomics, launch_names(one, problem, one.defaults))
            assert found == sums * pairs * 64, name
    tiled, problem = CUDA["tiled_gq_atomic"], SPEC.problem(512, "float64", **PAPER)
    assert evaluate(tiled.atomics, launch_names(tiled, problem, tiled.defaults)) == 2 * 512 * (512 // 32) * 64


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("shape", [PAPER, CAUSAL, SERVED, {**SERVED, "causal": 1}], ids=str)
def test_headers_have_values_choices_are_few_and_ours_stand_beside_the_library_s(dtype, shape):
    for n in (1, 64, 1000, 8192):
        problem, able = SPEC.problem(n, dtype, **shape), []
        for one in VARIANTS.values():
            check_header(SPEC, one, [problem])
            count = len(knob_sets(one, problem))
            assert count <= (12 if one.language == "triton" else 60)
            able += [one.language] * bool(count)
        assert "torch" in able
        assert set(OWN_GPU_LANGUAGES) & set(able)


def _tensor(torch, array, dtype):
    tensor = torch.from_numpy(array.view(np.int16) if dtype == "bfloat16" else array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("name", ["sdpa_flash", "sdpa_math"])
def test_the_library_s_backends_compute_the_dnf_with_heads_that_are_shared(name, dtype):
    """The two that PyTorch has for a CPU; flash takes other dtypes there than on a device."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = importlib.util.spec_from_file_location(name, VARIANTS[name].path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    problem = SPEC.problem(65, dtype, **{**SHARED, "head_dim": 64})
    inputs = SPEC.inputs(problem, 3, "outlier")
    tensors = [_tensor(torch, inputs[one], dtype) for one in ("q", "k", "v", "gout")]
    dims = tuple(problem.dims()[one] for one in SPEC.dims)
    assert module.prepare_workspace(tensors, dims, {}) > sum(one.nbytes for one in tensors)
    results = module.prepare(tensors, dims, {})()
    for (written, wanted), result in zip(SPEC.reference(problem, inputs).items(), results, strict=True):
        assert written in SPEC.written
        assert relative_error(result.double().numpy(), wanted.values) < wanted.cache_tolerance, written

"""CUDA variants of decode on a CPU, their threads as fibers: what they compute is right, and launches fit it."""

import pytest
from emulation import emulated, needs_compiler, share, taken
from gpu_fixtures import DECODE

from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.variant import variants

CUDA = {one.name: one for one in variants("decode", (), OWN_GPU_LANGUAGES) if one.language == "cuda"}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
GROUPS = {"batch": 1, "heads": 14, "kv_heads": 2, "head_dim": 128}
FIVE = {"batch": 2, "heads": 5, "kv_heads": 1, "head_dim": 64}

pytestmark = needs_compiler

TENSOR_CORES = {
    "void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)": """
        multiply_tiles(c, a, b0, b1, from_stored);""",
    "void cut(float x, float y, unsigned &high, unsigned &low)": """
        const unsigned short hx = to_stored(x), hy = to_stored(y);
        high = hx | unsigned(hy) << 16;
        low = to_stored((x - from_stored(hx)) * LOW) | unsigned(to_stored((y - from_stored(hy)) * LOW)) << 16;""",
}
"""Functions of the sources that are assembler -> what they do."""

CASES = (
    ("split_w1", "float64", {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 128}),
    ("split_w4", "float32", PAPER),
    ("gated", "bfloat16", {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 64}),
    ("batched", "float16", GROUPS),
    ("batched_mma", "float16", FIVE),
    ("batched_mma", "bfloat16", GROUPS),
)


@pytest.mark.parametrize(("name", "dtype", "shape"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_variant_computes_the_dnf_in_one_split_and_in_many(tmp_path, name, dtype, shape):
    variant, run, splits = CUDA[name], None, set()
    blocks = dict(variant.run_knobs)["blocks"]
    for n, wanted, draw in ((1, blocks[0], "normal"), (130, blocks[0], "outlier"), (1000, blocks[2], "normal")):
        problem = DECODE.problem(n, dtype, **shape)
        knobs = taken(variant, problem, blocks=wanted)
        run = run or emulated(tmp_path, DECODE, variant, problem, knobs, TENSOR_CORES)
        splits.add(geometry(DECODE, variant, problem, knobs).grid[0])
        assert share(run, problem, knobs, draw) < 1
    assert 1 in splits
    assert max(splits) > 6

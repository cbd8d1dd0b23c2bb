"""CUDA variants of forward on a CPU: what they compute, and that launches fit, at edges of tiles, causal, in splits."""

import pytest
from emulation import emulated, needs_compiler, share, taken

from advisor.kernels.edges import edges
from advisor.kernels.forward.spec import SPEC
from advisor.kernels.gpu.geometry import check_header, geometry
from advisor.kernels.header import GPU_LANGUAGES, OWN_GPU_LANGUAGES
from advisor.kernels.variant import knob_sets, variants

CUDA = {one.name: one for one in variants("forward", (), OWN_GPU_LANGUAGES) if one.language == "cuda"}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
GROUPED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "causal": 1}
WIDE = {"batch": 1, "heads": 1, "kv_heads": 1, "head_dim": 128, "causal": 1}
ODD = {"batch": 1, "heads": 3, "kv_heads": 1, "head_dim": 7, "causal": 1}

ASSEMBLER = {
    "void copy16(void *to, const void *from)": "memcpy(to, from, 16);",
    "void commit()": "",
    "void wait_all_but_one()": "",
    "unsigned narrow(float x, float y)": "return to_stored(x) | unsigned(to_stored(y)) << 16;",
    "void load_four(unsigned (&x)[4], const store *row)": "load_matrices(x, 4, row, false);",
    "void load_four_turned(unsigned (&x)[4], const store *row)": "load_matrices(x, 4, row, true);",
    "void product(double (&c)[4], const double (&a)[4], double b0, double b1)": """
        double upper[2] = {c[0], c[1]}, lower[2] = {c[2], c[3]};
        multiply_double(upper, a[0], b0);
        multiply_double(upper, a[2], b1);
        multiply_double(lower, a[1], b0);
        multiply_double(lower, a[3], b1);
        c[0] = upper[0], c[1] = upper[1], c[2] = lower[0], c[3] = lower[1];""",
}
"""Functions of the sources that are assembler -> what they do."""

PRODUCT = "void product(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)"
PRODUCTS = {"float32": "multiply_tf32(c, a, b0, b1);", "float64": ""}
"""What the tensor cores' product of float sums is in a dtype; others are of 16 bits."""

SMALL = {"ADV_BM": 16, "ADV_BN": 32}
"""Tiles of one warp: 131 keys are four splits of them, one key is none."""

CASES = (
    ("packed", "float64", PAPER, (1, 17), {}),
    ("lane_shared", "float32", {**WIDE, "head_dim": 80}, (17,), {"ADV_THREADS": 256}),
    ("lane_global", "float32", ODD, (1, 33), {}),
    ("tiled_fma", "float32", GROUPED, (1, 131), SMALL),
    ("tiled_fma", "float64", WIDE, (65,), {"ADV_BM": 64, "ADV_BN": 32}),
    ("tiled_dmma", "float64", GROUPED, (1, 131), SMALL),
    ("tiled_tf32", "float32", GROUPED, (1, 131), SMALL),
    ("tiled_mma", "bfloat16", GROUPED, (1, 131), SMALL),
    ("tiled_mma", "float16", WIDE, (131,), {"ADV_BM": 64, "ADV_BN": 64}),
)

UNEVEN = (
    ("tiled_mma", "bfloat16", 65, {"ADV_BM": 128, "ADV_BN": 64, "splits": 2}),
    ("tiled_mma", "float16", 131, {"ADV_BM": 64, "ADV_BN": 32, "splits": 4}),
    ("tiled_tf32", "float32", 131, {"ADV_BM": 64, "ADV_BN": 32, "splits": 4}),
    ("tiled_dmma", "float64", 131, {"ADV_BM": 64, "ADV_BN": 32, "splits": 4}),
    ("tiled_fma", "float32", 131, {"ADV_BM": 64, "ADV_BN": 32, "splits": 4}),
)
"""131 keys in tiles of 32 leave the last of four splits none. Causal, a tile's first rows see no key of a split that
its last rows see, and the first tile of rows sees fewer tiles of keys than there are splits."""

pytestmark = needs_compiler


def on_a_cpu(folder, name, problem, knobs):
    """A variant as `emulated` compiles it, with this dtype's product."""
    product = PRODUCTS.get(problem.dtype, "multiply_tiles(c, a, b0, b1, from_stored);")
    return emulated(folder, SPEC, CUDA[name], problem, knobs, {**ASSEMBLER, PRODUCT: product})


@pytest.mark.parametrize(("name", "dtype", "shape", "sizes", "named"), CASES)
def test_a_variant_computes_the_dnf(tmp_path, name, dtype, shape, sizes, named):
    for n, draw in zip(sizes, ("normal", "outlier"), strict=False):
        problem = SPEC.problem(n, dtype, **shape)
        knobs = taken(CUDA[name], problem, **named)
        assert share(on_a_cpu(tmp_path, name, problem, knobs), problem, knobs, draw) < 1


@pytest.mark.parametrize(("name", "dtype", "n", "named"), UNEVEN)
def test_a_split_may_have_no_keys_and_a_row_may_see_none_of_a_split(tmp_path, name, dtype, n, named):
    for causal, draw in ((1, "normal"), (0, "outlier")):
        problem = SPEC.problem(n, dtype, **{**PAPER, "batch": 1, "causal": causal})
        knobs = taken(CUDA[name], problem, **named)
        assert named.items() <= dict(knobs).items()
        assert share(on_a_cpu(tmp_path, name, problem, knobs), problem, knobs, draw) < 1


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("shape", [PAPER, {"batch": 2, "heads": 16, "kv_heads": 16, "head_dim": 128}], ids=str)
def test_all_headers_have_values_and_choices_are_few_enough_to_look_at_all(dtype, shape):
    for n in (1, 64, 512, 2048, 8192):
        problem = SPEC.problem(n, dtype, **shape)
        listed = variants("forward", (), GPU_LANGUAGES)
        for one in listed:
            check_header(SPEC, one, [problem])
            assert len(knob_sets(one, problem)) < 60
        assert 0 < sum(len(knob_sets(one, problem)) for one in listed) < 120
        assert sum(len(knob_sets(one, problem)) for one in listed if one.language == "triton") <= 12


def has_an_empty_split(edge, of):
    tiles = -(-edge.problem.n // of.get("ADV_BN", of.get("keys")))
    return -(-tiles // -(-tiles // of["splits"])) < of["splits"]


@pytest.mark.parametrize("name", ["tiled_mma", "tiled_tf32", "tiled_dmma", "tiled_fma", "tiled_gluon"])
def test_of_many_splits_one_is_empty_in_a_problem_that_is_checked_before_any_time_is_taken(name):
    (one,) = (one for one in variants("forward", (), OWN_GPU_LANGUAGES) if one.name == name)
    problem = SPEC.problem(2048, one.dtypes[0], **PAPER)
    split = [knobs for knobs in knob_sets(one, problem) if dict(knobs)["splits"] >= 4]
    assert split
    for knobs in split:
        assert any(has_an_empty_split(edge, dict(knobs)) for edge in edges(SPEC, one, problem, knobs))


def test_keys_are_split_only_where_rows_do_not_fill_a_device():
    one = CUDA["tiled_fma"]
    few, many = (SPEC.problem(n, "float32", **PAPER) for n in (256, 8192))
    assert max(dict(knobs)["splits"] for knobs in knob_sets(one, few)) > 4
    for knobs in knob_sets(one, many):
        if dict(knobs)["splits"] > 1:
            launch = geometry(SPEC, one, many, knobs)
            assert launch.zero_bytes >= 4 * launch.grid[0] * launch.grid[1]
            assert launch.grid[0] * launch.grid[1] * launch.grid[2] <= 1056

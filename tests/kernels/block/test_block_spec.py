"""The definition of the transformer block: its reference, tolerance, costs and inputs."""

import itertools

import numpy as np
import pytest
from block_fixtures import GROUPED, block
from hypothesis import given, settings
from hypothesis import strategies as st
from row_fixtures import short

from advisor.errors import BadInput
from advisor.kernels import attention, transformer
from advisor.kernels.block import spec as module
from advisor.kernels.block.spec import SPEC
from advisor.kernels.edges import FEW_KEYS, edges
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.judge import relative_error
from advisor.kernels.registry import spec
from advisor.kernels.rms import AS_COMPUTED, widened
from advisor.kernels.variant import is_valid, knob_sets, variants


def checked(problem, draw="normal", seed=1):
    inputs = SPEC.inputs(problem, seed, draw)
    return inputs, SPEC.reference(problem, inputs)["y"]


def of_parts(inputs, problem):
    """y as the other kernels' references make it of each other's results."""
    m = transformer.dims_of(problem)

    def known(name, own, **shape):
        found = spec(name).reference(spec(name).problem(m.n, "float64", batch=m.batch, **shape), own)
        return next(iter(found.values())).values

    normal = known("rmsnorm", {"x": inputs["x"], "g": inputs["g1"]}, d_model=m.d_model)
    qkv = (normal @ inputs["wqkv"].T).reshape(m.batch, m.n, -1, m.head_dim).swapaxes(1, 2)
    q, k, v = np.split(qkv, [m.heads, m.heads + m.kv_heads], axis=1)
    shape = {"heads": m.heads, "kv_heads": m.kv_heads, "head_dim": m.head_dim, "causal": m.causal}
    out = known("forward", {"q": q, "k": k, "v": v}, **shape).swapaxes(1, 2).reshape(m.batch, m.n, -1)
    middle = inputs["x"] + out @ inputs["wo"].T
    normal = known("rmsnorm", {"x": middle, "g": inputs["g2"]}, d_model=m.d_model)
    weights = {name: inputs[name] for name in ("wg", "wu", "wd")}
    return middle + known("mlp", {"x": normal, **weights}, d_model=m.d_model, d_ff=m.d_ff)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_reference_is_the_chain_of_the_parts_references(data):
    sizes = {
        name: data.draw(st.integers(1, most))
        for name, most in (("batch", 2), ("kv_heads", 3), ("head_dim", 9), ("d_model", 17), ("d_ff", 19))
    }
    shape = {**sizes, "heads": sizes["kv_heads"] * data.draw(st.integers(1, 3)), "causal": data.draw(st.integers(0, 1))}
    problem = SPEC.problem(data.draw(st.integers(1, 20)), "float64", **shape)
    inputs, expected = checked(problem, data.draw(st.sampled_from(SPEC.draws)))
    assert relative_error(of_parts(inputs, problem), expected.values) < 1e-11


@pytest.mark.parametrize("draw", SPEC.draws)
def test_pytorch_agrees_with_the_reference(draw):
    torch = pytest.importorskip("torch")
    inputs, expected = checked(SPEC.problem(9, "float64", **GROUPED), draw)
    x, g1, wqkv, wo, g2, wg, wu, wd = (torch.from_numpy(one) for one in inputs.values())
    of = torch.nn.functional
    qkv = of.linear(of.rms_norm(x, (20,), g1, 1e-5), wqkv).view(1, 9, 8, 8).transpose(1, 2)
    out = of.scaled_dot_product_attention(*qkv.split([4, 2, 2], 1), is_causal=True, enable_gqa=True)
    middle = x + of.linear(out.transpose(1, 2).reshape(1, 9, 32), wo)
    normal = of.rms_norm(middle, (20,), g2, 1e-5)
    y = middle + of.linear(of.silu(of.linear(normal, wg)) * of.linear(normal, wu), wd)
    assert relative_error(y.numpy(), expected.values) < 1e-12


def test_of_large_problems_chosen_rows_are_known(monkeypatch):
    problem = SPEC.problem(300, "float64", batch=2, d_ff=100)
    inputs, whole = checked(problem)
    monkeypatch.setattr(attention, "SAMPLED_FLOPS", 1.0)
    monkeypatch.setattr(module, "WITHIN_AT_ONCE", 7)
    some = SPEC.reference(problem, inputs)["y"]
    assert some.rows is not None
    assert {0, 1, 15, 16, 17, 299, 300, 301, 599} <= set(some.rows.tolist())
    assert relative_error(some.values, whole.values.reshape(-1, 64)[some.rows]) < 1e-13
    assert SPEC.flops(SPEC.problem(4096)) < 1.5e11, "the paper's largest is known whole"


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [{}, GROUPED, {"d_model": 1, "d_ff": 1}, {"d_model": 512, "d_ff": 1024}])
def test_rounding_stays_inside_the_tolerance(shape, draw):
    problem = SPEC.problem(33, "float32", **shape)
    inputs, expected = checked(problem, draw)
    assert relative_error(block(inputs, problem.dims(), np.float32), expected.values) <= expected.tolerance


@pytest.mark.parametrize(
    ("wrong", "draw"),
    [*itertools.product(("scale", "causal", "heads", "gain", "residual"), SPEC.draws), ("eps", "outlier")],
)
def test_what_is_wrong_is_outside_of_it(wrong, draw):
    """Beside numbers of size 1 the small constant is not seen."""
    problem = SPEC.problem(33, "float32", **GROUPED)
    inputs, expected = checked(problem, draw)
    assert relative_error(block(inputs, problem.dims(), wrong=wrong), expected.values) > 8 * expected.tolerance


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [{}, GROUPED, {"batch": 1, "d_model": 1024, "d_ff": 2048}])
def test_a_result_a_tenth_too_small_is_far_outside_of_it(shape, draw):
    _, expected = checked(SPEC.problem(17, "float32", **shape), draw)
    assert relative_error(0.9 * expected.values, expected.values) > 50 * expected.tolerance


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("shape", [{}, GROUPED])
def test_sixteen_bits_between_the_steps_have_a_bound_of_their_own(shape, dtype, draw):
    """It lets nothing pass that is zero, or that forgot a residual or a gain."""
    problem = SPEC.problem(33, dtype, **shape)
    inputs, expected = checked(problem, draw)
    of = widened(inputs, dtype)

    def error(**how):
        return relative_error(short(block(of, problem.dims(), np.float32, **how), dtype), expected.values)

    between = error(keep=lambda array: short(array, dtype))
    assert between <= 0.5 * expected.allowed("cache")
    assert error() <= expected.allowed("real") < expected.allowed("cache")
    assert between > expected.allowed("real") or draw == "outlier"
    for wrong in ("gain", "residual", "scale"):
        assert error(wrong=wrong) > 1.2 * expected.allowed("cache"), wrong


def without_key(problem, inputs, key):
    """y in float64 of a chain whose loop leaves one key out, where rows attend to all."""
    m, of = transformer.dims_of(problem), widened(inputs, problem.dtype)
    known = module.known_of(problem, of, AS_COMPUTED)
    whole = module.split(m, module.keys_and_values(known, np.arange(m.rows)))
    left = [i for i in range(m.n) if i != key]
    cut = [[one._replace(k=one.k.at(left), v=one.v.at(left)) for one in own] for own in whole]
    found = [module.of_rows(known, b, np.arange(m.n), cut[b]).value for b in range(m.batch)]
    return np.stack(found)


WIDE = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "d_model": 256, "d_ff": 704}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_show_a_key_left_out_where_there_are_few(dtype):
    """Among 129 keys one that is left out may move a row by less than bfloat16 rounds between the steps: that is why a
    wide shape has an edge of few keys."""
    few = SPEC.problem(FEW_KEYS, dtype, **WIDE)
    inputs, expected = checked(few)
    for key in range(FEW_KEYS):
        error = relative_error(without_key(few, inputs, key), expected.values)
        assert error > 2 * expected.allowed("cache") > 2 * expected.allowed("real"), key


def test_every_choice_of_a_wide_block_that_takes_few_keys_is_checked_on_them_before_it_is_timed():
    shape = {**WIDE, "heads": 16, "kv_heads": 4, "head_dim": 128, "d_model": 2048, "d_ff": 5632, "causal": 1}
    problem, seen = SPEC.problem(512, "bfloat16", "cold", **shape), set()
    for variant in variants("block", (), GPU_LANGUAGES):
        for knobs in knob_sets(variant, problem):
            own = [edge for edge in edges(SPEC, variant, problem, knobs) if edge.problem.shape == problem.shape]
            able = is_valid(variant, problem._replace(n=FEW_KEYS), knobs)
            assert (FEW_KEYS in {e.problem.n for e in own if e.draw == "normal"}) == able, variant.name
            seen |= {variant.name} if able else set()
    assert {"parts_triton", "aten_block"} <= seen


def test_costs():
    problem = SPEC.problem(256, batch=2)
    weights = 4 * 64 * 64 + 3 * 64 * 256 + 2 * 64
    assert SPEC.elements(problem) == (512 * 64 + weights, 512 * 64)
    norms, products, gate = 2 * (4 * 64 + 4), 2 * (weights - 2 * 64), 5 * 256
    assert SPEC.flops(problem) == 512 * (norms + products + gate + 2 * 64) + 2 * (256 * 256 * 260 + 256 * 64)
    assert SPEC.constant == ("g1", "wqkv", "wo", "g2", "wg", "wu", "wd")


def test_what_the_paper_predicts():
    """24 n d + 4 n d_ff elements of 8 bytes: 10.49 MB."""
    assert round(8 * transformer.paper_elements(SPEC.problem(256, batch=2)) / 1e6, 2) == 10.49


def test_shapes_are_checked():
    with pytest.raises(BadInput, match="multiple of kv_heads"):
        SPEC.problem(4, heads=3, kv_heads=2)
    with pytest.raises(BadInput, match="causal"):
        SPEC.problem(4, causal=2)
    served = SPEC.problem(4, batch=1, heads=32, kv_heads=8, head_dim=128, d_model=4096, d_ff=14336, causal=1)
    said = "batch 1, heads 32:8, head_dim 128, d_model 4096, d_ff 14336, causal"
    assert SPEC.shape_label(served.shape) == said
    assert SPEC.shapes(served)["wqkv"] == (6144, 4096)
    assert SPEC.shapes(served)["wo"] == (4096, 4096)

"""The float64 gradients: central differences, torch's autograd, sampled rows, and what their tolerances notice."""

import math

import numpy as np
import pytest

from advisor.kernels import attention, gradients
from advisor.kernels.attention import dims_of
from advisor.kernels.backward.spec import SPEC
from advisor.kernels.edges import edges
from advisor.kernels.fused.spec import SPEC as FUSED
from advisor.kernels.header import CPU_LANGUAGES, GPU_LANGUAGES
from advisor.kernels.judge import judge, relative_error
from advisor.kernels.operands import block
from advisor.kernels.variant import knob_sets, variants

SHAPES = (
    {"batch": 2, "head_dim": 4},
    {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 3},
    {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 3, "causal": 1},
)
SERVED = {"batch": 1, "heads": 6, "kv_heads": 2, "head_dim": 16}


def found(problem, inputs):
    m = dims_of(problem)
    made = gradients.all_rows(m, inputs, gradients.Known(*attention.forward(m, inputs)))
    return {name: getattr(made, name) for name in ("gq", "gk", "gv")}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_central_differences(n, shape):
    """The error of a difference is its step squared, 1e-12, and rounding over the step, 1e-16 / 1e-6."""
    problem = FUSED.problem(n, "float64", **shape)
    inputs = FUSED.inputs(problem, 1)
    wanted = gradients.by_differences(dims_of(problem), inputs)
    for name, values in found(problem, inputs).items():
        assert np.abs(values - wanted[name]).max() < 1e-7, name


@pytest.mark.parametrize("causal", [0, 1])
def test_autograd(causal):
    torch = pytest.importorskip("torch")
    problem = FUSED.problem(70, "float64", causal=causal, **SERVED)
    inputs = FUSED.inputs(problem, 1)
    q, k, v = (torch.from_numpy(inputs[name]).requires_grad_() for name in ("q", "k", "v"))
    keys, values = (one.repeat_interleave(3, dim=1) for one in (k, v))
    scores = q @ keys.transpose(2, 3) / math.sqrt(16)
    if causal:
        scores = scores.masked_fill(torch.ones(70, 70).triu(1).bool(), -math.inf)
    (torch.softmax(scores, dim=-1) @ values * torch.from_numpy(inputs["gout"])).sum().backward()
    mine = found(problem, inputs)
    for name, one in (("gq", q), ("gk", k), ("gv", v)):
        assert np.abs(mine[name] - one.grad.numpy()).max() < 1e-12, name


@pytest.mark.parametrize("spec", [SPEC, FUSED], ids=lambda spec: spec.name)
@pytest.mark.parametrize("causal", [0, 1])
def test_chosen_rows_are_those_of_the_whole(monkeypatch, spec, causal):
    problem = spec.problem(300, "float64", causal=causal, **SERVED)
    inputs = spec.inputs(problem, 1)
    whole = spec.reference(problem, inputs)
    monkeypatch.setattr(attention, "SAMPLED_FLOPS", 0)
    some = spec.reference(problem, inputs)
    assert set(some) == set(spec.written)
    for name, one in some.items():
        assert one.rows is not None
        rows = whole[name].values.reshape(-1, 16)[one.rows]
        assert np.abs(rows - one.values).max() < 1e-12, name
        assert one.tolerance <= whole[name].tolerance * (1 + 1e-9)


def in_single(inputs, skip=slice(0, 0)):
    """Gradients in numpy's float32, one head, batch 1; `skip`: query and key rows that a wrong loop leaves out."""
    q, k, v, gout = (inputs[name][0, 0] for name in ("q", "k", "v", "gout"))
    scale = np.float32(1 / math.sqrt(q.shape[1]))
    scores = scale * (q @ k.T)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    delta = (gout * (weights @ v)).sum(axis=1, keepdims=True)
    gs = scale * weights * (gout @ v.T - delta)
    rows = np.delete(np.arange(len(q)), skip)
    gradients_of = {"gq": gs[:, rows] @ k[rows], "gk": gs[rows].T @ q[rows], "gv": weights[rows].T @ gout[rows]}
    return {name: values[None, None] for name, values in gradients_of.items()}


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_arithmetic_in_float32_is_inside_the_tolerances(monkeypatch, draw, sampled):
    """Those of chosen rows too, which come from the norms of these rows only."""
    if sampled:
        monkeypatch.setattr(attention, "SAMPLED_FLOPS", 0)
    problem = FUSED.problem(300, batch=1)
    inputs = FUSED.inputs(problem, 1, draw)
    wanted = FUSED.reference(problem, inputs)
    for name, values in in_single(inputs).items():
        assert values.dtype == np.float32
        rows = slice(None) if wanted[name].rows is None else wanted[name].rows
        assert relative_error(values[0, 0][rows], wanted[name].values.reshape(-1, 64)) < wanted[name].tolerance, name


@pytest.mark.parametrize("n", [131, 2048])
@pytest.mark.parametrize("name", ["gq", "gk", "gv"])
def test_a_skipped_block_is_over_the_tolerance(n, name):
    """16 rows left out of a sum, as a loop with a wrong bound would."""
    problem = FUSED.problem(n, batch=1)
    inputs = FUSED.inputs(problem, 1)
    wanted = FUSED.reference(problem, inputs)[name]
    assert relative_error(in_single(inputs, slice(n // 2, n // 2 + 16))[name], wanted.values) > wanted.tolerance


def judged(wanted, **changed):
    """What the judge says of float32 outputs that are right but for those changed by a function."""
    blocks = {name: block(one.values.shape, np.float32) for name, one in wanted.items()}
    for name, made in blocks.items():
        made.data[...] = changed.get(name, lambda values: values)(wanted[name].values)
    return judge(blocks, wanted)


@pytest.mark.parametrize("name", ["gq", "gk", "gv"])
def test_a03_one_gradient_alone_that_is_five_percent_off_is_wrong_with_its_error(name):
    """On ordinary inputs, which every choice is checked on; in large ones 5 % may be what float32 rounds to."""
    problem = SPEC.problem(65, batch=1)
    wanted = SPEC.reference(problem, SPEC.inputs(problem, 1))
    assert judged(wanted).reason == ""
    found = judged(wanted, **{name: lambda values: 1.05 * values})
    assert found.error > found.tolerance
    assert f"of {name} is over the tolerance" in found.reason


def test_a03_what_saturates_is_right_on_ordinary_inputs_and_wrong_on_large_ones():
    problem = FUSED.problem(65, batch=1)
    reasons = {}
    for draw in FUSED.draws:
        wanted = FUSED.reference(problem, FUSED.inputs(problem, 1, draw))
        reasons[draw] = judged(wanted, out=lambda values: values.clip(-16, 16)).reason
    assert reasons["normal"] == ""
    assert "of out is over the tolerance" in reasons["outlier"]


def test_backward_gets_what_a_forward_pass_leaves():
    problem = SPEC.problem(40, causal=1)
    inputs = SPEC.inputs(problem, 1)
    out, lse = attention.forward(dims_of(problem), inputs)
    assert np.array_equal(inputs["out"], out.astype(np.float32))
    assert np.array_equal(inputs["lse"], lse.astype(np.float32))


def test_elements_of_the_cost_functions():
    """M_bwd = 8nd + n^2 + n and M_fused = 8nd, a sequence and head."""
    n, d = 2048, 64
    backward = SPEC.elements(SPEC.problem(n, batch=2, head_dim=d))
    fused = FUSED.elements(FUSED.problem(n, batch=2, head_dim=d))
    assert backward.read + backward.written == 2 * (8 * n * d + n * n + n)
    assert fused.read + fused.written == 2 * 8 * n * d


FAULTS = ("a key left out", "no scale")


def with_fault(fault, wanted, problem, inputs):
    """gq and gk as a loop that leaves one key (for gk: one query row) out makes them, or without 1 / sqrt(d)."""
    m = dims_of(problem)
    if fault == "no scale":
        return {name: wanted[name].values * math.sqrt(m.head_dim) for name in ("gq", "gk")}
    made, place = {name: wanted[name].values.copy() for name in ("gq", "gk")}, slice(m.n // 2, m.n // 2 + 1)
    for b, h, head in attention.heads_of(m, inputs):
        own = gradients.Known(inputs["out"][b, h], inputs["lse"][b, h])
        weights, product = gradients._weighed(np, head, slice(None), slice(None), own)
        gs = weights * (product - gradients._terms(head, slice(None), own).sum(axis=1, keepdims=True))
        made["gq"][b, h] -= gs[:, place] @ head.k[place] / math.sqrt(m.head_dim)
        made["gk"][b, h // m.sharing] -= gs[place].T @ head.q[place] / math.sqrt(m.head_dim)
    return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_key_left_out_and_a_missing_scale_are_over_the_tolerance_in_the_checks_before_any_timing(dtype):
    """Outlier draws may hide both, as one bound there allows for the largest row; every choice has the same edges with
    normal numbers, and these show both, also where P and GS are rounded to the cache's dtype."""
    problem = SPEC.problem(2048, dtype, "cold", batch=1, heads=4, kv_heads=2, head_dim=128, causal=1)
    able = [
        v
        for v in variants("backward", (), (*CPU_LANGUAGES, *GPU_LANGUAGES))
        if dtype in v.dtypes and knob_sets(v, problem)
    ]
    assert able
    for variant in able:
        listed = edges(SPEC, variant, problem, knob_sets(variant, problem)[0])
        small = [e.problem for e in listed if e.draw == "normal" and 1 < e.problem.n < 100]
        assert {e.n for e in small if e.shape == problem.shape} >= {2, 17}, variant.name
    checked = problem._replace(n=17, regime="warm")
    stored = SPEC.inputs(checked, 1)
    inputs, wanted = SPEC.widened(checked, stored), SPEC.reference(checked, stored)
    for fault in FAULTS:
        for name, values in with_fault(fault, wanted, checked, inputs).items():
            assert relative_error(values, wanted[name].values) > 1.5 * wanted[name].cache_tolerance, (fault, name)

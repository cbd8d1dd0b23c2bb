"""Library backends on a device, with PyTorch's own CPU in the place of the device: arithmetic, memory, results."""

import importlib.util

import numpy as np
import pytest
from gpu_fixtures import DECODE, H200, FakeDriver, answers

from advisor import show
from advisor.errors import BadInput
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.header import GPU_LANGUAGES, LIBRARY_GPU_LANGUAGES, OWN_GPU_LANGUAGES, read_variant
from advisor.kernels.judge import relative_error
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import Expected
from advisor.kernels.variant import is_valid, variants
from advisor.kernels.verify import Row

LIBRARY = variants("decode", (), LIBRARY_GPU_LANGUAGES)
TOOLS = (("torch-2.11", "torch"),)
HERE = ("sdpa_flash", "sdpa_math")
"""Those that PyTorch's CPU build runs in 16 bits; it has neither the others nor products of 16 bits into float32."""

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
SHAPES = (
    {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128},
    {"batch": 1, "heads": 28, "kv_heads": 4, "head_dim": 128},
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64},
)


class TorchDriver(FakeDriver):
    """Memory of numpy, tensors of PyTorch over it."""

    room = 1 << 40

    def room_bytes(self):
        return self.room

    def tensor(self, array, dtype):
        import torch

        if dtype == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def trial(name, n=65, dtype="float16", edges=False, **shape):
    """A trial of a library's first choice, edge problems first or the problem alone."""
    problem = DECODE.problem(n, dtype, **(shape or SHAPES[1]))
    choice = next(c for c in gpu_space(H200, DECODE, LIBRARY, problem, TOOLS) if c.build.variant == name)
    variant = next(v for v in LIBRARY if v.name == name)
    return GpuPool(H200, DECODE, LIBRARY)._trial(problem, variant, choice, Ask(2, 60.0), None if edges else "normal")


@needs_torch
def test_float32_products_are_no_tf32_whatever_was_set_before():
    from torch.backends import cuda, cudnn

    before = cuda.matmul.allow_tf32, cudnn.allow_tf32
    cuda.matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        assert answers(TorchDriver(), trial("sdpa_math", 17, "float32"))[-1].status == "ok"
        assert (cuda.matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
    finally:
        cuda.matmul.allow_tf32, cudnn.allow_tf32 = before


def test_library_backends_are_told_apart_from_our_own_by_their_language():
    own = variants("decode", (), OWN_GPU_LANGUAGES)
    assert {v.name for v in LIBRARY} == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "sdpa_math", "cublas_matmul"}
    assert {v.arithmetic for v in LIBRARY} == {"cache"}
    assert {v.arithmetic for v in own} == {"real"}
    assert set(own).isdisjoint(LIBRARY)
    assert (*own, *LIBRARY) == variants("decode", (), GPU_LANGUAGES)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: DECODE.shape_label(tuple(s.items())))
def test_every_backend_that_can_is_a_choice_beside_ours(shape):
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for n in (1, 2, 4095):
            problem = DECODE.problem(n, dtype, **shape)
            found = {c.build.variant for c in gpu_space(H200, DECODE, LIBRARY, problem, TOOLS)}
            wanted = {"sdpa_math", "cublas_matmul"} | ({"sdpa_efficient"} if dtype != "float64" else set())
            if dtype.endswith("16"):
                wanted |= {"sdpa_flash"} | ({"sdpa_cudnn"} if n > 1 else set())
            assert found == wanted


def test_heads_that_are_not_grouped_are_one_choice_a_backend():
    problem = DECODE.problem(100, "float16", **SHAPES[2])
    choices = gpu_space(H200, DECODE, LIBRARY, problem, TOOLS)
    assert len(choices) == len({c.build.variant for c in choices}) == 5
    grouped = gpu_space(H200, DECODE, LIBRARY, DECODE.problem(100, "float16", **SHAPES[0]), TOOLS)
    assert len(grouped) == 7


def test_a_head_that_backends_would_pad_in_every_call_is_left_to_the_others():
    odd = DECODE.problem(100, "float16", "warm", batch=2, heads=3, kv_heads=1, head_dim=7)
    assert {v.name for v in LIBRARY if is_valid(v, odd, v.defaults)} == {"sdpa_math", "cublas_matmul"}


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HERE)
def test_a_backend_is_right_on_its_edges_and_both_draws_and_says_its_arithmetic(name, dtype):
    asked = trial(name, dtype=dtype, edges=True)
    assert {case.draw for case in asked.checks} == {"normal", "outlier"}
    reply = answers(TorchDriver(), asked)[-1]
    assert reply.status == "ok", reply.reason
    assert 0 < reply.error <= reply.tolerance
    assert dict(reply.conditions)["arithmetic"] == "cache"


@needs_torch
def test_the_plain_backend_runs_in_the_wider_types_too():
    for dtype in ("float32", "float64"):
        reply = answers(TorchDriver(), trial("sdpa_math", dtype=dtype, **SHAPES[2]))[-1]
        assert reply.status == "ok", reply.reason


@needs_torch
def test_what_the_replayed_graph_returned_is_checked_not_another_call():
    class Stale(TorchDriver):
        def record(self, calls, by_torch):
            found = super().record(calls, by_torch)
            found.calls = [lambda call=call: call() * 0 for call in found.calls]
            return found

    reply = answers(Stale(), trial("sdpa_math"))[-1]
    assert reply.status == "wrong"
    assert "over the tolerance" in reply.reason


@needs_torch
def test_a_call_that_takes_more_than_is_free_is_skipped_before_it_is_made():
    driver = TorchDriver()
    driver.room = 1000
    reply = answers(driver, trial("sdpa_math"))[-1]
    assert (reply.status, reply.sound) == ("skipped", False)
    assert "1000 are free" in reply.reason


@needs_torch
def test_a_call_that_needs_what_recorded_graphs_hold_gets_it():
    driver = TorchDriver()
    bench = Bench(driver, DECODE, 0)
    asked = trial("sdpa_math")
    bench.prepare(asked)
    assert bench.trial(asked).status == "ok"
    assert len(bench._ready) == 1
    driver.release = lambda: setattr(driver, "room", 1 << 40)
    driver.room = 1000
    again = trial("sdpa_math", 66)
    bench._blocks((again.case.problem, "normal"), 1)
    assert bench.trial(again).status == "ok"
    assert len(bench._ready) == 1


@needs_torch
@pytest.mark.parametrize(("error", "status"), [("OutOfMemoryError", "skipped"), ("RuntimeError", "crashed")])
def test_a_full_device_is_no_crash_whoever_says_so(tmp_path, error, status):
    path = tmp_path / "full.py"
    path.write_text(FULL.replace("ERROR", error))
    variant = read_variant(str(path), "decode")
    problem = DECODE.problem(65, "float16", **SHAPES[1])
    (choice,) = gpu_space(H200, DECODE, [variant], problem, TOOLS)
    asked = GpuPool(H200, DECODE, [variant])._trial(problem, variant, choice, Ask(1, 60.0), "normal")
    assert answers(TorchDriver(), asked)[-1].status == status


ENDS = {
    "a full allocator": (type("OutOfMemoryError", (RuntimeError,), {})("Tried to allocate 2 GiB"), "skipped", False),
    "a full driver": (RuntimeError("CUDA error: out of memory"), "skipped", False),
    "a full library": (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "skipped", False),
    "a refused value": (DeviceError("invalid value", sticky=False), "skipped", True),
    "a lost device": (DeviceError("illegal address", sticky=True), "crashed", False),
    "PyTorch's own": (RuntimeError("cannot be captured"), "crashed", True),
    "a build without CUDA": (AssertionError("Torch not compiled with CUDA enabled"), "crashed", True),
}


@needs_torch
@pytest.mark.parametrize("step", ["tensor", "record", "time_ns"])
@pytest.mark.parametrize("case", ENDS)
def test_what_pytorch_raises_between_calls_ends_a_trial_and_not_the_worker(case, step):
    def fails(*_):
        raise error

    error, status, sound = ENDS[case]
    driver = TorchDriver()
    setattr(driver, step, fails)
    reply = answers(driver, trial("sdpa_math", n=3, **SHAPES[2]))[-1]
    assert (reply.status, reply.sound) == (status, sound)
    assert str(error) in reply.reason


FULL = '''"""variant {"idea": "a call that fails", "language": "torch", "symbol": "prepare", "dtypes": ["float16"],
"requires": ["sm_80"], "arithmetic": "cache", "reads": "1", "writes": "1", "mapping": "none", "rank": 99}
"""
class OutOfMemoryError(RuntimeError):
    pass
def prepare(buffers, dims, knobs):
    def call():
        raise ERROR("no room")
    return call
def prepare_workspace(buffers, dims, knobs):
    return 0
'''


# --- arithmetic ---


def test_a_verification_says_which_arithmetic_a_tolerance_is_for():
    problem = DECODE.problem(17, "float16", **SHAPES[0])
    made = ((), "torch-2.11", "none", 0, problem, "normal", 1e-4, 1e-3, "ok", "")
    table = show.verified([("decode", Row("sdpa_math", *made, "cache")), ("decode", Row("batched_mma", *made))])
    words = [line.split() for line in table.splitlines()]
    kinds = {line[1]: line[4] for line in words if line[:1] == ["decode"]}
    assert "threads" not in table
    assert kinds == {"sdpa_math": "cache", "batched_mma": "real"}
    assert "arithmetic" not in show.verified([("decode", Row("batched_mma", *made))])


def rounded(problem, inputs, wrong=False):
    """Decode as a 16-bit library does it: q, weights and result rounded to the cache's dtype, sums in float32."""

    def short(array):
        return widen(narrow(array.astype(np.float32), problem.dtype), problem.dtype)

    b, h, g, d, n = (problem.dims()[name] for name in DECODE.dims)
    q = short(inputs["q"]).reshape(b, g, h // g, d)
    k, v = (widen(inputs[name], problem.dtype) for name in ("k", "v"))
    scores = np.einsum("bghd,bgnd->bghn", q, k, dtype=np.float32) * np.float32(d**-0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    total = weights.sum(-1, keepdims=True)
    if wrong:
        weights = weights * (np.arange(n) != n // 2)
    out = np.einsum("bghn,bgnd->bghd", short(weights), v, dtype=np.float32) / total
    return short(out).reshape(b, h, d)


@pytest.mark.parametrize("draw", ["normal", "outlier"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_pass_the_bound_of_their_own_and_fail_the_tight_one(dtype, draw):
    """On outliers the tight one has so much for the scores that sixteen bits of the weights fit in."""
    for n in (2, 17, 64, 1000):
        problem = DECODE.problem(n, dtype, **SHAPES[2])
        inputs = DECODE.inputs(problem, 5, draw)
        expected = DECODE.reference(problem, inputs)["out"]
        error = relative_error(rounded(problem, inputs), expected.values)
        assert error <= expected.allowed("cache")
        if n < 64 and draw == "normal":
            assert error > 2 * expected.allowed("real")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_row_left_out_fails_both_bounds(dtype):
    for n in (2, 17, 64):
        problem = DECODE.problem(n, dtype, **SHAPES[2])
        inputs = DECODE.inputs(problem, 5)
        expected = DECODE.reference(problem, inputs)["out"]
        error = relative_error(rounded(problem, inputs, wrong=True), expected.values)
        assert error > expected.allowed("cache") > expected.allowed("real")


@pytest.mark.parametrize("draw", ["normal", "outlier"])
def test_the_cache_s_dtype_holds_the_drawn_queries(draw):
    for dtype in ("float16", "bfloat16"):
        q = DECODE.inputs(DECODE.problem(9, dtype, **SHAPES[1]), 3, draw)["q"]
        assert q.dtype == np.float32
        assert np.array_equal(widen(narrow(q, dtype), dtype), q)
    q = DECODE.inputs(DECODE.problem(9, "float32", **SHAPES[1]), 3)["q"]
    assert not np.array_equal(widen(narrow(q, "bfloat16"), "bfloat16"), q)


def test_a_kernel_without_such_a_bound_has_no_variant_of_such_arithmetic():
    assert Expected(np.ones(1), 0.5).allowed("real") == 0.5
    with pytest.raises(BadInput, match='"arithmetic": "cache"'):
        Expected(np.ones(1), 0.5).allowed("cache")


def test_a_header_s_arithmetic_is_one_of_two_and_the_cache_s_is_a_device_s(tmp_path):
    path = tmp_path / "full.py"
    for text in (FULL.replace('"cache"', '"half"'), FULL.replace('"torch"', '"python"').replace("knobs", "threads")):
        path.write_text(text)
        with pytest.raises(BadInput, match="arithmetic must hold"):
            read_variant(str(path), "decode")

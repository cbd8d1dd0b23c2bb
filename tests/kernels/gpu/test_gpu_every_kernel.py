"""The frame with every kernel: nothing in it is decode's. A stand-in for the device computes what each defines."""

import pytest
from gpu_fixtures import H200, FakeDriver

from advisor.kernels import registry
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.counts import predicted
from advisor.kernels.gpu.memory import need_bytes, sets
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.variant import variants
from advisor.policy.launch.device import launch_of, words

TOOLS = (("cupy-14.2", "cuda"),)
KERNELS = {kernel: found for kernel in registry.kernels() if (found := variants(kernel, (), ("cuda",)))}
SHAPES = {
    "heads": {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 64},
    "d_model": {"batch": 1, "d_model": 64},
    "d_ff": {"batch": 1, "d_model": 64, "d_ff": 96},
    "both": {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 64, "d_model": 128, "d_ff": 96},
}
"""Small shapes by what they are of."""


def shape_of(spec):
    """A small shape that this kernel has."""
    return next(shape for shape in SHAPES.values() if set(shape) == set(spec.parameters) - {"causal", "d_out"})


def choices_of(kernel, dtype, n=9, regime="warm"):
    """A problem of few rows, and the first choice of each CUDA variant of a kernel there."""
    spec = registry.spec(kernel)
    problem = spec.problem(n, dtype, regime, **shape_of(spec))
    listed = gpu_space(H200, spec, KERNELS[kernel], problem, TOOLS)
    return problem, list({choice.build.variant: choice for choice in reversed(listed)}.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_choice_of_any_kernel_is_checked_and_timed(kernel, dtype):
    spec, driver = registry.spec(kernel), FakeDriver()
    problem, found = choices_of(kernel, dtype)
    bench = Bench(driver, spec, 0)
    with GpuPool(H200, spec, KERNELS[kernel]) as pool:
        for choice in found[:1]:
            asked = pool.trial(problem, choice, Ask(2, 10.0), "normal")
            bench.prepare(asked)
            reply = bench.trial(asked)
            assert reply.status == "ok", reply.reason
            assert reply.samples_ns == (driver.call_ns,) * 2
            assert 0 <= reply.error <= reply.tolerance
    assert len(driver.built) == len(found[:1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_launches_memory_and_traffic_of_any_kernel_are_known_before_anything_runs(kernel):
    spec, known = registry.spec(kernel), {variant.name: variant for variant in KERNELS[kernel]}
    problem, found = choices_of(kernel, "float32", regime="cold")
    assert {choice.build.variant for choice in found}
    for choice in found[:3]:
        said = predicted(spec, known[choice.build.variant], problem, choice)
        assert said.dram_read_bytes > 0
        assert said.l2_read_sectors > 0
        launch = launch_of(problem, choice.build)
        symbols = known[choice.build.variant].symbols
        assert [one["symbol"] for one in launch["then"]] == list(symbols[1:])
        assert words(launch).count("; then") == len(symbols) - 1
    assert need_bytes(spec, problem, sets(spec, problem, H200)) < H200.memory_bytes

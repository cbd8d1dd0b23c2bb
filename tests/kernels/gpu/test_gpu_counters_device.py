"""On a GPU whose counters may be read: choices of all languages are counted by one program, each as predicted."""

import importlib.util

import pytest
from gpu_fixtures import DECODE

from advisor.errors import BadInput
from advisor.kernels.gpu import ncu
from advisor.kernels.gpu.counters import attempt, count_all
from advisor.kernels.gpu.counts import Counters, NoCounters, predicted
from advisor.kernels.gpu.device import find
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

GROUPED = {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}
NAMES = ("batched_mma", "split_w4", "batched_triton", "cublas_matmul")


@pytest.fixture(scope="module")
def gpu():
    from advisor.topology.probe import probe

    try:
        found = find(probe(), "cuda:0")
    except BadInput as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    if importlib.util.find_spec("cupy") is None or ncu.find() is None:
        pytest.skip("no CuPy, or no ncu")
    tried = attempt(found)
    if isinstance(tried, NoCounters):
        pytest.skip(f"no counters: {tried.reason}")
    return found


def test_choices_of_all_languages_are_counted_by_one_program(gpu):
    found = [variant for variant in variants("decode", (), GPU_LANGUAGES) if variant.name in NAMES]
    tools = [(tool.name, tool.language) for tool in gpu_tools()]
    wanted = []
    for n in (4096, 65536):
        problem = DECODE.problem(n, "float16", "cold", **GROUPED)
        for variant in found:
            space = gpu_space(gpu, DECODE, (variant,), problem, tools)
            wanted += [(problem, c) for c in space if c.build.knobs == variant.defaults][:1]
    counted = count_all(gpu, DECODE, found, wanted)
    known = {variant.name: variant for variant in found}
    for (problem, choice), one in zip(wanted, counted, strict=True):
        assert isinstance(one, Counters), (choice, one)
        said = predicted(DECODE, known[choice.build.variant], problem, choice)
        assert one.call.dram_read_bytes / said.dram_read_bytes >= 0.95, choice
        if choice.build.variant in ("batched_mma", "split_w4"):
            assert one.call.l2_atomic_sectors + one.call.global_reductions == said.atomics
            assert 0.7 <= one.call.l2_read_sectors / said.l2_read_sectors <= 1.3
    by = {(p.n, c.build.variant): one.call for (p, c), one in zip(wanted, counted, strict=True)}
    for n in (4096, 65536):
        assert by[n, "batched_mma"].l2_read_sectors * 3 < by[n, "split_w4"].l2_read_sectors

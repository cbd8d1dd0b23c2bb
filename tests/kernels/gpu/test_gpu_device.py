"""On a GPU: every variant is right on normal and outlier inputs; a lost context costs one worker and not the run."""

import importlib.util

import pytest
from gpu_fixtures import DECODE

from advisor.errors import BadInput
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.device import find
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import read_variant, variants

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SICK = """/* variant {
  "idea": "writes through a null pointer", "language": "cuda", "symbol": "sick", "dtypes": ["float32"],
  "requires": ["sm_50"], "grid": ["1"], "block": "1", "reads": "1", "writes": "1", "mapping": "one thread", "rank": 99
} */
extern "C" __global__ void sick(const float *q, const float *k, const float *v, float *out, char *w, int b) {
  *(volatile float *)8 = 1;
}
"""


@pytest.fixture(scope="module")
def gpu():
    from advisor.topology.probe import probe

    try:
        found = find(probe(), "cuda:0")
    except BadInput as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("no CuPy")
    return found


def test_every_variant_is_right_with_its_defaults_at_the_papers_sizes(gpu):
    found = variants("decode", (), GPU_LANGUAGES)
    tools = tuple((tool.name, tool.language) for tool in gpu_tools())
    shape = {"batch": 1, "heads": 10, "kv_heads": 2, "head_dim": 128}
    with GpuPool(gpu, DECODE, found) as pool:
        for n in (1, 1919, 1920, 1921, 2808, 4094, 4095):
            problem = DECODE.problem(n, "float16", **shape)
            by_name = {c.build.variant: c for c in gpu_space(gpu, DECODE, found, problem, tools)}
            for choice in by_name.values():
                measured = pool.measure(problem, choice, Ask(1, 60.0))
                assert measured.status == "ok", measured.reason


def test_a_lost_context_is_a_crash_and_the_next_trial_runs(gpu, tmp_path):
    path = tmp_path / "sick.cu"
    path.write_text(SICK)
    sick = read_variant(str(path), "decode")
    found = (sick, *(v for v in variants("decode", (), GPU_LANGUAGES) if v.name == "split_w4"))
    tools = tuple((tool.name, tool.language) for tool in gpu_tools())
    problem = DECODE.problem(1000)
    choices = gpu_space(gpu, DECODE, found, problem, tools)
    with GpuPool(gpu, DECODE, found) as pool:
        first = pool.measure(problem, choices[0], Ask(1, 60.0))
        assert (first.choice.build.variant, first.status) == ("sick", "crashed")
        assert pool.measure(problem, choices[-1], Ask(1, 60.0)).status == "ok"
        assert pool.crew.started == 2

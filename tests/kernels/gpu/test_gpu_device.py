"""On a GPU: every variant is right on normal and outlier inputs; a lost context costs one worker and not the run."""

import importlib.util
import itertools

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

PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
SERVED = ({"heads": 40, "kv_heads": 8}, {"heads": 28, "kv_heads": 4})
SHAPES = (
    ("float32", PAPER),
    *((dtype, {"batch": 1, "head_dim": 128, **shape}) for shape in SERVED for dtype in ("float16", "bfloat16")),
)
ALL = variants("decode", (), GPU_LANGUAGES)
SIZES = (1, 1919, 1920, 1921, 2808, 4094, 4095, 65536, 1048576)
"""The paper's, around the crossovers it names, and the largest that is served."""

GROUPED = {"batched", "batched_mma", "batched_triton"}
"""Those that there are for groups of query heads alone."""

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


@pytest.fixture(scope="module")
def pool(gpu):
    """One worker for all: its context, and what it compiles, cost seconds."""
    with GpuPool(gpu, DECODE, ALL) as found:
        yield found


def plain(gpu, found, problem):
    """One choice of each variant and tool: the defaults where they are valid."""
    tools = tuple((tool.name, tool.language) for tool in gpu_tools())
    defaults = {variant.name: variant.defaults for variant in found}
    chosen = {}
    for choice in gpu_space(gpu, DECODE, found, problem, tools):
        if choice.build.variant not in chosen or choice.build.knobs == defaults[choice.build.variant]:
            chosen[choice.build.variant] = choice
    return list(chosen.values())


@pytest.mark.parametrize(("dtype", "shape"), SHAPES, ids=lambda one: one if isinstance(one, str) else one["heads"])
def test_every_variant_is_right_on_both_draws_at_every_size(gpu, pool, dtype, shape):
    failed, checked = [], set()
    for n in SIZES:
        problem = DECODE.problem(n, dtype, "warm", **shape)
        choices = plain(gpu, ALL, problem)
        pool.prepare(problem, choices)
        for draw, choice in itertools.product(DECODE.draws, choices):
            one = pool.check(problem, choice, 60.0, draw)
            checked.add(choice.build.variant)
            if one.status != "ok":
                failed.append((n, draw, choice.build.variant, one.status, one.reason))
    assert not failed
    able = {variant.name for variant in ALL if dtype in variant.dtypes}
    assert checked == able - (GROUPED if shape == PAPER else set())


def test_every_variant_passes_its_edges_and_is_timed_in_a_graph(gpu, pool):
    problem = DECODE.problem(2808, "float16", "cold", batch=1, heads=28, kv_heads=4, head_dim=128)
    own = {variant.name: variant.arithmetic for variant in ALL}
    for choice in plain(gpu, ALL, problem):
        one = pool.measure(problem, choice, Ask(2, 60.0))
        assert one.status == "ok", (choice.build.variant, one.reason)
        assert dict(one.conditions)["timing"] == "graph"
        assert dict(one.conditions)["arithmetic"] == own[choice.build.variant]
    assert pool.crew.started == 1


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

"""The search over the choices of a device, with made-up times: flat while a call is its launch, then as the traffic."""

from device_tables import SOURCES, gpu, spec, whole
from fake import FakeExecutor

from advisor.kernels.gpu.device import machine_of
from advisor.kernels.gpu.geometry import geometry
from advisor.search.log import Log
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.tune import tune

TOOLS = SpaceOptions((Toolchain("cupy-14.2", "cuda", "cuda"), Toolchain("triton-3.6", "cuda", "triton")), ("none",))
OWN = tuple(v for v in SOURCES.values() if v.language == "cuda" or v.name == "batched_triton")
SHAPE = {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}
LANES = 132 * 32
"""Warps that run at once, a quarter of what fits, so that small n do not fill the device."""


def call_ns(problem, choice):
    """Launch, merging, the cache over what the warps can read together; batched variants read it once a group."""
    variant, knobs = SOURCES[choice.build.variant], dict(choice.build.knobs)
    if variant.launch:
        found = geometry(spec(), variant, problem, choice.build.knobs)
        blocks, warps = found.grid[0] * found.grid[1], found.block // 32
    else:
        blocks, warps = knobs["splits"] * 8, knobs["warps"] // knobs["stages"]
    again = 1.0 if variant.name.startswith("batched") else 1.4
    share = min(1.0, blocks * warps / LANES)
    unrolled = 1.0 + 0.03 * abs(knobs.get("ADV_UNROLL", 4) - 4)
    return 2500.0 + 3.0 * blocks + again * unrolled * problem.n * 8 * 128 * 4 / 4800.0 / share


def test_every_variant_of_a_device_is_looked_at_at_every_n_and_the_default_is_beaten(tmp_path):
    problems = tuple(spec().problem(n, "float16", **SHAPE) for n in (1024, 16384, 262144))
    machine, executor = machine_of(whole({}), gpu()), FakeExecutor(call_ns)
    request = Request(machine, spec(), OWN, problems, Options(TOOLS), "s")
    with Log(str(tmp_path / "log.jsonl")) as log:
        outcome = tune(request, executor, log, clock=executor.clock)
    assert outcome.notes == ()
    for problem, report in zip(problems, outcome.reports, strict=True):
        looked = {trial.choice.build.variant for trial in outcome.trials if trial.problem == problem}
        assert looked == {variant.name for variant in OWN}
        verdict = next(v for v in outcome.verdicts if v.purpose == "final" and v.problem == problem)
        assert call_ns(problem, verdict.winner) <= call_ns(problem, verdict.default)
        assert len(looked) < report.looked < report.space_size / 2

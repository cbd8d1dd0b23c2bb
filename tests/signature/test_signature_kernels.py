"""The kernels of a signature compute what their definition says, on every team at hand."""

from __future__ import annotations

import pytest

from advisor.kernels import registry
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import knob_sets, missing_isa, variants
from advisor.records import Build, Choice, Process, Team
from advisor.search.space import space_options
from advisor.signature.measure import FOLDERS
from advisor.topology.placement import UNPINNED
from advisor.topology.probe import topology


@pytest.mark.parametrize("kernel", ["fork_join", "peak", "read"])
def test_every_build_is_right_on_its_edges(kernel):
    spec, (variant,) = registry.spec(kernel, FOLDERS), variants(kernel, FOLDERS)
    machine = topology("/")
    tool = next(tool for tool in space_options(machine).compilers if tool.language == "c")
    assert not missing_isa(variant, machine)
    with WorkerPool(machine, spec, (variant,)) as pool:
        for problem in spec.edges():
            for knobs in knob_sets(variant, problem):
                build = Build(variant.name, variant.source_hash, knobs, tool.name, "native")
                for threads in (1, 3):
                    process = Process(tool.runtime, "passive", None, "default")
                    found = pool.check(problem, Choice(build, Team(threads, UNPINNED), process), 60.0)
                    assert found.status == "ok", found.reason


def test_a_step_left_out_of_the_arithmetic_would_show():
    """The closed form after `steps` differs from that after one less by more than the tolerance."""
    spec = registry.spec("peak", FOLDERS)
    for steps, dtype in ((64, "float64"), (4096, "float64"), (64, "float32")):
        problem, less = (spec.problem(1, dtype, steps=count) for count in (steps, steps - 1))
        inputs = spec.inputs(problem, 1)
        right, wrong = (spec.reference(one, inputs)["y"] for one in (problem, less))
        assert abs(right.values - wrong.values).max() > (right.tolerance if dtype == "float64" else 0)
    half = spec.reference(spec.problem(1, "float32", steps=2048), inputs)["y"]
    whole = spec.reference(spec.problem(1, "float32", steps=4096), inputs)["y"]
    assert abs(half.values - whole.values).max() > whole.tolerance


def test_flops_and_bytes_are_counted():
    peak, read = registry.spec("peak", FOLDERS), registry.spec("read", FOLDERS)
    assert peak.flops(peak.problem(2, steps=10)) == 2 * 2 * 384 * 10
    assert read.elements(read.problem(100, batch=1, heads=1, kv_heads=1, head_dim=64)).read == 2 * 100 * 64

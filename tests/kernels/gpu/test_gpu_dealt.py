"""Which builds `verify` checks on a device, and where."""

import pytest
from gpu_fixtures import H200

from advisor.kernels.compilers import Compiler
from advisor.kernels.edges import FURTHER, beyond
from advisor.kernels.gpu.checks import hand
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.registry import spec
from advisor.kernels.variant import knob_sets, variants

FORWARD = spec("forward")


def dealt_of(monkeypatch, name, dtype):
    """The problems of forward in a dtype, the variant, and its builds with the problems on which each is checked."""
    tool = Compiler("cupy-14.2", "", "14.2", "cuda", "cuda")
    monkeypatch.setattr("advisor.kernels.gpu.checks.needed_tools", lambda: (tool,))
    (variant,) = (one for one in variants("forward", (), OWN_GPU_LANGUAGES) if one.name == name)
    wanted = tuple(one for one in (*FORWARD.edges(), *beyond(FORWARD)) if one.dtype == dtype)
    dealt, places = hand(H200, FORWARD, variant, wanted), {}
    for problem in wanted:
        for choice in dealt(problem, "normal"):
            places.setdefault(choice.build, []).append(problem)
    return wanted, variant, places


def test_every_build_is_checked_where_its_tiles_are_many(monkeypatch):
    _, _, places = dealt_of(monkeypatch, "tiled_mma", "bfloat16")
    largest = {build: max(problem.n for problem in found) for build, found in places.items()}
    assert len(largest) > 20
    assert set(largest.values()) == {FURTHER[1]}
    of_one = [found[0] for found in places.values() if len(found) == 1]
    assert {dict(problem.shape)["causal"] for problem in of_one} == {0, 1}


@pytest.mark.parametrize(
    ("name", "dtype"), [("tiled_mma", "bfloat16"), ("tiled_dmma", "float64"), ("tiled_tensor", "float64")]
)
def test_no_problem_that_a_variant_takes_is_without_a_check(monkeypatch, name, dtype):
    """Its plain knobs are not valid at small n: others stand in."""
    wanted, variant, places = dealt_of(monkeypatch, name, dtype)
    taken = {problem for problem in wanted if knob_sets(variant, problem)}
    assert {problem.n for problem in taken} >= {1, 17, 131, *FURTHER[:2]}
    assert {problem for found in places.values() for problem in found} == taken

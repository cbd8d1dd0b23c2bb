"""Which builds `verify` checks on a device, and where."""

from gpu_fixtures import H200

from advisor.kernels.compilers import Compiler
from advisor.kernels.edges import FURTHER, beyond
from advisor.kernels.gpu.checks import hand
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.registry import spec
from advisor.kernels.variant import variants

FORWARD = spec("forward")


def test_every_build_is_checked_where_its_tiles_are_many_the_plain_one_everywhere(monkeypatch):
    monkeypatch.setattr(
        "advisor.kernels.gpu.checks.needed_tools", lambda: (Compiler("cupy-14.2", "", "14.2", "cuda", "cuda"),)
    )
    (variant,) = (one for one in variants("forward", (), OWN_GPU_LANGUAGES) if one.name == "tiled_mma")
    wanted = tuple(one for one in (*FORWARD.edges(), *beyond(FORWARD)) if one.dtype == "bfloat16")
    dealt = hand(H200, FORWARD, variant, wanted)
    places = {}
    for problem in wanted:
        for choice in dealt(problem, "normal"):
            places.setdefault(choice.build, []).append(problem)
    plain = [build for build in places if build.knobs == variant.defaults]
    others = {build: found for build, found in places.items() if build not in plain}
    assert min(len(places[build]) for build in plain) > 4
    assert len(others) > 20
    assert {len(found) for found in others.values()} == {1}
    assert {found[0].n for found in others.values()} == {FURTHER[1]}
    assert {dict(found[0].shape)["causal"] for found in others.values()} == {0, 1}

"""Which choices of a variant `verify` checks on a device: the plain one everywhere, each other one once a dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.gpu.tools import needed_tools
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Build, Choice, Gpu, Problem

Hand = Callable[[Problem, str], Sequence[Choice]]
"""What is checked on a problem and a draw of its inputs."""


def hand(gpu: Gpu, spec: KernelSpec, variant: Variant, problems: Sequence[Problem]) -> Hand:
    """Deal one variant's builds and knobs out to the problems.

    Args:
        gpu: where it runs.
        spec: the kernel's DNF.
        variant: one for a device.
        problems: all that will be checked.

    Raises:
        BadInput: no CuPy.
    """
    tools = [(tool.name, tool.language) for tool in needed_tools()]
    spaces = {problem: gpu_space(gpu, spec, [variant], problem, tools) for problem in problems}
    turns = _turns(spaces)

    def dealt(problem: Problem, draw: str) -> Sequence[Choice]:
        plain = next((c for c in spaces[problem] if c.build.knobs == variant.defaults), None)
        return [c for c in spaces[problem] if c == plain or turns[problem.dtype, c.build] == problem]

    return dealt


def _turns(spaces: dict[Problem, tuple[Choice, ...]]) -> dict[tuple[str, Build], Problem]:
    """The one problem of each dtype on which a build is checked: the builds take turns over the problems they have."""
    places: dict[tuple[str, Build], list[Problem]] = {}
    for problem, choices in spaces.items():
        for choice in choices:
            places.setdefault((problem.dtype, choice.build), []).append(problem)
    return {key: found[turn % len(found)] for turn, (key, found) in enumerate(places.items())}

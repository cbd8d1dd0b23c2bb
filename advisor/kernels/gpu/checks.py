"""Which choices of a variant `verify` checks on a device: everywhere the plain one, or the first where that is not
valid, each other one once a dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.gpu.tools import needed_tools
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Build, Choice, Gpu, Pairs, Problem

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
        choices = spaces[problem]
        plain = next((c for c in choices if c.build.knobs == variant.defaults), next(iter(choices), None))
        return [c for c in choices if c == plain or turns[problem.dtype, c.build] == problem]

    return dealt


def _turns(spaces: dict[Problem, tuple[Choice, ...]]) -> dict[tuple[str, Build], Problem]:
    """The one problem of each dtype on which a build is checked: the builds take turns over the shapes they have, each
    at its largest n, where tiles are many and one of them is not full."""
    places: dict[tuple[str, Build], dict[Pairs, Problem]] = {}
    for problem in sorted(spaces, key=lambda problem: problem.n):
        for choice in spaces[problem]:
            places.setdefault((problem.dtype, choice.build), {})[problem.shape] = problem
    return {key: list(found.values())[turn % len(found)] for turn, (key, found) in enumerate(places.items())}

"""What the part `ahead` compiles: the choices that the parts after it call, each program once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpu_chain
from gpu_cells import CELLS, known_of, problem_of, spec_of
from gpu_ground import Tuned, table_choice, tuned
from gpu_race import MOST_LIBRARIES, spread

from advisor.kernels.gpu.source import options as compiler_options
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.records import Choice, Machine, Problem
from advisor.search.space import space, space_options

AHEAD_N = (512, 1)
"""Triton's programs differ by whether numbers are multiples of 16, or 1, not by n: what is compiled here serves most n.
The second one where a cell has it."""

MOST_AHEAD = 12
"""Knob sets of a variant in a cell that are compiled ahead of a tuning; it looks at some twenty choices in all."""


def to_compile(
    folder: str, machine: Machine, labels: Sequence[str], whole: Sequence[str] = ()
) -> list[tuple[Problem, Choice]]:
    """What the next part calls of ours, each program once: of a tuned cell the table's choices and the best looks, else
    a share of its choices, evenly apart. Libraries bring compiled code.

    Args:
        folder: where a tuning may have left tables.
        machine: that of the device.
        labels: the cells.
        whole: those of which everything is compiled.
    """
    found: dict[Any, tuple[Problem, Choice]] = {}
    options = space_options(machine)
    kernels = dict.fromkeys(CELLS[label].kernel for label in labels)
    left = {kernel: tuned(folder, kernel) for kernel in kernels}
    for label, n in ((label, n) for label in labels for n in AHEAD_N if n == AHEAD_N[0] or n in CELLS[label].sizes):
        kernel = CELLS[label].kernel
        own = {one.name: one for one in known_of(kernel) if one.language in OWN_GPU_LANGUAGES}
        problem = problem_of(label, n, "warm")
        choices = space(machine, spec_of(kernel), tuple(own.values()), problem, options)
        chain = spread(choices, gpu_chain.KNOBS) if label in gpu_chain.LABELS.values() else []
        known = choices if label in whole else after(left[kernel], label, choices)
        for choice in [*(known or spread(choices, MOST_AHEAD)), *chain]:
            variant, knobs = own[choice.build.variant], choice.build.knobs
            program = compiler_options(variant, problem, knobs) if variant.launch else (problem, knobs)
            found.setdefault((kernel, variant.name, program), (problem, choice))
    return list(found.values())


def after(left: Tuned, label: str, choices: Sequence[Choice]) -> list[Choice]:
    """Of some choices those that a tuned cell's race will call; none where it was not tuned."""
    problems = [problem_of(label, n) for n in CELLS[label].sizes]
    told = [table_choice(left.table, problem) for problem in problems]
    looks = [left.looks.get(problem, {}) for problem in problems]
    best = [one for seen in looks for one in sorted(seen, key=seen.__getitem__)[:MOST_LIBRARIES]]
    return [one for one in choices if one in told or one in best]

"""Section 6 of the paper on CPUs: C beside Fortran, and the growth of the whole block. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from advisor.validate import judge
from advisor.validate.records import NOT_TESTABLE, Estimate, Language, Series
from advisor.validate.verdicts import (
    APART,
    FEW,
    NOISY,
    PARITY,
    Case,
    Evidence,
    above,
    below,
    decided,
    verdict,
    within,
    words,
)
from advisor.words import many

BLOCK = "block"

JUMP_FROM, JUMP_TO = 2048, 4096
"""Where the block's time jumps with one thread. Source: Mullin and Hains, section 6.1."""

JUMP = 7.5
"""A step that large is a jump: the geometric middle of 12.5, the paper's, and 4.5, its largest other doubling."""

WORST_PENALTY, MILD_PENALTY, MILD_N = 6.98, 1.3, 256
"""All threads over the best: the worst of all n, and the worst from MILD_N on. Source: the same."""

FEWEST_SIZES = 3
"""Ratios of fewer sizes show no pattern, nor that there is none."""


def _lines(evidence: Evidence, kernel: str) -> list[Language]:
    """Ratios of one kernel with one thread, of the preferred pair of compilers; ascending in n."""
    own = [one for one in evidence.languages if (one.kernel, one.threads) == (kernel, 1)]
    first = [one for one in own if (one.compiler, one.fortran_compiler) == (own[0].compiler, own[0].fortran_compiler)]
    return sorted(first, key=lambda one: one.n)


def _ratios(lines: Sequence[Language]) -> str:
    found = ", ".join(f"{words(one.ratio)} at n={one.n}" for one in lines)
    return f"{lines[0].variant}, {lines[0].compiler} / {lines[0].fortran_compiler}: {found}"


def _undecided(lines: Sequence[Language]) -> Case | None:
    """The case where ratios cannot be judged."""
    if not lines:
        return Case("-", NOT_TESTABLE, "not measured in both languages: no Fortran compiler, no time, or not asked for")
    if any(one.ratio.low is None for one in lines):
        return Case(_ratios(lines), NOT_TESTABLE, FEW)
    return None


def c_is_faster(evidence: Evidence) -> Case:
    """The gated MLP at every n, one thread."""
    lines = _lines(evidence, "mlp")
    undecided = _undecided(lines)
    if undecided:
        return undecided
    faster = [one for one in lines if below(one.ratio, 1.0)]
    where = f"{len(faster)} of {many(len(lines), 'size')}"
    why = f"C is faster at {where}, its whole interval below 1; compilers differ by version"
    slower = any(above(one.ratio, 1 / APART) for one in lines)
    return decided(len(faster) == len(lines), slower, (_ratios(lines), why))


def no_pattern(evidence: Evidence) -> Case:
    """RMSNorm at every n, one thread: sometimes one language is faster, sometimes the other."""
    lines = _lines(evidence, "rmsnorm")
    undecided = _undecided(lines)
    if undecided:
        return undecided
    if len(lines) < FEWEST_SIZES:
        return Case(_ratios(lines), NOT_TESTABLE, f"fewer than {FEWEST_SIZES} sizes")
    mixed = any(below(one.ratio, 1.0) for one in lines) and any(above(one.ratio, 1.0) for one in lines)
    tied = [one.ratio for one in lines if not below(one.ratio, 1.0) and not above(one.ratio, 1.0)]
    level = len(tied) == len(lines)
    why = "no pattern: either language is faster somewhere, or none anywhere; the paper's are single shots"
    if not mixed and not all(within(one, 1 / PARITY, PARITY) for one in tied):
        return Case(_ratios(lines), NOT_TESTABLE, f"{why}; {NOISY}")
    return Case(_ratios(lines), verdict(mixed or level), why)


def _block(evidence: Evidence, threads: int) -> list[Series]:
    """The chain of naive kernels, else the variant that moves most, of those measured at both ends of the jump."""
    own = judge.pinned(judge.good(evidence.series, BLOCK), evidence.node)
    lines = [line for (_, _, count), line in judge.by_variant(own).items() if count == threads]
    both = [line for line in lines if {JUMP_FROM, JUMP_TO} <= {one.problem.n for one in line}]
    return max(both, key=lambda line: (line[0].variant == "chain_naive", line[-1].moved), default=[])


def _steps(line: Sequence[Series]) -> list[tuple[int, int, Estimate]]:
    """(n, next n, time over time a doubling) of neighbouring sizes, however far apart these are."""
    found = [judge.growth_between(low, high) for low, high in pairwise(line)]
    return [(one.low_n, one.high_n, _doubling(one.exponent)) for one in found]


def _doubling(exponent: Estimate) -> Estimate:
    """What an exponent means for twice the size."""
    low, high = (None if end is None else 2**end for end in (exponent.low, exponent.high))
    return Estimate(2**exponent.value, low, high)


def jumps(evidence: Evidence) -> Case:
    """Time at JUMP_TO over time at JUMP_FROM, one thread."""
    line = _block(evidence, 1)
    if not line:
        why = f"no variant ran with one thread at n={JUMP_FROM} and n={JUMP_TO}: ask for them, with more budget"
        return Case("-", NOT_TESTABLE, why)
    ends = [one for one in line if one.problem.n in (JUMP_FROM, JUMP_TO)]
    ((_, _, step),) = _steps(ends)
    flops = ends[1].flops / ends[0].flops
    others = [f"{words(one)}x a doubling from n={low}" for low, high, one in _steps(line) if high <= JUMP_FROM]
    ours = f"{line[0].variant}: {words(step)}x; before it {', '.join(others) or 'nothing'}"
    why = f"a jump is {JUMP}x; flops grow by {flops:.1f}x"
    return decided(above(step, JUMP), below(step, JUMP), (ours, why), step)


def mild(evidence: Evidence) -> Case:
    """All threads over the best count, at every n of the variant in the paper's form."""
    own = [c for c in evidence.crossovers if c.kernel == BLOCK and c.all_over_best is not None]
    names = sorted({c.variant for c in own}, key=lambda name: (name != "chain_naive", name))
    lines = sorted((c for c in own if c.variant == names[0]), key=lambda c: c.n) if names else []
    most = evidence.node.cpus
    if most < 2 or not lines:
        return Case("-", NOT_TESTABLE, "one CPU, or the block was not measured with one thread and with all")
    ours = f"{names[0]}: " + ", ".join(f"{words(c.all_over_best)}x at n={c.n}" for c in lines)
    nodes = evidence.node.numa_nodes
    where = f"{many(most, 'CPU')} on {many(nodes, 'NUMA node')}, where the paper has 128 on 8"
    found = [(c.all_over_best, _most(c.n)) for c in lines if c.all_over_best is not None]
    under, over = (all(below(*one) for one in found), any(above(*one) for one in found))
    why = f"at most {WORST_PENALTY}x, and {MILD_PENALTY}x from n={MILD_N} on; {where}"
    return decided(under, over, (ours, why), *(one for one, _ in found))


def _most(n: int) -> float:
    """What all threads may cost over the best."""
    return MILD_PENALTY if n >= MILD_N else WORST_PENALTY


SECTION_SIX = (
    ("C is faster than Fortran on CPUs (MLP)", "6.1", "0.54 to 0.84 at 11 sizes, 1 thread", c_is_faster),
    ("RMSNorm: neither language is faster", "6.1", "0.70 to 1.55 at 11 sizes, no trend", no_pattern),
    ("block: time jumps at n=4096 (1 thread)", "6.1", "12.5x from n=2048; 2.5 to 4.5x before", jumps),
    ("block: all threads cost little", "6.1", "6.98x at n=64, 1.0 to 1.3x from n=256", mild),
)
"""Finding, section, the paper's figure, judge."""

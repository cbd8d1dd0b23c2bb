"""The paper's findings on CPUs, one function each: its figure, ours, the verdict. Pure. Section 6: section_six.py.

A verdict is `not testable here` where this machine or this run cannot show the thing either way: too few CPUs, sizes
that were not measured. It says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from advisor.validate import judge, published
from advisor.validate.records import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    Crossover,
    Estimate,
    Finding,
    Fusion,
    Node,
    Plateau,
    Series,
)
from advisor.validate.section_six import SECTION_SIX
from advisor.validate.verdicts import (
    APART,
    CLEAR,
    PARITY,
    Case,
    Evidence,
    above,
    below,
    decided,
    outside,
    verdict,
    within,
    words,
)
from advisor.words import many

EXPONENT_BAND = 0.25
"""An exponent so far from the predicted one still counts: the paper's own, from single shots, lie up to 0.37 away."""

STALLED = 10.0
"""Slower than that by adding threads is no matter of caches or bandwidth: those cost a factor of a few."""

FADED = 0.1
"""The plateau has faded when the penalty is down to this share of that at the smallest n; in the paper to 0.0024."""

FLAT = 2.0
"""Times that differ by less over a range of 8 and more in n are a plateau; in the paper 1.4 over a range of 32."""

EFFICIENCY = 0.47
"""Speed-up over CPUs at the largest n. Source: Mullin and Hains, section 3.1: 60.6 on 128 cores."""

FUSION_N = 4096
"""Where the paper's fused form wins. Source: Mullin and Hains, section 4.2."""

LARGE_N = 1024
"""Under it a call is too short for what the paper says of its largest sizes, 4096 and 8192."""

CROWD_WORST, CROWD_GAIN, CROWD_N = 2.9, 1.35, 16384
"""Twice as many threads as cores on Anvil: the worst slowdown, and the gain from this n on. Source: the same, 5.2."""

STACK_TEST = "tests/kernels/*/test_*_variants.py do the same with stacks of 8 MB and 1 MB a thread"


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Every finding, in the order of the paper."""
    rows = [
        ("best thread count grows with n (forward)", "3.1", "4 at n=64, 128 from n=2048", best_grows),
        ("all threads hurt small n (forward)", "3.1", "128 threads 14.5x slower than the best at n=64", small_n_hurt),
        ("time grows with n^2 (forward, 1 thread)", "3.1", _published_exponents(), quadratic),
        ("all threads pay at the largest n (forward)", "3.1", "60.6x on 128 cores at n=8192: 0.47 a core", speed_up),
        ("fused beats forward + backward, all threads", "4.2", "0.72 at n=4096, 0.96 at n=8192", fused_wins),
        ("fused is at parity with one thread", "4.2", "1.19 at n=4096", fused_alone),
        ("fusion pays more with more threads", "4.2", "1.19 with 1 thread to 0.72 with 128, n=4096", fused_scales),
        ("reductions on the stack crash at 8 MB", "4.1", "SIGSEGV at batch * n * d * 8 bytes = 8 MB", stack_crash),
        ("decode: all threads stall at small n", "5.1", "128 threads 535x slower than 64 at n=1024", stalls),
        ("decode: that is a plateau and fades with n", "5.1", "flat to n=32768; 1.28x at n=1048576", fades),
        ("decode: twice as many threads as cores cost little", "5.2", "Anvil: at most 2.9x", crowd_costs),
        ("decode: and pay at large n", "5.2", "Anvil: 1.35x faster from n=16384", crowd_pays),
        *SECTION_SIX,
    ]
    found = [Finding(name, section, paper, *case(evidence)) for name, section, paper, case in rows]
    return (*found, *_elsewhere())


def _elsewhere() -> tuple[Finding, ...]:
    """What no CPU run of ours can say."""
    gpu = "a run on CPUs says nothing on GPUs; `advisor validate --device cuda:0` does"
    return (
        Finding("forward moves twice the predicted bytes", "3.3", "151.4 of 75.5 MB (A100)", "-", NOT_TESTABLE, gpu),
        Finding("atomics decide fused on GPUs", "4.3-4.7", "1.14-1.84x, then 0.40-0.92x", "-", NOT_TESTABLE, gpu),
        Finding("decode on GPU grows with n", "5.3", "225x over 1024x in n (A100)", "-", NOT_TESTABLE, gpu),
        Finding("Fortran is faster than C on GPUs", "6.2", "1.45 to 2.81 (norm and MLP)", "-", NOT_TESTABLE, gpu),
        Finding("the block moves more than M_block", "6.2", "15.74 of 10.49 MB (A100)", "-", NOT_TESTABLE, gpu),
    )


def paper_form(series: Iterable[Series], kernel: str) -> str | None:
    """The variant that is nearest to the paper's code: `naive`, else the one that moves most at the largest n."""
    own = judge.good(series, kernel)
    if any(one.variant == "naive" for one in own):
        return "naive"
    return max(own, key=lambda s: (s.problem.n, s.moved)).variant if own else None


def _forward(evidence: Evidence) -> list[Crossover]:
    """Crossovers of the paper's form of forward, ascending in n."""
    form = paper_form(evidence.series, "forward")
    own = [c for c in evidence.crossovers if (c.kernel, c.variant) == ("forward", form)]
    return sorted(own, key=lambda c: c.n)


# --- section 3.1 ---


def best_grows(evidence: Evidence) -> Case:
    """Compare the best count of the smallest n with that of the largest."""
    lines = _forward(evidence)
    if len(lines) < 2:
        return Case("-", NOT_TESTABLE, "fewer than two sizes with two thread counts")
    ours = f"{lines[0].variant}: " + ", ".join(f"{c.best} at n={c.n}" for c in lines)
    most = max(lines[0].tried)
    capped = {min(c.published, most) for c in lines if c.published is not None}
    if len(capped) < 2 and lines[0].best >= lines[-1].best:
        return Case(
            ours, NOT_TESTABLE, f"the paper's own table, cut at {many(most, 'thread')}, shows no growth at these n"
        )
    first, last = ((line.best, *line.tied) for line in (lines[0], lines[-1]))
    why = f"counts up to {most}; the paper's go to {published.THREADS}"
    if max(first) < min(last) or max(last) <= min(first):
        return Case(ours, verdict(max(first) < min(last)), why)
    return Case(ours, NOT_TESTABLE, f"{why}; the best counts of the two ends are not told apart")


def small_n_hurt(evidence: Evidence) -> Case:
    """All threads over the best, at the smallest n that table 1 has."""
    lines = [c for c in _forward(evidence) if c.published is not None and c.all_over_best is not None]
    if not lines:
        return Case("-", NOT_TESTABLE, "no size of table 1 was measured with all threads")
    first = lines[0]
    most = evidence.node.cpus
    over = first.all_over_best or Estimate(1.0, None, None)
    best = "all are best" if first.best == most else f"best {first.best}"
    ours = f"{first.variant}: {many(most, 'thread')} {words(over)}x at n={first.n}, {best}"
    if above(over, CLEAR):
        return Case(ours, REPRODUCED, f"{many(most, 'CPU')} where the paper has {published.THREADS}")
    if most <= (first.published or 0):
        return Case(
            ours,
            NOT_TESTABLE,
            f"the paper's best there, {many(first.published or 0, 'thread')}, is all we have or more",
        )
    return decided(False, below(over, CLEAR), (ours, f"the limit is {CLEAR}x, on {many(most, 'CPU')}"), over)


def _published_exponents() -> str:
    """Of table 1's column of one thread."""
    rows = published.forward()
    steps = [math.log2(b.one_thread_s / a.one_thread_s) for a, b in pairwise(rows)]
    whole = math.log(rows[-1].one_thread_s / rows[0].one_thread_s) / math.log(rows[-1].n / rows[0].n)
    return f"exponent {whole:.2f} from n={rows[0].n} to {rows[-1].n}, {min(steps):.2f} to {max(steps):.2f} a doubling"


def quadratic(evidence: Evidence) -> Case:
    """The exponent over the whole range and over the last step, with one thread."""
    form = paper_form(evidence.series, "forward")
    line = judge.by_variant(judge.pinned(judge.good(evidence.series, "forward"), evidence.node)).get(
        ("forward", form or "", 1), []
    )
    if len(line) < 2:
        return Case("-", NOT_TESTABLE, "fewer than two sizes with one thread")
    whole, last = judge.growth_between(line[0], line[-1]), judge.growth_between(line[-2], line[-1])
    ours = f"{form}: {words(whole.exponent)} from n={whole.low_n} to {whole.high_n}, last step {words(last.exponent)}"
    low, high = (whole.by_flops + side * EXPONENT_BAND for side in (-1, 1))
    why = f"predicted {whole.by_flops:.2f} by flops, {whole.by_moved:.2f} by elements moved; band {EXPONENT_BAND}"
    found = whole.exponent
    return decided(within(found, low, high), outside(found, low, high), (ours, why), found)


def speed_up(evidence: Evidence) -> Case:
    """One thread over the best, at the largest n."""
    lines = [c for c in _forward(evidence) if c.speedup is not None]
    if evidence.node.cpus < 2 or not lines:
        return Case("-", NOT_TESTABLE, "one CPU, or no size with one thread and more")
    last = lines[-1]
    up = last.speedup or Estimate(1.0, None, None)
    share = up.value / evidence.node.cpus
    ours = f"{last.variant}: {words(up)}x on {many(evidence.node.cpus, 'CPU')} at n={last.n}: {share:.2f} a CPU"
    if last.n < LARGE_N:
        return Case(ours, NOT_TESTABLE, f"the largest n is under {LARGE_N}")
    why = f"at least {EFFICIENCY} a CPU; fewer CPUs share more bandwidth each"
    least = EFFICIENCY * evidence.node.cpus
    return decided(above(up, least), below(up, least), (ours, why), up)


# --- section 4 ---


def _best_fusion(evidence: Evidence, threads: int, n: int | None = None) -> Fusion | None:
    """The fastest fused variant at the largest n, over the baseline that is most like it: pair, else naive."""
    own = [f for f in evidence.fusions if f.threads == threads and n in (None, f.n)]
    own = [f for f in own if f.n == max(g.n for g in own)]
    like = [f for f in own if f.baseline == "pair"] or own
    return min(like, key=lambda f: f.ratio.value, default=None)


def _fusion_words(found: Fusion) -> str:
    return f"{found.variant} / {found.baseline}: {words(found.ratio)} at n={found.n}, {found.threads}T"


def fused_wins(evidence: Evidence) -> Case:
    """Over the baseline, with all threads, from FUSION_N on."""
    found = _best_fusion(evidence, evidence.node.cpus)
    if found is None:
        return Case("-", NOT_TESTABLE, "no fused variant ran beside forward + backward")
    if found.n < FUSION_N:
        return Case(_fusion_words(found), NOT_TESTABLE, f"n={FUSION_N} was not measured: ask for it, with more budget")
    ours = (_fusion_words(found), "below 1 with its whole interval")
    return decided(below(found.ratio, 1.0), above(found.ratio, 1 / APART), ours, found.ratio)


def fused_alone(evidence: Evidence) -> Case:
    """Over the baseline, with one thread, at the largest n."""
    found = _best_fusion(evidence, 1)
    if found is None:
        return Case("-", NOT_TESTABLE, "no fused variant ran beside forward + backward with one thread")
    if found.n < LARGE_N:
        return Case(_fusion_words(found), NOT_TESTABLE, f"the largest n is under {LARGE_N}")
    limits = 1 / PARITY, PARITY
    ours = (_fusion_words(found), f"within {limits[0]:.2f} and {PARITY}; the paper's n is {FUSION_N}")
    return decided(within(found.ratio, *limits), outside(found.ratio, *limits), ours, found.ratio)


def fused_scales(evidence: Evidence) -> Case:
    """The same variant over the same baseline, with one thread and with all."""
    most = evidence.node.cpus
    wide = _best_fusion(evidence, most)
    if wide is None or most < 2:
        return Case("-", NOT_TESTABLE, "one CPU, or no fused variant beside forward + backward")
    same = [f for f in evidence.fusions if (f.variant, f.baseline, f.n) == (wide.variant, wide.baseline, wide.n)]
    alone = next((f for f in same if f.threads == 1), None)
    if alone is None:
        return Case(_fusion_words(wide), NOT_TESTABLE, "not measured with one thread")
    ours = f"{_fusion_words(alone)}; {words(wide.ratio)} with {most}T"
    if wide.n < LARGE_N:
        return Case(ours, NOT_TESTABLE, f"the largest n is under {LARGE_N}")
    why = f"the intervals must lie apart; the paper's n is {FUSION_N}"
    grew = below(wide.ratio, (alone.ratio.low or 0.0) / APART)
    same_or_less = above(wide.ratio, (alone.ratio.high or math.inf) / APART)
    return decided(grew, same_or_less, (ours, why), wide.ratio, alone.ratio)


def stack_crash(evidence: Evidence) -> Case:
    """Our variants at the size that crashed the paper's: scratch is on the heap, so none should."""
    if not evidence.stack:
        return Case("-", NOT_TESTABLE, "backward and fused were not asked for, or have no variants")
    limit = evidence.node.stack_limit_bytes
    under = "no stack limit" if limit is None else f"stack limit {limit / 2**20:.0f} MB"
    failed = sorted((check for check in evidence.stack if check.status != "ok"), key=lambda c: c.status != "crashed")
    ours = f"{len(evidence.stack) - len(failed)} of {many(len(evidence.stack), 'variant')} right at 8 MB, {under}"
    if failed:
        found = REPRODUCED if failed[0].status == "crashed" else NOT_TESTABLE
        return Case(f"{ours}; {failed[0].variant}: {failed[0].status}", found, failed[0].reason[:120])
    return Case(ours, NOT_REPRODUCED, f"as meant: no reductions of arrays; {STACK_TEST}")


# --- section 5 ---


def _stolen(evidence: Evidence) -> list[Plateau]:
    """All threads beside the neighbour, the worse of pinned and not pinned, ascending in n."""
    most = evidence.node.cpus
    worst: dict[int, Plateau] = {}
    for line in evidence.plateau:
        if line.threads == most and line.beside_over_base is not None:
            known = worst.get(line.n)
            if known is None or (known.beside_over_base or 0.0) < line.beside_over_base:
                worst[line.n] = line
    return [worst[n] for n in sorted(worst)]


def _quiet(evidence: Evidence, n: int) -> float | None:
    """All threads over half of them at an n without a neighbour, the worse of pinned and not pinned."""
    found = [p.quiet_over_base for p in evidence.plateau if p.n == n and p.threads == evidence.node.cpus]
    return max((one for one in found if one is not None), default=None)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}x"


def _cause(node: Node) -> str:
    """What may be said of the cause."""
    if node.numa_nodes <= 1:
        return "a stolen core does it on one NUMA node, so a plateau alone is no sign of NUMA"
    return f"one core was stolen; on {node.numa_nodes} NUMA nodes this run does not tell the causes apart"


def stalls(evidence: Evidence) -> Case:
    """All threads over half of them at the smallest n, beside one busy neighbour."""
    lines = _stolen(evidence)
    if not lines or evidence.node.cpus < 2:
        return Case("-", NOT_TESTABLE, "one CPU, or decode was not measured beside a neighbour")
    first = lines[0]
    quiet = _quiet(evidence, first.n)
    ours = (
        f"{first.threads} over {many(first.base_threads, 'thread')} at n={first.n}: quiet {_times(quiet)}, "
        f"one core stolen {_times(first.beside_over_base)} ({'pinned' if first.pinned else 'not pinned'})"
    )
    busy = "; this machine was not quiet" if quiet is not None and quiet >= STALLED else ""
    return Case(ours, verdict((first.beside_over_base or 0.0) >= STALLED), _cause(evidence.node) + busy)


def fades(evidence: Evidence) -> Case:
    """The stolen time's course: flat over small n, the penalty gone at large n."""
    lines = _stolen(evidence)
    if len(lines) < 2 or (lines[0].beside_over_base or 0.0) < STALLED:
        return Case("-", NOT_TESTABLE, "no stall at the smallest n, or only one n was measured")
    first, last = lines[0], lines[-1]
    if (_quiet(evidence, first.n) or 0.0) >= STALLED:
        return Case("-", NOT_TESTABLE, "threads stalled without our neighbour too: this machine was not quiet")
    share = (last.beside_over_base or 0.0) / (first.beside_over_base or 1.0)
    level = [p for p in lines if p.beside_ns and first.beside_ns and p.beside_ns < FLAT * first.beside_ns]
    ours = (
        f"{first.beside_over_base:.3g}x at n={first.n}, {last.beside_over_base:.3g}x at n={last.n}; within {FLAT:g}x "
        f"of the first up to n={level[-1].n}"
    )
    flat = level[-1].n >= 8 * first.n
    return Case(ours, verdict(flat and share <= FADED), _cause(evidence.node))


def crowd(evidence: Evidence) -> list[tuple[int, Estimate]]:
    """(n, time with twice as many threads as CPUs over time with as many), neither pinned, ascending in n."""
    most = evidence.node.cpus
    own = [s for s in judge.good(evidence.series, "decode") if not s.pinned]
    alone = {(s.variant, s.problem): s for s in own if s.threads == most}
    pairs = [(s, alone.get((s.variant, s.problem))) for s in own if s.threads == 2 * most]
    found = [(s.problem.n, judge.ratio(s, base)) for s, base in pairs if base is not None]
    return sorted(found, key=lambda pair: pair[0])


def crowd_costs(evidence: Evidence) -> Case:
    """The worst of all n."""
    lines = crowd(evidence)
    if not lines:
        return Case("-", NOT_TESTABLE, "decode was not measured with twice as many threads as CPUs")
    n, worst = max(lines, key=lambda line: line[1].value)
    ours = f"at most {words(worst)}x, at n={n}"
    cpus = evidence.node.cpus
    why = f"{2 * cpus} threads on {many(cpus, 'CPU')}, spinning as the runtime does by default"
    return decided(below(worst, CROWD_WORST), above(worst, CROWD_WORST), (ours, why), worst)


def crowd_pays(evidence: Evidence) -> Case:
    """The best of n from CROWD_N on."""
    lines = [line for line in crowd(evidence) if line[0] >= CROWD_N]
    if not lines:
        return Case("-", NOT_TESTABLE, f"no n from {CROWD_N} on was measured with twice as many threads as CPUs")
    n, best = min(lines, key=lambda line: line[1].value)
    ours = f"{1 / best.value:.2f}x as fast at n={n}"
    why = f"faster by {CLEAR}x at least; the paper has {CROWD_GAIN}x"
    return decided(below(best, 1 / CLEAR), above(best, 1 / CLEAR), (ours, why), best)

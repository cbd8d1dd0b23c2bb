"""Judges: exponents, crossovers, fused over naive, speeds, the plateau. Pure functions of records; nothing is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.spec import KernelSpec
from advisor.kernels.transformer import paper_elements
from advisor.search.samples import log_quantiles, log_ratio, resample, smooth_p25
from advisor.validate import published
from advisor.validate.records import (
    Crossover,
    Estimate,
    Floor,
    Formula,
    Fusion,
    Growth,
    Language,
    Node,
    Plateau,
    Predicted,
    Series,
    Traffic,
    Window,
)

FEWEST_FOR_INTERVAL = 5
"""Rounds under which a bootstrap interval would only look like one."""

ALPHA = 0.05

BASELINES = ("naive", "pair")
"""Variants of fused that are forward then backward with A kept: what a fused form is compared with.

`naive` is the paper's form; `pair` is tiled like the fused ones, so that the ratio to it is that of the fusion alone.
"""

PREDICTED_MB = 75.497
"""M_fwd at n = 2048, head_dim 64, batch 2, 8 bytes, in 10^6 bytes. Source: Mullin and Hains, section 3.3."""

PREDICTED_BLOCK_MB = 10.49
"""M_block at n = 256, head_dim 64, d_ff 256, batch 2, 8 bytes. Source: the same, section 6.2."""


def good(series: Iterable[Series], kernel: str = "") -> list[Series]:
    """Those that have samples, of one kernel where it is named."""
    return [s for s in series if s.samples_ns and (not kernel or s.problem.kernel == kernel)]


def pinned(series: Iterable[Series], node: Node) -> list[Series]:
    """Those with a CPU for each thread."""
    return [s for s in series if s.pinned and s.threads <= node.cpus]


def ratio(above: Series, below: Series) -> Estimate:
    """Time over time, of one race: rounds are resampled together, so that what both felt cancels."""
    if min(len(above.samples_ns), len(below.samples_ns)) < FEWEST_FOR_INTERVAL:
        return Estimate(smooth_p25(above.samples_ns) / smooth_p25(below.samples_ns), None, None)
    found = log_ratio(below.samples_ns, above.samples_ns, ALPHA, seed=0)
    return Estimate(math.exp(found.centre), math.exp(found.low), math.exp(found.high))


def _log_apart(above: Series, below: Series) -> Estimate:
    """Log of time over time, of two races: the two were measured apart, so they are resampled apart."""
    centre = math.log(smooth_p25(above.samples_ns) / smooth_p25(below.samples_ns))
    if min(len(below.samples_ns), len(above.samples_ns)) < FEWEST_FOR_INTERVAL:
        return Estimate(centre, None, None)
    drawn = [
        log_quantiles(np.asarray(one.samples_ns, float), resample(len(one.samples_ns), seed))
        for seed, one in enumerate((below, above))
    ]
    ends = np.quantile(drawn[1] - drawn[0], [ALPHA / 2, 1 - ALPHA / 2])
    return Estimate(centre, float(ends[0]), float(ends[1]))


def ratio_apart(above: Series, below: Series) -> Estimate:
    """Time over time, of two races."""
    return Estimate(*(None if end is None else math.exp(end) for end in _log_apart(above, below)))  # type: ignore[arg-type]


def _exponent(low: Series, high: Series) -> Estimate:
    """Log ratio of times over log ratio of n."""
    span = math.log(high.problem.n / low.problem.n)
    return Estimate(*(None if end is None else end / span for end in _log_apart(high, low)))  # type: ignore[arg-type]


def growth_between(low: Series, high: Series) -> Growth:
    """The exponent between two sizes of one variant at one thread count, beside the predicted ones."""
    span = math.log(high.problem.n / low.problem.n)
    return Growth(
        high.problem.kernel,
        high.variant,
        high.threads,
        low.problem.n,
        high.problem.n,
        _exponent(low, high),
        math.log(high.flops / low.flops) / span,
        math.log(high.moved / low.moved) / span,
    )


def by_variant(series: Iterable[Series]) -> dict[tuple[str, str, int], list[Series]]:
    """(kernel, variant, threads) -> its series in ascending n."""
    found: dict[tuple[str, str, int], list[Series]] = {}
    for one in sorted(series, key=lambda s: s.problem.n):
        found.setdefault((one.problem.kernel, one.variant, one.threads), []).append(one)
    return found


def growth(series: Sequence[Series], node: Node) -> tuple[Growth, ...]:
    """Exponents between successive n of every variant, with one thread and with all."""
    return growths(s for s in pinned(good(series), node) if s.threads in (1, node.cpus))


def growths(series: Iterable[Series]) -> tuple[Growth, ...]:
    """Exponents between successive n of every variant and thread count."""
    return tuple(growth_between(low, high) for line in by_variant(series).values() for low, high in pairwise(line))


def crossovers(series: Sequence[Series], node: Node, kernel: str = "") -> tuple[Crossover, ...]:
    """The best thread count of every variant at every n; beside table 1 where that is forward."""
    groups: dict[tuple[str, str, int], list[Series]] = {}
    for one in pinned(good(series, kernel), node):
        groups.setdefault((one.problem.kernel, one.variant, one.problem.n), []).append(one)
    found = [_crossover(group, node) for group in groups.values() if len(group) > 1]
    return tuple(sorted(found, key=lambda c: (c.kernel, c.variant, c.n)))


def _crossover(group: Sequence[Series], node: Node) -> Crossover:
    by_threads = {one.threads: one for one in sorted(group, key=lambda s: s.threads)}
    best = min(group, key=lambda s: smooth_p25(s.samples_ns))
    ratios = {threads: ratio(one, best) for threads, one in by_threads.items() if one is not best}
    tied = tuple(threads for threads, over in ratios.items() if over.low is None or over.low <= 1)
    problem = best.problem
    rows = {row.n: row for row in published.forward()} if problem.kernel == "forward" else {}
    row = rows.get(problem.n)
    return Crossover(
        kernel=problem.kernel,
        variant=best.variant,
        n=problem.n,
        best=best.threads,
        tied=tied,
        tried=tuple(by_threads),
        time_ns=smooth_p25(best.samples_ns),
        speedup=_over_best(by_threads[1], best, group) if 1 in by_threads else None,
        all_over_best=_over_best(by_threads[node.cpus], best, group) if node.cpus in by_threads else None,
        published=row.best_threads if row else None,
        published_slowdown=row.slowdown if row else None,
    )


def _over_best(own: Series, best: Series, group: Sequence[Series]) -> Estimate:
    """Time over that of the best; of the best itself 1, and up to what it may be over another that is best in truth."""
    if own is not best:
        return ratio(own, best)
    highs = [ratio(own, one).high for one in group if one is not own]
    known = [high for high in highs if high is not None]
    return Estimate(1.0, 1.0, max(1.0, *known)) if len(known) == len(highs) else Estimate(1.0, None, None)


def fusions(series: Sequence[Series], node: Node) -> tuple[Fusion, ...]:
    """Every fused variant over every baseline that ran in the same race."""
    own = pinned(good(series, "fused"), node)
    bases = {(s.variant, s.problem, s.threads): s for s in own if s.variant in BASELINES}
    pairs = [
        (s, bases[base, s.problem, s.threads])
        for s in own
        if s.variant not in BASELINES
        for base in BASELINES
        if (base, s.problem, s.threads) in bases
    ]
    known = {(pair.n, pair.threads): pair.fused_s / pair.naive_s for pair in published.fused()}

    def beside(n: int, threads: int) -> tuple[tuple[int, float], ...]:
        wanted = dict.fromkeys((threads, published.THREADS))
        return tuple((count, known[n, count]) for count in wanted if (n, count) in known)

    found = [
        Fusion(s.variant, base.variant, s.problem.n, s.threads, ratio(s, base), beside(s.problem.n, s.threads))
        for s, base in pairs
    ]
    return tuple(sorted(found, key=lambda f: (f.variant, f.baseline, f.threads, f.n)))


def speed(floors: Sequence[Floor], threads: int, in_cache: bool) -> float | None:
    """Bytes a ns (10^9 bytes a second) of the read floor; None where it was not measured."""
    found = [f for f in floors if f.threads == threads and f.in_cache is in_cache and f.samples_ns]
    return max((f.bytes_read / smooth_p25(f.samples_ns) for f in found), default=None)


def traffic(series: Sequence[Series], floors: Sequence[Floor], node: Node) -> tuple[Traffic, ...]:
    """Predicted bytes of every variant and n, with one thread and with all, and the speed that they would mean."""
    return tuple(
        Traffic(
            s.problem.kernel,
            s.variant,
            s.problem.n,
            s.threads,
            s.moved * s.item_bytes,
            s.moved * s.item_bytes / smooth_p25(s.samples_ns),
            speed(floors, s.threads, in_cache=False),
            speed(floors, s.threads, in_cache=True),
        )
        for line in by_variant(pinned(good(series), node)).values()
        for s in line
        if s.threads in (1, node.cpus)
    )


def plateau(windows: Sequence[Window], node: Node) -> tuple[Plateau, ...]:
    """Every team of the windows over the team of half of the CPUs, quiet over quiet and beside over beside."""
    half = max(1, node.cpus // 2)
    means = {(w.problem.n, w.threads, w.pinned, w.beside): w.mean_ns for w in windows}
    paper = {row.n: row.all_s / row.half_s for row in published.decode()}
    teams = dict.fromkeys((w.problem.n, w.threads, w.pinned) for w in sorted(windows, key=lambda w: w.problem.n))
    found = []
    for n, threads, bound in teams:
        quiet, beside = (means.get((n, threads, bound, there)) for there in (False, True))
        base = [means.get((n, half, True, there)) for there in (False, True)]
        over = [a / b if a and b else None for a, b in zip((quiet, beside), base, strict=True)]
        found.append(Plateau(n, threads, bound, quiet, beside, half, over[0], over[1], paper.get(n)))
    return tuple(found)


PARTNERS = {"gfortran": "gcc", "flang": "clang"}
"""Fortran compiler's family -> that of the C compiler with its OpenMP runtime and back end: what is compared."""


def languages(series: Sequence[Series]) -> tuple[Language, ...]:
    """C over Fortran at every n and thread count, with each pair of compilers that ran both.

    Args:
        series: variants in Fortran, and in C the one that each mirrors at its problem.
    """
    ran = good(series)
    found = []
    for own in ran:
        partner = PARTNERS.get(own.compiler.partition("-")[0])
        same = [one for one in ran if (one.problem, one.threads) == (own.problem, own.threads)]
        for twin in (one for one in same if partner and one.compiler.partition("-")[0] == partner):
            where = (own.problem.kernel, own.problem.n, own.threads)
            found.append(Language(*where, twin.variant, twin.compiler, own.compiler, ratio(twin, own)))
    order = list(PARTNERS)
    return tuple(sorted(found, key=lambda one: (one.kernel, order.index(_family(one)), one.threads, one.n)))


def _family(found: Language) -> str:
    return found.fortran_compiler.partition("-")[0]


def predicted(series: Sequence[Series]) -> tuple[Predicted, ...]:
    """M_block at every n of the block that was measured, where the heads together are one row, as in the paper."""
    whole = dict.fromkeys(one.problem for one in series if one.problem.kernel == "block")
    found = []
    for problem in whole:
        dims = problem.dims()
        if dims["heads"] * dims["head_dim"] == dims["d_model"] and dims["heads"] == dims["kv_heads"]:
            size = ITEM_BYTES[problem.dtype] * paper_elements(problem)
            found.append(Predicted("block", "M_block", problem.n, size))
    return tuple(found)


def formulas(forward: KernelSpec, block: KernelSpec) -> tuple[Formula, ...]:
    """Predicted bytes that the paper states, computed anew from the spec."""
    problem = forward.problem(2048, dtype="float64", batch=2, heads=1, kv_heads=1, head_dim=64)
    whole = block.problem(256, dtype="float64", batch=2, heads=1, kv_heads=1, head_dim=64, d_model=64, d_ff=256)
    name = "M_fwd = 4nd + n^2, n = 2048, d = 64, batch 2, 8 bytes"
    other = "M_block = 24nd + 4n d_ff, n = 2 * 256 rows, d = 64, d_ff = 256, 8 bytes"
    return (
        Formula(name, 8 * sum(forward.elements(problem)), round(PREDICTED_MB * 1e6)),
        Formula(other, 8 * paper_elements(whole), round(PREDICTED_BLOCK_MB * 1e6)),
    )

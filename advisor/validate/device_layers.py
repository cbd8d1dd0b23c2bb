"""Findings of sections 5 and 6 on GPUs: decode, the cold start, the block. Pure."""

from __future__ import annotations

import statistics

from advisor.kernels.transformer import paper_elements
from advisor.search.samples import smooth_p25
from advisor.validate import judge, published
from advisor.validate.device_common import growth_of, no_counts, reasons
from advisor.validate.device_judge import DeviceEvidence, moved_bytes, quantity
from advisor.validate.findings import EXPONENT_BAND
from advisor.validate.records import NOT_TESTABLE
from advisor.validate.verdicts import CLEAR, Case, decided, outside, verdict, within, words
from advisor.words import many

DECODE_LOW, DECODE_HIGH = 0.77, 1.16
"""Decode's local exponents from n = 32768 on. Source: Mullin and Hains, section 5.3."""

DECODE_N = 32768

COLD_FACTOR = 3.0
"""A cold start within this factor of the paper's .3 s is the same thing."""

BLOCK_MORE = 1.25
"""From here on the block moves more bytes than M_block; the paper has 1.50."""


def _one_variant(evidence: DeviceEvidence, kernel: str) -> str | None:
    """The variant that has the most sizes, the fastest at the largest of them."""
    groups: dict[str, list[tuple[int, float]]] = {}
    for s in judge.good(evidence.series, kernel):
        groups.setdefault(s.variant, []).append((s.problem.n, smooth_p25(s.samples_ns)))
    return min(groups, key=lambda name: (-len(groups[name]), max(groups[name])[1]), default=None)


def decode_grows(evidence: DeviceEvidence) -> Case:
    """The exponent of the last step."""
    variant = _one_variant(evidence, "decode")
    own = growth_of(evidence, "decode", variant or "")
    if not own or own[-1].high_n < DECODE_N:
        return Case("-", NOT_TESTABLE, f"decode was not measured at two sizes up to {DECODE_N} and more")
    last = own[-1]
    low, high = DECODE_LOW, DECODE_HIGH
    ours = f"{variant}: {words(last.exponent)} from n={last.low_n} to {last.high_n}, {words(own[0].exponent)} at first"
    why = f"within {low} and {high}"
    return decided(within(last.exponent, low, high), outside(last.exponent, low, high), (ours, why), last.exponent)


def decode_factor(evidence: DeviceEvidence) -> Case:
    """Time at the largest n over time at the smallest, where those are the paper's."""
    variant = _one_variant(evidence, "decode")
    times = {s.problem.n: s for s in judge.good(evidence.series, "decode") if s.variant == variant}
    ends = [times.get(n) for n in (1024, 1048576)]
    if None in ends:
        return Case("-", NOT_TESTABLE, "n=1024 and n=1048576 were not both measured")
    low, high = (one for one in ends if one is not None)
    found = judge.ratio_apart(high, low)
    paper = published.on_gpu("decode seconds after cold-start fix", n=1048576) / published.on_gpu(
        "decode seconds after cold-start fix", n=1024
    )
    us = [smooth_p25(one.samples_ns) / 1e3 for one in (low, high)]
    ours = f"{variant}: {us[0]:.3g} us to {us[1]:.4g} us: {words(found)}x"
    limits = paper / 2, paper * 2
    floor = "ours are quicker, so that starting a kernel is more of the smallest time" if found.value < paper else ""
    why = reasons(f"within a factor of 2 of {paper:.0f}x", floor)
    return decided(within(found, *limits), outside(found, *limits), (ours, why), found)


def cold_start(evidence: DeviceEvidence) -> Case:
    """The median of some processes that make a context."""
    if not evidence.cold_start_s:
        return Case("-", NOT_TESTABLE, "no process could make a context by the driver's library alone")
    paper = published.on_gpu("cold start (context creation + JIT) per process")
    found = statistics.median(evidence.cold_start_s)
    ours = f"{found:.2f} s, median of {many(len(evidence.cold_start_s), 'process', 'processes')}"
    why = f"within a factor of {COLD_FACTOR:g}; the context alone, nothing is compiled"
    return Case(ours, verdict(paper / COLD_FACTOR <= found <= paper * COLD_FACTOR), why)


def block_grows(evidence: DeviceEvidence) -> Case:
    """The factor of the last doubling, of the variant that moves most, which is nearest to the paper's."""
    known = judge.good(evidence.series, "block")
    variant = max(known, key=lambda s: (s.problem.n, s.moved)).variant if known else None
    own = [g for g in growth_of(evidence, "block", variant or "") if g.high_n == 2 * g.low_n]
    if not own:
        return Case("-", NOT_TESTABLE, "the block was not measured at two sizes")
    factors = ", ".join(f"{2**g.exponent.value:.2f}x to n={g.high_n}" for g in own)
    last = own[-1]
    low, high = 2 - EXPONENT_BAND, 2 + EXPONENT_BAND
    why = f"the last exponent {words(last.exponent)}, {last.by_flops:.2f} by flops, band {EXPONENT_BAND}"
    found = last.exponent
    if last.high_n < 512:
        return Case(f"{variant}: {factors}", NOT_TESTABLE, "the paper's last doubling is to n=512")
    return decided(within(found, low, high), outside(found, low, high), (f"{variant}: {factors}", why), found)


def block_moves(evidence: DeviceEvidence) -> Case:
    """Bytes over M_block of the variant that moves most, which is nearest to the paper's."""
    found = [(c, moved_bytes(c.call)) for c in evidence.counts if c.kernel == "block"]
    known = [(c, moved) for c, moved in found if moved is not None]
    problems = {(s.variant, s.problem.n): s for s in evidence.series if s.problem.kernel == "block"}
    if not known:
        return no_counts(evidence, "the block")
    ratios = []
    for count, moved in known:
        own = problems[count.variant, count.n]
        ratios.append((moved / (own.item_bytes * paper_elements(own.problem)), count.variant, moved, count.n))
    ratio, _, _, n = max(ratios)
    told = "; ".join(f"{name} {quantity(moved, 'B')}: {over_:.2f}x" for over_, name, moved, _ in sorted(ratios)[::-1])
    why = f"the most of these, from {BLOCK_MORE}x on; caches are flushed before every kernel"
    why += ", and what it writes is not counted while the L2 keeps it"
    good, bad = ratio >= BLOCK_MORE, ratio <= CLEAR
    if good or bad:
        return Case(f"{told} (n={n})", verdict(good), why)
    return Case(f"{told} (n={n})", NOT_TESTABLE, why)

"""Findings of section 3 on GPUs: growth of forward, bytes beside M_fwd. Pure."""

from __future__ import annotations

from advisor.validate.device_common import GROWTH_N, MOVES_MORE, growth_of, moved_words, no_counts, reasons
from advisor.validate.device_judge import DeviceEvidence, beside, counted, grid_words, moved_ratio, waiting
from advisor.validate.device_records import Count
from advisor.validate.findings import EXPONENT_BAND
from advisor.validate.records import NOT_TESTABLE
from advisor.validate.roles import Role
from advisor.validate.verdicts import CLEAR, Case, decided, outside, verdict, within, words

BYTES_N = 4096
"""From this n on the L2 does not hide the writes of a row of scores, 268 MB of them with batch 2 in float64."""


UNCOALESCED = 16
"""Bytes used of a sector written under which access is not coalesced; a warp's neighbouring numbers use all 32."""


def grows(role: Role, evidence: DeviceEvidence) -> Case:
    """The exponent of the last doubling."""
    own = growth_of(evidence, role.kernel, role.name)
    if not own:
        return Case("-", NOT_TESTABLE, f"{role.name} was not measured at two sizes")
    last = own[-1]
    ours = f"{words(last.exponent)} from n={last.low_n} to {last.high_n}"
    if last.high_n < GROWTH_N:
        return Case(ours, NOT_TESTABLE, f"the largest n is under {GROWTH_N}")
    low, high = last.by_flops - EXPONENT_BAND, last.by_flops + EXPONENT_BAND
    found = last.exponent
    why = reasons(
        f"predicted {last.by_flops:.2f} by flops, band {EXPONENT_BAND}", grid_words(evidence, role, last.high_n)
    )
    return decided(within(found, low, high), outside(found, low, high), (ours, why), found)


def _bytes(role: Role, evidence: DeviceEvidence) -> tuple[Count, float] | Case:
    """What was counted at the largest n, and its ratio to M_fwd; or why that says nothing."""
    count = counted(evidence, role)
    ratio = moved_ratio(count)
    if count is None or ratio is None:
        return no_counts(evidence, role.name, role)
    if count.n < BYTES_N:
        return Case(moved_words(count, ratio), NOT_TESTABLE, f"n is under {BYTES_N}: the L2 hides writes")
    return count, ratio


def moves_more(role: Role, evidence: DeviceEvidence) -> Case:
    """Bytes over M_fwd."""
    found = _bytes(role, evidence)
    if isinstance(found, Case):
        return found
    count, ratio = found
    why = f"from {MOVES_MORE}x on; the row of scores is written and read in memory more than once"
    return _banded(ratio >= MOVES_MORE, ratio <= CLEAR, (moved_words(count, ratio), why), evidence, role)


def meets(role: Role, evidence: DeviceEvidence) -> Case:
    """Bytes over M_fwd where the row of scores stays on the chip."""
    found = _bytes(role, evidence)
    if isinstance(found, Case):
        return found
    count, ratio = found
    why = f"up to {CLEAR}x; no row of scores goes to memory"
    return _banded(ratio <= CLEAR, ratio >= MOVES_MORE, (moved_words(count, ratio), why), evidence, role)


def _banded(good: bool, bad: bool, case: tuple[str, str], evidence: DeviceEvidence, role: Role) -> Case:
    """A verdict on a ratio of counted bytes, which have no interval: what lies between two limits is not told."""
    ours, why = case
    count = counted(evidence, role)
    if bad and count and count.call:
        why = reasons(why, beside([count.call]))
    if good or bad:
        return Case(ours, verdict(good), why)
    return Case(ours, NOT_TESTABLE, f"{why}; between {CLEAR} and {MOVES_MORE} nothing is told")


def writes(role: Role, evidence: DeviceEvidence) -> Case:
    """Ratio of writes beside that of reads."""
    found = _bytes(role, evidence)
    if isinstance(found, Case):
        return found
    count, ratio = found
    call, told = count.call, count.predicted
    if call is None or told is None:
        return no_counts(evidence, role.name, role)
    read = (call.dram_read_bytes or 0.0) / told.dram_read_bytes
    written = (call.dram_written_bytes or 0.0) / told.dram_written_bytes
    why = f"by {CLEAR}x at least; reads of the row of scores count as reads here, of which M_fwd has q, k and v alone"
    return Case(moved_words(count, ratio), verdict(written > CLEAR * read), why)


def coalesced(role: Role, evidence: DeviceEvidence) -> Case:
    """Bytes that threads use of the sectors they write and read, over global memory."""
    count = waiting(evidence, role)
    call = count.call if count else None
    if count is None or call is None or call.read_sector_bytes is None or call.written_sector_bytes is None:
        return no_counts(evidence, role.name, role)
    read, written = call.read_sector_bytes, call.written_sector_bytes
    ours = f"{written:.1f} of 32 bytes a sector written, {read:.1f} read (n={count.n})"
    why = f"less than half of a sector written is used ({UNCOALESCED} bytes); the paper blames uncoalesced access"
    return Case(ours, verdict(written < UNCOALESCED), why)

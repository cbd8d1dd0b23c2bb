"""What several findings on a device share: limits, labels of roles, the words for what was not counted. Pure."""

from __future__ import annotations

from advisor.validate.device_judge import DeviceEvidence, counted, moved_bytes, quantity
from advisor.validate.device_records import Count
from advisor.validate.records import NOT_TESTABLE, Growth
from advisor.validate.roles import Role, playing
from advisor.validate.verdicts import Case

LARGE_N = 2048
"""Steps of the chain are judged where sizes up to this were measured: under it launches decide."""

GROWTH_N = 4096
"""An exponent is judged from a doubling that ends here or later; the paper's end at 8192."""

MOVES_MORE = 1.5
"""From here on more bytes move than predicted; the paper has 2.0 for forward. Up to CLEAR they do not; between,
prefetches and write-backs explain as much."""


def label(role: Role) -> str:
    """Its mapping and form."""
    return f"{role.mapping}, {role.form}"


def same_mapping(new: str, old: str) -> list[tuple[Role, Role]]:
    """(new, old) of two parts in each mapping, of the same form; of any where the old part has one variant."""
    return [(a, b) for a in playing(new) for b in playing(old, a.mapping) if a.form == b.form or len(playing(old)) == 1]


def reasons(*parts: str) -> str:
    """Parts of a reason that are not empty."""
    return "; ".join(part for part in parts if part)


def no_counts(evidence: DeviceEvidence, what: str, *roles: Role) -> Case:
    """Not testable for want of counters; of these roles it is told why."""
    names = {(role.kernel, role.name) for role in roles}
    told = (one.reason for one in evidence.counts if one.call is None and (one.kernel, one.variant) in names)
    why = evidence.uncounted or next(filter(None, told), "no time, or it did not run")
    return Case("-", NOT_TESTABLE, f"no counters of {what}: {why}")


def both_counted(evidence: DeviceEvidence, new: Role, old: Role) -> tuple[Count, Count] | None:
    """Both at the largest n at which both were counted."""
    for n in sorted({count.n for count in evidence.counts}, reverse=True):
        a, b = counted(evidence, new, n), counted(evidence, old, n)
        if a is not None and b is not None:
            return a, b
    return None


def growth_of(evidence: DeviceEvidence, kernel: str, variant: str) -> list[Growth]:
    """Exponents of a variant, ascending in n."""
    own = [g for g in evidence.growth if (g.kernel, g.variant) == (kernel, variant)]
    return sorted(own, key=lambda g: g.high_n)


def moved_words(count: Count, ratio: float) -> str:
    """Bytes moved beside M_fwd, reads and writes apart."""
    call, told = count.call, count.predicted
    if call is None or told is None:
        return "-"
    total = told.dram_read_bytes + told.dram_written_bytes
    parts = [
        f"{what} {(found or 0) / predicted:.2f}x"
        for what, found, predicted in (
            ("reads", call.dram_read_bytes, told.dram_read_bytes),
            ("writes", call.dram_written_bytes, told.dram_written_bytes),
        )
    ]
    moved = quantity(moved_bytes(call), "B")
    return f"{moved} of {quantity(total, 'B')}: {ratio:.2f}x; {', '.join(parts)} (n={count.n})"

"""Findings of section 4 on GPUs that are about counts of atomics, and our own on their address pattern. Pure."""

from __future__ import annotations

from advisor.search.samples import smooth_p25
from advisor.validate import judge, published
from advisor.validate.device_common import LARGE_N, both_counted, no_counts, reasons
from advisor.validate.device_judge import DeviceEvidence, atomics, counted, mechanism, over, quantity
from advisor.validate.records import NOT_REPRODUCED, NOT_TESTABLE, REPRODUCED
from advisor.validate.roles import BACKWARD_GK, KEPT, ONE_LANE, PACKED, Role, playing
from advisor.validate.verdicts import PARITY, Case, decided, outside, verdict, within, words

SAME = 0.01
"""Counts that differ by less are the same: what clears sums is counted too."""

SPREAD = 2.0
"""Times of variants with the same count of reductions that differ by more are not decided by it."""

EXACT = 4
"""Decimals to which the ratio of atomics is 2 in the paper."""

COUNTED_ATOMICS = int(published.on_gpu("atomic instructions backward (GK only)", n=2048))


def doubled(two: Role, gk: Role, evidence: DeviceEvidence) -> Case:
    """Counted reductions of fused over those of backward, beside what the headers say."""
    pair = both_counted(evidence, two, gk)
    header = _header_ratio(evidence, two, gk)
    if pair is None:
        case = no_counts(evidence, f"{two.name} and {gk.name} at one n", two, gk)
        return case._replace(ours=f"{header} by the headers" if header else "-")
    above_, below_ = (atomics(one.call) for one in pair)
    if not above_ or not below_:
        return Case("-", NOT_TESTABLE, "no reductions were counted: the compiler may have used other instructions")
    ratio = above_ / below_
    ours = f"{ratio:.4f}x, {quantity(above_)} of {quantity(below_)} at n={pair[0].n}; by the headers {header or '-'}"
    return Case(ours, verdict(round(ratio, EXACT) == 2), "counted reductions of warps (red), to four decimals")


def _header_ratio(evidence: DeviceEvidence, new: Role, old: Role) -> str:
    told = {(c.variant, c.n): c.predicted.atomics for c in evidence.counts if c.predicted is not None}
    for n in sorted({n for _, n in told}, reverse=True):
        a, b = told.get((new.name, n)), told.get((old.name, n))
        if a and b:
            return f"{a / b:.4f}x"
    return ""


def follows(two: Role, gk: Role, evidence: DeviceEvidence) -> Case:
    """Time of fused over that of backward, at the largest n up to the paper's."""
    sizes = [s.problem.n for s in judge.good(evidence.series, gk.kernel) if s.variant == gk.name]
    for n in sorted(sizes, key=lambda n: (abs(n - LARGE_N), n)):
        found = over(evidence, two, gk, n)
        if found is not None:
            ours = f"{words(found)}x at n={n}"
            if n < LARGE_N:
                return Case(ours, NOT_TESTABLE, f"n={LARGE_N} was not measured")
            low, high = 2 / PARITY, 2 * PARITY
            bad = outside(found, low, high)
            why = reasons(f"within {low:.2f} and {high:.2f}", mechanism(evidence, two, gk) if bad else "")
            return decided(within(found, low, high), bad, (ours, why), found)
    return Case("-", NOT_TESTABLE, f"{two.name} and {gk.name} were not measured at one n")


def absolute(evidence: DeviceEvidence) -> Case:
    """Whether a mapping has the paper's very count, which grows with n^2."""
    counts = [(role, counted(evidence, role)) for role in playing(BACKWARD_GK) if role.form == KEPT]
    found = [(role, c.n, atomics(c.call)) for role, c in counts if c is not None]
    known = [(role, n, value) for role, n, value in found if value]
    if not known:
        return no_counts(evidence, "backward with GK's atomic", *playing(BACKWARD_GK))
    same = [role.mapping for role, n, value in known if abs(value / (COUNTED_ATOMICS * (n / LARGE_N) ** 2) - 1) < SAME]
    ours = ", ".join(f"{role.mapping} {value:.0f} at n={n}" for role, n, value in known)
    if same:
        return Case(ours, REPRODUCED, f"instructions of warps are counted: the paper's are those of {', '.join(same)}")
    return Case(ours, NOT_REPRODUCED, "instructions of warps are counted: 32 lanes in one are one")


def bottleneck(role: Role, evidence: DeviceEvidence) -> Case:
    """The share of the kernels with reductions in backward's time, and their occupancy beside the others'."""
    count = counted(evidence, role)
    if count is None:
        return no_counts(evidence, role.name, role)
    timed = [k for k in count.kernels if k.duration_ns is not None and k.achieved_occupancy is not None]
    with_, without = ([k for k in timed if bool(k.global_reductions) is has] for has in (True, False))
    if not with_ or not without:
        return Case("-", NOT_TESTABLE, "its kernels all have atomics, or none has")
    share = sum(k.duration_ns or 0 for k in with_) / sum(k.duration_ns or 0 for k in timed)
    least, others = min(k.achieved_occupancy or 0 for k in with_), [k.achieved_occupancy or 0 for k in without]
    ours = f"{share:.0%} of the time, occupancy {least:.2f} beside {', '.join(f'{o:.2f}' for o in others)}"
    why = f"more than half of the time, and the least occupied; under the profiler, n={count.n}"
    return Case(ours, verdict(share > 0.5 and least < min(others)), why)


def patterns(evidence: DeviceEvidence) -> Case:
    """Times of backward with GK's atomic where reductions are the same in number and differ in address."""
    roles = [role for role in playing(BACKWARD_GK) if role.form == KEPT and role.mapping != ONE_LANE]
    packed = next((c for role in roles if role.mapping == PACKED and (c := counted(evidence, role))), None)
    base = atomics(packed.call) if packed else None
    if packed is None or not base:
        return no_counts(evidence, "backward with GK's atomic, packed", *roles)
    n = packed.n
    times = {s.variant: smooth_p25(s.samples_ns) for s in judge.good(evidence.series, "backward") if s.problem.n == n}
    counts = [(role, counted(evidence, role, n)) for role in roles if role.name in times]
    known = [(role, atomics(count.call), times[role.name]) for role, count in counts if count is not None]
    told = "; ".join(f"{role.mapping} {quantity(value)}, {ns / 1e6:.3g} ms" for role, value, ns in known)
    same = [ns for _, value, ns in known if value and abs(value / base - 1) < SAME]
    if len(same) < 2:
        return no_counts(evidence, f"two patterns of backward at n={n}")._replace(ours=told or "-")
    why = f"n={n}: times of equal counts differ {max(same) / min(same):.1f}-fold; from {SPREAD:g}-fold on"
    return Case(told, verdict(max(same) / min(same) >= SPREAD), why)

"""The paper's findings on GPUs, one function each: its figure, ours, the verdict. Pure.

Where a finding does not reproduce, what counters say of the mechanism stands beside it. Without counters, findings
that are about counters are `not testable here`; those about times do not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from advisor.validate import published
from advisor.validate.device_atomics import COUNTED_ATOMICS, absolute, bottleneck, doubled, follows, patterns
from advisor.validate.device_common import label, same_mapping
from advisor.validate.device_forward import coalesced, grows, meets, moves_more, writes
from advisor.validate.device_judge import DeviceEvidence
from advisor.validate.device_layers import block_grows, block_moves, cold_start, decode_factor, decode_grows
from advisor.validate.device_steps import crosses, everywhere, halves, saving, traffic
from advisor.validate.records import NOT_TESTABLE, Finding
from advisor.validate.roles import (
    BACKWARD_GK,
    FORWARD,
    FUSED_FREE,
    FUSED_GK,
    FUSED_TWO,
    IN_MEMORY,
    LANE,
    NAIVE_GK,
    PACKED,
    STEPS,
    Role,
    StepOf,
    pairs_of,
    playing,
)
from advisor.validate.verdicts import Case

Judge = Callable[[DeviceEvidence], Case]
Row = tuple[str, str, str, Judge]
"""Name, section, what the paper has, the judge."""


def device_findings(evidence: DeviceEvidence) -> tuple[Finding, ...]:
    """Every finding, in the order of the paper."""
    rows = [*_forward_rows(), *_atomic_rows(), *_step_rows(), *_other_rows()]
    found = [Finding(name, section, paper, *case(evidence)) for name, section, paper, case in rows]
    return (*found, *_never())


def _never() -> tuple[Finding, ...]:
    """What no run of ours on one device can say."""
    no_fortran = "no compiler of this package makes GPU code of Fortran: all variants are CUDA C++"
    return (
        Finding(
            "Fortran is faster than C on GPUs", "6.2", "1.45 to 2.81 (norm and MLP)", "-", NOT_TESTABLE, no_fortran
        ),
        Finding(
            "H200 is faster than A100, and less so at large n",
            "3.2",
            "1.75x at n=256, 1.06x at n=8192",
            "-",
            NOT_TESTABLE,
            "a run has one device; the paper's times stand in the table of forward",
        ),
    )


def _forward_rows() -> list[Row]:
    name = "forward local exponent at largest n"
    exponents = (
        f"{published.on_gpu(name, 'A100', 8192)} (A100), {published.on_gpu(name, 'H200', 8192)} (H200) at n=8192"
    )
    gap = "151.4 of 75.5 MB: 2.01x; reads 1.44x, writes 2.06x (A100, n=2048)"
    rows: list[Row] = []
    for role in playing(FORWARD):
        rows.append((f"forward grows with n^2 ({label(role)})", "3.2", exponents, partial(grows, role)))
    for role in playing(FORWARD):
        if role.form == IN_MEMORY:
            rows.append((f"forward moves twice M_fwd ({label(role)})", "3.3", gap, partial(moves_more, role)))
            rows.append((f"writes are hit hardest ({label(role)})", "3.3", "2.06x beside 1.44x", partial(writes, role)))
            used = "9.4 of 32 bytes a sector written, 18.2 read"
            rows.append((f"its access is not coalesced ({label(role)})", "3.3", used, partial(coalesced, role)))
        else:
            own = "an implementation gap, not a derivation gap"
            rows.append((f"M_fwd can be met ({label(role)})", "3.3", own, partial(meets, role)))
    return rows


def _atomic_rows() -> list[Row]:
    rows: list[Row] = []
    for two, gk in same_mapping(FUSED_TWO, BACKWARD_GK):
        where = label(two)
        rows += [
            (f"fused has 2.0000x backward's atomics ({where})", "4.4", "2.0000x at n=2048", partial(doubled, two, gk)),
            (f"time follows that count ({where})", "4.4", "1.97x at n=2048 (A100)", partial(follows, two, gk)),
        ]
    rows.append(("backward's count of atomics", "4.4", f"{COUNTED_ATOMICS} at n=2048", absolute))
    for gk in playing(BACKWARD_GK):
        paper = "85 % of the time, occupancy 0.14 beside 0.44 and 0.48"
        if gk.mapping in (PACKED, "one_lane", LANE):
            rows.append((f"its atomic kernel is the bottleneck ({label(gk)})", "4.4", paper, partial(bottleneck, gk)))
    rows.append(("address pattern decides, not count (ours)", "-", "contention counted, 4.4", patterns))
    return rows


PAPER_STEPS = {
    "gv_before": "1.14 to 1.84 (A100), 1.34 to 1.53 (H200): slower at every n",
    "gv_after": "0.757 to 0.517 (A100), 0.920 to 0.401 (H200): faster at every n",
    "gv": "2 to 2.5x faster",
    "gk_backward": "0.56 to 0.81: faster at every n (A100)",
    "gk_fused": "0.79 at n=2048, 1.04 at 4096, 1.32 at 8192 (A100)",
    "free": "0.65 to 0.89: faster at every n (A100)",
}

STEP_NAMES = {
    "gv_before": ("4.3", "with two atomics fused loses"),
    "gv_after": ("4.5", "without GV's atomic fused wins"),
    "gv": ("4.5", "removing GV's atomic halves fused"),
    "gk_backward": ("4.6", "removing GK's atomic helps backward"),
    "gk_fused": ("4.6", "removing GK's atomic helps fused at small n and hurts at large"),
    "free": ("4.7", "fused without atomics wins"),
}


def _step_rows() -> list[Row]:
    judges: dict[str, Callable[[StepOf, Role, Role, DeviceEvidence], Case]] = {
        "gv_before": partial(everywhere, False),
        "gv_after": partial(everywhere, True),
        "gv": halves,
        "gk_backward": partial(everywhere, True),
        "gk_fused": crosses,
        "free": partial(everywhere, True),
    }
    rows: list[Row] = []
    for step in STEPS:
        section, name = STEP_NAMES[step.key]
        for new, old in pairs_of(step):
            case = partial(judges[step.key], step, new, old)
            rows.append((f"{name} ({label(new)})", section, PAPER_STEPS[step.key], case))
    bytes_ = "89.83 beside 45.60 GB, 1.04x the time at n=4096 (A100)"
    for free, gk in same_mapping(FUSED_FREE, FUSED_GK):
        rows.append(
            (f"without GK's atomic fused moves more ({label(free)})", "4.7", bytes_, partial(traffic, free, gk))
        )
    for gk, naive in same_mapping(FUSED_GK, NAIVE_GK):
        saved = "fused avoids moving A, and wins"
        rows.append((f"saving bytes saves time ({label(gk)})", "4.5", saved, partial(saving, gk, naive)))
    return rows


def _other_rows() -> list[Row]:
    return [
        ("decode's time grows with n", "5.3", "exponents 0.77 to 1.16 from n=32768 (A100)", decode_grows),
        ("decode grows 225x over 1024x in n", "5.3", "0.36 ms at n=1024, 80.9 ms at 1048576", decode_factor),
        ("a process pays a cold start", "2.3, 5.3", "about 0.3 s", cold_start),
        ("the block grows with n^2", "6.2", "4.40, 4.10, 3.91x a doubling, n=64 to 512 (A100)", block_grows),
        ("the block moves more than M_block", "6.3", "15.74 of 10.49 MB: 1.50x (A100, n=256)", block_moves),
    ]

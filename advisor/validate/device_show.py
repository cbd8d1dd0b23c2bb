"""A device's report as tables of text, one column a size. Nothing is measured or judged here."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.render import rows
from advisor.search.samples import smooth_p25
from advisor.validate import published
from advisor.validate.device_judge import atomics, moved_bytes, moved_ratio, quantity
from advisor.validate.device_records import Count, Crossing, DeviceReport, Program, Step
from advisor.validate.judge import FEWEST_FOR_INTERVAL, good
from advisor.validate.records import Series
from advisor.validate.roles import STEPS, role_of
from advisor.validate.show import duration, figure, findings, growth, part, pivot
from advisor.words import many

Lines = dict[tuple[str, ...], dict[int, str]]

REGIME = (
    "Counters: every cache is flushed before each pass over a kernel, so reads come from memory, and what still lies "
    "in the L2 when a kernel ends is not among its writes; clocks are left as they are; durations are no times."
)

PAPER_RATIOS = (
    ("gk_fused", "fused new/old after GK atomic removed", (2048, 4096, 8192), "A100"),
    ("gv_before", "fused/naive time before fix (two atomics)", (64, 4096), "A100"),
    ("gv_after", "fused/naive time after GV atomic removed", (64, 8192), "A100"),
    ("gv_after", "fused/naive time after GV atomic removed", (64, 8192), "H200"),
)
"""Step, name of the figure, the n that the paper states, and the machine."""


def device_shown(report: DeviceReport, series: Sequence[Series]) -> str:
    """All tables, then the findings, then what failed."""
    parts = [
        _head(report),
        report.others,
        part("Times: 25th percentiles of a call; forward beside the paper's", times(series)),
        part("Growth: exponent of n up to each size from the one before it", growth(report.growth)),
        part("Steps: time over time in one race, in each mapping", steps(report.steps, report.crossings)),
        part("Counted, caches flushed before each kernel, beside what is predicted", counts(report.counts)),
        programs(report),
        _no_counters(report),
        "\n".join(
            f"{f.name}: {f.ours / 1e6:.3f} MB here, {f.published / 1e6:.3f} MB in the paper" for f in report.formulas
        ),
        part("Findings of the paper", findings(report.findings)),
        "\n".join(f"failed: {s.problem.kernel} {s.variant} n={s.problem.n}: {s.reason}" for s in report.failed),
    ]
    return "\n\n".join(one for one in parts if one)


def programs(report: DeviceReport) -> str:
    """How it was counted, a line a program with what its start took; what was not, by its reason."""
    lines = [_program_line(one) for one in report.programs]
    reasons: dict[str, list[str]] = {}
    for count in report.counts:
        if count.call is None and not report.uncounted:
            reasons.setdefault(count.reason, []).append(f"{count.variant} n={count.n}")
    lines += [f"not counted: {', '.join(named)}: {reason}" for reason, named in reasons.items()]
    return "\n".join([REGIME, *lines] if lines else [])


def _program_line(one: Program) -> str:
    whole = f"{one.seconds:.1f} s in all"
    if one.start is None:
        return f" {one.what}: no first launch, {whole}"
    start, end_s = one.start, one.start.end_s
    ended = "killed at its limit" if end_s is None else f"{end_s:.1f} s from its last step to ncu's end"
    choices = f"{start.choices} of {many(one.asked, 'choice')}, " if one.asked else ""
    return f" {one.what} by {start.tool}: {choices}{start.start_s:.1f} s to the first launch, {ended}, {whole}"


def _no_counters(report: DeviceReport) -> str:
    remedy = f"\n {report.remedy}" if report.remedy else ""
    return f"no counters: {report.uncounted}{remedy}" if report.uncounted else ""


def _head(report: DeviceReport) -> str:
    device, shape = report.device, " ".join(f"{key}={value}" for key, value in report.shape)
    tools = ", ".join(f"{name} {value}" for name, value in report.tools)
    count = f"{device.sm_count} multiprocessors" if device.sm_count else "multiprocessors unknown"
    return f"{device.name or 'GPU'}: {count}; {shape}; {report.seconds:.0f} s\n{tools}"


def times(series: Sequence[Series]) -> str:
    """A line a variant, a table a kernel; a star where rounds were too few for an interval; the paper's forward."""
    tables, starred = [], False
    own = good(series)
    for kernel in dict.fromkeys(s.problem.kernel for s in own):
        lines: Lines = {}
        for s in sorted(good(own, kernel), key=lambda s: (s.variant, s.problem.n)):
            few = len(s.samples_ns) < FEWEST_FOR_INTERVAL
            starred = starred or few
            lines.setdefault((s.variant,), {})[s.problem.n] = duration(smooth_p25(s.samples_ns)) + ("*" if few else "")
        if kernel == "forward":
            sizes = {s.problem.n for s in good(own, kernel)}
            lines |= {(f"paper: {name}",): row for name, row in _paper_forward(sizes)}
        tables.append(pivot((kernel,), lines))
    return "\n".join([*tables, " * few rounds: no interval"] if starred else tables)


def _paper_forward(sizes: set[int]) -> list[tuple[str, dict[int, str]]]:
    known = [row for row in published.forward_on_gpus() if row.n in sizes]
    return [
        ("A100", {row.n: duration(row.a100_s * 1e9) for row in known}),
        ("H200", {row.n: duration(row.h200_s * 1e9) for row in known}),
    ]


def steps(found: Sequence[Step], crossed: Sequence[Crossing]) -> str:
    """A line a step and mapping, the paper's below; then where ratios pass 1."""
    lines: Lines = {}
    for step in STEPS:
        own = [one for one in found if one.step == step.key]
        for one in own:
            lines.setdefault((step.title, f"{one.mapping}, {one.form}"), {})[one.n] = figure(one.ratio)
        sizes = {one.n for one in own}
        for key, name, stated, machine in PAPER_RATIOS:
            row = {n: f"{published.on_gpu(name, machine, n):.2f}" for n in stated if n in sizes}
            if key == step.key and row:
                lines[step.title, f"paper, {machine}"] = row
    titles = {step.key: step.title for step in STEPS}
    passed = [
        f" {titles[c.step]}, {c.mapping}, {c.form}: passes 1 {'upwards' if c.rising else 'downwards'} at n={c.n:.0f}"
        for c in crossed
    ]
    return "\n".join([pivot(("", ""), lines), *passed]) if lines else ""


def counts(found: Sequence[Count]) -> str:
    """A line a variant and n."""
    head = ("kernel", "variant", "n", "mapping", "moved", "predicted", "ratio", "reductions", "header", "occupancy")
    body = [_count_line(one) for one in found if one.call is not None]
    return rows(head, body, right=2) if body else ""


def _count_line(one: Count) -> list[str]:
    call, told, role = one.call, one.predicted, role_of(one.kernel, one.variant)
    ratio = moved_ratio(one)
    occupancy = call.achieved_occupancy if call else None
    return [
        one.kernel,
        one.variant,
        str(one.n),
        role.mapping if role else "-",
        quantity(moved_bytes(call), "B"),
        quantity(told.dram_read_bytes + told.dram_written_bytes if told else None, "B"),
        "-" if ratio is None else f"{ratio:.2f}",
        quantity(atomics(call)),
        quantity(told.atomics if told else None),
        "-" if occupancy is None else f"{occupancy:.2f}",
    ]

"""A report as tables of text, one column a size. Nothing is measured or judged here.

A figure is followed by half the width of its bootstrap 95 % interval, where there were rounds enough for one; the JSON
document has both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.render import rows, sign
from advisor.validate import published
from advisor.validate.records import Crossover, Estimate, Finding, Fusion, Growth, Plateau, Predicted, Report, Traffic
from advisor.words import many

QUIET_PERCENT = 10.0
"""Busy share of all CPUs from which on a machine is not quiet: on two CPUs a fifth of one of them."""

Lines = Mapping[tuple[str, ...], Mapping[int, str]]
"""Label of a line -> size -> what stands there."""


def duration(ns: float | None) -> str:
    """A time in the unit that reads best, three significant digits."""
    if ns is None:
        return "-"
    unit, size = next(((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if ns >= s), ("ns", 1.0))
    return f"{ns / size:.3g} {unit}"


def figure(found: Estimate | None) -> str:
    """A figure and half the width of its interval."""
    if found is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} {sign('plus or minus')}{(found.high - found.low) / 2:.2f}"


def pivot(labels: Sequence[str], lines: Lines) -> str:
    """A table with a column a size; empty of no lines."""
    sizes = sorted({n for line in lines.values() for n in line})
    body = [[*label, *(line.get(n, "") for n in sizes)] for label, line in lines.items()]
    return rows([*labels, *map(str, sizes)], body, right=len(labels)) if body else ""


def shown(report: Report) -> str:
    """All tables, then the findings, then what failed."""
    node = report.node
    shape = " ".join(f"{key}={value}" for key, value in report.shape)
    parts = [
        f"{node.model_name or 'CPU'}: {many(node.cpus, 'CPU')} in reach, {many(node.numa_nodes, 'NUMA node')}; "
        f"{shape}; {report.seconds:.0f} s",
        _busy_words(report.busy_percent),
        part("Growth: exponent of n up to each size from the one before it", growth(report.growth)),
        part(
            "Threads: best count at each n, its speed-up over 1 thread / how much slower all threads are",
            crossovers(report.crossovers, node.cpus),
        ),
        part(
            "Fused: time over forward + backward with A kept (naive; pair: tiled like the others)",
            fusions(report.fusions),
        ),
        part(
            "Predicted bytes, and predicted bytes / time; nothing was counted",
            traffic(report.traffic, report.predicted),
        ),
        "\n".join(
            f"{f.name}: {f.ours / 1e6:.3f} MB here, {f.published / 1e6:.3f} MB in the paper" for f in report.formulas
        ),
        part("C over Fortran: time of the variant in C over that of the same ONF in Fortran", languages(report)),
        part("Decode quiet, and beside one busy neighbour: means of all calls", plateau(report.plateau)),
        part("Findings of the paper", findings(report.findings)),
        "\n".join(
            f"failed: {s.problem.kernel} {s.variant} n={s.problem.n} {s.threads}T: {s.reason}" for s in report.failed
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _busy_words(percent: float | None) -> str:
    if percent is None or percent <= QUIET_PERCENT:
        return ""
    return f"CPUs were {percent:.0f} % busy before the first measurement: other work runs here, quote none of this"


def part(title: str, table: str) -> str:
    """A table under its title; nothing where there is no table."""
    return f"{title}\n{table}" if table else ""


def growth(found: Sequence[Growth]) -> str:
    """For each kernel what its flops predict; for each variant what was measured, and what its header predicts."""
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for g in sorted(found, key=lambda g: (g.kernel, g.variant, g.threads)):
        lines.setdefault((g.kernel, "predicted", "by flops"), {})[g.high_n] = f"{g.by_flops:.2f}"
        lines.setdefault((g.kernel, g.variant, f"{g.threads}T" if g.threads else "measured"), {})[g.high_n] = figure(
            g.exponent
        )
    for g in found:
        lines.setdefault((g.kernel, g.variant, "by elements moved"), {})[g.high_n] = f"{g.by_moved:.2f}"
    # a variant's lines together, what the flops predict before all variants
    ordered = sorted(lines.items(), key=lambda line: (line[0][0], line[0][1] != "predicted", line[0][1]))
    return _by_kernel(("variant", ""), dict(ordered))


def _by_kernel(labels: Sequence[str], lines: Lines) -> str:
    """A table a kernel: each has sizes of its own. The first word of a label is the kernel."""
    kernels = dict.fromkeys(label[0] for label in lines)
    return "\n".join(
        pivot((kernel, *labels[1:]), {label[1:]: line for label, line in lines.items() if label[0] == kernel})
        for kernel in kernels
    )


def crossovers(found: Sequence[Crossover], cpus: int) -> str:
    """A line a variant, and what table 1 says where the kernel is forward."""
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for c in found:
        best = "=".join(map(str, sorted((c.best, *c.tied))))
        over = [f"{one.value:.2f}" if one else "-" for one in (c.speedup, c.all_over_best)]
        lines.setdefault((c.kernel, c.variant), {})[c.n] = f"{best}: {over[0]} / {over[1]}"
    paper = {row.n: row for row in published.forward()}
    for n in {c.n for c in found if c.kernel == "forward"} & set(paper):
        row = paper[n]
        mark = "*" if row.best_threads > cpus else ""
        words = f"{row.best_threads}: {row.speedup:g} / {row.slowdown:g}{mark}"
        lines.setdefault(("forward", "paper, of 128"), {})[n] = words
    table = _by_kernel(("variant",), dict(sorted(lines.items(), key=lambda item: item[0])))
    starred = any("*" in words for line in lines.values() for words in line.values())
    return f"{table}\n * more threads than there are CPUs here: not testable here" if starred else table


def fusions(found: Sequence[Fusion]) -> str:
    """A line a variant, baseline and thread count, then the paper's."""
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for f in found:
        lines.setdefault((f"{f.variant} / {f.baseline}", f"{f.threads}T"), {})[f.n] = figure(f.ratio)
    for threads, n, ratio in sorted({(threads, f.n, ratio) for f in found for threads, ratio in f.published}):
        lines.setdefault(("paper", f"{threads}T"), {})[n] = f"{ratio:.2f}"
    return pivot(("fused / baseline", ""), lines)


def traffic(found: Sequence[Traffic], of_paper: Sequence[Predicted] = ()) -> str:
    """For each variant the predicted MB, the speed by threads, and the floor's; what the paper predicts of a kernel."""
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for one in of_paper:
        line = lines.setdefault((one.kernel, f"paper: {one.formula}", "predicted MB"), {})
        line[one.n] = f"{one.predicted_bytes / 1e6:.4g}"
    for t in found:
        lines.setdefault((t.kernel, t.variant, "predicted MB"), {})[t.n] = f"{t.predicted_bytes / 1e6:.4g}"
        lines.setdefault((t.kernel, t.variant, f"GB/s, {t.threads}T"), {})[t.n] = f"{t.gb_per_s:.3g}"
    floors = dict.fromkeys((t.threads, t.floor_memory, t.floor_cache) for t in found)
    words = [
        f"read floor, {threads}T: {_number(memory)} GB/s from memory, {_number(cache)} GB/s from the last-level cache"
        for threads, memory, cache in sorted(floors, key=lambda floor: floor[0])
    ]
    ordered = dict(sorted(lines.items(), key=lambda item: (item[0][:2], item[0][2] != "predicted MB", item[0][2])))
    return "\n".join([*words, _by_kernel(("variant", ""), ordered)]) if found else ""


PAPER_LANGUAGES = {"mlp": "0.54 to 0.84", "rmsnorm": "0.70 to 1.55"}
"""Kernel -> C over Fortran on Delta, one thread, 11 sizes. Source: Mullin and Hains, section 6.1."""


def languages(report: Report) -> str:
    """A line a kernel, pair of compilers and thread count, with the paper's range; then the compilers' versions."""
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for one in report.languages:
        paper = PAPER_LANGUAGES.get(one.kernel, "") if one.threads == 1 else ""
        pair = f"{one.compiler} / {one.fortran_compiler}"
        lines.setdefault((one.kernel, one.variant, pair, f"{one.threads}T", paper), {})[one.n] = figure(one.ratio)
    table = _by_kernel(("variant", "compilers", "", "paper"), lines)
    return "\n".join([table, *(f" {name}: {version}" for name, version in report.compilers)]) if lines else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def plateau(found: Sequence[Plateau]) -> str:
    """A line an n and team."""
    lines = [
        [
            str(p.n),
            f"{p.threads} {'pinned' if p.pinned else 'free'}",
            duration(p.quiet_ns),
            duration(p.beside_ns),
            _number(p.quiet_over_base),
            _number(p.beside_over_base),
            _number(p.published),
        ]
        for p in found
    ]
    base = found[0].base_threads if found else 0
    head = ("n", "threads", "quiet", "core stolen", f"quiet / {base}T", f"stolen / {base}T", "paper: 128 / 64")
    return rows(head, lines) if lines else ""


def findings(found: Sequence[Finding]) -> str:
    """A paragraph a finding: the verdict first."""
    width = max((len(f.verdict) for f in found), default=0)
    return "\n".join(
        f"  {f.verdict:{width}}  {f.finding}, section {f.section}\n"
        f"  {'':{width}}    paper: {f.paper}\n"
        + (f"  {'':{width}}    here:  {f.ours}\n" if f.ours != "-" else "")
        + f"  {'':{width}}    why:   {f.why}"
        for f in found
    )

"""The rows of benchmarks/gpu.py as Markdown tables with their verdicts. Nothing is measured or judged here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpu_chain_judge as chain
import gpu_compact
from gpu_cells import known_of, labels, problem_of
from gpu_check import summary
from gpu_ground import tuned, warps
from gpu_judge import Border, Raced, Said, borders, crossing, race_says, races, regret_says
from gpu_rows import Row, read
from gpu_text import ratio_text, table
from kernel_rows import Ratio, shown_number, shown_time

from advisor.codec import from_json, to_json
from advisor.records import Choice, Table

WORDS = {True: "met", False: "MISSED", None: "not judged"}


DECODE = labels(["decode"])


class Judged(NamedTuple):
    """All that a folder holds, judged.

    Attributes:
        rows: as measured.
        races: every race.
        borders: where a table changes the number of warps a block.
        crossings: shape -> n at which one warp and more warps take equally long in the races.
        said: every sentence with a bar.
        notes: lines that were left out.
    """

    rows: tuple[Row, ...]
    races: list[Raced]
    borders: list[Border]
    crossings: dict[str, list[float]]
    said: list[Said]
    notes: tuple[str, ...]

    @property
    def decode(self) -> list[Raced]:
        """The races of decode."""
        return [one for one in self.races if one.shape in DECODE]

    def of(self, part: str) -> list[Row]:
        """The rows of a part that have figures."""
        return [row for row in self.rows if row.part == part and not row.failed]


def judged(folder: str) -> Judged:
    """Read a folder and judge it."""
    found = read(folder)
    raced = races(found.rows)
    crossings = {label: crossing(raced, label) for label in DECODE}
    said = [*race_says(raced), *chain.says(found.rows), *regret_says(found.rows)]
    return Judged(found.rows, raced, of_table(tuned(folder, "decode").table), crossings, said, found.notes)


def of_table(table: Table | None) -> list[Border]:
    """The borders of every shape of decode that the table has."""
    known, found = known_of("decode"), list[Border]()
    for label in DECODE:
        problem = problem_of(label, 1)
        for section in table.sections if table else ():
            if (section.dtype, section.shape, section.regime) == (problem.dtype, problem.shape, problem.regime):
                at = [
                    (row.low, row.high, warps(known, problem._replace(n=row.low), row.choice)) for row in section.rows
                ]
                found += borders(label, at)
    return found


def plain(found: Judged) -> dict[str, Any]:
    """What was judged as plain data; samples stay in the rows' file."""
    rest = {part: [row._asdict() for row in found.of(part)] for part in ("tune", "regret", "cold", "counters")}
    return {
        "races": [to_json(one) for one in found.races],
        "borders": [one._asdict() for one in found.borders],
        "crossings": found.crossings,
        "said": [one._asdict() for one in found.said],
        "failed": [row._asdict() for row in found.rows if row.failed],
        "notes": list(found.notes),
        "chain": chain.plain(chain.curves(found.rows)),
        **rest,
    }


# --- tables ---


def lines(found: Judged) -> list[str]:
    """Everything, from the card to what is missing."""
    return [
        *conditions(found.rows),
        *checks(found.of("check")),
        *libraries(found.decode),
        *own(found.decode),
        *floor(found.decode),
        *gpu_compact.lines(found.races),
        *searches(found),
        *chain.lines(found.of("chain")),
        *starts(found.of("cold")),
        *counters(found.of("counters")),
        *crossovers(found),
        *resident(found.of("race")),
        *mappings(found.of("race")),
        *(f"- {WORDS[one.met]}: {one.text}" for one in found.said),
        *(f"- no figures: {row.part} {row.key}: {row.failed}" for row in found.rows if row.failed),
        *(f"- {note}" for note in found.notes),
    ]


def checks(rows: Sequence[Row]) -> list[str]:
    """A line of each variant and dtype that is not right, and how many are."""
    listed = [(" ".join(row.key.values()), row.data) for row in rows]
    return [*summary(listed), ""] if listed else []


def conditions(rows: Sequence[Row]) -> list[str]:
    """Cards, versions, clocks and regime that the rows name; whatever differs between rows shows as several."""
    if not rows:
        return ["no rows", ""]
    cards = dict.fromkeys(
        f"{one['name']}, {one['sm_count']} multiprocessors, power limit {one['power_limit_w']} W, MIG {one['mig']}"
        for one in (row.state["card"] for row in rows)
    )
    said = dict.fromkeys(f"{name} {value}" for row in rows for name, value in row.state["versions"].items())
    clocks = [ends for row in rows for ends in row.state["clocks"].values()]
    spans = [f"{name} {span(clocks, name)}" for name in ("sm_mhz", "memory_mhz", "celsius", "power_w")]
    when = sorted(row.state["at"] for row in rows if "at" in row.state)
    regimes = dict.fromkeys(row.state["regime"] for row in rows)
    return [
        f"{'; '.join(cards)}. {', '.join(said)}. Regime {', '.join(regimes)}. {'; '.join(spans)}.",
        f"Measured {when[0]} to {when[-1]}. " if when else "",
        "Times are medians; ratios are of 25th percentiles of the same rounds, with bootstrap 95 % intervals.",
        "",
    ]


def span(clocks: Sequence[dict[str, Any]], name: str) -> str:
    """Least and most of a condition over all rows."""
    known = [one[name] for one in clocks if name in one]
    return f"{min(known):g} to {max(known):g}" if known else "unknown"


def who(one: Raced, role: str) -> tuple[str, str]:
    """Name and median of whoever plays a role."""
    name = one.names.get(role)
    return ("-", "-") if name is None else (name, shown_time(one.median_ns[name]))


def libraries(found: Sequence[Raced]) -> list[str]:
    """The table's choice beside the best library."""
    head = ("cell", "n", "table's choice", "time", "best library", "time", "table / library", "verdict", "table / own")
    rows = []
    for one in found:
        said = one.verdict or "not judged"
        verdict = (ratio_text(one.ratio("table", "library")), said, ratio_text(one.ratio("table", "own")))
        rows.append((one.shape, str(one.n), *who(one, "table"), *who(one, "library"), *verdict))
    return [*(["Slower is an interval wholly above 1.015.", ""] if rows else []), *table(head, rows)]


def own(found: Sequence[Raced]) -> list[str]:
    """The best own variant beside the library that a bar names, and the best one."""
    head = ("cell", "n", "best own variant", "time", "own / backend of the bar", "bar", "own / best library")
    rows = []
    for one in found:
        bar = next((bar for bar in one.bars if bar.under not in ("floor", "10 us")), None)
        against = "-" if bar is None else f"{ratio_text(one.ratio('own', bar.under))} ({bar.under})"
        shown = "-" if bar is None else f"{bar.limit}: {WORDS[bar.met]}"
        rows.append((one.shape, str(one.n), *who(one, "own"), against, shown, ratio_text(one.ratio("own", "library"))))
    return table(head, rows)


def floor(found: Sequence[Raced]) -> list[str]:
    """Decode's best own variant beside the read floor of the same bytes, and beside the best rate of any floor."""
    head = ("heads", "n", "best own variant", "time", "floor", "own / floor", "bar", "over bytes at the best rate")
    rows = []
    for one in found:
        bars = [bar for bar in one.bars if bar.under in ("floor", "10 us")]
        shown = ", ".join(f"{'10 us' if b.under == '10 us' else b.limit}: {WORDS[b.met]}" for b in bars) or "-"
        peak = "-" if one.peak is None else shown_number(one.peak)
        base = (one.shape, str(one.n), *who(one, "own"), who(one, "floor")[1])
        rows.append((*base, ratio_text(one.ratio("own", "floor")), shown, peak))
    return table(head, rows)


def searches(found: Judged) -> list[str]:
    """Tuning in seconds and trials, then our search beside the exhaustive pass."""
    tunings = [
        (row.key["shape"], f"{row.seconds:.0f}", f"{row.data['budget_s']:.0f}", trials(row.data["said"]))
        for row in found.of("tune")
    ]
    head = ("cell", "n", "space", "trials", "seconds", "looked at", "seconds", "share", "regret", "search", "best")
    rows = []
    for row in found.of("regret"):
        data, mine = row.data, row.data["spent"]["ours"]
        between = data["regret"].get("ours")
        shown = "-" if between is None else ratio_text(Ratio("ours", "best", *between))
        medians = [shown_time(statistics.median(taken)) if taken else "-" for taken in data["samples"].values()]
        cut = "" if data["exhaustive"]["whole"] else " (cut short)"
        share = "-" if data["share"] is None else f"{data['share']:.3f}"
        whole = (f"{data['exhaustive']['looked']}{cut}", f"{data['exhaustive']['seconds']:.1f}", share)
        ours = (str(data["space"]), str(mine["trials"]), f"{mine['seconds']:.2f}")
        rows.append((row.key["shape"], str(data["n"]), *ours, *whole, shown, *medians))
    return [*table(("cell", "tuned in s", "budget", "good trials"), tunings), *table(head, rows)]


def trials(said: Any) -> str:
    """Trials that the product told of: good ones of all."""
    first = said[0] if isinstance(said, list) and said else said
    counts = first.get("trials") if isinstance(first, dict) else None
    return f"{counts.get('ok', 0)} of {sum(counts.values())}" if isinstance(counts, dict) else "-"


def starts(rows: Sequence[Row]) -> list[str]:
    """Phases of a first call, medians over processes; then what a sweep pays."""
    each = [
        (row.data["name"], caches, found) for row in rows for caches, found in row.data.get("processes", {}).items()
    ]
    phases = list(dict.fromkeys(name for _, _, found in each for one in found for name, _ in one["phases"]))
    head = ("first call of", "caches", *(f"{name}, ms" for name in phases), "warm, us", "in a graph, us", "right")
    body = []
    for what, caches, found in each:
        of = [dict(map(tuple, one["phases"])) for one in found]
        figures = [median([one[name] for one in of if name in one]) for name in phases]
        warm = [median([one[name] for one in found]) for name in ("warm_us", "graph_us")]
        right = all(one["error"]["error"] <= one["error"]["tolerance"] for one in found)
        body.append((what, f"{caches}, {len(found)} processes", *figures, *warm, "yes" if right else "NO"))
    return [*table(head, body), *sweeps(rows)]


def sweeps(rows: Sequence[Row]) -> list[str]:
    """What a sweep paid: workers started, its first trial beside the longest of the others."""
    found = []
    for row in rows:
        if "trials" in row.data:
            seconds = [one[3] for one in row.data["trials"]]
            rest = f"{max(seconds[1:]):.2f}" if len(seconds) > 1 else "-"
            text = f"{row.data['workers_started']} worker started, the first trial took {seconds[0]:.2f} s"
            found += [f"A sweep of {len(seconds)} trials: {text}, no later one over {rest} s.", ""]
    return found


def median(values: Sequence[float]) -> str:
    """A median with three digits at least; a dash where there is nothing."""
    if not values:
        return "-"
    middle = statistics.median(values)
    return f"{middle:.0f}" if middle >= 100 else f"{middle:.3g}"


BESIDE = ("dram_read_bytes", "dram_written_bytes", "l2_read_sectors", "l2_written_sectors")
"""What of the counters is shown beside what is predicted of it."""


def counters(rows: Sequence[Row]) -> list[str]:
    """What calls move beside what is predicted, and live times, which no profiler took."""
    seen = [one.get("counters") or {} for row in rows for one in row.data["choices"]]
    said = dict.fromkeys(name for one in seen for name, value in one.items() if isinstance(value, int | float))
    moved = [name for name in BESIDE if name in said]
    rest = [name for name in said if name not in moved]
    beside = [text for name in moved for text in (name.replace("_", " "), "predicted")]
    head = (
        "cell",
        "n",
        "choice",
        "live time",
        *beside,
        *(name.replace("_", " ") for name in rest),
        "atomics by the header",
    )
    body, refused = [], {}
    for row in rows:
        for one in row.data["choices"]:
            if "refused" in one:
                refused[one["refused"]["reason"]] = one["refused"]["remedy"]
            found, told = one.get("counters") or {}, one["predicted"]
            time = shown_time(statistics.median(row.data["samples"][one["name"]]))
            figures = [count(of.get(name)) for name in moved for of in (found, told)] + [
                count(found.get(name)) for name in rest
            ]
            body.append((row.key["shape"], str(row.key["n"]), one["name"], time, *figures, count(told.get("atomics"))))
    return [*table(head, body), *(f"No counters: {why}. {remedy}" for why, remedy in refused.items())]


def count(value: float | None) -> str:
    """A number of things, or a share of one."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 100 and value % 1 else f"{value:,.0f}"


def crossovers(found: Judged) -> list[str]:
    """Where one warp gives way to more: by the table, and by the races' curves."""
    rows = [
        (one.shape, f"{one.low} to {one.high}", warps_text(one.before), warps_text(one.after)) for one in found.borders
    ]
    out = table(("heads", "table changes at n", "warps a block before", "after"), rows)
    for label, at in found.crossings.items():
        if at:
            out.append(
                f"{label}: one warp and more warps take equally long at n = {', '.join(f'{n:.0f}' for n in at)}."
            )
    return [*out, *([""] if out else [])]


def warps_text(count: int | None) -> str:
    """A number of warps; what another compiler or a library decides has none."""
    return "its compiler's" if count is None else str(count)


def resident(rows: Sequence[Row]) -> list[str]:
    """The n at which even the cold regime does not leave the L2: as many sets as may be are too small."""
    held = [f"{row.key['shape']} n={row.key['n']}" for row in rows if not row.data["evicted"]]
    return [f"Operands that rotate stay in the L2 at {', '.join(held)}.", ""] if held else []


def mappings(rows: Sequence[Row]) -> list[str]:
    """The thread mapping of every variant that raced, and its arithmetic where that is not the problem's own."""
    found: dict[str, str] = {}
    for row in rows:
        for one in row.data["entrants"]:
            name = from_json(Choice, one["choice"], "choice").build.variant
            kind = "" if one.get("arithmetic", "real") == "real" else f" (arithmetic of the {one['arithmetic']})"
            found[name] = f"{one['mapping']}{kind}"
    return [*(f"- mapping of {name}: {text}" for name, text in sorted(found.items())), *([""] if found else [])]

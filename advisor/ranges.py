"""From one section of a table to ranges of n with an answer each, evaluated on the machine at hand.

A section with the tuned sizes 64 and 1024 becomes: below 64, exactly 64, between, exactly 1024, above. Every answer is
made here, at load; nothing is decided later. Standard library only and no `typing`: the hot path imports this module.
"""

from __future__ import annotations

import os

from advisor import doubts
from advisor.answers import Answer, interpolated
from advisor.carried import basis_of, carried, is_carried, is_published, of_row, points_of, region_of
from advisor.errors import PlacementError
from advisor.installed import ABSENT, compiler_is_absent, installed, library_of, nvrtc, package_of
from advisor.site import Site
from advisor.sources import source_hash
from advisor.topology.placement import UNPINNED, default_team, evaluate
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]
    Ranges = tuple[list[int], list[Answer]]
    Hints = Callable[[int, int], str]

BETTER = 1.015
"""A process part is named as better from this ratio on: the landing bar. Source: design.md, "trustworthy", 5."""

CLOSE = 1.1
"""Under this ratio two digits would round the gain away."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_EXTENSIONS = (".c", ".f90", ".cu", ".py")


def default_answer(site: Site, kernel: str, why: str) -> Answer:
    """The careful rule for what nobody tuned: the physical cores of one NUMA domain within the budget, no variant.

    For a GPU there is no rule: no variant, and nothing of the host.
    """
    if site.gpu is not None:
        bare = Answer(kernel, why=f"{why}; any variant with its own defaults", refusal=_refusal(site))
        return bare._replace(device=site.gpu.get("name"), hardware_id=site.hardware_id)
    threads, placement, cpus = _careful(site)
    return Answer(
        kernel,
        threads=threads,
        cpus=cpus,
        placement=placement,
        wait_policy=site.wait_policy,
        spin=_spin(site),
        hardware_id=site.hardware_id,
        why=f"{why}; the physical cores of one NUMA domain within the CPU budget",
        refusal=site.refusal,
    )


NO_TEAM = "a choice for a GPU has no team and no CPUs: there is nothing to apply to the host's threads"


def _refusal(site: Site) -> str:
    """Why an answer must not be applied to the running process, or the empty text."""
    return site.refusal or (NO_TEAM if site.gpu is not None else "")


def _spin(site: Site) -> int | None:
    return site.spin if isinstance(site.spin, int) else None


def _careful(site: Site) -> tuple[int, str, tuple[int, ...] | None]:
    try:
        threads, placement = default_team(site.array, site.mask, site.budget, site.groupings)
        return threads, placement, evaluate(placement, site.array, site.mask, threads, site.groupings)
    except PlacementError:
        return 1, UNPINNED, None


def team(site: Site, threads: int, placement: str) -> tuple[int, tuple[int, ...] | None]:
    """Threads and CPU list of a stored team on this site. In a part of the machine threads are cut to what it has.

    Raises:
        PlacementError: the placement makes no sense here, or offers too few CPUs.
    """
    if site.part:
        threads = min(threads, len(site.mask), site.budget)
    return threads, evaluate(placement, site.array, site.mask, threads, site.groupings)


def ranges(site: Site, table: Json, section: Json, others: list[Json]) -> Ranges:
    """All answers of a section.

    Args:
        site: the machine at hand.
        table: the document that the section comes from.
        section: the rows for the running process part.
        others: sections of the same problem for other process parts, to name a better one.

    Returns:
        (borders, answers): the answer for n is answers[bisect_right(borders, n)].
    """
    first, last = section["tuned_n"][0], section["tuned_n"][-1]
    why = f"n lies outside {region_of(section)} {first}..{last}: the default choice"
    ends = [section_default(site, table, section, why)] * 2
    if is_published(section):
        ends = [_unpublished(site, table, section, (n,)) for n in (first, last)]
    borders: list[int] = []
    answers = [ends[0]]
    section, objective = for_objective(section, site.objective)
    unmet = site.objective not in (None, objective)
    note = (f"the table has no figures for {site.objective}: chosen for {objective}",) if unmet else ()
    hints = _hints(site, section, [for_objective(other, objective)[0] for other in others], objective)
    for row in section["rows"]:
        told = of_row(section, row)
        base = _row_answer(site, table, told, row)
        base = base if objective == "latency" else base._replace(objective=objective)
        for low, high in _pieces(row, section["tuned_n"]):
            borders.append(low)
            if is_published(section) and low not in section["tuned_n"] and not row.get("whole"):
                answers.append(_unpublished(site, table, section, (low - 1, high + 1)))
                continue
            answer = base if base.why else _piece(base, told, row, (low, high), hints)
            said = note if base.why else (*note, *_pool_warnings(row), *_core_warnings(site, row["choice"]))
            answers.append(answer._replace(warnings=(*answer.warnings, *said)) if said else answer)
    return [*borders, last + 1], [*answers, ends[1]]


def _pool_warnings(row: Json) -> tuple[str, ...]:
    """What was wrong with the thread pools of the processes in which a row's choice was measured."""
    said = (text for point in row.get("points") or () for text in point.get("pools") or ())
    return tuple(dict.fromkeys(said))


def _core_warnings(site: Site, choice: Json) -> tuple[str, ...]:
    """Where a choice calls OpenBLAS and the environment forces a core on it: it was measured with the one it takes."""
    forced = os.environ.get("OPENBLAS_CORETYPE")
    if not forced or site.refusal or package_of(choice["build"]["compiler"]) != "openblas":
        return ()
    return (f"OPENBLAS_CORETYPE is {forced}: measured without it; of an older core it halves the speed: unset it",)


def _unpublished(site: Site, table: Json, section: Json, beside: tuple[int, ...]) -> Answer:
    """The careful rule for an n of which nothing was published, naming the nearest n of which something was.

    Args:
        beside: n at the ends of the stretch; the published n nearest to each are named.
    """
    tuned = section["tuned_n"]
    if len(beside) == 2:
        near = max(n for n in tuned if n < beside[1]), min(n for n in tuned if n > beside[0])
        words = f"the nearest published n are {near[0]} and {near[1]}"
    else:
        words = f"the nearest published n is {beside[0]}"
    answer = default_answer(site, table["kernel"], f"nothing was published of this n, {words}")
    shape = tuple(section["shape"].items())
    return answer._replace(
        dtype=section["dtype"], shape_pairs=shape, regime=section["regime"], table_id=table["table_id"]
    )


def for_objective(section: Json, wanted: str | None) -> tuple[Json, str]:
    """The section with the rows for an objective, and what they are for: its own where it has none for that one."""
    own = section.get("objective") or "latency"
    if wanted in (None, own):
        return section, own
    for other in section.get("alternatives") or ():
        if other["objective"] == wanted:
            if not other["rows"]:
                return section, str(wanted)
            return {**section, "rows": other["rows"], "heldout": None}, str(wanted)
    return section, own


def wins(section: Json, n: int, wanted: str | None) -> bool:
    """Whether the race at n, or that at the nearest tuned n where only time can be interpolated, was won by a choice of
    this section: for latency only at the tuned n itself, unless no time is known as nobody measured here.
    """
    tuned = section["tuned_n"]
    if not isinstance(n, int) or not tuned[0] <= n <= tuned[-1]:
        return False
    objective = for_objective(section, wanted)[1]
    exact = objective == "latency" and not is_carried(section)
    near = n if exact else min(tuned, key=lambda other: max(other / n, n / other))
    return near in (section.get("wins") or {}).get(objective, ())


def answering(times: list[float], own: int | None) -> int:
    """Which of several process parts answers where no race says which is best: the own one, unless another is faster by
    the landing bar.

    Args:
        times: of each at n, infinite where none is known.
        own: index of the process part that runs, or of the plain one; None: it was not tuned.
    """
    best = times.index(min(times))
    if own is None or times[own] > BETTER * times[best]:
        return best
    return own


def _pieces(row: Json, tuned: list[int]) -> list[tuple[int, int]]:
    """The row cut at its tuned n: each tuned n alone, and the stretches between."""
    pieces, low = [], row["low"]
    for n in (n for n in tuned if row["low"] <= n <= row["high"]):
        if low < n:
            pieces.append((low, n - 1))
        pieces.append((n, n))
        low = n + 1
    if low <= row["high"]:
        pieces.append((low, row["high"]))
    return pieces


def section_default(site: Site, table: Json, section: Json, why: str) -> Answer:
    """The measured default choice of a section, without figures; the careful rule's team where its own fails here.

    Where its compiler is not here, the build is that of a row whose tool is, or none.
    """
    choice, known = section["default"], section["default"]["team"] or {"threads": 1, "placement": UNPINNED}
    if section.get("default_unusable"):
        return _nothing_built(site, table, section, f"{why}, but {section['default_unusable']}")
    if _is_absent(site, choice["build"]["compiler"]):
        why = f"{why}, but {choice['build']['compiler']} is not here"
        able = [row["choice"] for row in section["rows"] if not _is_absent(site, row["choice"]["build"]["compiler"])]
        if not able:
            return _nothing_built(site, table, section, why)
        choice, why = able[0], f"{why}: {able[0]['build']['compiler']}'s row, with the default team"
    try:
        threads, cpus = team(site, known["threads"], known["placement"])
        placement = known["placement"]
    except PlacementError:
        threads, placement, cpus = _careful(site)
    base = _chosen(site, table, section, choice)
    bare = base._replace(
        basis="DEFAULT", regret_bound=None, regret_sizes=0, rung=None, machines=(), validated_regret=None
    )
    return bare._replace(threads=threads, cpus=cpus, placement=placement, why=why)


def _nothing_built(site: Site, table: Json, section: Json, why: str) -> Answer:
    """The careful rule for a section's problem, where its default choice cannot be made here."""
    return default_answer(site, table["kernel"], why)._replace(
        dtype=section["dtype"],
        shape_pairs=tuple(section["shape"].items()),
        regime=section["regime"],
        table_id=table["table_id"],
    )


def _chosen(site: Site, table: Json, section: Json, choice: Json) -> Answer:
    """The fields that a choice and its section give, before any team is set."""
    build = choice["build"]
    heldout, origin = section.get("heldout"), section.get("origin") or {}
    return Answer(
        table["kernel"],
        dtype=section["dtype"],
        shape_pairs=tuple(section["shape"].items()),
        regime=section["regime"],
        variant=build["variant"],
        source_hash=build["source_hash"],
        knob_pairs=tuple(build["knobs"].items()),
        compiler=build["compiler"],
        flags=build["flags"],
        wait_policy=site.wait_policy,
        spin=_spin(site),
        memory_policy=(section["process"] or {}).get("memory_policy") or "default",
        regret_bound=heldout["worst"] if heldout else None,
        regret_sizes=len(heldout.get("n") or ()) if heldout else 0,
        table_id=table["table_id"],
        hardware_id=table["hardware_id"],
        refusal=_refusal(site),
        rung=origin.get("rung"),
        machines=tuple(origin.get("machines") or ()),
        validated_regret=origin.get("validated_regret"),
        device=None if site.gpu is None else site.gpu.get("name"),
    )


def _row_answer(site: Site, table: Json, section: Json, row: Json) -> Answer:
    """The answer of a row before its pieces differ; complete (with `why`) where they do not: DEFAULT, or a part."""
    if row.get("unusable"):
        return section_default(site, table, section, f"{row['unusable']}: the default choice")
    changed = changed_fields(site, table, section, row)
    if changed and site.stale != "use":
        why = f"the row is stale ({'; '.join(changed)}): the default choice"
        return section_default(site, table, section, why)._replace(in_tuned_region=True)
    choice = row["choice"]
    known = choice["team"] or {"threads": 1, "placement": UNPINNED}
    try:
        threads, cpus = team(site, known["threads"], known["placement"])
    except PlacementError as error:
        why = f"the table's placement cannot be used here ({error}): the default choice"
        return section_default(site, table, section, why)._replace(in_tuned_region=True)
    notes = list(changed)
    if threads < known["threads"]:
        notes.append(f"{many(known['threads'], 'thread')} cut to the {threads} of this part")
    return _chosen(site, table, section, choice)._replace(
        threads=threads,
        cpus=cpus,
        placement=known["placement"],
        basis="STALE" if changed else basis_of(site, section),
        in_tuned_region=not is_carried(section),
        warnings=tuple(notes),
        points=() if site.part else points_of(row),
        why=f"measured with the whole machine, no time is known for part {site.part} of it" if site.part else "",
    )


def _piece(base: Answer, section: Json, row: Json, span: tuple[int, int], hints: Hints) -> Answer:
    """The answer of one piece of a row: figures at a tuned n, none between."""
    low, high = span
    tuned = section["tuned_n"]
    stale = f"stale, used as asked ({'; '.join(base.warnings)}); " if base.basis == "STALE" else ""
    below, above = max(n for n in tuned if n <= low), min(n for n in tuned if n >= high)
    hint = hints(below, above)
    if section.get("basis"):
        return carried(base, section, row, low, stale)
    if low not in tuned:
        basis = base.basis if stale else "INTERPOLATED"
        why = f"between the tuned n = {below} and {above}; this choice holds from {row['low']} to {row['high']}"
        return base._replace(basis=basis, why=stale + why + hint)
    point = _point(row["points"], low)
    if point is None:
        return base._replace(why=f"{stale}tuned at n = {low}, its times are not in the table{hint}")
    how = "an interleaved race" if point["raced"] else "too few samples to rank by"
    told = _with_figures(base, section, point)
    return told._replace(why=f"{stale}measured at n = {low} in {how}{_chosen_for(told)}{hint}")


def _chosen_for(answer: Answer) -> str:
    """Why this choice and not the fastest, where it was not chosen by time."""
    if answer.objective == "latency":
        return ""
    if answer.objective == "efficiency" and answer.device and answer.joules is None:
        return "; its energy was not measured, so chosen by time"
    if answer.objective == "efficiency":
        effort = "core-seconds" if answer.joules is None else "joules"
        return f"; chosen for the fewest {effort} within 5 % of the best time"
    if answer.stolen_ns is None:
        return "; not measured beside a busy neighbour, so chosen by time"
    return "; chosen for the best mean time beside a busy neighbour"


def _with_figures(base: Answer, section: Json, point: Json) -> Answer:
    summary, stolen, contended = point["summary"], point.get("stolen"), bool(point.get("contended"))
    default = _point(section["default_points"], point["n"]) or {}
    default_ns = default["summary"]["p25_ns"] if default else None
    told = tuple(doubts.SENTENCES[word] for word in doubts.doubts(point["raced"], contended))
    return base._replace(
        expected_ns=float(summary["p25_ns"]),
        ci95_ns=(float(summary["ci95_ns"][0]), float(summary["ci95_ns"][1])),
        spread=summary["p99_ns"] / summary["p25_ns"],
        gain=doubts.gain(summary["p25_ns"], default_ns, contended or bool(default.get("contended"))),
        fragility=stolen["mean_ns"] / summary["p25_ns"] if stolen else None,
        stolen_ns=(float(stolen["mean_ns"]), float(stolen["p99_ns"])) if stolen else None,
        joules=point.get("joules"),
        contended=contended,
        warnings=(*base.warnings, *told),
    )


def _point(points: list[Json], n: int) -> Json | None:
    return next((point for point in points if point["n"] == n), None)


def _row_ns(site: Site, section: Json, n: int, objective: str) -> float | None:
    """Measured time of what a section says at a tuned n, beside a neighbour where that is the objective; None where it
    is not known, or is of code whose compiler is not here."""
    row = next((row for row in section["rows"] if row["low"] <= n <= row["high"]), None)
    if row is None or _is_absent(site, row["choice"]["build"]["compiler"]):
        return None
    point = _point(row["points"], n)
    if point is None or objective == "latency":
        return float(point["summary"]["p25_ns"]) if point else None
    stolen = point.get("stolen") if objective == "robust" else None
    return float(stolen["mean_ns"]) if stolen else None


def _times(site: Site, section: Json, objective: str) -> dict[int, float]:
    """Measured times of what a section says at its tuned n."""
    found = {n: _row_ns(site, section, n, objective) for n in section["tuned_n"]}
    return {n: time for n, time in found.items() if time}


def expected_ns(site: Site, section: Json, n: int, objective: str) -> float | None:
    """Time in ns of what a section says at n, on lines between what it says at the tuned n around; None where that is
    not known.

    For telling process parts apart: the choice of a row need not have been measured at both ends, and one of which
    nothing is known there must not lose to one that is known to be slow.
    """
    return interpolated(tuple(sorted(_times(site, section, objective).items())), n)


def _hints(site: Site, section: Json, others: list[Json], objective: str) -> Hints:
    """A function of two tuned n: a clause that names the process part that is faster at both ends by the landing bar,
    or the empty text.
    """
    own, rivals = _times(site, section, objective), [(other, _times(site, other, objective)) for other in others]
    where = "beside a busy neighbour" if objective == "robust" else "here"

    def better(below: int, above: int) -> str:
        best, found = BETTER, ""
        for other, theirs in rivals:
            ratio = min(own[n] / theirs[n] if n in own and n in theirs else 0.0 for n in (below, above))
            if ratio > best:
                best = ratio
                found = f"; {start_with(other['process'])}: {best:.{3 if best < CLOSE else 2}g}x faster {where}"
        return found

    return better


def start_with(process: Json) -> str:
    """What to do to run under a process part, in words."""
    wait, spin = process["wait_policy"], process["spin"]
    settings = [f"OMP_WAIT_POLICY={wait}"] if wait != "default" else []
    settings += [f"GOMP_SPINCOUNT={spin}"] if spin is not None else []
    memory = process.get("memory_policy") or "default"
    under = "" if memory == "default" else f" and memory policy {memory} (numactl)"
    if settings:
        return f"start the process with {' '.join(settings)}{under}"
    return f"start the process without OMP_WAIT_POLICY and GOMP_SPINCOUNT{under}"


def changed_fields(site: Site, table: Json, section: Json, row: Json) -> tuple[str, ...]:
    """The fields that a row depends on and that differ now, each with both values; only what can be read here."""
    found = (f"{field} was {old}, is {new}" for field, old, new in changes(site, table, section, row))
    return (*(table.get("differs") or ()), *found)


def changes(site: Site, table: Json, section: Json, row: Json) -> tuple[tuple[str, Any, Any], ...]:
    """What a row depends on and is not as it was: (field, then, now). What is not known on either side is no change."""
    then = section.get("environment") or table["environment"]
    build, changed = row["choice"]["build"], []
    for field in row["depends"]:
        if field == "source_hash":
            old, new = build["source_hash"], _remembered(site, table["kernel"], build["variant"])
        else:
            now = _with_tool(site, build["compiler"])
            old, new = (_value(field, where, row["choice"]) for where in (then, now))
            if old is None and new == ABSENT:  # tuned where it is not here either, beside rows of an earlier run
                old = build["compiler"]
        if old is not None and new is not None and old != new:
            changed.append((field, old, new))
    return tuple(changed)


def _with_tool(site: Site, tool: str) -> Json:
    """The site's environment; at this machine, with the version of the package that the tool is, or with the compiler
    that is not here, looked up once."""
    library = package_of(tool)
    if library and library not in site.environment and not site.refusal:
        site.environment[library] = installed(library) or ABSENT
        if library == "cupy":
            site.environment["nvrtc"] = nvrtc()
    elif not library and tool not in site.environment and not site.refusal:
        site.environment[tool] = ABSENT if compiler_is_absent(tool) else None
    return site.environment


def _is_absent(site: Site, tool: str) -> bool:
    return _with_tool(site, tool).get(package_of(tool) or tool) == ABSENT


def _value(field: str, environment: Json, choice: Json) -> Any:
    """A field of an environment: the version of the choice's own tool and runtime; a kernel as MAJOR.MINOR; of a GPU's
    driver the branch, as its later numbers mend faults.

    A library brings its OpenMP runtime along, so that one's version is no field of the environment. NVRTC compiles what
    CuPy runs and nothing else.
    """
    if field == "kernel":
        kernel = environment.get("kernel")
        return ".".join(kernel.split(".")[:2]) if isinstance(kernel, str) else None
    if field == "driver":
        driver = environment.get("driver")
        return driver.split(".")[0] if isinstance(driver, str) else None
    if field == "compiler":
        compiler = choice["build"]["compiler"]
        return environment.get(compiler) or environment.get(compiler.split("-")[0])
    if field == "nvrtc" and package_of(choice["build"]["compiler"]) != "cupy":
        return None
    if field == "openmp" and library_of(choice["build"]["compiler"]):
        return None
    if field == "openmp" and choice["process"] is not None:
        return environment.get(choice["process"]["runtime"])
    return environment.get(field)


def _remembered(site: Site, kernel: str, variant: str) -> str | None:
    """`here_hash`, read once for all rows of a load."""
    if site.hashes is None:
        return here_hash(kernel, variant)
    if (kernel, variant) not in site.hashes:
        site.hashes[kernel, variant] = here_hash(kernel, variant)
    return site.hashes[kernel, variant]


def here_path(kernel: str, variant: str) -> str | None:
    """Where a variant's source lies in this package, or None when it comes from elsewhere."""
    if not (kernel.isidentifier() and variant.replace("-", "_").isidentifier()):
        return None
    paths = (os.path.join(_PACKAGE, "kernels", kernel, variant + extension) for extension in _EXTENSIONS)
    return next(filter(os.path.isfile, paths), None)


def here_hash(kernel: str, variant: str) -> str | None:
    """Digest of a variant's source in this package, or None when it comes from elsewhere."""
    path = here_path(kernel, variant)
    try:
        return None if path is None else source_hash(path)
    except OSError:
        return None

"""Learn a deployment table: from races and first looks to ranges of n.

For each fixed shape, regime and process part (on a device there is none): the best choice at every tuned n, which is
one that was raced, as first looks alone do not rank; the fewest
ranges that lose no more than a bound there, each one row; and between two rows a border where the log-log interpolated
times of the two choices cross, also through what was raced at the border. Pure functions of the records; the same
records give the same table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from advisor import codec
from advisor.errors import BadInput
from advisor.kernels.pools import of_trial
from advisor.policy.between import Stretch, third
from advisor.policy.existing import Exists, ends, widest, within
from advisor.policy.store import with_id
from advisor.records import (
    OBJECTIVES,
    Choice,
    HeldOut,
    Machine,
    Measurement,
    Pairs,
    Point,
    Problem,
    Process,
    Row,
    Rows,
    Section,
    Standing,
    Summary,
    Table,
    Verdict,
    pairs,
)
from advisor.search.borders import Cell, border, cell, fewest, log_ratio
from advisor.search.known import FAILED
from advisor.search.objective import LOOK_NOISE, Figures, best, joules_of, of_race
from advisor.search.protocol import is_contended, noisy_samples
from advisor.search.run import value_of
from advisor.search.samples import summary
from advisor.search.settled import THIN, is_settled, ranks, weight

DEPENDS = ("source_hash", "compiler", "openmp", "kernel")
"""What makes a row stale when it changes. Source: design.md, "Identity"."""

SEED = 0
"""Seed of the bootstrap intervals of first looks, so that the same log gives the same table."""

Group = tuple[str, Pairs, str]


class Made(NamedTuple):
    """How a table came about: ISO time, provenance (sessions, budget, versions), fields that every row depends on, and
    what its rows are best at. `kept`: n and the choice that is settled there, whatever the races say. `exists`: whether
    a choice is made for an n: a header may bound n, and a row must not reach beyond; None: all are.
    """

    created: str
    provenance: Pairs
    depends: tuple[str, ...] = DEPENDS
    objective: str = "latency"
    kept: tuple[tuple[int, Choice], ...] = ()
    exists: Exists | None = None


class Beside(NamedTuple):
    """Measurements in other regimes: beside one busy neighbour, and with a counter of energy around them. `recalled`:
    figures that an earlier table has, which count where nothing was measured since.
    """

    stolen: Sequence[Measurement] = ()
    energy: Sequence[Measurement] = ()
    recalled: Sequence[tuple[Problem, Choice, Point]] = ()


class Evidence(NamedTuple):
    """All that is known of one dtype, shape and regime.

    finals: n -> the last settled final race there, see `_finals`; races: every race whose n may be learned from, latest
    last; looks: n that was raced -> choice -> the latest ok first look; stolen: n -> choice -> figures beside one busy
    neighbour; joules: the same, of one call; recalled: the same, what an earlier table has.
    """

    finals: dict[int, Verdict]
    races: tuple[Verdict, ...]
    looks: dict[int, dict[Choice, Measurement]]
    stolen: dict[int, dict[Choice, Summary]]
    joules: dict[int, dict[Choice, float]]
    recalled: dict[int, dict[Choice, Point]]


def learn(
    machine: Machine,
    verdicts: Sequence[Verdict],
    trials: Sequence[Measurement],
    made: Made,
    beside: Beside | None = None,
) -> Table:
    """A table of one kernel on one machine.

    Args:
        machine: where everything was measured.
        verdicts: races, in the order they ended; those with purpose heldout are not learned from.
        trials: first looks, in the order they were taken; failed ones, and those at an n without a final race, are
            passed over.
        made: when and how.
        beside: measurements in other regimes.

    Returns:
        The table, with a section for every shape that has at least one final race and every process part seen there,
        and `table_id` set. A shape without any race has no default to compare with and is left out.

    Raises:
        BadInput: no final race at all, or several kernels.
    """
    kernels = sorted({v.problem.kernel for v in verdicts} | {t.problem.kernel for t in trials})
    if len(kernels) != 1 or not any(v.purpose == "final" for v in verdicts):
        raise BadInput(
            "a table is learned from the races of one kernel",
            got=kernels,
            next_step="let a tuning run to its first race",
        )
    sections: list[Section] = []
    for group in sorted({_group(v.problem) for v in verdicts if v.purpose == "final"}):
        evidence = _evidence(group, verdicts, trials, beside or Beside())
        found = [_section(group, process, evidence, made) for process in _processes(evidence)]
        sections += [_with_wins(section, evidence, dict(made.kept)) for section in found if section.rows]
    ids = machine.hardware_id, machine.limits_id
    return with_id(Table(kernels[0], *ids, machine.environment, tuple(sections), made.provenance))


def choose(section: Section, n: int, objective: str | None = None) -> Choice:
    """What the table says at n: the row's choice inside the tuned region, the default outside.

    Args:
        section: the rows of one process part.
        n: the swept size.
        objective: one of OBJECTIVES; None, or one that it has no rows for: the section's own.
    """
    others = next((one.rows for one in section.alternatives if one.objective == objective), ())
    return next((row.choice for row in others or section.rows if row.low <= n <= row.high), section.default)


def _group(problem: Problem) -> Group:
    return problem.dtype, problem.shape, problem.regime


def _evidence(group: Group, verdicts: Sequence[Verdict], trials: Sequence[Measurement], others: Beside) -> Evidence:
    own = [v for v in verdicts if _group(v.problem) == group]
    finals = _finals(own)
    hidden = {v.problem.n for v in own if v.purpose == "heldout"} - set(finals)
    races = tuple(v for v in own if v.purpose != "heldout" and v.problem.n not in hidden)
    looks: dict[int, dict[Choice, Measurement]] = {}
    for trial in trials:
        n = trial.problem.n
        if _group(trial.problem) == group and trial.status == "ok" and trial.samples_ns and n in finals:
            looks.setdefault(n, {})[trial.choice] = trial
        elif _group(trial.problem) == group and trial.status in FAILED:  # what it was before counts no more
            looks.get(n, {}).pop(trial.choice, None)
    failed = _failed(races)
    looks = {n: _but_failed(known, failed.get(n, ())) for n, known in looks.items()}
    recalled = _recalled(group, others)
    beside = {n: {c: p.stolen for c, p in known.items() if p.stolen} for n, known in recalled.items()}
    for trial in others.stolen:
        if _group(trial.problem) == group and trial.status == "ok" and trial.samples_ns:
            beside.setdefault(trial.problem.n, {})[trial.choice] = summary(trial.samples_ns, SEED)
    metered = {n: {c: dict(p.extra).get("joules") for c, p in known.items()} for n, known in recalled.items()}
    joules = {n: {c: used for c, used in known.items() if used is not None} for n, known in metered.items()}
    for trial in others.energy:
        used = joules_of(trial)
        if _group(trial.problem) == group and used is not None:
            joules.setdefault(trial.problem.n, {})[trial.choice] = used
    return Evidence(finals, races, looks, beside, joules, recalled)


def _finals(races: Sequence[Verdict]) -> dict[int, Verdict]:
    """n -> the last final race there that had rounds enough to rank by, else the last one.

    A race whose winner has failed since is none to go by.
    """
    failed, found = _failed(races), dict[int, Verdict]()
    for race in races:
        n = race.problem.n
        before = found.get(n)
        stays = before is not None and is_settled(before) and before.winner not in failed.get(n, ())
        if race.purpose == "final" and (is_settled(race) or not stays):
            found[n] = race
    return found


def _failed(races: Sequence[Verdict]) -> dict[int, set[Choice]]:
    """n -> the choices that failed in the last race that they ran there."""
    found: dict[int, set[Choice]] = {}
    for race in races:
        gone = found.setdefault(race.problem.n, set())
        gone -= {s.choice for s in race.standings}
        gone |= {s.choice for s in race.standings if s.outcome == "failed"}
    return found


def _but_failed(looks: dict[Choice, Measurement], failed: Collection[Choice]) -> dict[Choice, Measurement]:
    """The looks at an n without those at choices that failed in a race, under whatever process part where alone."""
    return {c: look for c, look in looks.items() if not any(c == one or _same_alone(c, one) for one in failed)}


def _recalled(group: Group, others: Beside) -> dict[int, dict[Choice, Point]]:
    found: dict[int, dict[Choice, Point]] = {}
    for problem, choice, point in others.recalled:
        if _group(problem) == group:
            found.setdefault(problem.n, {})[choice] = point
    return found


def _processes(evidence: Evidence) -> list[Process | None]:
    """The process parts seen in usable times, and of winners, in a fixed order; None for choices of a device."""
    choices = [s.choice for race in evidence.races for s in race.standings if s.summary or s.choice == race.winner]
    choices += [choice for looks in evidence.looks.values() for choice in looks]
    return sorted({c.process for c in choices}, key=repr)


def times(
    section: Section, verdicts: Sequence[Verdict], trials: Sequence[Measurement]
) -> dict[int, dict[Choice, float]]:
    """Time in ns of all that was measured of a section's process part at its tuned n: raced, else looked at.

    A look under the best raced time counts as that: of many looks the luckiest are too low, and a race has said what is
    best.

    Args:
        section: names shape and process part.
        verdicts, trials: of any shape, as `learn` takes them.
    """
    evidence = _evidence((section.dtype, section.shape, section.regime), verdicts, trials, Beside())
    points, found = _points(section.process, evidence), dict[int, dict[Choice, float]]()
    for n in section.tuned_n:
        raced = {choice: known[n].summary.p25_ns for choice, known in points.items() if n in known}
        least = min(raced.values(), default=0.0)
        looks = [t for t in evidence.looks.get(n, {}).values() if counts_for(t.choice, section.process)]
        looked = {_under(t.choice, section.process): value for t in looks if (value := value_of(t))}
        found[n] = {**{choice: max(least, value) for choice, value in looked.items()}, **raced}
    return found


# --- which choices count for a process part ---


def counts_for(choice: Choice, process: Process | None) -> bool:
    """Whether a choice can run under a process part: its own, or one thread, which meets no barrier.

    Where its memory lies matters to one thread too. None is the part of a device's choices, and of no others.
    """
    if choice.process is None or process is None:
        return choice.process is process
    return choice.process == process or (_alone(choice) and _memory(choice) == process.memory_policy)


def _alone(choice: Choice) -> bool:
    return choice.process is not None and choice.team is not None and choice.team.threads == 1


def _under(choice: Choice, process: Process | None) -> Choice:
    """A one-thread choice rewritten for another process part; others stay."""
    return choice._replace(process=process) if counts_for(choice, process) else choice


def _memory(choice: Choice) -> str:
    return "default" if choice.process is None else choice.process.memory_policy


# --- a section ---


def _section(group: Group, process: Process | None, evidence: Evidence, made: Made) -> Section:
    points = _points(process, evidence)
    fastest = {n: best_at(process, n, evidence) for n in sorted(evidence.finals)}
    picks = [(n, choice) for n, choice in fastest.items() if choice is not None]
    default = _default(process, evidence, made)
    of = {}
    for objective in OBJECTIVES:
        if objective in ("latency", made.objective) or _has_figures(objective, process, evidence):
            kept = {n: c for n, c in made.kept if objective == made.objective and counts_for(c, process)}
            chosen = [(n, _best_for(objective, process, n, evidence, choice)) for n, choice in picks]
            chosen = [(n, _under(kept.get(n, choice), process)) for n, choice in chosen]
            races = _Races(process, evidence, objective, frozenset(kept), made.exists, default)
            of[objective] = _rows(_joined(chosen, races), points, races, made.depends)
    own = of.pop(made.objective)
    tuned = tuple(n for n, _ in picks)
    known = _default_points(default, evidence)
    section = Section(*group, process, tuned, own, default, known, None, made.created, made.objective)
    return section._replace(alternatives=tuple(Rows(name, () if rows == own else rows) for name, rows in of.items()))


def _default(process: Process | None, evidence: Evidence, made: Made) -> Choice:
    """What answers where nothing was measured: the untuned choice of the largest n, else of another, else the fastest
    of those that raced or were looked at, the first that is made for every n, or for the most."""
    sizes = sorted(evidence.finals, reverse=True)
    known = [evidence.finals[n].default for n in sizes]
    if made.exists is None:
        return known[0]
    for n in sizes:
        raced, looks = _own_times(process, n, evidence)
        for times in (raced, _expected(looks, raced) if raced else looks):
            known += sorted(times, key=times.__getitem__)
    return widest(known, sizes, made.exists)


def _has_figures(objective: str, process: Process | None, evidence: Evidence) -> bool:
    """Whether anything of a process part was measured that tells this objective from latency."""
    known = [one for race in evidence.finals.values() for one in _own_figures(race, process, evidence)]
    if objective == "efficiency":  # core-seconds follow from the race; a device has joules or nothing
        return any(process is not None or one.joules is not None for one in known)
    return any(one.stolen for one in known)


def _own_figures(race: Verdict, process: Process | None, evidence: Evidence) -> list[Figures]:
    n = race.problem.n
    found = of_race(race.standings, evidence.stolen.get(n, {}), evidence.joules.get(n, {}))
    return [one for one in found if counts_for(one.choice, process)]


def _best_for(objective: str, process: Process | None, n: int, evidence: Evidence, fastest: Choice) -> Choice:
    """The best of a process part at a tuned n for an objective; the fastest where no figures say otherwise."""
    return _under(best(_own_figures(evidence.finals[n], process, evidence), objective, fastest), process)


def _with_wins(section: Section, evidence: Evidence, kept: dict[int, Choice]) -> Section:
    """The section, with the n at which its choice is the best of all process parts, for each objective it has.
    `kept`: n -> choice that is settled there for the section's own objective.
    """
    wins: dict[str, list[int]] = {}
    for n, race in sorted(evidence.finals.items()):
        for objective in (section.objective, *(one.objective for one in section.alternatives)):
            first = _first(objective, race, evidence)
            first = kept.get(n, first) if objective == section.objective else first
            own = counts_for(first, section.process) and (
                objective == "latency"  # there the row's choice is this one, or as good by the bound
                or _under(first, section.process) == choose(section, n, objective)
            )
            if own and n in section.tuned_n:
                wins.setdefault(objective, []).append(n)
    return section._replace(wins=pairs({objective: tuple(found) for objective, found in wins.items()}))


def _first(objective: str, race: Verdict, evidence: Evidence) -> Choice:
    """The best choice of all process parts at a tuned n for an objective.

    A race of few rounds says nothing against the process part of the default choice: it stays by time and by effort.
    """
    n, plain = race.problem.n, race.default.process
    known = of_race(race.standings, evidence.stolen.get(n, {}), evidence.joules.get(n, {}))
    own = best_at(plain, n, evidence)
    if own is None or is_settled(race) or objective == "robust":
        return best(known, objective, race.winner)
    return best([one for one in known if counts_for(one.choice, plain)], objective, own)


def best_at(process: Process | None, n: int, evidence: Evidence) -> Choice | None:
    """The best choice of a process part at a tuned n: the race's winner, else the fastest known.

    One-thread choices count for every process part, but do not stand for one whose own choices never raced: those are
    then compared by their first looks. None where nothing of the process part was measured and no such choice won.
    """
    if counts_for(evidence.finals[n].winner, process):
        return _under(evidence.finals[n].winner, process)
    raced, looks = _own_times(process, n, evidence)
    if any(choice.process == process for choice in raced):
        times = {**_expected(looks, raced), **raced}
    else:
        times = {**looks, **raced}
    if not any(choice.process == process for choice in times):
        return None  # one-thread choices alone say nothing about this process part
    best = min(times, key=lambda c: (times[c], c.team.threads if c.team else 0, codec.digest(c)))
    return _under(best, process)


def _own_times(process: Process | None, n: int, evidence: Evidence) -> tuple[dict[Choice, float], dict[Choice, float]]:
    """What was raced and what was looked at, at a tuned n, of the choices that count for a process part, in ns."""
    raced = {c: ns for c, ns in _raced(n, evidence).items() if counts_for(c, process)}
    looks = {c: value for c, t in evidence.looks.get(n, {}).items() if (value := value_of(t))}
    return raced, {c: value for c, value in looks.items() if counts_for(c, process)}


def _raced(n: int, evidence: Evidence) -> dict[Choice, float]:
    """What final races at n know, in ns: a later one displaces no time that is better known, and one that was dropped
    from it no faster choice of an earlier race. What was dropped from another race counts as a look does.
    """
    failed, found = _failed(evidence.races).get(n, ()), dict[Choice, tuple[int, float]]()
    finals = [race for race in evidence.races if race.purpose == "final" and race.problem.n == n]
    for race in (*finals, evidence.finals[n]):
        for standing in race.standings:
            if standing.summary and standing.choice not in failed:
                sure = weight(standing.summary.samples, standing.contended)
                rough = sure == THIN and race is not evidence.finals[n]
                if sure >= found.get(standing.choice, (THIN, 0.0))[0]:
                    found[standing.choice] = sure, standing.summary.p25_ns * (LOOK_NOISE if rough else 1.0)
    return {choice: ns for choice, (_, ns) in found.items()}


def _expected(looks: dict[Choice, float], raced: dict[Choice, float]) -> dict[Choice, float]:
    """What looks at choices that never raced tell beside those that did: more by the noise of a look, and by as much as
    the race's time of the fastest is over the look at it."""
    best = min(raced, key=raced.__getitem__)
    worth = LOOK_NOISE * max(1.0, raced[best] / looks.get(best, raced[best]))
    return {choice: worth * value for choice, value in looks.items() if choice not in raced}


def _points(process: Process | None, evidence: Evidence) -> dict[Choice, dict[int, Point]]:
    """All figures of every choice of a process part that races have.

    The final race at an n goes before crossing races there, a later race before an earlier one; but none before one
    whose figures of the choice are better known, see `settled.weight`.
    """
    found: dict[Choice, dict[int, Point]] = {}
    for race in sorted(evidence.races, key=lambda v: v.purpose == "final"):
        for standing in race.standings:
            if standing.summary and counts_for(standing.choice, process):
                n = race.problem.n
                known = found.setdefault(_under(standing.choice, process), {})
                sure = weight(standing.summary.samples, standing.contended)
                if n in known and sure < weight(known[n].summary.samples, known[n].contended):
                    continue
                point = _point(n, (standing.summary, sure > THIN), standing.choice, standing.contended, evidence)
                before = evidence.recalled.get(n, {}).get(standing.choice)
                if before is not None and before.summary == standing.summary:
                    point = before
                look = evidence.looks.get(n, {}).get(standing.choice)
                known[n] = _with_pools(point, look)
    return found


def _point(
    n: int, quiet: tuple[Summary, bool], choice: Choice, contended: bool, evidence: Evidence | None = None
) -> Point:
    """A point with all that is known of a choice at n; `quiet` are its figures and whether a race gave them."""
    stolen = evidence.stolen.get(n, {}).get(choice) if evidence else None
    joules = evidence.joules.get(n, {}).get(choice) if evidence else None
    extra = {
        "contended": contended or None,
        "fragility": round(stolen.mean_ns / quiet[0].p25_ns, 4) if stolen else None,
        "joules": joules,
    }
    return Point(n, *quiet, stolen, pairs({name: value for name, value in extra.items() if value is not None}))


def _with_pools(point: Point, trial: Measurement | None) -> Point:
    """The point with what was wrong with the thread pools of the process that its choice ran in."""
    said = of_trial(trial) if trial else ()
    return point._replace(extra=pairs({**dict(point.extra), "pools": said})) if said else point


def _with_looks(choice: Choice, points: dict[int, Point], evidence: Evidence) -> dict[int, Point]:
    """A choice's race points, and its first looks where it did not race."""
    found = dict(points)
    for n, looks in evidence.looks.items():
        trial = next((t for c, t in looks.items() if c == choice or _same_alone(c, choice)), None)
        if n not in found and trial is not None:
            noisy = is_contended(noisy_samples(trial), len(trial.samples_ns))
            point = _point(n, (summary(trial.samples_ns, SEED), False), trial.choice, noisy)
            found[n] = _with_pools(point, trial)
    return found


def _same_alone(one: Choice, other: Choice) -> bool:
    same = (one.build, one.team, _memory(one)) == (other.build, other.team, _memory(other))
    return _alone(one) and _alone(other) and same


def _default_points(default: Choice, evidence: Evidence) -> tuple[Point, ...]:
    points = _points(default.process, evidence).get(default, {})
    return tuple(point for _, point in sorted(_with_looks(default, points, evidence).items()))


def _rows(
    picks: list[tuple[int, Choice]],
    points: dict[Choice, dict[int, Point]],
    races: _Races,
    depends: tuple[str, ...],
) -> tuple[Row, ...]:
    """Neighbours with the same choice made one row, borders between rows."""
    known = {choice: _with_looks(choice, points.get(choice, {}), races.evidence) for _, choice in picks}
    rows: list[Row] = []
    low = picks[0][0] if picks else 0

    def add(choice: Choice, low: int, end: int) -> int:
        points_of = known.get(choice) or _with_looks(choice, points.get(choice, {}), races.evidence)
        rows.append(Row(low, end - 1, choice, _kept(points_of, low, end - 1), depends))
        return end

    for i, (n, choice) in enumerate(picks):
        after = picks[i + 1] if i + 1 < len(picks) else None
        if after is not None and after[1] == choice:
            continue
        between = None if after is None else _between((n, choice), after, races)
        if between is not None:
            low = add(choice, low, between.first)
            low = add(between.choice, low, between.end)
        else:
            low = add(choice, low, n + 1 if after is None else _border((n, choice), after, known, races))
            end = low if after is None else _made_again((n, choice), after, low, races)
            low = add(races.default, low, end) if races.default and low < end else low
    return tuple(rows)


def _made_again(left: tuple[int, Choice], right: tuple[int, Choice], border: int, races: _Races) -> int:
    """The first n from a border on for which the right choice is made, if the default is for all before it."""
    exists, default = races.exists, races.default
    if exists is None or default is None:
        return border
    first = ends(left, right, exists)[1]
    return first if first > border and exists(default, border) and exists(default, first - 1) else border


def _between(left: tuple[int, Choice], right: tuple[int, Choice], races: _Races) -> Stretch | None:
    """What is taken between two tuned n instead of both their choices, if anything; of other objectives than time no
    more is known than of the two."""
    if races.objective != "latency":
        return None
    ends, raced = [], set[Choice]()
    for n, choice in (left, right):
        own, looks = _own_times(races.process, n, races.evidence)
        if not own:
            return None
        raced |= {races.same(one) for one in own}
        ends.append((n, choice, {races.same(c): ns for c, ns in {**_expected(looks, own), **own}.items()}))
    found = third(ends[0], ends[1], raced, _measured((left[0], right[0]), races))
    exists = races.exists
    if found is None or exists is None or (exists(found.choice, found.first) and exists(found.choice, found.end - 1)):
        return found
    return None


def _kept(points: dict[int, Point], low: int, high: int) -> tuple[Point, ...]:
    """The points inside low..high and the nearest one on either side: all that an estimate in the range can use."""
    first = max((n for n in points if n < low), default=low)
    last = min((n for n in points if n > high), default=high)
    return tuple(points[n] for n in sorted(points) if first <= n <= last)


def _measured(ends: tuple[int, int], races: _Races) -> dict[int, dict[Choice, float]]:
    """Times in ns of the races between two n, the latest of each choice."""
    found: dict[int, dict[Choice, float]] = {}
    for race in races.evidence.races:
        if ends[0] < race.problem.n < ends[1]:
            own = {races.same(s.choice): s.summary.p25_ns for s in race.standings if s.summary and ranks(s)}
            found.setdefault(race.problem.n, {}).update(own)
    return found


# --- borders ---


class _Races(NamedTuple):
    """What borders are placed by: the races, what the rows are for, the n at which the choice is settled, whether a
    choice is made for an n, and what answers where neither neighbour's is."""

    process: Process | None
    evidence: Evidence
    objective: str
    kept: frozenset[int] = frozenset()
    exists: Exists | None = None
    default: Choice | None = None

    def same(self, choice: Choice) -> Choice:
        """How a choice is named under this process part."""
        return _under(choice, self.process)


def _joined(picks: list[tuple[int, Choice]], races: _Races) -> list[tuple[int, Choice]]:
    """The picks with as few ranges as lose no more than the bound at any tuned n, as far as races say.

    Of other objectives than time the figures are too rough for that, or not to be compared between two n.
    """
    if races.objective != "latency":
        return picks
    rivals = list(dict.fromkeys(choice for _, choice in picks))
    cells = [
        Cell(n, choice, {choice: 0.0}) if n in races.kept else cell(races.evidence.races, n, choice, rivals, races.same)
        for n, choice in picks
    ]
    return [(n, choice) for (n, _), choice in zip(picks, fewest(cells), strict=True)]


def _border(
    left: tuple[int, Choice], right: tuple[int, Choice], known: dict[Choice, dict[int, Point]], races: _Races
) -> int:
    """The first n of the right choice: where the interpolated times cross, also by what was measured between them."""
    (a, ours), (b, theirs) = left, right
    between = sorted({race.problem.n for race in races.evidence.races if a < race.problem.n < b})
    ratios = [(n, _log_ratio(n, ours, theirs, known, races)) for n in (a, *between, b)]
    place = border([one for one in ratios if one[0] in (a, b) or one[1] is not None])
    return place if races.exists is None else within(place, left, right, races.exists)


def _log_ratio(
    n: int, ours: Choice, theirs: Choice, known: dict[Choice, dict[int, Point]], races: _Races
) -> float | None:
    """Log of the ratio of two choices' figures at n: of times from the latest race both ran in, else from their points.

    Of efficiency no ratio is known: it is decided by what is near the best, and that changes between the two.
    """
    if races.objective != "latency":
        beside = [known[choice][n].stolen if n in known[choice] else None for choice in (ours, theirs)]
        one, other = (figures.mean_ns if figures else None for figures in beside)
        return math.log(one / other) if races.objective == "robust" and one and other else None
    raced = log_ratio(races.evidence.races, n, ours, theirs, races.same)
    if raced is not None:
        return raced
    left, right = known[ours].get(n), known[theirs].get(n)
    return math.log(left.summary.p25_ns / right.summary.p25_ns) if left and right else None


# --- held out ---


def with_heldout(table: Table, verdicts: Sequence[Verdict]) -> Table:
    """The table with each section's regret at n that were not tuned.

    Args:
        table: a learned table.
        verdicts: races of purpose heldout (others are passed over), each with the table's choice and its rivals.

    Returns:
        The same table with `heldout` set where there is such a race inside the section's tuned region. An n where the
        table's choice failed is named in the section's extra field `heldout_failed`, and then no bound is claimed.
    """
    races = [v for v in verdicts if v.purpose == "heldout"]
    return with_id(table._replace(sections=tuple(_held_section(section, races) for section in table.sections)))


def _held_section(section: Section, verdicts: list[Verdict]) -> Section:
    group = (section.dtype, section.shape, section.regime)
    first, last = section.tuned_n[0], section.tuned_n[-1]
    own = {v.problem.n: v for v in verdicts if _group(v.problem) == group and first <= v.problem.n <= last}
    regrets: dict[int, float] = {}
    failed = []
    for n, race in sorted(own.items()):
        standing = _standing_of(choose(section, n), section.process, race.standings)
        if standing is not None and standing.outcome == "failed":
            failed.append(n)
        elif standing is not None and standing.summary is not None:
            regrets[n] = _regret(standing, section.process, race)
    extra = {**dict(section.extra), **({"heldout_failed": tuple(failed)} if failed else {})}
    heldout = _heldout(regrets) if regrets and not failed else None
    return section._replace(heldout=heldout or (None if failed else section.heldout), extra=pairs(extra))


def _standing_of(choice: Choice, process: Process | None, standings: Sequence[Standing]) -> Standing | None:
    return next((s for s in standings if _under(s.choice, process) == _under(choice, process)), None)


def _regret(own: Standing, process: Process | None, race: Verdict) -> float:
    """Time over the best known time of the choices that this process part can run; at least 1.

    Where the race's winner is one of them, the race's own estimate, which did not pick the best by what it times it
    with; else, and after very few rounds, the ratio to the lowest, which is a little too high.
    """
    if own.regret is not None and counts_for(race.winner, process):
        return max(1.0, own.regret)
    times = [s.summary.p25_ns for s in race.standings if s.summary and counts_for(s.choice, process)]
    return max(1.0, own.summary.p25_ns / min(times)) if own.summary else 1.0


def _heldout(regrets: dict[int, float]) -> HeldOut:
    values = tuple(regrets.values())
    geomean = math.exp(sum(map(math.log, values)) / len(values))
    return HeldOut(tuple(regrets), values, geomean, max(values))

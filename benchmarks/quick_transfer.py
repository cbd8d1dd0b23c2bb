"""What a quick tune spends its few looks on, by replay: what other machines are least sure of, or the same in order.

    python benchmarks/quick_transfer.py DIR [--families 24] [--draws 25] [--tunes 12] [--json FILE|-]

Of each case some machines are known and one is not. The ways of the ladder (docs/transfer.md) take choices; a quick
search looks at up to six of them. Compared are, after 1 to 6 looks, the best of

    unsure    what the ways take, then what may be best and machines disagree about: what `advisor tune --quick` does
    by mean   the same without regard to how sure machines are
    by chance the first way's choice, then any that machines know
    ways      what the ways take, and no more
    any       any choices of the space: no transfer at all

by their true times over the optimum: geometric mean over cases with a bootstrap 95 % interval, and `unsure` over each.

Cases are the recorded spaces in DIR (T4), each device left out in turn, 85 % of a space a draw; and simulated machines:
`--families` groups of six drawn machines (tests/simulated_machine.py), of which the last is not known. Those of a group
share half of what makes a build fast: how alike real machines are nobody knows, so that these figures compare orders
and say nothing of machines.

With `--tunes` so many of these machines are also tuned quickly as a whole, from one n to the next, with these looks,
with two as in a full search, and with none.

Pure replay, nothing is timed: some 2 s a family, 5 s a tune. Exit status 0 done, 1 refused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))

import numpy as np
import simulated_run as runs
from fake import recorded_noise
from simulated_machine import FITTED, Simulated, SimulatedExecutor, drawn_shape
from transfer import DEVICES, drawn, named, others, spaces

from advisor.errors import AdvisorError
from advisor.records import Build, Choice, Problem, pairs
from advisor.search import carry
from advisor.search import tune as tuner
from advisor.search.elsewhere import Cell, Elsewhere, Group, Timed
from advisor.search.log import Log
from advisor.search.portable import by_program, listed, portable
from advisor.search.replay import Recorded
from advisor.search.rungs import Asked, middles
from advisor.search.traits import Spot, model_of, spot_of

LOOKS = (1, 2, 3, 6)
UNSURE, MEAN, CHANCE, WAYS, ANY = ORDERS = "unsure", "by mean", "by chance", "ways", "any"
KNOWN_MACHINES = 5
KNOWN_CHOICES = 60
"""What the log of a simulated machine holds at an n, beside the default and the best: a search's looks."""
NOISE = 0.03
"""Standard deviation of the log of a time in such a log."""
RESAMPLES = 2000

Times = Mapping[Choice, float]


class Case(NamedTuple):
    """One machine that nobody tuned, at one n: what is known elsewhere, and its own true times."""

    source: str
    known: tuple[Elsewhere, ...]
    spot: Spot
    group: Group
    n: int
    times: Times


# --- recorded spaces ---


def choices_of(space: Recorded) -> dict[Choice, float]:
    """The configurations that worked as choices of one variant, with their times."""
    rows = zip(named(space), space.time_ms, space.failed, strict=True)
    return {_choice(one): float(ms) * 1e6 for one, ms, failed in rows if not failed}


def _choice(values: Mapping[str, Any]) -> Choice:
    return Choice(Build(values.get("variant", "recorded"), "0" * 12, pairs(values), "recorded", "none"), None, None)


def recorded_cases(folder: Path, draws: int) -> Iterator[Case]:
    """Every recorded space with the other devices of its kernel known, a draw each."""
    found = spaces(folder, [])
    for space in found:
        group: Group = (space.kernel, "warm", ())
        known = tuple(_device(one, group) for one in others(space, found))
        for seed in range(draws):
            spot = Spot(1, 1, DEVICES.get(space.device, {}))
            yield Case("recorded", known, spot, group, 1, choices_of(drawn(space, seed)))


def _device(space: Recorded, group: Group) -> Elsewhere:
    times = choices_of(space)
    cell = {portable(choice): Timed(ns, choice, True) for choice, ns in times.items()}
    best = min(times, key=times.__getitem__)
    spot = Spot(1, 1, DEVICES.get(space.device, {}))
    return Elsewhere(space.device, space.device, None, spot, {group: {1: cell}}, {group: {1: best}}, {group: best})


# --- simulated machines ---


class Kin(Simulated):
    """A simulated machine half of whose builds' speeds are those of its family."""

    def __init__(self, own: Simulated, family: Simulated) -> None:
        super().__init__(own.machine, own.model, own.traits, ())
        mine, theirs = own.builds, family.builds
        self.builds = mock.Mock()
        self.builds.factor = lambda *asked: math.sqrt(mine.factor(*asked) * theirs.factor(*asked))


def family(number: int) -> list[tuple[runs.Drawn, Any, Callable[[Problem], tuple[Choice, ...]], Kin]]:
    """Machines of one kernel: (what was drawn, request, space of a problem, machine)."""
    rng = random.Random(f"family {number}")
    kernel, made = sorted(runs.SIZES)[number % len(runs.SIZES)], []
    for _ in range(KNOWN_MACHINES + 1):
        one = runs.Drawn(
            number, drawn_shape(rng), kernel, rng.randrange(runs.NOISES), rng.randrange(1000), rng.getrandbits(32)
        )
        made.append((one, *runs.ground(one)))
    seed = rng.getrandbits(32)
    found = []
    for one, request, space, own in made:
        every = [choice for problem in request.problems for choice in space(problem)]
        of_family = Simulated(own.machine, FITTED, own.traits._replace(seed=seed), every)
        machine = own.machine._replace(model_name=f"simulated {one.seed}", hardware_id=f"{one.seed:012x}"[:12])
        found.append((one, request._replace(machine=machine), space, Kin(own, of_family)))
    return found


def elsewhere(member: tuple[runs.Drawn, Any, Callable[[Problem], tuple[Choice, ...]], Kin]) -> Elsewhere:
    """What the log of a simulated machine tells: the default, the best and some choices, with noise."""
    one, request, space, machine = member
    rng = random.Random(f"log {one.seed}")
    cells: dict[int, Cell] = {}
    picks: dict[int, Choice] = {}
    default = None
    for problem in request.problems:
        choices = space(problem)
        times = {choice: machine.seconds(problem, choice) * 1e9 for choice in choices}
        best, default = min(times, key=times.__getitem__), default or choices[0]
        cell: Cell = {}
        for choice in [best, default, *rng.sample(list(choices), min(KNOWN_CHOICES, len(choices)))]:
            ns = times[choice] * math.exp(rng.gauss(0, NOISE))
            if portable(choice) not in cell or ns < cell[portable(choice)].ns:
                cell[portable(choice)] = Timed(ns, choice, False)
        cells[problem.n], picks[problem.n] = cell, best
    group = _group(request.problems[0])
    return Elsewhere(
        f"machine {one.seed}", model_of(request.machine), request.machine, spot_of(request.machine),
        {group: cells}, {group: picks}, {group: default},
    )  # fmt: skip


def _group(problem: Problem) -> Group:
    return problem.dtype, problem.regime, problem.shape


def simulated_cases(families: int) -> Iterator[Case]:
    """The last machine of every family at each of its n, the others known."""
    for number in range(families):
        *members, (_, request, space, machine) = family(number)
        known = tuple(elsewhere(member) for member in members)
        for problem in request.problems:
            times = {choice: machine.seconds(problem, choice) for choice in space(problem)}
            yield Case("simulated", known, spot_of(request.machine), _group(problem), problem.n, times)


# --- looks ---


def looked_at(case: Case, seed: int) -> dict[str, list[Choice]]:
    """What is looked at in turn, for every order."""
    chance, programs = random.Random(f"{case.source} {case.n} {seed}"), by_program(case.times)
    asked = Asked(case.spot, lambda what: (what.variant, what.knobs) in programs, case.group, case.n)
    guesses = [guess for _, guess in carry.everything(case.known, asked, with_model=True)]
    known, ways = carry.unsure(case.known, asked), carry.in_order(guesses, quick=True)
    middle = middles(known)
    by_mean = sorted(known, key=lambda one: sum(one.logs.get(place, log) for place, log in middle.items()))
    taken = {UNSURE: [*ways, *known], MEAN: [*ways, *by_mean], WAYS: ways}
    taken[CHANCE] = [*ways[:1], *chance.sample(known, len(known))]
    found = {order: _first(listed(one.what, one.like, programs) for one in each) for order, each in taken.items()}
    return {**found, ANY: chance.sample(list(case.times), min(max(LOOKS), len(case.times)))}


def _first(choices: Iterable[Choice | None]) -> list[Choice]:
    """The first distinct ones, as many as a quick search looks at."""
    found: dict[Choice, None] = {}
    for choice in choices:
        found |= {} if choice is None else {choice: None}
        if len(found) == carry.MOST_QUICK:
            break
    return list(found)


def curve(case: Case, choices: Sequence[Choice]) -> list[float]:
    """Log of the best time over the optimum after each of LOOKS; where there are no more choices, as before."""
    best = min(case.times.values())
    return [math.log(min(case.times[one] for one in choices[:count]) / best) for count in LOOKS]


class Compared(NamedTuple):
    """Geometric means after each of LOOKS, `unsure` over the other order, and how many choices there were to order."""

    source: str
    order: str
    cases: int
    choices: float
    mean: list[tuple[float, float, float]]
    ratio: list[tuple[float, float, float]]


def compared(cases: Sequence[Case]) -> list[Compared]:
    """Every order on the cases of each source."""
    found = []
    for source in dict.fromkeys(case.source for case in cases):
        own = [case for case in cases if case.source == source]
        each_case = [looked_at(case, i) for i, case in enumerate(own)]
        taken = {order: [one[order] for one in each_case] for order in ORDERS}
        logs = {o: np.array([curve(*pair) for pair in zip(own, each, strict=True)]) for o, each in taken.items()}
        for order, each in taken.items():
            count = float(np.mean([len(one) for one in each]))
            mean = [interval(logs[order][:, i]) for i in range(len(LOOKS))]
            ratio = [interval(logs[UNSURE][:, i] - logs[order][:, i]) for i in range(len(LOOKS))]
            found.append(Compared(source, order, len(own), count, mean, ratio))
    return found


def interval(logs: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean and its bootstrap 95 % interval over the cases."""
    chance = np.random.default_rng(0)
    means = logs[chance.integers(len(logs), size=(RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return math.exp(float(logs.mean())), math.exp(float(low)), math.exp(float(high))


# --- whole quick tunes ---

SEEDING = ("unsure", "two as in a full search", "none")


def tunes(families: int) -> list[tuple[str, int, tuple[float, float, float], tuple[float, float, float]]]:
    """Quick tunes of the last machine of so many families: regret of their winners, a way of seeding each.

    Returns:
        (seeding, problems, geometric mean of time over the optimum, `unsure` over it).
    """
    logs: dict[str, list[float]] = {seeding: [] for seeding in SEEDING}
    for number in range(families):
        *members, target = family(number)
        known = tuple(elsewhere(member) for member in members)
        for seeding in SEEDING:
            logs[seeding] += tuned(target, known, seeding)
    found = {seeding: np.array(own) for seeding, own in logs.items()}
    return [(seeding, len(own), interval(own), interval(found[SEEDING[0]] - own)) for seeding, own in found.items()]


def tuned(target: Any, known: tuple[Elsewhere, ...], seeding: str) -> list[float]:
    """Log regret of a quick tune's winner at each n; the default's where none was raced."""
    one, request, space, machine = target
    executor = SimulatedExecutor(machine, recorded_noise(one.noise, one.offset))
    options = request.options._replace(quick=True)
    with tempfile.TemporaryDirectory() as folder, Log(os.path.join(folder, "m.jsonl")) as log, seeded(known, seeding):
        outcome = tuner.tune(request._replace(options=options), executor, log, clock=executor.clock)
    winners = {v.problem: v.winner for v in outcome.verdicts if v.purpose == "final"}
    found = []
    for problem in request.problems:
        times = {choice: machine.seconds(problem, choice) for choice in space(problem)}
        found.append(math.log(times[winners[problem]] / min(times.values())))
    return found


def seeded(known: tuple[Elsewhere, ...], seeding: str) -> Any:
    """The tuner with what other machines say, in an order of looks."""

    def taken_over(machine: Any, problem: Problem, choices: Sequence[Choice], *, quick: bool) -> tuple[Choice, ...]:
        if seeding == "none":
            return ()
        return carry.taken_over(machine, problem, choices, quick=seeding == "unsure", known=known)

    return mock.patch.object(tuner, "taken_over", taken_over)


# --- printing ---


def shown(orders: Sequence[Compared], whole: Sequence[Any]) -> str:
    """Tables of both."""
    lines = [f"{'':24} looks " + " ".join(f"{count:>21}" for count in LOOKS)]
    for one in orders:
        cells = " ".join(f"{words(found):>21}" for found in one.mean)
        lines.append(f"{one.source:10} {one.order:12}       {cells}  ({one.cases} cases, {one.choices:.1f} choices)")
    for one in orders:
        if one.order != UNSURE:
            cells = " ".join(f"{words(found):>21}" for found in one.ratio)
            lines.append(f"{one.source:10} over {one.order:12}  {cells}")
    for seeding, count, mean, ratio in whole:
        lines.append(f"quick tunes, {seeding:24} {words(mean)} over {count} problems; unsure over it {words(ratio)}")
    return "\n".join(lines)


def words(found: tuple[float, float, float]) -> str:
    """A geometric mean with its interval."""
    return "{:.3f} ({:.3f}-{:.3f})".format(*found)


def main(given: Sequence[str] | None = None) -> int:
    """Replay, compare, print. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", type=int, default=24)
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--tunes", type=int, default=12)
    parser.add_argument("--json", dest="json_path")
    asked = parser.parse_args(given)
    try:
        cases = [*recorded_cases(asked.folder, asked.draws), *simulated_cases(asked.families)]
        orders, whole = compared(cases), tunes(asked.tunes) if asked.tunes else []
    except (AdvisorError, OSError) as error:
        print(f"quick_transfer: {error}", file=sys.stderr)
        return 1
    document = {"looks": LOOKS, "orders": [one._asdict() for one in orders], "tunes": whole}
    text = json.dumps(document, indent=1)
    print(text if asked.json_path == "-" else shown(orders, whole))
    if asked.json_path not in (None, "-"):
        Path(asked.json_path).write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

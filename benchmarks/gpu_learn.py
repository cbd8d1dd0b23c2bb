"""Tables from all that a folder has measured: what the tunes left, and the races that benchmarks/gpu.py ran after them.

    python benchmarks/gpu_learn.py DIR

Races become sessions of DIR/policy's logs, so that a table which lost one to a library does not go on saying so; sizes
at which next to nothing was compared leave the logs. The tables are learned again from those. Done twice it changes
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import relearn
from gpu_cells import CELLS, CHAIN, known_of, problem_of
from gpu_ground import POLICY, log_of
from gpu_judge import LEAST_ROUNDS
from gpu_rows import Row, read
from gpu_ship import log_lines

from advisor.codec import digest, from_json, to_json
from advisor.errors import AdvisorError, BadInput
from advisor.kernels.header import LIBRARY_GPU_LANGUAGES
from advisor.policy.store import load_table, save_table
from advisor.records import Choice, Problem, Standing, Verdict
from advisor.search.race import NEGLIGIBLE
from advisor.search.samples import log_ratio, point_excess, smooth_p25, summary

LEAST_LOOKS = 4
"""A size at which fewer choices were looked at, none of them a library's, and that was not raced, is left out: nothing
says that its choice is a good one."""


# --- a race as a verdict ---


def verdict_of(row: Row, default: Choice) -> Verdict:
    """A row of the part race as a final race of the product: the fastest wins, the table's choice where that race does
    not tell it apart from the fastest.

    Args:
        row: with figures.
        default: the untuned choice at this n.
    """
    entrants = [one for one in row.data["entrants"] if one["kind"] != "floor"]
    samples = {from_json(Choice, one["choice"]): row.data["samples"][one["name"]] for one in entrants}
    told = [from_json(Choice, one["choice"]) for one in entrants if "table" in one["roles"]]
    value = {choice: smooth_p25(taken) for choice, taken in samples.items()}
    best = min(value, key=value.__getitem__)
    winner = next((one for one in told if not is_slower(samples, one, best)), best)
    standings = tuple(standing(samples, one, winner) for one in sorted(samples, key=value.__getitem__))
    rounds = min(map(len, samples.values()))
    return Verdict(problem_of(row.key["shape"], row.key["n"]), "final", winner, default, rounds, standings)


def standing(samples: dict[Choice, list[float]], choice: Choice, winner: Choice) -> Standing:
    """How a choice came out; all have had as many rounds."""
    between = log_ratio(samples[winner], samples[choice], 0.05, 0)
    ends = (math.exp(between.low), math.exp(between.high))
    outcome = "winner" if choice == winner else "slower" if is_slower(samples, choice, winner) else "tie"
    excess = point_excess(list(samples.values()), list(samples).index(choice))
    return Standing(choice, outcome, summary(samples[choice]), math.exp(between.centre), ends, math.exp(excess))


def is_slower(samples: dict[Choice, list[float]], choice: Choice, than: Choice) -> bool:
    """Whether a race tells a choice apart from a faster one, by more than matters."""
    return log_ratio(samples[than], samples[choice], 0.05, 0).low > NEGLIGIBLE


def session_of(row: Row, verdict: Verdict, like: dict[str, Any]) -> list[str]:
    """The lines of a log that tell a race: a session of the same machine and versions as another, and the verdict."""
    name = f"race-{digest([row.key, row.state['at']])}"
    opened = {**like, "session": name, "time": row.state["at"]}
    ended = {"kind": "verdict", "session": name, "race": f"{name}-1", "verdict": to_json(verdict)}
    return [json.dumps(record, allow_nan=False) + "\n" for record in (opened, ended)]


# --- what stays ---


def thin(lines: Sequence[str], libraries: Iterable[str]) -> set[Problem]:
    """The problems of a log at which fewer than LEAST_LOOKS choices have a time, none of them a library's."""
    named, looks = set(libraries), dict[Problem, set[str]]()
    for record in map(json.loads, lines):
        measured = record.get("measurement") or {}
        if measured.get("problem"):
            found = looks.setdefault(from_json(Problem, measured["problem"]), set())
            if measured["status"] == "ok" and measured["samples_ns"]:
                found.add(json.dumps(measured["choice"], sort_keys=True))
    return {
        problem
        for problem, choices in looks.items()
        if len(choices) < LEAST_LOOKS and not any(json.loads(one)["build"]["variant"] in named for one in choices)
    }


def told_of(record: dict[str, Any]) -> Problem | None:
    """The problem that a record measured or judged; None of sessions and rounds."""
    found = (record.get("measurement") or record.get("verdict") or {}).get("problem")
    return from_json(Problem, found) if found else None


def with_races(kernel: str, lines: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """The lines of a kernel's log without thin sizes, and with the races that were run after it.

    Raises:
        BadInput: a race of a shape that the log has no race of, so that its default is not known.
    """
    records = [json.loads(line) for line in lines]
    libraries = {one.name for one in known_of(kernel) if one.language in LIBRARY_GPU_LANGUAGES}
    sessions = {record["session"]: record for record in records if record["kind"] == "session"}
    finals = [from_json(Verdict, record["verdict"]) for record in records if record["kind"] == "verdict"]
    added, raced = list[str](), set[Problem]()
    for row in rows:
        if row.data["rounds"] < LEAST_ROUNDS:
            continue
        problem = problem_of(row.key["shape"], row.key["n"])
        verdict = verdict_of(row, default_of(problem, finals))
        raced.add(problem)
        new = session_of(row, verdict, next(iter(sessions.values())))
        added += [] if json.loads(new[0])["session"] in sessions else new
    return without(lines, thin(lines, libraries) - raced) + added


def without(lines: Sequence[str], left_out: set[Problem]) -> list[str]:
    """The lines of a log without what is of some problems: trials, verdicts, the rounds of their races, and sessions
    that have nothing else."""
    gone = {digest(problem) for problem in left_out}

    def stays(record: dict[str, Any]) -> bool:
        return record.get("problem_id") not in gone and told_of(record) not in left_out

    records = [(line, json.loads(line)) for line in lines]
    kept = [(line, record) for line, record in records if stays(record)]
    full = {record["session"] for _, record in kept if record["kind"] != "session"}
    return [line for line, record in kept if record["session"] in full]


def default_of(problem: Problem, finals: Sequence[Verdict]) -> Choice:
    """The untuned choice of the race of the same shape at the nearest n. Raises BadInput."""
    same = [one for one in finals if one.problem._replace(n=problem.n) == problem]
    if not same:
        raise BadInput("a race needs a tuning of its shape", got=to_json(problem), next_step="tune it first")
    return min(same, key=lambda one: abs(math.log(one.problem.n / problem.n))).default


# --- all of it ---


def learn(folder: str) -> Iterator[str]:
    """Amend the logs, learn the tables of every kernel that has one; what became of each, in words."""
    place, rows = os.path.join(folder, POLICY), read(folder).rows
    machine = relearn.machine_of(place)
    for kernel in CHAIN:
        table, log = os.path.join(place, f"{kernel}.table.json"), os.path.join(place, log_of(kernel))
        if not os.path.exists(table):
            continue
        races = [
            row for row in rows if row.part == "race" and not row.failed and CELLS[row.key["shape"]].kernel == kernel
        ]
        new_log, new_table = f"{log}.new", f"{table}.new"
        with open(new_log, "w", encoding="utf-8") as file:
            file.writelines(with_races(kernel, list(log_lines(log)), races))
        old = load_table(table)
        new = relearn.relearned(old, machine, new_log)
        yield from relearn.lines(old, new)
        save_table(new_table, new)
        for made, path in ((new_log, log), (new_table, table)):
            os.replace(made, path)
        os.unlink(f"{new_table}.lock")


def main(words: Sequence[str] | None = None) -> int:
    """Learn, and say what changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    asked = parser.parse_args(words)
    try:
        for line in learn(asked.folder):
            print(line)
    except (AdvisorError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

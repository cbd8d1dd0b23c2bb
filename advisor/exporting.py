"""What `advisor export` does: a measurement log as files that other tuners' tools read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from advisor import __version__
from advisor.codec import digest, from_json, to_json
from advisor.errors import AdvisorError, BadInput, UnknownName
from advisor.records import Measurement, Problem
from advisor.search import log, t4
from advisor.search.known import AGAIN, DRIFT, ENERGY, FAILED, STOLEN
from advisor.search.protocol import is_contended, noisy_samples
from advisor.search.sampler import params
from advisor.words import many

FORMATS = ("t4",)

INVALIDITY = {"ok": t4.CORRECT, "wrong": "correctness", "crashed": "runtime", "timeout": "timeout"}
"""Status of a measurement -> the word of T4; what was skipped was compiled in vain or never begun: `_invalidity`."""

OTHER_REGIMES = (STOLEN, DRIFT, ENERGY)
"""Phases whose times are no plain times of a choice on a quiet machine."""

NS_IN_MS = 1e6


class Exported(NamedTuple):
    """The files that were written, how many results each has, and notes on the log."""

    files: tuple[str, ...]
    results: tuple[int, ...]
    notes: tuple[str, ...]


class Trial(NamedTuple):
    """A trial with what its session says of it."""

    measurement: Measurement
    choice_id: str
    timestamp: str
    timed: bool


Key = tuple[Problem, str]
"""A problem on a machine (its hardware id)."""


def export(path: str, form: str, out: str, contended: bool = False) -> Exported:
    """Write a log, one file a problem and machine; a file of that name is replaced.

    Args:
        path: a measurements.jsonl.
        form: one of `FORMATS`.
        out: the folder; made where it is not there.
        contended: also looks whose samples say more about other processes than about the choice.

    Raises:
        UnknownName: there is no such format.
        Missing: there is no such log.
        BadInput: it is no log, or has no trial to export.
    """
    if form not in FORMATS:
        raise UnknownName("no such format", got=form, allowed=", ".join(FORMATS))
    found = log.read(path)
    problems = trials(found.records)
    notes = found.notes if contended else (*found.notes, *_leave_out_contended(problems))
    if not problems:
        got = "; ".join((many(len(found.records), "record"), *notes))
        raise BadInput(f"{path} must have a trial to export", got=got)
    raced = race_samples(found.records)
    os.makedirs(out, exist_ok=True)
    files, counts = [], []
    for (problem, machine), listed in problems.items():
        written = results(listed, raced.get((digest(problem), machine), {}))
        files.append(os.path.join(out, file_name(problem, machine)))
        t4.write(files[-1], written, _metadata(problem, machine, listed[0].timestamp))
        counts.append(len(written))
    return Exported(tuple(files), tuple(counts), tuple(notes))


def _leave_out_contended(problems: dict[Key, list[Trial]]) -> tuple[str, ...]:
    """Take the contended looks out, and say how many they were."""
    before = sum(map(len, problems.values()))
    for key, listed in list(problems.items()):
        problems[key] = [trial for trial in listed if not _contended(trial.measurement)]
        if not problems[key]:
            del problems[key]
    left_out = before - sum(map(len, problems.values()))
    return (f"left out: {many(left_out, 'contended look')}; --contended keeps them",) if left_out else ()


def _contended(found: Measurement) -> bool:
    return is_contended(noisy_samples(found), len(found.samples_ns))


def file_name(problem: Problem, machine: str) -> str:
    """KERNEL-PROBLEM.T4.json.gz: other sizes and machines of a kernel read as other devices of it."""
    shape = "_".join(f"{name}{value}" for name, value in problem.shape)
    text = f"{problem.kernel}-{problem.dtype}_{shape}_n{problem.n}_{problem.regime}_{machine}"
    return re.sub(r"[^\w.-]", "_", text) + ".T4.json.gz"


def trials(records: Iterable[Mapping[str, Any]]) -> dict[Key, list[Trial]]:
    """The trials of each problem and machine, in the order measured; those that cannot be read are left out."""
    sessions: dict[Any, Mapping[str, Any]] = {}
    found: dict[Key, list[Trial]] = {}
    for record in records:
        if record["kind"] == "session":
            sessions[record.get("session")] = record
        elif record["kind"] == "trial" and record.get("phase") not in OTHER_REGIMES:
            try:
                measurement: Measurement = from_json(Measurement, record.get("measurement"))
            except AdvisorError:
                continue
            session = sessions.get(record.get("session"), {})
            trial = Trial(
                measurement,
                digest(measurement.choice),
                str(session.get("time", "")),
                record.get("phase") != AGAIN,
            )
            found.setdefault((measurement.problem, str(session.get("hardware_id", ""))), []).append(trial)
    return found


def race_samples(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(id of the problem, machine) -> id of the choice -> samples of races in nanoseconds, rejected ones left out."""
    machines: dict[Any, str] = {}
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for record in records:
        if record["kind"] == "session":
            machines[record.get("session")] = str(record.get("hardware_id", ""))
        sample = t4.number(record.get("sample_ns")) if record["kind"] == "race" else None
        if sample is not None and record.get("status") == "ok" and not record.get("rejected"):
            key = str(record.get("problem_id")), machines.get(record.get("session"), "")
            found.setdefault(key, {}).setdefault(str(record.get("choice_id")), []).append(sample)
    return found


def results(listed: Sequence[Trial], raced: Mapping[str, list[float]]) -> list[t4.Result]:
    """One result a configuration: all its samples as runs; it failed if it failed once.

    Of two versions of a source the later one counts: they would be one configuration with two meanings.
    """
    kept: dict[tuple[Any, ...], list[Trial]] = {}
    knobs = sorted({name for trial in listed for name, _ in trial.measurement.choice.build.knobs})
    for trial in listed:
        key = tuple(params(trial.measurement.choice, knobs).values())
        before = kept.get(key, [])
        kept[key] = [*before, trial] if before and before[0].choice_id == trial.choice_id else [trial]
    return [_result(same, raced.get(same[0].choice_id, ()), knobs) for same in kept.values()]


def _result(same: list[Trial], raced: Iterable[float], knobs: list[str]) -> t4.Result:
    first = same[0].measurement
    bad = next((trial.measurement for trial in same if _speaks_against(trial)), None)
    samples = [ns for trial in same if trial.timed for ns in trial.measurement.samples_ns]
    runs = () if bad else tuple(ns / NS_IN_MS for ns in (*samples, *raced))
    spent = [(m.compile_s, max(0.0, m.seconds - m.kernel_s - m.compile_s)) for m in (t.measurement for t in same)]
    compile_s, overhead_s = (sum(parts) for parts in zip(*spent, strict=True))
    return t4.Result(
        params(first.choice, knobs),
        _invalidity(bad) if bad else t4.CORRECT if runs else "runtime",
        sum(runs) / len(runs) if runs else None,
        runs,
        compile_s * 1e3,
        overhead_s * 1e3,
        same[0].timestamp,
    )


def _speaks_against(trial: Trial) -> bool:
    """Whether it failed; a check in a fresh process that was skipped had no room just then."""
    status = trial.measurement.status
    return status != "ok" if trial.timed else status in FAILED


def _invalidity(failed: Measurement) -> str:
    """T4's word for a failure."""
    return INVALIDITY.get(failed.status) or ("compile" if failed.compile_s > 0 else t4.CONSTRAINTS)


def _metadata(problem: Problem, machine: str, timestamp: str) -> dict[str, Any]:
    return {
        "device": machine,
        "autotuner": "advisor",
        "autotuner_version": __version__,
        "timestamp": timestamp,
        "problem": to_json(problem),
    }

"""Tables that were learned from a tune and from the races after it."""

import json
import os

import gpu_learn
import pytest
from gpu_bench_fixtures import STATE, samples
from gpu_cells import known_of, problem_of
from gpu_ground import POLICY, table_choice
from gpu_machine_fixtures import MACHINE
from gpu_rows import Row

from advisor.codec import digest, from_json, to_json
from advisor.errors import BadInput
from advisor.policy.learn import Made, learn
from advisor.policy.store import load_table, save_table
from advisor.records import Build, Choice, Measurement, Standing, Verdict
from advisor.search import protocol
from advisor.search.samples import summary

CELL = "fused-bf16-S"
OWN, LIBRARY, OTHER = "fused_triton", "sdpa_cudnn", "sdpa_flash"
KNOWN = {one.name: one for one in known_of("fused")}


def choice(name):
    """The choice of a variant with its default knobs."""
    return Choice(Build(name, KNOWN[name].source_hash, KNOWN[name].defaults, "triton-3.6", "none"), None, None)


def look(n, chosen, ns):
    return Measurement(problem_of(CELL, n), chosen, "ok", tuple(samples(ns, 3)), 0.0, 1.0, "", None, 0.1, 0.1, 0.0, ())


def final(n, chosen, ns):
    standing = Standing(chosen, "winner", summary(samples(ns, 9)), 1.0, (1.0, 1.0), 1.0)
    return Verdict(problem_of(CELL, n), "final", chosen, chosen, 9, (standing,))


def raced(n, rounds=24, **ns):
    """A row of the part race: variant -> time in ns, the first one the table's."""
    entrants = [
        {"name": name, "choice": to_json(choice(name)), "kind": "own" if name == OWN else "library",
         "roles": ["table"] if i == 0 else ["library"]}
        for i, name in enumerate(ns)
    ]  # fmt: skip
    taken = {name: samples(time, rounds, i) for i, (name, time) in enumerate(ns.items())}
    return Row("race", {"shape": CELL, "n": n}, {}, STATE, 1.0,
               {"entrants": entrants, "samples": taken, "rounds": rounds})  # fmt: skip


SESSION = {
    "kind": "session", "schema": "advisor.measurements/1.2", "session": "s", "time": "2026-11-30T09:00:00+00:00",
    "hardware_id": MACHINE.hardware_id, "limits_id": MACHINE.limits_id, "environment": dict(MACHINE.environment),
    "protocol": protocol.VERSION, "options": {},
}  # fmt: skip

THIN = "fused-f16-S"
"""A cell of one look."""

MEASURED = {64: [(OWN, 17_500.0), (LIBRARY, 21_700.0)], 128: [(OWN, 25_000.0)], 512: [(OWN, 57_500.0)]}
"""n -> what a tune looked at there: behind n = 64 next to nothing."""


def log():
    """The lines of that tune's log."""
    alone = problem_of(THIN, 64)
    lines = [
        SESSION,
        {"kind": "trial", "session": "s", "measurement": to_json(look(64, choice(OWN), 2e4)._replace(problem=alone))},
        {"kind": "verdict", "session": "s", "race": "s-0",
         "verdict": to_json(final(64, choice(OWN), 2e4)._replace(problem=alone))},
    ]  # fmt: skip
    for n, listed in MEASURED.items():
        for name, ns in listed:
            lines.append({"kind": "trial", "session": "s", "measurement": to_json(look(n, choice(name), ns))})
        verdict = final(n, choice(OWN), listed[0][1])
        lines.append({"kind": "race", "session": "s", "race": f"s-{n}", "problem_id": digest(problem_of(CELL, n))})
        lines.append({"kind": "verdict", "session": "s", "race": f"s-{n}", "verdict": to_json(verdict)})
    lines += [
        {**SESSION, "session": "t"},
        {"kind": "trial", "session": "t", "measurement": to_json(look(128, choice(OWN), 2e4))},
    ]
    return [json.dumps(one) + "\n" for one in lines]


@pytest.fixture
def folder(tmp_path):
    """What the parts tune and race left: the library is faster at 512, where the tune never looked at it."""
    place = tmp_path / POLICY
    place.mkdir()
    (place / "machine.json").write_text(json.dumps(to_json(MACHINE)))
    (place / "fused.measurements.jsonl").write_text("".join(log()))
    finals = [final(n, choice(OWN), listed[0][1]) for n, listed in MEASURED.items()]
    finals.append(final(64, choice(OWN), 2e4)._replace(problem=problem_of(THIN, 64)))
    trials = [look(n, choice(name), ns) for n, listed in MEASURED.items() for name, ns in listed]
    table = learn(MACHINE, finals, trials, Made("2026-11-30T09:00:00+00:00", ()))
    save_table(str(place / "fused.table.json"), table)
    os.unlink(place / "fused.table.json.lock")
    rows = [raced(64, fused_triton=17_600.0, sdpa_cudnn=21_900.0), raced(512, fused_triton=57_600.0, sdpa_cudnn=54_000)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    return tmp_path


def said(folder):
    table = load_table(str(folder / POLICY / "fused.table.json"))
    chosen = {n: table_choice(table, problem_of(CELL, n)) for n in (64, 512)}
    return table, {n: one.build.variant for n, one in chosen.items() if one}


def test_a_table_that_lost_a_race_to_a_library_names_the_library(folder):
    assert said(folder)[1] == {64: OWN, 512: OWN}
    assert gpu_learn.main([str(folder)]) == 0
    table, names = said(folder)
    assert names == {64: OWN, 512: LIBRARY}
    assert [one.tuned_n for one in table.sections] == [(64, 512)], "one look says nothing, at 128 or in another dtype"


def test_done_twice_it_changes_nothing(folder, capsys):
    place = folder / POLICY
    gpu_learn.main([str(folder)])
    first = {path.name: path.read_bytes() for path in place.iterdir()}
    assert gpu_learn.main([str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in place.iterdir()} == first
    assert "now 1, 2" in capsys.readouterr().out


@pytest.mark.parametrize(("library_ns", "winner"), [(56_600.0, LIBRARY), (57_400.0, OWN)])
def test_the_choice_of_the_table_stays_where_the_race_does_not_tell_it_apart(library_ns, winner):
    found = gpu_learn.verdict_of(raced(512, fused_triton=57_500.0, sdpa_cudnn=library_ns), choice(OWN))
    assert found.winner == choice(winner)
    assert found.rounds == 24
    ratios = {one.choice.build.variant: one.ratio for one in found.standings}
    assert ratios[OWN] / ratios[LIBRARY] == pytest.approx(57_500 / library_ns, rel=0.01)


def test_nothing_of_a_size_that_is_left_out_stays_in_the_log(folder):
    gpu_learn.main([str(folder)])
    records = [json.loads(line) for line in (folder / POLICY / "fused.measurements.jsonl").read_text().splitlines()]
    judged = {digest(from_json(Verdict, one["verdict"]).problem) for one in records if one["kind"] == "verdict"}
    assert {one["problem_id"] for one in records if one["kind"] == "race"} <= judged
    sessions = [one["session"] for one in records if one["kind"] == "session"]
    assert "t" not in sessions, "its only look was left out"
    assert {one["session"] for one in records} == set(sessions)


def test_a_short_race_says_nothing_and_one_without_a_tuning_is_refused():
    lines = log()
    found = gpu_learn.with_races("fused", lines, [raced(512, rounds=10, fused_triton=9e9, sdpa_cudnn=1.0)])
    assert {gpu_learn.told_of(json.loads(line)) for line in found} == {None, problem_of(CELL, 64)}
    with pytest.raises(BadInput, match="tuning of its shape"):
        gpu_learn.with_races("fused", [json.dumps(SESSION)], [raced(512, fused_triton=2e4, sdpa_cudnn=1e4)])

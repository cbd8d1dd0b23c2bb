"""From logs and tables to figures: the fastest choice a thread count, the chosen path, regret, failures, traffic."""

import json

import pytest
from report_fixtures import FOUR, NASTY, ONE, SIZES, TWO, folder, records, times
from tabling import MADE, SHAPE, choice, machine, problem, race, write, write_machine

from advisor import codec
from advisor.errors import BadInput, Missing
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.records import Point, pairs
from advisor.report import chapters, digest, failures, figures, material, page, traffic
from advisor.report import write as reporting
from advisor.report.digest import Key
from advisor.search import log

KEY = Key("decode", "float32", pairs(SHAPE), "warm")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "packed"])
def found(request, tmp_path_factory):
    return material.gather(folder(tmp_path_factory.mktemp("material"), request.param))


def test_a_folder_is_read_whole_also_with_a_packed_log(found):
    assert [table.kernel for table in found.tables] == ["decode"]
    assert len(found.records) == len(records())
    assert found.notes == ()


def test_a_folder_without_a_table_has_no_report(tmp_path):
    with pytest.raises(Missing, match="a report needs a table"):
        material.gather(str(tmp_path))
    folder(tmp_path)
    with pytest.raises(Missing, match="of forward"):
        material.gather(str(tmp_path), ("forward",))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("machine.json", "{", "cannot be drawn"),
        ("measurements.jsonl", "{torn", "line dropped"),
        ("fused.table.json", "[]", "fused.table.json was refused"),
    ],
)
def test_what_cannot_be_read_is_left_out_with_a_note(tmp_path, name, text, said):
    folder(tmp_path)
    (tmp_path / name).write_text(text)
    (note,) = material.gather(str(tmp_path)).notes
    assert said in note


def test_a_log_that_is_cut_is_named_and_the_table_still_tells(tmp_path):
    folder(tmp_path, packed=True)
    path = tmp_path / "measurements.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadInput, match="whole"):
        log.read(str(path))
    assert "cannot be read" in material.gather(str(tmp_path)).notes[0]


def test_each_thread_count_has_its_fastest_choice_at_each_n(found):
    dots = digest.dots(digest.timed(found.records)[KEY])
    tuned = {(dot.n, dot.at): (dot.ns, dot.raced) for dot in dots if dot.n in SIZES}
    wanted = {(n, one.team.threads): (times(n)[one], True) for n in SIZES for one in (ONE, TWO, FOUR)}
    assert {name: (pytest.approx(ns), raced) for name, (ns, raced) in tuned.items()} == wanted


def test_a_race_counts_more_than_a_later_look_and_what_was_stolen_not_at_all():
    look, race = records()[1], records()[-4]
    luckier = {**look["measurement"], "samples_ns": [1.0] * 9}
    at_1024 = [one for one in digest.timed([race, {**look, "measurement": luckier}])[KEY] if one.n == 1024]
    assert [(one.ns, one.raced) for one in at_1024] == [(ns, True) for ns in times(1024).values()]
    assert digest.timed([{**look, "phase": "stolen"}]) == {}


def test_the_path_is_what_the_table_says_with_the_regret_of_its_race(found):
    steps = digest.path(found.tables[0], KEY, found.records)
    assert [(step.n, step.choice.team.threads) for step in steps] == [(1024, 1), (4096, 2), (16384, 4)]
    assert [step.ns for step in steps] == [min(times(n).values()) for n in SIZES]
    assert {step.regret for step in steps} == {1.02}
    assert steps[0].default_ns == times(1024)[FOUR]
    assert steps[0].point.fragility == 5.0
    assert digest.heldout(found.tables[0], KEY) == (digest.HeldOutAt(8192, 1.05),)


def test_a_table_alone_has_a_path_without_regret(found):
    assert {step.regret for step in digest.path(found.tables[0], KEY, ())} == {None}


def test_published_times_are_times_of_another_basis(found):
    table = found.tables[0]
    section = table.sections[0]
    row = section.rows[0]._replace(points=(), extra=pairs({"published": [{"n": 1024, "time_ns": 7.0}]}))
    section = section._replace(rows=(row, *section.rows[1:]), extra=pairs({"basis": "PUBLISHED"}))
    step = digest.path(table._replace(sections=(section,)), KEY, ())[0]
    assert (step.ns, step.point, step.basis) == (7.0, None, "PUBLISHED")


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "trial", "phase": "search"},
        {"kind": "trial", "phase": "search", "measurement": {"status": "ok", "samples_ns": [1.0], "problem": 3}},
        {"kind": "verdict", "verdict": {"standings": [{"summary": {"p25_ns": 1.0}, "choice": {"build": {}}}]}},
        {"kind": "verdict", "verdict": {"purpose": "final", "problem": None}},
        {"kind": "later"},
    ],
)
def test_records_of_another_shape_are_passed_over(found, record):
    assert digest.timed([record]) == {}
    assert failures.failures([record], ["decode"]).counts == {}
    assert digest.path(found.tables[0], KEY, [record])[0].regret is None


ODD = (None, "nan", "inf", 10**400, -1, 0, True, 5, "\ud800", [], [None], {}, {"a": [1]})
"""Values that a log could hold in the place of any other."""


def changed(record, value):
    """The record once for each of its entries, at any depth, with a value in the place of it."""
    items = record.items() if isinstance(record, dict) else enumerate(record)
    for name, own in items:
        if isinstance(own, dict | list):
            yield from (replaced(record, name, inner) for inner in changed(own, value))
        yield replaced(record, name, value)


def replaced(record, name, value):
    copy = record.copy()
    copy[name] = value
    return copy


def test_no_record_keeps_the_page_from_being_made(found):
    """Every entry of a session, a look, a failure and a race in turn; times stay finite, and good records count."""
    kinds = [records()[i] for i in (0, 1, -5, -1)]
    odd = [one for record in kinds for value in ODD for one in changed(record, value)]
    made = reporting.report(found._replace(records=(*records(), *odd)), "now")
    assert "NaN" not in page.html(made, "")
    drawn = {one.n for own in digest.timed(odd).values() for one in own}
    assert drawn <= {1, 5, 1024, 4096, 8192, 16384}
    assert all(0 < one.ns < 1e12 for own in digest.timed(odd).values() for one in own)


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:12])
def test_an_odd_standing_leaves_the_others(value):
    race = records()[-1]
    whole = digest.timed([race])[KEY]
    standings = [value, *race["verdict"]["standings"][1:]]
    assert digest.timed([{**race, "verdict": {**race["verdict"], "standings": standings}}])[KEY] == whole[1:]


def test_a_choice_without_a_team_is_no_point_over_threads(found):
    """It has a variant in the place of threads, as a GPU's choices have."""
    look = records()[1]
    bare = {**look["measurement"], "choice": {**look["measurement"]["choice"], "team": None}}
    dots = digest.dots(digest.timed([look, {**look, "measurement": bare}])[KEY])
    assert sorted(str(dot.at) for dot in dots) == ["1", "split"]
    drawn = figures.over_threads("f", dots, digest.path(found.tables[0], KEY, ()))
    assert drawn.data[0]["x"] == [1]


def test_a_number_of_a_table_that_no_float_holds_is_refused(found):
    text = codec.dumps(found.tables[0].sections[0].rows[0].points[0])
    data = {**json.loads(text)}
    data["summary"]["p25_ns"] = 10**400
    with pytest.raises(BadInput, match="must be float"):
        codec.from_json(Point, data)


def test_failures_are_counted_by_kind(found):
    told = failures.failures(found.records, ["decode"])
    assert told.counts["decode"] == {"ok": 10, "wrong": 1, "crashed": 2, "timeout": 0, "skipped": 0}
    first = told.kinds[0]
    assert (first.variant, first.status, first.trials, first.sizes) == (NASTY, "crashed", 2, (1024, 4096))
    assert failures.failures(found.records, ["forward"]).kinds == ()


def test_of_thousands_of_kinds_some_are_shown():
    trial = records()[-len(SIZES) - 2]
    many = []
    for i in range(failures.MOST + 7):
        many.append({**trial, "measurement": {**trial["measurement"], "reason": f"{i} {'x' * 9999}"}})
    told = failures.failures(many, ["decode"])
    assert (len(told.kinds), told.more) == (failures.MOST, 7)
    assert max(len(one.reason) for one in told.kinds) == failures.LONGEST


def test_traffic_is_the_least_of_the_definition_over_the_measured_time(found):
    from advisor.kernels import registry

    steps = digest.path(found.tables[0], KEY, ())
    moved = traffic.moved(KEY, steps)
    least = sum(registry.spec("decode").elements(problem(4096)))
    assert (moved[1].n, moved[1].least) == (4096, least)
    assert moved[1].gb_per_s == pytest.approx(4 * least / steps[1].ns)
    assert moved[1].predicted is None  # the source of the table's variant is not here in that version
    assert {floor.level: floor.gb_per_s for floor in traffic.floors(found.machine)} == {"memory": 20.0, "l3": 90.0}
    assert traffic.floors(machine()) == traffic.floors(None) == ()


def test_a_variant_that_is_here_predicts_what_it_moves(found):
    from advisor.kernels.variant import evaluate, names, variants

    split = next(v for v in variants("decode") if v.name == "split")
    step = digest.path(found.tables[0], KEY, ())[0]
    knobs = tuple((name, values[0]) for name, values in sorted([*split.build_knobs, *split.run_knobs]))
    build = step.choice.build._replace(source_hash=split.source_hash, knobs=knobs)
    (moved,) = traffic.moved(KEY, [step._replace(choice=step.choice._replace(build=build))])
    there = names(problem(1024), knobs)
    assert moved.predicted == (evaluate(split.reads, there), evaluate(split.writes, there))


def test_what_is_not_known_here_has_no_prediction(found):
    steps = digest.path(found.tables[0], KEY, ())
    assert traffic.moved(KEY._replace(kernel="elsewhere"), steps) == ()
    assert traffic.moved(KEY._replace(shape=(("rows", 3),)), steps) == ()
    assert {one.gb_per_s for one in traffic.moved(KEY._replace(dtype="int3"), steps)} == {None}


@pytest.mark.parametrize("whose", [0, 1])
def test_a_gain_is_withheld_and_doubts_are_said_as_a_lookup_does(whose, tmp_path):
    """One of the two contended: the ratio would say more about the neighbours."""
    four, one = choice(threads=4), choice(threads=1)
    verdict = race(64, {four: 4000.0, one: 1000.0})
    standings = [s._replace(contended=index == whose) for index, s in enumerate(verdict.standings)]
    few = race(128, {four: 4000.0, one: 1000.0})
    rough = tuple(s._replace(summary=s.summary._replace(samples=7)) for s in few.standings)
    table = learn(machine(), [verdict._replace(standings=tuple(standings)), few._replace(standings=rough)], [], MADE)
    steps = digest.path(table, digest.keys([table])[0], ())
    policy = Policy.load(write(tmp_path, table), machine=write_machine(tmp_path, machine()))
    assert [step.gain for step in steps] == [policy.choose("decode", n).gain for n in (64, 128)] == [None, 4.0]
    assert [step.doubts for step in steps] == [("contended",) if whose else (), ("few samples",)]
    said = [policy.choose("decode", n).warnings for n in (64, 128)]
    assert [[one.split(":")[0] for one in told] for told in said] == [list(step.doubts) for step in steps]
    told = "".join(chapters._choices(steps))
    assert ("(few samples)" in told, "(contended)" in told) == (True, bool(whose))

"""Records to JSON and back, strictly; and the JSON Schemas speak of every field."""

import json
import math
import os

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabling import FOUR, ONE, PASSIVE, choice, look, machine, race, table

from advisor import codec, records
from advisor.errors import BadInput, SchemaError
from advisor.policy import store
from advisor.policy.learn import with_heldout
from advisor.records import Build, Choice, Machine, Measurement, Problem, Process, Summary, Table, Team
from advisor.topology.array import CpuArray

SCHEMAS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "schema")
RECORDS = [
    r
    for r in vars(records).values()
    if isinstance(r, type) and hasattr(r, "_fields") and r.__module__ == "advisor.records"
] + [CpuArray]

words = st.text(max_size=8)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), words, st.floats(allow_nan=False, allow_infinity=False)
)
mappings = st.dictionaries(words, scalars, max_size=3).map(records.pairs)
times = st.floats(1e-3, 1e15)
builds = st.builds(Build, words, words, mappings, words, words)
teams = st.one_of(st.none(), st.builds(Team, st.integers(1, 512), words))
processes = st.one_of(st.none(), st.builds(Process, words, words, st.one_of(st.none(), st.integers(0, 10**9)), words))
choices = st.builds(Choice, builds, teams, processes)
problems = st.builds(Problem, words, words, mappings, st.integers(1, 10**9), words)
measurements = st.builds(
    Measurement,
    problems,
    choices,
    st.sampled_from(records.STATUSES),
    samples_ns=st.lists(times, max_size=5).map(tuple),
    error=st.one_of(st.none(), times),
    tolerance=st.one_of(st.none(), times),
    reason=words,
    seconds=times,
    kernel_s=times,
    compile_s=times,
    conditions=mappings,
)


def schema(name):
    with open(os.path.join(SCHEMAS, f"{name}.schema.json"), encoding="utf-8") as file:
        found = json.load(file)
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


@given(measurements)
def test_a_measurement_survives_the_journey(record):
    text = codec.dumps(record)
    assert codec.from_json(Measurement, codec.loads(text)) == record
    assert codec.digest(codec.from_json(Measurement, json.loads(text))) == codec.digest(record)


@given(st.builds(Summary, times, times, times, times, st.tuples(times, times), st.integers(1, 1000)))
def test_a_summary_survives_the_journey(record):
    assert codec.from_json(Summary, codec.loads(codec.dumps(record))) == record


@pytest.mark.parametrize(("kind", "record"), [(Machine, machine()), (Table, table()), (Choice, ONE)])
def test_whole_artefacts_survive_the_journey(kind, record):
    assert codec.from_json(kind, codec.loads(codec.dumps(record))) == record


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused_both_ways(value):
    with pytest.raises(BadInput, match="finite"):
        codec.dumps(look(64, ONE, 1.0)._replace(samples_ns=(value,)))
    with pytest.raises(BadInput, match="finite"):
        codec.loads(json.dumps({"x": value}))
    with pytest.raises(BadInput):
        codec.from_json(Summary, {**codec.to_json(Summary(1.0, 1.0, 1.0, 1.0, (1.0, 1.0), 1)), "p25_ns": value})


def test_unknown_fields_are_kept_where_a_record_has_room():
    data = {**codec.to_json(table()), "colour": {"a": 1}}
    again = codec.from_json(Table, data)
    assert dict(again.extra)["colour"] == {"a": 1}
    assert codec.to_json(again)["colour"] == {"a": 1}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"threads": "4"}, "must be int"),
        ({"threads": True}, "must be int"),
        ({"threads": 1.5}, "must be int"),
        ({"placement": None}, "must be str"),
        ({"threads": None}, "must be int"),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(change, rule):
    with pytest.raises(BadInput, match=rule):
        codec.from_json(Team, {"threads": 1, "placement": "", **change})


def test_a_missing_field_is_named():
    with pytest.raises(BadInput, match="needs the field placement"):
        codec.from_json(Team, {"threads": 1})


@pytest.mark.parametrize("found", [None, "advisor.table/1.0", "advisor.machine/2.0", "advisor.machine/x", "machine", 7])
def test_other_schemas_are_refused(found):
    with pytest.raises(SchemaError):
        codec.check_schema({"schema": found}, "machine", "m.json")


def test_a_newer_minor_is_read():
    codec.check_schema({"schema": "advisor.machine/1.99"}, "machine", "m.json")


def test_text_that_is_no_json_is_refused():
    with pytest.raises(BadInput, match="must be JSON"):
        codec.loads("{", "x.json")


def test_a_digest_speaks_of_content_alone():
    assert codec.digest(ONE) == codec.digest(ONE._replace())
    assert codec.digest(ONE) != codec.digest(FOUR)
    assert len(codec.digest(ONE)) == 12


# --- the JSON Schemas in docs/ ---


def test_real_files_satisfy_their_schema(tmp_path):
    held = with_heldout(table(), [race(128, {ONE: 110.0, FOUR: 100.0}, "heldout")])
    path = str(tmp_path / "decode.table.json")
    store.save_table(path, held)
    with open(path, encoding="utf-8") as file:
        schema("table").validate(json.load(file))
    schema("machine").validate(json.loads(codec.dumps(machine(), "machine")))


def lines():
    verdict = race(64, {FOUR: 4.0, ONE: 1.0, choice(process=PASSIVE): math.inf})
    common = {"session": "s1"}
    yield {
        **common,
        "kind": "session",
        "schema": codec.schema_of("measurements"),
        "time": "2026-01-02T03:04:05Z",
        "hardware_id": "h",
        "limits_id": "l",
        "environment": {},
        "protocol": 1,
        "advisor": "0.1.0",
        "options": {},
        "space_hash": "x",
    }
    for trial in (look(64, ONE, 1.0), look(64, ONE, 1.0, status="crashed")):
        yield {**common, "kind": "trial", "choice_id": codec.digest(ONE), "measurement": codec.to_json(trial)}
    ids = {"problem_id": codec.digest(verdict.problem), "choice_id": codec.digest(ONE)}
    sample = {"race": "r1", "purpose": "final", "round": 0, "order": 1, "sample_ns": 1.5, "rejected": False}
    yield {**common, "kind": "race", **ids, **sample}
    yield {**common, "kind": "verdict", "race": "r1", "verdict": codec.to_json(verdict)}


def test_lines_of_the_log_satisfy_their_schema():
    check = schema("measurements")
    for line in lines():
        check.validate(json.loads(json.dumps(line, allow_nan=False)))
        with pytest.raises(jsonschema.ValidationError):
            check.validate({**line, "kind": "other"})
        with pytest.raises(jsonschema.ValidationError):
            check.validate({key: value for key, value in line.items() if key != "session"})


def test_every_field_of_every_record_is_in_a_schema():
    known = {}
    for name, top in (("machine", Machine), ("table", Table), ("measurements", None)):
        document = schema(name).schema
        known.update(document["$defs"])
        if top is not None:
            known[top.__name__] = document
    for record in RECORDS:
        fields = {field for field in record._fields if field != "extra"}
        assert fields <= set(known[record.__name__]["properties"]), record
        needed = fields - set(record._field_defaults)
        assert needed <= set(known[record.__name__]["required"]), record


def test_the_schemas_name_the_words_of_the_records():
    document = schema("measurements").schema["$defs"]
    assert document["Measurement"]["properties"]["status"]["enum"] == list(records.STATUSES)
    assert document["Problem"]["properties"]["dtype"]["enum"] == list(records.DTYPES)

"""Decision rules: learned from several shapes, exported as plain data, checked with each shape left out."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabling import FOUR, MADE, ONE, TWO, look, machine, race

from advisor import codec
from advisor.policy.learn import learn, times
from advisor.policy.rule import Cell, Ground, exported, fit, ground_of, inputs, validated, with_rules
from advisor.policy.store import load_table, save_table
from advisor.records import Table
from advisor.rules import feature, flaw, pieces, walk

SIZES = (64, 256, 1024, 4096)


def planted(n, batch):
    """Four threads pay from n x batch = 1024 on, by more the further it is; two are never best."""
    lost = math.log(n * batch / 1000)
    return {ONE: 1000.0 * math.exp(max(0.0, lost)), FOUR: 1000.0 * math.exp(max(0.0, -lost)), TWO: 3000.0}


def measured(batches=(1, 4, 16)):
    return [race(n, planted(n, batch), default=TWO, batch=batch) for batch in batches for n in SIZES]


def tuned(batches=(1, 4, 16)):
    verdicts = measured(batches)
    return with_rules(learn(machine(), verdicts, [], MADE), verdicts, [])


def rules(table):
    return codec.to_json(dict(table.extra).get("rules", []))


def test_one_shape_makes_no_rule_and_several_make_one_for_each_process_part():
    assert rules(tuned((1,))) == []
    (rule,) = rules(tuned())
    assert (rule["shapes"], rule["low"], rule["high"], rule["dtypes"]) == (3, 64, 4096, ["float32"])
    assert rule["axes"]["batch"] == [1, 16]
    assert flaw(rule) == ""


def test_a_rule_finds_what_was_planted_at_shapes_between():
    (rule,) = rules(tuned((1, 2, 8, 16)))
    taken = [codec.to_json(choice) for choice in (ONE, FOUR)]
    shape = {"batch": 4, "heads": 32, "kv_heads": 8, "head_dim": 128}
    ends = [(low, rule["choices"][leaf]) for low, _, leaf in pieces(rule, shape, "float32")]
    assert [choice for _, choice in ends] == taken
    assert 64 < ends[1][0] <= 512


def test_validated_regret_is_known_from_three_shapes_on():
    assert [rules(tuned(batches))[0]["validated_regret"] is None for batches in ((1, 4), (1, 4, 16))] == [True, False]
    assert 1.0 <= rules(tuned((1, 2, 4, 8, 16)))[0]["validated_regret"] < 1.2


def test_a_regret_is_not_claimed_where_too_few_times_are_known():
    shapes = [("float32", (("batch", batch),)) for batch in (1, 2, 4)]
    apart = [Cell(s, n, tuple(0.0 if i == j else None for j in range(3))) for i, s in enumerate(shapes) for n in SIZES]
    assert validated(Ground(("n", "batch"), (ONE, TWO, FOUR), tuple(apart))) is None


def test_the_same_measurements_make_the_same_rule_whatever_the_order():
    verdicts = measured()
    table = learn(machine(), verdicts, [], MADE)
    assert with_rules(table, verdicts, []) == with_rules(table, verdicts[::-1], [])


def test_a_table_with_rules_is_saved_read_and_learned_again_without_growing(tmp_path):
    path = str(tmp_path / "decode.table.json")
    made = save_table(path, tuned()).table
    assert load_table(path) == codec.from_json(Table, json.loads(codec.dumps(made, "table")))
    again = with_rules(load_table(path), measured(), [])
    assert rules(again) == rules(made)


def test_rows_of_other_machines_teach_nothing():
    table = tuned()
    carried = tuple(s._replace(extra=(("basis", "TRANSFERRED"),)) for s in table.sections)
    assert rules(with_rules(table._replace(sections=carried), measured(), [])) == []


def test_times_are_those_of_races_and_of_looks_no_better_than_them():
    (section,) = learn(machine(), [race(64, {ONE: 100.0, FOUR: 150.0})], [], MADE).sections
    known = times(section, [race(64, {ONE: 100.0, FOUR: 150.0})], [look(64, TWO, 10.0), look(64, FOUR, 10.0)])
    assert known == {64: {ONE: 100.0, FOUR: 150.0, TWO: 100.0}}


# --- the export ---


@st.composite
def grounds(draw):
    choices = (ONE, TWO, FOUR)[: draw(st.integers(1, 3))]
    shapes = draw(st.lists(st.tuples(st.integers(0, 64), st.integers(1, 64)), min_size=1, max_size=4, unique=True))
    loss = st.one_of(st.none(), st.floats(0, 2))
    cells = []
    for batch, heads in shapes:
        for n in draw(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=5, unique=True)):
            losses = [draw(loss) for _ in choices]
            losses[draw(st.integers(0, len(choices) - 1))] = 0.0
            cells.append(Cell(("float32", (("batch", batch), ("heads", heads))), n, tuple(losses)))
    return Ground(("n", "volume", "dtype_bytes", "batch", "heads"), choices, tuple(cells))


@settings(deadline=None, max_examples=60)
@given(
    grounds(),
    st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(0, 64), st.integers(1, 64)), min_size=1, max_size=20),
)
def test_the_plain_tree_walks_to_where_scikit_learn_goes(ground, asked):
    tree = fit(ground)
    rule = {"features": ground.features, "nodes": exported(tree, ground), "low": 1, "high": 1 << 20}
    cells = [Cell(("float32", (("batch", batch), ("heads", heads))), n, ()) for n, batch, heads in asked]
    expected = np.argmin(tree.predict(inputs(ground, cells)).reshape(len(cells), -1), axis=1)
    for cell, leaf in zip(cells, expected, strict=True):
        shape = dict(cell.shape[1])
        assert walk(rule, shape, "float32", cell.n) == leaf
        (found,) = [x for low, high, x in pieces(rule, shape, "float32") if low <= cell.n <= high]
        assert found == leaf


def test_pieces_cover_every_n_once():
    (rule,) = rules(tuned())
    for batch in range(1, 17):
        found = pieces(rule, {"batch": batch, "heads": 32, "kv_heads": 8, "head_dim": 128}, "float32")
        assert (found[0][0], found[-1][1]) == (64, 4096)
        assert all(before[1] + 1 == after[0] and before[2] != after[2] for before, after in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 10.0),
        ("volume", 10 + 1 + 5 + 3 + 7),
        ("tasks", 6.0),
        ("group", 2.0),
        ("dtype_bytes", 2.0),
        ("batch", 1.0),
        ("causal", -1.0),
    ],
)
def test_features_are_logarithms(name, value):
    shape = {"batch": 2, "heads": 32, "kv_heads": 8, "head_dim": 128, "causal": 0}
    assert feature(name, shape, "bfloat16", 1024) == value


def test_choices_of_a_rule_are_those_of_the_rows():
    table = learn(machine(), measured(), [], MADE)
    ground = ground_of(table.sections, measured(), [])
    assert set(ground.choices) == {ONE, FOUR, TWO}
    assert len(ground.shapes) == 3
    assert all(min(cell.losses) == 0.0 for cell in ground.cells)

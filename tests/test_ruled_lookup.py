"""Lookups of shapes that were not tuned: by the table's rule, marked, and never an exception in a server."""

import json
import os

import pytest
import tabling
from jsonschema import Draft202012Validator
from tabling import FOUR, MADE, ONE, PASSIVE, SPIN, TWO, here, machine, race, write

from advisor import gather, paths, site, tablefile
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.policy.rule import with_rules
from advisor.ranges import here_hash

ROOT = os.path.join(os.path.dirname(__file__), os.pardir)
BATCHES, SIZES = (1, 2, 8, 16), (64, 256, 1024, 4096)
MADE_UP = tabling.variant()
AXES = {"heads": 32, "kv_heads": 8, "head_dim": 128, "dtype": "float32"}


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))


@pytest.fixture
def home():
    folder = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(folder)
    return folder


def several(process=None, variants=(MADE_UP,)):
    """Four threads from n x batch = 1024 on, one below; the default is two."""
    one, two, four = (c if process is None else c._replace(process=process) for c in (ONE, TWO, FOUR))
    verdicts = [
        race(n, {one: 1000.0 if n * b < 1024 else 3000.0, four: 2000.0, two: 5000.0}, default=two, batch=b)
        for b in BATCHES
        for n in SIZES
    ]
    return with_rules(learn(machine(), verdicts, [], MADE), verdicts, [], variants)


def rewritten(folder, change):
    """The saved table with its rules changed and its digest set anew: what a faulty writer would leave."""
    path = write(folder, several())
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    change(document["rules"])
    document["table_id"] = tablefile.content_id(document)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)


def test_a_shape_between_tuned_ones_is_answered_by_the_rule_and_marked(home):
    write(home, several())
    policy = Policy.load()
    few, many = (policy.choose("decode", n, batch=4, **AXES) for n in (70, 4000))
    assert policy.notes == ()
    assert (few.threads, many.threads) == (1, 4)
    for answer in (few, many):
        assert (answer.basis, answer.rung, answer.in_tuned_region) == ("INTERPOLATED", "rule", False)
        assert (answer.expected_ns, answer.ci95_ns, answer.gain, answer.regret_bound) == (None,) * 4
        assert answer.estimate(1000) is None
        assert 1 <= answer.validated_regret < 1.2
        assert answer.shape == {"batch": 4, "heads": 32, "kv_heads": 8, "head_dim": 128}
        assert "learned from 4 other shapes" in answer.why


def test_a_bound_shape_is_a_bisection_and_says_the_same(home):
    write(home, several())
    policy = Policy.load()
    bound = policy.bind("decode", batch=4, **AXES)
    assert all(bound(n) is policy.choose("decode", n, batch=4, **AXES) for n in range(64, 4097, 61))


def test_axes_of_one_value_need_not_be_named(home):
    write(home, several())
    assert Policy.load().choose("decode", 100, batch=4).basis == "INTERPOLATED"


def test_a_tuned_shape_keeps_its_own_rows(home):
    write(home, several())
    answer = Policy.load().choose("decode", 64, batch=8, **AXES)
    assert (answer.basis, answer.rung, answer.expected_ns) == ("EXACT", None, 1000.0)


@pytest.mark.parametrize(
    "axes",
    [
        {"batch": 17},
        {"batch": 4, "heads": 33},
        {"batch": 4, "dtype": "float16"},
        {"batch": 4, "rows": 3},
        {"batch": "4"},
    ],
)
def test_what_lies_beyond_the_tuned_shapes_takes_the_default(home, axes):
    write(home, several())
    answer = Policy.load().choose("decode", 100, **{**AXES, **axes})
    assert (answer.basis, answer.rung, answer.validated_regret) == ("DEFAULT", None, None)


@pytest.mark.parametrize("n", [1, 63, 4097, 10**12])
def test_n_beyond_the_region_takes_the_default_choice(home, n):
    write(home, several())
    answer = Policy.load().choose("decode", n, batch=4, **AXES)
    assert (answer.basis, answer.threads, answer.rung, answer.validated_regret) == ("DEFAULT", 2, None, None)
    assert "rule" in answer.why


def test_a_rule_is_for_its_process_part_alone(home, monkeypatch):
    write(home, several(PASSIVE))
    other = Policy.load().choose("decode", 100, batch=4, **AXES)
    assert other.basis == "DEFAULT"
    assert "start the process with OMP_WAIT_POLICY=passive" in other.why
    best = Policy.load().best("decode", 100, batch=4, **AXES)
    assert (best.basis, best.rung, best.wait_policy) == ("INTERPOLATED", "rule", "passive")
    assert best.why.endswith("start the process with OMP_WAIT_POLICY=passive")
    monkeypatch.setattr(site, "started_environment", lambda: {"OMP_WAIT_POLICY": "passive"})
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert Policy.load().choose("decode", 100, batch=4, **AXES).basis == "INTERPOLATED"


def test_a_table_without_rules_answers_as_before(home):
    write(home, several()._replace(extra=()))
    assert Policy.load().choose("decode", 100, batch=4, **AXES).basis == "DEFAULT"


def _cycle(rules):
    rules[0]["nodes"][0] = {"feature": 0, "threshold": 1.0, "left": 0, "right": 0}


def _no_choices(rules):
    rules[0]["choices"] = []


def _odd_choice(rules):
    rules[0]["choices"][0]["team"] = {"threads": 0, "placement": ""}


def _odd_feature(rules):
    rules[0]["features"] = ["phase of the moon"] * 9


def _no_axes(rules):
    del rules[0]["axes"]


def _text(rules):
    rules[0] = "if n > 64"


def _regret(rules):
    rules[0]["validated_regret"] = 0.5


def _odd_expression(rules):
    rules[0]["variants"][0]["valid"] = [3]


def _no_variants(rules):
    rules[0]["variants"] = [3]


ODD = [_cycle, _no_choices, _odd_choice, _odd_feature, _no_axes, _text, _regret, _odd_expression, _no_variants]


@pytest.mark.parametrize("change", ODD)
def test_a_rule_that_makes_no_sense_is_named_once_and_the_default_answers(home, change):
    rewritten(home, change)
    policy = Policy.load()
    (note,) = policy.notes
    assert "a rule for other shapes is not used" in note
    assert policy.choose("decode", 100, batch=4, **AXES).basis == "DEFAULT"
    assert policy.choose("decode", 64, batch=8, **AXES).basis == "EXACT"


def test_rules_that_are_no_list_are_named_too(home):
    path = write(home, several()._replace(extra=(("rules", {"nodes": 3}),)))
    assert os.path.exists(path)
    policy = Policy.load()
    assert any("must be a list" in note for note in policy.notes)
    assert policy.choose("decode", 100, batch=4, **AXES).basis == "DEFAULT"


def test_a_placement_that_cannot_be_used_here_takes_the_default(home):
    def change(rules):
        for choice in rules[0]["choices"]:
            choice["team"] = {"threads": 64, "placement": ""}

    rewritten(home, change)
    assert Policy.load().choose("decode", 100, batch=4, **AXES).basis == "DEFAULT"


def test_a_table_with_rules_fits_its_schema(home):
    path = write(home, several(SPIN))
    with open(os.path.join(ROOT, "docs", "schema", "table.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    document = tablefile.read_json(path)
    assert document["rules"]
    assert not list(Draft202012Validator(schema).iter_errors(document))


# --- variants that do not exist at every shape ---


def at(policy, n, **axes):
    answer = policy.choose("decode", n, **{**AXES, "batch": 4, **axes})
    return answer.basis, answer.variant, answer.why


@pytest.mark.parametrize(
    ("valid", "good", "bad"),
    [
        ("batch % 2 == 1", {"batch": 7}, {"batch": 4}),
        ("batch * heads <= 96", {"batch": 3}, {"batch": 4}),
        ("item_bytes == 2", None, {"batch": 4}),
    ],
)
def test_a_variant_that_does_not_exist_at_a_shape_is_not_taken_there(home, valid, good, bad):
    """At a tuned shape the search never lists it; between tuned shapes the rule must ask."""
    write(home, several(variants=[tabling.variant("head_dim <= 256", valid)]))
    policy = Policy.load()
    if good:
        assert at(policy, 100, **good)[:2] == ("INTERPOLATED", "made_up")
    basis, variant, why = at(policy, 100, **bad)
    assert (basis, variant) == ("DEFAULT", None)  # the default choice is of that variant too
    assert f"made_up needs {valid}" in why
    assert at(policy, 64, batch=8)[0] == "EXACT"


@pytest.mark.parametrize("text", ["__import__('os').abort()", "rows > 3", "n // 0 == 1", "("])
def test_a_condition_that_cannot_be_evaluated_is_no_leave(home, text):
    write(home, several(variants=[tabling.variant(text)]))
    basis, _, why = at(Policy.load(), 100)
    assert (basis, "what made_up needs cannot be told" in why) == ("DEFAULT", True)


def test_a_bound_on_n_cuts_the_range_where_it_lies(home):
    write(home, several(variants=[tabling.variant("batch * n <= 1000")]))
    policy = Policy.load()
    assert [at(policy, n)[0] for n in (64, 250, 251, 4000)] == ["INTERPOLATED", "INTERPOLATED", "DEFAULT", "DEFAULT"]
    bound = policy.bind("decode", batch=4, **AXES)
    assert all(bound(n) is policy.choose("decode", n, batch=4, **AXES) for n in (64, 250, 251, 4000))


def test_a_default_that_exists_answers_where_the_rules_choice_does_not(home):
    def other(rules):
        rules[0]["default"]["build"]["variant"] = "plain"
        rules[0]["variants"].append({**rules[0]["variants"][0], "variant": "plain", "valid": []})
        rules[0]["variants"][0]["valid"] = ["batch >= 100"]

    rewritten(home, other)
    basis, variant, why = at(Policy.load(), 100)
    assert (basis, variant, "made_up needs batch >= 100: the default choice" in why) == ("DEFAULT", "plain", True)


def test_what_a_rule_does_not_tell_is_read_from_the_source_of_this_package_or_not_known(home):
    """Tables of earlier versions carry no conditions."""

    def split(rules):
        del rules[0]["variants"]
        for choice in (*rules[0]["choices"], rules[0]["default"]):
            choice["build"] |= {"variant": "split", "source_hash": here_hash("decode", "split")}
            choice["build"]["knobs"] = {"ADV_R": 4, "ADV_V": 32, "ahead": 0, "block": 64}

    rewritten(home, split)
    assert at(Policy.load(), 100)[:2] == ("INTERPOLATED", "split")
    rewritten(home, lambda rules: rules[0].pop("variants"))
    basis, _, why = at(Policy.load(), 100)
    assert (basis, "nothing here tells whether made_up can be used at this shape" in why) == ("DEFAULT", True)


def test_the_shipped_rules_know_their_variants_at_every_shape():
    """A rule of the shipped tables meets shapes for which the grouped variant is not made."""
    path = os.path.join(ROOT, "policies", "intel-xeon-16cpu-vm")
    policy = Policy.load(os.path.join(path, "decode.table.json"), machine=os.path.join(path, "machine.json"))
    answer = policy.best("decode", 4096, batch=2, heads=8, kv_heads=8, head_dim=128, dtype="float32")
    assert "nothing here tells" not in answer.why
    assert answer.variant != "grouped"

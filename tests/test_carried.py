"""Sections that nobody measured here: published, transferred from other machines, modelled."""

import os

import pytest
from tabling import FOUR, MADE, PASSIVE, choice, here, machine, race, table, write

from advisor import gather, paths, site, tablefile
from advisor.codec import to_json
from advisor.errors import BadInput
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.policy.store import save_table
from advisor.records import pairs

ORIGIN = {"rung": "nearest", "machines": ("some-machine",), "validated_regret": 1.07, "why": "as some-machine"}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    found = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(found)
    return found


def carried(basis="TRANSFERRED", made=None, **more):
    """A table whose sections have a basis, and no points."""
    made = made or table()
    sections = [
        one._replace(
            rows=tuple(row._replace(points=()) for row in one.rows),
            default_points=(),
            extra=pairs({"basis": basis, "origin": dict(ORIGIN), **more}),
        )
        for one in made.sections
    ]
    return made._replace(sections=tuple(sections))


@pytest.mark.parametrize("basis", ["TRANSFERRED", "MODELLED"])
def test_what_was_carried_over_says_so_at_every_n_and_has_no_time(folder, basis):
    write(folder, carried(basis), "decode.transfer")
    policy = Policy.load()
    for n in (64, 100, 4096):
        answer = policy.choose("decode", n)
        assert (answer.basis, answer.expected_ns, answer.estimate(n), answer.in_tuned_region) == (
            basis,
            None,
            None,
            False,
        )
        assert (answer.rung, answer.machines, answer.validated_regret) == ("nearest", ("some-machine",), 1.07)
        assert "not measured here; as some-machine" in answer.why
    assert policy.choose("decode", 64).threads == 1


def test_each_row_says_where_it_came_from(folder):
    own = {"rung": "model", "machines": (), "validated_regret": None}
    (section,) = carried().sections
    first, last = section.rows
    spoken = last._replace(extra=pairs({"basis": "MODELLED", "origin": own, "why": "traffic alone"}))
    write(folder, table()._replace(sections=(section._replace(rows=(first, spoken)),)), "decode.transfer")
    answers = [Policy.load().choose("decode", n) for n in (64, 4096)]
    assert [(a.basis, a.rung, a.machines, a.validated_regret, a.in_tuned_region) for a in answers] == [
        ("TRANSFERRED", "nearest", ("some-machine",), 1.07, False),
        ("MODELLED", "model", (), None, False),
    ]
    assert answers[1].why == "from a cost model, not measured here; traffic alone"


def test_beyond_what_was_carried_over_the_default_answers_and_claims_nothing(folder):
    write(folder, carried(), "decode.transfer")
    answer = Policy.load().choose("decode", 1 << 20)
    assert (answer.basis, answer.rung, answer.machines, answer.validated_regret) == ("DEFAULT", None, (), None)
    assert "known of other machines 64..4096" in answer.why


def test_what_was_measured_here_comes_before_what_was_carried_over(folder):
    write(folder, carried(), "decode.transfer")
    passive = learn(machine(), [race(64, {choice(threads=2, process=PASSIVE): 900.0, FOUR: 4000.0})], [], MADE)
    write(folder, passive)
    policy = Policy.load()
    assert {section["process"]["wait_policy"] for section in policy.sections("decode")} >= {"passive"}
    assert all("basis" not in section for section in policy.sections("decode"))


def test_a_shipped_measured_section_beats_one_that_was_carried_over(folder, tmp_path):
    write(folder, carried(), "decode.transfer")
    made = tmp_path / "shipped" / "same"
    os.makedirs(made)
    (made / "machine.json").write_text('{"hardware_id": "hw0000000001", "limits_id": "lm0000000001"}')
    write(made, table())
    assert Policy.load().choose("decode", 64).basis == "EXACT"


def published():
    """The table with published figures in place of points, the last row without any."""
    (section,) = table().sections
    told = [pairs({"published": ({"n": 64, "time_ns": 1500.0}, {"n": 256, "time_ns": 4500.0})}), ()]
    rows = [row._replace(points=(), extra=extra) for row, extra in zip(section.rows, told, strict=True)]
    origin = {"machines": ("theirs",), "why": "table 1 of the paper"}
    made = section._replace(rows=tuple(rows), default_points=(), heldout=None)
    return table()._replace(sections=(made._replace(extra=pairs({"basis": "PUBLISHED", "origin": origin})),))


def test_published_figures_answer_at_published_n_only(folder):
    write(folder, published())
    policy = Policy.load()
    at, between, timeless = (policy.choose("decode", n) for n in (64, 128, 1024))
    assert (at.basis, at.expected_ns, at.ci95_ns, at.in_tuned_region) == ("PUBLISHED", 1500.0, None, True)
    assert "published at n = 64; table 1 of the paper" in at.why
    assert (between.basis, between.expected_ns) == ("DEFAULT", None)
    assert (timeless.basis, timeless.expected_ns, timeless.threads) == ("PUBLISHED", None, 4)
    assert "without a time" in timeless.why


def test_a_part_of_the_machine_gets_no_published_time(folder):
    write(folder, published())
    answer = Policy.load(instance=0, of=2).choose("decode", 64)
    assert (answer.basis, answer.expected_ns) == ("TRANSFERRED", None)


@pytest.mark.parametrize(
    "extra",
    [
        {"basis": "GUESSED"},
        {"basis": "TRANSFERRED", "origin": {"validated_regret": 0.5}},
        {"basis": "TRANSFERRED", "origin": {"machines": [1]}},
    ],
)
def test_a_table_whose_basis_makes_no_sense_is_refused_and_never_raises(folder, extra):
    made = table()
    bad = made._replace(sections=tuple(one._replace(extra=pairs(extra)) for one in made.sections))
    with pytest.raises(BadInput):
        save_table(os.path.join(folder, "decode.table.json"), bad)
    with pytest.raises(BadInput):
        tablefile.check_table(to_json(bad))


def test_between_n_the_process_part_that_won_at_the_nearest_is_the_best(folder):
    made = learn(
        machine(), [race(n, {choice(threads=2, process=PASSIVE): 9.0, FOUR: 40.0}) for n in (64, 4096)], [], MADE
    )
    sections = {one.process.wait_policy: one for one in carried(made=made).sections}
    won = {"default": (64,), "passive": (4096,)}
    told = tuple(sections[name]._replace(wins=pairs({"latency": n})) for name, n in won.items())
    write(folder, made._replace(sections=told), "decode.transfer")
    best = [Policy.load().best("decode", n) for n in (64, 100, 3000, 4096)]
    assert [answer.wait_policy for answer in best] == ["default", "default", "passive", "passive"]
    assert "OMP_WAIT_POLICY=passive" in best[2].why

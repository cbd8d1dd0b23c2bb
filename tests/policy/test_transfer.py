"""Tables for a machine that was never tuned: what they say, how sure, and that they never raise."""

import pytest
from elsewhere_fixtures import GROUP, SPEC, known, machine, options, timed
from signatures import signature

from advisor import tablefile
from advisor.codec import to_json
from advisor.errors import BadInput
from advisor.policy import transfer
from advisor.policy.transfer import Here, transferred
from advisor.records import pairs
from advisor.search import rungs
from advisor.search.space import SpaceOptions
from advisor.signature.keep import with_signature

SPLIT = pairs({"ADV_BLOCK": 64, "ADV_UNROLL": 4})


def here(found=None, wide=("avx512f",)):
    return Here(found or machine(4), SPEC, options.variants(wide), options.space)


def elsewhere(name="a", cores=16, model="a model", wait="default"):
    """Few threads below n = 512, all from there, beside a variant that needs what this machine lacks."""
    times = {
        n: {
            timed("naive", 1): 900.0,
            timed("split", 1 if n < 512 else cores, wait if n >= 512 else "default", knobs=SPLIT): 100.0,
            timed("wide", cores): 90.0,
        }
        for n in (64, 4096)
    }
    return known(name, machine(cores, model=model), times)


def origin(section):
    return dict(dict(section.extra)["origin"])


def basis(section):
    return dict(section.extra)["basis"]


def test_a_table_says_what_other_machines_take_and_where_that_comes_from():
    table = transferred(here(), [elsewhere()])
    (section,) = table.sections
    low, high = section.rows
    assert basis(section) == "TRANSFERRED"
    assert (low.low, low.high, high.low, high.high) == (64, 512, 513, 4096)
    assert (low.choice.build.variant, low.choice.team.threads, high.choice.team.threads) == ("split", 1, 4)
    assert low.choice.build.source_hash != "f" * 12
    assert (origin(section)["rung"], origin(section)["machines"]) == ("nearest", ("a",))
    assert (table.hardware_id, section.tuned_n, section.heldout) == (machine(4).hardware_id, (64, 4096), None)
    assert all(row.points == () for row in section.rows)


def test_no_row_reaches_where_its_variant_is_not_made():
    """A row from halfway between two sizes on named a variant that its header has from later on."""
    bound = tuple(v._replace(valid=("n >= 2000",)) if v.name == "split" else v for v in here().variants)
    (section,) = transferred(here()._replace(variants=bound), [elsewhere()]).sections
    assert [(row.low, row.high, row.choice.build.variant) for row in section.rows] == [
        (64, 1999, "naive"),
        (2000, 4096, "split"),
    ]


def test_what_comes_out_is_a_table_that_a_lookup_trusts():
    document = to_json(transferred(here(), [elsewhere()]))
    tablefile.check_table(document)
    assert document["table_id"] == tablefile.content_id(document)
    document["sections"][0]["rows"][0]["origin"]["validated_regret"] = 0.5
    with pytest.raises(BadInput, match=r"origin\.validated_regret"):
        tablefile.check_table(document)


def test_a_machine_with_the_instruction_set_takes_the_variant_that_needs_it():
    able = machine(4)._replace(isa=("avx2", "avx512f"))
    (section,) = transferred(here(able), [elsewhere()]).sections
    assert {row.choice.build.variant for row in section.rows} == {"wide"}


@pytest.mark.parametrize("models", [1, 2, 3])
def test_the_validated_regret_is_null_below_three_models(models):
    machines = [elsewhere(f"m{i}", 4 << i, f"model {min(i, models - 1)}") for i in range(3)]
    (section,) = transferred(here(), machines).sections
    regret = origin(section)["validated_regret"]
    assert (regret is None) == (models < 3)
    assert origin(section)["models"] == models
    assert origin(section)["ladder"][0]["checked"] > 0
    if regret is not None:
        assert regret == pytest.approx(1.0, abs=0.2)


def test_a_process_part_that_others_won_under_has_a_section_and_the_plain_one_stays():
    sections = transferred(here(), [elsewhere(wait="passive")]).sections
    waits = {section.process.wait_policy: section for section in sections}
    assert set(waits) == {"default", "passive"}
    assert dict(waits["passive"].wins)["latency"] == (4096,)
    assert dict(waits["default"].wins)["latency"] == (64,)


def by_wait(machines, found=None):
    sections = transferred(here(found), machines).sections
    return {section.process.wait_policy: section for section in sections}


def test_a_regret_is_claimed_of_the_process_part_that_was_checked_alone(monkeypatch):
    monkeypatch.setattr(transfer, "learn", lambda *_: None)
    monkeypatch.setattr(rungs, "learn", lambda *_: None)  # its trees take a second
    machines = [
        known(
            f"m{i}",
            machine(cores, model=f"model {i}"),
            {
                n: {
                    timed("naive", 1): 9000.0,
                    timed("split", cores, "passive", knobs=SPLIT): 100.0,
                    timed("split", cores, knobs=SPLIT): 700.0,
                }
                for n in (64, 4096)
            },
        )
        for i, cores in enumerate((4, 8, 16))
    ]
    found = by_wait(machines)
    assert {wait: origin(section)["validated_regret"] for wait, section in found.items()} == {
        "default": None,
        "passive": 1.0,
    }
    (row,) = found["default"].rows
    assert dict(row.extra)["origin"]["validated_regret"] is None
    assert "with this process part, the same share of the CPUs; 7.00 times as long there" in dict(row.extra)["why"]


def test_what_was_hardly_tried_under_a_process_part_is_not_carried_over_for_it():
    passive = {timed("naive", 1): 900.0, timed("naive", 16, "passive"): 770.0, timed("split", 16, knobs=SPLIT): 100.0}
    spun = {timed("naive", 1): 900.0, timed("split", 16, "passive", knobs=SPLIT): 90.0}
    found = by_wait([known("a", machine(16), {64: passive, 4096: spun})])
    few, many = found["passive"].rows
    assert (few.choice.build.variant, few.choice.team.threads) == ("split", 4)
    assert few.choice.process.wait_policy == "passive"
    assert "nobody measured it with this one" in dict(few.extra)["why"]
    assert "another process part" not in dict(many.extra)["why"]
    assert {row.choice.build.variant for row in found["default"].rows} == {"split"}


@pytest.mark.parametrize(("ns", "variant"), [(149.0, "naive"), (151.0, "split")])
def test_what_is_nearly_best_under_a_process_part_is_carried_over_for_it(ns, variant):
    near = {timed("split", 16, knobs=SPLIT): 100.0, timed("naive", 16, "passive"): ns, timed("naive", 1): 900.0}
    won = {timed("split", 16, "passive", knobs=SPLIT): 90.0, timed("naive", 1): 900.0}
    found = by_wait([known("a", machine(16), {64: near, 4096: won})])
    assert found["passive"].rows[0].choice.build.variant == variant


def test_one_thread_is_the_same_under_every_wait_policy():
    found = by_wait([elsewhere(wait="passive")])
    few = found["passive"].rows[0]
    assert (few.choice.team.threads, few.choice.process.wait_policy) == (1, "passive")
    assert dict(few.extra)["why"] == dict(found["default"].rows[0].extra)["why"]


def test_a_row_of_the_cost_model_says_so_within_a_section_of_other_machines():
    some = elsewhere()
    cells = dict(some.cells[GROUP])
    cells[4096] = {what: timed for what, timed in cells[4096].items() if what.variant == "wide"}  # cannot run here
    signed = with_signature(machine(4), signature())
    (section,) = transferred(here(signed), [some._replace(cells={GROUP: cells})]).sections
    assert (basis(section), origin(section)["rung"]) == ("TRANSFERRED", None)
    told = [(dict(row.extra)["basis"], dict(row.extra)["origin"]) for row in section.rows]
    assert told == [
        ("TRANSFERRED", {"rung": "nearest", "machines": ("a",), "validated_regret": None}),
        ("MODELLED", {"rung": "model", "machines": (), "validated_regret": None}),
    ]


def test_without_other_machines_the_cost_model_answers():
    signed = with_signature(machine(4), signature())
    problems = [SPEC.problem(n) for n in (8, 1 << 20)]
    (section,) = transferred(here(signed), [], problems).sections
    assert (basis(section), origin(section)["rung"], origin(section)["machines"]) == ("MODELLED", "model", ())
    assert [row.choice.team.threads for row in section.rows] == [1, 4]
    assert origin(section)["validated_regret"] is None


def test_a_shape_that_nobody_measured_is_modelled_beside_one_that_somebody_did():
    signed = with_signature(machine(4), signature())
    found = transferred(here(signed), [elsewhere()], [SPEC.problem(64, heads=8), SPEC.problem(64)])
    assert {section.shape == GROUP[2]: basis(section) for section in found.sections} == {
        True: "TRANSFERRED",
        False: "MODELLED",
    }


def test_where_nothing_is_known_there_is_no_table():
    assert transferred(here(), []) is None
    assert transferred(here(), [], [SPEC.problem(64)]) is None
    alone = known("a", machine(16), {64: {timed("wide", 16): 90.0}})
    assert transferred(here(), [alone]) is None
    bare = here()._replace(options=SpaceOptions((), ()))
    assert transferred(bare, [elsewhere()]) is None

from __future__ import annotations

import importlib.util

import pytest
from fake import fake_machine, fake_variant
from kernel_choices import (
    KEEPS_A,
    LEAST_KEPT,
    OWN,
    RACED,
    Rates,
    candidates,
    estimate_s,
    field,
    floor_folder,
    floor_problem,
    floors,
    has_floor,
    narrowed,
    neighbours,
    one_away,
    other_teams,
    out_of_reach,
    role_tests,
)

from advisor.kernels.registry import spec
from advisor.kernels.variant import knob_sets, variants

MACHINE = fake_machine(cores=4)
VARIANTS = (
    fake_variant("split", 1, {"ADV_BLOCK": (16, 32, 64)}, {"ahead": (0, 8)}),
    fake_variant("naive", 2, {}, {}),
    fake_variant("library", 3, {}, {})._replace(language="python"),
    fake_variant("wide", 4, {}, {}, requires=("amx_tile",)),
)
PROBLEM = spec("decode").problem(1024)


def looked(rates: Rates | None = None):
    return candidates(MACHINE, VARIANTS, PROBLEM, 4, rates or Rates())


# --- roles ---


def test_library_calls_are_choices_but_never_native():
    tests = role_tests("forward", VARIANTS)
    found = {role: {one.build.variant for one in looked() if test(one)} for role, test in tests.items()}
    assert found["native"] == {"split", "naive"}
    assert found["choice"] >= found["native"]
    assert "fused" not in found


def test_the_fused_kernel_has_variants_with_and_without_the_weights():
    known = variants("fused")
    names = {one.name for one in known if one.language == "c"}
    assert set(KEEPS_A) <= names
    assert len(names - set(KEEPS_A)) >= 2
    found = candidates(MACHINE, known, spec("fused").problem(64), 2, Rates())
    tests = role_tests("fused", known)
    assert {one.build.variant for one in found if tests["naive"](one)} == set(KEEPS_A)
    assert {one.build.variant for one in found if tests["fused"](one)} == names - set(KEEPS_A)


# --- what is looked at ---


def test_defaults_with_every_compiler_and_single_knobs_with_the_first():
    found = [one for one in looked() if one.build.variant == "split"]
    first = found[0].build.compiler
    knobs = [dict(one.build.knobs) for one in found if one.build.compiler == first]
    assert {"ADV_BLOCK": 16, "ahead": 0} in knobs
    assert sorted(knobs, key=str) == sorted(
        [{"ADV_BLOCK": block, "ahead": 0} for block in (16, 32, 64)] + [{"ADV_BLOCK": 16, "ahead": 8}], key=str
    )
    assert {one.team.threads for one in found} == {4}


def test_what_the_machine_cannot_run_is_not_looked_at():
    assert "wide" not in {one.build.variant for one in looked()}


def test_the_look_goes_on_around_the_best():
    (start, *_) = looked()
    found = neighbours(VARIANTS, PROBLEM, start, [start], Rates())
    assert {one.build.knobs for one in found} == set(one_away(knob_sets(VARIANTS[0], PROBLEM), start.build.knobs))
    rates = Rates()
    rates.note(PROBLEM, start, 10.0)
    rates.note(PROBLEM, found[0], 1.0)
    rates.note(PROBLEM, found[1], 9.0)
    assert neighbours(VARIANTS, PROBLEM, start, [start], rates) == found[1:]


def test_what_was_seen_at_another_n_is_looked_at_again():
    far = next(one for one in looked() if dict(one.build.knobs) == {"ADV_BLOCK": 64, "ahead": 0})
    far = far._replace(build=far.build._replace(knobs=(("ADV_BLOCK", 64), ("ahead", 8))))
    rates = Rates()
    assert far not in looked(rates)
    rates.note(PROBLEM._replace(n=512), far, 5.0)
    assert far in looked(rates)


def test_the_slow_ones_of_the_n_before_are_left_out():
    choices = looked()
    rates = Rates()
    assert narrowed(PROBLEM, choices, rates) == choices
    for i, one in enumerate(choices):
        rates.note(PROBLEM, one, 100.0 / 1.7**i)
    assert narrowed(PROBLEM, choices, rates) == choices[:LEAST_KEPT]
    for i, one in enumerate(choices):
        rates.note(PROBLEM, one, 100.0 / 4**i)
    assert narrowed(PROBLEM, choices, rates) == choices[:1]
    assert narrowed(PROBLEM._replace(dtype="float64"), choices, rates) == choices


def test_without_a_table_all_roles_are_looked_at():
    found = field(MACHINE, VARIANTS, PROBLEM, None, Rates())
    assert found.tabled == {}
    times = {one: 10.0 if one.build.variant == "naive" else 20.0 for one in found.all()}
    assert {role: one.build.variant for role, one in found.leaders(times).items()} == {
        "choice": "naive",
        "native": "naive",
    }


def test_a_table_fills_the_roles_it_can(monkeypatch):
    named = looked()[1]
    monkeypatch.setattr("kernel_choices.tuned", lambda *_: [named])
    found = field(MACHINE, VARIANTS, PROBLEM, None, Rates())
    assert found.tabled == {"choice": [named], "native": [named]}
    assert found.all() == [named]


def test_a_quick_look_compiles_a_variant_once_and_tries_its_run_knobs():
    found = field(MACHINE, VARIANTS, PROBLEM, None, Rates(), quick=True).all()
    knobs = [(one.build.variant, one.build.knobs) for one in found]
    split = [(("ADV_BLOCK", 16), ("ahead", 0)), (("ADV_BLOCK", 16), ("ahead", 8))]
    library = [("library", ())] if importlib.util.find_spec("torch") else []
    assert knobs == [*(("split", one) for one in split), ("naive", ()), *library]


def test_a_quick_look_has_the_widest_vectors_too():
    wide = fake_variant("wide", 1, {"ADV_V": (32, 64), "ADV_M": (4, 6)}, {})
    found = field(MACHINE, [wide], PROBLEM, None, Rates(), quick=True).all()
    assert [dict(one.build.knobs) for one in found] == [{"ADV_V": 32, "ADV_M": 4}, {"ADV_V": 64, "ADV_M": 4}]


# --- kernels around attention ---


def test_each_native_variant_around_attention_has_a_role():
    known = [*VARIANTS[:3], fake_variant("linked", 5, {}, {})._replace(libraries=("openblas",))]
    assert list(role_tests("mlp", known)) == ["choice", "native", OWN + "split", OWN + "naive"]
    assert OWN + "split" not in role_tests("forward", known)
    found = [one for one in looked() if role_tests("mlp", known)[OWN + "split"](one)]
    assert {one.build.variant for one in found} == {"split"}


def test_a_single_variant_far_behind_does_not_race():
    fast, slow = (next(one for one in looked() if one.build.variant == name) for name in ("split", "naive"))
    leaders = {"choice": fast, "native": fast, OWN + "split": fast, OWN + "naive": slow}
    assert out_of_reach(leaders, {fast: 100.0, slow: 100.0 * RACED}) == {}
    assert out_of_reach(leaders, {fast: 100.0, slow: 2500.0}) == {OWN + "naive": "25.0 x the best in a look"}
    assert list(out_of_reach(leaders, {fast: 1e8, slow: 3e8})) == [OWN + "naive"]  # long calls
    assert out_of_reach(leaders, {fast: 1e8, slow: 2e8}) == {}


@pytest.mark.parametrize(
    ("kernel", "n", "batch", "reads"),
    [("mlp", 16, 1, True), ("mlp", 16, 2, False), ("norm_linear", 1, 1, True), ("rmsnorm", 1, 1, False)],
)
def test_few_rows_do_little_else_than_read(kernel, n, batch, reads):
    assert has_floor(spec(kernel).problem(n, batch=batch)) == reads
    assert has_floor(PROBLEM)


def test_the_floor_of_a_layer_reads_what_it_reads():
    read_spec = spec("read", [floor_folder()])
    problem = spec("mlp").problem(1, batch=1, d_model=2048, d_ff=5632)
    for dtype, size in (("float32", 4), ("float64", 8)):
        moved = 4 * read_spec.elements(floor_problem(read_spec, problem._replace(dtype=dtype))).read
        assert 0 <= moved - size * (3 * 2048 * 5632 + 2048) < 512


def test_fewer_threads_are_tried_for_short_calls_alone():
    one = looked()[0]
    assert {other.team.threads for other in other_teams(MACHINE, one, None, 1e4)} == {1, 2, 3}
    assert other_teams(MACHINE, one, None, 1e9) == []
    assert other_teams(MACHINE, one, 4, 1e4) == []


# --- the floor, and time ---


@pytest.mark.parametrize(("dtype", "n", "rows"), [("float32", 100, 100), ("float64", 100, 200), ("float16", 1919, 960)])
def test_the_floor_moves_as_many_bytes(dtype, n, rows):
    floor = spec("read", [floor_folder()])
    found = floor_problem(floor, spec("decode").problem(n, dtype))
    assert (found.kernel, found.n) == (("read", n) if dtype in floor.dtypes else ("read", rows))


def test_the_floor_runs_as_the_choice_does():
    one = looked()[0]
    moved = floor_problem(spec("read", [floor_folder()]), PROBLEM)
    found = floors(moved, one, floor_folder())
    assert len(found) > 1
    assert {(floor.team, floor.process, floor.build.compiler) for floor in found.values()} == {
        (one.team, one.process, one.build.compiler)
    }


def test_an_estimate_grows_with_work_and_rounds_and_falls_with_known_speed():
    rates, found = Rates(), field(MACHINE, VARIANTS, PROBLEM, None, Rates())
    usual = estimate_s(PROBLEM, 10**11, found, rates, 15)
    assert estimate_s(PROBLEM, 10**12, found, rates, 15) > usual
    assert estimate_s(PROBLEM, 10**11, found, rates, 9) < usual
    for one in found.all():
        rates.note(PROBLEM, one, 1000.0)
    rates.note(PROBLEM, "torch", 1000.0)
    assert estimate_s(PROBLEM, 10**11, found, rates, 15) < usual


def test_values_that_rules_tie_to_others_are_reached_all_the_same():
    def knobs(v: int, m: int, n: int):
        return (("M", m), ("N", n), ("V", v))

    sets = [knobs(32, 6, 2), knobs(32, 4, 3), knobs(64, 12, 2), knobs(64, 8, 3)]
    assert one_away(sets, sets[0]) == sets[1:]

"""Which checks `advisor verify` makes: everything that can differ, at least once."""

from __future__ import annotations

import itertools

import kernel_fixtures as fixtures
import pytest

from advisor.kernels import checks, compilers
from advisor.kernels.checks import choices_of, deal, kind_of
from advisor.kernels.compilers import Compiler
from advisor.records import pairs

TOOLS = (Compiler("gcc-99", "/gcc", "", "c", "libgomp"), Compiler("clang-99", "/clang", "", "c", "libomp"))
PROBLEMS = tuple(
    fixtures.problem(n, dtype, width=width)
    for dtype, width, n in itertools.product(("float32", "float64"), (8, 16), (1, 7, 65))
)


def dealt(variant, problems=PROBLEMS):
    return deal(fixtures.here(), variant, problems, TOOLS)


@pytest.fixture(scope="module")
def made():
    """Problem and choice of every check of a variant with knobs."""
    found = dealt(fixtures.good("rows"))
    return [(problem, choice) for problem in PROBLEMS for choice in choices_of(found, problem)]


def test_the_plain_knobs_run_everywhere_on_every_team(made):
    plain = fixtures.good("rows").defaults
    found = {(p, c.team.threads) for p, c in made if c.build.knobs == plain and c.build.compiler == "gcc-99"}
    sizes = {team.threads for team in dealt(fixtures.good("rows")).teams}
    assert sizes >= {1, 2, 3}
    assert found == set(itertools.product(PROBLEMS, sizes))


def test_every_knob_combination_is_there_once_and_run_knobs_only_at_their_ends(made):
    sets = {choice.build.knobs for _, choice in made}
    assert sets == {pairs({"ADV_STEP": step, "block": block}) for step in (1, 4, 8) for block in (1, 8, 64)}


def test_a_further_build_or_tool_is_compiled_for_one_kind_at_all_its_sizes(made):
    plain = fixtures.good("rows").defaults
    for unlike in (
        lambda choice: dict(choice.build.knobs)["ADV_STEP"] == 1,
        lambda choice: choice.build.compiler == "clang-99" and choice.build.flags == "native",
        lambda choice: choice.build.compiler == "gcc-99" and choice.build.flags == "o2",
    ):
        kinds = {kind_of(problem) for problem, choice in made if unlike(choice)}
        assert len(kinds) == 1
        assert {p.n for p, choice in made if unlike(choice)} == {1, 7, 65}
    assert {choice.build.knobs for _, choice in made if choice.build.compiler == "clang-99"} == {plain}


def test_every_tool_and_flag_set_is_there(made):
    flags = compilers.flag_sets(fixtures.here())
    found = {(choice.build.compiler, choice.build.flags) for _, choice in made}
    assert found == set(itertools.product(("gcc-99", "clang-99"), flags))


def test_tools_take_turns_over_the_kinds():
    found = dealt(fixtures.good("plain")).seconds
    assert len(set(found.values())) == min(len(found), 4)


def test_a_build_that_exists_for_some_shapes_only_is_dealt_one_of_those():
    only = fixtures.good("rows")._replace(valid=("width % ADV_STEP == 0", "ADV_STEP < 8 or width == 16"))
    kind = dealt(only).builds[(("ADV_STEP", 8),)]
    assert dict(kind[1])["width"] == 16


def test_other_draws_run_on_one_team_each_and_on_all_in_turn():
    found = dealt(fixtures.good("plain"))
    once = [choices_of(found, problem, "outlier") for problem in PROBLEMS]
    assert all(len({c.build for c in choices}) == len(choices) for choices in once)
    assert {c.build for c in once[0]} == {c.build for c in choices_of(found, PROBLEMS[0])}
    assert len({c.team for choices in once for c in choices}) > 1


def test_teams_of_one_size_run_together():
    found = choices_of(dealt(fixtures.good("rows")), PROBLEMS[0])
    sizes = [(choice.build.compiler, choice.team.threads) for choice in found]
    assert len(list(itertools.groupby(sizes))) == len(set(sizes))


def test_what_the_machine_cannot_run_has_one_check_a_problem():
    found = dealt(fixtures.bad("needs_more"))
    assert [len(choices_of(found, problem)) for problem in PROBLEMS if problem.dtype == "float32"] == [1, 1, 1, 1, 1, 1]


def test_no_choice_where_none_is_valid_or_no_tool_speaks_its_language():
    only = fixtures.good("rows")._replace(valid=("n > 99",))
    assert choices_of(dealt(only), PROBLEMS[0]) == []
    assert choices_of(dealt(fixtures.good("plain")._replace(language="d")), PROBLEMS[0]) == []


def test_knob_values_for_other_machines_are_left_out():
    only = fixtures.good("rows")._replace(needs=(("ADV_STEP", 8, ("avx9000",)),))
    found = dealt(only)
    assert {dict(part)["ADV_STEP"] for part in found.builds} == {1, 4}
    steps = {dict(c.build.knobs)["ADV_STEP"] for problem in PROBLEMS for c in choices_of(found, problem)}
    assert steps == {1, 4}


def test_a_machine_with_more_processors_has_a_team_of_them_all(monkeypatch):
    here = fixtures.here()
    many = here._replace(allowed_cpus=tuple(range(24)))
    assert [team.threads for team in checks._teams(many)] == [1, 2, 3, 24]
    assert [team.placement for team in checks._teams(here._replace(allowed_cpus=()))] == ["none"] * 3

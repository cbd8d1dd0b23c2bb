"""`advisor verify`: all variants against the DNF; wrong ones are reported with their error."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.kernels import registry
from advisor.kernels.compilers import compilers
from advisor.kernels.variant import variants
from advisor.kernels.verify import verify
from advisor.records import pairs


@pytest.fixture(scope="module")
def rows():
    names = [fixtures.good("plain"), fixtures.good("rows"), fixtures.bad("wrong_tail"), fixtures.bad("own_team")]
    found = [*names, fixtures.bad("needs_more"), fixtures.bad("no_compile")]
    problems = [fixtures.problem(1), fixtures.problem(65, width=8)]
    return verify(fixtures.here(), fixtures.scale(), found, problems)


def of(rows, name):
    found = [row for row in rows if row.variant == name]
    assert found
    return found


def test_right_ones_pass_with_error_and_tolerance(rows):
    for row in (*of(rows, "plain"), *of(rows, "rows")):
        assert (row.status, row.reason) == ("ok", "")
        assert 0 <= row.error <= row.tolerance


def test_wrong_ones_are_reported_with_the_error(rows):
    for row in of(rows, "wrong_tail"):
        assert row.status == "wrong"
        assert row.error == pytest.approx(0.05, rel=0.1)


def test_a_team_of_its_own_is_wrong(rows):
    found = of(rows, "own_team")
    assert all("threads" in row.reason for row in found if row.threads == 1 and row.status != "ok")
    assert any(row.status == "wrong" for row in found)


def test_what_cannot_run_is_reported_once_a_problem_and_team(rows):
    assert {row.status for row in of(rows, "needs_more")} == {"skipped"}
    assert {row.status for row in of(rows, "no_compile")} == {"skipped"}


def test_every_build_knob_and_the_ends_of_run_knobs(rows):
    first = compilers()[0].name
    sets = {row.knobs for row in of(rows, "rows") if row.compiler == first and row.flags == "native"}
    assert sets == {pairs({"ADV_STEP": step, "block": block}) for step in (1, 4, 8) for block in (1, 8, 64)}


def test_every_compiler_and_flag_set_and_several_teams(rows):
    plain = of(rows, "plain")
    assert {row.compiler for row in plain} == {compiler.name for compiler in compilers()}
    assert {row.flags for row in plain} >= {"native", "o2"}
    assert {row.threads for row in plain} >= {1, 2, 3}


def test_a_kernel_with_several_draws_is_checked_with_each():
    forward = registry.spec("forward")
    (naive,) = [one for one in variants("forward") if one.name == "naive"]
    found = verify(fixtures.here(), forward, [naive], [forward.problem(17, causal=1, batch=1)])
    assert {row.draw for row in found} == {"normal", "outlier"}
    assert {row.status for row in found} == {"ok"}
    tolerances = {row.draw: row.tolerance for row in found}
    assert tolerances["outlier"] > tolerances["normal"]  # large inputs round more

"""Finalists with a counter of energy around them, on a fake executor that has one."""

from __future__ import annotations

import pytest
from fake import FakeExecutor, FakeSpec, fake_machine, fake_variants

from advisor.policy.learn import Beside, Made, learn
from advisor.search.energy import meter_finalists
from advisor.search.known import known, past
from advisor.search.log import Log
from advisor.search.objective import joules_of
from advisor.search.race import Heat
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Limits, Run
from advisor.search.space import SpaceOptions, Toolchain, default_choice, space

SPEC = FakeSpec()
PROBLEM = SPEC.problem(4096)
WATTS = 10.0


class Metered(FakeExecutor):
    """Ten watts a thread while something runs."""

    used = 0.0

    def measure(self, problem, choice, ask):
        found = super().measure(problem, choice, ask)
        self.used += WATTS * choice.team.threads * found.seconds
        return found

    def joules(self, choice):
        return self.used


def ground():
    options = Options(SpaceOptions((Toolchain("gcc", "libgomp"),)), objective="efficiency")
    request = Request(fake_machine(), SPEC, fake_variants(), (PROBLEM,), options, "s1")
    choices = space(request.machine, SPEC, request.variants, PROBLEM, options.space)
    default = default_choice(request.machine, SPEC, request.variants, PROBLEM, options.space)
    one = next(choice for choice in choices if choice.team.threads == 1)
    other = next(choice for choice in choices if choice.team.threads == 2 and choice != default)
    return request, default, one, other


def raced(request, default, one, other, path, kind=Metered):
    """A race in which two threads win by 3 %, the default is 30 % off; then metering."""
    times = {default: 1300.0, one: 1030.0, other: 1000.0}
    fake = kind(lambda _, choice: times[choice])
    with Log(str(path / "m.jsonl")) as log:
        run = Run(request, fake, log, Silent(), fake.clock)
        run.open_session()
        verdict, _ = run.race(Heat(PROBLEM, (default, one, other), default), Limits())
        run.verdicts.append(verdict)
        meter_finalists(run)
        return run.outcome(False)


def test_finalists_that_are_near_the_best_are_metered_for_a_window_each(tmp_path):
    request, default, one, other = ground()
    outcome = raced(request, default, one, other, tmp_path)
    assert {m.choice for m in outcome.energy} == {one, other}
    assert {m.choice: joules_of(m) for m in outcome.energy} == {
        one: pytest.approx(WATTS * 1030e-9, rel=0.01),
        other: pytest.approx(2 * WATTS * 1000e-9, rel=0.01),
    }
    assert all(sum(m.samples_ns) > 0 and m.kernel_s >= 1.0 for m in outcome.energy)


def test_the_table_carries_joules_and_the_efficient_choice(tmp_path):
    request, default, one, other = ground()
    outcome = raced(request, default, one, other, tmp_path)
    made = Made("2026-01-02T03:04:05Z", (), objective="efficiency")
    table = learn(request.machine, outcome.verdicts, (), made, Beside((), outcome.energy))
    section = next(s for s in table.sections if s.process == default.process)
    assert section.objective == "efficiency"
    assert section.rows[0].choice == one
    assert section.rows[0].points[0].joules == pytest.approx(WATTS * 1030e-9, rel=0.01)
    assert next(a.rows for a in section.alternatives if a.objective == "latency")[0].choice == other


def test_the_log_knows_them_and_takes_them_for_no_first_looks(tmp_path):
    request, default, one, other = ground()
    outcome = raced(request, default, one, other, tmp_path)
    path = str(tmp_path / "m.jsonl")
    assert set(known(path, request).energy[PROBLEM]) == set(outcome.energy)
    earlier = past(path, request)
    assert (set(earlier.energy), earlier.trials) == (set(outcome.energy), ())


@pytest.mark.parametrize("kind", [FakeExecutor, type("Blind", (Metered,), {"joules": lambda self, choice: None})])
def test_nothing_is_metered_without_a_counter(tmp_path, kind):
    assert raced(*ground(), tmp_path, kind).energy == ()

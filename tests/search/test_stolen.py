"""The stolen-core regime, on a fake executor whose spinning choices stall beside a neighbour."""

from contextlib import contextmanager

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants

from advisor.policy.learn import Beside, Made, choose, learn
from advisor.search.known import past
from advisor.search.log import Log, read
from advisor.search.objective import picked
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.stolen import neighbour_cpu
from advisor.search.tune import tune

SPEC = FakeSpec()
SLOWDOWN = 50.0
MADE = Made("2026-01-02T03:04:05Z", ())


class Disturbed(FakeExecutor):
    """Two threads that do not wait passively are fifty times slower while the neighbour runs."""

    cpu = None
    besides = ()

    @contextmanager
    def disturbed(self, cpu):
        self.cpu = cpu
        try:
            yield
        finally:
            self.cpu = None

    def measure(self, problem, choice, ask):
        found = super().measure(problem, choice, ask)
        if self.cpu is None:
            return found
        self.besides = (*self.besides, (problem, choice, ask))
        stalls = choice.team.threads > 1 and choice.process.wait_policy != "passive"
        factor = SLOWDOWN if stalls else 1.0
        return found._replace(samples_ns=tuple(sample * factor for sample in found.samples_ns))


def request(session="s1", **options):
    space = SpaceOptions((Toolchain("gcc", "libgomp"),))
    problems = tuple(SPEC.problem(n) for n in (1024, 65536))
    return Request(fake_machine(), SPEC, fake_variants(), problems, Options(space, **options), session)


def go(asked, path):
    fake = Disturbed(lambda p, c: decode_ns(p, c, asked.machine.cores))
    with Log(str(path / "m.jsonl")) as log:
        return tune(asked, fake, log, clock=fake.clock), fake


def test_winners_and_defaults_are_measured_beside_the_neighbour(tmp_path):
    outcome, fake = go(request(), tmp_path)
    finals = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    measured = {(m.problem, m.choice) for m in outcome.stolen}
    assert {(v.problem, v.winner) for v in finals} | {(v.problem, v.default) for v in finals} <= measured
    assert len(measured) == len(outcome.stolen) == len(fake.besides)
    assert all(not ask.quiet and ask.samples * ask.sample_s >= 1.0 for _, _, ask in fake.besides)


def test_the_table_says_which_choices_are_fragile(tmp_path):
    asked = request()
    outcome, _ = go(asked, tmp_path)
    table = learn(asked.machine, outcome.verdicts, outcome.trials, MADE, Beside(outcome.stolen))
    points = [(row.choice, point) for section in table.sections for row in section.rows for point in row.points]
    known = [(choice, point.stolen.mean_ns / point.summary.p25_ns) for choice, point in points if point.stolen]
    assert known
    for choice, ratio in known:
        spins = choice.team.threads > 1 and choice.process.wait_policy != "passive"
        assert ratio == pytest.approx(SLOWDOWN if spins else 1.0, rel=0.01)


def test_they_are_no_first_looks_and_are_not_measured_again(tmp_path):
    asked = request()
    before, _ = go(asked, tmp_path)
    records = read(str(tmp_path / "m.jsonl")).records
    assert sum(record.get("phase") == "stolen" for record in records) == len(before.stolen)
    after, fake = go(request("s2", resume=True), tmp_path)
    assert fake.besides == ()
    assert set(after.stolen) == set(before.stolen)
    assert set(after.trials) == set(before.trials)
    earlier = past(str(tmp_path / "m.jsonl"), asked)
    assert set(earlier.stolen) == set(before.stolen)
    assert not set(earlier.stolen) & set(earlier.trials)


def test_quick_runs_measure_less(tmp_path):
    full, _ = go(request(), tmp_path / "full")
    quick, fake = go(request(quick=True), tmp_path / "quick")
    assert 0 < len(quick.stolen) <= len(full.stolen)
    assert all(ask.samples * ask.sample_s < 1.0 for _, _, ask in fake.besides)


def test_the_neighbour_takes_what_all_cores_but_one_leaves_free():
    machine = fake_machine(sockets=2, cores=4)
    assert neighbour_cpu(machine) == max(machine.allowed_cpus)
    assert neighbour_cpu(machine._replace(allowed_cpus=(1, 3))) == 3


def test_every_finalist_is_measured_winners_and_defaults_first(tmp_path):
    outcome, fake = go(request(), tmp_path)
    finals = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    raced = {(v.problem, s.choice) for v in finals for s in v.standings if s.summary}
    order = [(problem, choice) for problem, choice, _ in fake.besides]
    assert set(order) == raced
    assert order[: len(finals)] == [(v.problem, v.winner) for v in finals]
    assert {(v.problem, v.default) for v in finals} <= set(order[: 2 * len(finals)])


def test_a_budget_that_ends_there_is_told(tmp_path):
    asked = request(budget_s=6.0)
    outcome, _ = go(asked, tmp_path)
    assert any("finalists beside a neighbour" in note for note in outcome.notes)
    assert outcome.stolen


def test_who_asks_for_robust_choices_gets_the_one_that_stalls_least_in_a_quick_run_too(tmp_path):
    asked = request(quick=True, objective="robust")
    outcome, _ = go(asked, tmp_path)
    made = MADE._replace(objective="robust")
    table = learn(asked.machine, outcome.verdicts, outcome.trials, made, Beside(outcome.stolen))
    for verdict in (v for v in outcome.verdicts if v.purpose == "final"):
        best = picked(verdict, "robust", outcome.stolen)
        assert best.team.threads == 1 or best.process.wait_policy == "passive"
        winning = [s for s in table.sections if verdict.problem.n in dict(s.wins).get("robust", ())]
        assert winning
        assert {choose(s, verdict.problem.n).build for s in winning} == {best.build}

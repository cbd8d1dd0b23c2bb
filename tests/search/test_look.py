"""First looks: what a batch must promise, and that looks are fewer where a smaller n is done."""

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, recorded_noise

from advisor.search.log import Log
from advisor.search.look import BATCH, price
from advisor.search.plan import WORTH
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.tune import tune

SPEC = FakeSpec()
SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))


def go(path, sizes, objective="latency", cores=16):
    problems = tuple(SPEC.problem(n) for n in sizes)
    asked = Request(
        fake_machine(cores=cores), SPEC, fake_variants(), problems, Options(SPACE, objective=objective), "s"
    )
    fake = FakeExecutor(lambda p, c: decode_ns(p, c, cores), recorded_noise(1))
    with Log(str(path / "m.jsonl")) as log:
        return tune(asked, fake, log, clock=fake.clock), fake


def test_a_look_must_promise_more_in_a_small_space():
    prices = [price(size) for size in (40, 85, 400, 1000, 100_000)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] == WORTH
    assert price(400) == pytest.approx(0.2 * BATCH / 400 / 0.13)


def test_where_a_smaller_n_is_done_a_search_takes_fewer_looks_and_misses_nothing(tmp_path):
    outcome, _ = go(tmp_path, (1024, 16384, 65536))
    first, *others = outcome.reports
    assert sum(report.looked for report in others) / len(others) < 0.75 * first.looked
    for verdict in outcome.verdicts:
        if verdict.purpose == "final":
            times = [decode_ns(verdict.problem, t.choice, 16) for t in outcome.trials if t.problem == verdict.problem]
            assert decode_ns(verdict.problem, verdict.winner, 16) <= 1.05 * min(times)


def test_small_teams_are_not_looked_at_where_they_cannot_win_unless_another_objective_may_want_them(tmp_path):
    (tmp_path / "fast").mkdir()
    outcome, _ = go(tmp_path / "fast", (1024, 1 << 20))
    large = [t for t in outcome.trials if t.problem.n == 1 << 20]
    assert not [t for t in large if t.choice.team.threads == 1 and t.choice.build.variant == "naive"]
    small = [t for t in large if t.choice.team.threads <= 2]
    other, _ = go(tmp_path, (1024, 1 << 20), "robust")
    thrifty = [t for t in other.trials if t.problem.n == 1 << 20 and t.choice.team.threads <= 2]
    assert len(small) < len(thrifty)


def test_every_process_part_has_a_look_at_every_n(tmp_path):
    outcome, _ = go(tmp_path, (1024, 16384))
    for report in outcome.reports:
        parts = {t.choice.process for t in outcome.trials if t.problem == report.problem}
        assert len(parts) == 4

"""When a search ends, and what it does not look at: more that cannot pay for itself, and what cannot win."""

import math
from collections import Counter

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants

from advisor.search import bounds
from advisor.search.log import Log
from advisor.search.look import price
from advisor.search.plan import EXCHANGE, WORTH, most_trials
from advisor.search.request import Options, Request
from advisor.search.sampler import BATCH
from advisor.search.space import SpaceOptions, Toolchain, space
from advisor.search.tune import tune

SPEC, SPACE = FakeSpec(), SpaceOptions((Toolchain("gcc", "libgomp"),))
MACHINE = fake_machine(cores=8)


def tuned(path, sizes, times=lambda p, c: decode_ns(p, c, 8), **options):
    problems = tuple(SPEC.problem(n) for n in sizes)
    asked = Request(MACHINE, SPEC, fake_variants(), problems, Options(SPACE, **options), "s1")
    fake = FakeExecutor(times)
    with Log(str(path / "m.jsonl")) as log:
        return tune(asked, fake, log, clock=fake.clock)


def looked(outcome, n):
    return [trial.choice for trial in outcome.trials if trial.problem.n == n]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two n, the second of which profits from the first."""
    return tuned(tmp_path_factory.mktemp("two"), (4096, 262144))


# --- an end when more cannot pay ---


def test_a_search_that_has_understood_its_space_ends_long_before_its_trials_are_used(two):
    last = two.reports[-1]
    assert last.stopped in ("more search cannot pay for itself", "no improvement for long")
    assert last.looked < most_trials(SPEC, last.problem, last.space_size)
    times = {c: decode_ns(last.problem, c, 8) for c in space(MACHINE, SPEC, fake_variants(), last.problem, SPACE)}
    winner = next(v.winner for v in two.verdicts if v.purpose == "final" and v.problem == last.problem)
    assert times[winner] <= 1.02 * min(times.values())


def test_where_all_choices_are_equal_a_search_ends_when_it_has_seen_that(tmp_path):
    (report,) = tuned(tmp_path, (4096,), lambda *_: 1e5).reports
    assert report.stopped in ("more search cannot pay for itself", "no improvement for long")
    assert report.looked < report.space_size / 4


def test_a_batch_must_promise_what_its_time_is_worth():
    """A tenth of an exhaustive pass is worth 2 %: the promise demanded falls as spaces grow, to 1 % at the least."""
    demanded = [price(size) for size in (50, 200, 1000, 10**6)]
    assert demanded == sorted(demanded, reverse=True)
    assert demanded[-1] == WORTH == math.log(1.01)
    assert demanded[0] > 0.1  # eight looks of fifty are a sixth of everything
    assert price(400) / price(200) == pytest.approx(0.5)
    assert price(200) > EXCHANGE * BATCH / 200  # a promise is more than what is expected of it


# --- what cannot win ---


def test_teams_that_cannot_win_are_not_looked_at_where_a_smaller_n_was_done(two):
    choices = looked(two, 262144)
    few = [choice for choice in choices if choice.team.threads == 1]
    assert len(few) <= 3  # seeds, no more: one thread takes five times as long there
    first = looked(two, 4096)
    assert len([c for c in first if c.team.threads == 1]) / len(first) > len(few) / len(choices)
    assert {choice.team.threads for choice in choices} >= {8}


def test_other_process_parts_are_only_sampled_where_a_smaller_n_was_done(two):
    """The winner's there, the DEFAULT's and that of the best seed are searched; each other has its twin of the winner,
    and what stands beside the best of the search."""
    winner = next(v.winner for v in two.verdicts if v.purpose == "final" and v.problem.n == 4096)
    default = next(v.default for v in two.verdicts)
    counts = Counter(c.process for c in looked(two, 262144) if c.process not in (winner.process, default.process))
    _, *others = sorted(counts.values(), reverse=True)
    assert others
    assert max(others) <= 3


def test_a_bound_leaves_out_nothing_when_the_steadiest_choice_is_sought(tmp_path):
    robust = tuned(tmp_path, (4096, 262144), objective="robust")
    assert len([c for c in looked(robust, 262144) if c.team.threads == 1]) >= 1
    assert bounds.REACH > 1.0

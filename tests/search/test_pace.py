import math
from types import SimpleNamespace

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants

from advisor.codec import digest
from advisor.search import look
from advisor.search.known import DRIFT
from advisor.search.log import Log, read
from advisor.search.pace import BYTE_S, FIRST_S, MOST_SLOW, Pace, first_s, slowness
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain, binary, cpu_budget, space
from advisor.search.tune import tune

SPEC, SPACE = FakeSpec(), SpaceOptions((Toolchain("gcc", "libgomp"),))


def request(sizes, machine=None, **options):
    problems = tuple(SPEC.problem(n) for n in sizes)
    return Request(machine or fake_machine(), SPEC, fake_variants(), problems, Options(SPACE, **options), "s1")


def listed(asked):
    return space(asked.machine, SPEC, asked.variants, asked.problems[0], SPACE)


def some(count):
    """Choices of so many builds, one each."""
    found = {binary(choice.build): choice for choice in listed(request((64,)))}
    return list(found.values())[:count]


# --- how long builds take ---


def test_the_pace_is_guessed_first_and_measured_then():
    pace, choices = Pace(2), some(6)
    assert pace.seconds(choices) == 3 * FIRST_S
    pace.took(choices[:4], 8.0)  # two rounds of two
    assert pace.seconds(choices) == 4.0  # what is done costs nothing
    assert pace.seconds(choices[:4]) == 0.0


@pytest.mark.parametrize(("left_s", "ready"), [(-1.0, 0), (0.0, 0), (FIRST_S, 2), (2.9 * FIRST_S, 4), (math.inf, 6)])
def test_as_many_builds_as_may_be_ready_in_time_are_taken_in_order(left_s, ready):
    choices = some(6)
    assert list(Pace(2).in_time(choices, left_s)) == choices[:ready]


def test_choices_that_share_a_build_count_once_and_what_is_built_is_always_in_time():
    pace = Pace(1)
    first, second = some(2)
    again = first._replace(team=first.team._replace(threads=2))
    pace.took([first], 1.0)
    assert pace.in_time([second, again, first], 0.0) == (again, first)
    assert pace.in_time([second, second], 1.5) == (second, second)


def test_sources_tell_how_long_a_build_takes_and_builds_how_slow_the_machine_is(tmp_path):
    def variant(name, size, language="c"):
        path = tmp_path / name
        path.write_bytes(b"/" * size)
        return SimpleNamespace(path=str(path), language=language)

    some = [variant("a.c", 1000), variant("b.c", 20000), variant("c.py", 90000, "torch")]
    assert first_s(some) == pytest.approx(20000 * BYTE_S)
    assert first_s(some, 3.0) == pytest.approx(3 * first_s(some))
    assert first_s(some[2:]) == FIRST_S  # nothing is compiled
    assert slowness(some, None, 2.0) == 2.0
    assert slowness(some, 2 * first_s(some), 1.0) == pytest.approx(2.0)
    assert slowness(some, 0.01 * first_s(some), 2.0) == 1.0  # libraries lay in the cache
    assert slowness(some, 1000.0, 1.0) == MOST_SLOW


def test_a_guess_counts_until_builds_were_timed():
    pace, choices = Pace(1, 9.0), some(2)
    assert pace.seconds(choices) == 18.0
    assert pace.measured_s() is None
    pace.took(choices[:1], 2.0)
    assert pace.measured_s() == 2.0
    assert pace.seconds(choices) == 2.0


# --- a budget holds the starting of workers, builds and whatever hangs ---


class Slow(FakeExecutor):
    """Builds two at a time, half a second each, and needs a second to start a worker for each process part."""

    def __init__(self, asked, statuses=lambda *_: "ok"):
        super().__init__(lambda p, c: decode_ns(p, c, 2), statuses=statuses, overhead_s=0.03, build_s=0.5)
        self.started, self.cpus, self.prepared = set(), 2, []

    def prepare(self, problem, choices):
        new = {choice.build for choice in choices} - self.built
        self.prepared.append(new)
        self.clock.now += self.build_s * math.ceil(len(new) / self.cpus)
        self.built |= new

    def measure(self, problem, choice, ask):
        if choice.process not in self.started:
            self.started.add(choice.process)
            self.clock.now += 1.0
        return super().measure(problem, choice, ask)


@pytest.mark.parametrize("budget_s", [2.0, 5.0, 9.0])
@pytest.mark.parametrize("hangs", [False, True])
def test_a_budget_holds_builds_workers_and_what_hangs(budget_s, hangs, tmp_path):
    """A second of grace for a measurement that is under way, and one for the worker it starts."""
    asked = request((256, 4096, 65536), budget_s=budget_s, trial_limit_s=20.0)
    slow = Slow(asked, lambda p, c: "timeout" if hangs and c.build.variant == "grouped" else "ok")
    begun = slow.clock.now
    with Log(str(tmp_path / "m.jsonl")) as log:
        outcome = tune(asked, slow, log, clock=slow.clock)
    assert slow.clock.now - begun <= budget_s + 2.6
    assert outcome.verdicts or budget_s < 5.0 or hangs
    assert all(dict(one.conditions) or one.status != "ok" for one in outcome.trials)


def test_seeds_whose_builds_take_long_are_built_and_looked_at_in_parts():
    asked, seeds = request((4096,)), some(5)
    again = seeds[0]._replace(team=seeds[0].team._replace(threads=9))

    def parts(build_s):
        run = SimpleNamespace(build_s=lambda choices: build_s, clock=lambda: 5.0, request=asked)
        return look._parts(run, [*seeds, again], 15.0)

    assert parts(2.4) == [[*seeds, again]]
    cpus = cpu_budget(asked.machine)
    late = parts(2.6)
    assert late[0] == [*seeds[:cpus], again]  # whatever has the same build comes with it
    assert [choice for part in late for choice in part if choice != again] == seeds
    assert all(len(part) <= cpus for part in late[1:])


def test_a_run_that_has_no_race_yet_looks_on_past_its_share_until_two_choices_ran(tmp_path):
    """Building took the share of the first n: without another look there is no race, without a race no table."""
    asked = request((4096, 65536), budget_s=30.0, trial_limit_s=20.0)
    slow = Slow(asked)
    slow.build_s = 9.0
    with Log(str(tmp_path / "m.jsonl")) as log:
        outcome = tune(asked, slow, log, clock=slow.clock)
    assert outcome.build_s >= 9.0
    first = next(verdict for verdict in outcome.verdicts if verdict.problem.n == 4096)
    assert len(first.standings) > 1


def test_the_first_race_of_a_run_may_end_a_moment_after_the_budget(tmp_path):
    """The first look took all of it: its choice is in a table all the same."""
    asked = request((4096,), budget_s=8.0, trial_limit_s=20.0)
    slow = Slow(asked)
    slow.overhead_s = 0.25

    def measure(problem, choice, ask):
        slow.clock.now += 0.0 if slow.asked else 8.0  # inputs and reference
        return Slow.measure(slow, problem, choice, ask)

    slow_first = SimpleNamespace(measure=measure, prepare=slow.prepare)
    with Log(str(tmp_path / "m.jsonl")) as log:
        outcome = tune(asked, slow_first, log, clock=slow.clock)
    assert len(outcome.trials) == 1
    assert len(outcome.verdicts) == 1


def test_calls_too_long_for_the_time_left_are_not_repeated(tmp_path):
    long_n, asked = 1 << 22, {}
    for budget_s in (20.0, 1e4):
        slow = Slow(request((long_n,), budget_s=budget_s))
        with Log(str(tmp_path / f"{budget_s}.jsonl")) as log:
            tune(request((long_n,), budget_s=budget_s), slow, log, clock=slow.clock)
        asked[budget_s] = slow.asked[0][2]
    assert (asked[20.0].samples, asked[20.0].quiet) == (1, False)
    assert (asked[1e4].samples, asked[1e4].quiet) == (5, True)


def test_what_the_end_of_the_budget_cuts_off_has_not_failed(tmp_path):
    """It is in no log and in no count; a later run finds it as it was."""
    seen = []

    def hangs_from_the_fourth(_, choice):
        seen.append(choice)
        return "timeout" if seen.index(choice) >= 3 else "ok"

    asked = request((4096,), budget_s=8.0, trial_limit_s=20.0)
    slow = Slow(asked, hangs_from_the_fourth)
    with Log(str(tmp_path / "m.jsonl")) as log:
        outcome = tune(asked, slow, log, clock=slow.clock)
        trials = [r for r in read(log.path).records if r["kind"] == "trial" and r["phase"] != DRIFT]
        logged = [r["choice_id"] for r in trials]
    assert len(seen) > 3
    assert all(ask.limit_s < 20.0 for _, _, ask in slow.asked)
    assert {one.status for one in outcome.trials} == {"ok"}
    assert {one.choice for one in outcome.trials} == set(seen[:3])
    assert logged == [digest(choice) for choice in seen[:3]]

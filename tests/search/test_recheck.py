"""C-03: what won is run once more in a fresh process, and what fails there is in no table."""

import shutil

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, quiet

from advisor.codec import digest, to_json
from advisor.policy.learn import Made, choose, learn
from advisor.records import Measurement
from advisor.search.known import past, same_program
from advisor.search.log import Log
from advisor.search.recheck import Recheck, loading_s, recheck, winners
from advisor.search.request import Options, Request, Silent
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.tune import tune

SPEC = FakeSpec()
SIZES = (256, 4096, 65536)
PROBLEMS = tuple(SPEC.problem(n) for n in SIZES)


class Stub:
    """A pool whose checks end as `fate` says, each after `seconds` on its own clock."""

    def __init__(self, fate=lambda problem, choice: "ok", seconds=0.1):
        self.fate, self.seconds, self.now, self.asked = fate, seconds, 0.0, []

    def check(self, problem, choice, limit_s):
        self.asked.append((problem, choice, limit_s))
        self.now += min(self.seconds, limit_s)
        status = self.fate(problem, choice)
        if isinstance(status, BaseException):
            raise status
        return Measurement(problem, choice, status, reason="as told")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recheck")


@pytest.fixture(scope="module")
def tuned(folder):
    """A request, its outcome and its table."""
    options = Options(SpaceOptions((Toolchain("gcc", "libgomp"),)))
    asked = Request(fake_machine(), SPEC, fake_variants(), PROBLEMS, options, "s1")
    fake = FakeExecutor(lambda p, c: decode_ns(p, c, asked.machine.cores), quiet)
    with Log(str(folder / "m.jsonl")) as log:
        outcome = tune(asked, fake, log, clock=fake.clock)
    return asked, outcome, table_of(asked)(outcome)


def table_of(asked):
    def made(outcome):
        if not any(verdict.purpose == "final" for verdict in outcome.verdicts):
            return None
        return learn(asked.machine, outcome.verdicts, outcome.trials, Made("2026-01-01T00:00:00Z", ()))

    return made


def again(tuned, stub, until=None, record=lambda measurement: None):
    asked, outcome, table = tuned
    plan = Recheck(table_of(asked), choose, PROBLEMS, 20.0, until, record)
    return recheck(stub, plan, outcome, table, Silent(), lambda: stub.now)


def said(table):
    return {same_program(choose(section, n)) for section in table.sections for n in section.tuned_n}


def test_c03_each_distinct_winner_runs_once_at_the_largest_n_where_it_won(tuned):
    stub = Stub()
    left = again(tuned, stub)
    assert left == (tuned[1], tuned[2], False)
    assert {choice for _, choice, _ in stub.asked} == said(tuned[2])
    assert len(stub.asked) == len(said(tuned[2]))
    for problem, choice, _ in stub.asked:
        won = [n for s in tuned[2].sections for n in s.tuned_n if same_program(choose(s, n)) == choice]
        assert problem.n == max(won)


@pytest.mark.parametrize("status", ["crashed", "wrong", "timeout"])
def test_c03_a_winner_that_fails_in_a_fresh_process_is_not_learned(tuned, status):
    (bad, problem), *_ = winners(tuned[2], PROBLEMS, choose).items()
    left = again(tuned, Stub(lambda p, c: status if (p, c) == (problem, bad) else "ok"))
    assert bad not in {same_program(choose(s, problem.n)) for s in left.table.sections if problem.n in s.tuned_n}
    assert any("dropped" in note and status in note for note in left.outcome.notes)
    (final,) = [v for v in left.outcome.verdicts if v.purpose == "final" and v.problem == problem]
    assert same_program(final.winner) != bad
    assert [s.outcome for s in final.standings].count("winner") == 1
    assert [s.ratio for s in final.standings if s.choice == final.winner] == [1.0]


def test_c03_what_takes_its_place_is_run_too(tuned):
    (bad, problem), *_ = winners(tuned[2], PROBLEMS, choose).items()
    stub = Stub(lambda p, c: "crashed" if (p, c) == (problem, bad) else "ok")
    left = again(tuned, stub)
    assert said(left.table) <= {choice for _, choice, _ in stub.asked}


def test_what_cannot_run_just_now_speaks_against_nothing(tuned):
    left = again(tuned, Stub(lambda p, c: "skipped"))
    assert left.table == tuned[2]
    assert all("not checked" in note for note in left.outcome.notes[len(tuned[1].notes) :])


@pytest.mark.parametrize(("until", "count"), [(0.9, 0), (1.05, 1), (1.15, 2)])
def test_no_check_starts_with_less_than_a_second_left(tuned, until, count):
    stub = Stub(seconds=0.1)
    left = again(tuned, stub, until)
    assert len(stub.asked) == min(count, len(said(tuned[2])))
    assert left.table == tuned[2]
    assert "no time" in left.outcome.notes[-1]


def test_a_limit_that_only_the_budget_cut_short_is_no_hang(tuned):
    left = again(tuned, Stub(lambda p, c: "timeout", seconds=20.0), until=3.0)
    assert left.table == tuned[2]


@pytest.mark.parametrize(("error", "interrupted"), [(KeyboardInterrupt(), True), (OSError("no fork"), False)])
def test_the_table_is_never_lost(tuned, error, interrupted):
    left = again(tuned, Stub(lambda p, c: error))
    assert (left.table, left.interrupted) == (tuned[2], interrupted)


def test_where_everything_fails_nothing_that_failed_is_said(tuned):
    stub = Stub(lambda p, c: "crashed")
    left = again(tuned, stub)
    assert len({(problem, choice) for problem, choice, _ in stub.asked}) == len(stub.asked)
    sections = left.table.sections if left.table else ()
    kept = {(n, same_program(choose(section, n))) for section in sections for n in section.tuned_n}
    assert not kept & {(problem.n, choice) for problem, choice, _ in stub.asked}
    assert "not run again" in left.outcome.notes[-1]


def test_c03_what_failed_at_one_n_is_run_at_the_next_smaller_one_where_it_won(tuned):
    (bad, problem) = next((c, p) for c, p in winners(tuned[2], PROBLEMS, choose).items() if p.n > SIZES[0])
    stub = Stub(lambda p, c: "crashed" if (p, c) == (problem, bad) else "ok")
    left = again(tuned, stub)
    smaller = {n for s in left.table.sections for n in s.tuned_n if same_program(choose(s, n)) == bad}
    asked = {p.n for p, c, _ in stub.asked if c == bad}
    assert problem.n not in smaller
    assert not smaller or max(smaller) in asked


def test_a_later_run_does_not_learn_what_failed_from_the_log(tuned, folder, tmp_path):
    asked, _, table = tuned
    (bad, problem), *_ = winners(table, PROBLEMS, choose).items()
    path = shutil.copy(folder / "m.jsonl", tmp_path / "m.jsonl")
    failed = Measurement(problem, bad, "crashed", reason="killed")
    with Log(str(path)) as log:
        kind = {"kind": "trial", "session": asked.session, "choice_id": digest(bad), "phase": "again"}
        log.append({**kind, "measurement": to_json(failed)})
    before = past(str(path), asked)
    finals = {v.problem: v for v in before.verdicts if v.purpose == "final"}
    assert same_program(finals[problem].winner) != bad
    assert all((t.problem, same_program(t.choice)) != (problem, bad) for t in before.trials)
    assert set(finals) == set(PROBLEMS)


def test_what_passed_in_an_earlier_run_is_checked_again_at_a_larger_n_alone(tuned):
    asked, outcome, table = tuned
    won = winners(table, PROBLEMS, choose)
    first, *_ = sorted(won, key=lambda choice: -won[choice].n)
    for n, runs in ((won[first].n, False), (won[first].n // 2, True)):
        earlier = [Measurement(SPEC.problem(n), first, "ok")]
        stub = Stub()
        plan = Recheck(table_of(asked), choose, PROBLEMS, 20.0, None, lambda measurement: None, earlier)
        left = recheck(stub, plan, outcome, table, Silent(), lambda stub=stub: stub.now)
        assert (first in [choice for _, choice, _ in stub.asked]) is runs
        assert len(stub.asked) == len(won) - (not runs)
        assert left.table == table


def test_what_failed_in_an_earlier_run_is_checked_like_any_other(tuned):
    asked, outcome, table = tuned
    won = winners(table, PROBLEMS, choose)
    stub = Stub()
    earlier = [Measurement(problem, choice, "crashed") for choice, problem in won.items()]
    plan = Recheck(table_of(asked), choose, PROBLEMS, 20.0, None, lambda measurement: None, earlier)
    recheck(stub, plan, outcome, table, Silent(), lambda: stub.now)
    assert len(stub.asked) == len(won)


def test_checks_are_found_again_in_the_log(tuned, folder):
    asked, _, _ = tuned
    path = str(folder / "m.jsonl")
    copy = str(folder / "checked.jsonl")
    shutil.copy(path, copy)
    choice = next(iter(said(tuned[2])))
    check = Measurement(PROBLEMS[0], choice, "ok")
    with Log(copy) as log:
        document = {"choice_id": digest(choice), "phase": "again", "measurement": to_json(check)}
        log.append({"kind": "trial", "session": "s1", **document})
    assert past(copy, asked).checks == (check,)
    assert past(copy, asked._replace(variants=asked.variants[:0])).checks == ()


def test_looks_of_earlier_runs_come_in_the_order_of_the_log_whatever_their_phase(tuned, folder, tmp_path):
    """The last look of a choice is what a table is learned from; an old one beside the best is not the last."""
    asked, _, table = tuned
    choice = next(iter(winners(table, PROBLEMS, choose)))
    path = str(shutil.copy(folder / "m.jsonl", tmp_path / "m.jsonl"))
    times = {2.0: "nearby", 3.0: "rest", 5.0: "again", 4.0: None}
    with Log(path) as log:
        for number, phase in times.items():
            document = to_json(Measurement(PROBLEMS[0], choice, "ok", (number,)))
            told = {"kind": "trial", "session": asked.session, "choice_id": digest(choice), "measurement": document}
            log.append(told if phase is None else {**told, "phase": phase})
    looks = [t.samples_ns[0] for t in past(path, asked).trials if (t.problem, t.choice) == (PROBLEMS[0], choice)]
    assert looks[-3:] == [2.0, 3.0, 4.0]


def test_a_tool_that_there_is_no_time_to_load_is_not_checked_and_the_others_are(tuned):
    """On a device a library takes seconds to load in a fresh process, as it did at its first look."""
    (first, _), (second, _), *_ = winners(tuned[2], PROBLEMS, choose).items()

    def of(choice, tool, seconds):
        made = choice._replace(build=choice.build._replace(compiler=tool), team=None, process=None)
        return Measurement(PROBLEMS[0], made, "ok", seconds=seconds)

    trials = [of(first, "torch", 3.9), of(first, "torch", 0.1), of(second, "cupy", 0.4)]
    assert loading_s([*trials, *tuned[1].trials]) == {"torch": 3.9, "cupy": 0.4}
    slow = tuned[1]._replace(trials=(*tuned[1].trials, of(first, first.build.compiler, 3.9)))
    stub = Stub()
    left = again((tuned[0], slow, tuned[2]), stub, until=3.0)
    assert not stub.asked
    assert "no time to run" in left.outcome.notes[-1]
    stub = Stub()
    again((tuned[0], slow, tuned[2]), stub, until=4.0)
    assert len(stub.asked) == len(said(tuned[2]))  # loaded once, for all of them

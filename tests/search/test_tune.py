import itertools
from collections import Counter, defaultdict

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, quiet, recorded_noise

from advisor.codec import from_json
from advisor.errors import BadInput
from advisor.records import Measurement, Verdict
from advisor.search.heldout import HoldOut, hold_out
from advisor.search.log import Log, read
from advisor.search.plan import most_trials, time_slice
from advisor.search.request import Options, Request, Silent
from advisor.search.seeds import predicted_threads
from advisor.search.space import SpaceOptions, Toolchain, default_choice, space
from advisor.search.tune import tune, unraced

SPEC = FakeSpec()
SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))
SIZES = (256, 4096, 65536)


def request(machine=None, sizes=SIZES, session="s1", **options):
    problems = tuple(SPEC.problem(n) for n in sizes)
    return Request(machine or fake_machine(), SPEC, fake_variants(), problems, Options(SPACE, **options), session)


def executor(asked, noise=quiet, **other):
    return FakeExecutor(lambda p, c: decode_ns(p, c, asked.machine.cores), noise, **other)


def go(asked, fake, path, **other):
    with Log(str(path / "m.jsonl")) as log:
        return tune(asked, fake, log, clock=fake.clock, **other)


def listed(asked, problem):
    return space(asked.machine, SPEC, asked.variants, problem, asked.options.space)


def true_regret(asked, verdict):
    best = min(decode_ns(verdict.problem, c, asked.machine.cores) for c in listed(asked, verdict.problem))
    return decode_ns(verdict.problem, verdict.winner, asked.machine.cores) / best


def finals(outcome):
    return [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]


@pytest.mark.parametrize("machine", [fake_machine(), fake_machine(sockets=2, numa=4, l3=2, cores=4)], ids=["2", "64"])
def test_the_optimum_is_found_within_five_percent_in_recorded_noise(machine, tmp_path):
    asked = request(machine, sizes=(64, 1024, 16384, 262144))
    outcome = go(asked, executor(asked, recorded_noise(1, 17)), tmp_path)
    assert [verdict.problem for verdict in finals(outcome)] == list(asked.problems)
    assert max(true_regret(asked, verdict) for verdict in finals(outcome)) <= 1.05
    for report, verdict in zip(outcome.reports, finals(outcome), strict=True):
        assert report.looked <= most_trials(SPEC, report.problem, report.space_size, quick=False)
        default = default_choice(machine, SPEC, asked.variants, report.problem, SPACE)
        assert default in {standing.choice for standing in verdict.standings}
        processes = {trial.choice.process for trial in outcome.trials if trial.problem == report.problem}
        assert len(processes) >= 3  # each process part has a time of its own, and those in contention race


def test_c03_variants_that_die_at_large_n_leave_the_rest_to_be_tuned(tmp_path):
    """One is out of memory from n = 8192 on, the child of another is killed there; both are fastest where they run."""
    asked = request(sizes=(1024, 8192, 65536))

    def fate(problem, choice):
        return "crashed" if problem.n >= 8192 and choice.build.variant in ("split", "grouped") else "ok"

    def times(problem, choice):
        return decode_ns(problem, choice, 2) * (50.0 if choice.build.variant == "naive" else 1.0)

    outcome = go(asked, FakeExecutor(times, quiet, fate), tmp_path)
    winners = {verdict.problem.n: verdict.winner.build.variant for verdict in finals(outcome)}
    assert winners[1024] in ("split", "grouped")
    assert (winners[8192], winners[65536]) == ("naive", "naive")
    died = {(t.problem.n, t.choice.build.variant) for t in outcome.trials if t.status == "crashed"}
    assert {name for _, name in died} == {"split", "grouped"}
    assert min(n for n, _ in died) == 8192


def test_no_choice_gets_two_first_looks(tmp_path):
    asked = request()
    fake = executor(asked)
    outcome = go(asked, fake, tmp_path)
    looks = Counter((problem, choice) for problem, choice, ask in fake.asked if ask.samples > 1)
    assert max(looks.values()) == 1
    assert len(outcome.trials) == len(looks) == sum(dict(outcome.counts).values())


def test_trials_of_a_batch_are_grouped_by_process_part_then_team(tmp_path):
    asked = request(fake_machine(cores=8), sizes=(4096,))
    fake = executor(asked)
    go(asked, fake, tmp_path)
    looks = [choice for _, choice, ask in fake.asked if ask.samples > 1]
    changes = sum(a.process != b.process for a, b in itertools.pairwise(looks))
    assert changes < len(looks) / 2


@pytest.mark.parametrize("budget_s", [0.5, 5.0, 20.0])
def test_the_budget_is_kept_to_within_one_trials_limit(budget_s, tmp_path):
    asked = request(fake_machine(cores=16), sizes=(256, 4096, 65536, 1 << 20), budget_s=budget_s, trial_limit_s=2.0)
    slow = executor(asked, statuses=lambda p, c: "timeout" if dict(c.build.knobs).get("ADV_BLOCK") == 16 else "ok")
    begun = slow.clock.now
    outcome = go(asked, slow, tmp_path)
    assert slow.clock.now - begun <= budget_s + 2.0 + 0.3
    assert outcome.interrupted is False
    assert dict(outcome.seconds)["total"] == pytest.approx(slow.clock.now - begun)


def test_the_race_has_its_time_even_when_looks_would_eat_it(tmp_path):
    asked = request(fake_machine(cores=16), sizes=(4096,), budget_s=8.0)
    outcome = go(asked, executor(asked, overhead_s=0.05), tmp_path)
    assert finals(outcome)[0].rounds >= 9


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.3, 0.6, 0.99])
def test_ctrl_c_keeps_everything_measured(share, tmp_path):
    asked = request()
    (tmp_path / "whole").mkdir()
    whole = executor(asked)
    go(asked, whole, tmp_path / "whole")
    after = int(share * len(whole.asked))
    fake = executor(asked, interrupt_at=after)
    outcome = go(asked, fake, tmp_path)
    assert outcome.interrupted
    records = read(str(tmp_path / "m.jsonl")).records
    assert sum(record["kind"] in ("trial", "race") for record in records) == after
    parsed = [from_json(Measurement, r["measurement"]) for r in records if r.get("phase") in ("search", "nearby")]
    assert set(parsed) == set(outcome.trials)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.99])
def test_a_resumed_run_ends_with_the_verdicts_of_an_uninterrupted_one(share, tmp_path):
    (tmp_path / "whole").mkdir()
    asked = request(sizes=(256, 4096))
    once = executor(asked)
    whole = go(asked, once, tmp_path / "whole")
    after = int(share * len(once.asked))
    first = executor(asked, interrupt_at=after)
    assert go(asked, first, tmp_path).interrupted
    again = asked._replace(session="s2", options=asked.options._replace(resume=True))
    second = executor(asked)
    resumed = go(again, second, tmp_path)
    assert set(resumed.verdicts) == set(whole.verdicts)
    assert {(m.problem, m.choice) for m in resumed.trials} == {(m.problem, m.choice) for m in whole.trials}
    looks = Counter((p, c) for p, c, ask in (*first.asked, *second.asked) if ask.samples > 1)
    assert max(looks.values()) == 1


def test_a_finished_run_resumes_without_measuring_and_another_machines_log_is_not_used(tmp_path):
    asked = request(sizes=(256,))
    whole = go(asked, executor(asked), tmp_path)
    again = asked._replace(session="s2", options=asked.options._replace(resume=True))
    idle = executor(asked)
    assert go(again, idle, tmp_path).verdicts == whole.verdicts
    assert idle.asked == []
    for other in (
        again._replace(machine=again.machine._replace(limits_id="f" * 12)),
        again._replace(environment=(("kernel", "9.9"),)),
        again._replace(variants=again.variants[:2]),
    ):
        busy = executor(asked)
        go(other._replace(session="s3"), busy, tmp_path)
        assert len(busy.asked) > 20


def test_failures_of_every_status_do_not_end_the_run(tmp_path):
    asked = request(fake_machine(cores=4))

    def status(problem, choice):
        knobs = dict(choice.build.knobs)
        bad = {1: "crashed", 2: "wrong", 4: "timeout", 8: "skipped"}
        return "ok" if knobs.get("ADV_BLOCK") == 128 or not knobs else bad[knobs["ADV_UNROLL"]]

    outcome = go(asked, executor(asked, statuses=status), tmp_path)
    assert all(dict(outcome.counts)[name] > 0 for name in ("ok", "wrong", "crashed", "timeout", "skipped"))
    assert len(finals(outcome)) == len(SIZES)
    assert all(status(v.problem, v.winner) == "ok" for v in outcome.verdicts)


def test_a_default_that_fails_stands_as_failed(tmp_path):
    asked = request(sizes=(256,))
    default = default_choice(asked.machine, SPEC, asked.variants, asked.problems[0], SPACE)
    fake = executor(asked, statuses=lambda _, c: "crashed" if c == default else "ok")
    verdict = finals(go(asked, fake, tmp_path))[0]
    assert verdict.default == default
    assert [s.outcome for s in verdict.standings if s.choice == default] == ["failed"]


def test_when_everything_fails_the_run_says_so(tmp_path):
    asked = request(sizes=(256, 4096))
    outcome = go(asked, executor(asked, statuses=lambda *_: "wrong"), tmp_path)
    assert outcome.verdicts == ()
    assert [note for note in outcome.notes if "no choice gave a time" in note]


@pytest.mark.parametrize(
    ("statuses", "words"),
    [((), "for a look"), (("ok",), "to race"), (("wrong", "ok"), "to race"), (("wrong", "skipped"), "no choice gave")],
)
def test_why_a_size_has_no_race(statuses, words):
    assert words in unraced([Measurement(SPEC.problem(256), None, status) for status in statuses])


def test_an_error_that_is_no_number_reaches_the_log_as_unknown(tmp_path):
    asked = request(sizes=(256,))
    fake = executor(asked, statuses=lambda _, c: "wrong" if c.build.variant == "naive" else "ok")
    true = fake.measure

    def measure(problem, choice, ask):
        found = true(problem, choice, ask)
        return found._replace(error=float("nan")) if found.status == "wrong" else found

    fake.measure = measure
    outcome = go(asked, fake, tmp_path)
    wrong = [m for m in outcome.trials if m.status == "wrong"]
    assert wrong
    assert all(m.error is None for m in wrong)


def test_hopeless_choices_cost_one_sample(tmp_path):
    asked = request(fake_machine(cores=16), sizes=(1 << 20,))
    outcome = go(asked, executor(asked), tmp_path)
    best = min(min(m.samples_ns) for m in outcome.trials)
    assert {len(m.samples_ns) for m in outcome.trials if m.samples_ns[0] > 8 * best} <= {1, 5}
    assert any(len(m.samples_ns) == 1 for m in outcome.trials)


def test_where_winners_change_both_are_raced_on_both_sides(tmp_path):
    asked = request(fake_machine(sockets=2, numa=4, l3=2, cores=4), sizes=(64, 1024, 65536))
    outcome = go(asked, executor(asked), tmp_path)
    found = finals(outcome)
    together = defaultdict(set)
    for verdict in outcome.verdicts:
        together[verdict.problem] |= {s.choice for s in verdict.standings if s.summary and s.summary.samples >= 9}
    assert found[0].winner != found[1].winner
    for low, high in itertools.pairwise(found):
        clearly_behind = {s.choice for v in outcome.verdicts for s in v.standings if s.outcome == "slower"}
        assert high.winner in together[low.problem] | clearly_behind
        assert low.winner in together[high.problem] | clearly_behind
    assert any(verdict.purpose == "crossing" for verdict in outcome.verdicts)
    tuned = {verdict.problem.n for verdict in found}
    measured = [verdict for verdict in outcome.verdicts if verdict.purpose == "border"]
    assert measured
    for verdict in measured:
        assert 64 < verdict.problem.n < 65536
        assert verdict.problem.n not in tuned
        assert verdict.default in {standing.choice for standing in verdict.standings}


def test_exhaustive_measures_the_whole_space_and_reports_regret(tmp_path):
    asked = request(sizes=(256, 4096), exhaustive=True)
    fake = executor(asked, recorded_noise(0, 3))
    outcome = go(asked, fake, tmp_path)
    assert len(finals(outcome)) == 2
    for report, found in zip(outcome.reports, outcome.regrets, strict=True):
        assert report.exhaustive_looked == report.space_size == len(listed(asked, report.problem))
        assert report.looked < report.space_size / 5
        assert report.search_s < report.exhaustive_s / 2  # 21 builds in all: compiling is most of both
        assert 0.98 <= found.ratio <= 1.05
        assert found.ratio_ci95[0] <= found.ratio <= found.ratio_ci95[1]
    trials = Counter((m.problem, m.choice) for m in outcome.trials)
    assert max(trials.values()) == 1
    assert len(trials) == outcome.space_size


def test_an_exhaustive_run_that_is_interrupted_and_resumed_still_searched_blindly(tmp_path):
    asked = request(sizes=(256,), exhaustive=True)
    (tmp_path / "whole").mkdir()
    whole = go(asked, executor(asked), tmp_path / "whole")
    go(asked, executor(asked, interrupt_at=len(whole.trials) - 20), tmp_path)
    again = asked._replace(session="s2", options=asked.options._replace(resume=True))
    resumed = go(again, executor(asked), tmp_path)
    assert resumed.regrets == whole.regrets
    assert resumed.reports[0].looked == whole.reports[0].looked


def test_the_log_has_sessions_trials_races_and_verdicts(tmp_path):
    asked = request(sizes=(256,))
    outcome = go(asked, executor(asked), tmp_path)
    records = read(str(tmp_path / "m.jsonl")).records
    kinds = Counter(record["kind"] for record in records if record.get("phase") != "drift")
    assert kinds["session"] == 1
    assert kinds["trial"] == len(outcome.trials)
    assert kinds["verdict"] == len(outcome.verdicts)
    assert kinds["race"] > 9 * 2
    assert tuple(from_json(Verdict, r["verdict"]) for r in records if r["kind"] == "verdict") == outcome.verdicts
    assert {record["session"] for record in records} == {"s1"}


def test_quick_takes_less(tmp_path):
    asked, fast = request(sizes=(4096,)), request(sizes=(4096,), session="s2", quick=True)
    slow_fake, fast_fake = executor(asked), executor(fast)
    go(asked, slow_fake, tmp_path)
    go(fast, fast_fake, tmp_path)
    assert len(fast_fake.asked) < len(slow_fake.asked)
    assert fast_fake.clock.now < slow_fake.clock.now


def test_progress_is_told(tmp_path):
    class Heard(Silent):
        def __init__(self):
            self.stages, self.steps, self.left = [], 0, []

        def stage(self, name, total):
            self.stages.append(name)

        def advance(self, text):
            self.steps += 1

        def seconds_left(self, seconds):
            self.left.append(seconds)

    asked, heard = request(sizes=(256, 4096), budget_s=60.0), Heard()
    go(asked, executor(asked), tmp_path, progress=heard)
    assert heard.stages[:2] == ["n=256", "n=4096"]
    assert len(heard.stages) == len(set(heard.stages))
    assert heard.steps > 20
    assert heard.left == sorted(heard.left, reverse=True)
    assert heard.left[0] == 60.0


def test_requests_that_cannot_be_run_are_refused(tmp_path):
    good = request()
    bad = (
        good._replace(problems=()),
        good._replace(problems=good.problems[::-1]),
        good._replace(problems=(SPEC.problem(64), SPEC.problem(128, head_dim=128))),
        request(budget_s=0.0),
    )
    for asked in bad:
        with pytest.raises(BadInput):
            go(asked, executor(asked), tmp_path)


# --- held-out n ---


def test_a_held_out_race_has_the_pick_the_neighbours_winners_and_the_default(tmp_path):
    asked = request(fake_machine(cores=8))
    fake = executor(asked)
    outcome = go(asked, fake, tmp_path)
    problem = SPEC.problem(1500)
    pick = finals(outcome)[0].winner
    with Log(str(tmp_path / "m.jsonl")) as log:
        plan = HoldOut(lambda _: pick, (problem,), outcome.verdicts)
        ((verdict,), _) = hold_out(asked, fake, log, plan, clock=fake.clock)
    raced = {standing.choice for standing in verdict.standings}
    assert verdict.purpose == "heldout"
    assert {pick, finals(outcome)[1].winner, verdict.default} <= raced
    kinds = Counter(r.get("purpose") for r in read(str(tmp_path / "m.jsonl")).records if r["kind"] == "race")
    assert kinds["heldout"] > 9 * 3


def test_held_out_races_stop_at_their_time_and_at_ctrl_c(tmp_path):
    asked = request(sizes=(256,))
    problems = tuple(SPEC.problem(n) for n in (300, 500, 700))
    outcome = go(asked, executor(asked), tmp_path)
    with Log(str(tmp_path / "m.jsonl")) as log:
        late = executor(asked)
        plan = HoldOut(lambda _: finals(outcome)[0].winner, problems, outcome.verdicts, until=late.clock.now)
        assert hold_out(asked, late, log, plan, clock=late.clock) == ((), False)
        stopped = executor(asked, interrupt_at=80)
        verdicts, interrupted = hold_out(asked, stopped, log, plan._replace(until=None), clock=stopped.clock)
        assert interrupted
        assert 1 <= len(verdicts) < 3


# --- plan and seeds ---


def test_the_budget_goes_to_problems_by_what_a_look_costs():
    problems = [SPEC.problem(n) for n in (1024, 1 << 20)]
    small = time_slice(0.0, 100.0, SPEC, problems)
    large = time_slice(small.race_until, 100.0, SPEC, problems[1:])
    assert 0 < small.search_until < small.race_until < 50
    assert small.race_until < large.search_until < large.race_until < 100


def test_small_problems_are_expected_to_want_few_threads_and_large_ones_all():
    counts = (1, 2, 4, 8, 16, 32, 63, 64)
    wanted = [predicted_threads(SPEC, SPEC.problem(n), counts) for n in (16, 1024, 1 << 20)]
    assert wanted == sorted(wanted)
    assert wanted[0] == 1
    assert wanted[-1] == 64


def test_at_least_two_dozen_trials_and_never_more_than_the_space():
    assert most_trials(SPEC, SPEC.problem(64), 5, quick=False) == 5
    assert most_trials(SPEC, SPEC.problem(64), 30, quick=False) == 24
    assert most_trials(SPEC, SPEC.problem(64), 600, quick=False) == 75
    assert most_trials(SPEC, SPEC.problem(16384), 600, quick=False) <= 50


def test_a_device_has_more_looks_unless_it_is_quick():
    small = SPEC.problem(64)
    assert most_trials(SPEC, small, 100, device=True) == 48
    assert most_trials(SPEC, small, 100, device=True, prior=True) == 32
    assert most_trials(SPEC, small, 100, device=True, prior=True, quick=True) == 24

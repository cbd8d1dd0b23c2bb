"""Times under every setting as a log has them: which of several measurements of one choice counts."""

from tabling import FOUR, TWO, choice, contended, look, of_rounds, problem, race

from advisor.codec import to_json
from advisor.policy.single import Timing
from advisor.policy.timings import latest, of_log, setting_of
from advisor.search import protocol
from advisor.search.log import SCHEMA, Log

LABELS = {("decode", "float32", "warm", tuple(sorted(problem(64).shape))): "decode"}


def logged(folder, *records):
    """The timings of a log with these verdicts and looks, in this order: threads -> (ns, raced)."""
    path = str(folder / "measurements.jsonl")
    with Log(path) as log:
        log.append({"kind": "session", "schema": SCHEMA, "session": "s", "protocol": protocol.VERSION})
        for one in records:
            kind, name = ("verdict", "verdict") if hasattr(one, "standings") else ("trial", "measurement")
            log.append({"kind": kind, "session": "s", name: to_json(one)})
    found = of_log(path, LABELS, lambda kernel: lambda build: True)
    return sorted((one.setting.threads, one.ns, one.raced) for one in found)


def test_a_standing_of_few_samples_is_no_race(tmp_path):
    found = logged(tmp_path, of_rounds(race(64, {FOUR: 102.0, TWO: 95.0}), 1))
    assert found == [(2, 95.0, False), (4, 102.0, False)]


def test_of_several_races_the_last_counts_and_not_the_luckiest(tmp_path):
    lucky, later = race(64, {FOUR: 103.0, TWO: 95.0}), race(64, {FOUR: 102.0, TWO: 105.0})
    few = of_rounds(race(64, {FOUR: 300.0, TWO: 400.0}), 3)
    assert logged(tmp_path, lucky, later, few)[:3] == [(2, 105.0, True), (2, 400.0, False), (4, 102.0, True)]


def test_a_look_is_no_race(tmp_path):
    assert [raced for _, _, raced in logged(tmp_path, look(64, FOUR, 90.0))] == [False]


def test_of_several_looks_at_one_choice_the_last_counts_and_not_the_luckiest(tmp_path):
    assert logged(tmp_path, look(64, FOUR, 90.0), look(64, FOUR, 100.0)) == logged(tmp_path, look(64, FOUR, 100.0))


def timing(ns, raced=True, contended=False, threads=FOUR):
    return Timing("decode", 64, setting_of(to_json(threads)), ns, raced, contended)


def test_where_table_and_log_both_raced_the_later_race_counts_and_not_the_lesser_time():
    assert latest([timing(95.0)], [timing(102.0)]) == [timing(102.0)]
    assert latest([timing(110.0)], [timing(102.0)]) == [timing(102.0)]
    assert latest([timing(95.0, threads=TWO)], [timing(102.0)]) == [timing(95.0, threads=TWO), timing(102.0)]
    assert latest([timing(95.0)], [timing(90.0, raced=False)])[0] == timing(95.0)


def test_a_disturbed_race_counts_only_where_there_is_no_quiet_one():
    rough = timing(150.0, contended=True)
    assert latest([timing(155.0)], [rough]) == [timing(155.0)]
    assert latest([rough], [timing(102.0)]) == [timing(102.0)]
    assert latest([rough], [rough._replace(ns=160.0)]) == [rough._replace(ns=160.0)]


def test_of_a_setting_the_last_race_counts_whatever_the_build(tmp_path):
    """A build that was lucky once is not the time of its threads for ever."""
    lucky, later = race(64, {choice("other", threads=2): 95.0, FOUR: 103.0}), race(64, {FOUR: 102.0, TWO: 105.0})
    assert logged(tmp_path, lucky, later) == [(2, 105.0, True), (4, 102.0, True)]


def test_a_disturbed_race_and_one_for_a_border_count_where_there_is_no_better_one(tmp_path):
    good, border = race(64, {FOUR: 102.0, TWO: 105.0}), race(64, {FOUR: 300.0, TWO: 400.0}, "crossing")
    disturbed = contended(race(64, {FOUR: 200.0, TWO: 190.0}))
    assert logged(tmp_path, disturbed) == [(2, 190.0, True), (4, 200.0, True)]
    assert logged(tmp_path, good, border, disturbed) == [(2, 105.0, True), (4, 102.0, True)]

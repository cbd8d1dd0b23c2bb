"""Times under every setting as a log has them: which of several measurements of one choice counts."""

from tabling import FOUR, TWO, choice, contended, look, of_rounds, problem, race

from advisor.codec import to_json
from advisor.policy.timings import of_log
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


def test_of_a_setting_the_last_race_counts_whatever_the_build(tmp_path):
    """A build that was lucky once is not the time of its threads for ever."""
    lucky, later = race(64, {choice("other", threads=2): 95.0, FOUR: 103.0}), race(64, {FOUR: 102.0, TWO: 105.0})
    assert logged(tmp_path, lucky, later) == [(2, 105.0, True), (4, 102.0, True)]


def test_a_disturbed_race_and_one_for_a_border_count_where_there_is_no_better_one(tmp_path):
    good, border = race(64, {FOUR: 102.0, TWO: 105.0}), race(64, {FOUR: 300.0, TWO: 400.0}, "crossing")
    disturbed = contended(race(64, {FOUR: 200.0, TWO: 190.0}))
    assert logged(tmp_path, disturbed) == [(2, 190.0, True), (4, 200.0, True)]
    assert logged(tmp_path, good, border, disturbed) == [(2, 105.0, True), (4, 102.0, True)]

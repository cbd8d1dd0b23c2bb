"""What counts as a flip, and of which kind, when a machine is tuned twice."""

from __future__ import annotations

import json

import pytest
from fake import FakeSpec
from judging import contender

from advisor.records import Standing, Verdict

A, B, C = contender(1), contender(2), contender(3)
PROBLEM = FakeSpec().problem(64)


def race(winner, n=64, **others):
    """A verdict: the winner, and others by name as (outcome, ratio)."""
    named = {"a": A, "b": B, "c": C}
    standings = [Standing(winner, "winner", None, 1.0, None, None)]
    standings += [Standing(named[name], outcome, None, ratio, None, None) for name, (outcome, ratio) in others.items()]
    return {n: Verdict(PROBLEM._replace(n=n), "final", winner, C, 20, tuple(standings))}


@pytest.mark.parametrize(
    ("first", "second", "kind", "ratio"),
    [
        (race(A), race(A), "same", 1.0),
        (race(A, b=("tie", 1.01)), race(B, a=("tie", 1.01)), "tie", 1.0),
        (race(A, b=("tie", 1.02)), race(B), "tie", 1.02),
        (race(A), race(B, a=("tie", 1.02)), "tie", 1 / 1.02),
        (race(A, b=("slower", 1.04)), race(B), "raced", 1.04),
        (race(A, b=("slower", 1.04)), race(B, a=("tie", 1.04)), "tie", 1.0),
        (race(A), race(B, a=("slower", 1.1)), "found", 1 / 1.1),
        (race(A, b=("slower", 1.04)), race(B, a=("slower", 1.04)), "raced", 1.0),
        (race(A, c=("slower", 2.0)), race(B), "apart", None),
        (race(A, b=("failed", None)), race(B), "apart", None),
    ],
)
def test_a_flip_is_a_tie_where_a_race_could_not_tell_the_two_apart(first, second, kind, ratio):
    import repeat

    (found,) = repeat.compared(first, second)
    assert (found.n, found.kind) == (64, kind)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))


def test_sizes_that_only_one_tune_has_are_not_compared():
    import repeat

    assert repeat.compared(race(A), race(A, n=128)) == []


def test_the_summary_counts_flips_with_an_interval_and_is_json():
    import repeat

    tie = repeat.compared(race(A, b=("tie", 1.02)), race(B))
    same = repeat.compared(race(A), race(A))
    found = json.loads(json.dumps(repeat.summary([tie, same, same])))
    assert (found["flips"], found["compared"], found["only_ties"]) == (1, 3, True)
    low, high = found["flip_rate_ci95"]
    assert low < 1 / 3 < high
    assert found["worst_ratio"] == pytest.approx(1.02)
    assert "1 of 3 winners flipped" in repeat.shown(found)
    apart = repeat.summary([repeat.compared(race(A), race(B))])
    assert apart["only_ties"] is False
    assert "ties only: no" in repeat.shown(apart)
    assert repeat.summary([])["flip_rate"] is None

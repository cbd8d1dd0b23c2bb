"""What the GPU benchmark says of its rows, at the edges of every bar."""

import math

import gpu_judge
import pytest
from gpu_bench_fixtures import race, regret
from gpu_judge import banded, crossing, race_says, raced, races, regret_says
from kernel_rows import Ratio


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.0150001, 1.03, "slower"),
        (1.015, 1.03, "tie"),
        (0.9, 1.2, "tie"),
        (0.9, 1 / 1.015, "tie"),
        (0.9, 1 / 1.0150001, "faster"),
        (1.001, 1.014, "tie"),
    ],
)
def test_slower_is_an_interval_wholly_over_the_band(low, high, said):
    assert banded(Ratio("table", "library", (low + high) / 2, low, high)) == said


@pytest.mark.parametrize(("table", "said"), [(1000.0, "tie"), (1030.0, "slower"), (970.0, "faster"), (1008.0, "tie")])
def test_the_table_is_judged_against_the_best_library(table, said):
    found = raced(race(table=table, flash=1000.0, cudnn=1200.0))
    assert found.names["library"] == "sdpa_flash"
    assert found.verdict == said
    assert found.ratio("table", "library").value == pytest.approx(table / 1000.0, rel=0.003)


def test_a_table_that_names_the_library_itself_ties_with_it():
    row = race(flash=1000.0, own=1500.0)
    row.data["entrants"][1]["roles"] = ["table", "library"]
    found = raced(row)
    assert found.verdict == "tie"
    assert found.ratio("table", "library")[2:] == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("rounds", "said"), [(19, ""), (20, "slower")])
def test_fewer_than_twenty_rounds_judge_nothing(rounds, said):
    found = raced(race(rounds=rounds, table=1100.0, own=1100.0, flash=1000.0, cudnn=1000.0))
    assert found.verdict == said
    assert bool(found.bars) == (rounds >= 20)


def test_without_a_table_or_a_library_there_is_no_verdict():
    assert raced(race(own=1000.0, flash=900.0)).verdict == ""
    assert raced(race(own=1000.0, table=900.0)).verdict == ""


@pytest.mark.parametrize(("own", "met"), [(1049.0, True), (1051.0, False)])
def test_own_variants_alone_beside_cudnn(own, met):
    row = race(table=900.0, own=own, cudnn=1000.0)
    row.data["entrants"][0]["kind"] = "library"  # the table's choice is a library's: it is none of ours
    (bar,) = raced(row).bars
    assert (bar.over, bar.under, bar.limit, bar.met) == ("own", "cudnn", 1.05, met)


@pytest.mark.parametrize(
    ("n", "own", "bars"),
    [
        (262144, 1149.0, [("floor", 1.15, True)]),
        (262144, 1151.0, [("floor", 1.15, False)]),
        (1048576, 1151.0, [("floor", 1.15, False)]),
        (65536, 1449.0, [("floor", 1.45, True)]),
        (65536, 1451.0, [("floor", 1.45, False)]),
        (262143, 1440.0, [("floor", 1.45, True)]),
        (65535, 9000.0, []),
        (16384, 9000.0, []),
        (16383, 9000.0, [("10 us", 1.0, True)]),
        (1, 11_000.0, [("10 us", 1.0, False)]),
    ],
)
def test_float32_beside_the_read_floor(n, own, bars):
    found = raced(race("paper", n, own=own, floor=1000.0))
    assert [(bar.under, bar.limit, bar.met) for bar in found.bars] == bars


def test_the_bar_in_microseconds_is_met_at_ten_itself():
    (bar,) = gpu_judge.short("paper", 1, 10_000.0)
    assert bar.met
    (bar,) = gpu_judge.short("paper", 1, 10_000.1)
    assert not bar.met
    assert not gpu_judge.short("40:8", 1, 1.0)


def test_the_best_own_variant_is_whoever_is_fastest_and_no_library():
    found = raced(race(table=1000.0, own=990.0, one=900.0, flash=500.0, floor=100.0))
    assert found.names["own"] == "split_w1 blocks=66"


def test_time_over_bytes_at_the_best_rate_uses_the_fastest_floor_of_all_rows():
    slow, fast = race("paper", 1024, own=3000.0, floor=2000.0), race("paper", 65536, own=3000.0, floor=1000.0)
    first, second = races([slow, fast])
    assert gpu_judge.peak_rate([slow, fast]) == pytest.approx((1 << 22) / 1000.0, rel=0.01)
    assert first.peak == pytest.approx(3.0, rel=0.01)
    assert second.peak == pytest.approx(3.0, rel=0.01)
    assert raced(slow).peak is None


def test_races_are_in_order_and_failed_rows_are_none():
    listed = [
        race(n=64, own=1.0),
        race(n=1, own=1.0),
        race("28:4", 9, own=1.0),
        race(n=5)._replace(data={}, failed="x"),
    ]
    assert [(one.shape, one.n) for one in races(listed)] == [("40:8", 1), ("40:8", 64), ("28:4", 9)]


def test_sentences_name_what_is_lost():
    found = races(
        [
            race(n=1, table=1000.0, cudnn=1000.0),
            race(n=64, table=1100.0, cudnn=1000.0),
            race(n=128, own=1000.0, cudnn=1000.0),
            race("paper", 65536, table=900.0, floor=1000.0, flash=5000.0),
            race("paper", 64, table=90_000.0, flash=95_000.0),
        ]
    )
    said = {one.text: one.met for one in race_says(found)}
    assert said == {
        "the table's choice is slower than the best library at 1 of 4 rows: 40:8 n=64": False,
        "no table, no library or too few rounds at 40:8 n=128": None,
        "own over cuDNN: bar met at 2 of 3 rows: not at 40:8 n=64": False,
        "own over the read floor: bar met at 1 of 1 rows": True,
        "own in 10 us: bar met at 0 of 1 rows: not at paper n=64": False,
    }
    assert race_says([])[0].met is None
    assert all(one.met for one in race_says(races([race(table=900.0, cudnn=1000.0)])))


@pytest.mark.parametrize(
    ("ours", "share", "met"),
    [
        ((1.05, 0.99), (0.1, 0.05), [True, True, True, True]),
        ((1.0501, 0.98), (0.1, 0.05), [False, True, True, True]),
        ((1.02, 1.0201), (0.1, 0.05), [True, False, True, True]),
        ((1.0, 1.0), (0.1001, 0.1), [True, True, False, True]),
    ],
)
def test_regret_and_its_price(ours, share, met):
    rows = [regret(n, one, part) for n, one, part in zip((1024, 65536), ours, share, strict=True)]
    said = regret_says(rows)
    assert [one.met for one in said] == met
    assert f"{max(ours):.3f}" in said[0].text


def test_a_pass_cut_short_bounds_the_share_from_above_and_nothing_measured_is_not_judged():
    assert "at most 0.080" in regret_says([regret(whole=False)])[2].text
    row = regret()
    row.data["regret"]["ours"] = None
    assert [one.met for one in regret_says([row])] == [None]
    assert [one.met for one in regret_says([])] == [None]


def test_the_crossing_lies_where_both_take_equally_long():
    found = races(
        [race("paper", n, one=float(t), more=1000.0) for n, t in ((64, 500), (1024, 800), (4096, 1250), (16384, 2000))]
    )
    (n,) = crossing(found, "paper")
    assert n == pytest.approx(2048, rel=0.01)  # equally far in log time from both neighbours
    assert math.isclose(found[1].ratio("one warp", "more warps").value, 0.8, rel_tol=0.01)
    assert crossing(found, "40:8") == []
    assert crossing(found[:2], "paper") == []


def test_a_table_changes_warps_where_neighbouring_rows_differ():
    found = gpu_judge.borders("paper", [(1, 100, 1), (101, 500, 1), (501, 4000, 4), (4001, 9000, None)])
    assert [(one.low, one.high, one.before, one.after) for one in found] == [(500, 501, 1, 4), (4000, 4001, 4, None)]
    assert gpu_judge.borders("paper", [(1, 100, 1)]) == []

"""Learning: which choice at which n, where the borders lie, what is held out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabling import (
    DEFAULT,
    FOUR,
    MADE,
    ONE,
    PASSIVE,
    SPIN,
    TWO,
    choice,
    contended,
    look,
    machine,
    of_rounds,
    race,
    table,
)

from advisor.errors import BadInput
from advisor.policy.learn import Beside, choose, learn, with_heldout
from advisor.records import OBJECTIVES, pairs
from advisor.search.borders import crossing

PASSIVE_FOUR = choice(threads=4, process=PASSIVE)
CROSS = round(256 * 16 ** (math.log(3) / math.log(3 * 9 / 7)))
"""Where the log ratio of two times goes through zero, from 1 : 3 at n = 256 to 9 : 7 at 4096."""


def only(made):
    (section,) = made.sections
    return section


def test_neighbours_with_the_same_choice_are_one_row():
    section = only(table())
    assert section.tuned_n == (64, 256, 1024, 4096)
    assert [row.choice for row in section.rows] == [ONE, FOUR]
    assert (section.rows[0].low, section.rows[-1].high) == (64, 4096)


def test_the_border_is_where_the_interpolated_times_cross():
    section = only(table())
    border = section.rows[1].low
    assert section.rows[0].high == border - 1

    def at(n, low, high):  # log-log line through (256, low) and (1024, high)
        return low * (high / low) ** (math.log(n / 256) / math.log(4))

    assert at(border - 1, 4000, 16000) <= at(border - 1, 5000, 12000) * 1.01
    assert at(border + 1, 4000, 16000) > at(border + 1, 5000, 12000) * 0.99


@pytest.mark.parametrize(
    ("bounds", "border"),
    [
        ({}, CROSS),
        ({ONE: (1, 700)}, 701),
        ({ONE: (1, 5000)}, CROSS),
        ({FOUR: (3000, 1 << 20)}, 3000),
        ({FOUR: (100, 1 << 20)}, CROSS),
        ({ONE: (1, 3500), FOUR: (3000, 1 << 20)}, 3000),
        ({ONE: (1, 700), FOUR: (3000, 1 << 20)}, 701),  # nothing is made for what lies between
    ],
)
def test_no_row_reaches_where_its_choice_is_not_made(bounds, border):
    """A header may bound n: between two tuned n a row must not answer with what cannot run there."""

    def exists(what, n):
        low, high = bounds.get(what, (1, 1 << 20))
        return low <= n <= high

    races = [race(256, {ONE: 1000.0, FOUR: 3000.0}), race(4096, {ONE: 9000.0, FOUR: 7000.0})]
    rows = only(learn(machine(), races, [], MADE._replace(exists=exists))).rows
    plain = only(learn(machine(), races, [], MADE)).rows
    assert (rows[0].high + 1, rows[1].low) == (border, border)
    assert plain[1].low == CROSS


ENDS = {ONE: (1, 700), FOUR: (3000, 1 << 20)}
"""A choice for small n and one for large n, as headers may bound them."""


@pytest.mark.parametrize("how", ["raced", "looked at"])
def test_between_two_choices_that_are_not_made_there_the_default_has_a_row_and_it_is_made_everywhere(how):
    """The untuned choice of the largest n, too, may not be made elsewhere: then one of those that were measured is."""
    also = {TWO: 9500.0} if how == "raced" else {}
    races = [race(256, {ONE: 1000.0}), race(4096, {FOUR: 7000.0, **also})]
    looks = [] if how == "raced" else [look(4096, TWO, 9500.0)]

    def exists(what, n):
        low, high = ENDS.get(what, (1, 1 << 20))
        return low <= n <= high

    section = only(learn(machine(), races, looks, MADE._replace(exists=exists)))
    assert [(row.low, row.high, row.choice) for row in section.rows] == [
        (256, 700, ONE), (701, 2999, TWO), (3000, 4096, FOUR)
    ]  # fmt: skip
    assert [choose(section, n) for n in (1, 255, 4097, 1 << 20)] == [TWO] * 4
    assert [point.n for point in section.default_points] == [4096]
    assert only(learn(machine(), races, looks, MADE)).default == FOUR


def test_where_nothing_is_made_everywhere_what_is_made_for_most_n_answers():
    def exists(what, n):
        return n <= (64 if what == ONE else 4096)

    section = only(learn(machine(), [race(16, {ONE: 900.0, FOUR: 950.0})], [], MADE._replace(exists=exists)))
    assert (choose(section, 16), section.default) == (ONE, FOUR)


def test_a_crossing_race_gives_the_times_that_the_final_races_lack():
    finals = [race(64, {TWO: 9000.0, ONE: 1000.0}), race(4096, {TWO: 30000.0, FOUR: 1000.0})]
    without = only(learn(machine(), finals, [], MADE))
    assert without.rows[1].low == round(math.sqrt(64 * 4096))
    crossed = [race(64, {ONE: 1000.0, FOUR: 1100.0}, "crossing"), race(4096, {ONE: 60000.0, FOUR: 1000.0}, "crossing")]
    section = only(learn(machine(), finals + crossed, [], MADE))
    assert section.rows[1].low < 100
    assert {point.n for point in section.rows[0].points} == {64, 4096}


@given(
    a=st.integers(1, 10**6),
    gap=st.integers(1, 10**6),
    left=st.one_of(st.none(), st.floats(-5, 5)),
    right=st.one_of(st.none(), st.floats(-5, 5)),
)
def test_a_border_is_a_whole_number_between(a, gap, left, right):
    border = crossing(a, a + gap, left, right)
    assert a < border < a + gap or (gap == 1 and border == a + 1)


def test_the_border_of_two_planted_power_laws_is_found():
    # 10 n and 1000 sqrt(n) cross at n = 10000
    ratios = [math.log(10 * n / (1000 * math.sqrt(n))) for n in (100, 10**6)]
    assert crossing(100, 10**6, *ratios) == 10000


@given(st.lists(st.sampled_from([ONE, TWO, FOUR]), min_size=1, max_size=8))
def test_every_n_of_the_tuned_region_lies_in_exactly_one_row(winners):
    verdicts = [
        race(2**i, {c: 100.0 if c == w else 200.0 for c in (ONE, TWO, FOUR)}, default=TWO)
        for i, w in enumerate(winners)
    ]
    section = only(learn(machine(), verdicts, [], MADE))
    for n in range(1, 2 ** (len(winners) - 1) + 1):
        assert sum(row.low <= n <= row.high for row in section.rows) == 1
    for i, winner in enumerate(winners):
        assert choose(section, 2**i) == winner


@pytest.mark.parametrize("n", [16, 128, 1024])
def test_an_n_of_which_no_race_ended_is_not_tuned(n):
    """First looks alone do not rank, and the gate compares races: the next tuning has that n to add."""
    races = [race(64, {FOUR: 4.0, ONE: 1.0}), race(256, {FOUR: 4.0, ONE: 1.0})]
    made = learn(machine(), races, [look(n, ONE, 700.0), look(n, PASSIVE_FOUR, 500.0)], MADE)
    assert made == learn(machine(), races, [], MADE)
    assert only(made).tuned_n == (64, 256)


def test_each_process_part_gets_a_section_and_one_thread_counts_for_all():
    verdicts = [
        race(64, {FOUR: 400.0, ONE: 100.0, PASSIVE_FOUR: 900.0}),
        race(1024, {FOUR: 500.0, ONE: 1600.0, PASSIVE_FOUR: 300.0}),
    ]
    made = learn(machine(), verdicts, [], MADE)
    active, passive = sorted(made.sections, key=lambda s: s.process.wait_policy)
    assert (active.process, passive.process) == (DEFAULT, PASSIVE)
    assert [choose(active, n) for n in (64, 1024)] == [ONE, FOUR]
    assert [choose(passive, n) for n in (64, 1024)] == [ONE._replace(process=PASSIVE), PASSIVE_FOUR]
    assert passive.default == FOUR


def test_one_thread_counts_only_where_its_memory_lies():
    spread = DEFAULT._replace(memory_policy="interleave")
    spread_four, spread_one = choice(threads=4, process=spread), choice(threads=1, process=spread)
    verdicts = [race(64, {FOUR: 400.0, ONE: 100.0, spread_four: 300.0, spread_one: 200.0, PASSIVE_FOUR: 900.0})]
    chosen = {s.process: choose(s, 64) for s in learn(machine(), verdicts, [], MADE).sections}
    assert chosen == {DEFAULT: ONE, spread: spread_one, PASSIVE: ONE._replace(process=PASSIVE)}


def test_one_thread_does_not_stand_for_a_process_part_whose_own_choices_only_had_a_first_look():
    verdicts = [race(64, {FOUR: 400.0, ONE: 900.0})]
    made = learn(machine(), verdicts, [look(64, PASSIVE_FOUR, 500.0)], MADE)
    passive = next(s for s in made.sections if s.process == PASSIVE)
    assert choose(passive, 64) == PASSIVE_FOUR
    assert not passive.rows[0].points[0].raced


def test_a_process_part_is_not_tuned_where_nothing_of_it_was_measured():
    verdicts = [race(64, {FOUR: 4.0, PASSIVE_FOUR: 3.0}), race(256, {FOUR: 4.0, ONE: 9.0})]
    passive = next(s for s in learn(machine(), verdicts, [], MADE).sections if s.process == PASSIVE)
    assert passive.tuned_n == (64,)


def test_heldout_n_are_not_learned_from():
    verdicts = [race(64, {FOUR: 4.0, ONE: 1.0}), race(100, {FOUR: 1.0, ONE: 2.0}, "heldout")]
    section = only(learn(machine(), verdicts, [look(100, FOUR, 1.0)], MADE))
    assert section.tuned_n == (64,)
    assert all(point.n == 64 for row in section.rows for point in row.points)


def test_heldout_regret_is_the_table_s_choice_over_the_best():
    held = [
        race(128, {ONE: 110.0, FOUR: 100.0}, "heldout"),
        race(2048, {ONE: 400.0, FOUR: 100.0}, "heldout"),
        race(9999, {ONE: 400.0, FOUR: 100.0}, "heldout"),
    ]
    before = table()
    after = with_heldout(before, held)
    heldout = only(after).heldout
    assert heldout.n == (128, 2048)
    assert heldout.regret == pytest.approx((1.1, 1.0))
    assert heldout.worst == pytest.approx(1.1)
    assert heldout.geomean == pytest.approx(math.sqrt(1.1))
    assert after.table_id != before.table_id


def test_a_choice_that_fails_at_a_heldout_n_leaves_no_bound():
    after = with_heldout(table(), [race(128, {ONE: float("inf"), FOUR: 1.0}, "heldout", default=FOUR)])
    assert only(after).heldout is None
    assert dict(only(after).extra)["heldout_failed"] == (128,)


def test_gains_have_the_default_s_figures():
    section = only(table())
    assert section.default == FOUR
    assert [point.n for point in section.default_points] == [64, 256, 1024, 4096]


def test_the_same_records_give_the_same_table():
    looks = [look(512, c, ns) for c, ns in ((ONE, 3.0), (TWO, 3.0), (FOUR, 3.0))]
    verdicts = [race(64, {FOUR: 4.0, ONE: 1.0})]
    assert learn(machine(), verdicts, looks, MADE) == learn(machine(), verdicts, looks[::-1], MADE)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(BadInput, match="races of one kernel"):
        learn(machine(), [], [look(64, ONE, 1.0)], MADE)


# --- what a choice is best at ---


def noisy(n, what, ns):
    return look(n, what, ns)._replace(conditions=pairs({"kept_noisy": 9}))


def raced_and_stolen():
    """Four threads win quiet; beside a neighbour they stall, and passive ones do not."""
    sizes = (64, 1024)
    verdicts = [race(n, {FOUR: 100.0, TWO: 104.0, ONE: 400.0, PASSIVE_FOUR: 150.0}) for n in sizes]
    stolen = [
        look(n, c, ns) for n in sizes for c, ns in ((FOUR, 90000.0), (TWO, 8e4), (ONE, 410.0), (PASSIVE_FOUR, 200.0))
    ]
    return verdicts, stolen


def sections(made):
    return {section.process: section for section in made.sections}


def test_a_table_holds_rows_for_every_objective_that_its_figures_allow():
    verdicts, stolen = raced_and_stolen()
    found = sections(learn(machine(), verdicts, [], MADE, Beside(stolen)))
    active, passive = found[DEFAULT], found[PASSIVE]
    assert [choose(active, 64, objective) for objective in OBJECTIVES] == [FOUR, ONE, TWO]
    assert [choose(passive, 64, objective) for objective in ("latency", "robust")] == [PASSIVE_FOUR, PASSIVE_FOUR]
    assert active.objective == "latency"
    assert [a.objective for a in passive.alternatives if not a.rows] == ["robust", "efficiency"]  # as its own rows


def test_it_is_told_where_a_section_is_the_best_of_all_process_parts():
    verdicts, stolen = raced_and_stolen()
    found = sections(learn(machine(), verdicts, [], MADE, Beside(stolen)))
    assert dict(found[DEFAULT].wins) == {"latency": (64, 1024), "efficiency": (64, 1024)}
    assert dict(found[PASSIVE].wins) == {"robust": (64, 1024)}


def test_the_rows_are_for_the_objective_that_was_asked():
    verdicts, stolen = raced_and_stolen()
    made = learn(machine(), verdicts, [], MADE._replace(objective="robust"), Beside(stolen))
    active = sections(made)[DEFAULT]
    assert (active.objective, choose(active, 64), choose(active, 64, "latency")) == ("robust", ONE, FOUR)


def test_without_figures_beside_a_neighbour_robust_is_not_claimed():
    verdicts, _ = raced_and_stolen()
    active = sections(learn(machine(), verdicts, [], MADE))[DEFAULT]
    assert [a.objective for a in active.alternatives] == ["efficiency"]
    asked = sections(learn(machine(), verdicts, [], MADE._replace(objective="robust")))[DEFAULT]
    assert (asked.objective, choose(asked, 64)) == ("robust", FOUR)


def test_robust_borders_lie_where_the_times_beside_the_neighbour_cross():
    verdicts = [race(n, {FOUR: 100.0, ONE: 400.0}) for n in (100, 10**6)]
    stolen = [look(100, FOUR, 1e5), look(100, ONE, 1e3), look(10**6, FOUR, 1e6), look(10**6, ONE, 1e7)]
    rows = choose_rows(only(learn(machine(), verdicts, [], MADE, Beside(stolen))), "robust")
    # log ratio of ONE over FOUR goes from log(0.01) to log(10) over four decades of n: zero after two thirds
    assert rows[1].low == round(100 * 10 ** (4 * 2 / 3))


def choose_rows(section, objective):
    return next(a.rows for a in section.alternatives if a.objective == objective)


def test_points_carry_fragility_and_what_was_contended():
    verdicts, stolen = raced_and_stolen()
    standings = tuple(s._replace(contended=s.choice == FOUR) for s in verdicts[0].standings)
    verdicts[0] = verdicts[0]._replace(standings=standings)
    made = learn(machine(), verdicts, [noisy(64, choice(threads=4, process=SPIN), 300.0)], MADE, Beside(stolen))
    points = {point.n: point for point in sections(made)[DEFAULT].rows[0].points}
    assert points[64].fragility == pytest.approx(points[64].stolen.mean_ns / 100.0, rel=1e-3)
    assert [points[n].contended for n in (64, 1024)] == [True, False]
    (looked,) = sections(made)[SPIN].rows[0].points
    assert (looked.n, looked.raced, looked.contended) == (64, False, True)
    assert points[1024].joules is None


def test_looks_that_drift_are_compared_by_their_corrected_times():
    passive_two = choice(threads=2, process=PASSIVE)
    drifted = look(64, passive_two, 600.0)._replace(conditions=pairs({"drift": 1.5}))
    made = learn(machine(), [race(64, {FOUR: 400.0, TWO: 300.0})], [look(64, PASSIVE_FOUR, 500.0), drifted], MADE)
    assert choose(sections(made)[PASSIVE], 64) == passive_two


# --- the fewest ranges, borders that were measured ---


def test_a_choice_within_the_bound_at_a_neighbour_takes_its_range_too():
    verdicts = [
        race(64, {ONE: 100.0, FOUR: 400.0}),
        race(256, {FOUR: 100.0, ONE: 101.0}),
        race(1024, {ONE: 100.0, FOUR: 120.0}),
    ]
    section = only(learn(machine(), verdicts, [], MADE))
    assert [row.choice for row in section.rows] == [ONE]
    assert dict(section.wins)["latency"] == (64, 256, 1024)
    apart = [verdicts[0], race(256, {FOUR: 100.0, ONE: 102.0}), verdicts[2]]
    assert [row.choice for row in only(learn(machine(), apart, [], MADE)).rows] == [ONE, FOUR, ONE]


def test_a_first_look_joins_no_ranges():
    verdicts = [race(64, {ONE: 100.0, FOUR: 400.0}), race(256, {FOUR: 100.0, TWO: 180.0})]
    section = only(learn(machine(), verdicts, [look(256, ONE, 100.1), look(64, FOUR, 400.0)], MADE))
    assert [row.choice for row in section.rows] == [ONE, FOUR]


def test_a_race_at_the_border_moves_it_and_is_no_tuned_n():
    finals = [race(100, {ONE: 10.0, FOUR: 100.0}), race(10000, {FOUR: 10.0, ONE: 100.0})]
    measured = [race(1000, {ONE: 30.0, FOUR: 100.0}, "border")]
    before, after = (only(learn(machine(), found, [], MADE)) for found in (finals, [*finals, *measured]))
    assert (before.rows[1].low, after.tuned_n) == (1000, (100, 10000))
    assert 1000 < after.rows[1].low < 10000
    assert 1000 in {point.n for point in after.rows[0].points}


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout"])
def test_a_look_that_failed_since_takes_what_the_earlier_one_said(status):
    """A process part had the choice that was wrong, as its older look was right."""
    races = [race(64, {FOUR: 1000.0, TWO: 1200.0})]
    good, bad = look(64, PASSIVE_FOUR, 2000.0), look(64, PASSIVE_FOUR, 2000.0, status)
    assert len(learn(machine(), races, [good], MADE).sections) == 2
    assert len(learn(machine(), races, [good, bad], MADE).sections) == 1


# --- what is settled, and what a thin race may not displace ---

PASSIVE_TWO = choice(threads=2, process=PASSIVE)


def passive_at_64(races, looks=()):
    return choose(sections(learn(machine(), races, looks, MADE))[PASSIVE], 64)


def test_a_choice_that_a_later_race_dropped_displaces_no_faster_one_of_its_process_part():
    """A quick tuning raced another of the part, which was dropped after three rounds and took 3.7 times as long."""
    later = of_rounds(race(64, {FOUR: 100.0, PASSIVE_TWO: 380.0}), 9, PASSIVE_TWO)
    for rounds in (1, 9):
        before = of_rounds(race(64, {FOUR: 100.0, PASSIVE_FOUR: 101.6}), rounds)
        assert passive_at_64([before, later]) == PASSIVE_FOUR
    assert passive_at_64([later], [look(64, PASSIVE_FOUR, 101.6)]) == PASSIVE_FOUR


def test_luck_in_a_look_or_in_few_samples_displaces_nothing_that_raced_to_the_end():
    later = race(64, {FOUR: 100.0, PASSIVE_TWO: 110.0})
    lucky = of_rounds(race(64, {FOUR: 100.0, PASSIVE_FOUR: 105.0}), 1)
    assert passive_at_64([lucky, later]) == PASSIVE_TWO
    looks = [look(64, PASSIVE_FOUR, 60.0), look(64, PASSIVE_TWO, 55.0)]  # the race takes twice the time of looks
    assert passive_at_64([later], looks) == PASSIVE_TWO


def test_what_failed_since_is_no_known_choice_of_a_process_part():
    before = race(64, {FOUR: 100.0, PASSIVE_FOUR: 101.0})
    later = race(64, {FOUR: 100.0, PASSIVE_TWO: 380.0, PASSIVE_FOUR: math.inf})
    assert passive_at_64([before, later]) == PASSIVE_TWO


@pytest.mark.parametrize("worse", [lambda r: of_rounds(r, 4), contended])
def test_the_same_choice_measured_anew_with_less_luck_keeps_its_figures(worse):
    good = race(64, {ONE: 100.0, FOUR: 120.0})
    bad = worse(race(64, {ONE: 110.0, FOUR: 150.0}))
    assert learn(machine(), [good, bad], [], MADE) == learn(machine(), [good], [], MADE)
    assert [p.summary.p25_ns for p in only(learn(machine(), [bad, good], [], MADE)).rows[0].points] == [100.0]
    better = race(64, {ONE: 105.0, FOUR: 125.0})
    assert learn(machine(), [good, better], [], MADE) == learn(machine(), [better], [], MADE)


@pytest.mark.parametrize(("rounds", "first"), [(1, DEFAULT), (8, DEFAULT), (9, PASSIVE)])
def test_after_few_rounds_the_process_part_of_the_default_choice_stays(rounds, first):
    times = {PASSIVE_FOUR: 95.0, FOUR: 128.0, TWO: 119.0}
    found = sections(learn(machine(), [of_rounds(race(64, times, default=FOUR), rounds)], [], MADE))
    assert [process for process, one in found.items() if 64 in dict(one.wins).get("latency", ())] == [first]
    assert {process: choose(one, 64) for process, one in found.items()} == {DEFAULT: TWO, PASSIVE: PASSIVE_FOUR}
    failed = of_rounds(race(64, {PASSIVE_FOUR: 95.0, FOUR: math.inf}, default=FOUR), rounds)
    assert dict(only(learn(machine(), [failed], [], MADE)).wins)["latency"] == (64,)


def test_a_race_of_few_rounds_takes_no_place_of_one_that_ran_to_its_end_unless_that_winner_failed():
    settled, thin = race(64, {ONE: 100.0, FOUR: 120.0}), of_rounds(race(64, {FOUR: 90.0, ONE: 130.0}), 8)
    for races in ([settled, thin], [thin, settled]):
        assert choose(only(learn(machine(), races, [], MADE)), 64) == ONE
    failed = of_rounds(race(64, {FOUR: 90.0, ONE: math.inf}), 8)
    assert choose(only(learn(machine(), [settled, failed], [], MADE)), 64) == FOUR
    assert choose(only(learn(machine(), [thin], [], MADE)), 64) == FOUR  # a table comes of a tiny budget too

"""The best single setting: what is compared, what its loss is of, what was not measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.policy.single import Phase, Setting, Timing, phases_of, single

ONE = Setting("default", None, "default", 1, "")
TWO = Setting("default", None, "default", 2, "")
PASSIVE = Setting("passive", None, "default", 2, "")

PHASES = phases_of({"decode": "cache", "mlp": "rows", "forward": "sequence"}, {1024: 1.0})


def timings(**times):
    """Timings of raced calls: name of a kernel and n -> setting -> ns."""
    cells = {"decode": ("decode", 1024), "mlp": ("mlp", 1024), "step": ("mlp", 1), "forward": ("forward", 1024)}
    return [Timing(*cells[name], s, float(ns), True) for name, by in times.items() for s, ns in by.items()]


EVERYWHERE = timings(
    decode={ONE: 100, TWO: 90}, step={ONE: 10, TWO: 40}, forward={ONE: 8000, TWO: 4000}, mlp={ONE: 6000, TWO: 3000}
)


def test_a_phase_is_the_sum_of_its_calls_and_phases_weigh_alike():
    found = single(EVERYWHERE, PHASES)
    assert found.setting == TWO
    shares = {share.name: share for share in found.shares}
    assert shares["prefill"].loss == 0
    assert shares["decode"].loss == pytest.approx(130 / 100 - 1)
    assert found.loss == pytest.approx(math.sqrt(130 / 100) - 1)
    assert (found.basis, found.unmeasured, found.unknown) == ("EXACT", (), ())


def test_the_weights_of_n_decide():
    slow = [Timing("decode", n, s, ns, True) for n, s, ns in ((64, ONE, 1), (64, TWO, 9), (8192, ONE, 90))]
    slow.append(Timing("decode", 8192, TWO, 50, True))
    for weights, best in (({64: 9, 8192: 1}, ONE), ({64: 1, 8192: 99}, TWO)):
        assert single(slow, phases_of({"decode": "cache"}, weights)).setting == best


def test_what_was_hardly_measured_under_a_setting_does_not_stand_against_others():
    only_decode = timings(decode={PASSIVE: 1})
    assert single([*EVERYWHERE, *only_decode], PHASES).setting == TWO


def test_a_small_part_that_was_not_measured_is_named_and_takes_no_part():
    most = timings(decode={PASSIVE: 80}, forward={PASSIVE: 3900}, mlp={PASSIVE: 2900})
    small = [one for one in EVERYWHERE if (one.kernel, one.n) != ("mlp", 1)]
    found = single([*small, *most, Timing("mlp", 1, ONE, 1.0, True)], PHASES)
    assert found.setting == PASSIVE
    assert found.unmeasured == (("mlp", 1),)
    assert found.loss == 0


def test_a_kernel_that_nobody_measured_is_named():
    assert single(timings(decode={TWO: 5}), PHASES).unknown == (("forward", 1024), ("mlp", 1024), ("mlp", 1))
    assert single([], PHASES) is None
    assert single(EVERYWHERE, ()) is None


def test_between_two_measured_n_the_time_is_interpolated_and_beyond_none_is_known():
    ends = [Timing("decode", n, TWO, float(n), True) for n in (256, 4096)]
    found = single(ends, phases_of({"decode": "cache"}, {1024: 1}))
    assert found.basis == "INTERPOLATED"
    assert found.shares[0].ns == pytest.approx(1024)
    assert single(ends, phases_of({"decode": "cache"}, {8192: 1})) is None


def test_a_lucky_first_look_does_not_beat_a_race():
    raced = timings(decode={ONE: 100, TWO: 120})
    lucky = Timing("decode", 1024, PASSIVE, 60.0, False)
    found = single([*raced, lucky], phases_of({"decode": "cache"}, {1024: 1}))
    assert (found.setting, found.loss) == (ONE, 0)


@pytest.mark.parametrize(("raced", "basis"), [(True, "EXACT"), (False, "INTERPOLATED")])
def test_first_looks_alone_are_not_exact(raced, basis):
    times = [Timing("decode", 1024, setting, ns, raced) for setting, ns in ((ONE, 100.0), (TWO, 120.0))]
    found = single([*times, Timing("decode", 1024, PASSIVE, 90.0, False)], phases_of({"decode": "cache"}, {1024: 1}))
    assert found.basis == basis


def test_of_equals_the_raced_one_is_chosen_and_not_a_look_that_counts_as_its_time():
    spins = TWO._replace(spin=10000)
    times = [Timing("decode", 1024, TWO, 102.6, True), Timing("decode", 1024, spins, 95.0, False)]
    found = single(times, phases_of({"decode": "cache"}, {1024: 1}))
    assert (found.setting, found.loss, found.basis) == (TWO, 0, "EXACT")


def test_a_whole_block_counts_alone_only():
    both = phases_of({"block": "sequence", "mlp": "rows"}, {8: 1})
    assert both[0].cells == (("mlp", 8),)
    assert phases_of({"block": "sequence"}, {8: 1})[0] == Phase("prefill", 8, (("block", 8),), 1)


SETTINGS = st.sampled_from([ONE, TWO, PASSIVE])
TIMES = st.lists(
    st.builds(
        Timing,
        st.sampled_from(["decode", "mlp"]),
        st.sampled_from([1, 64, 1024]),
        SETTINGS,
        st.floats(1, 1e9),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)
WEIGHTS = st.dictionaries(st.sampled_from([1, 64, 300, 1024]), st.floats(0.1, 10), min_size=1)


@given(TIMES, WEIGHTS)
def test_no_setting_gains_against_switching(times, weights):
    found = single(times, phases_of({"decode": "cache", "mlp": "rows"}, weights))
    assert found is None or (found.loss >= 0 and all(share.loss >= -1e-9 for share in found.shares))


@given(TIMES, WEIGHTS, SETTINGS)
def test_nothing_is_lost_where_one_setting_wins_everywhere(times, weights, best):
    wins = [Timing(k, n, best, 0.5, True) for k in ("decode", "mlp") for n in (1, 64, 1024)]
    found = single([*times, *wins], phases_of({"decode": "cache", "mlp": "rows"}, weights))
    assert (found.setting, found.loss) == (best, pytest.approx(0, abs=1e-9))

"""Counters in words."""

import pytest

from advisor import moved

FIGURES = {
    "dram_read_bytes": 268.5e6,
    "dram_written_bytes": 512.0,
    "l2_read_sectors": 8443149.0,
    "l2_written_sectors": 22482.0,
    "global_reductions": 0.0,
    "l2_atomic_sectors": 256.0,
    "achieved_occupancy": 0.1204,
    "theoretical_occupancy": 0.125,
    "duration_ns": 71520.0,
    "caches": "flushed",
}


def test_all_figures_are_told_with_their_units():
    told = moved.words(FIGURES).split("; ")
    assert told[0] == "memory: 268 MB read, 512 B written"
    assert told[1] == "L2 sectors: 8.44 M read, 22.5 k written"
    assert told[2:] == [
        "256 sectors of atomics",
        "occupancy 12% of at most 12%",
        "71.52 us under the profiler",
        "caches flushed",
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_unknown_is_left_out(name):
    without = moved.words({key: value for key, value in FIGURES.items() if key != name})
    assert moved.words({**FIGURES, name: None}) == without
    assert "None" not in without
    assert (len(without) < len(moved.words(FIGURES))) == (name != "global_reductions")  # none there were


def test_nothing_known_is_nothing_told():
    assert moved.words({}) == ""


def test_a_refusal_is_told_with_its_remedy_where_there_is_one():
    assert moved.refused("no ncu", "install it") == "no counters: no ncu; install it"
    assert moved.refused("no ncu", "") == "no counters: no ncu"

"""Counters in words."""

import pytest

from advisor import moved
from advisor.answers import Answer

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
    "read_request_sectors": 15.98,
    "written_request_sectors": 4.0,
    "read_sector_bytes": 31.97,
    "stalls": (("long_scoreboard", 12.34), ("wait", 0.5)),
    "caches": "flushed",
}


def test_all_figures_are_told_with_their_units():
    told = moved.words(FIGURES).split("; ")
    assert told[0] == "memory: 268 MB read, 512 B written"
    assert told[1] == "L2 sectors: 8.44 M read, 22.5 k written"
    assert told[2:] == [
        "sectors a request: 16 read, 4 written",
        "of 32 bytes a sector: 32 read",
        "256 sectors of atomics",
        "occupancy 12% of at most 12%",
        "warps that wait, an issue: long_scoreboard 12.3, wait 0.5",
        "71.52 us under the profiler",
        "caches flushed",
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_unknown_is_left_out(name):
    without = moved.words({key: value for key, value in FIGURES.items() if key != name})
    assert moved.words({**FIGURES, name: None}) == without
    assert "None" not in without
    assert (len(without) < len(moved.words(FIGURES))) == (name != "global_reductions")  # none there were


def test_the_time_of_a_call_stands_beside_the_profiler_s():
    assert moved.words({"duration_ns": 71520.0}, 65432.1) == "71.52 us under the profiler (65.43 us timed in a graph)"
    assert moved.words({}, 65432.1) == ""


def test_nothing_known_is_nothing_told():
    assert moved.words({}) == ""


def test_a_refusal_is_told_with_its_remedy_where_there_is_one():
    assert moved.refused("no ncu", "install it") == "no counters: no ncu; install it"
    assert moved.refused("no ncu", "") == "no counters: no ncu"


# --- from a table ---

SHAPE = {"heads": 40}


def section(counters=None, n=4096, **more):
    """A section of one row with one point, as a table's file has it."""
    point = {"n": n, **({} if counters is None else {"counters": counters})}
    made = {"variant": "v", "source_hash": "0", "knobs": {"blocks": 66}}
    row = {"choice": {"build": made}, "points": [point]}
    return {"dtype": "float16", "regime": "cold", "shape": SHAPE, "rows": [row], **more}


ANSWER = Answer(
    "decode", "float16", tuple(SHAPE.items()), "cold", variant="v", source_hash="0", knob_pairs=(("blocks", 66),)
)._replace(device="NVIDIA H200")
NOTHING = {"counters": None, "no_counters": None, "counted_n": [], "refused_elsewhere": False}
REFUSED = {"reason": "no permission", "remedy": "ask for it"}


ODD_STALLS = ("wait", {"wait": 1}, [["wait"]], [[1, "wait"]], [["wait", float("nan")]], [["wait", -1.0]], 7, None)


@pytest.mark.parametrize("odd", ODD_STALLS, ids=str)
def test_waits_that_make_no_sense_are_passed_over(odd):
    found = moved.of([section({"duration_ns": 5.0, "stalls": odd})], ANSWER, 4096)
    assert found["counters"] == {"duration_ns": 5.0}


def test_waits_of_a_table_are_told_in_their_order():
    found = moved.of([section({"stalls": [["wait", 2.0], ["barrier", 1]]})], ANSWER, 4096)
    assert moved.sentence(found) == "warps that wait, an issue: wait 2, barrier 1"


def test_figures_of_the_answers_own_choice_and_n_are_found():
    assert moved.of([section({"duration_ns": 5.0})], ANSWER, 4096) == {
        **NOTHING,
        "counters": {"duration_ns": 5.0},
        "counted_n": [4096],
    }
    assert moved.of([section({"duration_ns": 5.0})], ANSWER, 4097) == {**NOTHING, "counted_n": [4096]}
    assert moved.of([section({"duration_ns": 5.0})], ANSWER._replace(knob_pairs=()), 4096) == NOTHING
    assert moved.of([section({"duration_ns": 5.0})], ANSWER._replace(dtype="float32"), 4096) == NOTHING


def test_figures_in_rows_for_another_objective_are_found():
    other = section(alternatives=[{"objective": "efficiency", "rows": section({"duration_ns": 5.0})["rows"]}])
    assert moved.of([other], ANSWER, 4096)["counters"] == {"duration_ns": 5.0}


def test_a_refusal_is_told_where_no_figures_are_known():
    assert moved.of([section(no_counters=REFUSED)], ANSWER, 4096) == {
        **NOTHING,
        "no_counters": REFUSED,
        "refused_elsewhere": True,
    }
    assert moved.of([section({"calls": 3}, no_counters=REFUSED)], ANSWER, 4096)["no_counters"] is None


def test_a_refusal_is_told_at_its_own_n_alone():
    refused = section(no_counters={**REFUSED, "n": [8192]})
    assert moved.sentence(moved.of([refused], ANSWER, 8192)) == "no counters: no permission; ask for it"
    assert moved.sentence(moved.of([refused], ANSWER, 4096)) == moved.NOT_HERE


def test_at_an_n_that_was_not_counted_those_that_were_are_named():
    found = [section({"calls": 3}), section({"calls": 3}, n=1024, no_counters={**REFUSED, "n": [8192]})]
    assert moved.sentence(moved.of(found, ANSWER, 5000)) == "counted at n = 1024, 4096, not here"
    assert moved.sentence(moved.of(found, ANSWER, 8192)) == "no counters: no permission; ask for it"


def test_nothing_is_said_of_a_cpu():
    assert moved.of([section({"calls": 3})], ANSWER._replace(device=None), 4096) == {}


@pytest.mark.parametrize("value", ["9", None, -1, float("nan"), float("inf"), [1], {}])
def test_what_is_no_figure_is_passed_over(value):
    found = moved.of([section({"duration_ns": value, "caches": value, "more": 1})], ANSWER, 4096)
    assert found["counters"] == {}


def test_each_outcome_has_a_sentence():
    assert moved.sentence({**NOTHING, "counters": FIGURES}) == moved.words(FIGURES)
    assert moved.sentence({**NOTHING, "no_counters": REFUSED}) == "no counters: no permission; ask for it"
    assert moved.sentence(NOTHING) == moved.NEVER

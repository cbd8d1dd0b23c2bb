"""The next tuning starts with what lookups missed: order of kernels, sizes, shapes; what a table answers is cleared."""

import os

import pytest
from tabling import figures

from advisor import missed, misses, paths, tuning
from advisor.gate import Bar
from advisor.kernels import registry
from advisor.missed import FAR, MOST_SHAPES, CatchUp, clear, turns
from advisor.policy.learn import Made, learn
from advisor.policy.store import save_table
from advisor.records import Build, Choice, Process, Standing, Team, Verdict, pairs
from advisor.search.request import Outcome, Silent
from advisor.topology import probe
from advisor.tuning import TuneRequest
from advisor.tuning_result import TuneResult

DECODE = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
OPEN, KERNELS_TOO = CatchUp(shapes=True), CatchUp(shapes=True, kernels=True)


def miss(folder, kernel, n, times=1, dtype="float32", why="n", **shape):
    """Write misses into a folder's file."""
    axes = {"dtype": dtype, "regime": "warm", **(shape or DECODE)}
    own = misses.Misses(str(folder))
    own._start = lambda: None
    for _ in range(times):
        own.question(kernel, axes, why).note(n)
    assert own.flush()


def planned(folder, *kernels, catch_up=OPEN, **asked):
    found = turns(TuneRequest(kernels or ("decode",), catch_up=catch_up, **asked), str(folder))
    return [(kernel, dict(own.shape), own.added) for own, kernel in found.turns], found.notes


def test_without_misses_nothing_changes(tmp_path):
    request = TuneRequest(("forward", "decode"), catch_up=KERNELS_TOO)
    assert turns(request, str(tmp_path)) == (((request, "forward"), (request, "decode")), ())
    miss(tmp_path, "decode", 1 << 19)
    quiet = request._replace(catch_up=None)
    assert turns(quiet, str(tmp_path)) == (((quiet, "forward"), (quiet, "decode")), ())


def test_the_kernel_missed_most_goes_first(tmp_path):
    miss(tmp_path, "decode", 512, 2)
    miss(tmp_path, "rmsnorm", 32, 5, batch=2, d_model=64)
    found, _ = planned(tmp_path, "forward", "decode", "rmsnorm")
    assert [kernel for kernel, _, _ in found] == ["rmsnorm", "decode", "forward"]


def test_n_beyond_the_sizes_that_suit_are_added_in_one_line(tmp_path):
    miss(tmp_path, "decode", 500, 3)
    miss(tmp_path, "decode", 5000)
    miss(tmp_path, "decode", 300_000)
    miss(tmp_path, "decode", 700_000, 2)
    found, (note,) = planned(tmp_path)
    assert found == [("decode", {}, (500, 700_000))]
    assert note.startswith("7 lookups missed, so it goes first: decode float32")
    assert note.endswith("n = 500, 700000 added")


def test_an_enormous_n_is_left_to_who_names_it(tmp_path):
    most = 262_144 * FAR
    miss(tmp_path, "decode", most)
    miss(tmp_path, "decode", most + 1, 1000)
    found, (note,) = planned(tmp_path)
    assert found == [("decode", {}, (most,))]
    assert f"n = {most + 1} left out" in note
    assert "--n" in note


def test_sizes_that_somebody_named_stay_as_they_are(tmp_path):
    miss(tmp_path, "decode", 300_000)
    miss(tmp_path, "decode", 1024, 9, heads=8, kv_heads=8, batch=1, head_dim=64)
    assert planned(tmp_path, sizes=(64,)) == ([("decode", {}, ())], ())


def test_shapes_that_were_missed_go_first_unless_the_problem_was_named(tmp_path):
    shape = {**DECODE, "heads": 8}
    miss(tmp_path, "decode", 1024, 3, why="shape", **shape)
    found, (note,) = planned(tmp_path)
    assert found == [("decode", shape, ()), ("decode", {}, ())]
    assert note == "3 lookups missed, so it goes first: decode float32 batch=2 head_dim=64 heads=8 kv_heads=1"
    assert planned(tmp_path, catch_up=CatchUp())[0] == [("decode", {}, ())]


def test_what_a_question_left_open_is_as_the_request_has_it(tmp_path):
    miss(tmp_path, "decode", 1024, why="shape", dtype=None, heads=8)
    request = TuneRequest(("decode",), dtype="float64", catch_up=OPEN)
    (own, _), _ = turns(request, str(tmp_path)).turns
    assert (own.dtype, dict(own.shape)["heads"], dict(own.shape)["head_dim"]) == ("float64", 8, 64)


def test_another_kernel_is_taken_up_only_where_none_was_named(tmp_path):
    shape = dict(registry.spec("forward").problem(1).shape)
    miss(tmp_path, "forward", 256, 3, why="kernel", dtype=None, **shape)
    assert [kernel for kernel, _, _ in planned(tmp_path)[0]] == ["decode"]
    assert [kernel for kernel, _, _ in planned(tmp_path, catch_up=KERNELS_TOO)[0]] == ["forward", "decode"]


def test_as_many_shapes_as_a_budget_bears_are_taken_up(tmp_path):
    for heads in (2, 4, 8, 16, 32):
        miss(tmp_path, "decode", 1024, heads, **{**DECODE, "heads": heads})
    found, notes = planned(tmp_path)
    assert [shape["heads"] for _, shape, _ in found[:-1]] == [32, 16, 8]
    assert len(notes) == MOST_SHAPES


def test_what_makes_no_sense_is_passed_over(tmp_path):
    miss(tmp_path, "nothing", 64, 9, heads=8)
    miss(tmp_path, "decode", 64, 9, heads=3, kv_heads=2, batch=1, head_dim=64)
    miss(tmp_path, "decode", 64, 9, width=16)
    miss(tmp_path, "decode", 64, 9, dtype="int8")
    found, notes = planned(tmp_path, catch_up=KERNELS_TOO)
    assert (found, notes) == ([("decode", {}, ())], ())


# --- a tuning with misses ---


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """`tune` whose kernels are tuned at once, by a table that is made up: (kernel, shape, n, share) of every turn."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    done = []

    def one(asked, kernel, machine, progress, turn):
        request = tuning._request(asked, kernel, machine)
        done.append((kernel, dict(request.problems[0].shape), [p.n for p in request.problems], turn.share_s))
        path = os.path.join(paths.machine_dir(machine.hardware_id, machine.limits_id), f"{kernel}.table.json")
        build = Build(request.variants[0].name, request.variants[0].source_hash, (), "gcc-12", "native")
        choice = Choice(build, Team(1, ""), Process("libgomp", "default", None, "default"))
        races = [
            Verdict(p, "final", choice, choice, 20, (Standing(choice, "winner", figures(1000.0), 1.0, None),))
            for p in request.problems
        ]
        table = save_table(path, learn(machine, races, [], Made("2026-01-02T03:04:05Z", ()))).table
        outcome = Outcome((), (), (), (), 0, False, (), (), ())
        return TuneResult(kernel, outcome, table, path, "", "", ())

    monkeypatch.setattr(tuning, "_tune_one", one)
    said = []

    def run(**asked):
        done.clear()
        said.clear()
        tuning.tune(TuneRequest(("decode",), catch_up=OPEN, **asked), Silent(), said.append)
        return list(done), " ".join(said)

    return run


def test_a_tuning_starts_with_what_was_missed_and_clears_what_it_answers(tuned):
    machine = probe.probe()
    folder = paths.machine_dir(machine.hardware_id, machine.limits_id)
    shape = {**DECODE, "heads": 8}
    miss(folder, "decode", 300_000, 2)
    miss(folder, "decode", 2048, 5, why="shape", **shape)
    miss(folder, "decode", 1 << 30)
    miss(folder, "forward", 256, why="kernel", dtype=None, batch=2)
    turns, said = tuned(budget_s=100.0)
    assert [(kernel, own["heads"]) for kernel, own, _, _ in turns] == [("decode", 8), ("decode", 1)]
    assert turns[1][2][-1] == 300_000
    assert turns[0][3] == pytest.approx(50, abs=15)
    assert "5 lookups missed, so it goes first" in said
    left = missed.read(folder)
    assert {(one.kernel, one.ends) for one in left} == {("decode", (1 << 30,)), ("forward", (256,))}
    turns, _ = tuned()
    assert [own["heads"] for _, own, _, _ in turns] == [1]


def test_a_miss_within_the_sizes_that_suit_is_cleared_and_a_broken_file_stops_no_tuning(tuned):
    machine = probe.probe()
    folder = paths.machine_dir(machine.hardware_id, machine.limits_id)
    miss(folder, "decode", 2048)
    tuned()
    assert missed.read(folder) == ()
    with open(os.path.join(folder, misses.NAME), "w", encoding="utf-8") as file:
        file.write("{")
    ((_, _, sizes, _),) = tuned()[0]
    assert sizes[0] == 1024
    assert clear(str(folder) + "-that-is-not-there") == 0


def test_the_bar_and_a_named_n_reach_every_turn(tuned):
    turns, said = tuned(sizes=(64, 128), bar=Bar(0.1))
    assert [n for _, _, n, _ in turns] == [[64, 128]]
    assert "missed" not in said
    assert pairs(turns[0][1]) == pairs(DECODE)

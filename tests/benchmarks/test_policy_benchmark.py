"""The held-out benchmark on a made-up executor and made-up rows: what is looked at, judged, printed, kept."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import policy
import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, recorded_noise
from tabling import FOUR, MADE, ONE, TWO, figures, table, write, write_machine

from advisor.codec import to_json
from advisor.concluding import held_out_sizes
from advisor.errors import Missing
from advisor.paths import machine_dir
from advisor.policy.learn import learn
from advisor.policy.store import with_id
from advisor.records import Standing, Verdict, pairs
from advisor.search.space import SpaceOptions, Toolchain, default_choice, space

SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))


def ground(n=4096):
    machine, spec, known = fake_machine(), FakeSpec(), fake_variants()
    where = (machine, spec, known, spec.problem(n), SPACE)
    return spec.problem(n), space(*where), default_choice(*where)


def executor():
    return FakeExecutor(lambda p, c: decode_ns(p, c, 2), recorded_noise(0))


def row(kernel="decode", n=1024, table=(1.01, 0.99, 1.03), whole=True):
    regret = {"table": table, "default": (2.0, 1.9, 2.1)}
    looked = 100 if whole else 60
    made = {
        "kernel": kernel,
        "n": n,
        "space": 100,
        "looked": looked,
        "whole": whole,
        "looks": {"made_up": [looked, 100]},
    }
    kept = policy.contenders({FOUR: [9e3, 1e4, 3e4], TWO: [1.2e4]}, {"table": TWO, "default": ONE})
    return {**made, "rounds": 30, "contenders": kept, "regret": regret, "seconds": 12.0}


def keyed(*rows):
    return {f"{one['kernel']} {one['n']}": one for one in rows}


def test_an_exhaustive_look_sees_every_choice_and_ranks_the_best_first():
    problem, choices, default = ground()
    fake = executor()
    order = policy.ordered(choices, [default], 0)
    found = policy.exhaustive(fake, problem, order, 1e6, fake.clock)
    assert (sorted(found.looked, key=repr), found.whole) == (sorted(choices, key=repr), True)
    best = min(decode_ns(problem, choice, 2) for choice in choices)
    assert min(decode_ns(problem, choice, 2) for choice in found.best) <= 1.05 * best


def test_a_look_that_is_cut_short_says_so_and_began_with_what_is_known():
    problem, choices, default = ground()
    fake = executor()
    order = policy.ordered(choices, [default], 0)
    assert order[0] == default
    assert sorted(order, key=repr) == sorted(choices, key=repr)
    found = policy.exhaustive(fake, problem, order, fake.clock.now + 0.05, fake.clock)
    assert 1 <= len(found.looked) < len(choices)
    assert not found.whole


def test_the_order_is_random_by_its_seed():
    _, choices, default = ground()
    assert policy.ordered(choices, [default], 1) == policy.ordered(choices, [default], 1)
    assert policy.ordered(choices, [default], 1) != policy.ordered(choices, [default], 2)


def test_bars_are_over_every_kernel_and_over_both():
    found = {one.kernel: one for one in policy.judge(keyed(row(), row("forward", 64, (1.05, 1.0, 1.1))))}
    assert [found[name].met for name in ("decode", "forward", "both")] == [True, False, False]
    assert found["both"].geomean[0] == pytest.approx(math.sqrt(1.01 * 1.05))
    assert found["both"].worst == pytest.approx(1.05)
    assert found["decode"].geomean[1] <= found["decode"].geomean[0] <= found["decode"].geomean[2]


def test_a_regret_below_one_counts_as_one():
    (one,) = policy.judge(keyed(row(table=(0.9, 0.8, 1.0))))
    assert (one.geomean[0], one.worst, one.met) == (1.0, 1.0, True)


def test_a_choice_that_failed_at_a_held_out_n_misses_every_bar():
    (one,) = policy.judge(keyed(row(), row(n=2048, table=None)))
    assert (one.worst, one.met) == (math.inf, False)
    assert "failed" in "\n".join(policy.lines(keyed(row(table=None))))


def test_a_line_a_row_and_a_mark_where_time_ran_out():
    told = policy.lines(keyed(row(), row(n=99, whole=False)))
    assert len(told) == 4
    assert "60*" in told[1]
    assert "not the whole space" in told[-1]


def test_a_missed_row_says_what_was_better_there_and_how_much_of_the_space_was_seen():
    told = "\n".join(policy.lines(keyed(row(table=(1.2, 1.1, 1.3), whole=False))))
    assert "best: 10 us, made_up gcc-12 native, 4 on the first CPUs, default" in told
    assert "table: 12 us, made_up gcc-12 native, 2 on the first CPUs" in told
    assert "default: failed: made_up gcc-12 native, 1 on" in told
    assert "looked at: made_up 60 of 100" in told
    assert "best: " not in "\n".join(policy.lines(keyed(row(table=(1.02, 0.9, 1.3)))))


def test_the_best_contender_is_the_one_that_regret_is_taken_over_and_not_the_luckiest():
    lucky, steady = [1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], [5.0] * 8
    kept = policy.contenders({FOUR: lucky, TWO: steady, ONE: []}, {"table": FOUR, "default": ONE})
    assert {name: one["choice"]["team"]["threads"] for name, one in kept.items()} == {
        "best": 2,
        "table": 4,
        "default": 1,
    }
    assert [one["samples_ns"] for one in kept.values()] == [steady, lucky, []]


def test_a_row_of_a_whole_look_keeps_what_explains_it():
    """Made on the fake machine: the race's best is in the row beside the table's choice, with as many samples."""
    problem, choices, default = ground()
    machine, spec, known = fake_machine(), FakeSpec(), fake_variants()
    race = Verdict(problem, "final", default, default, 20, (Standing(default, "winner", figures(1e6), 1.0, None),))
    made = learn(machine, [race], [], MADE)
    fake = executor()
    found = policy.row(fake, policy.Ground(machine, spec, known, SPACE, made), problem, time.monotonic() + 30, 0)
    assert sum(there for _, there in found["looks"].values()) == found["space"] == len(choices)
    assert sum(seen for seen, _ in found["looks"].values()) == found["looked"]
    best, told = (found["contenders"][name] for name in ("best", "table"))
    assert len(best["samples_ns"]) == len(told["samples_ns"]) == found["rounds"]
    assert found["contenders"]["default"]["choice"] == told["choice"] == to_json(default)
    assert statistics.median(best["samples_ns"]) < statistics.median(told["samples_ns"])


def test_rows_are_kept_and_taken_from_the_file(tmp_path):
    path = str(tmp_path / "rows.json")
    policy.write(path, keyed(row()))
    assert policy.read(path) == json.loads(json.dumps(keyed(row())))
    assert policy.read(str(tmp_path / "none.json")) == {}


def test_rows_of_both_kernels_are_made_in_turn():
    todo = [(None, argparse.Namespace(kernel=k, n=n)) for k in ("decode", "forward") for n in (1, 2)]
    assert [(p.kernel, p.n, left) for _, p, left in policy._in_turn(todo)] == [
        ("decode", 1, 4),
        ("forward", 1, 3),
        ("decode", 2, 2),
        ("forward", 2, 1),
    ]


def test_held_out_sizes_are_random_log_uniform_and_never_tuned():
    tuned = (64, 256, 1024, 4096)
    drawn = [n for seed in range(200) for n in held_out_sizes(tuned, 3, seed)]
    assert all(64 < n < 4096 and n not in tuned for n in drawn)
    parts = [sum(64 * 4**i <= n < 64 * 4 ** (i + 1) for n in drawn) for i in range(3)]
    assert min(parts) > 0.9 * max(parts)
    assert len(set(drawn)) > 100
    assert held_out_sizes(tuned, 3, 5) == held_out_sizes(tuned, 3, 5)
    assert not set(held_out_sizes(tuned, 3, 5)) & set(held_out_sizes(tuned, 3, 5, held_out_sizes(tuned, 3, 5)))
    assert held_out_sizes((64,), 3, 0) == held_out_sizes(tuned, 0, 0) == ()


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Keeps a table of made-up rows, which names its maker in the provenance, at home or among the shipped ones."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("advisor.gather.shipped_policies", lambda: str(tmp_path / "shipped"))
    here, site = policy.probe(), policy.describe_here("/", [])
    places = {"home": machine_dir(site.hardware_id, site.limits_id), "shipped": str(tmp_path / "shipped" / "one")}

    def keep(where, limits=here.limits_id):
        os.makedirs(places[where])
        made = table(hardware_id=here.hardware_id, limits_id=limits)
        write(places[where], with_id(made._replace(provenance=pairs({"maker": where}))))
        write_machine(places[where], here._replace(limits_id=limits))

    return keep


def maker(machine):
    return dict(policy.answering("decode", machine).provenance)["maker"]


def test_a_shipped_table_answers_where_the_tuning_left_it_in_place(tables):
    with pytest.raises(Missing, match="no table answers"):
        policy.answering("decode", policy.probe())
    tables("shipped")
    assert maker(policy.probe()) == "shipped"
    tables("home")
    assert maker(policy.probe()) == "home"


def test_a_shipped_table_of_other_limits_does_not_answer(tables):
    tables("shipped", limits="others")
    with pytest.raises(Missing, match="no table answers"):
        policy.answering("decode", policy.probe())


@pytest.mark.parametrize("no_tune", [True, False])
def test_nothing_is_tuned_where_that_is_asked(tables, monkeypatch, no_tune):
    tables("shipped")
    ran = []
    monkeypatch.setattr(policy.subprocess, "run", lambda words, **more: ran.append(words))
    asked = policy.arguments().parse_args(["--no-tune"] if no_tune else [])
    found = policy.tuned("decode", asked, 1.0)
    assert (len(ran), dict(found.table.provenance)["maker"]) == (0 if no_tune else 1, "shipped")


def test_sizes_that_make_no_sense_are_refused_at_once():
    done = subprocess.run(
        [sys.executable, policy.__file__, "--sizes", "4x"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "4x" in done.stderr

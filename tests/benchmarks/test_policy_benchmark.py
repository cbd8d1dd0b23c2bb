"""The held-out benchmark on a made-up executor and made-up rows: what is looked at, judged, printed, kept."""

import argparse
import json
import math
import os
import subprocess
import sys

import policy
import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, recorded_noise
from tabling import table, write, write_machine

from advisor.concluding import held_out_sizes
from advisor.errors import Missing
from advisor.paths import machine_dir
from advisor.policy.store import with_id
from advisor.records import pairs
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
    made = {"kernel": kernel, "n": n, "space": 100, "looked": 100 if whole else 60, "whole": whole, "rounds": 30}
    return {**made, "choice": {}, "regret": regret, "seconds": 12.0}


def keyed(*rows):
    return {f"{one['kernel']} {one['n']}": one for one in rows}


def test_an_exhaustive_look_sees_every_choice_and_ranks_the_best_first():
    problem, choices, default = ground()
    fake = executor()
    order = policy.ordered(choices, [default], 0)
    found = policy.exhaustive(fake, problem, order, 1e6, fake.clock)
    assert (found.looked, found.whole) == (len(choices), True)
    best = min(decode_ns(problem, choice, 2) for choice in choices)
    assert min(decode_ns(problem, choice, 2) for choice in found.best) <= 1.05 * best


def test_a_look_that_is_cut_short_says_so_and_began_with_what_is_known():
    problem, choices, default = ground()
    fake = executor()
    order = policy.ordered(choices, [default], 0)
    assert order[0] == default
    assert sorted(order, key=repr) == sorted(choices, key=repr)
    found = policy.exhaustive(fake, problem, order, fake.clock.now + 0.05, fake.clock)
    assert 1 <= found.looked < len(choices)
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

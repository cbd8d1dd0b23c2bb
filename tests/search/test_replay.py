"""Replay: what is counted, told and paid, and that a seed decides everything."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from recorded import entry, failure, put, small

from advisor.errors import BadInput
from advisor.search import replay as module
from advisor.search.replay import Account, Setting, Spent, load, replay

ROOT = Path(__file__).resolve().parents[2]


class Scripted:
    """Asks for the indices it was given, then ends; keeps what it was told."""

    def __init__(self, indices):
        self.indices, self.told = list(indices), []

    def ask(self):
        return self.indices.pop(0) if self.indices else None

    def tell(self, index, value):
        self.told.append((index, value))


def shuffled(space, seed):
    count = len(space.configurations)
    return Scripted(random.Random(seed).sample(range(count), count))


@pytest.fixture
def space(tmp_path):
    return load(put(tmp_path / "made-up.json", small()))


@pytest.fixture
def four(tmp_path):
    """Means 4, failed, 2, 1 with compile 100 and overhead 5."""
    results = [entry({"a": 1}, [3.0, 5.0]), failure({"a": 2}), entry({"a": 3}, [2.0]), entry({"a": 4}, [1.0, 1.0])]
    return load(put(tmp_path / "made-four.json", {"results": results}))


def test_the_curve_is_best_so_far_over_the_optimum_and_counts_distinct_configurations(four):
    strategy = Scripted([1, 0, 0, 2, 0, 3])
    curve = replay(four, strategy, Setting(4))
    assert curve.order == (1, 0, 2, 3)
    assert curve.ratio.tolist() == [4.0, 4.0, 2.0, 1.0]
    assert strategy.told == [(1, None), (0, 4.0), (0, 4.0), (2, 2.0), (0, 4.0), (3, 1.0)]


def test_cost_is_compile_overhead_and_runs_in_seconds_and_a_failure_pays_for_its_compiling(four):
    curve = replay(four, Scripted([1, 0, 0, 2]), Setting(4))
    assert curve.cost_s * 1e3 == pytest.approx([100, 213, 320, 320])


def test_a_strategy_that_ends_early_keeps_what_it_has(four):
    assert replay(four, Scripted([2]), Setting(3)).ratio.tolist() == [2.0, 2.0, 2.0]


def test_no_more_than_the_evaluations_given_are_answered(four):
    strategy = Scripted([0, 1, 2, 3])
    assert len(replay(four, strategy, Setting(2)).order) == 2
    assert strategy.indices == [2, 3]
    account = Account(four, Setting(1))
    account.evaluate(0)
    with pytest.raises(Spent, match="used up"):
        account.evaluate(1)


def test_a_strategy_stuck_on_what_it_knows_is_ended(four, monkeypatch):
    monkeypatch.setattr(module, "REPEATS", 5)
    strategy = Scripted([0] * 100)
    assert replay(four, strategy, Setting(3)).order == (0,)
    assert len(strategy.told) == 6


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_the_space_is_refused(four, index):
    with pytest.raises(BadInput, match="of the space"):
        replay(four, Scripted([index]), Setting(3))


@pytest.mark.parametrize("setting", [Setting(0), Setting(3, 0, -1)])
def test_a_setting_that_makes_no_sense_is_refused(four, setting):
    with pytest.raises(BadInput, match="at least one"):
        Account(four, setting)


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_the_seed_decides_everything(space, draws):
    setting = Setting(30, 7, draws)
    first, again = (replay(space, shuffled(space, 1), setting) for _ in range(2))
    assert first.order == again.order
    assert first.ratio.tolist() == again.ratio.tolist()
    assert first.cost_s.tolist() == again.cost_s.tolist()


def test_noise_is_one_of_the_raw_runs_and_depends_on_seed_and_configuration_alone(space):
    def told(order, seed):
        strategy = Scripted(order)
        replay(space, strategy, Setting(10, seed, 1))
        return dict(strategy.told)

    forth, back, other = told(range(10), 3), told(range(9, -1, -1), 3), told(range(10), 4)
    assert forth == back != other
    assert all(value in space.runs_ms[index] for index, value in forth.items())


def test_under_noise_the_true_mean_of_what_looks_best_counts(tmp_path):
    results = [entry({"a": 1}, [2.0] * 4), entry({"a": 2}, [1.0] + [5.0] * 3)]
    lucky = load(put(tmp_path / "made-lucky.json", {"results": results}))
    curves = [replay(lucky, Scripted([0, 1]), Setting(2, seed, 1)).ratio.tolist() for seed in range(40)]
    assert {tuple(curve) for curve in curves} == {(1.0, 1.0), (1.0, 2.0)}


def test_the_mean_of_several_draws_is_less_noisy_than_one(space):
    def spread(draws):
        indices = np.flatnonzero(~space.failed)
        logs = []
        for seed in range(20):
            account = Account(space, Setting(48, seed, draws))
            logs.append([np.log(account.evaluate(int(i)) / space.time_ms[i]) for i in indices])
        return float(np.std(logs))

    assert spread(16) < spread(1) / 2


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/replay.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "spaces").mkdir()
    put(tmp_path / "spaces" / "convolution-A100.T4.json.gz", small())
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "replay.md", "exec"), {})  # noqa: S102
    assert len(blocks) == 2
    assert "convolution A100 48 2" in capsys.readouterr().out

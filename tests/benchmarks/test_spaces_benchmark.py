"""benchmarks/spaces.py: its figures and verdicts, the whole command on a made-up space, ours on a real one."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import spaces
from recorded import REAL, entry, failure, put, small
from spaces_judge import Broken, Done, against, curves, score
from spaces_more import more
from spaces_peers import random_search, strategies

from advisor.search.replay import Account, Setting, load

SHORT = ("genetic",)
"""Ends early in a space of 48: its generations stop when it has asked as often as there are configurations."""

SETTLED = ("ours", "portfolio")
"""Draws at random where two configurations are equally good only."""

INSTALLED = importlib.util.find_spec("kernel_tuner") is not None


def done(strategy, space, seed, *ratio):
    return Done(strategy, space, space.split("-")[0], seed, ratio, 1.0, 0.1)


def table(values):
    """Seeds of one space at one budget."""
    return {"k-a": np.array(values, float)[:, None]}


# --- figures ---


def test_a_score_is_the_geometric_mean_over_spaces_of_means_over_seeds():
    found = score({"k-a": np.array([[1.0], [3.0]]), "k-b": np.array([[8.0], [8.0]])}, 1)
    assert found.value == pytest.approx(4.0)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(("theirs", "verdict"), [(1.5, "ahead"), (1.0, "tie"), (0.7, "behind")])
def test_a_verdict_needs_an_interval_that_leaves_one_out(theirs, verdict):
    noise = 1 + 0.1 * np.random.default_rng(0).random(20)
    assert against(table(noise), table(theirs * noise[::-1]), "peer", 1).verdict == verdict


def test_only_what_all_strategies_finished_is_compared():
    listed = [done("a", "k-x", 0, 1.0), done("a", "k-x", 1, 2.0), done("b", "k-x", 1, 3.0), done("a", "k-y", 0, 4.0)]
    found = curves(listed)
    assert {name: {s: c.tolist() for s, c in by.items()} for name, by in found.items()} == {
        "a": {"k-x": [[2.0]]},
        "b": {"k-x": [[3.0]]},
    }


def test_a_strategy_that_broke_is_left_out_with_a_line(capsys):
    listed = [done("a", "k-x", 0, 1.0), done("b", "k-x", 0, 1.0)]
    assert spaces.without(listed, [Broken("b", "k-y", "ValueError: odd")]) == listed[:1]
    assert "b left out: on k-y it ended in ValueError: odd" in capsys.readouterr().err


# --- peers ---


@pytest.fixture
def space(tmp_path):
    return load(put(tmp_path / "made-up.json", small()))


@pytest.mark.parametrize("name", strategies(prior=True))
def test_every_strategy_uses_its_evaluations_and_is_decided_by_its_seed(space, name):
    def order(seed):
        account = Account(space, Setting(20, seed))
        strategies(prior=True)[name](account, seed, (space,))
        return account.curve().order

    first = order(1)
    assert len(first) == 20 or (name in SHORT and len(first) > 2)
    assert first == order(1)
    assert first != order(2) or name in SETTLED


@pytest.mark.parametrize("name", [name for name in strategies(prior=False) if name != "random"])
def test_every_strategy_takes_values_that_are_no_numbers(tmp_path, name):
    document = small()
    for result in document["results"]:
        result["configuration"] |= {"use": "yes" if result["configuration"]["use"] else "no", "fixed": True}
    account = Account(load(put(tmp_path / "made-text.json", document)), Setting(12))
    strategies(prior=False)[name](account, 0, ())
    assert account.left == 0 or name in SHORT


@pytest.mark.parametrize("name", [name for name in more() if name != "gp"])  # that one takes a second a search
def test_searches_that_are_run_by_name_use_their_evaluations_and_are_decided_by_their_seed(space, name, monkeypatch):
    monkeypatch.setattr("spaces_more.TREES", 5)

    def order(seed):
        account = Account(space, Setting(11, seed))
        more()[name](account, seed, ())
        return account.curve().order

    first = order(1)
    assert len(first) == 11
    assert first == order(1)
    assert first != order(2)


ODD = {
    "one parameter with one value": [{"a": 1}],
    "values of several kinds": [{"a": value, "b": k % 2} for k, value in enumerate([1, 2.5, "x", True, None, "1"])],
    "a parameter that some lack": [{"a": 1}, {"a": 2, "b": 3}, {"b": 4}, {"a": 4, "b": 3}],
    "lists": [{"a": [1, 2]}, {"a": [2, 1]}, {"a": [4, 4]}],
    "zero and below": [{"a": k - 3, "b": 0.1 * k} for k in range(8)],
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("prior", [False, True])
def test_the_command_copes_with_spaces_unlike_the_usual_ones(tmp_path, capsys, kind, prior):
    for device in ("one", "two"):
        results = [entry(one, [1.0 + k, 1.1 + k]) for k, one in enumerate(ODD[kind])]
        results += [failure(dict.fromkeys(ODD[kind][0], f"bad {k}")) for k in range(2)]
        put(tmp_path / f"odd-{device}.T4.json", {"metadata": {"timeunit": "ms"}, "results": results})
    put(tmp_path / "odd-broken.T4.json", {"metadata": {"timeunit": "ms"}, "results": [failure({"a": 1})]})
    words = ["--seeds", "1", "--jobs", "1", "--noise", "--strategies", "ours,tpe,random"]
    words += ["--prior"] if prior else []
    assert spaces.main([str(tmp_path), *words]) == 0
    told = capsys.readouterr()
    assert "odd-broken.T4.json left out" in told.err  # failures alone are no space
    assert "ended in" not in told.err
    assert "geometric mean, all: 2 spaces" in told.out


def test_a_search_that_does_not_end_is_ended(folder, capsys, monkeypatch):
    def stuck(account, seed, known):
        while True:
            pass

    searches = {**strategies(prior=False), "tpe": stuck}
    monkeypatch.setattr(spaces, "strategies", lambda prior: searches)
    monkeypatch.setattr(spaces, "LIMIT_S", 0.1)
    assert spaces.main([str(folder), "--seeds", "1", "--jobs", "1", "--strategies", "tpe,random"]) == 3
    assert "tpe left out: on made-one it ended in TimeoutError" in capsys.readouterr().err


@pytest.mark.skipif(not INSTALLED, reason="Kernel Tuner is not installed")
def test_kernel_tuner_is_beside_us_when_installed():
    assert {"genetic", "greywolf", "hybrid_vndx"} <= set(strategies(prior=False))


def test_peers_that_are_not_installed_are_left_out_with_a_line(monkeypatch):
    monkeypatch.setattr("spaces_peers.importlib.util.find_spec", lambda name: None)
    assert "genetic" not in strategies(prior=False)
    assert "genetic, greywolf, hybrid_vndx left out" in spaces.absent()[0]


# --- the command ---


@pytest.fixture
def folder(tmp_path):
    for seed, device in enumerate(("one", "two")):
        put(tmp_path / f"made-{device}.T4.json", small(seed, 1 + seed))
    (tmp_path / "note.json").write_text("{}", "utf-8")
    return tmp_path


@pytest.mark.parametrize(("words", "budgets"), [([], "25 50 100 200"), (["--prior"], "1 5 10 25")])
def test_the_command_prints_a_table_and_writes_its_figures(folder, capsys, words, budgets):
    names = "random,portfolio" if words else "random"
    file = folder / "figures.txt"
    asked = [str(folder), "--seeds", "2", "--jobs", "1", "--strategies", names, "--json", str(file), *words]
    assert spaces.main(asked) == 0
    told = capsys.readouterr()
    assert "left out" in told.err  # note.json
    assert " ".join(told.out.splitlines()[0].split()[-4:]) == budgets
    assert "geometric mean, all: 2 spaces" in told.out
    figures = json.loads(file.read_text("utf-8"))
    assert set(figures["means"]) == set(names.split(","))
    assert len(figures["searches"]) == 4 * len(names.split(","))


def test_what_is_done_before_ctrl_c_is_printed(folder, capsys, monkeypatch):
    def three(work, jobs):
        for task in work[:3]:
            yield spaces.search(task)
        raise KeyboardInterrupt

    monkeypatch.setattr(spaces, "run_all", three)
    assert spaces.main([str(folder), "--seeds", "4", "--strategies", "random"]) == 3
    told = capsys.readouterr()
    assert "(3 seeds)" in told.out
    assert "interrupted" in told.err


@pytest.mark.parametrize("make", [lambda f: str(f / "none"), lambda f: str((f / "empty").mkdir() or f / "empty")])
def test_a_folder_without_spaces_is_refused(folder, capsys, make):
    assert spaces.main([make(folder), "--jobs", "1"]) == 1
    assert "recorded spaces" in capsys.readouterr().err


def test_the_prior_is_never_the_space_itself(folder):
    found = spaces.loaded([folder / "made-one.T4.json", folder / "made-two.T4.json"])
    one, two = found
    assert (spaces.others(found, one), spaces.others(found, two)) == ((two,), (one,))


@pytest.mark.skipif(not REAL.is_dir(), reason="no recorded spaces beside this checkout")
def test_ours_beats_random_on_a_real_space():
    real = load(REAL / "convolution-W6600.T4.json.gz")

    def mean(name):
        total = 0.0
        for seed in range(3):
            account = Account(real, Setting(40, seed))
            strategies(prior=False)[name](account, seed, ())
            total += float(account.curve().ratio[-1])
        return total / 3

    assert mean("ours") < mean("random")
    assert strategies(prior=False)["random"] is random_search

"""The protocol's questions, and that nobody who times has numbers of his own."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

import advisor
from advisor.records import Measurement, pairs
from advisor.search import protocol

PACKAGE = Path(advisor.__file__).parent
TIMERS = ("search", "signature", "validate")


def test_a_look_gives_up_far_over_the_best_and_a_window_rejects_nothing():
    assert protocol.look(False, 20.0, None).give_up_ns is None
    assert protocol.look(False, 20.0, 100.0).give_up_ns == protocol.GIVE_UP * 100.0
    assert protocol.look(True, 20.0, None).samples < protocol.look(False, 20.0, None).samples
    for quick, least_s in ((False, 1.0), (True, 0.3)):
        ask = protocol.window(quick, 20.0)
        assert not ask.quiet
        assert ask.samples * ask.sample_s >= least_s


def test_a_round_is_shuffled_and_leaves_the_list_alone():
    items = list(range(20))
    drawn = protocol.shuffled(random.Random(1), items)
    assert drawn != items == sorted(drawn)


@pytest.mark.parametrize(("noisy", "samples", "contended"), [(0, 0, False), (2, 5, False), (3, 5, True), (5, 5, True)])
def test_half_of_the_samples_decide(noisy, samples, contended):
    assert protocol.is_contended(noisy, samples) is contended


def test_noisy_samples_are_counted_as_far_as_they_were_kept():
    found = Measurement(None, None, "ok", (1.0, 2.0), conditions=pairs({"kept_noisy": 1}))
    assert protocol.noisy_samples(found) == 1
    assert protocol.noisy_samples(found._replace(conditions=pairs({"kept_noisy": 9}))) == 2
    assert protocol.noisy_samples(found._replace(conditions=())) == 0


def asks(path):
    """Calls of Ask with literal numbers other than samples of 0 and 1 in a module, with their lines."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Ask":
            values = [*node.args, *(word.value for word in node.keywords)]
            if any(isinstance(value, ast.Constant) and value.value not in (0, 1, False, None) for value in values):
                found.append(f"{path.name}:{node.lineno}")
    return found


def test_nobody_asks_with_numbers_of_his_own():
    modules = [path for name in TIMERS for path in (PACKAGE / name).glob("*.py") if path.name != "protocol.py"]
    assert len(modules) > 20
    assert [line for path in modules for line in asks(path)] == []

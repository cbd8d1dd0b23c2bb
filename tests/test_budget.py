"""A budget counts from the command's start, and what one kernel leaves goes to the next."""

import sys
import time
from types import SimpleNamespace

import pytest

from advisor import start, tuning
from advisor.asked import Own, default_sizes
from advisor.kernels import registry


def asked(**options):
    return tuning.TuneRequest(("decode", "forward"), (64,), **options)


def test_what_came_before_the_first_trial_is_inside():
    first = tuning._share_s(asked(budget_s=100.0), time.monotonic() - 40.0, (1.0, 1.0))
    assert 20.0 < first <= 30.0
    late = tuning._share_s(asked(budget_s=100.0), time.monotonic() - 40.0, (1.0,))  # the first took nothing
    assert 40.0 < late <= 60.0


def test_a_kernel_whose_turn_comes_too_late_still_has_a_moment_and_no_budget_is_no_limit():
    assert tuning._share_s(asked(budget_s=1.0), time.monotonic() - 40.0, (1.0, 1.0)) == tuning.LEAST_SHARE_S
    assert tuning._share_s(asked(), time.monotonic(), (1.0, 1.0)) is None
    quick = tuning._share_s(asked(quick=True), time.monotonic() - 10.0, (1.0,))
    assert 0.0 < quick <= tuning.QUICK_BUDGET_S - 10.0


def test_sizes_that_nobody_named_and_that_have_no_room_are_told():
    spec = registry.spec("mlp")
    own = (Own("mlp", (1, 64, 4096), "float32", ()),)
    taken = SimpleNamespace(spec=spec, problems=[spec.problem(n) for n in (1, 4096)])
    assert tuning._untaken(tuning.TuneRequest(("mlp",), own=own), taken).startswith("n = 64 left out")
    assert tuning._untaken(tuning.TuneRequest(("mlp",), (1, 4096), own=own), taken) == ""
    everything = SimpleNamespace(spec=spec, problems=[spec.problem(n) for n in default_sizes(spec)])
    assert tuning._untaken(tuning.TuneRequest(("mlp",)), everything) == ""


def test_a_command_says_when_it_began_to_whoever_runs_in_it_and_to_nobody_after_it(monkeypatch):
    seen = []

    def command():
        seen.append(start.BEGUN.get())
        sys.exit(4)

    monkeypatch.setattr("advisor.cli.main", command)
    before = time.monotonic()
    with pytest.raises(SystemExit):
        start.main()
    assert before <= seen[0] <= time.monotonic()
    assert start.BEGUN.get() is None

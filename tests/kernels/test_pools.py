"""Case N-05: the thread pools of a worker are listed with their sizes, and what is wrong with them is said."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.kernels import pools
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.records import Measurement, pairs

PLAIN = fixtures.good("plain")


@pytest.fixture(scope="module")
def measured():
    """Trials that differ in their wait policy only, with as many threads as there are CPUs (two at most)."""
    count = min(2, len(fixtures.here().allowed_cpus))
    with WorkerPool(fixtures.here(), fixtures.scale(), [PLAIN]) as pool:
        ask = Ask(1, 60.0, 0.0005)
        return count, {
            policy: pool.measure(fixtures.problem(100), fixtures.choice(PLAIN, count, wait_policy=policy), ask)
            for policy in ("default", "passive")
        }


def test_n05_a_trial_lists_every_pool_with_its_size_and_stays_within_the_cpus(measured):
    count, found = measured
    for trial in found.values():
        listed = dict(dict(trial.conditions)["pools"])
        runtime = trial.choice.process.runtime
        assert listed[runtime] == count
        assert [size for name, size in listed.items() if name != runtime] == [1] * (len(listed) - 1)  # numpy's BLAS
        assert pools.busy(tuple(listed.items())) <= len(fixtures.here().allowed_cpus)
        assert "pool_warnings" not in dict(trial.conditions)


def test_n05_two_openmp_runtimes_are_a_warning():
    (said,) = pools.warnings((("libomp", 4), ("libiomp", 4)), 16)
    assert "libomp, libiomp" in said
    assert pools.warnings((("libgomp", 4), ("openblas", 1)), 4) == ()


def test_n05_more_threads_than_cpus_are_a_warning_unless_they_were_asked_for():
    (said,) = pools.warnings((("libgomp", 4), ("openblas", 4)), 4)
    assert "7 threads may be busy on 4 CPUs" in said
    assert pools.warnings((("libgomp", 8), ("openblas", 1)), 4) == ()  # an oversubscribed team, alone
    assert len(pools.warnings((("libgomp", 8), ("openblas", 8)), 4)) == 1


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("libgomp", "libgomp"),
        ("libgomp-24e2ab19", "libgomp"),
        ("libiomp5", "libiomp"),
        ("libomp", "libomp"),
        ("x", "x"),
    ],
)
def test_vendored_copies_of_a_runtime_are_that_runtime(prefix, name):
    assert pools.runtime_name(prefix) == name


def test_n05_the_user_is_told_once_by_the_first_variant_that_met_it(measured):
    trial = measured[1]["default"]
    warned = trial._replace(conditions=pairs({**dict(trial.conditions), "pool_warnings": ("two teams",)}))
    assert pools.notes([trial, warned, warned]) == ["plain: two teams"]
    assert pools.notes([trial, Measurement(trial.problem, trial.choice, "crashed")]) == []

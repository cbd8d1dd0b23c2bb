"""Case A-01: a run lists what failed and why; cases A-02: what hangs takes a small part of a budget."""

import pytest
from fake import FakeSpec, fake_machine, fake_variants

from advisor import shares
from advisor.kernels import registry
from advisor.records import Measurement
from advisor.search.failures import failures
from advisor.search.space import SpaceOptions, Toolchain, space

SPEC = FakeSpec()


def trial(n, variant, status, reason=""):
    listed = space(fake_machine(), SPEC, fake_variants(), SPEC.problem(n), SpaceOptions((Toolchain("gcc", "libgomp"),)))
    choice = next(choice for choice in listed if choice.build.variant == variant)
    return Measurement(SPEC.problem(n), choice, status, reason=reason)


def test_a01_failures_are_listed_a_variant_and_status_with_sizes_and_reason():
    found = failures(
        [
            trial(64, "split", "ok"),
            trial(8192, "split", "crashed", "killed by SIGSEGV"),
            trial(4096, "split", "crashed", "killed by SIGBUS"),
            trial(4096, "naive", "timeout", "killed after\n5 s of running"),
            trial(4096, "grouped", "skipped", "no room"),
        ]
    )
    assert found == [
        "naive: 1 choice timeout at n = 4096 (killed after 5 s of running)",
        "split: 2 choices crashed at n = 4096, 8192 (killed by SIGSEGV)",
    ]


@pytest.mark.parametrize(("budget_s", "limit_s"), [(None, 20.0), (3600.0, 20.0), (80.0, 10.0), (20.0, 5.0), (2.0, 5.0)])
def test_a02_the_limit_of_a_trial_is_an_eighth_of_a_budget_within_bounds(budget_s, limit_s):
    spec = registry.spec("decode")
    assert shares.trial_limit(shares.Room(budget_s), spec, spec.problem(64), 20.0) == limit_s

"""Case A-04: noise and lucky samples do not choose."""

from __future__ import annotations

from fake import FakeExecutor, FakeSpec, fake_machine, fake_variant, synthetic_noise

from advisor.policy.learn import Made, choose, learn
from advisor.search.log import Log
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.tune import tune

SPEC = FakeSpec()
TRUE_NS = {"best": 1.00e6, "near": 1.01e6, "slow": 1.30e6}
VARIANTS = tuple(fake_variant(name, rank, {}, {}) for rank, name in enumerate(("slow", "near", "best")))


def tuned(folder, seed, times, variants=VARIANTS, machine=None):
    """What a table says at the one n that was tuned, and the table."""
    machine = machine or fake_machine(cores=1)
    options = Options(SpaceOptions((Toolchain("gcc", "libgomp"),)), seed=seed)
    asked = Request(machine, SPEC, variants, (SPEC.problem(4096),), options, "s")
    fake = FakeExecutor(times, synthetic_noise(seed, 0.05, 0.02))
    with Log(str(folder / f"{seed}.jsonl")) as log:
        outcome = tune(asked, fake, log, clock=fake.clock)
    table = learn(machine, outcome.verdicts, outcome.trials, Made("2026-01-01T00:00:00Z", ()))
    return choose(table.sections[0], 4096), table


def test_a04_ten_tunes_give_the_same_table_nine_times_and_never_the_slow_choice(tmp_path):
    found = [tuned(tmp_path, seed, lambda _, choice: TRUE_NS[choice.build.variant]) for seed in range(10)]
    said = [choice.build.variant for choice, _ in found]
    assert "slow" not in said
    assert max(said.count(name) for name in ("best", "near")) >= 9, said
    for _, table in found:  # the spread is in the table
        (point, *_) = table.sections[0].rows[0].points
        low, high = point.summary.ci95_ns
        assert low < point.summary.p25_ns < high
        assert point.summary.p99_ns > point.summary.median_ns

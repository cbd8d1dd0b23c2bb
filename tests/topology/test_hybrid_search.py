"""T-01: on a hybrid machine the curve over thread counts has several peaks, and the search finds the highest."""

import pytest
from fake import FakeExecutor, FakeSpec, fake_variants, quiet
from trees import build, hybrid, put

from advisor.search.log import Log
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain
from advisor.search.tune import tune
from advisor.topology.probe import topology

THROUGHPUT = {8: 100.0, 16: 80.0, 24: 85.0, 31: 110.0, 32: 60.0}
"""As it was met: 8 beats 16, 31 beats both, all 32 are worst but for what lies between."""


@pytest.fixture
def machine(tmp_path):
    """8 performance cores with SMT (ids 0-15) and 16 efficiency cores (16-31)."""
    ids = [*range(0, 16, 2), *range(16, 24), *range(1, 16, 2), *range(24, 32)]
    root = build(tmp_path / "tree", "1s1n16c2t", ids=ids)
    for number in range(16, 32):
        put(root, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{number}\n")
    return topology(str(hybrid(root, range(16), range(16, 32))))


def test_t01_the_highest_of_several_peaks_is_found(machine, tmp_path):
    spec = FakeSpec()
    options = Options(SpaceOptions((Toolchain("gcc", "libgomp"),)))
    asked = Request(machine, spec, fake_variants(), (spec.problem(65536),), options, "s1")
    fake = FakeExecutor(lambda problem, choice: 1e8 / THROUGHPUT.get(choice.team.threads, 50.0), quiet)
    with Log(str(tmp_path / "m.jsonl")) as log:
        outcome = tune(asked, fake, log, clock=fake.clock)
    (final,) = [verdict for verdict in outcome.verdicts if verdict.purpose == "final"]
    assert final.winner.team.threads == 31

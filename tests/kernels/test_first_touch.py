"""Case N-04: a winner does not depend on the order of trials, since every trial's own team touches its operands first.

The bench of a worker is real; the compiled library is a stub on a machine of two nodes, where memory belongs to the
node that touched it first and a remote read takes twice as long.
"""

from __future__ import annotations

import types

import kernel_fixtures as fixtures
import numpy as np
import pytest

from advisor.kernels import bench as module
from advisor.kernels.bench import Bench
from advisor.kernels.messages import Binary, Trial
from advisor.kernels.sampling import Meter
from advisor.kernels.shelf import Shelf

PROBLEM = fixtures.problem(100)
TRUE_NS = {0: 1_100_000, 1: 1_000_000}
"""The second node is a little faster."""


class TwoNodes:
    """What a worker calls of a compiled library. CPU i lies on node i."""

    def __init__(self):
        self.owner, self.node = {}, None

    def load(self, binary):
        return types.SimpleNamespace(binary=binary, call=None)

    def openmp_runtimes(self):
        return ("libgomp",)

    def pin(self, _loaded, threads, cpus, _mask):
        (self.node,) = cpus
        return 0

    def team(self, _loaded, threads):
        return (1,), (self.node,)

    def touch(self, _loaded, blocks, threads):
        for one in blocks:
            self.owner.setdefault(one.address, (self.node, one.whole))  # kept, so that no address comes twice

    def workspace_bytes(self, *_):
        return 0

    def prepared_bytes(self, *_):
        return 0

    def scratch(self, size):
        return module.ops.block((size,), np.uint8)

    def runner(self, _loaded, operands, dims, space, threads):
        def run(calls):
            for x, y in operands.sets:
                np.copyto(y.data, 3 * x.data + 1)
            found = [self.owner.get(one.address) for group in operands.sets for one in group]
            owners = {owner[0] if owner else None for owner in found}  # None: those that only the check uses
            return calls * TRUE_NS[self.node] * (1 if owners == {self.node} else 2)

        return types.SimpleNamespace(run=run, last_set=0)


@pytest.fixture
def measure(monkeypatch):
    """Times of trials in one worker: node by node, in the order given."""
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setattr(Meter, "read", lambda self: module.Reading({}, {}, 0))

    def times(order, own_pages):
        monkeypatch.setattr(module, "lib", TwoNodes())
        bench, found = Bench(fixtures.scale(), 0, Shelf("")), {}
        for node in order:
            one = trial(node, own_pages)
            if bench.needs_inputs(one):
                bench.prepare(one)
            if not own_pages:  # what the case is about: one buffer for all, which the first trial's team touches
                shared = bench._any_operands((PROBLEM, "normal"), 1)
                module.lib.node = node
                module.lib.touch(None, [block for group in shared.sets for block in group], 1)
            found[node] = bench.trial(one).samples_ns[0]
        return found

    return times


def trial(node, own_pages):
    return Trial(
        problem=PROBLEM,
        dims=(16, 100),
        binary=Binary("/stub.so", "stub", "key", (), ()),
        threads=1,
        cpus=(node,),
        mask=(0, 1),
        edges=(),
        samples=1,
        sample_s=0.0005,
        give_up_ns=None,
        quiet=False,
        sets=1,
        own_pages=own_pages,
        scratch_bytes=None,
    )


def test_n04_the_winner_is_the_same_in_both_orders(measure):
    for order in ((0, 1), (1, 0), (0, 1, 0), (1, 0, 1)):
        assert measure(order, own_pages=True) == {node: pytest.approx(TRUE_NS[node]) for node in (0, 1)}


def test_n04_a_buffer_shared_by_trials_would_decide_by_the_order(measure):
    winners = {min(found, key=found.get) for found in (measure(order, False) for order in ((0, 1), (1, 0)))}
    assert winners == {0, 1}

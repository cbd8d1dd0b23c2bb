"""A made-up signature. Rates are made up; no test takes them for measurements."""

from advisor.records import Summary
from advisor.signature.records import ForkJoin, Peak, Quiet, Read, Signature


def _summary(ns):
    return Summary(ns, ns, ns, ns, (ns, ns), 20)


def signature(l3=False, joins=True, gflops_a_thread=100.0):
    """One and four threads: 10 and 20 GB/s from memory, four times that from L3; 50 and 2000 ns of fork and join."""
    rates = {1: 10.0, 4: 20.0}
    levels = {"memory": 1.0, **({"l3": 4.0} if l3 else {})}
    reads = tuple(
        Read(level, 1 << 28, threads, "", 0, _summary(1.0), rate * factor, (rate, rate))
        for level, factor in levels.items()
        for threads, rate in rates.items()
    )
    costs = {1: 50.0, 4: 2000.0} if joins else {}
    fork_join = tuple(ForkJoin(threads, "", "default", _summary(ns)) for threads, ns in costs.items())
    peak = (Peak("float32", 4, "", (), _summary(1.0), 4 * gflops_a_thread, (1.0, 1.0)),)
    quiet = Quiet(True, 0.0, 0.0, 0.0, 0.1, ())
    return Signature("2026-01-02T03:04:05Z", "hw", "lm", "gcc-12", 20.0, reads, fork_join, peak, quiet, ())

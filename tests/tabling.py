"""Makers of machines, races and tables for tests. Times are made up; no test takes them for measurements."""

from __future__ import annotations

import os
from types import SimpleNamespace

from advisor import codec
from advisor.identity import Here
from advisor.policy import store
from advisor.policy.learn import Made, learn
from advisor.records import (
    Build,
    Caches,
    Choice,
    CoreClass,
    Gpu,
    Machine,
    Measurement,
    NumaNode,
    Problem,
    Process,
    Standing,
    Summary,
    Table,
    Team,
    Verdict,
    pairs,
)
from advisor.topology.array import build

SHAPE = {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128}
DEFAULT = Process("libgomp", "default", None, "default")
PASSIVE = Process("libgomp", "passive", None, "default")
SPIN = Process("libgomp", "default", 10000, "default")
MADE = Made("2026-01-02T03:04:05Z", pairs({"session": "s1"}))


def array(cpus: int = 4, sockets: int = 1, smt: int = 1):
    """A regular machine: CPU ids counted through sockets, then cores, siblings side by side."""
    ids = list(range(cpus))
    step = cpus // sockets
    groups = {
        "socket": [ids[i : i + step] for i in range(0, cpus, step)],
        "core": [ids[i : i + smt] for i in range(0, cpus, smt)],
    }
    return build(groups, ids)


def machine(**changes) -> Machine:
    """A four-core machine that uses every kind of record field."""
    whole = Machine(
        hardware_id="hw0000000001",
        limits_id="lm0000000001",
        architecture="x86_64",
        vendor="AuthenticAMD",
        model_name="Test CPU",
        isa=("avx2", "avx512f"),
        online_cpus=(0, 1, 2, 3),
        offline_cpus=(),
        allowed_cpus=(0, 1, 2, 3),
        allowed_mems=(0,),
        cpu_quota=None,
        memory_limit_bytes=None,
        sockets=1,
        cores=4,
        threads_per_core=1,
        array=array(),
        groupings=pairs({"core": ((0,), (1,), (2,), (3,))}),
        numa_nodes=(NumaNode(0, (0, 1, 2, 3), 1 << 30, (10,)),),
        l3_groups=((0, 1, 2, 3),),
        caches=Caches(32768, 524288, 1 << 25),
        core_classes=(CoreClass("all", (0, 1, 2, 3), None),),
        gpus=(Gpu(0, None, "Test GPU", None, 132, "9.0", None, None),),
        environment=pairs({"kernel": "6.1.0", "libgomp": "1.0.0", "gcc": "12.2.0", "openmp": ("libgomp 1.0.0",)}),
        warnings=(),
    )
    return whole._replace(**changes)


def here(found: Machine | None = None, **changes) -> Here:
    """What `advisor.identity.here` would say on a machine."""
    m = found or machine()
    plain = Here(
        m.hardware_id, m.limits_id, m.array, m.allowed_cpus, len(m.allowed_cpus), "6.1", m.isa, m.cpu_quota, None, ()
    )
    return plain._replace(**changes)


def choice(variant: str = "made_up", threads: int = 2, process: Process = DEFAULT, **knobs) -> Choice:
    """A choice pinned to the first CPUs."""
    return Choice(Build(variant, "0123456789ab", pairs(knobs), "gcc-12", "native"), Team(threads, ""), process)


def problem(n: int, regime: str = "warm", **shape) -> Problem:
    """A decode problem."""
    return Problem("decode", "float32", pairs({**SHAPE, **shape}), n, regime)


def variant(*valid: str, name: str = "made_up", dtypes: tuple[str, ...] = ("float32",)) -> SimpleNamespace:
    """What a rule wants to know of the variant of `choice`: the conditions under which it exists."""
    return SimpleNamespace(name=name, source_hash="0123456789ab", dtypes=dtypes, valid=valid)


def figures(ns: float) -> Summary:
    """A summary around a 25th percentile."""
    return Summary(ns, ns * 1.1, ns * 1.2, ns * 1.5, (ns * 0.99, ns * 1.01), 20)


def race(n: int, times: dict[Choice, float], purpose: str = "final", default: Choice | None = None, **shape) -> Verdict:
    """A verdict from times in ns; the fastest wins; an infinite time is a failed standing."""
    winner = min(times, key=lambda c: times[c])
    standings = tuple(
        Standing(c, "winner" if c == winner else "slower", figures(ns), ns / times[winner], None)
        if ns < float("inf")
        else Standing(c, "failed", None, None, None)
        for c, ns in times.items()
    )
    return Verdict(problem(n, **shape), purpose, winner, default or next(iter(times)), 10, standings)


def of_rounds(verdict: Verdict, rounds: int, *dropped: Choice) -> Verdict:
    """The race after so many rounds; with some choices dropped after three."""
    standings = (
        s._replace(summary=s.summary and s.summary._replace(samples=min(rounds, 3) if s.choice in dropped else rounds))
        for s in verdict.standings
    )
    return verdict._replace(rounds=rounds, standings=tuple(standings))


def contended(verdict: Verdict) -> Verdict:
    """The race with most samples of every choice disturbed."""
    return verdict._replace(standings=tuple(s._replace(contended=True) for s in verdict.standings))


def look(n: int, what: Choice, ns: float, status: str = "ok", **shape) -> Measurement:
    """A first look."""
    samples = tuple(ns * (1 + 0.01 * i) for i in range(9)) if status == "ok" else ()
    return Measurement(problem(n, **shape), what, status, samples)


ONE, TWO, FOUR = choice(threads=1), choice(threads=2), choice(threads=4)


def table(**changes) -> Table:
    """One thread up to about n = 316 (log-log crossing), four threads from there; tuned at 64, 256, 1024 and 4096."""
    verdicts = [
        race(64, {FOUR: 4000.0, ONE: 1000.0}),
        race(256, {FOUR: 5000.0, ONE: 4000.0}),
        race(1024, {FOUR: 12000.0, ONE: 16000.0}),
        race(4096, {FOUR: 30000.0, ONE: 64000.0}),
    ]
    return learn(machine(), verdicts, [], MADE)._replace(**changes)


def write(folder, made: Table, name: str = "decode") -> str:
    """Save a table into a folder as a tuner would. Returns the path."""
    path = os.path.join(folder, f"{name}.table.json")
    store.save_table(path, made)
    return path


def write_machine(folder, found: Machine) -> str:
    """Save a machine description into a folder. Returns the path."""
    path = os.path.join(folder, "machine.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(codec.dumps(found, "machine"))
    return path

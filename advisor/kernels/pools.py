"""Thread pools of a bench worker: which are loaded, from which file, how large each is, and which of them compete.

Two pools in one process compete: each spins at its barriers on the CPUs of the other (docs/traps/two-thread-pools.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from advisor.records import Measurement
from advisor.words import many

OPENMP = ("libgomp", "libomp", "libiomp")

BORROWED = ("openmp", "gnu", "intel", "sequential", "disabled")
"""Threading layers of a BLAS that has no threads of its own: it runs on an OpenMP runtime that is listed too, or on the
thread that calls. Source: threadpoolctl's OpenBLASController, MKLController, BLISController."""

TRAP = "docs/traps/two-thread-pools.md"


class Pool(NamedTuple):
    """A loaded pool.

    Attributes:
        name: libgomp, libomp, libiomp, openblas, mkl, blis.
        threads: how many it may run.
        file: name of its file, without the folder: two copies of one runtime are two pools.
        own: False for a BLAS that runs on the team of an OpenMP runtime.
    """

    name: str
    threads: int
    file: str = ""
    own: bool = True


def loaded() -> tuple[Pool, ...]:
    """Every pool in this process, OpenMP runtimes first, each with the threads that it runs unless told otherwise."""
    from threadpoolctl import threadpool_info

    found = [_pool(one["internal_api"] == "openmp", one) for one in threadpool_info()]
    return tuple(sorted(found, key=lambda pool: (pool.name not in OPENMP, pool)))


def _pool(runtime: bool, info: dict[str, object]) -> Pool:
    """A pool of one entry of threadpoolctl's."""
    name = runtime_name(str(info["prefix"])) if runtime else str(info["internal_api"])
    own = runtime or info.get("threading_layer") not in BORROWED
    threads = info["num_threads"]
    return Pool(name, threads if isinstance(threads, int) else 1, os.path.basename(str(info["filepath"])), own)


def of_team(pools: Sequence[Pool], team: int) -> tuple[Pool, ...]:
    """The pools while a trial with this many threads runs: OpenMP runtimes are told their team call by call."""
    return tuple(pool._replace(threads=team) if pool.name in OPENMP else pool for pool in pools)


def runtime_name(prefix: str) -> str:
    """The OpenMP runtime that a library's file name stands for; vendored copies have a prefix of their own."""
    return next((name for name in ("libiomp", "libomp", "libgomp") if prefix.startswith(name)), prefix)


def rivals(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools that may keep threads of their own busy: every OpenMP runtime, another with more than one thread."""
    return tuple(pool for pool in pools if pool.own and (pool.name in OPENMP or pool.threads > 1))


def busy(pools: Sequence[Pool]) -> int:
    """Threads that can run at once: the thread that calls belongs to every pool."""
    return 1 + sum(pool.threads - 1 for pool in rivals(pools))


def warnings(pools: Sequence[Pool], cpus: int) -> tuple[str, ...]:
    """What is wrong with these pools: one sentence that names those that compete, none where there is one pool.

    Args:
        pools: as `loaded` gives them.
        cpus: CPUs that the process may use.
    """
    found = rivals(pools)
    if len(found) < 2:
        return ()
    shown = ", ".join(f"{pool.name} with {pool.threads} ({pool.file or 'file unknown'})" for pool in found)
    crowd = f", {busy(pools)} threads on {many(cpus, 'CPU')}" if busy(pools) > cpus else ""
    return (f"{len(found)} thread pools in one process compete: {shown}{crowd}; see {TRAP}",)


def notes(trials: Iterable[Measurement]) -> list[str]:
    """The distinct warnings of the pools in which trials ran, each with the first variant that met it."""
    first: dict[str, str] = {}
    for trial in trials:
        for warning in of_trial(trial):
            first.setdefault(warning, trial.choice.build.variant)
    return [f"{variant}: {warning}" for warning, variant in first.items()]


def of_trial(trial: Measurement) -> tuple[str, ...]:
    """The warnings that a trial's conditions carry."""
    return tuple(map(str, dict(trial.conditions).get("pool_warnings") or ()))

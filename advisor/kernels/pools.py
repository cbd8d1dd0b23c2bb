"""Thread pools of a bench worker: which are loaded, how large each is, and what is wrong with the mixture.

Two pools in one process compete: each spins at its barriers on the CPUs of the other (docs/traps/two-thread-pools.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.records import Measurement

OPENMP = ("libgomp", "libomp", "libiomp")

TRAP = "docs/traps/two-thread-pools.md"

Pool = tuple[str, int]
"""Name of a loaded pool (libgomp, libomp, libiomp, openblas, mkl, blis) and how many threads it may run."""


def loaded() -> tuple[Pool, ...]:
    """Every pool in this process, OpenMP runtimes first, each with the threads that it runs unless told otherwise."""
    from threadpoolctl import threadpool_info

    found = [(str(one["prefix"]), str(one["internal_api"]), int(one["num_threads"])) for one in threadpool_info()]
    runtimes = [(runtime_name(prefix), size) for prefix, api, size in found if api == "openmp"]
    return (*sorted(runtimes), *sorted((api, size) for _, api, size in found if api != "openmp"))


def of_team(pools: Sequence[Pool], team: int) -> tuple[Pool, ...]:
    """The pools while a trial with this many threads runs: OpenMP runtimes are told their team call by call."""
    return tuple((name, team if name in OPENMP else size) for name, size in pools)


def runtime_name(prefix: str) -> str:
    """The OpenMP runtime that a library's file name stands for; vendored copies have a prefix of their own."""
    return next((name for name in ("libiomp", "libomp", "libgomp") if prefix.startswith(name)), prefix)


def busy(pools: Sequence[Pool]) -> int:
    """Threads that can run at once: the thread that calls belongs to every pool."""
    return 1 + sum(size - 1 for _, size in pools)


def warnings(pools: Sequence[Pool], cpus: int) -> tuple[str, ...]:
    """What is wrong with these pools.

    Args:
        pools: as `loaded` gives them.
        cpus: CPUs that the process may use.
    """
    runtimes = [name for name, _ in pools if name in OPENMP]
    said = []
    if len(runtimes) > 1:
        said.append(
            f"{len(runtimes)} OpenMP runtimes in one process ({', '.join(runtimes)}): their teams compete; see {TRAP}"
        )
    team = max((size for name, size in pools if name in OPENMP), default=1)
    if busy(pools) > max(cpus, team):  # a team that is larger by itself was asked for
        shown = ", ".join(f"{name} {size}" for name, size in pools)
        said.append(f"{busy(pools)} threads may be busy on {cpus} CPUs ({shown}); see {TRAP}")
    return tuple(said)


def notes(trials: Iterable[Measurement]) -> list[str]:
    """The distinct warnings of the pools in which trials ran, each with the first variant that met it."""
    first: dict[str, str] = {}
    for trial in trials:
        for warning in dict(trial.conditions).get("pool_warnings") or ():
            first.setdefault(str(warning), trial.choice.build.variant)
    return [f"{variant}: {warning}" for warning, variant in first.items()]

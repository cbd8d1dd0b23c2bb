"""The cost model alone: what a team would take by traffic, arithmetic and fork-join, from a machine's signature.

A call takes the longer of reading and writing its elements at the rate that the team was seen to read with, and of its
arithmetic at the peak rate, and then what entering and leaving a parallel region costs the team. Source: the roofline
model (Williams, Waterman, Patterson, CACM 52(4), 2009) with the fork-join term of docs/signature.md.
"""

from __future__ import annotations

from typing import NamedTuple

from advisor.kernels.spec import KernelSpec
from advisor.records import Machine, Problem, Team
from advisor.search.seeds import moved_bytes
from advisor.search.traits import measured


class Cost(NamedTuple):
    """A team and the time that the model gives it, in ns."""

    team: Team
    ns: float


def cheapest(machine: Machine, spec: KernelSpec, problem: Problem) -> Cost | None:
    """The team that the model thinks fastest, of those that the signature has; of equals the fewest threads.

    None without a signature, or where it has no rates.
    """
    try:
        costs = teams(machine, spec, problem)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):  # a description that was edited by hand
        return None
    return min(costs, key=lambda cost: (cost.ns, cost.team.threads, cost.team.placement), default=None)


def teams(machine: Machine, spec: KernelSpec, problem: Problem) -> list[Cost]:
    """Every team that was measured, with the time that the model gives it.

    Args:
        machine: with its signature; its caches say which reading rate counts.
        spec, problem: predict traffic and arithmetic.
    """
    traffic, work = moved_bytes(spec, problem), spec.flops(problem)
    reads, peaks = measured(machine, "read"), measured(machine, "peak")
    level = "l3" if _fits(machine, traffic) and any(one["level"] == "l3" for one in reads) else "memory"
    joins = {
        (one["threads"], one["placement"]): float(one["time"]["p25_ns"])
        for one in measured(machine, "fork_join")
        if one["wait_policy"] == "default"
    }
    peak = max((one["gflops"] / one["threads"] for one in peaks if one["dtype"] == problem.dtype), default=None)
    costs = []
    for one in reads:
        team = Team(int(one["threads"]), str(one["placement"]))
        join = joins.get((team.threads, team.placement))
        if one["level"] == level and join is not None:
            working_ns = 0.0 if peak is None else work / (peak * team.threads)
            costs.append(Cost(team, max(traffic / one["gb_per_s"], working_ns) + join))
    return costs


def _fits(machine: Machine, traffic: int) -> bool:
    """Whether what a warm call moves stays in the last-level caches in reach."""
    reach = set(machine.allowed_cpus)
    caches = sum(1 for group in machine.l3_groups if reach & set(group))
    return machine.caches.l3 is not None and traffic <= caches * machine.caches.l3

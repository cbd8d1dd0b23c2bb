"""What this process may do that a container often forbids: memory policies and hardware counters. Tried, not assumed.

The attempts run in a short-lived child, so that nothing of this process changes and a filter that kills, kills that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from advisor.codec import loads
from advisor.errors import BadInput
from advisor.records import Pairs, pairs
from advisor.topology.child import ask

LIMIT_S = 5.0
ALLOWED = "allowed"
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tries_child.py")


def attempt(mems: Sequence[int] = (0,)) -> Pairs:
    """Pairs `memory_policy` ({set_mempolicy, mbind}) and `counters`: `allowed`, or what the kernel answered.

    Args:
        mems: ids of the NUMA nodes whose memory may be used; a policy for another one would be refused for that.

    Returns:
        No pairs on an architecture whose call numbers are not known.
    """
    answer = ask([sys.executable, "-I", "-S", _SCRIPT, str(min(mems, default=0))], LIMIT_S)
    try:
        told = loads(answer, "the attempts") if answer else None
    except BadInput:
        told = None
    if not isinstance(told, dict):
        killed = "refused (the attempt ended its process)"
        return pairs({"counters": killed, "memory_policy": {"mbind": killed, "set_mempolicy": killed}})
    if not told:
        return ()
    policy = {name: told.get(name) for name in ("mbind", "set_mempolicy")}
    return pairs({"counters": told.get("counters"), "memory_policy": policy})


def warnings(found: Pairs, nodes: int) -> tuple[str, ...]:
    """A sentence where threads cannot say where their memory lies although there are several places.

    Args:
        found: what `attempt` gave.
        nodes: NUMA nodes with memory.
    """
    policy = dict(found).get("memory_policy")
    refused = sorted(f"{name} {said}" for name, said in (policy or {}).items() if said != ALLOWED)
    if nodes < 2 or not refused:
        return ()
    return (f"memory policies are not to be had ({', '.join(refused)}): only first touch places memory here",)

"""The beginning of a command line that pins a process: `--format numactl` and `--format taskset`."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.answers import Answer
from advisor.policy.launch.values import command_line, cpus, env_words, memory_policy, nodes_of, of_host, variables
from advisor.records import NumaNode
from advisor.topology.files import span

NUMACTL = {"default": "", "local": "--localalloc", "interleave": "--interleave=", "bind": "--membind="}
"""Memory policy -> option of numactl, before the nodes where it takes any. Source: numactl(8)."""

GUARD = 'n="numactl $0"; $n true 2>/dev/null || n=; exec $n "$@"'
"""Shell text that runs a command under numactl where that works, and without it in containers where the kernel refuses
memory policies (numactl then does not even pin): OMP_PLACES pins the threads either way."""


def numactl(answer: Answer, command: Sequence[str] = (), nodes: Sequence[NumaNode] | None = None) -> str:
    """One shell line that runs a command under an answer with `env` and numactl; it starts where those are refused too.

    Args:
        answer: what a policy said.
        command: argv of the command; left out, the line ends where the command goes.
        nodes: the NUMA nodes of the machine that the answer is for; None: of the machine at hand. Memory policies name
            nodes, and those follow from the placement.

    Raises:
        BadInput: the answer asks for a memory policy of another machine, whose nodes are not known here, or is for a
            GPU.
    """
    of_host(answer, "numactl")
    found = cpus(answer)
    options = [] if found is None else [f"--physcpubind={','.join(map(str, found))}"]
    options += _memory_options(answer, nodes)
    line = ["sh", "-c", GUARD, " ".join(options)] if options else []
    return command_line([*env_words(variables(answer)), *line], command)


def _memory_options(answer: Answer, nodes: Sequence[NumaNode] | None) -> list[str]:
    option = NUMACTL[memory_policy(answer)]
    if option.endswith("="):
        return [f"{option}{span(nodes_of(answer, nodes))}"]
    return [option] if option else []


def taskset(answer: Answer, command: Sequence[str] = ()) -> str:
    """Like `numactl`, with taskset, which every util-linux has. Memory policies cannot be set this way.

    Raises:
        BadInput: the answer is for a GPU.
    """
    of_host(answer, "taskset")
    found = cpus(answer)
    pinned = [] if found is None else ["taskset", "--cpu-list", ",".join(map(str, found))]
    return command_line([*env_words(variables(answer)), *pinned], command)

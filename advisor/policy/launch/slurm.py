"""The beginning of a job step: `--format slurm`."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.answers import Answer
from advisor.policy.launch.values import (
    command_line,
    cpus,
    env_words,
    mask,
    memory_policy,
    nodes_of,
    of_host,
    threads,
)
from advisor.records import NumaNode


def slurm(answer: Answer, command: Sequence[str] = (), nodes: Sequence[NumaNode] | None = None) -> str:
    """`env` with the process part, which srun hands on, then srun for one task on one node.

    A mask names CPUs only where the whole node belongs to the job, hence --exclusive; --cpus-per-task would shrink the
    step to CPUs that Slurm chooses, so it stands only where the team is not pinned. OMP_PLACES is no value for
    --export, which parts its list at commas. Source: srun(1), --cpu-bind, --mem-bind, --cpus-per-task, --export.

    Args:
        answer: what a policy said.
        command: argv of the command; left out, the line ends where the command goes.
        nodes: as of `numactl`.

    Raises:
        BadInput: a memory policy of another machine, or a GPU's answer.
    """
    of_host(answer, "slurm")
    found = cpus(answer)
    words = [*env_words(answer), "srun", "--nodes=1", "--ntasks=1"]
    if found is None:
        words.append(f"--cpus-per-task={threads(answer)}")
    else:
        words += ["--exclusive", f"--cpu-bind=mask_cpu:{mask(found)}"]
    return command_line([*words, *_memory_words(answer, nodes)], command)


def _memory_words(answer: Answer, nodes: Sequence[NumaNode] | None) -> list[str]:
    policy = memory_policy(answer)
    if policy == "local":
        return ["--mem-bind=local"]
    return [f"--mem-bind=mask_mem:{mask(nodes_of(answer, nodes))}"] if policy == "bind" else []

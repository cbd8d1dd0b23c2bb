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
    variables,
)
from advisor.records import NumaNode

EXACT = (
    *("SLURM_EXCLUSIVE", "SLURM_EXACT", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_THREADS_PER_CORE"),
    "SLURM_HINT",
)
"""Variables of a job that make srun ask for a part of it; SLURM_HINT excludes --cpu-bind. Source: srun(1)."""


def slurm(answer: Answer, command: Sequence[str] = (), nodes: Sequence[NumaNode] | None = None) -> str:
    """`env` with the process part, which srun hands on, then srun for one task on one node.

    A mask names CPUs of the whole node, and none outside the step may be in it. A step has all CPUs that the job has on
    its node unless something makes it exact: --exclusive (of a step), --exact, --cpus-per-task and --threads-per-core
    do, so none stands where the team is pinned, and what srun would read of them is unset. The job must have the whole
    node then, which is for sbatch or salloc to ask. OMP_PLACES is no value for --export, which parts its list at
    commas. Source: srun(1), --exact, --exclusive, --cpu-bind, --mem-bind, --export, INPUT ENVIRONMENT VARIABLES.

    Args:
        answer: what a policy said.
        command: argv of the command; left out, the line ends where the command goes.
        nodes: as of `numactl`.

    Raises:
        BadInput: a memory policy of another machine, or a GPU's answer.
    """
    of_host(answer, "slurm")
    found = cpus(answer)
    start = ["srun", "--nodes=1", "--ntasks=1"]
    if found is None:
        words = [*env_words(variables(answer)), *start, f"--cpus-per-task={threads(answer)}"]
    else:
        words = [*env_words({**variables(answer), **dict.fromkeys(EXACT)}), *start]
        words.append(f"--cpu-bind=mask_cpu:{mask(found)}")
    return command_line([*words, *_memory_words(answer, nodes)], command)


def _memory_words(answer: Answer, nodes: Sequence[NumaNode] | None) -> list[str]:
    policy = memory_policy(answer)
    if policy == "local":
        return ["--mem-bind=local"]
    return [f"--mem-bind=mask_mem:{mask(nodes_of(answer, nodes))}"] if policy == "bind" else []

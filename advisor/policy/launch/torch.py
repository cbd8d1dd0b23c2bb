"""A command line of PyTorch's own launcher for CPUs: `--format torch`."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.answers import Answer
from advisor.policy.launch.values import command_line, cpus, env_words, memory_policy, of_host, threads, variables

LAUNCHER = ("python", "-m", "torch.backends.xeon.run_cpu")
OWN = ("--disable-iomp", "--use-default-allocator")
"""The launcher would preload another OpenMP runtime and another allocator than the choice was measured with."""


def torch(answer: Answer, command: Sequence[str] = ()) -> str:
    """`env` with the process part, the launcher with the team, and then the script and its arguments.

    Variables that are set keep their value in the launcher, and its children get them. With memory policy bind it
    starts numactl, which binds to the nodes of the CPUs; else taskset.
    Source: torch/backends/xeon/run_cpu.py of PyTorch 2.

    Raises:
        BadInput: a GPU's answer.
    """
    of_host(answer, "torch")
    found = cpus(answer)
    words = [
        *env_words(variables(answer)),
        *LAUNCHER,
        "--ninstances",
        "1",
        "--ncores-per-instance",
        str(threads(answer)),
    ]
    if found is None:
        words += ["--use-logical-core", "--disable-numactl", "--disable-taskset"]
    else:
        words += ["--core-list", ",".join(map(str, found))]
        words += [] if memory_policy(answer) == "bind" else ["--disable-numactl"]
    return command_line([*words, *OWN], command)

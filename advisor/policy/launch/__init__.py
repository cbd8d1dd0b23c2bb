"""Formats of an answer: lines that start a process with it, data for programs, a short sheet for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.answers import Answer
from advisor.errors import UnknownName
from advisor.policy.launch.kubernetes import kubernetes
from advisor.policy.launch.llama import llama
from advisor.policy.launch.openmp import omp_places
from advisor.policy.launch.pinning import GUARD, numactl, taskset
from advisor.policy.launch.sheet import FRAGILE, duration, process_words, team_words, text
from advisor.policy.launch.shell import device_variables, env
from advisor.policy.launch.slurm import slurm
from advisor.policy.launch.systemd import systemd
from advisor.policy.launch.tables import JSON_KEYS, Asked, csv, json, markdown, to_dict
from advisor.policy.launch.torch import torch
from advisor.policy.launch.unsaid import unsaid
from advisor.policy.launch.values import variables
from advisor.policy.launch.vllm import vllm

__all__ = [
    "FORMATS",
    "FRAGILE",
    "GUARD",
    "JSON_KEYS",
    "LINES",
    "TABLES",
    "Asked",
    "csv",
    "device_variables",
    "duration",
    "env",
    "json",
    "kubernetes",
    "llama",
    "markdown",
    "numactl",
    "omp_places",
    "process_words",
    "render",
    "slurm",
    "systemd",
    "tabled",
    "taskset",
    "team_words",
    "text",
    "to_dict",
    "torch",
    "unsaid",
    "variables",
    "vllm",
]

LINES: dict[str, Callable[[Answer], str]] = {
    "env": env,
    "numactl": numactl,
    "taskset": taskset,
    "omp-places": omp_places,
    "llama.cpp": llama,
    "vllm": vllm,
    "torch": torch,
    "systemd": systemd,
    "slurm": slurm,
    "kubernetes": kubernetes,
}
"""Formats that start something, and so are of one answer."""

TABLES: dict[str, Callable[[Sequence[Asked]], str]] = {"json": json, "csv": csv, "markdown": markdown}
"""Formats of any number of answers."""

FORMATS = ("text", *LINES, *TABLES)


def render(output: str, answer: Answer, n: int) -> str:
    """One answer in a named format.

    Args:
        output: one of FORMATS.
        answer: what a policy said at n.
        n: the n that was asked; formats that start something do not show it.

    Raises:
        UnknownName: no such format.
        BadInput: the format cannot say the answer.
    """
    if output == "text":
        return text(answer, n)
    return LINES[output](answer) if output in LINES else tabled(output, [(answer, n)])


def tabled(output: str, asked: Sequence[Asked]) -> str:
    """Answers in one of TABLES.

    Raises:
        UnknownName: no such format.
    """
    if output not in TABLES:
        raise UnknownName("no such format", got=output, allowed=", ".join(FORMATS))
    return TABLES[output](asked)

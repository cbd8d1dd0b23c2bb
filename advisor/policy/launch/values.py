"""What may be written into a launch line: whole numbers and a few known words, checked again here although the table
was checked on reading. A table holds no commands, and an edited one brings none into a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from advisor.answers import Answer
from advisor.errors import BadInput
from advisor.kernels.numa import where
from advisor.records import NumaNode

WAIT_POLICIES = ("default", "active", "passive")
MEMORY_POLICIES = ("default", "local", "interleave", "bind")

_WORD = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


MOST = (1 << 31) - 1
"""Threads, CPUs and knobs: an int of the runtimes."""

MOST_SPINS = (1 << 63) - 1
"""GOMP_SPINCOUNT: libgomp refuses what no unsigned long long holds and counts in 64 bits. Source: libgomp, env.c."""


def whole(value: object, least: int, most: int = MOST) -> int:
    """A whole number as it is.

    Raises:
        BadInput: it is none, or not from `least` to `most`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        rule = "only whole numbers are written into a launch line"
        raise BadInput(rule, got=value, allowed=f"from {least} to {most}")
    return value


def known(value: str, allowed: tuple[str, ...], what: str) -> str:
    """A word as it is.

    Raises:
        BadInput: it is not one of those allowed.
    """
    if value not in allowed:
        raise BadInput(f"unknown {what}", got=value, allowed=", ".join(allowed))
    return value


def word(value: str, what: str) -> str:
    """What names of variants and tools are made of: letters, digits and `_ . + -`.

    Raises:
        BadInput: it holds something else.
    """
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise BadInput(f"{what} is written into a shell line, so it is a plain word", got=value)
    return value


def identifier(name: str) -> str:
    """A knob's name as it is.

    Raises:
        BadInput: it is no identifier.
    """
    if not (name.isascii() and name.isidentifier()):
        raise BadInput("a knob's name is written into a shell line, so it is an identifier", got=name)
    return name


def of_host(answer: Answer, output: str) -> None:
    """Refuse to pin for a GPU's answer, and any value that is not to be written, whether this format writes it or not.

    Raises:
        BadInput: it is for a GPU, or a value is outside the known ones.
    """
    if answer.device:
        raise BadInput(
            f"{output} pins the threads of a process, and a choice for a GPU has none",
            got=f"--format {output} for {answer.device}",
            allowed="text, env, json, csv, markdown",
        )
    variables(answer)
    memory_policy(answer)


# --- parts of an answer ---


def threads(answer: Answer) -> int:
    """Size of the team."""
    return whole(answer.threads, 1)


def cpus(answer: Answer) -> tuple[int, ...] | None:
    """Where its workers run, worker 0 first; None: not pinned."""
    return None if answer.cpus is None else tuple(whole(cpu, 0) for cpu in answer.cpus)


def wait_policy(answer: Answer) -> str:
    """One of WAIT_POLICIES."""
    return known(answer.wait_policy, WAIT_POLICIES, "wait policy")


def memory_policy(answer: Answer) -> str:
    """One of MEMORY_POLICIES."""
    return known(answer.memory_policy, MEMORY_POLICIES, "memory policy")


def variables(answer: Answer) -> dict[str, str | None]:
    """Environment variables that start a process with an answer's team and process part.

    Args:
        answer: what a policy said.

    Returns:
        Name -> value; None where the variable must be unset.

    Raises:
        BadInput: a value that is no whole number, or an unknown wait policy.
    """
    return {**team_variables(answer), **place_variables(answer), **wait_variables(answer)}


def team_variables(answer: Answer) -> dict[str, str | None]:
    """What makes a team as large as it shall be; limits and dynamic teams that were set would make it smaller.

    Source: OpenMP 5.0, section 6; LLVM OpenMP runtime, "Environment Variables", and kmp_settings.cpp.
    """
    smaller = ("OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "KMP_LIBRARY")
    return {"OMP_NUM_THREADS": str(threads(answer)), "OMP_DYNAMIC": "false", **dict.fromkeys(smaller)}


def place_variables(answer: Answer) -> dict[str, str | None]:
    """Where its threads run. OMP_PLACES is read by libgomp and libomp alike; what would say it otherwise is unset.

    Source: OpenMP 5.0, section 6; libgomp manual and LLVM OpenMP runtime, "Environment Variables".
    """
    places = cpus(answer)
    return {
        "OMP_PLACES": None if places is None else ",".join(f"{{{cpu}}}" for cpu in places),
        "OMP_PROC_BIND": "false" if places is None else "true",
        **dict.fromkeys(("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_PLACE_THREADS")),
    }


def wait_variables(answer: Answer) -> dict[str, str | None]:
    """How threads wait; libomp's own words for it would count before OMP_WAIT_POLICY.

    Source: libgomp manual and LLVM OpenMP runtime, "Environment Variables".
    """
    wait = wait_policy(answer)
    return {
        "OMP_WAIT_POLICY": None if wait == "default" else wait,
        "GOMP_SPINCOUNT": None if answer.spin is None else str(whole(answer.spin, 0, MOST_SPINS)),
        **dict.fromkeys(("KMP_BLOCKTIME", "KMP_LIBRARY")),
    }


def exports(wanted: dict[str, str | None]) -> str:
    """Lines for `eval` in a POSIX shell: an export a variable, and one unset of what must not be there."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in wanted.items() if value is not None]
    absent = [name for name, value in wanted.items() if value is None]
    return "\n".join([*lines, *([f"unset {' '.join(absent)}"] if absent else [])])


def env_words(wanted: dict[str, str | None]) -> list[str]:
    """The call of env(1) that sets and unsets variables, as words of a command."""
    words = ["env", *(one for name, value in wanted.items() if value is None for one in ("-u", name))]
    return words + [f"{name}={value}" for name, value in wanted.items() if value is not None]


def command_line(words: Sequence[str], command: Sequence[str]) -> str:
    """Words and the command behind them as one quoted shell line."""
    return " ".join(map(shlex.quote, [*words, *command]))


def mask(ids: Sequence[int]) -> str:
    """CPU or node ids as a hexadecimal mask, bit i for id i."""
    return hex(sum({1 << one for one in ids}))


def runs(ids: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, length, step) of stretches of evenly spaced ids, in their order."""
    found: list[tuple[int, int, int]] = []
    steps = [after - before for before, after in pairwise(ids)]
    at = 0
    while at < len(ids):
        length = 1
        while at + length < len(ids) and steps[at + length - 1] == steps[at]:
            length += 1
        length = length if length > 2 else 1
        found.append((ids[at], length, steps[at] if length > 1 else 1))
        at += length
    return found


def nodes_of(answer: Answer, nodes: Sequence[NumaNode] | None) -> tuple[int, ...]:
    """The NUMA nodes that an answer's memory policy names.

    Args:
        answer: what a policy said, with policy bind or interleave.
        nodes: of the machine that the answer is for; None: of the machine at hand.

    Raises:
        BadInput: the answer is for another machine whose nodes are not given, or no node may be used.
    """
    if nodes is None and answer.refusal:
        raise BadInput(
            "node numbers are those of the machine that runs the command",
            got=f"memory policy {answer.memory_policy} for another machine",
            next_step="ask for this format there, or for --format text",
        )
    there = _nodes_here() if nodes is None else nodes
    team = answer.cpus or [cpu for node in there for cpu in node.cpus]
    return where(memory_policy(answer), there, team, None).nodes


def _nodes_here() -> tuple[NumaNode, ...]:
    from advisor.identity import survey
    from advisor.topology.details import numa_nodes

    return numa_nodes("/", survey()[1])

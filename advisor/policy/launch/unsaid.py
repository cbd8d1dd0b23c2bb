"""What a format cannot say of an answer, in sentences for standard error: nobody shall take half an answer for all."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.answers import Answer
from advisor.policy.launch.values import cpus, memory_policy, wait_policy

_ALL = frozenset({"threads", "cpus", "order", "wait", "spin", "memory"})

SAYS = {
    "env": _ALL - {"memory"},
    "numactl": _ALL,
    "taskset": _ALL - {"memory"},
    "omp-places": frozenset({"cpus", "order"}),
    "llama.cpp": frozenset({"threads", "cpus"}),
    "vllm": _ALL - {"order", "memory"},
    "torch": _ALL - {"memory"},
    "systemd": _ALL,
    "slurm": _ALL - {"memory"},
    "kubernetes": _ALL - {"cpus", "order", "memory"},
}
"""Format -> the parts of an answer that it says."""

_MEMORY = {"torch": ("bind",), "slurm": ("local", "bind")}
"""Formats that say some memory policies, and which."""


def unsaid(output: str, answer: Answer) -> tuple[str, ...]:
    """What is to be known beside an answer in a format: how it was come by where that is not a measurement at this very
    n, and the parts that the format leaves out. None where the format says it all.

    Args:
        output: the format's name.
        answer: what a policy said.
    """
    if output not in SAYS:
        return ()
    basis = () if answer.basis == "EXACT" else (f"{answer.basis}: {answer.why}",)
    if answer.device:
        return basis
    parts = [words for part, words in _parts(answer) if part not in _said(output, answer)]
    return (*basis, *(f"--format {output} does not say {words}" for words in parts), *_advice(output, answer))


def _said(output: str, answer: Answer) -> frozenset[str]:
    known = memory_policy(answer) in _MEMORY.get(output, ())
    return SAYS[output] | ({"memory"} if known else frozenset())


def _parts(answer: Answer) -> Iterator[tuple[str, str]]:
    """Each part of an answer that asks for something, and how else to get it."""
    found, wait, memory = cpus(answer), wait_policy(answer), memory_policy(answer)
    yield "threads", f"how many threads: set OMP_NUM_THREADS={answer.threads}"
    if found is not None:
        yield "cpus", f"on which CPUs: {','.join(map(str, found))}"
        if list(found) != sorted(found):
            yield "order", "which worker runs on which CPU: they take them in ascending order"
    if wait != "default":
        yield "wait", f"how threads wait: set OMP_WAIT_POLICY={wait} for programs with OpenMP"
    if answer.spin is not None:
        yield "spin", f"how long threads spin: set GOMP_SPINCOUNT={answer.spin}"
    if memory != "default":
        yield "memory", f"where memory lies: start the command under `advisor run` or --format numactl ({memory})"


def _advice(output: str, answer: Answer) -> Iterator[str]:
    """What a format needs around it."""
    pinned = answer.cpus is not None
    if output == "llama.cpp" and answer.kernel == "decode":
        yield "the prompt is read with the same threads unless --format llama.cpp --kernel forward says otherwise"
    if output == "slurm" and pinned:
        yield "the mask has CPU numbers of the whole node, so the job must have all of it: sbatch or salloc --exclusive"
    if output == "kubernetes" and pinned:
        yield (
            "for CPUs of its own a container needs memory requests equal to its limits and a node with CPU manager "
            "policy static; there OMP_PROC_BIND may be true"
        )
    if output == "vllm":
        yield "one rank; with tensor parallelism give each rank its CPUs, parted by |"

"""Flags of llama.cpp's programs: `--format llama.cpp`."""

from __future__ import annotations

from advisor.answers import Answer
from advisor.errors import BadInput
from advisor.policy.launch.values import cpus, mask, of_host, threads, wait_policy

POLL = {"default": (), "active": ("100",), "passive": ("0",)}
"""Wait policy -> level of --poll, where one is to be set."""

MOST_CPUS = 512
"""Bits of a CPU mask. Source: GGML_MAX_N_THREADS in ggml.h."""

PREFILL = ("forward",)
"""Kernels of the prompt, which llama.cpp runs with a team of its own: the flags that end in -batch."""


def llama(answer: Answer) -> str:
    """--threads, and where the team is pinned --cpu-mask with --cpu-strict 1, which gives each thread a CPU of its own.

    Source: llama.cpp, tools/server/README.md: -t, -C, --cpu-strict, --poll, and the same with -batch for the prompt,
    which take the values of the first where they are left out.

    Raises:
        BadInput: a CPU that a mask of llama.cpp has no bit for, or a GPU's answer.
    """
    of_host(answer, "llama.cpp")
    suffix = "-batch" if answer.kernel in PREFILL else ""
    words = [f"--threads{suffix}", str(threads(answer))]
    found = cpus(answer)
    if found is not None:
        if max(found) >= MOST_CPUS:
            raise BadInput("llama.cpp's masks end at a CPU", got=max(found), allowed=f"below {MOST_CPUS}")
        words += [f"--cpu-mask{suffix}", mask(found), f"--cpu-strict{suffix}", "1"]
    for level in POLL[wait_policy(answer)]:
        words += [f"--poll{suffix}", level]
    return " ".join(words)

"""The part `cold`: the first call of a fresh process beside the warm time, and what a sweep pays of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from gpu_cells import known_of, problem_of, spec_of
from gpu_race import label
from kernel_race import Refused

import advisor
from advisor.codec import to_json
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.messages import Hello, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.header import Variant
from advisor.kernels.registry import origin
from advisor.records import Choice, Machine, Problem
from advisor.search.space import default_choice, space, space_options

SHAPE, N = "40:8", 1024
PROCESSES = 2
"""Fresh processes of each kind: with empty caches, and with full ones."""

LIMIT_S = 60.0
LIBRARIES = ("sdpa_flash", "sdpa_cudnn")
"""They bring compiled code: nothing of theirs lies in our caches."""

FOREIGN = ("batched_triton", *LIBRARIES)
"""Other makers' code beside our DEFAULT: how each begins."""

SWEEP = (64, 256, 1024, 1920, 4095, 16384)
CACHES = ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR")
CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_cold_child.py")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(advisor.__file__)))


def starts(machine: Machine) -> list[Choice]:
    """The DEFAULT and other makers' choices."""
    spec, known = spec_of("decode"), known_of("decode")
    where = (machine, spec, known, problem_of(SHAPE, N), space_options(machine))
    usual = [one for one in space(*where) if is_usual(one, known)]
    chosen = [default_choice(*where), *(one for one in usual if one.build.variant in FOREIGN)]
    return list(dict.fromkeys(chosen))


def is_usual(choice: Choice, known: Sequence[Variant]) -> bool:
    """Whether a choice has the knobs that its variant's header calls the defaults."""
    return any((v.name, v.defaults) == (choice.build.variant, choice.build.knobs) for v in known)


def asked(machine: Machine, problem: Problem, choice: Choice) -> bytes:
    """The two lines for the fresh process: the very trial that a worker would get."""
    spec, gpu = spec_of("decode"), machine.gpus[0]
    found = next(v for v in known_of("decode") if v.name == choice.build.variant)
    trial = GpuPool(gpu, spec, (found,)).trial(problem, choice, Ask(0, 0.0), "normal")
    return encode(Hello(origin(spec), 0, gpu.uuid or "")) + encode(trial)


def measure(machine: Machine, choice: Choice) -> dict[str, Any]:
    """Some fresh processes with empty caches, then some with what one of those left. Raises Refused when one fails."""
    lines = asked(machine, problem_of(SHAPE, N), choice)
    with tempfile.TemporaryDirectory(prefix="gpu-cold-") as folder:
        path = os.path.join(folder, "asked")
        with open(path, "wb") as file:
            file.write(lines)
        found = {"empty": [run(machine, path, os.path.join(folder, str(i))) for i in range(PROCESSES)]}
        if choice.build.variant not in LIBRARIES:
            found["full"] = [run(machine, path, os.path.join(folder, "0")) for _ in range(PROCESSES)]
    return {"name": label(choice), "choice": to_json(choice), "processes": found}


def run(machine: Machine, path: str, caches: str) -> dict[str, Any]:
    """One fresh process with its caches in a folder: what it printed, and the time until its first line of code. Raises
    Refused when it fails or does not end."""
    variables = environment(dict(os.environ), machine.gpus[0].uuid or "")
    variables |= {name: os.path.join(caches, name.lower()) for name in CACHES}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [PACKAGE, variables.get("PYTHONPATH", "")]))
    begun = time.monotonic_ns()
    words = [sys.executable, CHILD, path]
    try:
        ended = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"the process did not end within {LIMIT_S:g} s") from error
    if ended.returncode:
        raise Refused(f"status {ended.returncode}: {ended.stderr[-400:]}")
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    before_ms = (said.pop("begun_ns") - begun) * 1e-6
    return {**said, "phases": [["interpreter", before_ms], *said["phases"]]}


def sweep(machine: Machine, sizes: Sequence[int] = SWEEP) -> tuple[dict[str, Any], dict[str, Any]]:
    """A sweep in one warm worker: how often it was started, and how long its first trial took beside all others.

    Returns:
        The figures, and the conditions that the last trial found.
    """
    spec, gpu = spec_of("decode"), machine.gpus[0]
    known = tuple(v for v in known_of("decode") if v.language == "cuda")
    wanted, trials, conditions = space_options(machine), [], {}
    with GpuPool(gpu, spec, known) as pool:
        for n in sizes:
            problem = problem_of(SHAPE, n)
            for choice in space(machine, spec, known, problem, wanted):
                if is_usual(choice, known):
                    found = pool.measure(problem, choice, Ask(3, LIMIT_S))
                    conditions = dict(found.conditions)
                    trials.append([n, choice.build.variant, found.status, found.seconds, *found.samples_ns[:1]])
        return {"workers_started": pool.crew.started, "trials": trials}, conditions

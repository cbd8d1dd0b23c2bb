"""Kernel Tuner on our variants: its C backend, our sources, our flags, equal seconds.

One generated C file holds every variant; knobs, threads and placement are macros that Kernel Tuner sets, and it
compiles each configuration, as it does by itself. How threads wait is fixed when a process starts and cannot be a
parameter of a backend that calls functions in its own process: it tunes the runtime's default. Its Python may be
another one than ours: it gets a folder with a job (job.json, call.c, arrays) and needs numpy and kernel_tuner only.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advisor.kernels.build import FRAME, REALS
from advisor.kernels.compilers import find_compiler, flags
from advisor.kernels.spec import STORAGE, KernelSpec
from advisor.kernels.variant import Variant, macro_values
from advisor.records import Choice, Machine, Problem
from advisor.search.space import is_default_process
from advisor.topology.candidates import groupings
from advisor.topology.placement import evaluate

STRATEGIES = ("genetic_algorithm", "hybrid_vndx")
"""The usual one, and the best published one. Its default measures everything and takes no limit of time."""

RUNTIMES = {"libgomp": "libgomp.so.1", "libomp": "libomp.so.5"}

START_LIMIT_S = 30.0
"""Importing it and making its search space is not counted, but must end."""

CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tune_kernel_tuner_child.py")

CALL = """
float kt_call(@ARGUMENTS@)
{
    void *buffers[] = {@NAMES@};
    const int64_t dims[] = {@DIMS@, RUN_KNOBS};
    const int cpus[] = CPUS, mask[] = {@MASK@};
    int64_t size = WORKSPACE(dims, ADV_THREADS);
    void *scratch = aligned_alloc(4096, (size_t)(size / 4096 + 1) * 4096);
    int error = 0;
    advisor_pin(PINNED ? cpus : NULL, ADV_THREADS, mask, @MASK_COUNT@);
    void *const *const sets[] = {buffers};
    advisor_trial trial = {ENTRY, sets, 1, 0, dims, scratch, ADV_THREADS, 1};
    int64_t ns = advisor_time(&trial, &error);
    while (ns >= 0 && ns < 1000000) {
        trial.calls = ns > 0 ? trial.calls * 1250000 / ns + 1 : trial.calls * 8;
        ns = advisor_time(&trial, &error);
    }
    advisor_pin(NULL, ADV_THREADS, mask, @MASK_COUNT@);
    free(scratch);
    return ns < 0 ? 1e9f : (float)(ns / 1e6 / trial.calls);
}
"""
"""One measurement of Kernel Tuner's, in ms: at least 1 ms of calls, as long as a sample of ours. The first line of the
file it stands in says extern "C" in a comment, so that Kernel Tuner leaves C as it is."""


class Job(NamedTuple):
    """What Kernel Tuner is given: the C file, the values of its parameters, the choice behind each valid setting."""

    source: str
    parameters: dict[str, list[int]]
    valid: dict[tuple[int, ...], Choice]


def absent(python: str) -> str:
    """Why Kernel Tuner cannot be run by an interpreter, else the empty text."""
    try:
        found = subprocess.run(
            [python, "-c", "import kernel_tuner"], capture_output=True, text=True, timeout=START_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python}: {error}"
    last = found.stderr.strip().splitlines()[-1:] or [f"status {found.returncode}"]
    return "" if found.returncode == 0 else f"{python}: {last[0]}"


def job(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], problem: Problem, choices: Sequence[Choice]
) -> Job:
    """The part of a space that Kernel Tuner can have: compiled variants under the default process part."""
    able = {variant.name: variant for variant in variants if variant.language == "c"}
    kept = [c for c in choices if c.build.variant in able and is_default_process(c.process) and c.team]
    names, rows = _settings(kept, able)
    parameters = {name: sorted({row[name] for row in rows}) for name in names}
    valid = {tuple(row[name] for name in names): choice for row, choice in zip(rows, kept, strict=True)}
    return Job(_source(machine, spec, able, problem, kept), parameters, valid)


def _settings(choices: Sequence[Choice], variants: dict[str, Variant]) -> tuple[tuple[str, ...], list[dict[str, int]]]:
    """Parameter names, and each choice as their values; a knob that a variant has not got is at its lowest value."""
    lowest: dict[str, int] = {}
    for choice in choices:
        for knob, value in choice.build.knobs:
            lowest[_macro(knob)] = min(value, lowest.get(_macro(knob), value))
    places = sorted({choice.team.placement for choice in choices if choice.team})
    order = list(variants)
    rows = [
        {
            "ADV_VARIANT": order.index(choice.build.variant),
            **lowest,
            **{_macro(knob): value for knob, value in choice.build.knobs},
            "ADV_THREADS": choice.team.threads if choice.team else 1,
            "ADV_PLACE": places.index(choice.team.placement) if choice.team else 0,
        }
        for choice in choices
    ]
    return ("ADV_VARIANT", *sorted(lowest), "ADV_THREADS", "ADV_PLACE"), rows


def _macro(knob: str) -> str:
    """Build knobs are macros of the source; run knobs are numbers handed over, whose names the source may use."""
    return knob if knob.isupper() else f"KT_{knob}"


def _source(
    machine: Machine, spec: KernelSpec, variants: dict[str, Variant], problem: Problem, choices: Sequence[Choice]
) -> str:
    arguments = {name: "double" if kind == "float64" else "float" for name, kind in spec.types(problem).items()}
    words = {
        "ARGUMENTS": ", ".join(f"{kind} *{name}" for name, kind in arguments.items()),
        "NAMES": ", ".join(arguments),
        "DIMS": ", ".join(str(problem.dims()[name]) for name in spec.dims),
        "MASK": ", ".join(map(str, machine.allowed_cpus)),
        "MASK_COUNT": str(len(machine.allowed_cpus)),
    }
    call = CALL
    for word, text in words.items():
        call = call.replace(f"@{word}@", text)
    head = ['/* extern "C" is not wanted: this is C */', "#define _GNU_SOURCE", "#include <stdlib.h>"]
    blocks = [_variant_block(i, variant, problem, choices) for i, variant in enumerate(variants.values())]
    return "\n".join([*head, *blocks, *_teams(machine, choices), '#include "advisor.h"', call])


def _variant_block(index: int, variant: Variant, problem: Problem, choices: Sequence[Choice]) -> str:
    """One variant, included when it is the one asked for; shape macros have their values here."""
    own = next((c.build.knobs for c in choices if c.build.variant == variant.name), None)
    if own is None:
        return ""
    shape = {name: value for name, value in macro_values(variant, problem, own) if name in dict(variant.macros)}
    run = [_macro(knob) for knob, _ in variant.run_knobs]
    lines = [
        f"#if ADV_VARIANT == {index}",
        *(f"#define {name} {value}" for name, value in shape.items()),
        f"#include {json.dumps(variant.path)}",
        f"#define ENTRY {variant.symbol}",
        f"#define WORKSPACE {variant.symbol}_workspace",
        f"#define RUN_KNOBS {', '.join(run) or '0'}",
        "#endif",
    ]
    return "\n".join(lines)


def _teams(machine: Machine, choices: Sequence[Choice]) -> list[str]:
    """CPUS and PINNED of every team."""
    places = sorted({choice.team.placement for choice in choices if choice.team})
    lines = []
    for team in sorted({choice.team for choice in choices if choice.team}):
        cpus = evaluate(team.placement, machine.array, machine.allowed_cpus, team.threads, groupings(machine))
        lines += [f"#if ADV_THREADS == {team.threads} && ADV_PLACE == {places.index(team.placement)}"]
        lines += [f"#define CPUS {{{', '.join(map(str, cpus or (0,)))}}}", f"#define PINNED {int(cpus is not None)}"]
        lines += ["#endif"]
    return lines


def run(made: Job, spec: KernelSpec, problem: Problem, strategy: str, seconds: float, python: str) -> dict[str, Any]:
    """Let Kernel Tuner search for so many seconds.

    Returns:
        `choice` (None without a result), `trials`, `seconds`, and `reason` where it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, made, spec, problem, (strategy, seconds))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
        limit = START_LIMIT_S + 2 * seconds
        try:
            done = subprocess.run(
                [python, CHILD, folder], cwd=folder, env=environment, capture_output=True, text=True, timeout=limit,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"choice": None, "trials": 0, "seconds": limit, "reason": f"not done after {limit:.0f} s"}
        path = os.path.join(folder, "result.json")
        if done.returncode or not os.path.exists(path):
            reason = f"status {done.returncode}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"
            return {"choice": None, "trials": 0, "seconds": 0.0, "reason": reason}
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    best = found.pop("best")
    choice = made.valid.get(tuple(best[name] for name in made.parameters)) if best else None
    return {"choice": choice, **found, "reason": "" if choice else "no configuration gave a time"}


def _write(folder: str, made: Job, spec: KernelSpec, problem: Problem, asked: tuple[str, float]) -> None:
    """The job's folder: call.c, frame.o, the arrays, job.json."""
    first = next(iter(made.valid.values())).build
    compiler, chosen, real = find_compiler(first.compiler), flags(first.flags), REALS[problem.dtype]
    frame, source = os.path.join(folder, "frame.o"), os.path.join(folder, "call.c")
    own = sorted({os.path.dirname(line.split('"')[1]) for line in made.source.splitlines() if '#include "/' in line})
    common = [*chosen, "-std=gnu11", "-fPIC", f"-I{FRAME}", *(f"-I{path}" for path in own)]
    common += [f"-DADV_REAL={real.name}", f"-DADV_DTYPE={real.storage}"]
    subprocess.run([compiler.path, *common, "-c", os.path.join(FRAME, "frame.c"), "-o", frame], check=True)
    with open(source, "w", encoding="utf-8") as file:
        file.write(made.source)
    arrays = _arrays(spec, problem)
    for name, array in arrays.items():
        np.save(os.path.join(folder, f"{name}.npy"), array)
    with open(os.path.join(folder, "job.json"), "w", encoding="utf-8") as file:
        json.dump(
            {
                "source": source,
                "arrays": list(arrays),
                "parameters": made.parameters,
                "valid": [list(setting) for setting in made.valid],
                "compiler": compiler.path,
                "options": [*common, frame, "-lm"],
                "runtime": RUNTIMES[next(iter(made.valid.values())).process.runtime],
                "strategy": asked[0],
                "seconds": asked[1],
            },
            file,
        )


def _arrays(spec: KernelSpec, problem: Problem) -> dict[str, Any]:
    """Inputs, and outputs of zeros, in the order of the entry's pointers."""
    given, shapes, types = spec.inputs(problem, 0), spec.shapes(problem), spec.types(problem)
    return {name: given.get(name, np.zeros(shapes[name], STORAGE[types[name]])) for name in spec.buffers}

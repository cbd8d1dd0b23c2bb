"""Formats of an answer: shell lines that start a process with it, JSON for programs, a short sheet for people.

Every value that reaches a shell is a whole number or one of a few known words, checked here again although the table
was checked on reading: a table holds no commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from advisor.answers import Answer
from advisor.errors import BadInput, UnknownName
from advisor.kernels.numa import where
from advisor.policy.device_launch import launch_of, words
from advisor.records import Build, NumaNode, Problem
from advisor.topology.files import span

WAIT_POLICIES = ("default", "active", "passive")
NUMACTL = {"default": "", "local": "--localalloc", "interleave": "--interleave=", "bind": "--membind="}
"""Memory policy -> option of numactl, before the nodes where it takes any. Source: numactl(8)."""

GUARD = 'n="numactl $0"; $n true 2>/dev/null || n=; exec $n "$@"'
"""Shell text that runs a command under numactl where that works, and without it in containers where the kernel refuses
memory policies (numactl then does not even pin): OMP_PLACES pins the threads either way."""

JSON_KEYS = (
    *("kernel", "shape", "dtype", "regime", "variant", "source_hash", "knobs", "compiler", "flags", "threads", "cpus"),
    *("placement", "wait_policy", "spin", "memory_policy", "basis", "expected_ns", "ci95_ns", "spread", "gain"),
    *("regret_bound", "in_tuned_region", "fragility", "objective", "stolen_mean_ns", "stolen_p99_ns", "joules"),
    *("contended", "device", "table_id", "hardware_id", "why", "warnings"),
    *("rung", "machines", "validated_regret"),
)


def variables(answer: Answer) -> dict[str, str | None]:
    """Environment variables that start a process with an answer's team and process part.

    Args:
        answer: what a policy said.

    Returns:
        Name -> value; None where the variable must be unset.

    Raises:
        BadInput: a value that is no whole number, or an unknown wait policy.
    """
    wait = _known(answer.wait_policy, WAIT_POLICIES, "wait policy")
    cpus = None if answer.cpus is None else [_whole(cpu, 0) for cpu in answer.cpus]
    return {
        "OMP_NUM_THREADS": str(_whole(answer.threads, 1)),
        "OMP_PLACES": None if cpus is None else ",".join(f"{{{cpu}}}" for cpu in cpus),
        "OMP_PROC_BIND": "false" if cpus is None else "true",
        "OMP_WAIT_POLICY": None if wait == "default" else wait,
        "GOMP_SPINCOUNT": None if answer.spin is None else str(_whole(answer.spin, 0)),
        "GOMP_CPU_AFFINITY": None,
    }


def env(answer: Answer) -> str:
    """Lines for `eval` in a POSIX shell: exports, and one unset of what must not be there.

    Memory policies cannot be set this way and are refused: see `numactl`. A GPU's answer leaves OpenMP as it is and
    sets ADVISOR_VARIANT, ADVISOR_TOOL and ADVISOR_KNOB_<name> for whoever launches the kernel, after an unset of all
    that an earlier answer for a GPU left of them.

    OMP_PLACES is read by libgomp and libomp alike, and wins over GOMP_CPU_AFFINITY, which is unset so that an old value
    cannot confuse. Source: OpenMP 5.0, section 6; libgomp manual, "Environment Variables".
    """
    if answer.device:
        return _device_env(answer)
    _known(answer.memory_policy, ("default",), "memory policy for env")
    wanted = variables(answer)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in wanted.items() if value is not None]
    absent = [name for name, value in wanted.items() if value is None]
    return "\n".join([*lines, *([f"unset {' '.join(absent)}"] if absent else [])])


_WORD = re.compile(r"[A-Za-z0-9][\w.+-]*")
"""What names of variants and tools are made of."""


_KNOBS_THERE = r"$(env | sed -n 's/^\(ADVISOR_KNOB_[A-Za-z0-9_]*\)=.*/\1/p')"
"""Shell text: the names of the knobs that an earlier answer exported; which those are, only the shell knows."""


def _device_env(answer: Answer) -> str:
    named = {"ADVISOR_VARIANT": answer.variant, "ADVISOR_TOOL": answer.compiler}
    for name, value in named.items():
        if value is not None and not _WORD.fullmatch(value):
            raise BadInput(f"{name} is written into a shell line, so it is a plain word", got=value)
    knobs = {f"ADVISOR_KNOB_{_identifier(name)}": str(_whole(value, 0)) for name, value in answer.knob_pairs}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in {**named, **knobs}.items() if value is not None]
    return "\n".join([f"unset {' '.join(named)} {_KNOBS_THERE}", *(lines if answer.variant is not None else ())])


def _identifier(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise BadInput("a knob's name is written into a shell line, so it is an identifier", got=name)
    return name


def _of_host(answer: Answer, output: str) -> None:
    """Refuse to pin for a GPU's answer.

    Raises:
        BadInput: it is for a GPU.
    """
    if answer.device:
        raise BadInput(
            f"{output} pins the threads of a process, and a choice for a GPU has none",
            got=f"--format {output} for {answer.device}",
            allowed="text, env, or --json",
        )


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
    _of_host(answer, "numactl")
    options = [] if answer.cpus is None else [f"--physcpubind={','.join(str(_whole(cpu, 0)) for cpu in answer.cpus)}"]
    options += _memory_options(answer, nodes)
    line = ["sh", "-c", GUARD, " ".join(options)] if options else []
    return " ".join(shlex.quote(word) for word in [*_env_words(answer), *line, *command])


def _env_words(answer: Answer) -> list[str]:
    """The call of `env` that sets and unsets what an answer needs."""
    wanted = variables(answer)
    words = ["env", *(word for name, value in wanted.items() if value is None for word in ("-u", name))]
    return words + [f"{name}={value}" for name, value in wanted.items() if value is not None]


def _memory_options(answer: Answer, nodes: Sequence[NumaNode] | None) -> list[str]:
    policy = _known(answer.memory_policy, tuple(NUMACTL), "memory policy")
    if not NUMACTL[policy].endswith("="):
        return [NUMACTL[policy]] if NUMACTL[policy] else []
    if nodes is None and answer.refusal:
        raise BadInput(
            "node numbers are those of the machine that runs the command",
            got=f"memory policy {policy} for another machine",
            next_step="ask for this format there, or for --format text",
        )
    known = _nodes_here() if nodes is None else nodes
    return [f"{NUMACTL[policy]}{span(where(policy, known, answer.cpus or _all_cpus(known), None).nodes)}"]


def _nodes_here() -> tuple[NumaNode, ...]:
    from advisor.identity import survey
    from advisor.topology.details import numa_nodes

    return numa_nodes("/", survey()[1])


def _all_cpus(nodes: Sequence[NumaNode]) -> list[int]:
    return [cpu for node in nodes for cpu in node.cpus]


def taskset(answer: Answer, command: Sequence[str] = ()) -> str:
    """Like `numactl`, with taskset, which every util-linux has. Memory policies cannot be set this way.

    Raises:
        BadInput: the answer asks for a memory policy, or is for a GPU.
    """
    _of_host(answer, "taskset")
    _known(answer.memory_policy, ("default",), "memory policy for taskset")
    words = _env_words(answer)
    if answer.cpus is not None:
        words += ["taskset", "--cpu-list", ",".join(str(_whole(cpu, 0)) for cpu in answer.cpus)]
    return " ".join(map(shlex.quote, [*words, *command]))


def _whole(value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadInput("only whole numbers are written into a shell line", got=value, allowed=f"{least} or more")
    return value


def _known(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise BadInput(f"unknown {what}", got=value, allowed=", ".join(allowed))
    return value


def to_dict(answer: Answer, n: int | None = None) -> dict[str, Any]:
    """The JSON data of one answer of `advisor recommend --json`.

    Args:
        answer: what a policy said.
        n: the n that was asked; adds `n` and `estimate_ns` (interpolated, None where not possible), for a GPU `launch`
            (see `device_launch.launch_of`).
    """
    data = {key: getattr(answer, key) for key in JSON_KEYS}
    for key in ("cpus", "ci95_ns", "warnings"):
        data[key] = None if data[key] is None else list(data[key])
    if n is not None:
        data |= {"n": n, "estimate_ns": answer.estimate(n)}
    if n is not None and answer.device:
        data["launch"] = _launch(answer, n)
    return data


def text(answer: Answer, n: int) -> str:
    """A short sheet for people: what to run with, how sure, what it gains.

    Args:
        answer: what a policy said at n.
        n: the n that was asked.
    """
    shape = " ".join(f"{name}={value}" for name, value in answer.shape_pairs)
    head = " ".join(filter(None, [answer.kernel, f"n={n}", answer.dtype, shape, answer.regime]))
    rows = [("run", _build_words(answer)), *(_device_rows(answer, n) if answer.device else _host_rows(answer))]
    rows += [("time", _time_words(answer, n)), *_fragile(answer), *_energy(answer)]
    rows += [("sure", _sure_words(answer)), ("why", answer.why)]
    rows += [("warning", warning) for warning in answer.warnings]
    return "\n".join([head, *(f"  {name:<9}{words}" for name, words in rows)])


def _host_rows(answer: Answer) -> list[tuple[str, str]]:
    return [("threads", _team_words(answer)), ("process", _process_words(answer))]


def _device_rows(answer: Answer, n: int) -> list[tuple[str, str]]:
    """The device, and the launch where it can be worked out."""
    launch = _launch(answer, n)
    return [("device", str(answer.device)), *([("launch", words(launch))] if launch else [])]


def _launch(answer: Answer, n: int) -> dict[str, Any] | None:
    if answer.variant is None or answer.dtype is None:
        return None
    problem = Problem(answer.kernel, answer.dtype, answer.shape_pairs, n, answer.regime or "warm")
    known = answer.source_hash or "", answer.knob_pairs, answer.compiler or "", answer.flags or ""
    return launch_of(problem, Build(answer.variant, *known))


def _build_words(answer: Answer) -> str:
    if answer.variant is None:
        return "any variant: none was tuned here"
    knobs = " ".join(f"{name}={value}" for name, value in answer.knob_pairs)
    flags = "" if answer.flags == "none" else f", flags {answer.flags}"  # a library call: nothing is compiled
    return f"{answer.variant}{f' ({knobs})' if knobs else ''}, {answer.compiler}{flags}"


def _team_words(answer: Answer) -> str:
    if answer.cpus is None:
        return f"{answer.threads}, not pinned"
    return (
        f"{answer.threads} on CPUs {','.join(map(str, answer.cpus))} ({answer.placement or 'the array as it stands'})"
    )


def _process_words(answer: Answer) -> str:
    spin = "" if answer.spin is None else f", GOMP_SPINCOUNT={answer.spin}"
    memory = "" if answer.memory_policy == "default" else f", memory policy {answer.memory_policy}"
    return f"wait policy {answer.wait_policy}{spin}{memory}"


def _time_words(answer: Answer, n: int) -> str:
    if answer.expected_ns is None:
        estimate = answer.estimate(n)
        return "not measured here" if estimate is None else f"about {duration(estimate)} (interpolated, not measured)"
    words = duration(answer.expected_ns)
    if answer.ci95_ns is not None:
        words += f" (95 % interval {duration(answer.ci95_ns[0])} to {duration(answer.ci95_ns[1])})"
    return words if answer.gain is None else f"{words}, {answer.gain:.2f}x the speed of the default choice"


FRAGILE = 3.0
"""From this slowdown on a choice is called fragile: a fair share of the stolen core costs at most twice the time."""


def _fragile(answer: Answer) -> list[tuple[str, str]]:
    """A line on the stolen core, where that was measured."""
    if answer.fragility is None or answer.expected_ns is None:
        return []
    mean = duration(answer.fragility * answer.expected_ns)
    p99 = "" if answer.stolen_p99_ns is None else f", 99th percentile {duration(answer.stolen_p99_ns)}"
    warning = "FRAGILE: " if answer.fragility >= FRAGILE else ""
    return [("shared", f"{warning}beside one busy core a call takes {mean} on average ({answer.fragility:.3g}x){p99}")]


def _energy(answer: Answer) -> list[tuple[str, str]]:
    """A line on energy, where a counter was there to read."""
    if answer.joules is None:
        return []
    value, unit = (answer.joules, "J") if answer.joules >= 1 else (answer.joules * 1e3, "mJ")
    whose = "the device" if answer.device else "the packages"
    return [("energy", f"{value:.3g} {unit} a call, all that {whose} used meanwhile")]


def _sure_words(answer: Answer) -> str:
    if answer.regret_bound is None:
        return f"{answer.basis}; no held-out check"
    return f"{answer.basis}; at sizes held out of the tuning at most {answer.regret_bound - 1:.1%} above the best known"


FORMATS = ("text", "env", "numactl", "taskset")


def render(output: str, answer: Answer, n: int) -> str:
    """One answer in a named format.

    Args:
        output: one of FORMATS.
        answer: what a policy said at n.
        n: the n that was asked; only the sheet for people shows it.

    Raises:
        UnknownName: no such format.
    """
    if output == "text":
        return text(answer, n)
    if output not in FORMATS:
        raise UnknownName("no such format", got=output, allowed=", ".join(FORMATS))
    return {"env": env, "numactl": numactl, "taskset": taskset}[output](answer)


def duration(ns: float) -> str:
    """A time in the unit that reads best, three significant digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"

"""A short sheet on an answer for people: `--format text`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.answers import Answer
from advisor.policy.launch.device import launch_at, words
from advisor.words import many

if TYPE_CHECKING:
    from advisor.records import Process


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
    return [("threads", team_words(answer)), ("process", process_words(answer))]


def _device_rows(answer: Answer, n: int) -> list[tuple[str, str]]:
    """The device, and the launch where it can be worked out."""
    launch = launch_at(answer, n)
    return [("device", str(answer.device)), *([("launch", words(launch))] if launch else [])]


def _build_words(answer: Answer) -> str:
    if answer.variant is None:
        return "any variant: none was tuned here"
    knobs = " ".join(f"{name}={value}" for name, value in answer.knob_pairs)
    flags = "" if answer.flags == "none" else f", flags {answer.flags}"  # a library call: nothing is compiled
    return f"{answer.variant}{f' ({knobs})' if knobs else ''}, {answer.compiler}{flags}"


def team_words(answer: Answer) -> str:
    """How many threads, and where."""
    if answer.cpus is None:
        return f"{answer.threads}, not pinned"
    cpus = ",".join(map(str, answer.cpus))
    return f"{answer.threads} on CPUs {cpus} ({answer.placement or 'the array as it stands'})"


def process_words(answer: Answer | Process) -> str:
    """How the process must be started, for an answer or the process part of a choice."""
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
    return f"{answer.basis}; {held_out(answer.regret_sizes, answer.regret_bound)}"


def held_out(sizes: int, worst: float) -> str:
    """What sizes that were not tuned say of a table; a bound of one size bounds little, and says so.

    Args:
        sizes: how many; 0: not told.
        worst: the largest time over the best known one.
    """
    where = many(sizes, "held-out size") if sizes else "held-out sizes"
    return f"at {where} {'' if sizes == 1 else 'at most '}{worst - 1:.1%} above the best known"


def duration(ns: float) -> str:
    """A time in the unit that reads best, three significant digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"

"""Workload: how often which n is asked for, from a file or counted out of a server's log.

A file is JSON, either one histogram for every kernel or one for each:

    {"4096": 120, "8192": 7}            {"decode": {"4096": 120}, "forward": {"512": 3}}

A log is read line by line, so its size costs no memory, and has a minute, which is enough for some 2 GB; the regular
expression runs in a process of its own, so that one that would try for ever is stopped and said to. Standard library
only.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from advisor.errors import BadInput, Missing
from advisor.records import Pairs, pairs
from advisor.tablefile import read_json
from advisor.words import many

ANY = ""
"""The kernel of a histogram that counts for every kernel."""

LARGEST_N = 1 << 40
"""A number beyond is no size but a time stamp or an address that the expression caught."""

MOST_SIZES = 1 << 20
"""Different n; more is no histogram."""

LONGEST_LINE = 1 << 16
"""Bytes of a line of a log that are looked at; what follows in it is passed over."""

LIMIT_S = 60.0
"""Seconds that reading a log may take; the least speed seen was some 30 MB/s."""


class Workload(NamedTuple):
    """How often which n is asked for.

    Attributes:
        counts: kernel, or "" for every kernel -> ((n, count), ...), ascending in n.
    """

    counts: Pairs

    def weights(self, kernel: str) -> dict[int, float]:
        """n -> its share of a kernel's calls, ascending; the shares add up to 1. Empty where nothing is known."""
        known = dict(self.counts)
        found = known.get(kernel, known.get(ANY, ()))
        whole = sum(count for _, count in found)
        return {n: count / whole for n, count in found}

    def overall(self) -> dict[int, float]:
        """n -> its share of all calls, of whatever kernel; the shares add up to 1."""
        counts: Counter[int] = Counter()
        for _, found in self.counts:
            counts.update(dict(found))
        whole = sum(counts.values())
        return {n: count / whole for n, count in sorted(counts.items())}


def asked(
    path: str | None, log: str | None, pattern: str | None, known: Collection[str] | None = None
) -> Workload | None:
    """The workload that a command's options name; None where they name none.

    Args:
        path, log, pattern: the options.
        known: names of kernels, see `load`.

    Raises:
        Missing, BadInput: see `load` and `from_log`; two sources at once, or a log and no expression.
    """
    if path is not None and log is not None:
        raise BadInput("one workload at a time", got="--workload and --from-log", next_step="leave one out")
    if (log is None) != (pattern is None):
        raise BadInput(
            "--from-log and --regex go together",
            got="--regex alone" if log is None else "--from-log alone",
            allowed=r"--from-log server.log --regex 'n=(\d+)'",
        )
    if log is not None and pattern is not None:
        return from_log(log, pattern)
    return None if path is None else load(path, known)


def shares(known: Workload | None, sizes: Sequence[int]) -> dict[int, float]:
    """What each n that was asked for counts: all alike without a workload, else what it stands for there.

    Raises:
        BadInput: none of the workload's n lies between them.
    """
    if known is None:
        return dict.fromkeys(sizes, 1.0)
    found, _ = spread(known.overall(), sorted(sizes))
    if not any(found.values()):
        span = f"{min(sizes)}..{max(sizes)}"
        raise BadInput("the workload must have an n among those asked for", got=span, next_step="name other --n")
    return found


def load(path: str, known: Collection[str] | None = None) -> Workload:
    """The workload in a JSON file.

    Args:
        path: of the file.
        known: names of kernels that a histogram may be of; None: whatever it says.

    Raises:
        Missing: no such file.
        BadInput: no JSON, or not of the form above, or a kernel, size or count that makes no sense.
    """
    document = read_json(path)
    nested = [isinstance(value, dict) for value in document.values()]
    if not document or (any(nested) and not all(nested)):
        raise _wrong(path, "one histogram, or one for each kernel", sorted(document)[:4])
    kernels: Mapping[str, Any] = document if all(nested) else {ANY: document}
    unknown = sorted(set(kernels) - {ANY, *known}) if known is not None else []
    if unknown:
        raise _wrong(path, f"kernels that there are: {', '.join(sorted(known or ()))}", ", ".join(unknown))
    return Workload(pairs({kernel: _histogram(path, counts) for kernel, counts in kernels.items()}))


def _histogram(path: str, counts: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    found: dict[int, float] = {}
    for text, count in counts.items():
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= LARGEST_N):
            raise _wrong(path, f"sizes from 1 to {LARGEST_N} as keys", text)
        if isinstance(count, bool) or not isinstance(count, (int, float)) or not 0 <= count < math.inf:
            raise _wrong(path, "counts of at least 0", count)
        found[int(text)] = found.get(int(text), 0) + count
    asked = {n: count for n, count in found.items() if count > 0}
    if not asked:
        raise _wrong(path, "a count above 0", "none")
    return tuple(sorted(asked.items()))


def _wrong(path: str, rule: str, got: object) -> BadInput:
    form = '{"4096": 120} or {"decode": {"4096": 120}}'
    return BadInput(f"{path} must hold {rule}", got=got, allowed=form, next_step="see docs/landing.md")


def from_log(path: str, pattern: str, limit_s: float = LIMIT_S) -> Workload:
    """Count n in a server's log.

    Args:
        path: of the log; bytes that are no UTF-8 stand for no character that an expression names.
        pattern: a regular expression whose first group is n; searched once in a line.
        limit_s: seconds that it may take.

    Raises:
        Missing: no such file.
        BadInput: the expression is none, has no group, or finds no number; reading took too long.
    """
    check_pattern(pattern)
    if not os.path.isfile(path):
        raise Missing("the log must be a file that is there", got=path)
    words = [sys.executable, "-m", "advisor.policy.workload", os.path.abspath(path), pattern]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=limit_s, env=_environment())
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"counting the log must end within {limit_s:g} s",
            got=pattern,
            next_step="write the expression without nested repeats, or hand in the end of the log",
        ) from None
    if done.returncode:
        raise BadInput("the log must be one that can be read", got=path, next_step=done.stderr.strip()[-200:])
    told = json.loads(done.stdout)
    if not told["counts"]:
        raise BadInput(
            "the expression must find an n in some line",
            got=pattern,
            next_step=f"none of the {many(told['unmatched'], 'line')} of {path} has one; try it with grep -P",
        )
    counts = tuple((int(n), count) for n, count in told["counts"])
    return Workload(pairs({ANY: counts}))


def _environment() -> dict[str, str]:
    """The child finds this package where the parent did."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression, or has no group.

    Raises:
        BadInput: with what is wrong.
    """
    try:
        if "\0" in pattern:  # no argument of a program can hold it
            raise BadInput("an expression holds no zero byte", got=pattern, next_step=r"write it as \x00")
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput("the expression must be a regular one of Python", got=pattern, next_step=str(error)) from None
    if not groups:
        raise BadInput("the expression must have a group that is n", got=pattern, allowed=r"for example n=(\d+)")


def spread(weights: Mapping[int, float], sizes: Sequence[int]) -> tuple[dict[int, float], float]:
    """What each tuned n stands for: every n of a workload counts for the nearest one by ratio.

    Args:
        weights: n -> share.
        sizes: tuned n, ascending, at least one.

    Returns:
        Tuned n -> share; and the share of n outside the tuned region, which no tuned n stands for.
    """
    found, outside = dict.fromkeys(sizes, 0.0), 0.0
    for n, share in weights.items():
        if sizes[0] <= n <= sizes[-1]:
            found[min(sizes, key=lambda size: (max(size / n, n / size), size))] += share
        else:
            outside += share
    return found, outside


def outside(weights: Mapping[int, float], sizes: Sequence[int]) -> str:
    """A sentence on the calls that no n of a tuning or a question stands for; empty where there are none.

    Args:
        weights: n -> share; empty: no workload.
        sizes: the n that were tuned or asked for.
    """
    if not weights or not sizes:
        return ""
    share = spread(weights, sorted(sizes))[1]
    span = f"{min(sizes)}..{max(sizes)}"
    return f"{share:.0%} of the workload's calls lie outside n = {span} and count for nothing" if share > 0 else ""


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a log, each as far as it is looked at.

    The rest of a longer one is no line of its own, and a number that goes on beyond the cut is none.
    """
    while line := file.readline(LONGEST_LINE):
        is_cut = rest = len(line) == LONGEST_LINE and not line.endswith(b"\n")
        yield line.rstrip(b"0123456789") if is_cut else line
        while rest:
            more = file.readline(LONGEST_LINE)
            rest = len(more) == LONGEST_LINE and not more.endswith(b"\n")


def _count(path: str, pattern: str) -> dict[str, Any]:
    """What `from_log` runs in a process of its own."""
    found: Counter[int] = Counter()
    unmatched, search = 0, re.compile(pattern).search
    with open(path, "rb") as file:
        for line in _lines(file):
            match = search(line.decode("utf-8", "replace"))
            word = (match.group(1) or "") if match else ""
            if word.isascii() and word.isdecimal() and len(word) < 14 and 1 <= int(word) <= LARGEST_N:
                found[int(word)] += 1
                if len(found) > MOST_SIZES:
                    raise BadInput("what the expression finds must be sizes", got=f"{MOST_SIZES} different numbers")
            else:
                unmatched += 1
    return {"counts": sorted(found.items()), "unmatched": unmatched}


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(_count(sys.argv[1], sys.argv[2])))
    except (OSError, BadInput) as error:
        sys.exit(str(error))

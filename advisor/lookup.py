"""Look up what to run a kernel with: load this machine's tables once, then answer in well under a microsecond.

    from advisor.lookup import Policy
    policy = Policy.load()
    choice = policy.choose("decode", n=4096)
    decode = policy.bind("decode", heads=32, kv_heads=8, head_dim=128, dtype="float32")
    choice = decode(4096)

In a server nothing raises for reasons of data: a broken, foreign, newer, stale or missing table answers DEFAULT, and
`policy.notes` says why, once. Wrong arguments of the programmer raise BadInput from `load`, never from `choose`.
Standard library only and no `typing` at run time: this is the hot path.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from advisor.answers import Answer
from advisor.errors import BadInput
from advisor.gather import by_rule, files, further, group, groups, is_for, most_won, read, rules
from advisor.paths import machine_dir
from advisor.ranges import answering, default_answer, expected_ns, for_objective, start_with, wins
from advisor.site import Site, describe_file, describe_here, device_here, running_memory_policy, running_process, share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from advisor.gather import Key, Sources
    from advisor.ranges import Json, Ranges

_AXES = ("batch", "heads", "kv_heads", "head_dim", "dtype", "regime")
"""The order of `choose`'s named axes in the key of what is remembered."""

_REMEMBERED = 1024
"""Combinations of axes kept resolved; more than any server has, so that an odd caller cannot fill the memory."""


class Policy:
    """The tables that count on one machine, ready to answer. Make one with `Policy.load`; safe to share by threads.

    Attributes:
        notes: sentences on everything that was set aside at load, each once; empty when all is well.
        site: the machine that the answers are for.
    """

    __slots__ = ("_groups", "_known", "_reasons", "_rules", "_sections", "notes", "site")

    def __init__(self, site: Site, sections: Sources, reasons: dict[str, str], notes: list[str]) -> None:
        made, more_reasons, more_notes = groups(site, sections)
        self._rules, rule_notes = rules(sections)
        self.site = site
        self.notes = tuple(dict.fromkeys([*notes, *more_notes, *rule_notes]))
        self._sections = sections
        self._groups = made
        self._reasons = {**reasons, **more_reasons}
        self._known: dict[tuple[object, ...], Ranges] = {}
        for kernel in {key[0] for key in made}:
            self._ranges(kernel, {})

    @classmethod
    def load(  # noqa: PLR0913 (named arguments, each of its own kind)
        cls,
        path: str | None = None,
        *,
        stale: str = "default",
        instance: int | None = None,
        of: int | None = None,
        machine: str | None = None,
        objective: str | None = None,
        device: str | None = None,
        count_misses: bool | None = None,
        root: str = "/",
    ) -> Policy:
        """Read this machine's tables and make every answer.

        Args:
            path: a table or a folder of tables to read instead of this machine's own and the shipped ones.
            stale: "default" answers a stale row with the default choice, "use" with the row itself, basis STALE; so do
                then the tables of a GPU that differs in slice, power limit or multiprocessors alone.
            instance, of: this process is worker `instance` (from 0) of `of`; answers keep to its part of the machine.
            machine: a machine.json: answer for that machine, which is not this one, so nothing can be applied.
            objective: what answers shall be best at: latency (time), robust (mean time beside a busy neighbour) or
                efficiency (effort within 5 % of the best time); None: what each table was made for.
            device: cuda:N: answer for that GPU, by the number that CUDA programs started here (or there) would use,
                which its driver is asked for some seconds; None or cpu: for the CPUs.
            count_misses: also count lookups without a measured answer, for the next `advisor tune`; a thread writes
                them beside the tables. None: where ADVISOR_COUNT_MISSES is set in the environment to something but 0.
            root: folder that /proc and /sys are read under.

        Raises:
            BadInput: a wrong argument; a `machine` file that cannot be read; a device that is not there.
        """
        _check_arguments(stale, instance, of, objective)
        notes: list[str] = []
        site = describe_here(root, notes) if machine is None else describe_file(machine, device)
        if machine is None and device not in (None, "cpu"):
            site = device_here(site, str(device))
        if site.gpu is None:
            wait, spin = running_process(notes)
            site = site._replace(wait_policy=wait, spin=spin, memory_policy=running_memory_policy())
        elif of is not None:
            raise BadInput("instance and of share the CPUs of a machine", got=f"device {device or 'of the file'}")
        site = site._replace(stale=stale, hashes={}, objective=objective)
        if instance is not None and of is not None and of > 1:
            site = share(site, instance, of, notes)
        paths = files(site, path, machine)
        sections, reasons, more = read(site, paths)
        if not paths:
            where = path or machine_dir(site.hardware_id, site.limits_id)
            notes.append(f"no table in {where}; run `advisor tune{f' --device {device}' if device else ''}`")
        if site.refusal or site.hardware_id == "unknown" or not _is_counting(count_misses):
            return cls(site, sections, reasons, [*notes, *more])
        from advisor.counted_lookup import CountingPolicy

        return CountingPolicy(site, sections, reasons, [*notes, *more])

    def flush(self) -> bool:
        """Write the misses counted so far, and whether all are written; nothing is to be where none are counted."""
        return True

    def choose(  # noqa: PLR0913 (named arguments are twice as fast as a dict of them)
        self,
        /,
        kernel: str,
        n: int,
        *,
        batch: int | None = None,
        heads: int | None = None,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        dtype: str | None = None,
        regime: str | None = None,
        **more: Any,
    ) -> Answer:
        """The answer for one n. Never raises, for any n; a fraction counts as the whole number below it.

        Args:
            kernel: name of the kernel.
            n: the swept size.
            batch, heads, kv_heads, head_dim, dtype, regime: the problem, as far as needed to name one; None: any.
            more: further entries of the fixed shape, for kernels that have others; a little slower.
        """
        try:
            if more:
                raise LookupError
            borders, answers = self._known[kernel, batch, heads, kv_heads, head_dim, dtype, regime]
            return answers[bisect_right(borders, n)]
        except Exception:  # a server must get an answer whatever it hands in
            axes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "dtype": dtype}
            return self._slowly(kernel, n, {**axes, "regime": regime, **more})

    def _slowly(self, kernel: str, n: object, axes: dict[str, Any]) -> Answer:
        """`choose` for what is not remembered yet, or makes no sense."""
        try:
            return _at(self._ranges(kernel, axes), n)
        except Exception as error:
            return default_answer(self.site, str(kernel), f"the question cannot be read ({type(error).__name__})")

    def bind(self, /, kernel: str, **axes: Any) -> Callable[[int], Answer]:
        """A function of n alone, for one kernel and shape: the fastest way to ask. It never raises.

        Args:
            kernel: name of the kernel.
            axes: as for `choose`.
        """
        found = self._ranges(kernel, axes)
        borders, answers = found

        def answer(n: int) -> Answer:
            try:
                return answers[bisect_right(borders, n)]
            except Exception:  # a server must get an answer whatever it hands in
                return _at(found, n)

        return answer

    def best(self, /, kernel: str, n: int, **axes: Any) -> Answer:
        """The answer of the process part that is fastest at n, for who can still start the process with it.

        Not for the request path: it takes some milliseconds. At a tuned n it is the one whose choice the table calls
        best. Elsewhere, where no time is known, or no other process part is faster by the landing bar, the running
        process part answers, as `choose` does.

        Args:
            kernel, n, axes: as for `choose`.
        """
        own = self.choose(kernel, n, **axes)
        try:
            return own if self.site.gpu is not None else self._best(own, kernel, n, axes)
        except Exception:  # whatever a file brings, the running process part has an answer
            return own

    def _best(self, own: Answer, kernel: str, n: int, axes: dict[str, Any]) -> Answer:
        """What `best` says on CPUs; `own` answers for the running process part."""
        given = {name: value for name, value in axes.items() if value is not None}
        found = _meant([key for key in self._groups if key[0] == kernel], given)
        if len(found) != 1:
            return own if found or own.basis != "DEFAULT" else self._best_by_rule(own, kernel, n, given)
        answers = [(section, self._under(found[0], section, n)) for _, section in self._sections[found[0]]]
        won = [] if self.site.part else [pair for pair in answers if wins(pair[0], n, self.site.objective)]
        if any(is_for(section["process"], self.site) for section, _ in won):
            return own
        usable = [pair for pair in won if pair[1].basis != "DEFAULT"]
        if usable:
            return _started(*usable[0])
        running = [section for section, _ in answers if is_for(section["process"], self.site)]
        own_ns = self._time(running[0], own, n) if running else float("inf")
        first = answering([own_ns, *(self._time(section, answer, n) for section, answer in answers)], 0)
        return _started(*answers[first - 1]) if first else own

    def _time(self, section: Json, answer: Answer, n: int) -> float:
        """Time of what a section says: measured, or on lines between n at which that very choice was, else between what
        it says at the tuned n around; infinite where none is known or it does not answer."""
        if answer.basis == "DEFAULT" or self.site.part:
            return float("inf")
        told, objective = for_objective(section, self.site.objective)
        return answer.expected_ns or answer.estimate(n) or expected_ns(self.site, told, n, objective) or float("inf")

    def _best_by_rule(self, own: Answer, kernel: str, n: int, axes: dict[str, Any]) -> Answer:
        """What `best` says of a shape that was not tuned, where there is no rule for the running process part."""
        found = self._rules.get(kernel)
        process = most_won(found, axes) if found else None
        if found is None or process is None:
            return own
        ruled, _ = by_rule(self._started(process), found, axes)
        answer = own if ruled is None else _at(ruled, n)
        return own if answer.basis == "DEFAULT" else _started({"process": process}, answer)

    def _started(self, process: Json) -> Site:
        """The site as if the process had been started with a process part."""
        memory = process.get("memory_policy") or "default"
        return self.site._replace(wait_policy=process["wait_policy"], spin=process["spin"], memory_policy=memory)

    def _under(self, key: Key, section: Json, n: int) -> Answer:
        """The answer at n under the process part of a section."""
        return _at(group(self._started(section["process"]), self._sections[key]), n)

    def problems(self, kernel: str | None = None) -> tuple[dict[str, Any], ...]:
        """What the tables can answer: dicts with kernel and the axes to hand to `choose`."""
        return tuple(
            {"kernel": name, "dtype": dtype, "regime": regime, **dict(shape)}
            for name, dtype, regime, shape in self._groups
            if kernel in (None, name)
        )

    def sections(self, kernel: str) -> tuple[dict[str, Any], ...]:
        """The sections that a kernel's answers are made from, as their files have them: for reports, not requests."""
        return tuple(section for key, found in self._sections.items() if key[0] == kernel for _, section in found)

    def extended(self, documents: list[dict[str, Any]], notes: tuple[str, ...] = ()) -> Policy:
        """A policy that also answers from further tables, as plain data, where this one has none: not for requests.

        Args:
            documents: the tables.
            notes: sentences on them.

        Raises:
            BadInput: a table makes no sense.
        """
        return Policy(self.site, further(self._sections, documents), self._reasons, [*self.notes, *notes])

    def _ranges(self, kernel: str, axes: dict[str, Any]) -> Ranges:
        """The ranges of a question, remembered; axes that are None were not given."""
        given = {name: value for name, value in axes.items() if value is not None}
        try:
            key = (kernel, *map(given.get, _AXES)) if set(given) <= set(_AXES) else (kernel, frozenset(given.items()))
            if key in self._known:
                return self._known[key]
            found = self._resolve(kernel, given)
            if len(self._known) < _REMEMBERED:
                self._known[key] = found
            return found
        except TypeError:  # an unhashable kernel or axis
            return [], [default_answer(self.site, str(kernel), "an axis has a value that no table can have")]

    def _resolve(self, kernel: str, axes: dict[str, Any]) -> Ranges:
        keys = [key for key in self._groups if key[0] == kernel]
        found = _meant(keys, axes)
        if len(found) == 1:
            return self._groups[found[0]]
        asked = " ".join(f"{name}={value}" for name, value in axes.items())
        if not keys:
            why = self._reasons.get(kernel, f"no table for {kernel} on this machine")
        elif not found:
            own = self._rules.get(kernel)
            ruled, hint = by_rule(self.site, own, axes) if own else (None, "")
            if ruled is not None:
                return ruled
            why = f"no table for {kernel} with {asked}; tuned: {' | '.join(map(_label, keys))}{hint}"
        else:
            why = f"several tables fit, name more axes: {' | '.join(map(_label, found))}"
        return [], [_shared_default([self._groups[key][1][0] for key in found], default_answer(self.site, kernel, why))]


def _shared_default(outside: list[Answer], careful: Answer) -> Answer:
    """The default choice that all fitting tables have in common, else the careful rule's answer."""
    choices = {(a.variant, a.source_hash, a.knob_pairs, a.compiler, a.flags, a.threads, a.placement) for a in outside}
    if len(choices) != 1:
        return careful
    why = careful.why.split("; the physical cores")[0]
    same = outside[0]._replace(why=f"{why}; the default choice of all of them", table_id=None)
    return same._replace(dtype=None, shape_pairs=(), regime=None)


def _started(section: Json, answer: Answer) -> Answer:
    """The answer of another process part, with how to start the process."""
    return answer._replace(why=f"{answer.why}; {start_with(section['process'])}")


def _label(key: Key) -> str:
    return " ".join([key[1], key[2], *(f"{name}={value}" for name, value in key[3])])


def _fits(key: Key, axes: dict[str, Any]) -> bool:
    known = {"dtype": key[1], "regime": key[2], **dict(key[3])}
    return all(name in known and known[name] == value for name, value in axes.items())


def _meant(keys: list[Key], axes: dict[str, Any]) -> list[Key]:
    """The problems that a question may mean. Published figures of a given number of threads have that as an axis: they
    answer who names it, and who does not is answered from the others."""
    found = [key for key in keys if _fits(key, axes)]
    if len(found) < 2 or "threads" in axes:
        return found
    return [key for key in found if "threads" not in dict(key[3])] or found


def _at(found: Ranges, n: Any) -> Answer:
    """The answer for an n that may be no number at all."""
    borders, answers = found
    try:
        return answers[bisect_right(borders, n)]
    except Exception:  # whatever comparing this object with a number may raise
        why = f"n must be a whole number, got {type(n).__name__}: the default choice"
        return answers[0]._replace(why=why)


# --- loading ---


def _is_counting(asked: bool | None) -> bool:
    """Whether misses are counted. Not where nobody asked: a library in a server starts no thread and writes no file."""
    return os.environ.get("ADVISOR_COUNT_MISSES", "0") not in ("", "0") if asked is None else asked


def _check_arguments(stale: object, instance: object, of: object, objective: object) -> None:
    if stale not in ("default", "use"):
        raise BadInput("stale says what a stale row answers", got=stale, allowed="default, use")
    if objective not in (None, "latency", "robust", "efficiency"):
        raise BadInput("no such objective", got=objective, allowed="latency, robust, efficiency")
    if (instance is None) != (of is None):
        raise BadInput("instance and of go together", got=(instance, of), allowed="instance=0..of-1, of=number")
    if instance is None:
        return
    for name, value in (("instance", instance), ("of", of)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadInput(f"{name} must be a whole number", got=value)
    if not (isinstance(of, int) and isinstance(instance, int) and of >= 1 and 0 <= instance < of):
        raise BadInput("an instance number counts from 0 within `of`", got=(instance, of), allowed="0 <= instance < of")

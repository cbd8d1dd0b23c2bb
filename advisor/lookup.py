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
from advisor.errors import AdvisorError, BadInput
from advisor.paths import machine_dir, shipped_policies
from advisor.ranges import default_answer, ranges, section_default, start_with
from advisor.site import Site, describe_file, describe_here, running_process, share
from advisor.tablefile import names, read_json, read_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from advisor.ranges import Json, Ranges
    from advisor.topology.array import CpuArray

    Key = tuple[str, str, str, tuple[tuple[str, int], ...]]

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

    __slots__ = ("_groups", "_known", "_reasons", "notes", "site")

    def __init__(self, site: Site, groups: dict[Key, Ranges], reasons: dict[str, str], notes: tuple[str, ...]) -> None:
        self.site = site
        self.notes = notes
        self._groups = groups
        self._reasons = reasons
        self._known: dict[tuple[object, ...], Ranges] = {}
        for kernel in {key[0] for key in groups}:
            self._ranges(kernel, {})

    @classmethod
    def load(
        cls,
        path: str | None = None,
        *,
        stale: str = "default",
        instance: int | None = None,
        of: int | None = None,
        machine: str | None = None,
        root: str = "/",
    ) -> Policy:
        """Read this machine's tables and make every answer.

        Args:
            path: a table or a folder of tables to read instead of this machine's own and the shipped ones.
            stale: "default" answers a stale row with the default choice, "use" with the row itself, basis STALE.
            instance, of: this process is worker `instance` (from 0) of `of`; answers keep to its part of the machine.
            machine: a machine.json: answer for that machine, which is not this one, so nothing can be applied.
            root: folder that /proc and /sys are read under.

        Raises:
            BadInput: a wrong argument; a `machine` file that cannot be read.
        """
        _check_arguments(stale, instance, of)
        notes: list[str] = []
        site = describe_file(machine) if machine is not None else describe_here(root, notes)
        wait, spin = running_process(notes)
        site = site._replace(wait_policy=wait, spin=spin, stale=stale)
        if instance is not None and of is not None and of > 1:
            site = share(site, instance, of, notes)
        files = _files(site, path, machine)
        groups, reasons = _read(site, files, notes)
        if not files:
            where = path or machine_dir(site.hardware_id, site.limits_id)
            notes.append(f"no table in {where}; run `advisor tune`")
        return cls(site, groups, reasons, tuple(dict.fromkeys(notes)))

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

    def problems(self, kernel: str | None = None) -> tuple[dict[str, Any], ...]:
        """What the tables can answer: dicts with kernel and the axes to hand to `choose`."""
        return tuple(
            {"kernel": name, "dtype": dtype, "regime": regime, **dict(shape)}
            for name, dtype, regime, shape in self._groups
            if kernel in (None, name)
        )

    def _ranges(self, kernel: str, axes: dict[str, Any]) -> Ranges:
        """The ranges of a question, remembered; axes that are None were not given."""
        given = {name: value for name, value in axes.items() if value is not None}
        key = (kernel, *map(given.get, _AXES)) if set(given) <= set(_AXES) else (kernel, frozenset(given.items()))
        try:
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
        found = [key for key in keys if _fits(key, axes)]
        if len(found) == 1:
            return self._groups[found[0]]
        asked = " ".join(f"{name}={value}" for name, value in axes.items())
        if not keys:
            why = self._reasons.get(kernel, f"no table for {kernel} on this machine")
        elif not found:
            why = f"no table for {kernel} with {asked}; tuned: {' | '.join(map(_label, keys))}"
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


def _label(key: Key) -> str:
    return " ".join([key[1], key[2], *(f"{name}={value}" for name, value in key[3])])


def _fits(key: Key, axes: dict[str, Any]) -> bool:
    known = {"dtype": key[1], "regime": key[2], **dict(key[3])}
    return all(name in known and known[name] == value for name, value in axes.items())


def _at(found: Ranges, n: Any) -> Answer:
    """The answer for an n that may be no number at all."""
    borders, answers = found
    try:
        return answers[bisect_right(borders, n)]
    except Exception:  # whatever comparing this object with a number may raise
        why = f"n must be a whole number, got {type(n).__name__}: the default choice"
        return answers[0]._replace(why=why)


# --- loading ---


def _check_arguments(stale: object, instance: object, of: object) -> None:
    if stale not in ("default", "use"):
        raise BadInput("stale says what a stale row answers", got=stale, allowed="default, use")
    if (instance is None) != (of is None):
        raise BadInput("instance and of go together", got=(instance, of), allowed="instance=0..of-1, of=number")
    if instance is None:
        return
    for name, value in (("instance", instance), ("of", of)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadInput(f"{name} must be a whole number", got=value)
    if not (isinstance(of, int) and isinstance(instance, int) and of >= 1 and 0 <= instance < of):
        raise BadInput("an instance number counts from 0 within `of`", got=(instance, of), allowed="0 <= instance < of")


def _files(site: Site, path: str | None, machine: str | None) -> list[str]:
    """Paths of the tables to read, those that count first in front."""
    if path is not None:
        path = os.fspath(path)
        return list(names(path)) if os.path.isdir(path) else [path]
    folders = [os.path.dirname(os.path.abspath(machine))] if machine is not None else []
    folders += [machine_dir(site.hardware_id, site.limits_id), *_shipped(site)]
    return [name for folder in dict.fromkeys(folders) for name in names(folder)]


def _shipped(site: Site) -> list[str]:
    """Folders of shipped policies for this hardware, those for these limits first."""
    found = []
    try:
        root = shipped_policies()
        folders = sorted(os.listdir(root))
    except (AdvisorError, OSError):
        return []
    for folder in folders:
        try:
            machine = read_json(os.path.join(root, folder, "machine.json"))
        except AdvisorError:
            continue
        if machine.get("hardware_id") == site.hardware_id:
            found.append((machine.get("limits_id") != site.limits_id, os.path.join(root, folder)))
    return [folder for _, folder in sorted(found)]


def _read(site: Site, files: list[str], notes: list[str]) -> tuple[dict[Key, Ranges], dict[str, str]]:
    """All groups of all tables that count, and for each kernel without one the reason."""
    sections: dict[Key, list[tuple[Json, Json]]] = {}
    reasons: dict[str, str] = {}
    for path in files:
        try:
            table = read_table(path)
            foreign = _foreign(site, table, path)
            if foreign:
                reasons[table["kernel"]] = foreign
                notes.append(foreign)
                continue
            for section in table["sections"]:
                _keep(sections.setdefault(_key(table, section), []), table, section)
        except Exception as error:  # whatever a file brings, a server goes on
            kernel = os.path.basename(path).split(".")[0]
            reasons[kernel] = f"the table was refused ({error})"
            notes.append(f"{path} was refused: {error}")
    return {key: _group(site, found) for key, found in sections.items()}, reasons


def _key(table: Json, section: Json) -> Key:
    return table["kernel"], section["dtype"], section["regime"], tuple(sorted(section["shape"].items()))


def _keep(found: list[tuple[Json, Json]], table: Json, section: Json) -> None:
    """Add a section unless an earlier table had one for the same process part."""
    if all(old["process"] != section["process"] for _, old in found):
        found.append((table, section))


def _foreign(site: Site, table: Json, path: str) -> str:
    """Why a table was not made on this machine under these limits, or the empty text."""
    if table["hardware_id"] != site.hardware_id:
        ids = f"hardware_id {table['hardware_id']}, here {site.hardware_id}"
        return f"{path} was made on other hardware ({ids}{_difference(site, path)})"
    if table["limits_id"] != site.limits_id:
        ids = f"limits_id {table['limits_id']}, here {site.limits_id}"
        return f"{path} was made under other limits ({ids}{_difference(site, path)})"
    return ""


def _difference(site: Site, path: str) -> str:
    """What differs, as far as the machine.json beside the table tells."""
    try:
        other = describe_file(os.path.join(os.path.dirname(os.path.abspath(path)), "machine.json"))
    except AdvisorError:
        return ""
    words = []
    if (other.array.axes, other.array.shape) != (site.array.axes, site.array.shape):
        words.append(f"array {_extents(other.array)}, here {_extents(site.array)}")
    if len(other.mask) != len(site.mask):
        words.append(f"{len(other.mask)} allowed CPUs, here {len(site.mask)}")
    if other.budget != site.budget:
        words.append(f"CPU budget {other.budget}, here {site.budget}")
    odd = sorted(set(other.isa) ^ set(site.isa)) if other.isa and site.isa else []
    if odd:
        words.append(f"instruction sets on one side only: {' '.join(odd)}")
    return "".join(f"; {word}" for word in words)


def _extents(array: CpuArray) -> str:
    return " ".join(f"{axis}={extent}" for axis, extent in zip(array.axes, array.shape, strict=True))


def _group(site: Site, found: list[tuple[Json, Json]]) -> Ranges:
    """The ranges for the running process part; the default choice alone where that was not tuned."""
    for table, section in found:
        process = section["process"]
        if (process["wait_policy"], process["spin"]) == (site.wait_policy, site.spin):
            others = [other for _, other in found if other is not section]
            return ranges(site, table, section, others)
    table, section = found[0]
    own = f"OMP_WAIT_POLICY={site.wait_policy} GOMP_SPINCOUNT={site.spin or 'unset'}"
    advice = " or ".join(dict.fromkeys(start_with(other["process"]) for _, other in found))
    return [], [section_default(site, table, section, f"not tuned for {own}; {advice}: the default choice")]

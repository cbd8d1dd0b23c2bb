"""Find and read the tables that count on one machine, and make their answers. Standard library only: hot path."""

from __future__ import annotations

import os

from advisor.carried import is_carried
from advisor.errors import AdvisorError
from advisor.paths import machine_dir, shipped_policies, state_dir
from advisor.ranges import ranges, section_default, start_with
from advisor.site import Site, describe_file
from advisor.tablefile import check_table, names, read_json, read_table
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from advisor.ranges import Json, Ranges
    from advisor.topology.array import CpuArray

    Key = tuple[str, str, str, tuple[tuple[str, int], ...]]
    Sources = dict[Key, list[tuple[Json, Json]]]
    Rules = dict[str, list[tuple[Json, Json]]]


def files(site: Site, path: str | None, machine: str | None) -> list[str]:
    """Paths of the tables to read, those that count first in front."""
    if path is not None:
        path = os.fspath(path)
        return list(names(path)) if os.path.isdir(path) else [path]
    folders = [os.path.dirname(os.path.abspath(machine))] if machine is not None else []
    folders += [machine_dir(site.hardware_id, site.limits_id), *_shipped(site)]
    folders += [] if site.gpu is None else _kindred(site)
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


def _kindred(site: Site) -> list[str]:
    """Folders of other GPUs of this model and capability: other slices, power limits, numbers of multiprocessors.

    Their tables do not count; that they are there, and what differs, is worth saying.
    """
    found = []
    for root in (os.path.join(state_dir(), "machines"), _shipped_root()):
        try:
            folders = sorted(os.listdir(root))
        except OSError:
            continue
        for folder in folders:
            path = os.path.join(root, folder)
            other = _gpu_of(path)
            if other is not None and _alike(site, other) and other.get("device_id") != site.hardware_id:
                found.append(path)
    return found


def _shipped_root() -> str:
    try:
        return shipped_policies()
    except AdvisorError:
        return ""


def _gpu_of(folder: str) -> Json | None:
    """The GPU whose tables a folder keeps; None where it keeps none of a GPU's, or does not say."""
    try:
        document = read_json(os.path.join(folder, "machine.json"))
        return dict(document["gpus"][0]) if document["limits_id"] == "device" else None
    except (AdvisorError, LookupError, TypeError, ValueError):
        return None


def _alike(site: Site, other: Json) -> bool:
    """Whether two GPUs are of one model and capability."""
    own = site.gpu or {}
    return all(own.get(field) and own.get(field) == other.get(field) for field in ("name", "compute_capability"))


def read(site: Site, paths: list[str]) -> tuple[Sources, dict[str, str], list[str]]:
    """All sections of all tables that count.

    Returns:
        kernel, dtype, regime, shape -> (table, section) pairs, one a process part; kernel -> why a table of it does
        not count; sentences for `Policy.notes`.
    """
    sections: Sources = {}
    reasons: dict[str, str] = {}
    notes: list[str] = []
    for path in paths:
        try:
            table = read_table(path)
            foreign = _foreign(site, table, path)
            differs = _forced(site, table, path) if foreign else ()
            if foreign and not differs:
                if site.gpu is None or all(key[0] != table["kernel"] for key in sections):
                    reasons[table["kernel"]] = foreign
                    notes.append(foreign)
                continue
            table = {**table, "differs": differs} if differs else table
            for section in table["sections"]:
                _keep(sections.setdefault(_key(table, section), []), table, section)
        except Exception as error:  # whatever a file brings, a server goes on
            kernel = os.path.basename(path).split(".")[0]
            reasons[kernel] = f"the table was refused ({error})"
            notes.append(f"{path} was refused: {error}")
    return {key: _measured(found) for key, found in sections.items()}, reasons, notes


def further(sections: Sources, documents: list[Json]) -> Sources:
    """The sections with those of further tables, which count where nothing was there.

    Raises:
        BadInput: a table makes no sense.
    """
    found = {key: list(pairs) for key, pairs in sections.items()}
    for table in documents:
        check_table(table)
        for section in table["sections"]:
            _keep(found.setdefault(_key(table, section), []), table, section)
    return {key: _measured(pairs) for key, pairs in found.items()}


def _key(table: Json, section: Json) -> Key:
    return table["kernel"], section["dtype"], section["regime"], tuple(sorted(section["shape"].items()))


def _keep(found: list[tuple[Json, Json]], table: Json, section: Json) -> None:
    """Add a section unless an earlier table had one for the same process part; one that was measured here beats one
    that was carried over."""
    same = [pair for pair in found if pair[1]["process"] == section["process"]]
    if same and (is_carried(section) or not is_carried(same[0][1])):
        return
    found[:] = [pair for pair in found if pair not in same]
    found.append((table, section))


def _measured(found: list[tuple[Json, Json]]) -> list[tuple[Json, Json]]:
    """The sections of one problem; where one was measured here, those carried over from other machines do not count.

    Nor do those of a second table: what the landing gate took out of the first, under whatever process part, would
    answer again.
    """
    own = [pair for pair in found if not is_carried(pair[1])]
    return [pair for pair in own if pair[0] is own[0][0]] or found


def _forced(site: Site, table: Json, path: str) -> tuple[str, ...]:
    """What differs from the GPU that a table was made on, where its rows were asked for all the same; else none.

    Nothing is carried over to another model or compute capability.
    """
    other = None if site.gpu is None or site.stale != "use" else _gpu_of(os.path.dirname(os.path.abspath(path)))
    if other is None or not _alike(site, other) or table["hardware_id"] != other.get("device_id"):
        return ()
    return _gpu_differences(site, other)


def _gpu_differences(site: Site, other: Json) -> tuple[str, ...]:
    from advisor.device import differences

    return differences(other, site.gpu or {})


def _foreign(site: Site, table: Json, path: str) -> str:
    """Why a table was not made on this machine under these limits, or the empty text."""
    if site.gpu is not None and table["hardware_id"] != site.hardware_id:
        words = "; ".join(_gpu_differences(site, _gpu_of(os.path.dirname(os.path.abspath(path))) or {}))
        ids = f"device_id {table['hardware_id']}, here {site.hardware_id}"
        return f"{path} was made on another device ({words or ids})"
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
        words.append(f"{many(len(other.mask), 'allowed CPU')}, here {len(site.mask)}")
    if other.budget != site.budget:
        words.append(f"CPU budget {other.budget}, here {site.budget}")
    odd = sorted(set(other.isa) ^ set(site.isa)) if other.isa and site.isa else []
    if odd:
        words.append(f"instruction sets on one side only: {' '.join(odd)}")
    return "".join(f"; {word}" for word in words)


def _extents(array: CpuArray) -> str:
    return " ".join(f"{axis}={extent}" for axis, extent in zip(array.axes, array.shape, strict=True))


def is_for(process: Json | None, site: Site) -> bool:
    """Whether a process part is the one that runs; a GPU's choices have none."""
    if process is None:
        return True
    memory = process.get("memory_policy") or "default"
    return (process["wait_policy"], process["spin"], memory) == (site.wait_policy, site.spin, site.memory_policy)


def group(site: Site, found: list[tuple[Json, Json]]) -> Ranges:
    """The ranges for the running process part; the default choice alone where that was not tuned."""
    for table, section in found:
        if is_for(section["process"], site):
            others = [other for _, other in found if other is not section]
            return ranges(site, table, section, others)
    table, section = found[0]
    own = f"OMP_WAIT_POLICY={site.wait_policy} GOMP_SPINCOUNT={site.spin or 'unset'}"
    own += "" if site.memory_policy == "default" else f" memory policy {site.memory_policy}"
    advice = " or ".join(dict.fromkeys(start_with(other["process"]) for _, other in found))
    return [], [section_default(site, table, section, f"not tuned for {own}; {advice}: the default choice")]


def groups(site: Site, sections: Sources) -> tuple[dict[Key, Ranges], dict[str, str], list[str]]:
    """The ranges of every problem; reasons and notes where a section that was read still makes no sense."""
    made: dict[Key, Ranges] = {}
    reasons: dict[str, str] = {}
    notes: list[str] = []
    for key, found in sections.items():
        try:
            made[key] = group(site, found)
            unused = next((a.why for a in made[key][1] if a.basis == "DEFAULT" and a.in_tuned_region), "")
            notes += [f"{key[0]}: {unused}"] if unused else []
        except Exception as error:  # whatever a file brings, a server goes on
            reasons[key[0]] = f"the table was refused ({type(error).__name__}: {error})"
            notes.append(f"a table of {key[0]} was refused ({type(error).__name__}: {error})")
    return made, reasons, notes


# --- shapes without rows of their own ---


def rules(sections: Sources) -> tuple[Rules, list[str]]:
    """The decision rules of all tables that count, and a sentence on each that cannot be walked."""
    found: Rules = {}
    notes: list[str] = []
    tables = {id(table): table for pairs in sections.values() for table, _ in pairs if table.get("rules")}
    for table in tables.values():
        from advisor.rules import flaw

        kernel, told = table["kernel"], table["rules"]
        wrong = [flaw(rule) for rule in told] if isinstance(told, list) else ["rules must be a list"]
        notes += [f"{kernel}: a rule for other shapes is not used ({word})" for word in wrong if word]
        usable = zip(told, wrong, strict=True) if isinstance(told, list) else ()
        found.setdefault(kernel, []).extend((table, rule) for rule, word in usable if not word)
    return found, notes


def most_won(found: list[tuple[Json, Json]], axes: Json) -> Json | None:
    """The process part whose rule fits a shape that was not tuned and whose choices won at most tuned n, if any."""
    from advisor.rules import shape_of

    fitting = [rule for _, rule in found if rule["wins"] and shape_of(rule, axes) is not None]
    return max(fitting, key=lambda rule: rule["wins"])["process"] if fitting else None


def by_rule(site: Site, found: list[tuple[Json, Json]], axes: Json) -> tuple[Ranges | None, str]:
    """The ranges of a shape that was not tuned, by the first rule that was learned for such shapes and the running
    process part; where there is none, None, and a clause on the process parts for which there is one."""
    from advisor.rules import section, shape_of

    others: list[str] = []
    for table, rule in found:
        try:
            asked = shape_of(rule, axes)
            if asked is not None and is_for(rule["process"], site):
                return ranges(site, table, section(rule, *asked, table["kernel"]), []), ""
            others += [] if asked is None else [start_with(rule["process"])]
        except Exception:  # whatever a file brings, a server goes on with the default choice
            continue
    words = " or ".join(dict.fromkeys(others))
    return None, f"; a rule for such shapes was learned for another process part: {words}" if words else ""

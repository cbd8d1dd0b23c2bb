"""Read a deployment table as plain data, and refuse one that cannot be trusted.

The lookup answers from this plain data; `advisor.policy.store` turns it into records. A table is trusted when it is
strict JSON of a major version this reader knows, its content still has the digest in `table_id` (an edited file does
not), and its rows make sense: n ascending, no n in two rows, times finite, above zero and in their order.
Standard library only, and no `typing` at run time: the hot path imports this module.
"""

from __future__ import annotations

import os

from advisor import fastjson
from advisor.errors import BadInput, Missing, SchemaError
from advisor.sources import short_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

MAJOR = 1
"""Newest major version of `advisor.table` that this reader knows."""

SUFFIX = ".table.json"

LARGEST = 64 << 20
"""Bytes of the largest file that is read: a table of a thousand rows has one. A server must not choke on more."""

CARRIED = ("PUBLISHED", "TRANSFERRED", "MODELLED")
"""What `basis` of a section may say; absent: it was measured on the machine that the table is for."""

_AGAIN = "tune again, or import the table again"


def content_id(document: Json) -> str:
    """Twelve hex digits that name a table's content: all of it but `schema` and `table_id` itself."""
    content = {key: value for key, value in document.items() if key not in ("schema", "table_id")}
    return short_hash(fastjson.dumps(content).encode())


def names(folder: str) -> tuple[str, ...]:
    """Paths of the tables in a folder, sorted; none when the folder is not there or cannot be read."""
    try:
        found = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return ()
    return tuple(os.path.join(folder, name) for name in found)


def read_json(path: str) -> Json:
    """The object in a strict JSON file.

    Raises:
        Missing: no such file.
        BadInput: it cannot be read, is not JSON, holds NaN or Infinity, or is no object.
    """
    try:
        _check_file(path)
        with open(path, "rb") as file:
            raw = file.read()
        document = fastjson.loads(raw.decode("utf-8"))
        if b"\\ud" in raw or b"\\uD" in raw:
            _check_text(document)
    except FileNotFoundError:
        raise Missing("the file must be there", got=path) from None
    except BadInput:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} must be a readable JSON file", next_step=str(error)) from None
    if not isinstance(document, dict):
        raise BadInput(f"{path} must hold a JSON object")
    return document


def _check_text(document: object) -> None:
    """Refuse half of a surrogate pair, which JSON can name and no text file can hold."""
    import json

    json.dumps(document, ensure_ascii=False).encode("utf-8")  # its error is a ValueError


def _check_file(path: str) -> None:
    """Refuse what cannot be read to its end: reading a pipe would wait for ever."""
    found = os.stat(path)
    if found.st_mode & 0o170000 != 0o100000:  # the bits of a regular file; `stat` would cost an import
        raise BadInput(f"{path} must be a readable JSON file", got="a folder, a pipe or a device")
    if found.st_size > LARGEST:
        raise BadInput(f"{path} is too large to be read", got=f"{found.st_size} bytes", allowed=f"{LARGEST} bytes")


def read_table(path: str) -> Json:
    """A table's plain data, checked.

    Args:
        path: a `<kernel>.table.json`.

    Returns:
        The whole document, unknown fields included.

    Raises:
        Missing, BadInput, SchemaError: see the module's first lines.
    """
    document = read_json(path)
    check_schema(document, path)
    if document.get("table_id") != content_id(document):
        raise BadInput(f"{path} was changed after it was written", got=document.get("table_id"), next_step=_AGAIN)
    check_table(document)
    return document


def check_schema(document: Json, path: str) -> None:
    """Refuse another artefact and a newer major version.

    Raises:
        SchemaError: with the schema found.
    """
    found = document.get("schema")
    name, _, version = str(found).partition("/")
    major = version.split(".")[0]
    if name != "advisor.table" or not major.isdecimal():
        raise SchemaError(f"{path} must be an advisor table", got=found, allowed=f"advisor.table/{MAJOR}.0")
    if int(major) > MAJOR:
        raise SchemaError(
            f"{path} was written by a newer advisor", got=found, allowed=f"up to major {MAJOR}", next_step="upgrade"
        )


def check_table(document: Json) -> None:
    """Refuse a table whose fields are absent, of the wrong kind, or contradict each other.

    Raises:
        BadInput: naming the place and the rule.
    """
    for key in ("kernel", "hardware_id", "limits_id"):
        _need(isinstance(document.get(key), str), key, "text", document.get(key))
    _need(isinstance(document.get("environment"), dict), "environment", "an object", document.get("environment"))
    sections = document.get("sections")
    if not isinstance(sections, list) or not sections:
        raise BadInput("sections must be a list with at least one", got=sections, next_step=_AGAIN)
    for index, section in enumerate(sections):
        try:
            _check_section(section)
        except BadInput:
            raise
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise BadInput(f"sections[{index}] has a missing or misshapen field", got=str(error)) from None


def _need(good: bool, where: str, rule: str, got: object) -> None:
    if not good:
        raise BadInput(f"{where} must be {rule}", got=got, next_step=_AGAIN)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_section(section: Json) -> None:
    for key in ("dtype", "regime"):
        _need(isinstance(section[key], str), key, "text", section[key])
    _need(all(_whole(v, 0) for v in section["shape"].values()), "shape", "whole numbers", section["shape"])
    process = section["process"]
    if process is not None:
        _need(isinstance(process["wait_policy"], str), "wait_policy", "text", process)
        spin = process["spin"]
        _need(spin is None or _whole(spin, 0), "spin", "a whole number or null", spin)
    tuned = section["tuned_n"]
    _need(bool(tuned) and all(_whole(n, 1) for n in tuned), "tuned_n", "whole numbers of at least 1", tuned)
    _need(tuned == sorted(set(tuned)), "tuned_n", "ascending", tuned)
    _check_rows(section["rows"], tuned)
    for other in section.get("alternatives") or ():
        _need(isinstance(other["objective"], str), "objective", "text", other["objective"])
        if other["rows"]:
            _check_rows(other["rows"], tuned)
    wins = section.get("wins") or {}
    _need(all(isinstance(found, list) for found in wins.values()), "wins", "lists of n", wins)
    check_choice(section["default"])
    _check_points(section["default_points"])
    _check_basis(section)
    heldout = section.get("heldout")
    if heldout is not None:
        _need(_time(heldout["worst"]) and heldout["worst"] >= 1, "heldout.worst", "at least 1", heldout["worst"])


def _check_basis(section: Json) -> None:
    _check_origin(section)
    for row in section["rows"]:
        _check_origin(row)
        told = row.get("published") or ()
        _need(all(_whole(one["n"], 1) and _time(one["time_ns"]) for one in told), "published", "times at n", told)


def _check_origin(told: Json) -> None:
    """What a section or a row says of where it was carried over from."""
    basis, origin = told.get("basis"), told.get("origin") or {}
    _need(basis is None or basis in CARRIED, "basis", f"one of {', '.join(CARRIED)}", basis)
    _need(all(isinstance(name, str) for name in origin.get("machines") or ()), "origin.machines", "names", origin)
    regret = origin.get("validated_regret")
    _need(regret is None or (_time(regret) and regret >= 1), "origin.validated_regret", "null or at least 1", regret)


def _check_rows(rows: list[Json], tuned: list[int]) -> None:
    reached = tuned[0] - 1
    for row in rows:
        low, high = row["low"], row["high"]
        _need(_whole(low, 1) and _whole(high, 1) and low <= high, "row", "low <= high, whole numbers", (low, high))
        _need(low == reached + 1, "rows", "in order, each n in exactly one row", (reached, low))
        reached = high
        _need(isinstance(row["depends"], list), "depends", "a list", row["depends"])
        check_choice(row["choice"])
        _check_points(row["points"])
    _need(reached == tuned[-1], "rows", "one range from the first to the last tuned n", reached)


def check_choice(choice: Json) -> None:
    """Refuse a choice whose fields are of the wrong kind.

    Raises:
        BadInput: naming the field.
    """
    build, team, process = choice["build"], choice["team"], choice["process"]
    for key in ("variant", "source_hash", "compiler", "flags"):
        _need(isinstance(build[key], str), key, "text", build[key])
    _need(isinstance(build["knobs"], dict), "knobs", "an object", build["knobs"])
    if team is not None:
        _need(_whole(team["threads"], 1), "threads", "a whole number of at least 1", team["threads"])
        _need(isinstance(team["placement"], str), "placement", "text", team["placement"])
    if process is not None:
        _need(isinstance(process["runtime"], str), "runtime", "text", process["runtime"])


def _time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


def _check_points(points: list[Json]) -> None:
    """All points in few passes: this is most of what loading a table costs."""
    _need(isinstance(points, list), "points", "a list", points)
    order = [point["n"] for point in points]
    _need(all(_whole(n, 1) for n in order), "point.n", "a whole number of at least 1", order)
    _need(order == sorted(set(order)), "points", "in the order of n, each n once", order)
    raced = {type(point["raced"]) for point in points}
    _need(raced <= {bool}, "point.raced", "true or false", points)
    told = [point["pools"] for point in points if "pools" in point]
    good = all(isinstance(one, (list, tuple)) and set(map(type, one)) <= {str} for one in told)
    _need(good, "point.pools", "a list of texts", told)
    times: list[float] = []
    crossed = False
    for summary in [point["summary"] for point in points] + [p["stolen"] for p in points if p.get("stolen")]:
        low, high = summary["ci95_ns"]
        times += (summary["p25_ns"], summary["median_ns"], summary["mean_ns"], summary["p99_ns"], low, high)
        crossed = crossed or low > high or summary["p25_ns"] > summary["p99_ns"]
    good = set(map(type, times)) <= {int, float} and (not times or (min(times) > 0 and max(times) < float("inf")))
    _need(good, "a time", "finite and above zero", times)
    _need(not crossed, "a time", "of the order p25, p99, with the ends of an interval in order", times)

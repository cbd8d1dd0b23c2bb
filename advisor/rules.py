"""Walk the decision rules of a table: what to take for a shape that has no rows of its own, beside shapes that have.

A rule is a binary tree as plain data, learned by `advisor.policy.rule`. For one shape it is turned into ranges of n
when the shape is first asked for, so that a lookup stays one bisection. Standard library only and no `typing` at run
time; loaded only where a table has rules.
"""

from __future__ import annotations

from functools import partial
from math import isfinite, log2
from struct import pack, unpack

from advisor.tablefile import check_choice
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]
    Piece = tuple[int, int, int]

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

OF_N = ("n", "volume")
"""Features that grow with n; all others are fixed by the shape."""

MOST_NODES = 255
"""A larger tree is refused."""


def feature(name: str, shape: Json, dtype: str, n: int) -> float:
    """One feature of a problem, as the trees are learned on it: in single precision.

    Args:
        name: n; volume (n times all entries of the shape); tasks (batch times heads); group (heads over KV heads);
            dtype_bytes; else an entry of the shape. All but dtype_bytes as log2, -1 where the entry is 0.

    Raises:
        KeyError: no such feature or entry.
    """
    if name == "dtype_bytes":
        value = float(BYTES[dtype])
    elif name == "n":
        value = log2(n)
    elif name == "volume":
        value = log2(n) + sum(log2(entry) for entry in shape.values() if entry > 0)
    elif name == "tasks":
        value = log2(shape["batch"] * shape["heads"])
    elif name == "group":
        value = log2(shape["heads"] / shape["kv_heads"])
    else:
        value = log2(shape[name]) if shape[name] > 0 else -1.0
    return float(unpack("f", pack("f", value))[0])


def walk(rule: Json, shape: Json, dtype: str, n: int) -> int:
    """The index of the choice that a rule takes for one problem."""
    nodes, at = rule["nodes"], 0
    while "leaf" not in nodes[at]:
        node = nodes[at]
        small = feature(rule["features"][node["feature"]], shape, dtype, n) <= node["threshold"]
        at = node["left"] if small else node["right"]
    return int(nodes[at]["leaf"])


def pieces(rule: Json, shape: Json, dtype: str) -> list[Piece]:
    """(low, high, choice) of a shape: the rule as ranges of n, both ends included; the same that `walk` says."""
    found: list[Piece] = []
    for low, high, leaf in _pieces(rule, (shape, dtype), 0, rule["low"], rule["high"]):
        same = bool(found) and found[-1][2] == leaf
        found.append((found.pop()[0] if same else low, high, leaf))
    return found


def _pieces(rule: Json, asked: tuple[Json, str], at: int, low: int, high: int) -> list[Piece]:
    node = rule["nodes"][at]
    if low > high:
        return []
    if "leaf" in node:
        return [(low, high, node["leaf"])]
    name, threshold = rule["features"][node["feature"]], node["threshold"]
    last = _last(name, asked, threshold, low, high)
    return [
        *_pieces(rule, asked, node["left"], low, last),
        *_pieces(rule, asked, node["right"], last + 1, high),
    ]


def _last(name: str, asked: tuple[Json, str], threshold: float, low: int, high: int) -> int:
    """The last n of a range with the feature at most at the threshold; low - 1 where there is none."""
    shape, dtype = asked
    if name not in OF_N:
        return high if feature(name, shape, dtype, low) <= threshold else low - 1
    below, above = low - 1, high + 1
    while above - below > 1:
        middle = (below + above) // 2
        if feature(name, shape, dtype, middle) <= threshold:
            below = middle
        else:
            above = middle
    return below


# --- a rule as a section ---


def section(rule: Json, shape: Json, dtype: str, kernel: str) -> Json:
    """The section that a rule makes for one shape; nobody measured its rows.

    Rows of a choice that does not exist at this shape say so in `unusable`, and the section does of its default.

    Raises:
        KeyError, ValueError: the rule has no use for the shape.
    """
    from advisor.usable import stretches, unusable

    told = rule.get("variants") or []
    because = [partial(unusable(kernel, one["build"], told), shape, dtype) for one in rule["choices"]]
    rows = [
        {**_row(rule, low, high, leaf), **({"unusable": why} if why else {})}
        for first, last, leaf in pieces(rule, shape, dtype)
        for low, high, why in stretches(first, last, because[leaf])
    ]
    no_default = unusable(kernel, rule["default"]["build"], told)
    ends = [no_default(shape, dtype, n) for n in (rule["low"], rule["high"])]
    regret, shapes = rule["validated_regret"], rule["shapes"]
    known = "" if regret is None else f"; each left out in turn, it was {regret - 1:.1%} above the best"
    origin = {
        "rung": "rule",
        "validated_regret": regret,
        "why": f"a rule learned from {many(shapes, 'other shape')} of this machine{known}",
    }
    made = {"dtype": dtype, "shape": shape, "regime": rule["regime"], "process": rule["process"], "rows": rows}
    made |= {"tuned_n": sorted({rule["low"], rule["high"]}), "default": rule["default"], "default_points": []}
    made |= {"default_unusable": next(filter(None, ends), "")}
    return {**made, "heldout": None, "basis": "INTERPOLATED", "origin": origin, "objective": rule["objective"]}


def _row(rule: Json, low: int, high: int, leaf: int) -> Json:
    return {"low": low, "high": high, "choice": rule["choices"][leaf], "points": [], "depends": rule["depends"]}


def shape_of(rule: Json, given: Json) -> tuple[Json, str] | None:
    """Shape and dtype of a question, what is not given filled in where only one value was tuned.

    Returns:
        None where something is left open, or lies outside what the rule was learned from.
    """
    ends, dtypes = rule["axes"], rule["dtypes"]
    dtype = given.get("dtype", dtypes[0] if len(dtypes) == 1 else None)
    named = {name: value for name, value in given.items() if name not in ("dtype", "regime")}
    if dtype not in dtypes or given.get("regime", rule["regime"]) != rule["regime"] or set(named) - set(ends):
        return None
    shape = {}
    for name, (low, high) in sorted(ends.items()):
        value = named.get(name, low if low == high else None)
        if not isinstance(value, int) or not low <= value <= high:
            return None
        shape[name] = value
    return shape, str(dtype)


# --- checking ---


def flaw(rule: Json) -> str:
    """What is wrong with a rule, in words; the empty text where it can be walked."""
    try:
        _check(rule)
        shape = {name: ends[0] for name, ends in rule["axes"].items()}
        pieces(rule, shape, rule["dtypes"][0])
    except Exception as error:  # whatever a file brings, a server goes on
        return f"{type(error).__name__}: {error}"
    return ""


def _check(rule: Json) -> None:
    nodes, choices, low, high = rule["nodes"], rule["choices"], rule["low"], rule["high"]
    if not (isinstance(nodes, list) and 0 < len(nodes) <= MOST_NODES):
        raise ValueError(f"a rule has 1 to {MOST_NODES} nodes")
    for at, node in enumerate(nodes):
        if "leaf" in node:
            good = _index(node["leaf"], 0, len(choices))
        else:  # children come after their parent, so that no walk goes on for ever
            good = _index(node["feature"], 0, len(rule["features"])) and isfinite(node["threshold"])
            good = good and all(_index(node[side], at + 1, len(nodes)) for side in ("left", "right"))
        if not good:
            raise ValueError(f"node {at} makes no sense")
    if not (_index(low, 1, high + 1) and _index(high, 1, 1 << 62) and rule["dtypes"]):
        raise ValueError("a rule has an n from low to high, and a dtype")
    if not _index(rule["wins"], 0, 1 << 62):
        raise ValueError("wins is a count")
    regret = rule["validated_regret"]
    if regret is not None and not 1 <= regret < float("inf"):
        raise ValueError("validated_regret is null or at least 1")
    for choice in (*choices, rule["default"]):
        check_choice(choice)
    for one in rule.get("variants") or []:
        texts = [one["variant"], one["source_hash"], *one["dtypes"], *one["valid"]]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a variant has names, dtypes and expressions")


def _index(value: object, least: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end

"""Whether a choice exists at a shape that nobody tuned: the conditions of its variant's header, evaluated.

A rule carries them for the variants of its choices; for a rule that does not, the header of that very source is read
where this package has it. Standard library only; loaded only where a rule answers.
"""

from __future__ import annotations

from advisor.errors import AdvisorError
from advisor.kernels.expressions import evaluate
from advisor.ranges import here_path
from advisor.rules import BYTES
from advisor.sources import source_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]


def conditions(kernel: str, build: Json, told: list[Json]) -> Json | None:
    """What must hold for a build to exist: `dtypes`, and `valid` with expressions over shape, n and knobs.

    Args:
        kernel: its name.
        build: of a choice.
        told: what a rule carries of its variants.

    Returns:
        None where neither the rule nor this package knows that variant in that version.
    """
    for one in told:
        if (one["variant"], one["source_hash"]) == (build["variant"], build["source_hash"]):
            return one
    return _at_hand(kernel, build)


def _at_hand(kernel: str, build: Json) -> Json | None:
    from advisor.kernels.header import read_variant

    path = here_path(kernel, build["variant"])
    try:
        if path is None or source_hash(path) != build["source_hash"]:
            return None
        variant = read_variant(path, kernel)
    except (AdvisorError, OSError):
        return None
    return {"dtypes": variant.dtypes, "valid": variant.valid}


def unusable(kernel: str, build: Json, told: list[Json]) -> Callable[[Json, str, int], str]:
    """A function of shape, dtype and n: why a build does not exist there, or the empty text."""
    known, name = conditions(kernel, build, told), build["variant"]

    def why(shape: Json, dtype: str, n: int) -> str:
        if known is None:
            return f"nothing here tells whether {name} can be used at this shape"
        if dtype not in known["dtypes"]:
            return f"{name} is not for {dtype}"
        names = {**build["knobs"], **shape, "n": n, "item_bytes": BYTES[dtype]}
        try:
            broken = next((rule for rule in known["valid"] if not evaluate(rule, names)), None)
        except AdvisorError as error:
            return f"what {name} needs cannot be told ({error})"
        return "" if broken is None else f"{name} needs {broken}"

    return why


def stretches(low: int, high: int, why: Callable[[int], str]) -> list[tuple[int, int, str]]:
    """(low, high, why not) of the parts of a range of n in which a build does or does not exist, in order.

    Headers bound n from above or below, so that it exists between two n at which it does; where it does at one end
    alone, the edge is found by halving.

    Args:
        low, high: the range, both ends included.
        why: of an n: why the build does not exist there, or the empty text.
    """
    first, last = why(low), why(high)
    if bool(first) == bool(last):
        return [(low, high, first)]
    below, above = low, high
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if bool(why(middle)) == bool(first) else (below, middle)
    return [(low, below, first), (above, high, last)]

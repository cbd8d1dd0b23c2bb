"""The launches of a CUDA file: what its header says of them, and whether the source has the kernels it names."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from advisor.errors import BadInput
from advisor.kernels.expressions import names_in

__all__ = ["Launch", "Step", "check_entries", "check_key", "take_launch"]

NAME = re.compile(r"[a-z_][A-Za-z0-9_]*\Z")
C_NAME = re.compile(r"[A-Za-z_]\w*\Z")


class Step(NamedTuple):
    """A further kernel that a call launches after the first: its entry, and expressions as in Launch."""

    symbol: str
    grid: tuple[str, ...]
    block: str
    shared: str


class Launch(NamedTuple):
    """How a CUDA entry is launched: expressions over dims, knobs, item_bytes, real_bytes, and `derived` one by one.

    Attributes:
        derived: (name, expression), each may use those before it; handed to the entry as int after the run knobs.
        grid: one to three extents.
        block: threads of a block.
        shared: bytes of dynamic shared memory.
        workspace: bytes of global scratch.
        zeros: bytes at its start that are zero before a call, and must be zero after it.
        then: kernels of the same file launched after the first, in this order, on its stream, with its arguments.
    """

    derived: tuple[tuple[str, str], ...]
    grid: tuple[str, ...]
    block: str
    shared: str
    workspace: str
    zeros: str
    then: tuple[Step, ...] = ()


_LAUNCH: dict[str, Any] = {
    "derived": {}, "grid": None, "block": None, "shared": "0", "workspace": "0", "zeros": "0", "then": [],
}  # fmt: skip
"""Keys of a CUDA header that no other has, with the values of those that may be left out."""

_STEP: dict[str, Any] = {"symbol": None, "grid": None, "block": None, "shared": "0"}
"""The same for each entry of `then`."""


def take_launch(head: dict[str, Any], path: str) -> Launch:
    """Take the keys of the launch out of a header.

    Raises:
        BadInput: one is missing or of the wrong kind.
    """
    found = {key: head.pop(key, default) for key, default in _LAUNCH.items()}
    derived = found["derived"]
    check_key(isinstance(derived, dict), path, "derived", derived, "name -> expression")
    for name in derived:
        check_key(NAME.match(name) is not None, path, "derived", name, "small letters, digits, _")
    single = {key: found[key] for key in ("block", "shared", "workspace", "zeros")}
    for key, text in (*derived.items(), *single.items()):
        _check_expression(path, key, text)
    return Launch(tuple(derived.items()), _grid(path, found["grid"], "grid"), **single, then=_then(path, found["then"]))


def _then(path: str, listed: Any) -> tuple[Step, ...]:
    check_key(isinstance(listed, list), path, "then", listed, "a list of launches")
    return tuple(_step(path, one, f"then[{place}]") for place, one in enumerate(listed))


def _step(path: str, data: Any, key: str) -> Step:
    known = isinstance(data, dict) and set(data) <= set(_STEP)
    check_key(known, path, key, data, f"an object of {', '.join(_STEP)}")
    found = {**_STEP, **data}
    symbol = found["symbol"]
    check_key(isinstance(symbol, str) and C_NAME.match(symbol) is not None, path, f"{key}.symbol", symbol, "a C name")
    for name in ("block", "shared"):
        _check_expression(path, f"{key}.{name}", found[name])
    return Step(symbol, _grid(path, found["grid"], f"{key}.grid"), found["block"], found["shared"])


def _grid(path: str, grid: Any, key: str) -> tuple[str, ...]:
    check_key(isinstance(grid, list) and 1 <= len(grid) <= 3, path, key, grid, "one to three expressions")
    for text in grid:
        _check_expression(path, key, text)
    return tuple(grid)


def _check_expression(path: str, key: str, text: Any) -> None:
    check_key(isinstance(text, str), path, key, text, "an expression")
    names_in(text)


def check_key(good: bool, path: str, key: str, got: object, allowed: str) -> None:
    """Refuse what a header says of a key.

    Raises:
        BadInput: where it is not `good`.
    """
    if not good:
        raise BadInput(
            f"{os.path.basename(path)}: the header's {key} must hold",
            got=got,
            allowed=allowed,
            next_step=f"edit {path}",
        )


def check_entries(path: str, symbols: tuple[str, ...], code: str) -> None:
    """Every kernel that is launched must be an entry of the source, and take as many arguments as the first.

    Args:
        path: of the source.
        symbols: the entries in the order of their launches.
        code: the source without its comments.

    Raises:
        BadInput: one is not there, or would be handed arguments that are not its own.
    """
    counts = {}
    for symbol in symbols:
        defined = re.search(rf'extern\s+"C"\s+__global__[^;{{]*\b{symbol}\s*\(([^{{;]*)\)', code)
        wanted = 'an `extern "C" __global__ void` of that name'
        check_key(defined is not None, path, "symbol", symbol, wanted)
        counts[symbol] = defined[1].count(",") if defined else 0
    other = next((symbol for symbol in symbols if counts[symbol] != counts[symbols[0]]), None)
    check_key(other is None, path, "then", other, f"kernels that take the arguments of {symbols[0]}")

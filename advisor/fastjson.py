"""Strict JSON by the interpreter's own C code, without the `json` package around it. Hot path.

`import json` brings `re` and `enum` and costs 8 ms, nearly half of what loading a policy may take. CPython's `json` is
a thin layer over the two functions of `_json` that are used here; where they are absent or have changed, `json` serves.
Both ways accept and write the same text, and a test compares them.
"""

from __future__ import annotations

from advisor.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _no_constant(name: str) -> object:
    raise BadInput("numbers in artefacts are finite", got=name)


class _Context:
    """What the C scanner asks a decoder for. Source: CPython, Modules/_json.c, scanner_new."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_no_constant)


def loads(text: str) -> Any:
    """The data of strict JSON text.

    Raises:
        BadInput: NaN or an infinity in it.
        ValueError: it is no JSON.
    """
    try:
        from _json import make_scanner

        scan = make_scanner(_Context())  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError):
        import json

        return json.loads(text, parse_constant=_no_constant)
    body = text.strip(" \t\n\r")
    try:
        data, end = scan(body, 0)
    except StopIteration as error:
        raise ValueError(f"no JSON value at character {error.value}") from None
    except SystemError:  # Python 3.11: the scanner looks for its error in json.decoder, which nobody has imported
        import json

        return json.loads(text, parse_constant=_no_constant)
    if end != len(body):
        raise ValueError(f"text after the JSON value, at character {end}")
    return data


def dumps(data: Any) -> str:
    """Canonical text of plain data: keys sorted, no white space, ASCII.

    Raises:
        ValueError: NaN or an infinity in it.
        TypeError: data that JSON has no form for.
    """
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder({}, _no_form, encode_basestring_ascii, None, ":", ",", True, False, False)
    except (ImportError, TypeError):
        import json

        return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return "".join(encode(data, 0))


def _no_form(value: object) -> Any:
    raise TypeError(f"JSON has no form for {type(value).__name__}")

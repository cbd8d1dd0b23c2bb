"""Records to JSON and back: the border between the program and its files.

Strict JSON: NaN and infinities are refused both ways. Files carry `schema: advisor.<artefact>/MAJOR.MINOR`. A newer
major is refused; unknown fields are kept in a record's `extra` and written again. Standard library only.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sys
import types
import typing
from typing import Any

from advisor.errors import BadInput, SchemaError
from advisor.records import Pairs

SCHEMAS = {"machine": (1, 0), "measurements": (1, 2), "table": (1, 1)}
"""Artefact -> the version this program writes."""


def schema_of(artefact: str) -> str:
    """The schema text of an artefact, for example `advisor.table/1.0`."""
    major, minor = SCHEMAS[artefact]
    return f"advisor.{artefact}/{major}.{minor}"


def check_schema(document: Any, artefact: str, source: str) -> None:
    """Refuse a document of another artefact or of a newer major version.

    Raises:
        SchemaError: with the schema found and the one this program reads.
    """
    found = document.get("schema") if isinstance(document, dict) else None
    want = schema_of(artefact)
    name, _, version = str(found).partition("/")
    if name != f"advisor.{artefact}":
        raise SchemaError(f"{source} must be an advisor {artefact} file", got=found, allowed=want)
    try:
        major = int(version.split(".")[0])
    except ValueError:
        raise SchemaError(f"{source} has an unreadable schema version", got=found, allowed=want) from None
    if major > SCHEMAS[artefact][0]:
        raise SchemaError(
            f"{source} was written by a newer advisor",
            got=found,
            allowed=f"up to {want}",
            next_step="upgrade advisor or tune again",
        )


def to_json(value: Any) -> Any:
    """Plain JSON data of a record: NamedTuples and Pairs become objects, tuples become lists."""
    if hasattr(value, "_fields"):
        kind: Any = type(value)
        hints = _hints(kind)
        data = {name: _encode(getattr(value, name), hints[name]) for name in value._fields if name != "extra"}
        return {**data, **dict(getattr(value, "extra", ()))}
    return _encode(value, Any)


def _encode(value: Any, hint: Any) -> Any:
    if hint == Pairs:
        return {key: _encode(item, Any) for key, item in value}
    if hasattr(value, "_fields"):
        return to_json(value)
    if isinstance(value, (tuple, list)):
        inner = typing.get_args(hint)
        return [_encode(item, inner[0] if len(inner) == 2 and inner[1] is ... else Any) for item in value]
    if isinstance(value, dict):
        return {str(key): _encode(item, Any) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput("numbers in artefacts are finite", got=value, next_step="write None for unknown")
    return value


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_json(cls: Any, data: Any, where: str = "") -> Any:
    """A record of class `cls` from plain JSON data.

    Args:
        cls: a NamedTuple class, or a type built of NamedTuples, tuples, Pairs, None and plain types.
        data: what `json.loads` gave.
        where: the path inside the document, for messages.

    Raises:
        BadInput: a field is missing or of the wrong type, or a number is not finite.
    """
    if cls is Any:
        return _freeze(data)
    if cls == Pairs:
        if not isinstance(data, dict):
            raise BadInput(f"{where or 'document'} must be an object", got=data)
        return tuple(sorted((str(k), _freeze(v)) for k, v in data.items()))
    if hasattr(cls, "_fields"):
        return _record(cls, data, where)
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else from_json(next(a for a in args if a is not type(None)), data, where)
    if origin is tuple:
        return _tuple(args, data, where)
    return _plain(cls, data, where)


def _record(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise BadInput(f"{where or cls.__name__} must be an object", got=data)
    hints, values = _hints(cls), {}
    for name in cls._fields:
        if name == "extra":
            values[name] = tuple(sorted((k, _freeze(v)) for k, v in data.items() if k not in hints and k != "schema"))
        elif name in data:
            values[name] = from_json(hints[name], data[name], f"{where}.{name}".lstrip("."))
        elif name not in cls._field_defaults:
            raise BadInput(f"{where or cls.__name__} needs the field {name}", got=sorted(data))
    return cls(**values)


def _tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise BadInput(f"{where} must be a list", got=data)
    if len(args) == 2 and args[1] is ...:
        return tuple(from_json(args[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(args) != len(data):
        raise BadInput(f"{where} must have {len(args)} elements", got=data)
    return tuple(from_json(arg, item, f"{where}[{i}]") for i, (arg, item) in enumerate(zip(args, data, strict=True)))


def _plain(cls: Any, data: Any, where: str) -> Any:
    good = isinstance(data, cls) or (cls is float and isinstance(data, int))
    if (
        not good
        or (isinstance(data, bool) and cls is not bool)
        or (isinstance(data, float) and not math.isfinite(data))
        or (cls is float and abs(data) > sys.float_info.max)
    ):
        raise BadInput(f"{where} must be {cls.__name__}", got=data)
    return data


def _freeze(data: Any) -> Any:
    """Plain data with lists as tuples, so that records stay hashable."""
    if isinstance(data, (list, tuple)):
        return tuple(_freeze(item) for item in data)
    return data


def dumps(record: Any, artefact: str | None = None, indent: int | None = None) -> str:
    """Strict JSON text of a record, with its schema first when `artefact` is given."""
    body = to_json(record)
    if artefact:
        body = {"schema": schema_of(artefact), **body}
    return json.dumps(body, allow_nan=False, ensure_ascii=False, indent=indent)


def _no_constant(name: str) -> Any:
    raise BadInput("numbers in artefacts are finite", got=name)


def loads(text: str, source: str = "document") -> Any:
    """Plain data of strict JSON text.

    Raises:
        BadInput: not JSON, or NaN or Infinity in it.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{source} must be JSON", got=f"{text[:60]}", next_step=str(error)) from error


def digest(record: Any) -> str:
    """Twelve hex digits that name a record's content: equal records, equal digests, on every machine."""
    text = json.dumps(to_json(record), sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]

"""Recorded tuning spaces in the community's T4 format: read what others measured, write what we measured.

One JSON object a file, plain or gzip: `results` has one entry a configuration with its raw run times, compile time and
`invalidity`. The reader is tolerant where files in the wild differ (missing fields, names of units, numbers as text,
failures told as text in place of a value); the writer writes what the published schema asks for.

Source: github.com/AutoTuningAssociation/autotuning_methodology, src/autotuning_methodology/schemas/T4.json; the files
of github.com/AutoTuningAssociation/benchmark_hub, which say `compilation` where the schema says `compilation_time`.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from advisor.errors import BadInput, Missing
from advisor.words import many

VERSION = "1.0.0"
"""The schema version that is written; any version is read."""

INVALIDITIES = ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
"""What became of a configuration, as the schema names it."""

CORRECT, CONSTRAINTS = "correct", "constraints"

COMPILE_KEYS = ("compilation", "compilation_time", "compile_time", "compile")
RUNS_KEYS = ("runtimes", "times", "runtime")
OVERHEAD_KEYS = ("framework", "validation", "data", "data_transfer", "kernel_overhead", "profiling_overhead")
"""What was spent on a configuration besides compiling and running; the search's own time is the searcher's."""

UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}
LONG_UNITS_MS = {"nanosec": 1e-6, "microsec": 1e-3, "millisec": 1.0, "milisec": 1.0, "sec": 1e3}
"""Units of time by their beginning; the published files write `miliseconds`."""


class Result(NamedTuple):
    """One configuration. `time_ms`: the mean of the runs, None for a failure; compile and overhead None if unknown."""

    configuration: dict[str, Any]
    invalidity: str
    time_ms: float | None
    runs_ms: tuple[float, ...] = ()
    compile_ms: float | None = None
    overhead_ms: float | None = None
    timestamp: str = ""


class Space(NamedTuple):
    """A file: whose kernel, on what, its results in the file's order, and notes on what was left out."""

    kernel: str
    device: str
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()


# --- reading ---


def read(path: str | os.PathLike[str]) -> Space:
    """A recorded space.

    Kernel and device come from the file's name, `KERNEL-DEVICE.T4.json.gz`; without a dash the folder names the kernel.
    A result without a configuration is left out with a note.

    Args:
        path: a T4 file, plain or gzip, whatever it is called.

    Raises:
        Missing: there is no such file.
        BadInput: it is no T4 file, names an unknown unit of time, or has no result that can be used.
    """
    name = os.fspath(path)
    document = _load(name)
    entries = document.get("results") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        kind = ", ".join(list(document)[:6]) if isinstance(document, dict) else type(document).__name__
        raise BadInput(
            f"{name} must be a T4 file: a JSON object with a list of results",
            got=kind,
            next_step="Kernel Tuner writes one with store_output_file" if _is_cache(document) else "",
        )
    metadata = document.get("metadata") if isinstance(document, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    scale = unit_ms(metadata.get("timeunit", "milliseconds"), name)
    results = [found for entry in entries if (found := _result(entry, scale, name)) is not None]
    if not results:
        raise BadInput(f"{name} must have a result with a configuration", got=many(len(entries), "result"))
    lost = len(entries) - len(results)
    notes = (f"{name}: {many(lost, 'result')} without a configuration left out",) if lost else ()
    kernel, device = _names(name)
    return Space(kernel, device or str(metadata.get("device") or ""), tuple(results), notes)


def _load(name: str) -> Any:
    try:
        with open(name, "rb") as file:
            raw = file.read()
    except FileNotFoundError as error:
        raise Missing("the recorded space must exist", got=name) from error
    except IsADirectoryError as error:
        raise BadInput("a T4 file must be a file", got=name) from error
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise BadInput(f"{name} must be JSON, plain or gzip", got=str(error)[:120]) from error


def _is_cache(document: Any) -> bool:
    """Whether this is Kernel Tuner's own cache file, which has other columns."""
    return isinstance(document, dict) and isinstance(document.get("cache"), dict)


def _names(path: str) -> tuple[str, str]:
    """Kernel and device, from the file's name or from its folder's."""
    stem = re.sub(r"(?i)([._-]t4)?(\.json)?(\.gz)?$", "", os.path.basename(path), count=1)
    kernel, dash, device = stem.partition("-")
    return (kernel, device) if dash else (os.path.basename(os.path.dirname(os.path.abspath(path))), stem)


def unit_ms(unit: object, where: str) -> float:
    """How many milliseconds a unit of time is; the empty text is a millisecond.

    Raises:
        BadInput: it is no unit of time.
    """
    text = str(unit if unit is not None else "").strip().lower()
    if not text:
        return 1.0
    long = (scale for name, scale in LONG_UNITS_MS.items() if text.startswith(name))
    found = UNITS_MS.get(text) or next(long, None)
    if found is None:
        raise BadInput(f"{where} must name a unit of time", got=unit, allowed="nano-, micro-, milliseconds, seconds")
    return found


def number(value: object) -> float | None:
    """A finite number, also one written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _result(entry: Any, scale: float, where: str) -> Result | None:
    """One entry; None when it has no configuration."""
    configuration = _configuration(entry.get("configuration")) if isinstance(entry, dict) else None
    if not configuration:
        return None
    times = entry.get("times")
    times = times if isinstance(times, dict) else {}
    runs = tuple(run * scale for run in _runs(times))
    invalidity = _invalidity(entry)
    measured = sum(runs) / len(runs) if runs else _measured(entry, scale, where)
    good = invalidity == CORRECT and measured is not None and measured > 0
    overheads = [found for key in OVERHEAD_KEYS if (found := number(times.get(key))) is not None]
    compiling = next((found for key in COMPILE_KEYS if (found := number(times.get(key))) is not None), None)
    return Result(
        configuration,
        invalidity if good or invalidity != CORRECT else "runtime",
        measured if good else None,
        runs,
        compiling * scale if compiling is not None else None,
        sum(overheads) * scale if overheads else None,
        str(entry.get("timestamp") or ""),
    )


def _configuration(data: Any) -> dict[str, Any] | None:
    """The parameters: an object, or KTT's list of names and values."""
    if isinstance(data, list):
        lowered = [{str(key).lower(): value for key, value in item.items()} for item in data if isinstance(item, dict)]
        data = {item["name"]: item["value"] for item in lowered if "name" in item and "value" in item}
    return {str(key): value for key, value in data.items()} if isinstance(data, dict) else None


def _runs(times: Mapping[str, Any]) -> list[float]:
    """The raw run times; those that are no positive numbers are no runs."""
    data: Any = next((times[key] for key in RUNS_KEYS if times.get(key) is not None), [])
    found = [number(value) for value in (data if isinstance(data, list) else [data])]
    return [run for run in found if run is not None and run > 0]


def _invalidity(entry: Mapping[str, Any]) -> str:
    """What became of it; without a word on that, `correctness` tells."""
    text = str(entry.get("invalidity") or CORRECT).strip().lower()
    text = CORRECT if text in ("valid", "none", "ok") else text
    return "correctness" if text == CORRECT and number(entry.get("correctness", 1)) == 0 else text


def _measured(entry: Mapping[str, Any], scale: float, where: str) -> float | None:
    """The time among the measurements: what the objective names if it is a time, else `time`; None without one."""
    listed = entry.get("measurements")
    named = {str(m.get("name")): m for m in listed if isinstance(m, dict)} if isinstance(listed, list) else {}
    found = next((named[key] for key in ("time", "runtime", *_objectives(entry)) if key in named), None)
    if found is None:
        return None
    unit = found.get("unit")
    value = found.get("value")
    values = [number(one) for one in (value if isinstance(value, list) else [value])]
    good = [one for one in values if one is not None]
    return sum(good) / len(good) * (unit_ms(unit, where) if unit else scale) if good else None


def _objectives(entry: Mapping[str, Any]) -> Sequence[str]:
    listed = entry.get("objectives")
    return [str(name) for name in listed] if isinstance(listed, list) else []


# --- writing ---


def document(results: Iterable[Result], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The T4 document of some results; times in milliseconds.

    Args:
        results: in the order they were measured.
        metadata: plain JSON data to put beside the unit of time: device, autotuner, environment.
    """
    return {
        "schema_version": VERSION,
        "metadata": {**metadata, "timeunit": "milliseconds"},
        "results": [_entry(result) for result in results],
    }


def _entry(result: Result) -> dict[str, Any]:
    """One result; compile time under both names in use."""
    times: dict[str, Any] = {"runtimes": list(result.runs_ms)}
    if result.compile_ms is not None:
        times |= {"compilation": result.compile_ms, "compilation_time": result.compile_ms}
    if result.overhead_ms is not None:
        times["framework"] = result.overhead_ms
    good = result.invalidity == CORRECT
    return {
        **({"timestamp": result.timestamp} if result.timestamp else {}),
        "configuration": dict(result.configuration),
        "times": times,
        "invalidity": result.invalidity,
        "correctness": 1 if good else 0,
        "measurements": [{"name": "time", "value": result.time_ms if good else result.invalidity, "unit": "ms"}],
        "objectives": ["time"],
    }


def write(path: str | os.PathLike[str], results: Iterable[Result], metadata: Mapping[str, Any]) -> None:
    """Write a T4 file, gzip when its name ends in `.gz`; a file of that name is replaced whole.

    Raises:
        BadInput: a number is not finite.
        OSError: it cannot be written.
    """
    try:
        raw = json.dumps(document(results, metadata), allow_nan=False).encode()
    except ValueError as error:
        raise BadInput("numbers in a T4 file are finite", got=str(error)) from error
    name = os.fspath(path)
    beside = f"{name}.{os.getpid()}.part"
    with open(beside, "wb") as file:
        file.write(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
    os.replace(beside, name)

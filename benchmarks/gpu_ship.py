"""Put what the part `tune` left into a folder of policies/: tables, and one packed log of all kernels.

    python benchmarks/gpu_ship.py DIR policies/nvidia-h200

A kernel's sessions in the folder's log make room for those of its new tuning; other kernels' tables and sessions stay.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from gpu_ground import LOG, POLICY

from advisor.errors import AdvisorError, BadInput


def log_lines(path: str) -> Iterator[str]:
    """The whole lines of a log, packed or not; none where there is no file."""
    if os.path.exists(path):
        reader = gzip.open if path.endswith(".gz") else open
        with reader(path, "rt", encoding="utf-8") as file:
            yield from (line for line in file if line.endswith("\n"))


def kernels_of(lines: Iterable[str]) -> dict[str, str]:
    """Session -> the kernel that it measured, as far as its trials and verdicts tell."""
    found = {}
    for record in map(json.loads, lines):
        problem = (record.get("measurement") or record.get("verdict") or {}).get("problem")
        if problem:
            found[record["session"]] = problem["kernel"]
    return found


def merged(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The lines of a log with another's behind them; sessions of kernels that both measured are the other's alone."""
    before, fresh = kernels_of(old), set(kernels_of(new).values())
    return [line for line in old if before.get(json.loads(line).get("session")) not in fresh] + list(new)


def ship(folder: str, target: str) -> list[str]:
    """Do it; what came, a line each.

    Raises:
        BadInput: the folder has no tables, or they are of another machine.
    """
    place = os.path.join(folder, POLICY)
    tables = sorted(glob.glob(os.path.join(place, "*.table.json")))
    if not tables:
        raise BadInput("a tuning must have left tables", got=place)
    ids = [hardware(os.path.join(where, "machine.json")) for where in (place, target)]
    if len(set(ids)) > 1:
        raise BadInput("tables go to the folder of their machine", got=ids[0], allowed=ids[1])
    packed = os.path.join(target, f"{LOG}.gz")
    new = [line for path in sorted(glob.glob(os.path.join(place, f"*.{LOG}"))) for line in log_lines(path)]
    lines = merged(list(log_lines(packed)), new)
    with gzip.GzipFile(packed, "wb", compresslevel=9, mtime=0) as file:
        file.write("".join(lines).encode())
    for path in tables:
        shutil.copyfile(path, os.path.join(target, os.path.basename(path)))
    size = f"{os.path.getsize(packed) / 1024:.0f} KiB"
    return [*(os.path.basename(path) for path in tables), f"{LOG}.gz: {len(lines)} records, {size}"]


def hardware(path: str) -> str:
    """The id of the hardware of a machine.json."""
    with open(path, encoding="utf-8") as file:
        return str(json.load(file)["hardware_id"])


def main(words: Sequence[str] | None = None) -> int:
    """Ship, and say what."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("target")
    asked = parser.parse_args(words)
    try:
        print("\n".join(ship(asked.folder, asked.target)))
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

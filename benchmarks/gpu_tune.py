"""The part `tune`: the product itself, `advisor tune --device`, once a shape; what it left is kept for policies/."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gpu_ground import DEVICE, LOG, POLICY, REGIME, SHAPES, conditions_of
from kernel_race import Refused

HOME = "home"
"""Folder inside the benchmark's own that is ADVISOR_HOME for the product."""

LATE_S, END_S = 60.0, 30.0
"""So long after its budget the product is told to stop, and so long it has to save what it has."""

DONE, PARTLY = 0, 3
"""Exit statuses of the product that leave a table."""


def command(label: str, sizes: Sequence[int], budget_s: float) -> list[str]:
    """The product's command line for a shape."""
    dtype, shape = SHAPES[label]
    options = {"device": DEVICE, "kernel": "decode", "dtype": dtype, "regime": REGIME, "n": ",".join(map(str, sizes))}
    options |= {name.replace("_", "-"): str(value) for name, value in shape.items()}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [sys.executable, "-m", "advisor.cli", "tune", *words, "--budget", f"{budget_s:.0f}s", "--resume", "--json"]


def measure(folder: str, label: str, sizes: Sequence[int], budget_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tune a shape. Raises Refused where it left no table.

    Returns:
        What the product said, and the conditions that its last trial found.
    """
    variables = {**os.environ, "ADVISOR_HOME": os.path.join(folder, HOME)}
    status, out, err = run(command(label, sizes, budget_s), variables, budget_s + LATE_S)
    with open(os.path.join(folder, f"tune-{label.replace(':', '-')}.txt"), "w", encoding="utf-8") as file:
        file.write(f"{out}\n{err}")
    if status not in (DONE, PARTLY):
        raise Refused(f"advisor tune ended with status {status}: {err[-600:]}")
    keep(folder)
    said = {"status": status, "budget_s": budget_s, "said": last_object(out)}
    return said, conditions_of(os.path.join(folder, POLICY, LOG))


def run(words: Sequence[str], variables: dict[str, str], limit_s: float) -> tuple[int, str, str]:
    """Exit status, output, errors; told to stop at the limit, as by Ctrl-C, and ended later."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=variables, **pipes) as started:  # type: ignore[call-overload]
        try:
            out, err = started.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            started.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(END_S)
            started.kill()
            out, err = started.communicate()
    return started.returncode, out, err


def last_object(text: str) -> Any:
    """The JSON object or list that a text is, or that its last line is; None where there is none."""
    for piece in (text, *text.splitlines()[-1:]):
        with contextlib.suppress(ValueError):
            return json.loads(piece)
    return None


WHICH_CARD = ("uuid", "slice_of", "pci")
"""Fields of a GPU that tell which card of its kind it was: no lookup needs them, and nobody else is told."""

_TOLD = re.compile(rf'("(?:{"|".join(WHICH_CARD)})": ?)"[^"]*"')


def keep(folder: str) -> None:
    """Copy what the newest table's folder holds, table, log, machine.json, without what tells one card of a kind from
    another."""
    found = glob.glob(os.path.join(folder, HOME, "**", "decode.table.json"), recursive=True)
    if found:
        place, kept = os.path.dirname(max(found, key=os.path.getmtime)), os.path.join(folder, POLICY)
        os.makedirs(kept, exist_ok=True)
        for path in glob.glob(os.path.join(place, "*.json*")):
            if not path.endswith(".lock"):
                with open(path, encoding="utf-8") as file, open(_into(kept, path), "w", encoding="utf-8") as copy:
                    copy.writelines(anonymous(line) for line in file)


def anonymous(text: str) -> str:
    """JSON text with null for each value of WHICH_CARD; all else stays as it is, to the byte, so ids hold."""
    return _TOLD.sub(r"\1null", text)


def _into(folder: str, path: str) -> str:
    return os.path.join(folder, os.path.basename(path))

"""All kernels of a model in one budget: which sizes have an answer, how long it took, what one setting for all loses.

    python benchmarks/model.py benchmarks/models/llama-1b.json --budget 300

Runs `advisor tune --kernel all --model-config` in a folder of its own, so that nothing of an earlier run counts, then
`advisor recommend --model-config`. Exit status 1 where a kernel has no table, or the budget was passed by over 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from advisor import render

OVER = 1.1
"""Of the budget, what the whole command may take."""


def ran(home: str, *words: str) -> tuple[Any, float]:
    """What a command said in JSON, and its wall time in seconds. Raises SystemExit where it said nothing."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "advisor.cli", *words, "--json"]
    variables = {**os.environ, "ADVISOR_HOME": home}
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - begun


def measured(config: str, budget_s: float, n: int) -> dict[str, Any]:
    """What came of a model: `kernels` (name, answered n, missing, seconds), `seconds` in all, `single`."""
    with tempfile.TemporaryDirectory() as home:
        budget = ("--budget", f"{budget_s:g}s")
        results, seconds = ran(home, "tune", "--kernel", "all", "--model-config", config, *budget)
        told, _ = ran(home, "recommend", "--n", str(n), "--model-config", config)
    kernels = [
        {
            "kernel": one["kernel"],
            "answered": [best["n"] for best in one["best"]],
            "missing": one["missing"],
            "seconds": one["seconds"]["total"],
        }
        for one in results
    ]
    return {"model": config, "budget_s": budget_s, "seconds": seconds, "kernels": kernels, "single": told["single"]}


def shown(found: dict[str, Any]) -> str:
    """The same for people."""
    cells = [
        [one["kernel"], ", ".join(map(str, one["answered"])) or "-", f"{one['seconds']:.0f} s", one["missing"][:80]]
        for one in found["kernels"]
    ]
    single = found["single"]
    loss = "nothing to compare" if single is None else f"{single['threads']} threads lose {single['loss']:.1%}"
    total = f"{found['seconds']:.0f} s of a budget of {found['budget_s']:g} s; one setting: {loss}"
    return f"{render.rows(('kernel', 'answered n', 'time', 'missing'), cells, right=9)}\n{total}"


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    parser.add_argument("--n", type=int, default=4096, help="size that the single setting is for")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measured(asked.config, asked.budget, asked.n)
    print(json.dumps(found, indent=2) if asked.json else shown(found))
    late = found["seconds"] > OVER * asked.budget
    sys.exit(int(late or not all(one["answered"] for one in found["kernels"])))


if __name__ == "__main__":
    main()

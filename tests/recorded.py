"""Made-up recorded spaces in the T4 format, and where real ones are."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np

REAL = Path(__file__).resolve().parents[2] / "shared" / "spaces"


def entry(configuration, runs, **others):
    """One result as the community's files have it."""
    times = {"compilation": 100.0, "framework": 5.0, "search_algorithm": 99.0, "runtimes": runs}
    return {"configuration": configuration, "times": times, "invalidity": "correct", "correctness": 1, **others}


def failure(configuration, invalidity="runtime"):
    return {
        "configuration": configuration,
        "times": {"compilation": 100.0},
        "invalidity": invalidity,
        "correctness": 0,
        "measurements": [{"name": "time", "value": "RuntimeFailedConfig", "unit": ""}],
        "objectives": ["time"],
    }


def small(seed=0, slower=1.0):
    """48 configurations with a structure to learn, 4 runs each, some of them failed."""
    chance = np.random.default_rng(seed)
    found = []
    for block, tile, use in itertools.product((16, 32, 64, 128, 256, 512), (1, 2, 4, 8), (0, 1)):
        configuration = {"block": block, "tile": tile, "use": use}
        if block == 512 and tile == 8:
            found.append(failure(configuration))
            continue
        time = slower * (1 + abs(np.log2(block * tile / 256)) + 0.3 * use)
        found.append(entry(configuration, [float(time * (1 + 0.02 * chance.random())) for _ in range(4)]))
    return {"schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}, "results": found}


def put(path, document):
    path.write_text(json.dumps(document), "utf-8")
    return path

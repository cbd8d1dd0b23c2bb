"""Run by the interpreter that has Kernel Tuner: `tune_kernel_tuner_child.py FOLDER` does the job that lies there."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from typing import Any

import numpy as np

PAGE = 4096


def on_a_page(array: Any) -> Any:
    """A copy that starts on a page, as the entries may expect it."""
    room = np.empty(array.nbytes + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def main(folder: str) -> None:
    """Tune, write result.json: the best setting, how many were tried, how long it took."""
    import kernel_tuner

    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    names, valid = list(job["parameters"]), {tuple(setting) for setting in job["valid"]}
    arrays = [on_a_page(np.load(os.path.join(folder, f"{name}.npy"))) for name in job["arrays"]]

    def exists(setting: dict[str, Any]) -> bool:
        return tuple(setting[name] for name in names) in valid

    with contextlib.suppress(OSError):  # configurations are unloaded, OpenMP threads must not lose their code
        ctypes.CDLL(job["runtime"])
    begun = time.monotonic()
    found, _ = kernel_tuner.tune_kernel(
        "kt_call",
        job["source"],
        1,
        arrays,
        job["parameters"],
        restrictions=exists,
        lang="C",
        compiler=job["compiler"],
        compiler_options=job["options"],
        strategy=job["strategy"],
        strategy_options={"time_limit": job["seconds"]},
        quiet=True,
    )
    good = [one for one in found if isinstance(one.get("time"), (int, float))]
    best = min(good, key=lambda one: one["time"], default=None)
    result = {
        "best": {name: int(best[name]) for name in names} if best else None,
        "time_ms": float(best["time"]) if best else None,
        "trials": len(found),
        "seconds": time.monotonic() - begun,
    }
    with open(os.path.join(folder, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1])

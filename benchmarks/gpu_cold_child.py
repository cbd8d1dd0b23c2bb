"""A fresh process for benchmarks/gpu_cold.py: what the first call of a kernel waits for, phase by phase.

    python gpu_cold_child.py FILE     two lines in FILE: the hello and the trial of a worker

It prints one line of JSON. Every phase ends with the device idle.
"""

import time

BEGUN_NS = time.monotonic_ns()

import json  # noqa: E402 (the clock comes first)
import statistics  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

CALLS, IN_GRAPH = 200, 20


class Phases:
    """Names and lengths in ms, each from the end of the one before."""

    def __init__(self) -> None:
        self.ms: list[tuple[str, float]] = []
        self._last = BEGUN_NS

    def end(self, name: str) -> None:
        """The phase of this name ends now."""
        now = time.monotonic_ns()
        self.ms.append((name, (now - self._last) * 1e-6))
        self._last = now


def main(path: str) -> dict[str, Any]:
    """Run what the file asks; phases, calls, warm times, the error."""
    phases = Phases()
    with open(path, "rb") as file:
        lines = file.readlines()
    import cupy

    phases.end("import CuPy")
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)
    phases.end("context")
    from advisor.kernels.gpu.messages import decode

    hello, trial = (decode(line) for line in lines)
    if trial.program.language != "cuda":
        import torch

        torch.zeros(1, device="cuda")
        phases.end("import PyTorch")
    from advisor.kernels.gpu.bench import Bench
    from advisor.kernels.gpu.cuda import CudaDriver
    from advisor.kernels.registry import load_spec

    bench = Bench(CudaDriver(hello.uuid), load_spec(hello.spec_path), hello.seed)
    phases.end("frame")
    return timed(bench, trial, phases)


def timed(bench: Any, trial: Any, phases: Phases) -> dict[str, Any]:
    """Operands from the host, compile, call."""
    from advisor.kernels.gpu import operands as ops

    spec, case, xp = bench.spec, trial.case, bench.driver.xp
    host = spec.inputs(case.problem, 0)
    shapes, types = spec.shapes(case.problem), spec.types(case.problem)
    from advisor.kernels.spec import STORAGE

    arrays = [xp.asarray(host[n]) if n in host else xp.zeros(shapes[n], STORAGE[types[n]]) for n in spec.buffers]
    group = tuple(ops.Block(one, one) for one in arrays)
    size = case.geometry.workspace_bytes if case.geometry else 0
    work = xp.zeros(size, xp.uint8)
    bench.driver.finish()
    phases.end("operands")
    bench._program(trial.program)
    phases.end("compile and load")
    (call,) = bench._calls(trial.program, case, (group,), ops.Block(work, work) if case.geometry else None)
    result = None
    for name in ("first call", "second call", "third call"):
        result = call()
        bench.driver.finish()
        phases.end(name)
    found = {"phases": phases.ms, **warm(bench, trial, call), "conditions": bench.driver.conditions()}
    return {**found, "error": error(bench, trial, host, arrays[-1], result)}


def warm(bench: Any, trial: Any, call: Any) -> dict[str, float]:
    """Median wall time of a call with a wait behind it, and time of a call inside a graph, in us."""
    taken = []
    for _ in range(CALLS):
        begun = time.monotonic_ns()
        call()
        bench.driver.finish()
        taken.append((time.monotonic_ns() - begun) * 1e-3)
    replay = bench.driver.record([call] * IN_GRAPH, trial.program.language != "cuda")
    graph = statistics.median(bench.driver.time_ns(replay, 10) * 1e-3 / (10 * IN_GRAPH) for _ in range(9))
    return {"warm_us": statistics.median(taken), "graph_us": graph}


def error(bench: Any, trial: Any, host: dict[str, Any], out: Any, result: Any) -> dict[str, float]:
    """The error of what was computed, beside the tolerance."""
    import numpy as np

    from advisor.kernels.judge import relative_error

    expected = bench.spec.reference(trial.case.problem, host)[bench.spec.written[0]]
    found = out if result is None else result
    values = np.asarray(found.get() if hasattr(found, "get") else found.float().cpu(), float).reshape(out.shape)
    tolerance = expected.allowed(trial.program.arithmetic)
    return {"error": relative_error(values, expected.values), "tolerance": tolerance}


if __name__ == "__main__":
    print(json.dumps({"begun_ns": BEGUN_NS, **main(sys.argv[1])}))

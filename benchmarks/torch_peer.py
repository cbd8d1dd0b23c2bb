"""PyTorch's kernels in a process of their own: one JSON line in, one out. Run by benchmarks/kernels.py.

Torch brings its own OpenMP runtime and thread pool, which must not share a process with the kernels under test. The
parent stops this process while it measures others.

    {"kernel": "forward", "dtype": "float32", "shape": {"batch": 2, ...}, "n": 4096, "ask": "forms"}
    -> {"forms": ["sdpa", "matmul"], "left_out": {"...": "why"}}        what there is for this problem, all agreeing
    {..., "ask": "sample", "form": "sdpa", "threads": 2, "seconds": 0.002}
    -> {"ns": 12345.6} or {"error": "..."}

The forms are in torch_forms.py and torch_layers.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Form = Callable[[], tuple[Any, ...]]

AGREE = {"float64": (1e-7, 1e-8), "float32": (2e-3, 2e-4), "bfloat16": (5e-2, 5e-2), "float16": (1e-2, 1e-2)}
"""dtype -> (relative, absolute) difference between two forms that is let pass. It only guards against a wrong formula
here; the kernels under test have tolerances derived from their inputs."""


def agreeing(torch: Any, forms: dict[str, Form], dtype: str) -> tuple[dict[str, Form], dict[str, str]]:
    """The forms that run, and why the others do not. The first that runs is what the others must agree with.

    Raises:
        AssertionError: two forms do not give the same result.
    """
    relative, absolute = AGREE[dtype]
    kept: dict[str, Form] = {}
    left_out: dict[str, str] = {}
    first: tuple[Any, ...] | None = None
    for name, form in forms.items():
        try:
            found = form()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            left_out[name] = str(error)[:200]
            continue
        kept[name] = form
        first = first or found
        for one, other in zip(first, found, strict=True):
            torch.testing.assert_close(other.reshape(one.shape), one, rtol=relative, atol=absolute)
    return kept, left_out


def sample(call: Callable[[], Any], seconds: float) -> float:
    """Mean ns of one call over at least `seconds`, after a call that warms up; a long call is timed once."""
    call()
    start = time.perf_counter_ns()
    call()
    once = time.perf_counter_ns() - start
    if once >= seconds * 1e9:
        return float(once)
    calls = round(seconds * 1e9 / max(1, once)) + 1
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - start) / calls


class Held:
    """The operands of the problem at hand and what was found to run on them."""

    def __init__(self, torch: Any, make: Callable[..., tuple[dict[str, Form], dict[str, str]]]) -> None:
        self._torch = torch
        self._make = make
        self._key: Any = None
        self._forms: dict[str, Form] = {}
        self._left_out: dict[str, str] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What forms there are, or the time of one."""
        self._hold(question)
        if question["ask"] == "forms":
            return {"forms": list(self._forms), "left_out": self._left_out}
        if question["form"] not in self._forms:
            return {"error": self._left_out.get(question["form"], "there is no such form")}
        self._torch.set_num_threads(question["threads"])
        return {"ns": sample(self._forms[question["form"]], question["seconds"])}

    def _hold(self, question: dict[str, Any]) -> None:
        key = [question[word] for word in ("kernel", "dtype", "shape", "n")]
        if key == self._key:
            return
        self._key, self._forms = None, {}  # the old operands go before the new ones come
        made, refused = self._make(self._torch, *key)
        self._forms, left_out = agreeing(self._torch, made, question["dtype"])
        self._key, self._left_out = key, {**refused, **left_out}


def main() -> None:
    """Answer until standard input ends. argv[1]: CPUs to stay on, separated by commas."""
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[1].split(",")})
    import torch
    from torch_forms import forms
    from torch_layers import MAKERS, layer_forms

    torch.manual_seed(0)
    held = Held(torch, lambda torch, kernel, *of: (layer_forms if kernel in MAKERS else forms)(torch, kernel, *of))
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for line in sys.stdin:
        try:
            answer = held.answer(json.loads(line))
        except (RuntimeError, MemoryError, TypeError, AssertionError) as error:
            answer = {"error": str(error)[:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

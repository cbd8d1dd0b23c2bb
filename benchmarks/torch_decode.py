"""PyTorch's decode attention in a process of its own: one JSON line in, one out. Run by benchmarks/decode.py.

Torch brings its own OpenMP runtime and thread pool, which must not share a process with the kernels under test. The
parent stops this process while it measures others.

    {"shape": {batch, heads, kv_heads, head_dim}, "n": 4096, "form": "sdpa", "threads": 2, "seconds": 0.002}
    -> {"ns": 12345.6} or {"error": "..."}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

FORMS = ("sdpa", "sdpa_expand", "matmul")
"""sdpa: scaled_dot_product_attention, grouped queries by enable_gqa. sdpa_expand: the same on k and v that were copied
to all query heads beforehand, outside of the timing. matmul: scores, softmax and weighted sum as two batched products
over the query heads of a group."""


def inputs(torch: Any, shape: dict[str, int], n: int) -> tuple[Any, Any, Any]:
    """q [b,h,1,d], k and v [b,g,n,d], standard normal."""
    b, h, g, d = (shape[key] for key in ("batch", "heads", "kv_heads", "head_dim"))
    return torch.randn(b, h, 1, d), torch.randn(b, g, n, d), torch.randn(b, g, n, d)


def forms(torch: Any, q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; grouped forms only where there are groups."""
    attention = torch.nn.functional.scaled_dot_product_attention
    (b, h, _, d), g = q.shape, k.shape[1]
    queries, scale = q.view(b, g, h // g, d), d**-0.5

    def matmul() -> Any:
        return torch.softmax(queries @ k.transpose(-1, -2) * scale, dim=-1) @ v

    if h == g:
        return {"sdpa": lambda: attention(q, k, v), "matmul": matmul}
    wide_k, wide_v = (x.unsqueeze(2).expand(b, g, h // g, *x.shape[2:]).reshape(b, h, *x.shape[2:]) for x in (k, v))
    return {
        "sdpa": lambda: attention(q, k, v, enable_gqa=True),
        "sdpa_expand": lambda: attention(q, wide_k, wide_v),
        "matmul": matmul,
    }


def agreeing(torch: Any, found: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The same forms. Raises AssertionError when they do not give the same result."""
    first, *others = (call().flatten() for call in found.values())
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-3, atol=1e-4)
    return found


def sample(call: Callable[[], Any], seconds: float) -> float:
    """Mean ns of one call over at least `seconds`, after two calls that warm up."""
    call()
    start = time.perf_counter_ns()
    call()
    calls = max(1, round(seconds * 1e9 / max(1, time.perf_counter_ns() - start)))
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - start) / calls


class Held:
    """The operands of the problem at hand."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._key: Any = None
        self._forms: dict[str, Callable[[], Any]] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Time one form of one problem; the forms of a problem must agree."""
        key = (question["shape"], question["n"])
        if key != self._key:
            self._forms = {}
            self._forms = agreeing(self._torch, forms(self._torch, *inputs(self._torch, *key)))
            self._key = key
        if question["form"] not in self._forms:
            return {"error": "no groups, so this form is the same as sdpa"}
        self._torch.set_num_threads(question["threads"])
        return {"ns": sample(self._forms[question["form"]], question["seconds"])}


def main() -> None:
    """Answer until standard input ends. argv[1]: CPUs to stay on, separated by commas."""
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[1].split(",")})
    import torch

    torch.manual_seed(0)
    held = Held(torch)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            try:
                answer = held.answer(json.loads(line))
            except (RuntimeError, MemoryError, TypeError, AssertionError) as error:
                answer = {"error": str(error)[:200]}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

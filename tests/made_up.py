"""Made-up measurements for the judges: times come from a formula; every round is alike unless noise is asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable

from advisor.kernels import registry
from advisor.records import Problem
from advisor.validate.records import Node, Series, Window
from advisor.validate.request import paper_shape

NODE = Node("made up", cpus=8, numa_nodes=1, last_level_bytes=32 << 20, stack_limit_bytes=8 << 20)


spec = functools.cache(registry.spec)


def problem(kernel: str, n: int, dtype: str | None = None) -> Problem:
    """The paper's shape."""
    real = dtype or ("float32" if kernel == "decode" else "float64")
    return spec(kernel).problem(n, dtype=real, **paper_shape(spec(kernel)))


def made(kernel: str, variant: str, n: int, threads: int, ns: float, **changes) -> Series:
    """One series; `rounds` and `spread` (relative, alternating) shape its samples."""
    rounds, spread = changes.pop("rounds", 9), changes.pop("spread", 0.0)
    samples = tuple(ns * (1 + spread * (-1) ** i) for i in range(rounds))
    where = problem(kernel, n)
    flops = spec(kernel).flops(where)
    moved = 2 * (n * n + 4 * n * 64)
    item = 4 if kernel == "decode" else 8
    return Series(where, variant, threads, True, "ok", samples, flops, moved, item)._replace(**changes)


def sweep(kernel: str, variant: str, times: Callable[[int, int], float], sizes, threads=(1, 2, 4, 8), **changes):
    """Series of one variant over sizes and thread counts."""
    return [made(kernel, variant, n, t, times(n, t), **changes) for n in sizes for t in threads]


def windows(times: dict[tuple[int, int, bool], float]) -> list[Window]:
    """Windows of decode from (n, threads, beside) -> mean in ns, all pinned."""
    return [
        Window(problem("decode", n), "split", threads, True, beside, mean, mean, 50)
        for (n, threads, beside), mean in times.items()
    ]

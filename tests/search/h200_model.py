"""A made-up GPU that is shaped like a measured one: its times are formulas through what an H200 took in float64.

Fused: five listed in earnest, with knobs, and nine plain mappings that are 10 to 700 times slower. Forward: 78 choices
at n = 512. A look costs a fixed time and several calls; a tool loads at its first look; a new n takes new operands.
"""

import math
from typing import ClassVar

import numpy as np
from fake import FakeExecutor, FakeSpec, fake_variant

from advisor.search.space import SpaceOptions, Toolchain

TOOLS = SpaceOptions((Toolchain("triton-3.6", "cuda", "triton"), Toolchain("torch-2.11", "cuda", "torch")), ("none",))
LOAD_S = {"triton-3.6": 0.4, "torch-2.11": 3.7}
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)

TILED_US = dict(zip(SIZES, (15.9, 25.3, 44.9, 83.9, 162.9, 359.7, 1253.7, 4873.4), strict=True))
MATH_US = dict(zip(SIZES, (38.2, 44.8, 48.1, 65.0, 125.8, 507.7, 1568.6, 6433.3), strict=True))
PLAIN = {"lane": 0.72, "packed": 26.0, "lane_apart": 0.84, "packed_apart": 18.0, "packed_kept": 35.0, "one_lane": 17.0,
         "one_lane_apart": 12.0, "columns_packed": 29.0, "columns_one_lane": 15.0}  # fmt: skip
"""Microseconds a row of keys at n = 1024."""


class Attention(FakeSpec):
    """Arithmetic that grows as n squared."""

    dtypes: ClassVar = ("float64",)

    def flops(self, problem):
        return 4 * problem.n * self.elements(problem).read


def made(name, rank, language, **knobs):
    return fake_variant(name, rank, {}, knobs)._replace(language=language, dtypes=("float64",))


def _tiled(name, rank, splits):
    first = (splits, *(s for s in (1, 2, 4, 8) if s != splits))
    return made(name, rank, "triton", SPLITS=first, STAGES=(2, 1), STEP=(16, 32), TILES=(2, 1))


FUSED = (
    _tiled("tiled", 1, 2),
    _tiled("tiled_atomic", 2, 4),
    _tiled("pair_tiled", 3, 4),
    *(made(name, 10 + k, "triton") for k, name in enumerate(PLAIN)),
    made("math", 30, "torch"),
)


def between(known, n):
    """The time at an n by those at its neighbours, on logarithmic axes."""
    return math.exp(np.interp(math.log(n), np.log([*known]), np.log([*known.values()])))


def fused_us(n, name, knobs):
    """Fewer tiles and more splits for small n, as backward was seen to have it; two knobs move with n."""
    if name == "math":
        return between(MATH_US, n)
    if name in PLAIN:
        grown = max(1.0, (n / 512) ** 1.2) if name.startswith("lane") else n / 1024 if "lane" in name else 1.0
        return PLAIN[name] * n * max(0.5, grown)
    best = 8 if n <= 512 else 4 if n <= 2048 else 2
    apart = abs(math.log2(knobs["SPLITS"] / best))
    tiles = (0.85 if n <= 1024 else 1.08) if knobs["TILES"] == 1 else 1.0
    own = {"tiled": 1.0, "tiled_atomic": 1.08 if n < 2048 else 0.93, "pair_tiled": 1.25}[name]
    at_default = 1.1 ** abs(math.log2(2 / best))
    return own * between(TILED_US, n) / at_default * 1.1**apart * tiles * (1.06 if knobs["STAGES"] == 2 else 1.0) * (
        1.09 if knobs["STEP"] == 32 else 1.0
    )  # fmt: skip


TILES = {"BM": (64, 16, 32, 128), "BN": (32, 64), "splits": (4, 1, 2, 8)}
FORWARD = (
    made("tiled_dmma", 1, "triton", **TILES),
    made("tiled_fma", 2, "triton", **{**TILES, "splits": (4, 1, 2, 8, 16)}),
    made("lane_shared", 10, "triton", THREADS=(128, 256)),
    made("lane_global", 11, "triton", THREADS=(128, 256)),
    made("packed", 12, "triton"),
    made("math", 30, "torch"),
)
ROWS = {"tiled_fma": {16: 23.9, 32: 24.7, 64: 40.0, 128: 60.0}, "tiled_dmma": {16: 29.5, 32: 28.3, 64: 28.5, 128: 36.0}}
SPLIT = {(32, 1): 2.27, (32, 2): 1.5, (32, 4): 1.1, (32, 8): 1.092, (32, 16): 1.4, (64, 1): 1.87, (64, 2): 1.35,
         (64, 4): 1.0, (64, 8): 1.226, (64, 16): 1.7}  # fmt: skip


def forward_us(n, name, knobs):
    if name in ROWS:
        return ROWS[name][knobs["BM"]] * SPLIT[knobs["BN"], knobs["splits"]]
    return {"lane_shared": 39.6, "lane_global": 48.1, "packed": 3167.6, "math": 30.8}[name]


def times(of):
    def call_ns(problem, choice):
        return 1e3 * of(problem.n, choice.build.variant, dict(choice.build.knobs))

    return call_ns


class Gpu(FakeExecutor):
    """Takes what an H200's worker took: 5 s to start, 28 ms and six calls a look, 50 ms more for a new choice."""

    def __init__(self, call_ns, **options):
        super().__init__(call_ns, build_s=0.0, overhead_s=0.028, **options)
        self.loaded, self.sizes, self.seen, self.ready = set(), set(), set(), False

    def prepare(self, problem, choices):
        self.clock.now += 0.0 if self.ready else 5.0
        self.ready = True

    def measure(self, problem, choice, ask):
        begun, tool = self.clock.now, choice.build.compiler
        self.clock.now += 0.0 if tool in self.loaded else LOAD_S[tool]
        self.clock.now += 0.0 if problem in self.sizes else 0.2
        self.clock.now += 0.0 if choice.build in self.seen else 0.05
        self.loaded.add(tool)
        self.sizes.add(problem)
        self.seen.add(choice.build)
        self.clock.now += 6e-9 * self.times(problem, choice)
        extra = self.clock.now - begun
        found = super().measure(problem, choice, ask)
        return found._replace(seconds=found.seconds + extra)

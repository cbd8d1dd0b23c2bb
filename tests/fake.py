"""Stand-ins for tests: a clock, noise, a machine, a kernel with a cost model, and an executor without processes."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from advisor.codec import digest
from advisor.kernels.executor import Ask
from advisor.kernels.spec import Elements, KernelSpec, Parameter
from advisor.kernels.variant import Variant
from advisor.records import Caches, Choice, Machine, Measurement, NumaNode, Problem, pairs
from advisor.topology.array import build

Noise = Callable[[int], float]
"""Factor of the i-th sample that an executor takes."""

NOISE_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "noise.json")


class FakeClock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- noise ---


def quiet(index: int) -> float:
    """No noise at all."""
    return 1.0


def recorded_noise(series: str | int, offset: int = 0) -> Noise:
    """Factors that were recorded on a real machine, drifting and lag-correlated; see `how` in data/noise.json."""
    with open(NOISE_FILE, encoding="utf-8") as file:
        known = json.load(file)["series"]
    values = known[list(known)[series]] if isinstance(series, int) else known[series]
    return lambda index: float(values[(index + offset) % len(values)])


def synthetic_noise(seed: int, spread: float = 0.05, lucky: float = 0.01) -> Noise:
    """Independent factors: normal with this spread, and with probability `lucky` half the time."""
    rng = random.Random(seed)
    values: list[float] = []

    def factor(index: int) -> float:
        while len(values) <= index:
            base = max(0.5, rng.gauss(1.0, spread))
            values.append(base * (0.5 if rng.random() < lucky else 1.0))
        return values[index]

    return factor


# --- an executor ---


def always_ok(problem: Problem, choice: Choice) -> str:
    """Every choice works."""
    return "ok"


class FakeExecutor:
    """An Executor whose times come from a function. Keeps every call in `asked`.

    Args:
        times: true time of one call in ns.
        noise: factor of the i-th sample; a fresh executor starts at 0.
        statuses: how a choice ends; other than ok gives no samples and costs `fail_s`.
        clock: advanced by what a measurement would take: warm-up, samples, `overhead_s`, and a first build.
        interrupt_at: raise KeyboardInterrupt instead of the measurement of this number.
    """

    def __init__(
        self,
        times: Callable[[Problem, Choice], float],
        noise: Noise = quiet,
        statuses: Callable[[Problem, Choice], str] = always_ok,
        clock: FakeClock | None = None,
        *,
        interrupt_at: int | None = None,
        overhead_s: float = 0.001,
        build_s: float = 0.3,
        fail_s: float = 0.05,
    ) -> None:
        self.times, self.noise, self.statuses = times, noise, statuses
        self.clock = clock or FakeClock()
        self.interrupt_at = interrupt_at
        self.overhead_s, self.build_s, self.fail_s = overhead_s, build_s, fail_s
        self.asked: list[tuple[Problem, Choice, Ask]] = []
        self.built: set[Any] = set()
        self.taken = 0
        self.closed = False

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        if self.interrupt_at is not None and len(self.asked) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.asked.append((problem, choice, ask))
        compile_s = 0.0 if choice.build in self.built else self.build_s
        self.built.add(choice.build)
        status = self.statuses(problem, choice)
        if status != "ok":
            seconds = ask.limit_s if status == "timeout" else self.fail_s
            self.clock.now += compile_s + seconds
            return Measurement(problem, choice, status, reason="as told", seconds=compile_s + seconds)
        samples = tuple(self._samples(self.times(problem, choice), ask))
        kernel_s = sum(max(ask.sample_s, sample * 1e-9) for sample in samples)
        seconds = compile_s + kernel_s + self.overhead_s
        self.clock.now += seconds
        threads = choice.team.threads if choice.team else None
        return Measurement(
            problem,
            choice,
            "ok",
            samples,
            error=0.0,
            tolerance=1e-6,
            threads_observed=threads,
            seconds=seconds,
            kernel_s=kernel_s,
            compile_s=compile_s,
            conditions=pairs({"rejected": 0, "kept_noisy": 0}),
        )

    def _samples(self, true_ns: float, ask: Ask) -> Iterator[float]:
        for _ in range(ask.samples):
            sample = true_ns * self.noise(self.taken)
            self.taken += 1
            yield sample
            if ask.give_up_ns is not None and sample > ask.give_up_ns:
                return

    def close(self) -> None:
        self.closed = True


# --- a machine ---


def fake_machine(
    sockets: int = 1,
    numa: int = 1,
    l3: int = 1,
    cores: int = 2,
    smt: int = 1,
    allowed: tuple[int, ...] | None = None,
    quota: float | None = None,
) -> Machine:
    """A regular machine: `numa` domains a socket, `l3` groups a domain, `cores` a group. CPU ids in that order,
    second hardware threads numbered after all first ones, as Linux does."""
    total = sockets * numa * l3 * cores

    def groups(count: int) -> list[list[int]]:
        per = total // count
        return [[c + t * total for t in range(smt) for c in range(g * per, (g + 1) * per)] for g in range(count)]

    core = [[c + t * total for t in range(smt)] for c in range(total)]
    cpus = tuple(range(total * smt))
    groupings = {
        "socket": groups(sockets),
        "numa": groups(sockets * numa),
        "l3": groups(sockets * numa * l3),
        "core": core,
    }
    frozen = {name: tuple(tuple(g) for g in found) for name, found in groupings.items()}
    mask = cpus if allowed is None else allowed
    identity = digest((total, sockets, numa, l3, cores, smt))
    return Machine(
        hardware_id=identity,
        limits_id=digest((mask, quota)),
        architecture="x86_64",
        vendor=None,
        model_name="fake",
        isa=("avx2", "fma"),
        online_cpus=cpus,
        offline_cpus=(),
        allowed_cpus=mask,
        allowed_mems=None,
        cpu_quota=quota,
        memory_limit_bytes=None,
        sockets=sockets,
        cores=total,
        threads_per_core=smt,
        array=build(groupings, cpus),
        groupings=pairs(frozen),
        numa_nodes=tuple(NumaNode(i, g, None, ()) for i, g in enumerate(frozen["numa"])),
        l3_groups=frozen["l3"],
        caches=Caches(32768, 1 << 20, 32 << 20),
        core_classes=(),
        gpus=(),
        environment=pairs({"kernel": "6.18"}),
        warnings=(),
    )


# --- a kernel ---


class FakeSpec(KernelSpec):
    """Decode's shape without its arithmetic."""

    name: ClassVar[str] = "decode"
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences", 2),
        "heads": Parameter("query heads", 1),
        "kv_heads": Parameter("key and value heads", 1),
        "head_dim": Parameter("channels", 64),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out")
    written: ClassVar[tuple[str, ...]] = ("out",)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        d = problem.dims()
        rows, cache = (d["batch"], d["heads"], d["head_dim"]), (d["batch"], d["kv_heads"], d["n"], d["head_dim"])
        return {"q": rows, "k": cache, "v": cache, "out": rows}

    def elements(self, problem: Problem) -> Elements:
        d = problem.dims()
        rows = d["batch"] * d["kv_heads"] * d["head_dim"] * d["n"]
        return Elements(2 * rows, d["batch"] * d["heads"] * d["head_dim"])

    def flops(self, problem: Problem) -> int:
        return 2 * self.elements(problem).read


def fake_variant(name: str, rank: int, build_knobs: dict[str, Any], run_knobs: dict[str, Any], **other: Any) -> Variant:
    """A variant whose file does not exist; defaults are the first values of its knobs."""
    knobs = {**build_knobs, **run_knobs}
    return Variant(
        kernel="decode",
        name=name,
        path=f"/nowhere/{name}.c",
        source_hash=digest((name, sorted(knobs))),
        idea="stands in",
        language="c",
        symbol=name,
        dtypes=("float32",),
        requires=other.get("requires", ()),
        macros=(),
        build_knobs=tuple((k, tuple(v)) for k, v in build_knobs.items()),
        run_knobs=tuple((k, tuple(v)) for k, v in run_knobs.items()),
        defaults=pairs({k: v[0] for k, v in knobs.items()}),
        valid=other.get("valid", ()),
        reads="2 * n",
        writes="1",
        atomics="0",
        mapping="none",
        rank=rank,
    )


def fake_variants() -> tuple[Variant, ...]:
    """Three rungs, about 50 builds in all."""
    return (
        fake_variant("naive", 9, {}, {}),
        fake_variant("split", 1, {"ADV_BLOCK": (64, 16, 32, 128, 256), "ADV_UNROLL": (1, 2, 4, 8)}, {}),
        fake_variant("grouped", 2, {"ADV_BLOCK": (64, 16, 32, 128), "ADV_UNROLL": (2, 4)}, {"prefetch": (0, 4, 16)}),
    )


FORK_NS = {"default": (300.0, 90.0), "active": (250.0, 85.0), "passive": (4000.0, 900.0), "spin": (700.0, 140.0)}
"""Wait policy -> fixed and per-thread cost of starting and joining a team."""


def decode_ns(problem: Problem, choice: Choice, cores: int) -> float:
    """A made-up time with decode's traits: shared bandwidth, fork and join dearer with threads, knobs that interact."""
    knobs, team, process = dict(choice.build.knobs), choice.team, choice.process
    assert team is not None
    assert process is not None
    moved = FakeSpec().elements(problem).read * 4
    rate = {"naive": 3.0, "split": 10.0, "grouped": 11.0}[choice.build.variant]
    rate /= 1 + 0.08 * abs(knobs.get("ADV_BLOCK", 64).bit_length() - 7)
    rate /= 1 + 0.06 * abs(knobs.get("ADV_UNROLL", 4).bit_length() - 3)
    rate /= 1.04 if knobs.get("prefetch", 0) == 4 and problem.n < 4096 else 1.0
    rate *= 0.95 if choice.build.compiler == "clang" else 1.0
    useful = min(team.threads, cores)
    ceiling = 10.0 * max(1.5, cores / 3) * (1.15 if "smt core" not in team.placement else 1.0)
    fixed, each = FORK_NS["spin" if process.spin else process.wait_policy]
    fork = fixed + each * team.threads if team.threads > 1 else 50.0
    crowd = 40.0 if team.threads > cores and process.wait_policy != "passive" else 1.0
    return moved / min(rate * useful, ceiling) + fork * crowd

"""Decode attention beside the read floor of this machine and beside PyTorch.

    python benchmarks/decode.py [--json FILE] [--n 1024,...,1048576] [--shape paper|served] [--threads T] [--rounds 15]

For each n: the tuned choice, where a table of this machine covers it; else the best of a list of choices that this
script looks at first, and it says so. Then choice, floor and PyTorch take turns in shuffled rounds, one sample each, in
processes of their own of which only one runs at a time. The floor reads k and v once and sums them
(benchmarks/kernels/read), with the same compiler, process part, team and placement; of its reading orders the fastest
counts. PyTorch is the best of its forms (torch_decode.py), with as many threads as the choice and with all.

Figures are 25th percentiles; ratios carry bootstrap 95 % intervals over rounds. The cache is warm: each sample is many
calls on one set of operands after warm-up calls, so what fits in a cache is read from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
from torch_decode import FORMS

from advisor.errors import AdvisorError
from advisor.kernels.compilers import compilers, find_compiler
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec
from advisor.kernels.variant import Variant, knob_sets, variants
from advisor.paths import machine_dir
from advisor.policy.learn import choose
from advisor.policy.store import tables
from advisor.records import Build, Choice, Machine, Problem, Process, Team, pairs
from advisor.search.samples import log_ratio, summary
from advisor.search.space import cpu_budget
from advisor.topology.placement import evaluate
from advisor.topology.probe import probe

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")
SHAPES = {
    "paper": {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64},
    "served": {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128},
}
SIZES = {"paper": tuple(4**i for i in range(5, 11)), "served": (1024, 4096, 16384, 65536)}
BARS = {"paper": {"floor": 1.2, "torch": 0.8}, "served": {"floor": 2.0, "torch": 0.6}}
"""Most that time over floor and over PyTorch may be. Source: the project's first measurements of this kernel; 1.4 over
the floor for the paper's shape at n = 1024."""

CANDIDATES = {
    "split": [{"block": 16, "ahead": 16}, {"block": 128, "ahead": 16}, {"block": 512, "ahead": 16}, {"block": 128}],
    "grouped": [{"block": 16, "fetch": 1}, {"block": 32, "fetch": 1}, {"block": 64, "fetch": 0}],
    "naive": [{}],
}
"""Knobs that are looked at where there is no table; left out: the default."""

QUIET_PERCENT = 10.0
"""Busy share of all CPUs, over a second in which nothing of ours runs, from which on the machine is not quiet."""

LOOKS = 3
LIMIT_S = 120.0
SAMPLE_S = 0.002

Sampler = Callable[[], float]


class Refused(Exception):
    """Something cannot be measured here; the text says why. Ends one size, not the run."""


class Ratio(NamedTuple):
    """A ratio of 25th percentiles with its 95 % interval."""

    value: float
    low: float
    high: float


class Result(NamedTuple):
    """One size. `source`: table or list. Times in ns; `torch` None where it is not installed."""

    n: int
    choice: Choice
    source: str
    p25_ns: float
    floor: str
    floor_ns: float
    over_floor: Ratio
    gb_per_s: float
    torch: str | None
    torch_ns: float | None
    over_torch: Ratio | None
    rounds: int


class Bench(NamedTuple):
    """What all sizes share."""

    machine: Machine
    decode: WorkerPool
    read: WorkerPool
    torch: TorchChild | None
    threads: int | None
    rounds: int


# --- PyTorch's process ---


class TorchChild:
    """PyTorch in its own process, stopped while it is not asked."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_decode.py")
        command = [sys.executable, script, ",".join(map(str, cpus))]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = str(self._read()["torch"])
        self._child.send_signal(signal.SIGSTOP)

    def _read(self) -> dict[str, Any]:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise Refused("PyTorch's process ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def sample(self, problem: Problem, form: str, threads: int) -> float:
        """Mean ns of one call. Raises Refused."""
        question = {"shape": dict(problem.shape), "n": problem.n, "form": form, "threads": threads, "seconds": SAMPLE_S}
        self._child.send_signal(signal.SIGCONT)
        print(json.dumps(question), file=self._child.stdin, flush=True)
        answer = self._read()
        self._child.send_signal(signal.SIGSTOP)
        if "ns" not in answer:
            raise Refused(f"PyTorch {form}: {answer['error']}")
        return float(answer["ns"])

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()


# --- choose what is measured ---


def tuned(bench: Bench, problem: Problem) -> list[Choice]:
    """What the tables of this machine say for this problem, one a process part; empty without a table."""
    folder = machine_dir(bench.machine.hardware_id, bench.machine.limits_id)
    sections = [
        section
        for found in tables(folder)
        if found.table is not None and found.table.kernel == problem.kernel
        for section in found.table.sections
        if (section.dtype, section.shape, section.regime) == (problem.dtype, problem.shape, problem.regime)
        and section.tuned_n[0] <= problem.n <= section.tuned_n[-1]
    ]
    choices = [choose(section, problem.n) for section in sections]
    return [one for one in choices if one.team and bench.threads in (None, one.team.threads)]


def listed(bench: Bench, problem: Problem) -> list[Choice]:
    """The list of choices that stands in for a table."""
    threads = bench.threads or cpu_budget(bench.machine)
    found = []
    for variant in variants(problem.kernel):
        sets = knob_sets(variant, problem)
        for knobs in (pairs({**dict(variant.defaults), **some}) for some in CANDIDATES.get(variant.name, [])):
            if knobs in sets:
                found += [as_choice(variant, knobs, one.name, one.runtime, threads) for one in compilers()]
    return found


def as_choice(variant: Variant, knobs: Any, compiler: str, runtime: str, threads: int) -> Choice:
    """A choice in the default process part, compactly placed."""
    build = Build(variant.name, variant.source_hash, knobs, compiler, "native")
    return Choice(build, Team(threads, ""), Process(runtime, "default", None, "default"))


def floors(problem: Problem, choice: Choice) -> dict[str, Choice]:
    """The floor's reading orders with a choice's compiler, team and process part."""
    (variant,) = variants("read", [KERNELS])
    made = choice.build
    return {
        f"floor {dict(knobs)['order']}": choice._replace(
            build=Build(variant.name, variant.source_hash, knobs, made.compiler, "native")
        )
        for knobs in knob_sets(variant, problem)
    }


# --- measure ---


def sampler(pool: WorkerPool, problem: Problem, choice: Choice) -> Sampler:
    """One sample of a choice a call, in ns. It raises Refused when the choice has no time."""

    def sample() -> float:
        found = pool.measure(problem, choice, Ask(1, LIMIT_S, SAMPLE_S))
        if found.status != "ok":
            raise Refused(f"{choice.build.variant}: {found.status}: {found.reason}")
        return found.samples_ns[0]

    return sample


def torch_samplers(child: TorchChild, problem: Problem, counts: set[int]) -> dict[str, Sampler]:
    """Every form of PyTorch that exists for the problem, with each thread count."""
    groups = dict(problem.shape)["heads"] != dict(problem.shape)["kv_heads"]
    names = [form for form in FORMS if groups or form != "sdpa_expand"]

    def one(form: str, threads: int) -> Sampler:
        return lambda: child.sample(problem, form, threads)

    return {f"torch {form} {count}T": one(form, count) for form in names for count in sorted(counts)}


def take_turns(samplers: dict[str, Sampler], rounds: int, seed: int) -> dict[str, list[float]]:
    """One sample of each in every round, in another order each time."""
    shuffle = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(rounds):
        for name in shuffle.sample(list(samplers), len(samplers)):
            samples[name].append(samplers[name]())
    return samples


def fastest(samplers: dict[str, Sampler], keep: int) -> dict[str, Sampler]:
    """The `keep` fastest by the least of a few samples."""
    looks = take_turns(samplers, LOOKS, seed=1)
    return {name: samplers[name] for name in sorted(looks, key=lambda name: min(looks[name]))[:keep]}


def measure(bench: Bench, problem: Problem) -> tuple[Choice, str, dict[str, list[float]]]:
    """The choice, where it comes from, and the samples of everything that raced."""
    choices = tuned(bench, problem)
    source = "table" if choices else "list"
    choices = choices or listed(bench, problem)
    bench.decode.prepare(problem, choices)
    named = {str(index): sampler(bench.decode, problem, one) for index, one in enumerate(choices)}
    index, choice_sampler = next(iter(fastest(named, 1).items()))
    choice = choices[int(index)]
    read_problem = problem._replace(kernel="read")
    floor = {name: sampler(bench.read, read_problem, one) for name, one in floors(problem, choice).items()}
    race = {"choice": choice_sampler, **fastest(floor, 2)}
    if bench.torch is not None and choice.team is not None:
        counts = {choice.team.threads, len(bench.machine.allowed_cpus)}
        race |= fastest(torch_samplers(bench.torch, problem, counts), 2)
    return choice, source, take_turns(race, bench.rounds, seed=problem.n)


# --- judge ---


def ratio(a_ns: list[float], b_ns: list[float]) -> Ratio:
    """a over b."""
    found = log_ratio(b_ns, a_ns, alpha=0.05, seed=0)
    return Ratio(*(math.exp(x) for x in found))


def judge(bench: Bench, problem: Problem, measured: tuple[Choice, str, dict[str, list[float]]]) -> Result:
    """Ratios against the fastest floor and the fastest form of PyTorch."""
    choice, source, samples = measured
    p25 = {name: summary(taken).p25_ns for name, taken in samples.items()}

    def best(prefix: str) -> str | None:
        return min((name for name in samples if name.startswith(prefix)), key=p25.__getitem__, default=None)

    floor, torch = best("floor") or "", best("torch")
    elements = bench.read.spec.elements(problem._replace(kernel="read"))
    return Result(
        n=problem.n,
        choice=choice,
        source=source,
        p25_ns=p25["choice"],
        floor=floor,
        floor_ns=p25[floor],
        over_floor=ratio(samples["choice"], samples[floor]),
        gb_per_s=4 * elements.read / p25["choice"],
        torch=torch,
        torch_ns=p25[torch] if torch else None,
        over_torch=ratio(samples["choice"], samples[torch]) if torch else None,
        rounds=bench.rounds,
    )


def bar(shape: str, n: int, against: str) -> float:
    """The bar of one ratio."""
    return 1.4 if (shape, n, against) == ("paper", 1024, "floor") else BARS[shape][against]


# --- print ---


def shown(found: Ratio | None, limit: float) -> str:
    """A ratio with its interval, and whether it keeps the bar."""
    if found is None:
        return "-"
    return (
        f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}] {'keeps' if found.value <= limit else 'OVER'} {limit}"
    )


def report(bench: Bench, problem: Problem, shape: str, result: Result) -> None:
    """One size as two lines."""
    made, team, process = result.choice
    knobs = " ".join(f"{key}={value}" for key, value in made.knobs)
    cpus = evaluate(team.placement, bench.machine.array, bench.machine.allowed_cpus, team.threads) if team else ()
    print(
        f"n={problem.n:<8} {result.p25_ns / 1e3:10.2f} us {result.gb_per_s:6.1f} GB/s"
        f"   / floor {shown(result.over_floor, bar(shape, problem.n, 'floor'))}"
        f"   / torch {shown(result.over_torch, bar(shape, problem.n, 'torch'))}"
    )
    torch = f"{result.torch} {(result.torch_ns or 0) / 1e3:.2f} us" if result.torch else "PyTorch is not installed"
    print(
        f"           {made.variant} {knobs} {made.compiler} {made.flags}, {team.threads if team else '-'} threads on "
        f"CPUs {cpus}, wait policy {process.wait_policy if process else '-'} (from the {result.source}); "
        f"{result.floor} {result.floor_ns / 1e3:.2f} us; {torch}",
        flush=True,
    )


def heading(bench: Bench, shape: str) -> None:
    """What the figures were made on."""
    machine = bench.machine
    tools = "; ".join(find_compiler(one.name).version.splitlines()[0] for one in compilers())
    print(f"decode, {shape} shape {SHAPES[shape]}, float32, cache warm, {bench.rounds} interleaved shuffled rounds")
    print(f"{machine.model_name}, {len(machine.allowed_cpus)} CPUs in reach, {machine.caches}")
    print(f"{tools}; PyTorch {bench.torch.version if bench.torch else 'absent'}")
    busy = psutil.cpu_percent(interval=1.0)  # workers are parked: whatever runs now is somebody else
    if busy > QUIET_PERCENT:
        print(f"warning: CPUs {busy:.0f} % busy before the first measurement: other work runs here, quote none of this")


def record(machine: Machine, shape: str, results: list[Result], refused: dict[int, str]) -> dict[str, Any]:
    """Everything as plain data."""
    rows = [
        {
            **result._asdict(),
            "choice": {part: value._asdict() for part, value in result.choice._asdict().items() if value is not None},
            "over_floor": result.over_floor._asdict(),
            "over_torch": result.over_torch and result.over_torch._asdict(),
            "bar_floor": bar(shape, result.n, "floor"),
            "bar_torch": bar(shape, result.n, "torch"),
        }
        for result in results
    ]
    conditions = {
        "cpu": machine.model_name,
        "cpus": len(machine.allowed_cpus),
        "environment": dict(machine.environment),
    }
    return {"benchmark": "decode", "shape": shape, **conditions, "results": rows, "refused": refused}


# --- run ---


def torch_child(machine: Machine) -> TorchChild | None:
    """PyTorch's process on the CPUs in reach; None where it is not installed."""
    try:
        return TorchChild(machine.allowed_cpus)
    except Refused:
        return None


@contextlib.contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Bench]:
    """The pools and PyTorch's process, closed at the end."""
    machine = probe()
    decode, read = spec("decode"), spec("read", [KERNELS])
    torch = torch_child(machine)
    with (
        WorkerPool(machine, decode, variants("decode")) as decode_pool,
        WorkerPool(machine, read, variants("read", [KERNELS])) as read_pool,
        contextlib.closing(torch) if torch else contextlib.nullcontext(),
    ):
        yield Bench(machine, decode_pool, read_pool, torch, arguments.threads, arguments.rounds)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    parser.add_argument("--n", help="sizes, separated by commas")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="paper")
    parser.add_argument(
        "--threads", type=int, help="threads of the choice and of the floor (default: the table's, or all)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="at least 9")
    found = parser.parse_args(words)
    if found.rounds < 9:
        parser.error("fewer than 9 rounds say nothing about a ratio")
    return found


def main() -> int:
    """Measure, judge and print every size; 3 when one could not be measured."""
    arguments = parse()
    sizes = [int(n) for n in arguments.n.split(",")] if arguments.n else SIZES[arguments.shape]
    results: list[Result] = []
    refused: dict[int, str] = {}
    with opened(arguments) as bench:
        heading(bench, arguments.shape)
        for n in sizes:
            problem = bench.decode.spec.problem(n, **SHAPES[arguments.shape])
            try:
                results.append(judge(bench, problem, measure(bench, problem)))
            except (Refused, AdvisorError) as error:
                refused[n] = str(error)
                print(f"n={n:<8} not measured: {error}", flush=True)
                continue
            report(bench, problem, arguments.shape, results[-1])
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(record(bench.machine, arguments.shape, results, refused), file, indent=1)
    return 3 if refused else 0


if __name__ == "__main__":
    sys.exit(main())

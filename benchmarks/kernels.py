"""Kernels beside PyTorch's best form and, where they do little else than read, beside the read floor of this machine.

    python benchmarks/kernels.py [--kernel forward,backward,fused,decode] [--n 64,...] [--dtype float32,float64]
        [--shape paper|served|served-1b|served-causal] [--heads 40:8] [--threads T] [--rounds 15] [--json FILE]
        [--budget 300s] [--quick]
    python benchmarks/kernels.py --kernel layers [--shape paper|served-1b|served] --dtype float32

Each row is one kernel, dtype and n. It has the tuned choice, where a table of this machine covers it, else the best of
the choices that this script looks at first, and it says which; the best native variant; for the fused kernel the best
variant without the weights A over the best naive one (forward, then backward with A kept); for the kernels around
attention, `layers`, every native variant by itself. They take turns with PyTorch and the floor in shuffled rounds, one
sample each, in processes of their own of which only one runs at a time.

PyTorch is the best of its forms (torch_forms.py, torch_layers.py), with as many threads as the choice and with all. The
floor reads as many bytes as k and v have, or as rows and weights of a layer have that has few rows, once and sums them,
with the compiler, process part, team and placement of the native choice; of its reading orders the fastest counts.

Figures are 25th percentiles; ratios carry bootstrap 95 % intervals over rounds. The cache is warm: each sample is many
calls on one set of operands after a warm-up, so what fits in a cache is read from it; each row says how large its
operands are, and the end says how each variant's threads share the work. Weights that a variant packs once are packed
outside of the timing, and so are PyTorch's.

The budget is shared among the kernels. A row that would not fit is left out, and the script says so. With --json the
file is written after every row, and a later run with the same file measures only what is not there yet.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
from kernel_choices import (
    CLIMB_NS,
    CLIMBS,
    LAYERS,
    STREAMS,
    Field,
    Rates,
    estimate_s,
    field,
    floor_folder,
    floor_problem,
    floors,
    has_floor,
    neighbours,
    other_teams,
    out_of_reach,
)
from kernel_race import Deadline, Groups, Refused, Sampler, TorchPeer, look, sampler, take_turns, torch_peer
from kernel_rows import Context, Key, Measured, Row, conclusions, judge, lines, load, mappings, save

from advisor.arguments import seconds, sizes
from advisor.errors import AdvisorError
from advisor.kernels.compilers import compilers, find_compiler
from advisor.kernels.memory import operand_bytes
from advisor.kernels.pool import WorkerPool
from advisor.kernels.registry import spec
from advisor.kernels.variant import Variant, for_machine, variants
from advisor.records import DTYPES, Choice, Machine, Pairs, Problem, pairs
from advisor.search.race import LEAST_ROUNDS
from advisor.search.space import cpu_budget
from advisor.topology.placement import evaluate
from advisor.topology.probe import probe

ATTENTION = ("forward", "backward", "fused", "decode")
KERNELS = (*ATTENTION, *LAYERS)
SERVED = {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128}
SERVED_LAYER = {"d_model": 4096, "d_ff": 14336, "d_out": 6144}
SHAPES = {
    "paper": {
        **{"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "causal": 0},
        **{"d_model": 64, "d_ff": 256, "d_out": 192},
    },
    "served": {**SERVED, **SERVED_LAYER, "causal": 0},
    "served-1b": {
        **{"batch": 1, "heads": 32, "kv_heads": 4, "head_dim": 64, "causal": 0},
        **{"d_model": 2048, "d_ff": 5632, "d_out": 2560},
    },
    "served-causal": {**SERVED, **SERVED_LAYER, "causal": 1},
}
"""The paper's; those of Llama 3 8B (served) and of TinyLlama 1.1B (served-1b). Source: their config.json."""
SIZES = {
    ("paper", "decode"): tuple(4**i for i in range(5, 11)),
    ("served", "decode"): (1024, 4096, 16384, 65536),
    ("served-causal", "decode"): (1024, 4096, 16384, 65536),
    ("served-1b", "decode"): (1024, 4096, 16384, 65536),
    ("paper", ""): tuple(2**i for i in range(6, 14)),
    ("served", ""): tuple(2**i for i in range(6, 13)),
    ("served-1b", ""): tuple(2**i for i in range(6, 13)),
    ("served-causal", ""): tuple(2**i for i in range(6, 13)),
}
LAYER_SIZES = {"paper": (64, 256, 1024, 4096)}
TOKENS = (1, 16, 256)
"""Sizes of the kernels around attention: the paper's rows of each of two sequences, and tokens that a server has at
once: one request's next, some requests' next, a prompt."""

QUIET_PERCENT = 10.0
"""Busy share of all CPUs, over a second in which nothing of ours runs, from which on the machine is not quiet."""

PILOT_FLOPS = 5e9
PILOT_N = 512
"""The first row of a kernel and dtype that needs more arithmetic than that has a look at this n before it."""


class Bench(NamedTuple):
    """What all rows of one kernel share. `floor` for what reads; `torch` None where it is not installed."""

    machine: Machine
    pool: WorkerPool
    floor: WorkerPool | None
    torch: TorchPeer | None
    known: tuple[Variant, ...]
    rates: Rates
    deadline: Deadline
    quick: bool = False


# --- measure ---


def look_at(bench: Bench, key: Key, rival: Field) -> tuple[dict[str, Choice], dict[str, str]]:
    """The best choice of each role by looks, and what failed: first at all, then around the best, then at teams."""
    seen: dict[Choice, float] = {}
    failed: dict[str, str] = {}
    wave = rival.all()
    for _ in range(1 if bench.quick else CLIMBS + 1):
        times_ns, reasons = look_once(bench, key.problem, rival, wave)
        seen |= times_ns
        failed |= reasons
        for choice, time_ns in times_ns.items():
            bench.rates.note(key.problem, choice, bench.pool.spec.flops(key.problem) / time_ns)
        wave = around(bench, key.problem, rival, seen)
        if not wave:
            break
    leaders = rival.leaders(seen)
    far = out_of_reach(leaders, seen)
    failed |= far
    leaders = {role: best for role, best in leaders.items() if role not in far}
    looked = dict.fromkeys(best for role, best in leaders.items() if role not in rival.tabled)
    teams = {best: best_team(bench, key, best, seen[best]) for best in looked}
    return {role: best if role in rival.tabled else teams[best] for role, best in leaders.items()}, failed


def pilot(bench: Bench, key: Key) -> None:
    """Where a row is large and nothing is known yet of its kernel and dtype: a look at a small n.

    Then its time can be told, and what is slow by far is not run at the large n at all.
    """
    if bench.rates.choices(key.problem) or bench.pool.spec.flops(key.problem) < PILOT_FLOPS:
        return
    small = key._replace(problem=key.problem._replace(n=min(PILOT_N, key.problem.n)))
    look_at(bench, small, field(bench.machine, bench.known, small.problem, key.threads, bench.rates, bench.quick))


def look_once(
    bench: Bench, problem: Problem, rival: Field, wave: list[Choice]
) -> tuple[dict[Choice, float], dict[str, str]]:
    """Times of some choices in ns, and why variants have none."""
    choices = {f"ours {i}": choice for i, choice in enumerate(wave)}
    bench.pool.prepare(problem, wave)
    groups: Groups = {
        role: [name for name, choice in choices.items() if rival.fitting(role, [choice])] for role in rival.tests
    }
    found = look(samplers(bench, problem, choices), groups)
    failed = {choices[name].build.variant: reason[:300] for name, reason in found.failed.items()}
    return {choices[name]: time_ns for name, time_ns in found.ns.items()}, failed


def around(bench: Bench, problem: Problem, rival: Field, seen: dict[Choice, float]) -> list[Choice]:
    """What a look goes on with: choices one knob away from the best of each role."""
    leaders = [
        best for role, best in rival.leaders(seen).items() if role not in rival.tabled and seen[best] <= CLIMB_NS
    ]
    found = [one for best in leaders for one in neighbours(bench.known, problem, best, seen, bench.rates)]
    return list(dict.fromkeys(found))


def best_team(bench: Bench, key: Key, choice: Choice, time_ns: float) -> Choice:
    """The choice with as many threads as look best."""
    fewer = other_teams(bench.machine, choice, key.threads, time_ns)
    if not fewer:
        return choice
    choices = {f"team {i}": one for i, one in enumerate([choice, *fewer])}
    found = look(samplers(bench, key.problem, choices), {"all": list(choices)})
    return next((choices[name] for name in found.best(choices)), choice)


def samplers(bench: Bench, problem: Problem, choices: dict[str, Choice]) -> dict[str, Sampler]:
    """A sampler of each choice in the kernel's pool."""
    return {name: sampler(bench.pool, problem, choice, bench.deadline) for name, choice in choices.items()}


def peers(bench: Bench, problem: Problem, roles: dict[str, Choice]) -> tuple[dict[str, Sampler], dict[str, str]]:
    """The two fastest floors and forms of PyTorch by a look, and what is left out."""
    found: dict[str, Sampler] = {}
    left_out: dict[str, str] = {}
    try:
        found |= fastest(floor_samplers(bench, problem, roles), 2)
    except Refused as error:
        left_out["the floor"] = str(error)
    team = roles["choice"].team
    if bench.torch is not None and team is not None:
        try:
            forms, refused = bench.torch.samplers(problem, {team.threads, len(bench.machine.allowed_cpus)})
            left_out |= {f"PyTorch's {name}": reason for name, reason in refused.items()}
            found |= fastest(forms, 2)
        except Refused as error:
            left_out["PyTorch"] = str(error)
    return found, left_out


def floor_samplers(bench: Bench, problem: Problem, roles: dict[str, Choice]) -> dict[str, Sampler]:
    """The floor's reading orders, with the team of the native choice; none for kernels without a floor."""
    if bench.floor is None or "native" not in roles or not has_floor(problem):
        return {}
    moved = floor_problem(bench.floor.spec, problem)
    orders = floors(moved, roles["native"], floor_folder())
    return {name: sampler(bench.floor, moved, one, bench.deadline) for name, one in orders.items()}


def fastest(samplers: dict[str, Sampler], keep: int) -> dict[str, Sampler]:
    """The `keep` fastest by a look. Raises Refused when none has a time."""
    found = look(samplers, {"all": list(samplers)})
    if samplers and not found.ns:
        raise Refused("; ".join(sorted(set(found.failed.values()))))
    return {name: samplers[name] for name in found.best(samplers, keep)}


def measure(bench: Bench, key: Key, rival: Field, rounds: int) -> Measured:
    """Look, then race. Raises Refused where no choice, or no floor, has a time."""
    roles, failed = look_at(bench, key, rival)
    if "choice" not in roles:
        raise Refused("; ".join(sorted(set(failed.values()))) or "no variant is valid here")
    names = {choice: f"ours {i}" for i, choice in enumerate(dict.fromkeys(roles.values()))}
    race = samplers(bench, key.problem, {name: choice for choice, name in names.items()})
    others, left_out = peers(bench, key.problem, roles)
    samples = take_turns(race | others, rounds, seed=key.problem.n)
    torch = [min(taken) for name, taken in samples.items() if name.startswith("torch")]
    if torch:
        bench.rates.note(key.problem, "torch", bench.pool.spec.flops(key.problem) / min(torch))
    named = {
        role: (choice, "table" if role in rival.tabled else "look", names[choice]) for role, choice in roles.items()
    }
    return Measured(key, named, samples, failed | left_out, rounds)


def context(bench: Bench, measured: Measured) -> Context:
    """What the row is judged with."""
    machine, problem = bench.machine, measured.key.problem
    reads = bench.floor if has_floor(problem) else None
    moved = operand_bytes(reads.spec, floor_problem(reads.spec, problem)) if reads else None
    cpus = {
        choice: evaluate(choice.team.placement, machine.array, machine.allowed_cpus, choice.team.threads)
        for choice, _, _ in measured.roles.values()
        if choice.team
    }
    mapped = {variant.name: variant.mapping for variant in bench.known}
    return Context(machine, bench.pool.spec, moved, mapped, cpus, fingerprint(bench))


def fingerprint(bench: Bench) -> Pairs:
    """Variant -> source hash, and PyTorch's version: a row of others is measured again."""
    hashes = {variant.name: variant.source_hash for variant in bench.known}
    return pairs({**hashes, "PyTorch": bench.torch.version if bench.torch else None})


# --- run ---


class Run:
    """The rows of one call of this script: those of an earlier one are kept, the file is written after every row."""

    def __init__(self, arguments: argparse.Namespace, machine: Machine, conditions: dict[str, Any]) -> None:
        self.arguments = arguments
        self.conditions = conditions
        self.rows = load(arguments.json, machine) if arguments.json else []
        self.left_out: dict[str, str] = {}

    def done(self, key: Key, sources: Pairs) -> bool:
        """Whether an earlier run has the row, with the sources as they are now; one of other sources is let go."""
        old = [row for row in self.rows if row.key == key]
        self.rows = [row for row in self.rows if row.key != key or row.sources == sources]
        return any(row.sources == sources for row in old)

    def add(self, row: Row) -> None:
        """Keep and show a row."""
        self.rows.append(row)
        self.save()
        print("\n".join(lines(row)), flush=True)

    def leave_out(self, key: Key, why: str) -> None:
        """Say that there is no row."""
        problem = key.problem
        name = f"{problem.kernel} {key.shape} {problem.dtype} n={problem.n}"
        self.left_out[name] = why
        self.save()
        print(f"{name}: left out: {why}", flush=True)

    def save(self) -> None:
        """Write the file."""
        if self.arguments.json:
            save(self.arguments.json, self.conditions, self.rows, self.left_out)

    def attempt(self, bench: Bench, key: Key) -> None:
        """One row, where it fits in what is left of the budget."""
        pilot(bench, key)
        rival = field(bench.machine, bench.known, key.problem, key.threads, bench.rates, bench.quick)
        flops, left_s = bench.pool.spec.flops(key.problem), bench.deadline.left_s()
        most = self.arguments.rounds
        needs = {rounds: estimate_s(key.problem, flops, rival, bench.rates, rounds) for rounds in (most, LEAST_ROUNDS)}
        rounds = next((rounds for rounds, need_s in needs.items() if need_s <= left_s), None)
        if rounds is None:
            self.leave_out(key, f"it needs about {needs[LEAST_ROUNDS]:.0f} s, {left_s:.0f} s of the budget are left")
            return
        try:
            measured = measure(bench, key, rival, rounds)
            self.add(judge(context(bench, measured), measured))
        except (Refused, AdvisorError) as error:
            self.leave_out(key, str(error))


@contextlib.contextmanager
def opened(kernel: str, machine: Machine, torch: TorchPeer | None, budget_s: float) -> Iterator[Bench]:
    """The pools of one kernel, closed at the end."""
    known = for_machine(variants(kernel), machine)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(machine, spec(kernel), known))
        floor = None
        if kernel in ("decode", *STREAMS):
            places = [floor_folder()]
            floor = stack.enter_context(WorkerPool(machine, spec("read", places), variants("read", places)))
        yield Bench(machine, pool, floor, torch, known, Rates(), Deadline(budget_s))


def shape_of(arguments: argparse.Namespace) -> dict[str, int]:
    """The fixed shape that is asked for."""
    shape = dict(SHAPES[arguments.shape])
    if arguments.heads:
        shape["heads"], shape["kv_heads"] = arguments.heads
    return shape


def sizes_of(shape: str, kernel: str) -> tuple[int, ...]:
    """The n of a shape."""
    if kernel in LAYERS:
        return LAYER_SIZES.get(shape, TOKENS)
    return SIZES.get((shape, kernel)) or SIZES[shape, ""]


def keys(kernel: str, arguments: argparse.Namespace) -> Iterator[Key]:
    """The rows asked for, in order of n."""
    kernel_spec = spec(kernel)
    shape = {name: value for name, value in shape_of(arguments).items() if name in kernel_spec.parameters}
    sizes = arguments.n or sizes_of(arguments.shape, kernel)
    able = {dtype for variant in variants(kernel) for dtype in variant.dtypes}
    for n, dtype in itertools.product(sorted(sizes), arguments.dtype):
        if dtype in able:
            yield Key(arguments.shape, kernel_spec.problem(n, dtype, **shape), arguments.threads)


def heading(machine: Machine, torch: TorchPeer | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the figures are made on, printed and returned."""
    tools = [find_compiler(one.name).version.splitlines()[0] for one in compilers()]
    busy = psutil.cpu_percent(interval=1.0)  # nothing of ours runs yet: whatever does is somebody else
    rounds = f"{arguments.rounds} interleaved shuffled rounds"
    print(f"{', '.join(arguments.kernel)}; {arguments.shape} shape {shape_of(arguments)}; cache warm; {rounds}")
    print(f"{machine.model_name}, {len(machine.allowed_cpus)} CPUs in reach, {machine.caches}")
    print(f"{'; '.join(tools)}; PyTorch {torch.version if torch else 'is not installed'}")
    if busy > QUIET_PERCENT:
        print(f"warning: CPUs {busy:.0f} % busy before the first measurement: other work runs here, quote none of this")
    return {
        "hardware_id": machine.hardware_id,
        "limits_id": machine.limits_id,
        "cpu": machine.model_name,
        "cpus": len(machine.allowed_cpus),
        "cpu_budget": cpu_budget(machine),
        "environment": dict(machine.environment),
        "compilers": tools,
        "torch": torch.version if torch else None,
        "busy_percent_before": busy,
        "cache": "warm",
    }


def words(text: str) -> list[str]:
    """Words separated by commas."""
    return text.split(",")


def kernel_names(text: str) -> list[str]:
    """Kernels separated by commas; `layers` is all of those around attention."""
    return [name for word in words(text) for name in (LAYERS if word == "layers" else (word,))]


def heads(text: str) -> tuple[int, int]:
    """Query heads and heads of k and v, as in 40:8."""
    queries, _, cache = text.partition(":")
    return int(queries), int(cache or queries)


def parse(command: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    known = "separated by commas, layers: all of those around attention (default: all of attention)"
    parser.add_argument("--kernel", type=kernel_names, default=list(ATTENTION), help=known)
    parser.add_argument("--n", type=sizes, help="64..8192, or 1k,4k (default: those of the shape)")
    parser.add_argument("--dtype", type=words, default=["float32", "float64"], help="separated by commas")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="paper")
    parser.add_argument("--heads", type=heads, help="query heads and heads of k and v instead of the shape's: 40:8")
    parser.add_argument("--threads", type=int, help="threads of our choices and the floor (default: table or look)")
    parser.add_argument("--rounds", type=int, default=15, help=f"at least {LEAST_ROUNDS}")
    parser.add_argument("--json", metavar="FILE", help="write the rows here; rows that are there are not run again")
    parser.add_argument("--quick", action="store_true", help="look at few builds of every variant alone")
    parser.add_argument("--budget", type=seconds, default=300.0, help="for the whole run, such as 300s or 10m")
    found = parser.parse_args(command)
    if found.rounds < LEAST_ROUNDS:
        parser.error(f"fewer than {LEAST_ROUNDS} rounds say nothing about a ratio")
    for kernel in found.kernel:
        if kernel not in KERNELS:
            parser.error(f"no such kernel: {kernel}; there are {', '.join(KERNELS)}")
    for dtype in found.dtype:
        if dtype not in DTYPES:
            parser.error(f"no such dtype: {dtype}; there are {', '.join(DTYPES)}")
    return found


def work(arguments: argparse.Namespace, machine: Machine, torch: TorchPeer | None) -> Run:
    """All rows."""
    run = Run(arguments, machine, heading(machine, torch, arguments))
    whole = Deadline(arguments.budget)
    for i, kernel in enumerate(arguments.kernel):
        share_s = whole.left_s() / (len(arguments.kernel) - i)
        with opened(kernel, machine, torch, share_s) as bench:
            for key in keys(kernel, arguments):
                if not run.done(key, fingerprint(bench)):
                    run.attempt(bench._replace(quick=arguments.quick), key)
    return run


def main() -> int:
    """Measure, judge and print every row; 3 when one is left out."""
    arguments, machine = parse(), probe()
    torch = torch_peer(machine.allowed_cpus)
    with contextlib.closing(torch) if torch else contextlib.nullcontext():
        try:
            run = work(arguments, machine, torch)
        except AdvisorError as error:
            print(error, file=sys.stderr)
            return 1
    print("\n".join([*mappings(run.rows), *conclusions(run.rows)]))
    return 3 if run.left_out else 0


if __name__ == "__main__":
    sys.exit(main())

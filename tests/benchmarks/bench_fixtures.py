"""Made-up races of benchmarks/kernels.py and the rows judged from them."""

from __future__ import annotations

from fake import fake_machine
from kernel_rows import Context, Key, Measured, Row, judge

from advisor.kernels.registry import spec
from advisor.records import Build, Choice, Process, Team, pairs

AMD = fake_machine(cores=2)._replace(vendor="AuthenticAMD")
WAVE = [1.0, 1.01, 1.02, 0.99, 1.03, 1.0, 0.98, 1.01, 1.05]


def choice(variant: str, threads: int = 2) -> Choice:
    build = Build(variant, "0" * 12, pairs({"block": 8}), "gcc-12", "native")
    return Choice(build, Team(threads, ""), Process("libgomp", "default", None, "default"))


def samples(time_ns: float, shift: int = 0) -> list[float]:
    """Nine samples around a time, 1 % of noise in them."""
    return [time_ns * WAVE[(i + shift) % 9] for i in range(9)]


def measured(kernel: str, times: dict[str, float], peers: dict[str, float], n: int = 1024, **shape: int) -> Measured:
    """A race of one choice a role, and of peers."""
    roles = {role: (choice(role), "look", f"ours {i}") for i, role in enumerate(times)}
    taken = {roles[role][2]: samples(time_ns, i) for i, (role, time_ns) in enumerate(times.items())}
    taken |= {name: samples(time_ns, 3) for name, time_ns in peers.items()}
    return Measured(Key("paper", spec(kernel).problem(n, **shape), None), roles, taken, {"slow": "too slow"}, 9)


def context(kernel: str, cache_bytes: int | None = None) -> Context:
    return Context(AMD, spec(kernel), cache_bytes, {"native": "a strip a thread"}, {}, pairs({"native": "abc"}))


def row(kernel: str, times: dict[str, float], peers: dict[str, float], n: int = 1024) -> Row:
    return judge(context(kernel), measured(kernel, times, peers, n))

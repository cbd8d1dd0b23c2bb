"""A signature as tables of text. Nothing is measured or judged here."""

from __future__ import annotations

from advisor.records import Summary
from advisor.render import rows
from advisor.signature.records import Signature

TEAM = ("threads", "placement")
FIGURES = ("p25", "median", "95 % interval")


def duration(ns: float) -> str:
    """A time in the unit that reads best, three significant digits."""
    unit, size = next(((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("us", 1e3)) if ns >= s), ("ns", 1.0))
    return f"{ns / size:.3g} {unit}"


def shown(found: Signature) -> str:
    """Tables of the three figures, what was missing, and whether the machine was quiet."""
    parts = [*_fork_join(found), *_read(found), *_peak(found), *map("missing: {}".format, found.missing)]
    quiet = found.quiet
    verdict = "the machine was quiet" if quiet.quiet else f"the machine was NOT quiet: {'; '.join(quiet.reasons)}"
    told = [("stolen", quiet.steal), ("other processes", quiet.others), ("delayed samples", quiet.delayed)]
    shares = [f"{name} {share:.1%}" for name, share in told if share is not None]
    if quiet.load_1min is not None:
        shares.append(f"load {quiet.load_1min:g} before")
    return "\n\n".join([*parts, f"{verdict} ({', '.join(shares)}; {found.seconds:.0f} s, {found.compiler})"])


def _team(threads: int, placement: str) -> list[str]:
    return [str(threads), placement or "(as it stands)"]


def _times(time: Summary) -> list[str]:
    return [duration(time.p25_ns), duration(time.median_ns), " to ".join(map(duration, time.ci95_ns))]


def _rate(value: float, ends: tuple[float, float], unit: str) -> list[str]:
    return [f"{value:.1f} {unit}", f"{ends[0]:.1f} to {ends[1]:.1f}"]


def _fork_join(found: Signature) -> list[str]:
    body = [[*_team(one.threads, one.placement), one.wait_policy, *_times(one.time)] for one in found.fork_join]
    return [f"fork and join\n{rows((*TEAM, 'waiting', *FIGURES), body, right=3)}"] if body else []


def _read(found: Signature) -> list[str]:
    body = [
        [
            one.level,
            f"{one.bytes / 1e6:.0f} MB",
            *_team(one.threads, one.placement),
            *_rate(one.gb_per_s, one.gb_per_s_ci95, "GB/s"),
        ]
        for one in found.read
    ]
    return [f"reading\n{rows(('from', 'bytes', *TEAM, 'rate', '95 % interval'), body, right=4)}"] if body else []


def _peak(found: Signature) -> list[str]:
    body = [
        [one.dtype, *_team(one.threads, one.placement), *_rate(one.gflops, one.gflops_ci95, "Gflop/s")]
        for one in found.peak
    ]
    return [f"multiply-adds\n{rows(('dtype', *TEAM, 'rate', '95 % interval'), body, right=3)}"] if body else []

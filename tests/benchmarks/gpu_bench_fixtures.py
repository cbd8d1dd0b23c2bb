"""Made-up rows of benchmarks/gpu.py."""

from __future__ import annotations

from gpu_rows import Row

WAVE = [1.0, 1.001, 1.002, 0.999, 1.003, 1.0, 0.998, 1.001]
STATE = {
    "at": "2026-11-30T09:00:00+00:00",
    "card": {"name": "NVIDIA H200", "sm_count": 132, "power_limit_w": 700.0, "mig": "disabled"},
    "versions": {"driver": "580.1", "cupy": "14.2.0", "torch": "2.11.0"},
    "regime": "cold",
    "clocks": {"before": {"sm_mhz": 1980}, "after": {"sm_mhz": 1965}},
}


def samples(time_ns, rounds=24, shift=0):
    """Samples around a time, a few tenths of a percent apart."""
    return [time_ns * WAVE[(i + shift) % len(WAVE)] for i in range(rounds)]


def choice(variant, **knobs):
    """A choice of a device as a row holds it."""
    build = {"variant": variant, "source_hash": "0" * 12, "knobs": knobs, "compiler": "cupy-14.2", "flags": "as-is"}
    return {"build": build, "team": None, "process": None}


def entrant(name, kind, *roles, warps=None):
    return {
        "name": name, "choice": choice(name.split()[0]), "kind": kind, "roles": list(roles), "warps": warps,
        "mapping": f"how {name} is mapped", "arithmetic": "cache" if kind == "library" else "real",
    }  # fmt: skip


def race(shape="40:8", n=1024, rounds=24, **times):
    """A race: table, own, flash, cudnn, floor, one, more -> time in ns; who has none does not race."""
    listed = {
        "table": entrant("batched_mma blocks=264", "own", "table"),
        "own": entrant("batched blocks=132", "own", "own"),
        "flash": entrant("sdpa_flash", "library", "library"),
        "cudnn": entrant("sdpa_cudnn as_rows=1", "library", "library"),
        "floor": entrant("floor read blocks=528", "floor", "floor"),
        "one": entrant("split_w1 blocks=66", "own", "one warp", warps=1),
        "more": entrant("split_w4 blocks=66", "own", "more warps", warps=4),
    }
    kept = {name: one for name, one in listed.items() if name in times}
    data = {
        "entrants": list(kept.values()),
        "samples": {one["name"]: samples(times[name], rounds, i) for i, (name, one) in enumerate(kept.items())},
        "rounds": rounds, "left_out": {}, "cache_bytes": 1 << 22, "sets": 31, "evicted": n > 64,
    }  # fmt: skip
    return Row("race", {"shape": shape, "n": n}, {"batched": "a"}, STATE, 3.0, data)


def regret(n=1024, ours=1.01, share=0.08, whole=True):
    data = {
        "kernel": "decode", "n": n, "space": 222, "share": share, "compile_s": 9.0, "rounds": 60,
        "exhaustive": {"looked": 222 if whole else 100, "seconds": 30.0, "whole": whole},
        "spent": {"ours": {"choice": None, "trials": 25, "seconds": 2.4, "why": "more search cannot pay for itself"}},
        "regret": {"ours": [ours, ours - 0.01, ours + 0.01], "exhaustive": [1.0, 0.99, 1.01]},
        "chosen": {}, "samples": {"ours": samples(1010.0), "exhaustive": samples(1000.0)},
    }  # fmt: skip
    return Row("regret", {"shape": "40:8", "n": n}, {"batched": "a"}, STATE, 40.0, data)


def cold(variant="batched", right=True, first=1200.0):
    one = {
        "phases": [["interpreter", 12.0], ["import CuPy", 400.0], ["context", 250.0], ["compile and load", first],
                   ["first call", 0.2]],
        "warm_us": 12.5, "graph_us": 6.5, "error": {"error": 1e-7, "tolerance": 1e-6},
    }  # fmt: skip
    full = {**one, "phases": one["phases"][:3], "error": {"error": 1e-7 if right else 1.0, "tolerance": 1e-6}}
    data = {
        "name": f"{variant} blocks=264",
        "choice": choice(variant),
        "processes": {"empty": [one, one], "full": [full, full]},
    }
    return Row("cold", {"what": variant, "n": 1024}, {"batched": "a"}, STATE, 6.0, data)


def sweep(started=1):
    trials = [[64, "batched", "ok", 2.5, 5000.0], [64, "split_w4", "ok", 0.4, 5000.0], [256, "batched", "ok", 0.1, 1.0]]
    return Row("cold", {"what": "sweep"}, {"batched": "a"}, STATE, 4.0, {"workers_started": started, "trials": trials})


def counted(n=65536, refused=False):
    seen = {"l2_read_sectors": 8_400_000.0, "dram_read_bytes": 268_000_000.0, "achieved_occupancy": 0.5}
    one = {
        "name": "batched blocks=264",
        "choice": choice("batched"),
        "mapping": "m",
        "predicted": {"l2_read_sectors": float(1 << 23), "dram_read_bytes": 1 << 28},
    }
    none = {"refused": {"reason": "no permission (ERR_NVGPUCTRPERM)", "remedy": "ask an administrator"}}
    one = {**one, **(none if refused else {"counters": seen, "caches": "flushed", "tool": "ncu 2025.3"})}
    data = {"choices": [one], "samples": {one["name"]: samples(80_000.0)}, "rounds": 24, "left_out": {}}
    return Row("counters", {"shape": "40:8", "n": n}, {"batched": "a"}, STATE, 20.0, data)

"""First look at a GPU: every variant checked and timed at some n, beside the read floor. One JSON line a row.

python benchmarks/gpu_first.py --out rows.jsonl --seconds 200
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter

from advisor.kernels.executor import Ask
from advisor.kernels.gpu.device import find
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.gpu.tools import gpu_tools
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.registry import spec
from advisor.kernels.variant import variants
from advisor.search.samples import p25
from advisor.topology.probe import probe

SHAPES = {
    "paper": ("float32", {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}),
    "40:8": ("float16", {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}),
    "28:4": ("float16", {"batch": 1, "heads": 28, "kv_heads": 4, "head_dim": 128}),
}


def rows(pool, gpu, label, n, regime, until):
    """Look at every choice once, a variant's default first; best of each variant."""
    dtype, shape = SHAPES[label]
    problem = pool.spec.problem(n, dtype, regime, **shape)
    tools = tuple((tool.name, tool.language) for tool in gpu_tools())
    found = variants("decode", (), GPU_LANGUAGES)
    choices = gpu_space(gpu, pool.spec, found, problem, tools)
    slow = [c for c in choices if c.build.variant.endswith("triton")]
    choices = [c for c in choices if c not in slow or slow.index(c) % 5 == 0]  # each compiles for half a second
    prepared = pool.prepare(problem, choices)
    best, statuses = {}, Counter()
    for choice in choices:
        if time.monotonic() > until:
            break
        one = pool.measure(problem, choice, Ask(3, 30.0))
        statuses[choice.build.variant, one.status, one.reason[:200] if one.status != "ok" else ""] += 1
        if one.status == "ok" and p25(one.samples_ns) < best.get(choice.build.variant, (float("inf"),))[0]:
            best[choice.build.variant] = (
                p25(one.samples_ns),
                choice.build.knobs,
                one.error,
                one.tolerance,
                one.conditions,
            )
    return {"shape": label, "n": n, "regime": regime, "prepared": prepared._asdict(), "space": len(choices),
            "best": best, "statuses": [[*k, c] for k, c in statuses.items()]}  # fmt: skip


def main():
    """Run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--n", default="1,1024,1920,4095,16384,65536,262144,1048576")
    parser.add_argument("--shapes", default="paper,40:8,28:4")
    parser.add_argument("--regime", default="cold")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    machine = probe()
    gpu = find(machine, "cuda:0")
    print(gpu, flush=True)
    sizes = [int(word) for word in asked.n.split(",")]
    with GpuPool(gpu, spec("decode"), variants("decode", (), GPU_LANGUAGES)) as pool, open(asked.out, "w") as file:
        for n in sizes:
            for label in asked.shapes.split(","):
                if time.monotonic() > until:
                    return
                begun = time.monotonic()
                row = rows(pool, gpu, label, n, asked.regime, until)
                row["seconds"] = time.monotonic() - begun
                file.write(json.dumps(row) + "\n")
                file.flush()
                words = {k: f"{v[0] / 1000:.2f}us {dict(v[1])} e{v[2]:.1e}/{v[3]:.1e}" for k, v in row["best"].items()}
                print(label, n, row["space"], f"{row['seconds']:.0f}s", words, flush=True)
                print("   ", [s for s in row["statuses"] if s[1] != "ok"][:6], flush=True)


if __name__ == "__main__":
    main()

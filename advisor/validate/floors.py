"""The read floor: how fast so many bytes can be read once, from memory and from the last-level cache."""

from __future__ import annotations

import os

from advisor.kernels.memory import USABLE, need_bytes, room_bytes
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import knob_sets
from advisor.records import Problem
from advisor.search.samples import smooth_p25
from advisor.validate.plan import cell, teams_of
from advisor.validate.race import Taken, race
from advisor.validate.records import Floor, Node
from advisor.validate.request import SHAPE, paper_shape
from advisor.validate.run import Job, Run, node_of

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")
"""Where the read floor lies: a kernel of the validation's own, which nobody tunes."""

FLOOR_BYTES = 1 << 30
"""The read floor of memory reads four times the last-level cache, and no more than this."""

UNKNOWN_CACHE_BYTES = 64 << 20
"""Last-level cache where its size is unknown: more than most have."""


def floor_problems(spec: KernelSpec, node: Node) -> tuple[Problem, ...]:
    """Caches that fit a quarter of the last-level cache, and that are four times as large; without the latter where
    memory does not allow."""
    last = node.last_level_bytes or UNKNOWN_CACHE_BYTES
    row = 2 * 4 * SHAPE["batch"] * SHAPE["kv_heads"] * SHAPE["head_dim"]
    wanted = (last // 4, min(4 * last, FLOOR_BYTES))
    found = [spec.problem(max(64, size // row), **paper_shape(spec)) for size in wanted]
    room = room_bytes()
    return tuple(p for p in found if room is None or need_bytes(spec, p) < USABLE * room / 2)


def floors(run: Run, job: Job, until: float) -> None:
    """The fastest of the reading orders, with one thread and with all."""
    node = node_of(run.machine)
    last = node.last_level_bytes or UNKNOWN_CACHE_BYTES
    variant = job.variants[0]
    sizes = floor_problems(job.spec, node)
    crowd = teams_of(run.machine, sorted({1, node.cpus}))
    run.progress.stage("read floor", len(sizes))
    for problem in sizes:
        size = 4 * job.spec.elements(problem).read
        plain = [cell(variant, problem, team, run.options) for team in crowd]
        wanted = tuple(
            one._replace(choice=one.choice._replace(build=one.choice.build._replace(knobs=knobs)))
            for one in plain
            if one is not None
            for knobs in knob_sets(variant, problem)
        )
        if run.clock() > until:
            run.found.missing.append(f"read floor at {size / 1e6:.0f} MB: no time")
            continue
        taken = Taken({}, {})
        job.pool.until = run.end
        race(job.pool, problem, wanted, until, run, taken)
        for team in crowd:
            own = [samples for one, samples in taken.samples.items() if one.threads == team.threads]
            if not own:
                run.found.missing.append(f"read floor at {size / 1e6:.0f} MB, {team.threads}T: no time, or it failed")
            else:
                best = min(own, key=smooth_p25)
                run.found.floors.append(Floor(team.threads, size, size <= last, tuple(best)))
        run.progress.advance(f"{size / 1e6:.0f} MB")

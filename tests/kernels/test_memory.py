"""Room for a trial: the least of MemAvailable and every memory limit above the process."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.kernels.memory import MOST_SETS, is_evicted, need_bytes, operand_bytes, operand_sets, room_bytes
from advisor.kernels.registry import spec
from advisor.records import Caches

GIB = 1 << 30


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


MEMINFO = {"proc/meminfo": f"MemTotal: 9 kB\nMemAvailable:   {8 * GIB // 1024} kB\n"}


def test_only_meminfo(tmp_path):
    assert room_bytes(tree(tmp_path, MEMINFO)) == 8 * GIB


def test_nothing_known(tmp_path):
    assert room_bytes(str(tmp_path)) is None


def test_version_2_the_tightest_ancestor_binds(tmp_path):
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": str(3 * GIB),
            "sys/fs/cgroup/a/memory.current": str(2 * GIB),
            "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.current": str(GIB),
        },
    )
    assert room_bytes(root) == GIB + GIB // 2


@pytest.mark.parametrize(("limit", "room"), [(2 * GIB, GIB), ((1 << 63) - 4096, 8 * GIB)])
def test_version_1(tmp_path, limit, room):
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "4:cpu,memory:/x\n0::/\n",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": str(limit),
            "sys/fs/cgroup/memory/x/memory.usage_in_bytes": str(GIB),
        },
    )
    assert room_bytes(root) == room


def test_a_group_of_the_host_that_is_not_seen_here(tmp_path):
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/../../pod7/box\n",
            "sys/fs/cgroup/memory.max": str(GIB),
            "sys/fs/cgroup/memory.current": "0",
        },
    )
    assert room_bytes(root) == GIB


def test_over_the_limit_there_is_no_room(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "10", "sys/fs/cgroup/memory.current": "20"}
    assert room_bytes(tree(tmp_path, files)) == 0


def test_this_machine_has_some():
    assert room_bytes() > 0


def test_need_counts_operands_copies_and_reference():
    problem = fixtures.problem(10)
    elements = 2 * 10 * 16
    assert need_bytes(fixtures.scale(), problem) == elements * (2 * 4 + 8)
    assert need_bytes(fixtures.scale(), problem, copies=3) == elements * (4 * 4 + 8)


def test_need_counts_each_buffer_in_the_type_that_it_is_stored_in():
    decode = spec("decode")
    problem = decode.problem(100, "bfloat16", batch=2, heads=4, kv_heads=2, head_dim=64)
    cache, rows = 2 * 2 * 2 * 100 * 64, 2 * 2 * 4 * 64  # k and v; q and out
    assert operand_bytes(decode, problem) == 2 * cache + 4 * rows
    assert need_bytes(decode, problem) == 2 * (2 * cache + 4 * rows) + 8 * (cache + rows)


def test_cold_operands_rotate_through_more_than_the_caches():
    decode, machine = (
        spec("decode"),
        fixtures.here()._replace(caches=Caches(None, None, 32 << 20), l3_groups=((0,), (1,))),
    )
    warm, cold = (decode.problem(4096, regime=regime) for regime in ("warm", "cold"))
    assert operand_sets(machine, decode, warm) == 1
    rotated = operand_sets(machine, decode, cold) * operand_bytes(decode, cold)
    assert 128 << 20 <= rotated <= (128 << 20) + 2 * operand_bytes(decode, cold)
    assert is_evicted(machine, decode, cold)
    assert operand_sets(machine, decode, cold._replace(n=10**7)) == 2
    assert operand_sets(machine, decode, cold._replace(n=1)) == MOST_SETS
    assert not is_evicted(machine, decode, cold._replace(n=1))
    assert need_bytes(decode, cold, operand_sets(machine, decode, cold)) > 128 << 20

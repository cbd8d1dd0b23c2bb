"""Each kind of odd machine, built in a line or two: what its array, its groupings and its placements are."""

import pytest
from trees import (
    affinity,
    build,
    cgroup2,
    cpu,
    cpuset,
    group,
    hybrid,
    memory_only,
    node,
    put,
    quota,
    spell,
)

from advisor import identity
from advisor.kernels.memory import USABLE, room_bytes
from advisor.ranges import default_answer
from advisor.search.space import teams
from advisor.site import describe_here
from advisor.topology.array import ABSENT, live, ravel
from advisor.topology.candidates import groupings
from advisor.topology.placement import default_team, evaluate
from advisor.topology.probe import topology


def test_a_shape_is_the_machine_that_it_says(tmp_path):
    found = topology(str(build(tmp_path, "2s4n16c2t")))
    assert found.array.axes == ("socket", "numa", "core", "smt")
    assert found.array.shape == (2, 4, 16, 2)
    assert (found.sockets, found.cores, found.threads_per_core) == (2, 128, 2)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ("2s2n2l2c", ("socket", "numa", "l3", "core", "smt")),  # L3 inside the node, as on EPYC
        ("2s1l2n2c", ("socket", "l3", "numa", "core", "smt")),  # outside it, with sub-NUMA clusters
        ("1n2s2c", ("numa", "socket", "core", "smt")),  # a node that lost its memory: two sockets in one
        ("1l4s2c", ("l3", "socket", "core", "smt")),  # a guest with one L3 over all sockets
        ("2d2b2s2c", ("drawer", "book", "socket", "core", "smt")),
        ("1s2i2k2c", ("socket", "die", "cluster", "core", "smt")),
        ("8c4t", ("core", "smt")),
    ],
)
def test_axes_follow_containment_on_this_machine(tmp_path, shape, axes):
    found = topology(str(build(tmp_path, shape)))
    assert found.array.axes == axes
    assert ABSENT not in found.array.cpus


@pytest.mark.parametrize("adjacent", [True, False])
def test_numbers_of_threads_are_read_and_never_guessed(tmp_path, adjacent):
    found = topology(str(build(tmp_path, "1s4c2t", adjacent=adjacent)))
    assert evaluate("take smt 1", found.array, found.online_cpus) == ((0, 2, 4, 6) if adjacent else (0, 1, 2, 3))


def test_offline_cpus_are_holes(tmp_path):
    found = topology(str(build(tmp_path, "2s4c2t", offline=(1, 9, 12))))
    assert found.offline_cpus == (1, 9, 12)
    assert (found.cores, len(found.online_cpus)) == (7, 13)
    assert found.array.cpus.count(ABSENT) == 3
    assert set(ravel(found.array)) == set(found.online_cpus)


def test_sparse_and_interleaved_ids(tmp_path):
    ids = [0, 4, 1, 5, 2, 6, 3, 1700]
    found = topology(str(build(tmp_path, "2s2n2c", ids=ids)))
    assert dict(found.groupings)["socket"] == ((0, 1, 4, 5), (2, 3, 6, 1700))
    assert [node.cpus for node in found.numa_nodes] == [(0, 4), (1, 5), (2, 6), (3, 1700)]
    assert evaluate("", found.array, found.online_cpus)[-1] == 1700


def test_memory_only_nodes_are_no_place_for_threads(tmp_path):
    root = memory_only(memory_only(build(tmp_path, "2s1n4c"), 4), 250)
    found = topology(str(root))
    assert [(node.id, len(node.cpus)) for node in found.numa_nodes] == [(0, 4), (1, 4), (4, 0), (250, 0)]
    assert found.array.axes == ("socket", "numa", "core", "smt")
    assert found.array.shape == (2, 1, 4, 1)


CROSSING = {
    "l3 over parts of two sockets": ("2s4c", "l3", [[0, 1, 4, 5], [2, 3, 6, 7]]),
    "nodes across sockets": ("2s4c", "numa", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    "clusters across L3 groups": ("1s2l4c", "cluster", [[0, 4], [1, 5], [2, 6], [3, 7]]),
}


@pytest.mark.parametrize("name", CROSSING)
def test_what_does_not_nest_is_a_labelled_grouping(tmp_path, name):
    shape, level, groups = CROSSING[name]
    found = topology(str(group(build(tmp_path, shape), level, groups)))
    assert level not in found.array.axes
    assert dict(found.groupings)[level] == tuple(map(tuple, groups))
    assert set(ravel(found.array)) == set(range(8))


def test_a_node_with_cpus_of_its_own_missing_is_no_axis(tmp_path):
    root = build(tmp_path, "2s1n4c")
    node(root, 0, ())  # its CPUs belong to no node
    found = topology(str(root))
    assert "numa" not in found.array.axes
    assert any("no NUMA node" in warning for warning in found.warnings)


def test_overlapping_nodes_are_told(tmp_path):
    root = build(tmp_path, "2s1n4c")
    node(root, 0, range(8))
    found = topology(str(root))
    assert "numa" not in found.array.axes
    assert any("overlap" in warning for warning in found.warnings)


def test_ragged_sockets_have_holes_and_never_an_id_in_them(tmp_path):
    root = build(tmp_path, "2s4c2t")
    for number in (7, 15):
        (root / f"sys/devices/system/cpu/cpu{number}/topology/core_siblings_list").unlink()
    group(root, "socket", [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 12, 13, 14], [7, 15]])
    found = topology(str(root))
    assert found.array.shape == (3, 4, 2)
    assert sorted(ravel(found.array)) == list(range(16))


# --- T-01 and the kinds of cores ---


@pytest.mark.parametrize("by", ["lists", "capacity", "frequency", "part"])
def test_t01_kinds_of_cores_in_order_of_capacity(tmp_path, by):
    """8 performance cores of two threads (ids 0-15) and 16 efficiency cores (16-31)."""
    root = build(tmp_path, "1s16c2t", ids=[*range(0, 16, 2), *range(16, 24), *range(1, 16, 2), *range(24, 32)])
    for number in range(16, 32):
        put(root, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{number}\n")
    found = topology(str(hybrid(root, range(16), range(16, 32), by=by)))
    assert [kind.cpus for kind in found.core_classes] == [tuple(range(16)), tuple(range(16, 32))]
    assert dict(found.groupings)["class"] == (tuple(range(16)), tuple(range(16, 32)))
    assert (found.cores, found.threads_per_core) == (24, 2)


def test_t01_the_thread_counts_of_a_hybrid_machine(tmp_path):
    """P only without SMT (8), P only with it (16), all cores (24), all threads (32) and all minus one (31)."""
    from advisor.search.space import thread_counts

    root = build(tmp_path, "1s16c2t", ids=[*range(0, 16, 2), *range(16, 24), *range(1, 16, 2), *range(24, 32)])
    for number in range(16, 32):
        put(root, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{number}\n")
    found = topology(str(hybrid(root, range(16), range(16, 32))))
    assert {8, 16, 24, 31, 32} <= set(thread_counts(found))


@pytest.mark.parametrize(
    ("allowed", "cpus"),
    [
        ("0-31", tuple(range(0, 16, 2))),  # a thread on each performance core
        ("4-5,14-20", (4, 14)),
        ("16-31", tuple(range(16, 32))),  # no performance core in reach
        ("2-3", (2,)),
    ],
)
def test_t01_the_careful_team_is_of_the_strongest_cores(tmp_path, allowed, cpus):
    root = build(tmp_path, "1s16c2t", ids=[*range(0, 16, 2), *range(16, 24), *range(1, 16, 2), *range(24, 32)])
    for number in range(16, 32):
        put(root, f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", f"{number}\n")
    affinity(hybrid(root, range(16), range(16, 32)), allowed)
    here = identity.here(str(root))
    threads, placement = default_team(here.array, here.allowed, here.budget, here.groupings)
    assert evaluate(placement, here.array, here.allowed, threads, here.groupings) == cpus
    assert default_answer(describe_here(str(root), []), "decode", "no table").cpus == cpus


def test_the_careful_team_is_where_the_strongest_cores_are_and_never_over_two_domains(tmp_path):
    root = build(tmp_path, "2s1n4c")
    found = topology(str(hybrid(root, (5, 6, 7), (0, 1, 2, 3, 4), by="capacity")))
    threads, placement = default_team(found.array, found.online_cpus, 2, groupings(found))
    assert evaluate(placement, found.array, found.online_cpus, threads, groupings(found)) == (5, 6)


def test_three_kinds_and_a_kind_that_is_wholly_offline(tmp_path):
    root = build(tmp_path, "1s6c", offline=(4, 5))
    found = topology(str(hybrid(root, (0, 1), (2, 3), (4, 5), by="capacity")))
    assert [kind.cpus for kind in found.core_classes] == [(0, 1), (2, 3)]
    assert [kind.capacity for kind in found.core_classes] == [1024, 512]


@pytest.mark.parametrize(("by", "name"), [("frequency", "uniform"), (None, "unknown")])
def test_kinds_are_unknown_where_nothing_tells_and_uniform_where_all_are_alike(tmp_path, by, name):
    root = build(tmp_path, "1s4c")
    if by:
        hybrid(root, range(4), by=by)
    (kind,) = topology(str(root)).core_classes
    assert (kind.name, kind.cpus) == (name, (0, 1, 2, 3))
    assert "class" not in dict(topology(str(root)).groupings)


# --- limits on odd machines ---


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("cpus", "budget"), [(1.5, 1), (7.65, 7), (None, 64), (0.2, 1), (200, 64)])
def test_c01_the_budget_is_the_floor_of_the_quota(tmp_path, version, cpus, budget):
    found = identity.here(str(quota(build(tmp_path, "2s32c"), cpus, version)))
    assert found.budget == budget
    assert len(found.allowed) == 64
    assert found.cpu_quota == cpus


def test_a_cpuset_on_a_machine_with_offline_cpus(tmp_path):
    root = cpuset(build(tmp_path, "2s4c2t", offline=(2, 10)), "2-5,10-12", mems="0-1")
    affinity(root, "0-4,12")
    found = topology(str(root))
    assert found.allowed_cpus == (3, 4, 12)
    assert live(found.array, found.allowed_cpus).shape == (2, 1, 2)
    assert evaluate("take smt 1", found.array, found.allowed_cpus) == (3, 4)


def test_c02_a_table_of_another_mask_is_another_machine(tmp_path):
    """Affinity 5, 17, 40 of 64 CPUs; 17 is the sibling of 49, which is not allowed."""
    root = build(tmp_path / "a", "1s32c2t")
    affinity(root, "5,17,40")
    found = identity.here(str(root))
    assert set(evaluate("take smt 1", found.array, found.allowed)) == {5, 17, 40}
    other = build(tmp_path / "b", "1s32c2t")
    affinity(other, "5,40")
    assert identity.here(str(other)).limits_id != found.limits_id


def test_c03_the_limit_is_that_of_the_group_and_not_of_the_host(tmp_path):
    """2 GiB, half a GiB of it taken, on a host with 500 GiB free: scores of 65536 x 65536 floats do not fit.

    That such a trial is skipped before it is launched, and that a killed child ends one trial, is in test_pool.py.
    """
    root = build(tmp_path, "1s4c")
    put(root, "proc/meminfo", f"MemTotal: {512 << 20} kB\nMemAvailable: {500 << 20} kB\n")
    cgroup2(root, "/job", {"job/memory.max": str(2 << 30), "job/memory.current": str(1 << 29)})
    found = topology(str(root))
    assert found.memory_limit_bytes == 2 << 30
    assert dict(found.extra)["memory_total_bytes"] == 512 << 30
    assert room_bytes(str(root)) == 3 << 29
    assert room_bytes(str(root)) * USABLE < 65536 * 65536 * 4


def test_c04a_a_sandbox_without_sysfs_is_a_flat_list_of_its_mask(tmp_path):
    affinity(tmp_path, "0-1,7")
    found = topology(str(tmp_path))
    assert (found.array.axes, found.array.cpus) == (("cpu",), (0, 1, 7))
    assert (found.caches, found.numa_nodes, found.sockets) == ((None, None, None), (), None)
    assert {team.placement for team in teams(found)} == {"none"}
    assert max(team.threads for team in teams(found)) == 3


def test_c04b_an_allowed_cpu_outside_the_online_list(tmp_path):
    root = build(tmp_path, "1s32c", offline=range(1, 32))
    put(root, "sys/devices/system/cpu/present", "0-31\n")
    affinity(root, "24")
    found = identity.here(str(root))
    assert (found.allowed, found.budget) == ((24,), 1)
    assert evaluate("", found.array, found.allowed) == (24,)
    assert any("24" in warning for warning in found.warnings)


# --- T-03 ---


def test_t03_half_of_the_cpus_offline(tmp_path):
    """possible 0-7, online 0-3,6; cpu4, cpu5, cpu7 without topology, cpu0 without an online file."""
    root = build(tmp_path / "before", "1s8c", offline=(4, 5, 7))
    put(root, "sys/devices/system/cpu/online", "0-3,6\n")
    for number in (1, 2, 3, 6):
        put(root, f"sys/devices/system/cpu/cpu{number}/online", "1\n")
    found = topology(str(root))
    assert (found.online_cpus, found.offline_cpus) == ((0, 1, 2, 3, 6), (4, 5, 7))
    later = topology(str(build(tmp_path / "after", "1s8c", offline=(4, 7))))
    assert later.hardware_id != found.hardware_id


def test_t03_without_a_list_cpu0_counts_as_online(tmp_path):
    root = build(tmp_path, "1s4c", offline=(2,))
    (root / "sys/devices/system/cpu/online").unlink()
    put(root, "sys/devices/system/cpu/cpu3/online", "0\n")
    assert topology(str(root)).online_cpus == (0, 1)


# --- T-02 ---


@pytest.mark.parametrize("lists", [("0-1", "2-3"), ("0,1", "2,3")])
def test_t02_both_spellings_of_siblings(tmp_path, lists):
    put(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    for number in range(4):
        cpu(tmp_path, number, {"thread_siblings_list": lists[number // 2], "core_siblings_list": spell(range(4))})
    found = topology(str(tmp_path))
    assert evaluate("take smt 1", found.array, found.online_cpus) == (0, 2)

"""Files that are torn, missing for some CPUs, spelled as few kernels do; odd nodes and control groups."""

import shutil

import pytest
from trees import CPU, affinity, build, cgroup1, cgroup2, group, hybrid, mask, node, put

from advisor import identity
from advisor.search.space import teams
from advisor.topology.placement import evaluate
from advisor.topology.probe import topology

# --- files that are torn, missing for some CPUs, or spelled as few kernels do ---


def test_an_empty_mask_is_no_mask(tmp_path):
    """A process runs somewhere: a status file that names no CPU tells nothing."""
    root = build(tmp_path, "1s4c")
    put(root, "proc/self/status", "Cpus_allowed_list:\nMems_allowed_list:\t\n")
    found = topology(str(root))
    assert (found.allowed_cpus, found.allowed_mems) == ((0, 1, 2, 3), None)


def test_ids_with_wide_gaps(tmp_path):
    ids = [0, 7, 4095, 4096, 70000, 70001, 99998, 99999]
    root = build(tmp_path, "2s1l2c2t", ids=ids)
    put(root, f"{CPU}/online", "0,7,4095-4096,70000-70001,99998-99999\n")
    found = topology(str(root))
    assert (found.online_cpus, found.array.shape) == (tuple(ids), (2, 1, 2, 2))
    assert dict(found.groupings)["socket"] == ((0, 7, 70000, 70001), (4095, 4096, 99998, 99999))


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("missing", [("topology",), ("topology", "cache"), ("topology/core_siblings_list",)])
def test_a_cpu_whose_files_are_missing_is_known_by_its_siblings(tmp_path, number, missing):
    root = build(tmp_path, "2s1n1l4c2t")
    for name in missing:
        path = root / CPU / f"cpu{number}" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    whole = topology(str(build(tmp_path / "whole", "2s1n1l4c2t")))
    assert topology(str(root)).array == whole.array


@pytest.mark.parametrize("listed", [True, False])
def test_cpu0_offline(tmp_path, listed):
    root = build(tmp_path, "1s1n1l4c2t", offline=(0,))
    if not listed:
        (root / CPU / "online").unlink()
        put(root, f"{CPU}/cpu0/online", "0\n")
    found = topology(str(root))
    assert (found.offline_cpus, found.cores, len(found.online_cpus)) == ((0,), 4, 7)


def test_packages_smaller_than_cores_are_none(tmp_path):
    """Package id -1, every thread a package of its own, and two threads a core."""
    root = build(tmp_path, "4c2t")
    group(root, "socket", [[number] for number in range(8)])
    found = topology(str(root))
    assert (found.sockets, found.cores, found.array.axes) == (None, 4, ("core", "smt"))


def test_without_sys_the_kernels_times_tell_which_cpus_there_are(tmp_path):
    put(tmp_path, "proc/stat", "cpu  9 9\ncpu0 1 1\ncpu2 1 1\nintr 5\n")
    assert topology(str(tmp_path)).online_cpus == (0, 2)


def test_masks_of_4096_bits_that_end_in_a_nul_byte(tmp_path):
    root = build(tmp_path, "2s1n1l4c2t")
    for file in list((root / CPU).glob("cpu*/topology/*_list")):
        ids = map(int, file.read_text().split(","))
        file.with_name(file.name.removesuffix("_list")).write_text("00000000," * 127 + mask(ids) + "\n\0")
        file.unlink()
    assert topology(str(root)).array == topology(str(build(tmp_path / "lists", "2s1n1l4c2t"))).array


def test_a_kernel_that_has_ids_and_no_sibling_files(tmp_path):
    """core_id repeats in every die: package, die and core together name a core."""
    root = build(tmp_path, "1s2i2c2t")
    for number in range(8):
        put(root, f"{CPU}/cpu{number}/topology/die_id", f"{number % 4 // 2}\n")
    for file in list((root / CPU).glob("cpu*/topology/*_siblings_list")):
        file.unlink()
    found = topology(str(root))
    assert (found.cores, found.threads_per_core, found.array.shape) == (4, 2, (1, 2, 2, 2))


def test_names_of_newer_kernels(tmp_path):
    root = build(tmp_path, "2s1n1l4c2t")
    names = {"thread_siblings_list": "core_cpus_list", "core_siblings_list": "package_cpus_list"}
    for file in [*(root / CPU).glob("cpu*/topology/*_siblings_list")]:
        file.rename(file.with_name(names[file.name]))
    assert topology(str(root)).array.shape == (2, 1, 1, 4, 2)


def test_an_l3_that_only_half_of_the_cores_tell_of_is_no_axis(tmp_path):
    root = build(tmp_path, "1s1n2l4c")
    for number in (4, 5, 6, 7):
        shutil.rmtree(root / CPU / f"cpu{number}/cache/index3")
    found = topology(str(root))
    assert ("l3" in found.array.axes, found.l3_groups) == (False, ((0, 1, 2, 3),))


def test_lists_of_kinds_that_leave_a_core_out(tmp_path):
    root = build(tmp_path, "1s8c")
    hybrid(root, (4, 5, 6), (0, 1, 2))
    found = topology(str(root))
    assert [(kind.name, kind.cpus) for kind in found.core_classes] == [
        ("cpu_core", (4, 5, 6)),  # first though its ids are higher
        ("cpu_atom", (0, 1, 2)),
        ("other", (3, 7)),
    ]
    here = identity.here(str(root))
    assert here.groupings is not None
    assert here.groupings()["class"][0] == (4, 5, 6)


def test_arm_parts_alone_rank_the_big_cores_first(tmp_path):
    root = build(tmp_path, "8c")
    block = "processor\t: {}\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"
    put(root, "proc/cpuinfo", "".join(block.format(i, "0xd03" if i < 4 else "0xd09") for i in range(8)))
    found = topology(str(root))
    assert [(kind.cpus, kind.capacity) for kind in found.core_classes] == [((4, 5, 6, 7), None), ((0, 1, 2, 3), None)]


def test_a_hybrid_machine_that_tells_no_kind_is_unknown_and_keeps_its_cores(tmp_path):
    root = build(tmp_path, "1s1l16c2t", ids=[*range(0, 16, 2), *range(16, 24), *range(1, 16, 2), *range(24, 32)])
    for number in range(16, 32):
        put(root, f"{CPU}/cpu{number}/topology/thread_siblings_list", f"{number}\n")
    found = topology(str(root))
    assert (found.cores, [kind.name for kind in found.core_classes]) == (24, ["unknown"])


def test_s390_with_threads(tmp_path):
    root = build(tmp_path, "2d2b2s4c2t", adjacent=True)
    put(
        root,
        "proc/cpuinfo",
        "vendor_id       : IBM/S390\nfeatures\t: esan3 zarch te vx vxe\n"
        "cache0          : level=1 type=Data scope=Private size=128K\nprocessor 0: version = FF,  machine = 3906\n",
    )
    found = topology(str(root))
    assert (found.architecture, found.model_name, found.isa) == ("s390x", "IBM/S390 machine 3906", ("vx", "vxe"))
    assert (found.array.axes[:3], found.sockets, found.cores) == (("drawer", "book", "socket"), 8, 32)


# --- nodes ---


def test_distances_to_nodes_that_are_not_there_are_told(tmp_path):
    root = build(tmp_path, "2s2n4c")
    for number, row in enumerate(["10 20 30 40", "20 10", "x 20 10 40", "40 30 20 10 99"]):
        put(root, f"sys/devices/system/node/node{number}/distance", f"{row}\n")
    found = topology(str(root))
    assert [len(one.distances) for one in found.numa_nodes] == [4, 2, 0, 5]
    assert [warning for warning in found.warnings if "nodes 1, 3 tell distances" in warning]


def test_expanders_behind_a_gap_of_ids_are_no_place_for_threads_or_policies(tmp_path):
    root = build(tmp_path, "2s1n4c")
    for number in (2, 3, 17):
        node(root, number, (), 1 << 22, "17 27 10 30 40")
    affinity(root, "0-7", "0-3,17")
    found = topology(str(root))
    assert (found.array.axes, found.array.shape) == (("socket", "numa", "core", "smt"), (2, 1, 4, 1))
    assert found.allowed_mems == (0, 1, 2, 3, 17)
    assert all(evaluate(team.placement, found.array, found.allowed_cpus, team.threads) for team in teams(found))


def test_a_node_without_memory_and_one_without_cpus(tmp_path):
    root = build(tmp_path, "1s4c")
    node(root, 0, (), 1024)
    node(root, 1, range(4), 0)
    assert [(one.cpus, one.memory_bytes) for one in topology(str(root)).numa_nodes] == [
        ((), 1 << 20),
        ((0, 1, 2, 3), 0),
    ]


# --- control groups in odd places ---


def test_version_1_mounts_by_any_name(tmp_path):
    root = build(tmp_path, "1s8c")
    lines = (r"31 23 0:31 / /dev/c\040g/cpu,odd rw - cgroup none rw,cpu", "33 23 0:33 / /dev/cpuset rw - cpuset x rw")
    put(root, "proc/self/mountinfo", "\n".join(lines) + "\n")
    put(root, "proc/self/cgroup", "4:cpu:/a b\n2:cpuset:/x\n")
    put(root, "dev/c g/cpu,odd/a b/cpu.cfs_quota_us", "250000\n")
    put(root, "dev/c g/cpu,odd/a b/cpu.cfs_period_us", "100000\n")
    put(root, "dev/cpuset/x/cpus", "2-5\n")
    found = topology(str(root))
    assert (found.cpu_quota, found.allowed_cpus) == (2.5, (2, 3, 4, 5))


def test_version_1_inside_a_container_sees_its_own_group_as_the_top(tmp_path):
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "350000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    cgroup1(build(tmp_path, "1s8c"), "/docker/ab", {**files, "cpuset/cpuset.cpus": "1-6"}, "/docker/ab")
    found = topology(str(tmp_path))
    assert (found.cpu_quota, found.allowed_cpus) == (3.5, (1, 2, 3, 4, 5, 6))


@pytest.mark.parametrize("path", ["/a/b", "/../elsewhere"])
def test_a_group_that_says_nothing_inherits(tmp_path, path):
    """An empty cpuset, a bare `max`, and a path outside of the namespace: what an ancestor says holds."""
    root = build(tmp_path, "1s8c")
    silent = {"a/b/cpuset.cpus.effective": "", "a/b/cpu.max": "max", "a/cpu.max": "max 100000"}
    cgroup2(root, path, {**silent, "cpu.max": "250000 100000", "cpuset.cpus.effective": "1-3"})
    found = topology(str(root))
    assert (found.cpu_quota, found.allowed_cpus) == (2.5, (1, 2, 3))


def test_hybrid_control_groups_take_each_limit_where_it_is(tmp_path):
    root = build(tmp_path, "1s8c")
    lines = ("30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", "31 23 0:31 / /cg/cpu rw - cgroup c rw,cpu")
    put(root, "proc/self/mountinfo", "\n".join(lines) + "\n")
    put(root, "proc/self/cgroup", "4:cpu:/j\n0::/u\n")
    put(root, "cg/cpu/j/cpu.cfs_quota_us", "150000\n")
    put(root, "cg/cpu/j/cpu.cfs_period_us", "50000\n")
    assert topology(str(root)).cpu_quota == 3.0

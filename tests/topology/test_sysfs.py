import pytest
from trees import Shape, affinity, cache, cpu, machine, mask, node, put, spell

from advisor import identity
from advisor.topology import sysfs
from advisor.topology.array import is_flat
from advisor.topology.candidates import candidates
from advisor.topology.placement import evaluate


def read(root, believed=()):
    return sysfs.read(str(root), believed)


def test_a_regular_machine(tmp_path):
    layout = read(machine(tmp_path, Shape(sockets=2, cores=2, smt=2)))
    assert layout.online == tuple(range(8))
    assert sysfs.groups(layout, "socket") == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert sysfs.groups(layout, "core") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert sysfs.groups(layout, "l3") == sysfs.groups(layout, "socket")
    assert layout.nodes == ((0, (0, 1, 4, 5)), (1, (2, 3, 6, 7)))
    assert layout.caches == (32 << 10, None, 16 << 20)
    assert layout.warnings == ()


@pytest.mark.parametrize(("split", "cores"), [(False, (0, 2, 4, 6)), (True, (0, 1, 2, 3))])
def test_t02_one_thread_a_core_comes_from_the_sibling_lists(tmp_path, split, cores):
    layout = read(machine(tmp_path, Shape(cores=4, smt=2, split=split)))
    array = identity.whole(layout)
    assert evaluate("take smt 1", array, layout.online, 4) == cores


def test_t02_both_spellings_and_masks_mean_the_same(tmp_path):
    folders = {"range": "0-1", "commas": "0,1", "mask": ""}
    found = []
    for name, text in folders.items():
        root = tmp_path / name
        put(root, "sys/devices/system/cpu/online", "0-1\n")
        for number in (0, 1):
            siblings = {"thread_siblings_list": text} if text else {"thread_siblings": mask([0, 1])}
            cpu(root, number, siblings)
        found.append(sysfs.groups(read(root), "core"))
    assert found == [((0, 1),)] * 3


def test_t03_offline_cpus(tmp_path):
    root = machine(tmp_path, Shape(cores=4, smt=2), online=(0, 1, 2, 3, 6))
    layout = read(root)
    assert layout.online == (0, 1, 2, 3, 6)
    assert layout.offline == (4, 5, 7)
    assert {c for _, groups in layout.groupings for g in groups for c in g} == set(layout.online)
    assert len(identity.whole(layout).cpus) - identity.whole(layout).cpus.count(-1) == 5


def test_t03_a_cpu_brought_online_changes_the_fingerprint(tmp_path):
    before = identity.here(str(machine(tmp_path / "a", Shape(cores=4, smt=2), online=(0, 1, 2, 3, 6))))
    after = identity.here(str(machine(tmp_path / "b", Shape(cores=4, smt=2), online=(0, 1, 2, 3, 5, 6))))
    assert before.hardware_id != after.hardware_id


def test_t03_without_an_online_list_the_folders_tell(tmp_path):
    for number in (0, 1, 2):
        cpu(tmp_path, number, {"thread_siblings_list": str(number)})
    cpu(tmp_path, 3, {})  # its topology is hidden: offline
    put(tmp_path, "sys/devices/system/cpu/cpu1/online", "0\n")
    layout = read(tmp_path)
    assert layout.online == (0, 2)
    assert layout.offline == (1, 3)


def test_c04a_no_sysfs_is_a_flat_list_of_the_affinity(tmp_path):
    affinity(tmp_path, "3,5-6")
    here = identity.here(str(tmp_path))
    assert here.allowed == (3, 5, 6)
    assert here.budget == 3
    assert is_flat(here.array)
    assert candidates(here.array) == ("none",)
    assert any("flat" in warning for warning in here.warnings)


def test_c04b_an_allowed_cpu_that_is_not_online_stays_in_reach(tmp_path):
    machine(tmp_path, Shape(cores=32), online=(0,))
    affinity(tmp_path, "24")
    here = identity.here(str(tmp_path))
    assert here.allowed == (24,)
    assert here.budget == 1
    assert evaluate("", here.array, here.allowed) == (24,)
    assert any("24" in warning and "online" in warning for warning in here.warnings)


@pytest.mark.parametrize(("shape", "cores"), [(Shape(2, 14, 1), 28), (Shape(12, 1, 1), 12)])
@pytest.mark.parametrize("lists", [True, False])
def test_p02_cores_are_counted_across_packages(tmp_path, shape, cores, lists):
    """Core ids repeat in each package; without sibling lists (package, core) pairs count."""
    machine(tmp_path, shape)
    if not lists:
        for file in tmp_path.rglob("*_siblings_list"):
            file.unlink()
    layout = read(tmp_path)
    assert len(sysfs.groups(layout, "core")) == cores
    assert len(sysfs.groups(layout, "socket")) == shape.sockets


def test_sockets_are_unknown_where_nothing_tells(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    for number in range(4):
        core = spell([number // 2 * 2, number // 2 * 2 + 1])
        cpu(tmp_path, number, {"thread_siblings_list": core, "core_siblings_list": core, "physical_package_id": "-1"})
    layout = read(tmp_path)
    assert sysfs.groups(layout, "socket") is None
    assert sysfs.groups(layout, "core") == ((0, 1), (2, 3))


def test_siblings_tell_sockets_although_the_package_id_does_not(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    for number in range(4):
        package = spell([number // 2 * 2, number // 2 * 2 + 1])
        siblings = {"thread_siblings_list": str(number), "core_siblings_list": package}
        cpu(tmp_path, number, {**siblings, "physical_package_id": "-1"})
    assert sysfs.groups(read(tmp_path), "socket") == ((0, 1), (2, 3))


def test_placeholder_dies_and_clusters_are_no_grouping(tmp_path):
    machine(tmp_path, Shape(sockets=2, cores=4))
    for number in range(8):
        package = spell(Shape(sockets=2, cores=4).package(number))
        cpu(tmp_path, number, {"die_cpus_list": package, "cluster_cpus_list": str(number)})
    assert {"die", "cluster"}.isdisjoint(dict(read(tmp_path).groupings))


def test_clusters_that_say_something_are_kept(tmp_path):
    machine(tmp_path, Shape(cores=4))
    for number in range(4):
        cpu(tmp_path, number, {"cluster_cpus_list": spell([number // 2 * 2, number // 2 * 2 + 1])})
    layout = read(tmp_path)
    assert sysfs.groups(layout, "cluster") == ((0, 1), (2, 3))
    assert identity.whole(layout).axes == ("socket", "numa", "l3", "cluster", "core", "smt")


def test_l3_from_a_map_where_there_is_no_list(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    for number in range(4):
        cpu(tmp_path, number, {"thread_siblings_list": str(number)})
        group = mask([0, 1]) if number < 2 else mask([2, 3])
        cache(tmp_path, number, 3, {"level": "3", "type": "Unified", "shared_cpu_map": group + "\n\n"})
    layout = read(tmp_path)
    assert sysfs.groups(layout, "l3") == ((0, 1), (2, 3))
    assert layout.caches == (None, None, None)


def test_nodes_are_cut_to_online_cpus_and_overlaps_are_no_partition(tmp_path):
    machine(tmp_path, Shape(cores=4), online=(0, 1, 2))
    node(tmp_path, 0, range(140))
    node(tmp_path, 3, (1, 2))
    node(tmp_path, 7, ())
    layout = read(tmp_path)
    assert layout.nodes == ((0, (0, 1, 2)), (3, (1, 2)), (7, ()))
    assert "numa" not in identity.whole(layout).axes
    assert layout.memory_nodes == 3


@pytest.mark.parametrize(
    ("text", "size"),
    [("32K", 32768), ("16M", 16 << 20), ("1G", 1 << 30), ("512", 512), ("0K", None), ("", None), ("K", None)],
)
def test_cache_sizes(text, size):
    assert sysfs.size_bytes(text) == size


def test_contradicting_sibling_lists_still_partition(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-2\n")
    for number, siblings in enumerate(("0", "0-1", "1-2")):
        cpu(tmp_path, number, {"thread_siblings_list": siblings})
    cores = sysfs.groups(read(tmp_path), "core")
    assert sorted(c for core in cores for c in core) == [0, 1, 2]

from trees import Shape, cpu, machine, node, put

from advisor.topology import details, sysfs
from advisor.topology.probe import topology


def classes(root):
    return details.core_classes(str(root), sysfs.read(str(root)))


def frequencies(root, khz, file="cpuinfo_max_freq"):
    for number, value in enumerate(khz):
        put(root, f"sys/devices/system/cpu/cpu{number}/cpufreq/{file}", f"{value}\n")


def test_the_kernels_lists_of_a_hybrid_machine(tmp_path):
    machine(tmp_path, Shape(cores=6))
    put(tmp_path, "sys/devices/cpu_core/cpus", "0-1\n")
    put(tmp_path, "sys/devices/cpu_atom/cpus", "2-5\n")
    frequencies(tmp_path, [5000000, 5200000, 3900000, 3900000, 3900000, 3900000])
    assert [(c.name, c.cpus, c.capacity) for c in classes(tmp_path)] == [
        ("cpu_core", (0, 1), 1024),
        ("cpu_atom", (2, 3, 4, 5), 768),
    ]


def test_arm_parts_tell_apart_what_capacity_does_not(tmp_path):
    machine(tmp_path, Shape(cores=3))
    for number, (part, capacity) in enumerate((("0xd46", 280), ("0xd4d", 855), ("0xd47", 855))):
        put(tmp_path, f"sys/devices/system/cpu/cpu{number}/cpu_capacity", f"{capacity}\n")
        midr = f"0x00000000411f{part[2:]}0\n"
        put(tmp_path, f"sys/devices/system/cpu/cpu{number}/regs/identification/midr_el1", midr)
    assert [c.cpus for c in classes(tmp_path)] == [(1,), (2,), (0,)]
    assert [c.capacity for c in classes(tmp_path)] == [1024, 1024, 335]


def test_arm_parts_from_cpuinfo_where_the_register_is_hidden(tmp_path):
    machine(tmp_path, Shape(cores=2))
    block = "processor : {}\nCPU implementer : 0x41\nCPU part : {}\n\n"
    put(tmp_path, "proc/cpuinfo", block.format(0, "0xd03") + block.format(1, "0xd09"))
    assert [(c.name, c.cpus) for c in classes(tmp_path)] == [("0x41-0xd09", (1,)), ("0x41-0xd03", (0,))]


def test_capacity_alone(tmp_path):
    machine(tmp_path, Shape(cores=3))
    for number, capacity in enumerate((446, 1024, 446)):
        put(tmp_path, f"sys/devices/system/cpu/cpu{number}/cpu_capacity", f"{capacity}\n")
    assert [(c.cpus, c.capacity) for c in classes(tmp_path)] == [((1,), 1024), ((0, 2), 446)]


def test_favoured_cores_are_no_class_of_their_own(tmp_path):
    machine(tmp_path, Shape(cores=4))
    frequencies(tmp_path, [5200000, 5000000, 5000000, 5000000])
    assert [(c.name, c.cpus) for c in classes(tmp_path)] == [("uniform", (0, 1, 2, 3))]


def test_base_frequency_goes_before_the_maximum(tmp_path):
    machine(tmp_path, Shape(cores=3))
    frequencies(tmp_path, [5200000, 4600000, 3900000])
    frequencies(tmp_path, [1900000, 1900000, 1400000], "base_frequency")
    assert [c.cpus for c in classes(tmp_path)] == [(0, 1), (2,)]


def test_nothing_told_is_one_unknown_class(tmp_path):
    machine(tmp_path, Shape(cores=2))
    assert [(c.name, c.cpus, c.capacity) for c in classes(tmp_path)] == [("unknown", (0, 1), None)]


def test_torn_values_are_not_believed(tmp_path):
    machine(tmp_path, Shape(cores=2))
    put(tmp_path, "sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "<error>\n")
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpu_capacity", "\n")
    put(tmp_path, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  lots kB\n")
    assert [c.name for c in classes(tmp_path)] == ["unknown"]
    assert topology(str(tmp_path)).numa_nodes[0].memory_bytes is None


def test_node_memory_counts_in_kib_and_distances_are_kept(tmp_path):
    machine(tmp_path, Shape(sockets=2, cores=1))
    node(tmp_path, 0, (0,), memory_kb=16384, distances="10 21")
    nodes = topology(str(tmp_path)).numa_nodes
    assert (nodes[0].memory_bytes, nodes[0].distances) == (16384 * 1024, (10, 21))
    assert nodes[1].distances == ()


def test_overlapping_nodes_and_cpus_without_one_are_told(tmp_path):
    machine(tmp_path, Shape(cores=4))
    node(tmp_path, 0, (0, 1))
    node(tmp_path, 1, (1, 2))
    warnings = topology(str(tmp_path)).warnings
    assert any("overlap" in warning for warning in warnings)
    assert any("no NUMA node" in warning for warning in warnings)


def test_isolated_cpus_are_told(tmp_path):
    machine(tmp_path, Shape(cores=4))
    put(tmp_path, "sys/devices/system/cpu/isolated", "2-3\n")
    assert any("2-3 are isolated" in warning for warning in topology(str(tmp_path)).warnings)


def test_a_cpu_without_topology_among_others_is_its_own_core(tmp_path):
    machine(tmp_path, Shape(cores=2, smt=2), online=(0, 1, 2, 3))
    put(tmp_path, "sys/devices/system/cpu/online", "0-4\n")
    cpu(tmp_path, 4, {})
    found = topology(str(tmp_path))
    assert found.cores == 3
    assert sorted(c for c in found.array.cpus if c >= 0) == [0, 1, 2, 3, 4]

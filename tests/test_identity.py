import json
import os
import subprocess
import sys

import pytest
from trees import X86_HEAD, Shape, affinity, cgroup2, machine, node, put

from advisor import identity

LOOKS = """
import json, sys
before = set(sys.modules)
import advisor.identity
imported = set(sys.modules) - before
advisor.identity.here()
print(json.dumps([sorted(imported), sorted(set(sys.modules) - before)]))
"""
HEAVY = {"typing", "re", "dataclasses", "pathlib", "enum", "ctypes", "subprocess", "hashlib"}


def loaded():
    run = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    return [set(names) for names in json.loads(run.stdout)]


def test_the_hot_path_imports_little_and_nothing_from_others():
    imported, after = loaded()
    assert HEAVY.isdisjoint(imported)
    assert {name.split(".")[0] for name in after} <= sys.stdlib_module_names | {"advisor"}


def test_ids_are_twelve_hex_digits_and_stay(tmp_path):
    root = str(machine(tmp_path, Shape(cores=2, smt=2)))
    one, two = identity.here(root), identity.here(root)
    assert one == two
    for found in (one.hardware_id, one.limits_id):
        assert len(found) == 12
        assert int(found, 16) >= 0
    assert identity.here("/") == identity.here("/")


def ids(root):
    here = identity.here(str(root))
    return here.hardware_id, here.limits_id


@pytest.fixture
def plain(tmp_path):
    return machine(tmp_path / "plain", Shape(sockets=2, cores=4, smt=2))


@pytest.fixture
def other(tmp_path):
    """The same machine again, to be changed."""
    return machine(tmp_path / "other", Shape(sockets=2, cores=4, smt=2))


def test_numbering_memory_and_host_name_do_not_matter(tmp_path, plain):
    other = machine(tmp_path / "other", Shape(sockets=2, cores=4, smt=2, split=False))
    node(other, 0, range(8), memory_kb=999999)
    put(other, "proc/sys/kernel/hostname", "elsewhere\n")
    assert ids(plain) == ids(other)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/cpuinfo", X86_HEAD.replace("Fake", "Other")),
        ("proc/cpuinfo", X86_HEAD.replace(" avx2", "")),
        ("sys/devices/system/cpu/cpu0/cache/index3/size", "64M\n"),
    ],
)
def test_hardware_that_differs_is_another_machine(plain, other, path, text):
    put(other, path, text)
    assert ids(plain)[0] != ids(other)[0]
    assert ids(plain)[1] == ids(other)[1]


def test_gpus_are_told_from_the_bus_without_a_driver(plain, other):
    for name, vendor, kind in (("0000:01:00.0", "0x10de", "0x030200"), ("0000:01:00.1", "0x10de", "0x040300")):
        put(other, f"sys/bus/pci/devices/{name}/vendor", f"{vendor}\n")
        put(other, f"sys/bus/pci/devices/{name}/class", f"{kind}\n")
        put(other, f"sys/bus/pci/devices/{name}/device", "0x2335\n")
    put(other, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x1234\n")
    assert identity.pci_gpus(str(other)) == ("10de:2335",)
    assert ids(plain)[0] != ids(other)[0]


def test_equal_parts_of_one_machine_have_equal_limits(plain, other):
    affinity(plain, "0-3,8-11")
    affinity(other, "4-7,12-15")
    assert ids(plain) == ids(other)


def test_another_part_is_other_limits(plain, other):
    affinity(plain, "0-3,8-11")  # one socket, both threads
    affinity(other, "0-7")  # both sockets, one thread a core
    assert ids(plain)[0] == ids(other)[0]
    assert ids(plain)[1] != ids(other)[1]


@pytest.mark.parametrize(("quota", "same"), [("250000", True), ("200000", True), ("300000", False), ("max", False)])
def test_the_floor_of_the_quota_is_part_of_the_limits(plain, other, quota, same):
    cgroup2(plain, "/a", {"a/cpu.max": "210000 100000"})
    cgroup2(other, "/a", {"a/cpu.max": f"{quota} 100000"})
    assert (ids(plain)[1] == ids(other)[1]) is same


def policy():
    """Mode and nodes of this thread's memory policy, or None where the kernel does not say."""
    import ctypes

    mode, bits = ctypes.c_int(), (ctypes.c_ulong * 64)()
    size = ctypes.c_ulong(8 * ctypes.sizeof(bits))
    call = identity.MEMORY_SYSCALLS[os.uname().machine][0]
    failed = ctypes.CDLL(None).syscall(call, ctypes.byref(mode), bits, size, None, ctypes.c_ulong(0))
    return None if failed else (mode.value, list(bits))


@pytest.mark.skipif(os.uname().machine not in identity.MEMORY_SYSCALLS, reason="no call numbers for this architecture")
def test_trying_the_memory_policy_leaves_it_as_it_was():
    before = policy()
    allowed = identity.memory_policy_allowed()
    assert policy() == before
    assert allowed is False if before is None else allowed in (True, False)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/meminfo", "MemTotal: 999999 kB\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 999999 kB\n"),
        ("proc/uptime", "1.0 1.0\n"),
        ("proc/loadavg", "99 99 99\n"),
        ("proc/sys/kernel/random/boot_id", "another\n"),
        ("proc/sys/kernel/hostname", "elsewhere\n"),
        ("proc/sys/kernel/osrelease", "6.99.0\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "800000\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "800000\n"),
        ("proc/cpuinfo", X86_HEAD + "cpu MHz\t\t: 800.0\nmicrocode\t: 0xffff\nbogomips\t: 1.0\n"),
    ],
)
def test_what_a_reboot_or_growing_memory_changes_is_in_no_id(plain, other, path, text):
    put(other, path, text)
    assert ids(plain) == ids(other)


def test_a_recorded_memory_policy_counts_where_there_are_several_nodes(plain, other):
    put(plain, identity.RECORDED_POLICY, "True\n")
    put(other, identity.RECORDED_POLICY, "False\n")
    assert ids(plain)[0] == ids(other)[0]
    assert ids(plain)[1] != ids(other)[1]


@pytest.mark.parametrize(("release", "kernel"), [("6.18.44-fc", "6.18"), ("5.15.0-1-generic", "5.15"), ("weird", None)])
def test_kernel_release(tmp_path, release, kernel):
    put(tmp_path, "proc/sys/kernel/osrelease", release + "\n")
    assert identity.kernel_release(str(tmp_path)) == kernel


@pytest.mark.skipif(
    bool(identity.here().groupings().get("class")), reason="cores of several kinds: telling them is due"
)
def test_loading_a_policy_on_a_machine_of_one_kind_stays_light(tmp_path):
    """Once the careful team asked for the kinds of cores, and every load paid for records and typing: 13 to 40 ms."""
    heavy = "('typing', 're', 'json', 'advisor.records')"
    code = f"""
import sys
from advisor.lookup import Policy
Policy.load()
print([name for name in {heavy} if name in sys.modules])
"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(identity.__file__)))
    environment = {**os.environ, "PYTHONPATH": root, "ADVISOR_HOME": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"

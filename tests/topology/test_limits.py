import os
import subprocess
import sys

import pytest
from trees import Shape, affinity, cgroup1, cgroup2, machine, put

from advisor import identity
from advisor.topology import limits
from advisor.topology.array import live
from advisor.topology.candidates import candidates
from advisor.topology.placement import evaluate


def read(root):
    return limits.read(str(root))


C01 = {
    "v2 fraction": (cgroup2, "/a", {"a/cpu.max": "150000 100000"}, 1.5, 1),
    "v1 fraction": (
        cgroup1,
        "/a",
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "765000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
        7.65,
        7,
    ),
    "v1 none": (cgroup1, "/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1"}, None, 64),
    "v2 none": (cgroup2, "/a", {"a/cpu.max": "max 100000"}, None, 64),
    "v2 under one": (cgroup2, "/a", {"a/cpu.max": "50000 100000"}, 0.5, 1),
    "v2 over all": (cgroup2, "/a", {"a/cpu.max": "12800000 100000"}, 128.0, 64),
}


@pytest.mark.parametrize("name", C01)
def test_c01_quota_and_budget(tmp_path, name):
    make, path, files, quota, cpus = C01[name]
    machine(tmp_path, Shape(cores=64))
    affinity(tmp_path, "0-63")
    make(tmp_path, path, files)
    here = identity.here(str(tmp_path))
    assert here.cpu_quota == quota
    assert here.budget == cpus
    assert len(here.allowed) == 64


def test_c01_a_quota_changes_the_fingerprint(tmp_path):
    roots = [machine(tmp_path / name, Shape(cores=8)) for name in ("free", "bound")]
    cgroup2(roots[1], "/a", {"a/cpu.max": "150000 100000"})
    free, bound = (identity.here(str(root)) for root in roots)
    assert free.hardware_id == bound.hardware_id
    assert free.limits_id != bound.limits_id


def test_c02_a_sparse_mask(tmp_path):
    machine(tmp_path, Shape(cores=32, smt=2))  # 17 and 49 are siblings
    affinity(tmp_path, "5,17,40")
    here = identity.here(str(tmp_path))
    assert here.allowed == (5, 17, 40)
    assert here.budget == 3
    part = live(here.array, here.allowed)
    for expression in candidates(part):
        for threads in (1, 2, 3):
            assert set(evaluate(expression, here.array, here.allowed, threads)) <= {5, 17, 40}
    assert len(evaluate("take smt 1", here.array, here.allowed)) == 3


def test_c02_a_mask_without_one_of_them_is_another_machine(tmp_path):
    roots = [machine(tmp_path / name, Shape(cores=32, smt=2)) for name in ("a", "b")]
    affinity(roots[0], "5,17,40")
    affinity(roots[1], "5,40")
    assert identity.here(str(roots[0])).limits_id != identity.here(str(roots[1])).limits_id


def test_the_least_quota_of_all_ancestors_binds(tmp_path):
    cgroup2(
        tmp_path,
        "/a/b/c",
        {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "800000 100000"},
    )
    assert read(tmp_path).cpu_quota == 3.0


def test_a_hybrid_mount_is_read_in_both_hierarchies(tmp_path):
    put(
        tmp_path,
        "proc/self/mountinfo",
        "31 23 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "32 23 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    put(tmp_path, "proc/self/cgroup", "3:cpu:/job\n0::/user\n")
    put(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n")
    put(tmp_path, "sys/fs/cgroup/unified/user/cpu.max", "200000 100000\n")
    put(tmp_path, "sys/fs/cgroup/unified/user/memory.max", "1048576\n")
    found = read(tmp_path)
    assert (found.cpu_quota, found.memory_limit_bytes) == (2.0, 1 << 20)


def test_in_a_container_the_mount_shows_only_the_own_group(tmp_path):
    """Docker with version 1: the path names the host's group, the mount begins at it."""
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "200000", "memory/memory.limit_in_bytes": "4096"}
    cgroup1(tmp_path, "/docker/abc", files, top="/docker/abc")
    found = read(tmp_path)
    assert (found.cpu_quota, found.memory_limit_bytes) == (2.0, 4096)


def test_a_path_outside_the_mount_falls_back_to_the_mount(tmp_path):
    cgroup2(tmp_path, "/../other", {"cpu.max": "200000 100000"})
    assert read(tmp_path).cpu_quota == 2.0


def test_memory_unlimited_is_none(tmp_path):
    cgroup1(tmp_path, "/a", {"memory/a/memory.limit_in_bytes": "9223372036854771712"})
    assert read(tmp_path).memory_limit_bytes is None


def test_the_least_memory_limit_of_all_ancestors(tmp_path):
    cgroup2(tmp_path, "/a/b", {"a/memory.max": "1000", "a/b/memory.max": "max"})
    assert read(tmp_path).memory_limit_bytes == 1000


def test_the_effective_set_counts_and_not_the_configured_one(tmp_path):
    files = {"a/cpuset.cpus": "0-7", "a/cpuset.cpus.effective": "2-5", "a/b/cpuset.cpus": ""}
    cgroup2(tmp_path, "/a/b", files)
    affinity(tmp_path, "4-9")
    assert read(tmp_path).allowed_cpus == (4, 5)


def test_a_contradiction_keeps_the_mask_and_says_so(tmp_path):
    cgroup2(tmp_path, "/a", {"a/cpuset.cpus.effective": "0-1"})
    affinity(tmp_path, "6")
    found = read(tmp_path)
    assert found.allowed_cpus == (6,)
    assert len(found.warnings) == 1


def test_mounts_serve_where_mountinfo_is_missing_and_blanks_are_escaped(tmp_path):
    put(tmp_path, "proc/mounts", "none /my\\040groups cgroup2 rw 0 0\n")
    put(tmp_path, "proc/self/cpuset", "/job\n")
    put(tmp_path, "my groups/job/cpuset.cpus.effective", "0-5\n")
    put(tmp_path, "my groups/job/cpuset.mems.effective", "1\n")
    found = read(tmp_path)
    assert found.allowed_cpus == (0, 1, 2, 3, 4, 5)
    assert found.allowed_mems == (1,)


def test_the_old_cpuset_file_system(tmp_path):
    put(tmp_path, "proc/mounts", "none /dev/cpuset cpuset rw 0 0\n")
    put(tmp_path, "proc/self/cpuset", "/job\n")
    put(tmp_path, "dev/cpuset/job/cpus", "1,3\n")
    assert read(tmp_path).allowed_cpus == (1, 3)


@pytest.mark.parametrize("text", ["", "nonsense", "nan 100000", "-5 100000", "100000 0"])
def test_torn_quota_files_are_no_quota(tmp_path, text):
    cgroup2(tmp_path, "/a", {"a/cpu.max": text})
    assert read(tmp_path).cpu_quota is None


def test_nothing_told_is_nothing_limited(tmp_path):
    found = read(tmp_path)
    assert found == limits.Limits(None, None, None, None, ())
    assert limits.budget(found, 6) == 6


def test_the_machine_at_hand_is_never_wider_than_its_mask():
    found = limits.read("/")
    assert set(found.allowed_cpus) <= os.sched_getaffinity(0)
    assert 1 <= limits.budget(found, os.cpu_count()) <= len(found.allowed_cpus)


def test_watching_sees_what_reading_sees_and_a_narrowed_mask():
    look, before = limits.watch(), os.sched_getaffinity(0)
    found = limits.read()
    assert look() == (found.allowed_cpus, found.cpu_quota)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert look()[0] == (min(before),)
    finally:
        os.sched_setaffinity(0, before)
    assert look() == (found.allowed_cpus, found.cpu_quota)


# --- the mask at launch ---


@pytest.mark.parametrize("name", limits.BINDERS)
def test_a_runtime_that_binds_the_thread_that_loads_it_does_not_shrink_the_machine(monkeypatch, name):
    monkeypatch.setenv(name, "true")
    mask, (note,) = limits._launched((3,), (0, 1, 2, 3))
    assert mask == (0, 1, 2, 3)
    assert name in note
    assert "0-3" in note


@pytest.mark.parametrize(
    ("bind", "now", "launch"),
    [
        (None, (3,), (0, 1, 2, 3)),  # somebody meant it
        ("false", (3,), (0, 1, 2, 3)),
        ("true", (0, 1, 2, 3), (0, 1, 2, 3)),
        ("true", (4,), (0, 1, 2, 3)),  # moved elsewhere: by no runtime
        ("true", (3,), None),
        ("true", None, None),
    ],
)
def test_a_mask_that_no_runtime_narrowed_counts_as_it_is(monkeypatch, bind, now, launch):
    for name in limits.BINDERS:
        monkeypatch.delenv(name, raising=False)
    if bind:
        monkeypatch.setenv("OMP_PROC_BIND", bind)
    assert limits._launched(now, launch) == (now, ())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be narrowed")
def test_the_mask_is_that_of_the_launch_in_a_real_process():
    code = (
        "import os, advisor.topology.limits as limits\n"
        "first = min(os.sched_getaffinity(0))\n"
        "os.sched_setaffinity(0, {first})\n"
        "print(len(limits.read().allowed_cpus), len(limits.watch()()[0]))\n"
    )
    counts = {}
    for bind in ("true", "false"):
        env = {**os.environ, "OMP_PROC_BIND": bind}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        counts[bind] = done.stdout.split()
    whole = str(len(limits.read().allowed_cpus))
    assert counts == {"true": [whole, "1"], "false": ["1", "1"]}

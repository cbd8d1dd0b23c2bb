"""A recorded machine is the same machine, and tells nothing of whose it is."""

from __future__ import annotations

import os
import socket
import tarfile

import pytest
from trees import affinity, build, cgroup1, cgroup2, hybrid, memory_only, put, quota

from advisor import identity
from advisor.errors import AdvisorError, BadInput
from advisor.topology import lscpu, record
from advisor.topology.files import seen
from advisor.topology.probe import probe, topology

SECRETS = ("host-secret", "user-secret", "0123456789abcdef", "52:54:00:12:34:56", "SN-4711", "container-secret")


def unpacked(path, folder):
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def again(root, tmp_path):
    """The machine of an archive made of a tree."""
    path = tmp_path / "odd.tar.gz"
    made = record.record(str(path), str(root))
    assert made.differs == ()
    return probe(str(unpacked(path, tmp_path / "out")))


TREES = {
    "plain": lambda root: build(root, "2s2n4c2t"),
    "offline and sparse": lambda root: build(root, "2s2l2c2t", offline=(3, 12), ids=range(0, 48, 3)),
    "memory only": lambda root: memory_only(build(root, "1s1n4c"), 8),
    "hybrid by list": lambda root: hybrid(build(root, "1s8c"), range(4), range(4, 8)),
    "hybrid by frequency": lambda root: hybrid(build(root, "1s8c"), range(4), range(4, 8), by="frequency"),
    "quota": lambda root: quota(build(root, "1s8c"), 2.5),
    "quota, version 1": lambda root: quota(build(root, "1s8c"), 2.5, version=1),
    "no groups": lambda root: affinity(root, "3,5") or root,
}


@pytest.mark.parametrize("name", TREES)
def test_an_archive_is_the_same_machine(tmp_path, name):
    root = TREES[name](tmp_path / "tree")
    assert again(root, tmp_path) == probe(str(root))


def test_the_machine_at_hand_is_recorded_whole(tmp_path):
    path = tmp_path / "here.tar.gz"
    made = record.record(str(path))
    here, there = topology("/"), topology(str(unpacked(path, tmp_path / "out")))
    assert [name for name in record.SAME if getattr(here, name) != getattr(there, name)] == list(made.differs) == []
    assert identity.here("/").hardware_id == there.hardware_id
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert {member.uname for member in members} == {""}
        assert {member.uid + member.gid + member.mtime for member in members} == {0}
        texts = b"".join(tar.extractfile(member).read() for member in members if member.isfile()).decode()
    name = socket.gethostname()
    assert len(name) < 4 or name not in texts
    assert f"\n{os.getpid()}\n" not in texts


@pytest.fixture
def private(tmp_path):
    """A machine whose files speak of its owner in every place that the probe reads."""
    root = build(tmp_path / "tree", "1s4c")
    put(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Fake\nflags\t\t: lm avx2\n"
        "Serial\t\t: 0123456789abcdef\nHardware\t: host-secret\n")  # fmt: skip
    put(root, "proc/self/status", "Name:\tuser-secret\nPid:\t4711\nGroups:\t1 2\nCpus_allowed_list:\t0-2\n")
    put(root, "proc/sys/kernel/osrelease", "6.1.0-host-secret\n")
    put(root, "proc/meminfo", "MemTotal: 1024 kB\nHost-secret: 1 kB\nSerial: SN-4711 host-secret\n")
    put(root, f"{lscpu.WITNESS}/lscpu.csv", "# CPU,Core\n# made on host-secret!\n0,0\n1,1\n2,2\n3,3\n")
    put(root, f"{lscpu.WITNESS}/lscpu.json", '{"lscpu": [{"field": "Socket(s):", "data": "1"},'
        '{"field": "BIOS serial:", "data": "SN-4711"}, {"field": "MAC", "data": "52:54:00:12:34:56"}]}')  # fmt: skip
    return root


def test_nothing_tells_whose_machine_it_was(tmp_path, private):
    cgroup2(
        private,
        "/user.slice/user-secret/container-secret",
        {
            "user.slice/cpu.max": "200000 100000",
            "user.slice/user-secret/container-secret/cpu.max": "300000 100000",
            "user.slice/user-secret/container-secret/memory.max": "4096",
        },
    )
    found, wanted = again(private, tmp_path), probe(str(private))
    assert found._replace(environment=()) == wanted._replace(environment=())
    assert dict(found.environment)["kernel"] == "6.1"
    assert (found.cpu_quota, found.memory_limit_bytes, found.allowed_cpus) == (2.0, 4096, (0, 1, 2))
    names, texts = everything(tmp_path / "out")
    assert not [secret for secret in SECRETS if secret in names or secret in texts]
    assert "user.slice" not in names + texts


def test_a_container_of_version_1_and_a_mount_in_somebodys_home(tmp_path, private):
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "200000", "memory/memory.limit_in_bytes": "4096"}
    cgroup1(private, "/docker/container-secret", files, top="/docker/container-secret")
    mounts = (private / "proc/self/mountinfo").read_text()
    put(private, "proc/self/mountinfo", mounts.replace("/sys/fs/cgroup/memory", "/home/user-secret/memory"))
    put(private, "home/user-secret/memory/memory.limit_in_bytes", "2048\n")
    found = again(private, tmp_path)
    assert (found.cpu_quota, found.memory_limit_bytes) == (2.0, 2048)
    names, texts = everything(tmp_path / "out")
    assert not [secret for secret in SECRETS if secret in names or secret in texts]


def test_the_serial_number_that_s390_writes_for_each_processor_is_left_out(tmp_path):
    root = build(tmp_path / "tree", "2s1c")
    line = "processor 0: version = FF,  identification = 0133E8,  machine = 2964\n"
    put(root, "proc/cpuinfo", f"vendor_id       : IBM/S390\nfeatures\t: zarch vx\n{line}")
    found = again(root, tmp_path)
    assert found.model_name == topology(str(root)).model_name
    assert "0133E8" not in everything(tmp_path / "out")[1]


def everything(folder):
    """All names and all texts below a folder."""
    names = "\n".join(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return names, "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_only_what_the_probe_reads_is_in_it(tmp_path):
    root = build(tmp_path / "tree", "1s2c")
    put(root, "proc/cmdline", "root=secret\n")
    put(root, "sys/devices/system/cpu/cpu0/topology/ppin", "123\n")
    again(root, tmp_path)
    names, _ = everything(tmp_path / "out")
    assert "ppin" not in names
    assert "cmdline" not in names


def test_equal_trees_are_equal_bytes(tmp_path):
    root = build(tmp_path / "tree", "2s4c2t")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        record.record(str(tmp_path / folder / "odd.tgz"), str(root))
    assert (tmp_path / "a/odd.tgz").read_bytes() == (tmp_path / "b/odd.tgz").read_bytes()


def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    root, path = build(tmp_path / "tree", "1s2c"), tmp_path / "odd.tar.gz"
    path.write_text("mine")
    with pytest.raises(BadInput, match="never overwritten"):
        record.record(str(path), str(root))
    with pytest.raises(BadInput, match="never overwritten"):
        record.publish(str(path), b"new")  # it appeared after the first look
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["odd.tar.gz", "tree"] or sorted(os.listdir(tmp_path)) == ["odd.tar.gz", "tree"]


@pytest.mark.parametrize("name", ["odd.zip", "odd", ".tar.gz"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(BadInput):
        record.record(str(tmp_path / name), str(build(tmp_path / "tree", "1s2c")))


def test_a_folder_that_cannot_be_written_to_is_an_error_and_leaves_nothing(tmp_path):
    with pytest.raises(AdvisorError, match="cannot be written"):
        record.record(str(tmp_path / "nowhere" / "odd.tgz"), str(build(tmp_path / "tree", "1s2c")))
    assert os.listdir(tmp_path) == ["tree"]


def test_nobody_watches_afterwards(tmp_path):
    record.watched(str(build(tmp_path, "1s2c")))
    assert seen is None


def test_a_recorded_machine_of_others_can_be_recorded_again(recorded, recorded_id, tmp_path):
    root, _ = recorded(recorded_id)
    wanted = topology(str(root))
    found = topology(str(unpacked_fast(root, tmp_path)))
    assert [name for name in record.SAME if getattr(found, name) != getattr(wanted, name)] == []


def unpacked_fast(root, tmp_path):
    """What the archive would unpack to, without packing thousands of files."""
    _, reads = record.watched(str(root))
    for path, text in record.cleaned(reads, str(root)).items():
        target = tmp_path / path
        if text is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    return tmp_path

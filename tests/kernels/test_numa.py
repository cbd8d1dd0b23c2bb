"""Memory policies: which nodes they mean, set in a process and read back, and refused with the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput
from advisor.kernels import numa
from advisor.kernels.executor import Ask
from advisor.kernels.numa import Lying, Where, keeps, lying, policies, where
from advisor.kernels.pool import WorkerPool
from advisor.records import NumaNode, Process

TWO = (NumaNode(0, (0, 1), 1 << 30, (10, 20)), NumaNode(1, (2, 3), 1 << 30, (20, 10)))
GRACE = (*TWO, NumaNode(2, (), 1 << 36, (80, 80)), NumaNode(9, (), 0, ()))


@pytest.mark.parametrize(
    ("policy", "cpus", "nodes"),
    [
        ("default", (0, 3), ()),
        ("local", (0, 3), ()),
        ("interleave", (0,), (0, 1)),
        ("bind", (0, 1), (0,)),
        ("bind", (3,), (1,)),
        ("bind", (3, 0), (0, 1)),
    ],
)
def test_nodes_follow_from_the_placement(policy, cpus, nodes):
    assert where(policy, TWO, cpus, None) == Where(policy, nodes)


def test_n02_memory_of_gpus_is_never_offered_to_host_buffers():
    assert where("interleave", GRACE, (0,), None).nodes == (0, 1)
    assert where("bind", GRACE, (0, 1, 2, 3), None).nodes == (0, 1)
    assert policies((GRACE[0], *GRACE[2:]), True, None) == ("default",)


def test_a_node_with_cpus_and_without_memory_is_left_out():
    nodes = (TWO[0], TWO[1]._replace(memory_bytes=0))
    assert where("interleave", nodes, (2,), None).nodes == (0,)
    assert policies(nodes, True, None) == ("default",)


def test_n01_a_node_outside_the_cpuset_is_refused_with_the_reason():
    """Mems_allowed_list "1" and a request for node 0."""
    with pytest.raises(BadInput, match=r"bind needs memory on the team's nodes.*0.*1"):
        where("bind", TWO, (0,), (1,))
    assert where("bind", TWO, (2,), (1,)).nodes == (1,)
    assert where("interleave", TWO, (0,), (1,)).nodes == (1,)


@pytest.mark.parametrize(
    ("nodes", "allowed", "mems", "offered"),
    [
        (TWO, True, None, ("default", "interleave")),
        (TWO, False, None, ("default",)),
        (TWO, None, None, ("default",)),
        (TWO, True, (1,), ("default",)),
        (TWO[:1], True, None, ("default",)),
        ((), True, None, ("default",)),
    ],
)
def test_n01_policies_that_differ_and_that_the_kernel_allows_are_offered(nodes, allowed, mems, offered):
    assert policies(nodes, allowed, mems) == offered


def test_an_unknown_policy_is_refused():
    with pytest.raises(BadInput, match="memory policy"):
        where("scatter", TWO, (0,), None)


# --- what the kernel says ---

MAPS = """\
7f0000000000 interleave:0-1 anon=8 dirty=8 N0=4 N1=4 kernelpagesize_kB=4
7f0000010000 default file=/usr/lib/x mapped=2 N0=2 kernelpagesize_kB=4
7f0000020000 interleave:0-1 anon=6 N0=3 N1=3 kernelpagesize_kB=4
7f0000030000 bind=static:1 huge anon=1 N1=1 kernelpagesize_kB=2048
"""


@pytest.fixture
def maps(tmp_path):
    path = tmp_path / "numa_maps"
    path.write_text(MAPS)
    return str(path)


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([(0x7F0000000000, 0x8000)], Lying("interleave:0-1", {0: 4, 1: 4})),
        ([(0x7F0000000000, 0x8000), (0x7F0000020000, 0x6000)], Lying("interleave:0-1", {0: 7, 1: 7})),
        ([(0x7F0000001000, 0x20000)], Lying("interleave:0-1", {0: 9, 1: 7})),
        ([(0x7F0000030000, 0x200000)], Lying("bind=static:1", {1: 512})),
        ([(0x1000, 0x1000)], None),
        ([], None),
    ],
)
def test_pages_are_counted_by_node(maps, ranges, found):
    assert lying(ranges, maps) == found


def test_a_kernel_without_numa_maps_says_nothing(tmp_path):
    assert lying([(0, 1)], str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("said", "policy", "kept"),
    [
        ("interleave:0-1", "interleave", True),
        ("bind=static:1", "bind", True),
        ("local", "local", True),
        ("default", "interleave", False),
        ("bind:0", "default", True),
    ],
)
def test_a_policy_is_recognised(said, policy, kept):
    assert keeps(Lying(said, {}), Where(policy, ())) is kept


# --- in this process and in workers ---

SET = """
import sys
from advisor.kernels import numa, operands
wanted = numa.Where(sys.argv[1], tuple(map(int, sys.argv[2:])))
try:
    numa.set_policy(wanted)
    one = operands.block((1 << 20,), "float64")
    numa.place(*operands.span(one), wanted)
except numa.PolicyRefused as refused:
    print(refused)
else:
    one.data[...] = 1
    found = numa.lying([operands.span(one)])
    print(found and (found.policy, sum(found.pages.values())))
"""


def set_here(policy, *nodes):
    command = [sys.executable, "-c", SET, policy, *map(str, nodes)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def allowed_node():
    with open("/proc/self/status", encoding="utf-8") as file:
        listed = next((line.split()[1] for line in file if line.startswith("Mems_allowed_list")), "0")
    return int(listed.replace("-", ",").split(",")[0])


@pytest.mark.parametrize("policy", ["default", "local", "interleave", "bind"])
def test_the_kernel_has_what_was_set_or_says_why_not(policy):
    node = allowed_node()
    said = set_here(policy, *((node,) if policy in numa.NAMED else ()))
    if "denied" in said or said == "None":
        pytest.skip(f"no memory policies here: {said}")
    spelled = {"interleave": f"interleave:{node}", "bind": f"bind:{node}"}.get(policy, policy)
    assert said.startswith(f"('{spelled}', ")
    assert int(said.split()[-1].rstrip(")")) >= 2048


def test_a_node_that_does_not_exist_is_refused_with_the_reason():
    assert "memory binding denied: bind on nodes 999: " in set_here("bind", 999)


def test_n01_a_kernel_that_says_no_is_a_sentence(monkeypatch):
    class Libc:
        @staticmethod
        def syscall(*arguments):
            numa.ctypes.set_errno(errno.EPERM)
            return -1

    monkeypatch.setattr(numa.ctypes, "CDLL", lambda *arguments, **options: Libc)
    monkeypatch.setitem(numa.SYSCALLS, os.uname().machine, (1, 2))
    for call in (numa.set_policy, lambda w: numa.place(4096, 4096, w)):
        with pytest.raises(numa.PolicyRefused, match=r"denied: interleave on nodes 0-1: .*not permitted"):
            call(Where("interleave", (0, 1)))


def test_an_unknown_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(numa, "SYSCALLS", {})
    with pytest.raises(numa.PolicyRefused, match="cannot be set"):
        numa.set_policy(Where("local", ()))


@pytest.fixture(scope="module")
def pool():
    machine = fixtures.here()
    with WorkerPool(machine, fixtures.scale(), (fixtures.good("rows"),)) as made:
        yield made


def measured(pool, policy, nodes=None):
    if nodes is not None:
        pool.machine = pool.machine._replace(numa_nodes=nodes)
    choice = fixtures.choice(fixtures.good("rows"))
    choice = choice._replace(process=Process(choice.process.runtime, "passive", None, policy))
    return pool.measure(fixtures.problem(1000), choice, Ask(3, 60.0, 0.0002))


@pytest.mark.parametrize("policy", ["local", "interleave", "bind"])
def test_a_worker_sets_the_policy_and_the_conditions_tell(pool, policy):
    node = allowed_node()
    cpus = pool.machine.allowed_cpus
    found = measured(pool, policy, (NumaNode(node, cpus, None, (10,)),))
    if found.status == "skipped" and "denied" in found.reason:
        pytest.skip(found.reason)
    assert found.status == "ok", found.reason
    told = dict(found.conditions)
    if "memory_policy" in told:  # a kernel without numa_maps tells nothing
        assert told["memory_policy"].startswith(policy)
        assert {at for at, _ in told["pages"]} == {node}


def test_n01_a_policy_the_kernel_refuses_skips_the_choice_and_the_worker_goes_on(pool):
    ghost = NumaNode(999, pool.machine.allowed_cpus, None, ())
    found = measured(pool, "bind", (ghost,))
    assert found.status == "skipped"
    assert "memory binding denied" in found.reason
    assert measured(pool, "default").status == "ok"

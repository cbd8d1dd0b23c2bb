import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import Shape, affinity, cgroup2, hybrid, machine, memory_only, put
from trees import build as tree

from advisor.errors import PlacementError
from advisor.records import Gpu
from advisor.topology.array import build
from advisor.topology.boxes import team
from advisor.topology.draw import PLAIN, picture, sheet
from advisor.topology.facts import WIDTH
from advisor.topology.probe import topology


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return topology(str(machine(tmp_path_factory.mktemp("small"), Shape(sockets=2, cores=4, smt=2))))


def drawn(small, sockets, cores, smt, gone=()):
    """The small machine with another array, for shapes too many to write as trees."""
    shape = Shape(sockets=sockets, cores=cores, smt=smt)
    live = [cpu for cpu in range(shape.cpus) if cpu not in gone] or [0]
    groups = {
        "socket": {tuple(c for c in shape.package(cpu) if c in live) for cpu in live},
        "core": {tuple(c for c in shape.siblings(cpu) if c in live) for cpu in live},
    }
    array = build({name: sorted(found) for name, found in groups.items()}, live)
    return small._replace(array=array, online_cpus=tuple(live), allowed_cpus=tuple(live))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.sets(st.integers(0, 511), max_size=20))
def test_every_machine_fits_the_page(small, sockets, cores, smt, gone):
    cores = max(1, min(cores, 512 // (sockets * smt)))
    lines = picture(drawn(small, sockets, cores, smt, gone)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) < 200


def test_identical_groups_are_counted(small):
    text = picture(drawn(small, 64, 4, 2))
    assert "62 more socket groups alike: CPUs" in text
    assert len(text.splitlines()) < 30


def test_groups_lie_inside_one_another(tmp_path):
    """Two sockets side by side would be too wide: each box has its nodes in it, and these their cores."""
    lines = picture(topology(str(tree(tmp_path, "2s2n2l3c2t")))).splitlines()
    assert lines[3].startswith("+- socket 0 -")
    assert lines[4].startswith("| +- numa 0 (1 MiB memory) -")
    assert lines[5].startswith("| | +- l3 0 (16 MiB L3) -+ +- l3 1 (16 MiB L3) -+")
    assert lines[6].startswith("| | | 0+24  1+25  2+26")
    assert any(line.startswith("| +- numa 1 (1 MiB memory) -") for line in lines)
    assert any(line.startswith("| +- numa 0 (node 2) (1 MiB memory) -") for line in lines)


def test_chosen_threads_are_numbered_in_order(tmp_path):
    machine = topology(str(tree(tmp_path, "2s1n4c2t")))
    chosen = team(machine, "take smt 1", 6)
    text = picture(machine, chosen)
    for worker, cpu in enumerate(chosen):
        assert f"{cpu}#{worker}" in text
    assert text.count("#") == len(chosen) + 1  # and once in the legend
    assert "team     6 threads on CPUs 0,1,2,3,4,5" in text


def test_a_group_with_a_chosen_thread_is_never_counted_away(tmp_path):
    machine = topology(str(tree(tmp_path, "16s4c")))
    text = picture(machine, (63, 0))
    assert "63#0" in text
    assert "0#1" in text
    assert "12 more socket groups alike" in text


def test_a_team_that_makes_no_sense_is_refused(tmp_path):
    machine = topology(str(tree(tmp_path, "1s4c")))
    for expression, threads in (("take numa 1", None), ("", 5), ("none", 2)):
        with pytest.raises(PlacementError):
            team(machine, expression, threads)


def test_memory_only_nodes_and_kinds_of_cores_are_shown(tmp_path):
    root = hybrid(memory_only(tree(tmp_path, "1s1n4c"), 7), (0, 1), (2, 3))
    text = picture(topology(str(root)))
    assert "node 7, no CPUs (1 GiB memory)" in text
    assert "cpu_core CPUs 0-1" in text


def test_the_sheet_is_the_picture_with_styles(small):
    drawn = sheet(small, (0, 1), PLAIN)
    assert drawn.plain == picture(small, (0, 1))
    assert {str(span.style) for span in drawn.spans} >= {"cyan", "bold green"}
    assert sheet(small).plain.isascii() is False


def test_lines_of_all_boxes_end_together(tmp_path):
    lines = picture(topology(str(tree(tmp_path, "2s4n2l2c2t")))).splitlines()
    box = [line for line in lines if line.startswith(("|", "+"))]
    assert all(line.endswith(("|", "+")) for line in box)


def test_many_cores_are_cut_in_the_middle(small):
    text = picture(drawn(small, 1, 256, 2))
    assert "256 cores: CPUs 0-511" in text
    assert len(text.splitlines()) < 20


def test_small_machines_show_every_cpu(small):
    text = picture(small)
    for cell in ("0+8", "3+11", "4+12", "7+15"):
        assert cell in text
    assert "more" not in text


def test_holes_and_cpus_out_of_reach_are_marked(tmp_path):
    root = machine(tmp_path, Shape(cores=4, smt=2), online=(0, 1, 2, 4, 5, 6, 7))
    affinity(root, "1-2,5")
    cgroup2(root, "/j", {"j/cpu.max": "150000 100000"})
    text = picture(topology(str(root)))
    for mark in ("(0+4)", "1+5", "2+(6)", "(7+--)", "out of reach", "hole"):
        assert mark in text
    assert "quota 1.5 CPUs" in text
    assert "budget 1" in text
    assert "offline 3" in text


def test_facts_stand_on_lines_of_their_own(small):
    gpu = Gpu(0, None, "NVIDIA H200", 150 << 30, 132, "9.0", 0, None)
    text = picture(small._replace(gpus=(gpu, Gpu(1, *[None] * 7)), warnings=("a thing to know",)))
    assert "gpu      0: NVIDIA H200, 150 GiB, 132 SMs, compute capability 9.0, NUMA node 0" in text
    assert "gpu      1: unnamed" in text
    assert "warning  a thing to know" in text
    assert small.hardware_id in text


def test_a_flat_machine_is_drawn_as_a_list(tmp_path):
    affinity(tmp_path, "3,5")
    put(tmp_path, "proc/cpuinfo", "")
    text = picture(topology(str(tmp_path)))
    assert "no groups known" in text
    assert "3  5" in text

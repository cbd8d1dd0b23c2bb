"""What is refused is found out by trying, in a child, and changes nothing here."""

import ctypes
import os
import subprocess
import sys

import pytest
from trees import put

from advisor.records import pairs
from advisor.topology import pages, tries, tries_child

KNOWN = os.uname().machine in tries_child.NUMBERS


@pytest.mark.skipif(not KNOWN, reason="no call numbers for this architecture")
def test_this_kernel_answers_every_attempt():
    found = dict(tries.attempt())
    words = [found["counters"], *found["memory_policy"].values()]
    assert set(found["memory_policy"]) == {"mbind", "set_mempolicy"}
    assert all(word == tries.ALLOWED or word.startswith(("refused (", "taken but not")) for word in words)


@pytest.mark.skipif(not KNOWN, reason="no call numbers for this architecture")
def test_a_node_that_is_not_there_is_refused():
    policy = dict(tries.attempt((4000,)))["memory_policy"]
    assert all(word.startswith("refused (") for word in policy.values())


class Fake:
    """A kernel that refuses some calls; it keeps the last policy that it took."""

    def __init__(self, refuses=(), forgets=False):
        self.refuses, self.forgets, self.mode = refuses, forgets, 0

    def call(self, name, *arguments):
        if name in self.refuses:
            return -1, "EPERM"
        if name == "get_mempolicy":
            arguments[0]._obj.value = self.mode
        elif not self.forgets:
            self.mode = arguments[2] if name == "mbind" else arguments[0]
        return 0, ""


@pytest.mark.parametrize(
    ("kernel", "set_word", "bind_word"),
    [
        (Fake(), "allowed", "allowed"),
        (Fake(refuses=("set_mempolicy",)), "refused (EPERM)", "allowed"),
        (Fake(refuses=("mbind",)), "allowed", "refused (EPERM)"),
        (Fake(forgets=True), "taken but not in force (mode 0)", "taken but not in force (mode 0)"),
        (Fake(refuses=("get_mempolicy",)), "taken but not in force (mode None)", "taken but not in force (mode None)"),
    ],
)
def test_allowed_means_that_the_kernel_says_so_itself(kernel, set_word, bind_word):
    assert tries_child.try_set_mempolicy(kernel, 0) == set_word
    assert tries_child.try_mbind(kernel, 0) == bind_word


def test_a_refused_counter_names_the_error():
    assert tries_child.try_counters(Fake(refuses=("perf_event_open",))) == "refused (EPERM)"


def test_the_mask_of_a_high_node_is_one_bit():
    mask = tries_child.nodes(130)
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    assert [i for i in range(len(mask)) if mask[i]] == [130 // width]
    assert mask[130 // width] == 1 << 130 % width


def test_an_attempt_that_ends_its_process_is_a_refusal(monkeypatch):
    monkeypatch.setattr(tries, "ask", lambda argv, limit_s: None)
    found = dict(tries.attempt())
    assert "ended its process" in found["counters"]
    assert "ended its process" in found["memory_policy"]["mbind"]


def test_an_unknown_architecture_is_not_guessed(monkeypatch):
    monkeypatch.setattr(tries, "ask", lambda argv, limit_s: "{}")
    assert tries.attempt() == ()


def test_the_child_imports_nothing_of_ours():
    code = f"import sys, runpy; sys.argv = ['x']; runpy.run_path({tries_child.__file__!r}, run_name='__main__');"
    code += "print([name for name in sys.modules if name.startswith('advisor')])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(("nodes", "told"), [(1, False), (2, True)])
def test_a_refused_policy_is_a_warning_only_where_there_are_several_places(nodes, told):
    found = pairs({"memory_policy": {"mbind": "allowed", "set_mempolicy": "refused (EPERM)"}})
    notes = tries.warnings(found, nodes)
    assert bool(notes) is told
    assert not told or "set_mempolicy refused (EPERM)" in notes[0]
    assert tries.warnings(pairs({"memory_policy": {"mbind": "allowed", "set_mempolicy": "allowed"}}), 8) == ()
    assert tries.warnings((), 8) == ()


# --- pages ---


def test_huge_pages_and_balancing_are_read(tmp_path):
    put(tmp_path, pages.TRANSPARENT, "always [madvise] never\n")
    put(tmp_path, f"{pages.POOLS}/hugepages-2048kB/nr_hugepages", "16\n")
    put(tmp_path, f"{pages.POOLS}/hugepages-2048kB/free_hugepages", "10\n")
    put(tmp_path, f"{pages.POOLS}/hugepages-1048576kB/nr_hugepages", "0\n")
    put(tmp_path, f"{pages.POOLS}/other/nr_hugepages", "5\n")
    put(tmp_path, pages.BALANCING, "1\n")
    assert dict(pages.read(str(tmp_path))) == {
        "transparent_huge_pages": "madvise",
        "huge_page_pools": ({"page_bytes": 2 << 20, "total": 16, "free": 10},),
        "numa_balancing": 1,
    }


def test_what_the_kernel_does_not_tell_is_left_out(tmp_path):
    assert pages.read(str(tmp_path)) == ()


@pytest.mark.parametrize(("value", "nodes", "told"), [(1, 2, True), (2, 2, True), (0, 2, False), (1, 1, False)])
def test_balancing_is_a_warning_where_there_are_several_nodes(value, nodes, told):
    assert bool(pages.warnings(pairs({"numa_balancing": value}), nodes)) is told

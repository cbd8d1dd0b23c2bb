"""Agreement with hwloc: the machine at hand, and the recorded ones, where each difference is known and judged."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from advisor.topology.files import parse_mask
from advisor.topology.probe import topology

LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
pytestmark = pytest.mark.skipif(LSTOPO is None, reason="lstopo is not installed")

KINDS = {"packages": "Package", "cores": "Core", "threads": "PU", "l3": "L3Cache"}

MADE_UP_NODE = "the kernel has no NUMA; hwloc makes up one node, since its tree needs one"
NO_PACKAGES = "package ids are -1: the kernel names no package; hwloc takes each sibling group for one"
NEARNESS = "a CPU-less node has no CPUs; hwloc shows those nearby, which it calls locality"

KNOWN = {
    "arm-4types-a510-x3": {"numa": MADE_UP_NODE},
    "nexus9-no-socket": {"packages": NO_PACKAGES, "numa": MADE_UP_NODE},
    "ppc-qemu-1cpu": {"numa": MADE_UP_NODE},
    "s390-lpar-offline": {"numa": MADE_UP_NODE},
    "power7-smt4-256": {"packages": NO_PACKAGES},
    "clx-2s-snc2-pmem": {"numa": NEARNESS},
    "qemu-sparse-cpuless-nodes": {"numa": NEARNESS},
    "harpertown-overlapping-nodes": {"numa": "all nodes hold all CPUs; hwloc keeps one, advisor all, with a warning"},
    # other versions of hwloc, or with PCI files
    "power9-gpu-numa": {"numa": "hwloc hides the memory nodes of GPUs on purpose; the kernel has them"},
    "bulldozer-6276-4s": {"cores": "hwloc from 3.0 on undoes the kernel's pairing of two cores to a module"},
}
"""Recorded machine -> what may differ -> who is right and why. The table of docs/probe.md says the same."""


def lstopo(*options):
    """The tree that lstopo sees, CPUs that are not allowed included."""
    done = subprocess.run(
        [LSTOPO, *options, "--allow", "all", "--of", "xml", "-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"this lstopo cannot read it: {done.stderr.strip()[:200]}")
    return ET.fromstring(done.stdout)


def cpus(text):
    """CPU ids of hwloc's mask, whose words may be empty: `0xff,,0x1`."""
    words = [word.removeprefix("0x") for word in text.split(",")]
    return parse_mask(",".join([words[0] or "0", *(word.zfill(8) for word in words[1:])]))


def hwloc_groups(tree):
    """What hwloc says, in our words; nodes with their numbers."""
    found = {
        name: {cpus(o.get("cpuset")) for o in tree.iter("object") if o.get("type") == kind}
        for name, kind in KINDS.items()
    }
    nodes = [o for o in tree.iter("object") if o.get("type") == "NUMANode"]
    return {**found, "numa": {(int(node.get("os_index")), cpus(node.get("cpuset"))) for node in nodes}}


def our_groups(machine):
    groups = dict(machine.groupings)
    return {
        "packages": set(groups.get("socket", ())),
        "cores": set(groups.get("core", ())),
        "threads": {(cpu,) for cpu in machine.online_cpus},
        "l3": set(machine.l3_groups),
        "numa": {(node.id, node.cpus) for node in machine.numa_nodes},
    }


def differing(tree, machine):
    theirs, ours = hwloc_groups(tree), our_groups(machine)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def test_hwloc_sees_the_machine_at_hand_as_we_do():
    found = differing(lstopo(), topology("/"))
    if not topology("/").numa_nodes:
        found.pop("numa", None)  # hwloc makes one up
    assert found == {}


def test_on_recorded_machines_only_known_differences(recorded, recorded_id):
    root, _ = recorded(recorded_id)
    found = differing(lstopo("--input", str(root), "--if", "fsroot"), topology(str(root)))
    assert set(found) <= set(KNOWN.get(recorded_id, {})), found


def test_words_that_hwloc_leaves_empty_are_zero():
    assert cpus("0x3,,0x1") == (0, 64, 65)
    assert cpus("0x0") == ()

"""A guest with two NUMA nodes and a third without CPUs: placements and memory policies do what they say there.

What is tested is where threads run and pages lie, never how fast. Needs qemu, gcc and a kernel: the newest that can be
read in /boot, or the one that ADVISOR_GUEST_KERNEL names.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kernel_fixtures as fixtures
import pytest
from guest import MARK
from initramfs import cpio, loaded, needed_libraries

from advisor.codec import to_json
from advisor.kernels.build import build, make_recipe
from advisor.kernels.messages import Binary, Trial
from advisor.kernels.registry import origin
from advisor.kernels.variant import entry_dims

pytestmark = [pytest.mark.qemu, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LIMIT_S = 240
ROWS = 400_000
"""Rows of 16 float32: 26 MB an operand, so that huge pages of 2 MiB, which lie on one node each, are a small part."""

SHARE = 0.08
"""Two huge pages of the 49 MiB of both operands: one at either end of what a thread touches first."""

TRIALS = {
    "first touch in one node": ("default", "group numa | take numa 1", 2),
    "first touch over both": ("default", "group numa | transpose thread numa", 2),
    "local in the last node": ("local", "group numa | take numa -1", 2),
    "interleave from one node": ("interleave", "group numa | take numa 1", 2),
    "bind to the last node": ("bind", "group numa | take numa -1", 2),
    "bind to both": ("bind", "", 4),
}
"""Name -> memory policy, placement, threads."""

MODULES = (
    "advisor.kernels.bench",
    "advisor.kernels.registry",
    "advisor.topology.probe",
    "advisor.site",
    "numpy.random",
)


def kernel():
    wanted = os.environ.get("ADVISOR_GUEST_KERNEL")
    found = [wanted] if wanted else sorted(glob.glob("/boot/vmlinuz-*"), reverse=True)
    return next((path for path in found if os.access(path, os.R_OK)), None)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the guest said: name -> answer."""
    qemu, image = shutil.which("qemu-system-x86_64"), kernel()
    if qemu is None or image is None or os.uname().machine != "x86_64":
        need = "qemu-system-x86_64 and a readable kernel (ADVISOR_GUEST_KERNEL, /boot/vmlinuz-*)"
        pytest.skip(f"needs {need}; Debian on x86-64: install qemu-system-x86 and linux-image-amd64")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the kernel that runs in the guest")
    disk = tmp_path_factory.mktemp("guest") / "initramfs"
    disk.write_bytes(guest_disk())
    boot = [
        "-kernel",
        image,
        "-initrd",
        str(disk),
        "-append",
        "console=ttyS0 quiet panic=-1 random.trust_cpu=on PYTHONHASHSEED=0",
    ]
    done = subprocess.run(
        [qemu, *machine(), *boot],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    lines = [line.split(MARK, 1)[1] for line in done.stdout.splitlines() if MARK in line]
    found = dict(json.loads(line) for line in lines)
    assert "done" in found, f"{done.stdout[-3000:]}\n{done.stderr[-1000:]}"
    assert "error" not in found, found["error"]
    return found


def machine():
    """Four CPUs on two nodes of 512 MiB, and a node of 256 MiB without CPUs; emulated, so that any host will do."""
    memory = [("0", "512M", ",cpus=0-1"), ("1", "512M", ",cpus=2-3"), ("2", "256M", "")]
    nodes = [
        word
        for node, size, cpus in memory
        for word in (
            *("-object", f"memory-backend-ram,id=m{node},size={size}"),
            *("-numa", f"node,nodeid={node},memdev=m{node}{cpus}"),
        )
    ]
    return [
        "-cpu",
        "Nehalem",
        "-smp",
        "4,sockets=2,cores=2,threads=1",
        "-m",
        "1280M",
        *nodes,
        "-nographic",
        "-no-reboot",
    ]


def guest_disk():
    """Python with the project, the test kernel's library, and the script as the first process."""
    asked, library = request()
    files, search = loaded(MODULES, [str(ROOT)])
    files |= {str(path) for path in (ROOT / "advisor").rglob("*.py")} | {library, origin(fixtures.scale())}
    binaries = {os.path.realpath(sys.executable), library, *(file for file in files if ".so" in file)}
    files |= {os.path.realpath(sys.executable)} | needed_libraries(binaries)
    path = [place for place in search if place and os.path.isdir(place)]
    start = f"#!{os.path.realpath(sys.executable)}\nimport sys\nsys.path[:] = {[str(ROOT), *path]!r}\n"
    script = start + (HERE / "guest.py").read_text("utf-8").replace("from __future__ import annotations\n", "")
    texts = {"/init": (script.encode(), 0o755), "/trials.json": (json.dumps(asked).encode(), 0o644)}
    return cpio(files, texts)


def request():
    """What the guest is to do, and the library that it needs. Built without -march, for any guest CPU."""
    variant, problem = fixtures.good("rows"), fixtures.problem(ROWS)
    made = fixtures.choice(variant).build._replace(flags="o2")
    recipe = make_recipe(variant, made, problem)
    library = build(variant, made, problem).path
    values = tuple(value for _, value in recipe.macros)
    binary = Binary(library, variant.symbol, recipe.key, values, (recipe.real.size, recipe.real.code))
    trial = Trial(
        problem=problem,
        dims=entry_dims(fixtures.scale(), variant, problem, made.knobs),
        binary=binary,
        threads=0,
        cpus=None,
        mask=(),
        edges=(),
        samples=2,
        sample_s=0.0001,
        give_up_ns=None,
        quiet=False,
        sets=1,
        own_pages=True,
        scratch_bytes=None,
    )
    listed = [
        [name, policy, placement, to_json(trial._replace(threads=threads))]
        for name, (policy, placement, threads) in TRIALS.items()
    ]
    return {"spec": origin(fixtures.scale()), "trials": listed}, library


def pages(answers, name):
    """Node -> share of the pages of a trial's operands."""
    told = dict(answers[name]["conditions"]["pages"])
    return {node: count / sum(told.values()) for node, count in told.items()}


def test_n02_the_guest_is_seen_as_it_is(answers):
    assert answers["nodes"] == [[0, [0, 1]], [1, [2, 3]], [2, []]]
    axes, shape = answers["axes"]
    assert shape[axes.index("numa")] * shape[axes.index("socket")] == 2
    assert answers["policies"] == ["default", "interleave"]


@pytest.mark.parametrize("name", TRIALS)
def test_threads_run_where_the_placement_says_and_the_result_is_right(answers, name):
    found = answers[name]
    assert found["status"] == "ok", found["reason"]
    assert found["conditions"]["cpus_observed"] == found["cpus"]
    assert found["threads_observed"] == TRIALS[name][2]


@pytest.mark.parametrize(
    ("name", "cpus", "shares"),
    [
        ("first touch in one node", {0, 1}, {0: 1.0}),
        ("first touch over both", {0, 2}, {0: 0.5, 1: 0.5}),
        ("local in the last node", {2, 3}, {1: 1.0}),
        ("interleave from one node", {0, 1}, {0: 0.5, 1: 0.5}),
        ("bind to the last node", {2, 3}, {1: 1.0}),
        ("bind to both", {0, 1, 2, 3}, {0: 0.5, 1: 0.5}),
    ],
)
def test_pages_lie_where_the_policy_says(answers, name, cpus, shares):
    assert set(answers[name]["cpus"]) == cpus
    found = pages(answers, name)
    assert {node: found.get(node, 0.0) for node in (0, 1)} == pytest.approx(
        {node: shares.get(node, 0.0) for node in (0, 1)}, abs=SHARE
    )
    assert 2 not in found  # the node without CPUs


@pytest.mark.parametrize("name", TRIALS)
def test_the_policy_read_back_is_the_one_set_and_a_process_under_it_knows(answers, name):
    policy = TRIALS[name][0]
    told = answers[name]["conditions"]["memory_policy"]
    assert told.split(":")[0].split("=")[0] == policy
    assert answers[f"{name}: the process"] == ("interleave" if policy == "interleave" else "default")

"""The frame over a library's own libgomp does what the compiled frame does, to the very threads of the compiled frame's
team. In a process of its own: the tests' own threads are not pinned."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BuildError
from advisor.kernels import gomp
from advisor.kernels.build import build
from advisor.kernels.compilers import compilers

CHILD = """
import ctypes, json, os, sys
from advisor.kernels import gomp
from advisor.kernels.library import CompiledFrame

compiled, cpus = CompiledFrame(ctypes.CDLL(sys.argv[1])), json.loads(sys.argv[2])
frame, mask = gomp.load(), sorted(os.sched_getaffinity(0))


def masks(tids):
    return [sorted(os.sched_getaffinity(tid)) for tid in tids]


found = []
for team in (cpus, cpus[::-1], cpus[:1], cpus):
    failed = frame.pin(len(team), team, mask)
    tids, seen = frame.team(len(team))
    found.append({"failed": failed, "asked": team, "seen": seen, "masks": masks(tids),
                  "others": [tids, seen] != list(compiled.team(len(team)))})
frame.pin(len(cpus), None, mask)
free = masks(frame.team(len(cpus))[0])
wrong = frame.pin(2, [1 << 20, -1], mask)

sizes, kept, blocks = (1, 5, 4096, 10007), 16, {}
for touch in (frame.touch, compiled.touch):
    made = blocks[touch] = [ctypes.create_string_buffer(b"x" * (size + kept), size + kept) for size in sizes]
    touch([(ctypes.addressof(one), size) for one, size in zip(made, sizes)], 3)
zeroed = [[one.raw == bytes(size) + b"x" * kept for one, size in zip(made, sizes)] for made in blocks.values()]
print(json.dumps({"teams": found, "mask": mask, "free": free, "wrong": wrong, "zeroed": zeroed}))
"""


@pytest.fixture(scope="module")
def seen():
    """What the child saw."""
    tool = next((one for one in compilers() if one.runtime == "libgomp"), None)
    if tool is None:
        pytest.skip("no gcc to compile the other frame with")
    plain = fixtures.good("plain")
    path = build(plain, fixtures.choice(plain).build._replace(compiler=tool.name), fixtures.problem(8)).path
    cpus = json.dumps(list(fixtures.here().allowed_cpus))
    done = subprocess.run([sys.executable, "-c", CHILD, path, cpus], capture_output=True, check=True, text=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_thread_i_is_bound_to_the_cpu_that_was_asked_for_and_is_thread_i_of_the_compiled_frame(seen):
    for team in seen["teams"]:
        assert team["failed"] == 0
        assert team["seen"] == team["asked"]
        assert team["masks"] == [[cpu] for cpu in team["asked"]]
        assert not team["others"]


def test_without_cpus_every_thread_gets_the_mask(seen):
    assert seen["free"] == [seen["mask"]] * len(fixtures.here().allowed_cpus)


def test_threads_that_cannot_be_bound_are_counted(seen):
    assert seen["wrong"] == 2


def test_every_byte_and_none_beyond_is_touched_as_by_the_compiled_frame(seen):
    assert seen["zeroed"] == [[True] * 4] * 2


def test_a_process_without_a_runtime_has_no_frame(monkeypatch):
    monkeypatch.setattr(gomp, "files", lambda: ())
    with pytest.raises(BuildError, match="got 'none'; allowed: libgomp"):
        gomp.load()


def test_a_file_that_is_no_runtime_has_no_frame(monkeypatch):
    monkeypatch.setattr(gomp, "files", lambda: ((os.devnull, "libgomp"),))
    with pytest.raises(BuildError, match="must be usable"):
        gomp.load()

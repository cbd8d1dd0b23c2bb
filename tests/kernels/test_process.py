"""Environments of process parts, the launch mask of children, limits of commands."""

from __future__ import annotations

import os
import sys

import pytest

from advisor.errors import BadInput
from advisor.kernels.process import LAUNCH_MASK, openmp_environment, run, worker_environment
from advisor.records import Process


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (("libgomp", "default", None), {}),
        (("libgomp", "active", None), {"OMP_WAIT_POLICY": "ACTIVE"}),
        (("libgomp", "passive", 0), {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}),
        (("libgomp", "default", 10000), {"GOMP_SPINCOUNT": "10000"}),
        (("libomp", "passive", None), {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}),
        (("libomp", "active", None), {"OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "infinite"}),
        (("libomp", "default", 5), {"KMP_BLOCKTIME": "5"}),
    ],
)
def test_openmp_environment(process, expected):
    fixed = {"OMP_DYNAMIC": "false", "OMP_PROC_BIND": "false"}
    assert openmp_environment(Process(*process, "default")) == {**fixed, **expected}


@pytest.mark.parametrize(
    "process",
    [
        ("libfoo", "default", None, "default"),
        ("libgomp", "eager", None, "default"),
        ("libgomp", "default", -1, "default"),
        ("libgomp", "default", None, "odd"),
    ],
)
def test_unknown_process_parts(process):
    with pytest.raises(BadInput):
        openmp_environment(Process(*process))


def test_nothing_of_the_callers_settings_is_inherited():
    callers = {
        "OMP_NUM_THREADS": "7",
        "GOMP_CPU_AFFINITY": "0",
        "KMP_AFFINITY": "x",
        "OPENBLAS_CORETYPE": "y",
        "HOME": "/h",
    }
    found = worker_environment(Process("libgomp", "default", None, "default"), callers)
    assert found["HOME"] == "/h"
    assert set(callers) & set(found) == {"HOME"}
    assert found["OPENBLAS_NUM_THREADS"] == "1"


def test_children_get_the_launch_mask_back():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(before)])
        status, text = run([sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"], 60)
    finally:
        os.sched_setaffinity(0, before)
    assert (status, text.strip()) == (0, str(sorted(LAUNCH_MASK)))


def test_a_command_is_killed_at_its_limit_with_its_children():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    status, text = run([sys.executable, "-c", script], 1.0)
    assert status == 124
    assert "killed after 1 s" in text


def test_a_command_that_does_not_exist():
    assert run(["/nowhere/compiler"], 1.0)[0] == 127

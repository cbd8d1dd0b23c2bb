"""What is ended with its children: a hung worker (case A-02), and compilers when Ctrl-C comes."""

from __future__ import annotations

import os
import signal
import threading
import time

import kernel_fixtures as fixtures
import psutil
import pytest

from advisor.kernels import pool as pool_module
from advisor.kernels import process
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant

FORKS = """/* variant {"idea": "starts a process and hangs", "language": "c", "symbol": "scale_forks",
"dtypes": ["float32"], "reads": "n", "writes": "n", "mapping": "none", "rank": 1, "kernel": "scale"} */
#include "advisor.h"
#include <unistd.h>
int64_t scale_forks_workspace(const int64_t *dims, int threads) { return 0; }
int scale_forks(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    if (fork() == 0) for (;;) pause();
    for (;;) pause();
}
"""


def test_a02_a_hung_child_is_killed_with_the_processes_it_started(tmp_path):
    (tmp_path / "forks.c").write_text(FORKS)
    variant = read_variant(str(tmp_path / "forks.c"), "scale")
    seen = set()

    def watch(pool):
        until = time.monotonic() + 30
        while time.monotonic() < until and len(seen) < 2:
            for worker in list(pool.crew.workers.values()):
                with_children = psutil.Process(worker.child.pid).children()
                if with_children:
                    seen.update((worker.child.pid, with_children[0].pid))
            time.sleep(0.02)

    with WorkerPool(fixtures.here(), fixtures.scale(), [variant]) as pool:
        watching = threading.Thread(target=watch, args=(pool,))
        watching.start()
        got = pool.measure(fixtures.problem(100), fixtures.choice(variant), Ask(1, 2.0))
        watching.join()
    assert (got.status, len(seen)) == ("timeout", 2)
    until = time.monotonic() + 20
    while any(psutil.pid_exists(pid) and _lives(pid) for pid in seen):
        assert time.monotonic() < until, "a child outlived its worker"
        time.sleep(0.02)


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_while_compilers_run_ends_them_at_once(monkeypatch):
    variant, ended = fixtures.good("rows"), []

    def slow(*_):
        ended.append(process.run(["sleep", "600"], 700.0)[0])
        raise pool_module.BuildError("killed")

    monkeypatch.setattr(pool_module, "build", slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with WorkerPool(fixtures.here(), fixtures.scale(), [variant]) as pool:
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                pool.prepare(fixtures.problem(100), [fixtures.choice(variant, ADV_STEP=step) for step in (1, 4, 8)])
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert set(ended) == {-9}  # nobody waited for 600 s
    assert not process._running

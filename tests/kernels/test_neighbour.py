import os
import time

import kernel_fixtures as fixtures

from advisor.kernels.executor import Ask
from advisor.kernels.neighbour import neighbour
from advisor.kernels.pool import WorkerPool
from advisor.search.protocol import noisy_samples


def busy_children():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == os.getpid():
            found.append((int(name), int(words[11])))
    return found


def test_a_neighbour_keeps_its_cpu_busy_and_goes_away():
    cpu = max(os.sched_getaffinity(0))
    before, mask = {pid for pid, _ in busy_children()}, os.sched_getaffinity(0)
    with neighbour(cpu):
        (pid,) = {pid for pid, _ in busy_children()} - before
        assert os.sched_getaffinity(pid) == {cpu}
        start = dict(busy_children())[pid]
        deadline = time.monotonic() + 10
        while dict(busy_children())[pid] <= start + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert dict(busy_children())[pid] > start + 2  # ticks of user time
    assert {pid for pid, _ in busy_children()} - before == set()
    assert os.sched_getaffinity(0) == mask


def test_a05_a_neighbour_on_the_measured_cpu_is_noticed_in_a_real_worker():
    """It comes after the worker has started and passed its checks: half-way through."""
    one = fixtures.good("plain")
    with WorkerPool(fixtures.here(), fixtures.scale(), [one]) as pool:
        choice, problem = fixtures.choice(one), fixtures.problem(4099)
        (cpu,) = dict(pool.measure(problem, choice, Ask(1, 60.0)).conditions)["cpus_observed"]
        with neighbour(cpu):
            found = pool.measure(problem, choice, Ask(9, 60.0, 0.005))
    assert found.status == "ok"
    assert dict(found.conditions)["rejected"] > 0
    assert noisy_samples(found) > 0

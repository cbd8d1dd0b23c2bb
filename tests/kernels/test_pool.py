"""The real executor with real workers: right variants are timed, bad ones become statuses, nothing leaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import kernel_fixtures as fixtures
import psutil
import pytest

from advisor.errors import WorkerDied
from advisor.kernels import crew
from advisor.kernels import pool as module
from advisor.kernels.child import Child
from advisor.kernels.compilers import compilers
from advisor.kernels.crew import LIBOMP_WORKERS
from advisor.kernels.executor import Ask
from advisor.kernels.memory import operand_sets
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant, variants
from advisor.records import NumaNode, Team

ASK = Ask(samples=3, limit_s=60.0, sample_s=0.0005)


@pytest.fixture(scope="module")
def found():
    return {variant.name: variant for variant in variants("scale", [fixtures.KERNELS, fixtures.BAD])}


@pytest.fixture(scope="module", autouse=True)
def built(found):
    """Everything the tests run, compiled side by side."""
    with WorkerPool(fixtures.here(), fixtures.scale(), tuple(found.values())) as pool:
        prepared = pool.prepare(fixtures.problem(100), [fixtures.choice(variant) for variant in found.values()])
    assert prepared.failed == 1  # no_compile
    assert prepared.ready == len(found) - 1


@pytest.fixture
def pool(found):
    with WorkerPool(fixtures.here(), fixtures.scale(), tuple(found.values())) as made:
        yield made


@pytest.fixture
def measure(pool, found):
    """Measure a variant by name."""

    def run(name, n=100, ask=ASK, **how):
        return pool.measure(fixtures.problem(n), fixtures.choice(found[name], **how), ask)

    return run


def threads():
    return min(2, len(os.sched_getaffinity(0)))


def worker(pool, wait_policy="default"):
    """The worker of a process part that was asked last."""
    wanted = fixtures.process(wait_policy)
    found = [one for (process, *_), one in pool.crew.workers.items() if process == wanted]
    return psutil.Process(found[-1].child.pid)


# --- right variants ---


@pytest.mark.parametrize("name", ["plain", "rows", "prints"])
def test_a_right_variant_is_timed(measure, name):
    got = measure(name, threads=threads())
    assert got.status == "ok", got.reason
    assert len(got.samples_ns) == 3
    assert all(sample > 0 for sample in got.samples_ns)
    assert got.error <= got.tolerance
    assert 0 < got.kernel_s < got.seconds
    conditions = dict(got.conditions)
    assert conditions["calls"] * min(got.samples_ns) >= 0.0005e9 * 0.999
    assert conditions["rejected"] == len(conditions["rejected_ns"])
    assert conditions["run_delay"] in ("schedstat", "switches")
    assert conditions["mask"]
    assert conditions["openmp"] == (got.choice.process.runtime,)


@pytest.mark.parametrize("count", [1, 2])
def test_threads_observed_and_where(measure, count):
    if count > len(os.sched_getaffinity(0)):
        pytest.skip("needs two CPUs")
    got = measure("plain", threads=count)
    assert got.threads_observed == count
    assert dict(got.conditions)["cpus_observed"] == tuple(sorted(os.sched_getaffinity(0)))[:count]


def test_a_variant_that_takes_more_threads_shows(measure):
    assert measure("own_team", threads=1).threads_observed == 2


def test_pinned_and_unpinned_in_turn(pool, found):
    problem, pinned = fixtures.problem(100), fixtures.choice(found["plain"], threads())
    free = pinned._replace(team=Team(threads(), "none"))
    crowd = pinned._replace(team=Team(3, "none"))
    for choice in (pinned, free, crowd, pinned):
        got = pool.measure(problem, choice, ASK)
        assert (got.status, got.threads_observed) == ("ok", choice.team.threads)
    mask = sorted(os.sched_getaffinity(0))
    assert pool.crew.workers  # the last one was pinned: its first thread stays on the first CPU
    assert worker(pool).cpu_affinity() == mask[:1]
    pool.measure(problem, free, ASK)
    assert sorted(worker(pool).cpu_affinity()) == mask


def test_a_fractional_or_absurd_placement_is_skipped(pool, found):
    choice = fixtures.choice(found["plain"])
    for team in (Team(4096, ""), Team(1, "take nowhere 1"), Team(1, "jump")):
        got = pool.measure(fixtures.problem(100), choice._replace(team=team), ASK)
        assert got.status == "skipped"
        assert got.reason


def test_give_up_ends_after_one_sample(measure):
    assert len(measure("plain", ask=ASK._replace(samples=9, give_up_ns=1e-3)).samples_ns) == 1


def test_float64_and_cold_and_own_pages(found):
    machine = fixtures.here()
    twice = (NumaNode(0, machine.allowed_cpus[:1], None, ()), NumaNode(1, machine.allowed_cpus[-1:], None, ()))
    with WorkerPool(machine._replace(numa_nodes=twice), fixtures.scale(), tuple(found.values())) as pool:
        for problem in (fixtures.problem(100, "float64"), fixtures.problem(1000)._replace(regime="cold")):
            for count in (threads(), 1, threads()):
                got = pool.measure(problem, fixtures.choice(found["plain"], count), ASK)
                assert got.status == "ok", got.reason
            assert dict(got.conditions)["sets"] == (
                1 if problem.regime == "warm" else operand_sets(pool.machine, pool.spec, problem)
            )
    assert operand_sets(pool.machine, pool.spec, problem) > 1


# --- bad variants ---


@pytest.mark.parametrize(
    ("name", "n", "said"),
    [
        ("wrong_tail", 100, "over the tolerance"),
        ("nan_odd", 101, "NaN"),
        ("overrun", 100, "outside of y"),
        ("workspace_overrun", 100, "outside of its workspace"),
        ("partial", 100, "unwritten"),
        ("lazy", 100, "unwritten"),
        ("dirty_scratch", 100, "NaN"),
    ],
)
def test_a_wrong_variant_is_caught_and_never_timed(measure, name, n, said):
    got = measure(name, n)
    assert (got.status, got.samples_ns) == ("wrong", ())
    assert said in got.reason
    assert got.tolerance > 0


def test_the_measured_error_of_a_wrong_variant(measure):
    assert measure("wrong_tail").error == pytest.approx(0.05, rel=1e-3)


def test_an_edge_problem_unmasks_what_is_right_at_this_n(measure):
    got = measure("nan_odd", 100)
    assert got.status == "wrong"
    assert "at n=1" in got.reason


def test_a_segfault_from_64_on_stays_usable_below(measure, pool):
    assert measure("segfault_64", 33).status == "ok"
    first = measure("segfault_64", 64)
    assert (first.status, first.reason) == ("crashed", "killed by SIGSEGV")
    assert measure("plain", 64).status == "ok"
    assert measure("segfault_64", 33).status == "ok"
    pid = worker(pool).pid
    again = measure("segfault_64", 64)
    assert again.status == "crashed"
    assert "not run again" in again.reason
    assert worker(pool).pid == pid  # nothing was run, nobody died


def test_a_variant_that_writes_to_its_inputs_is_killed(measure):
    assert measure("writes_inputs").reason == "killed by SIGSEGV"
    assert measure("plain").status == "ok"


def test_a_hang_is_killed_at_its_limit(measure, pool):
    got = measure("hang", ask=ASK._replace(limit_s=0.5))
    assert got.status == "timeout"
    assert "0.5 s" in got.reason
    assert not pool.crew.workers
    assert measure("plain").status == "ok"


def test_a_variant_that_only_hangs_is_given_up(pool, found):
    ask = ASK._replace(limit_s=0.3)
    got = [pool.measure(fixtures.problem(n), fixtures.choice(found["hang"]), ask) for n in (33, 33, 34, 35)]
    assert [one.status for one in got] == ["timeout", "timeout", "timeout", "skipped"]
    assert got[1].seconds == 0.0
    assert "never came back" in got[3].reason


def test_a_worker_killed_while_it_starts_is_started_again(pool, found, monkeypatch):
    started = []

    def child(*arguments):
        started.append(arguments)
        if len(started) in (1, 2, 3):
            raise WorkerDied("a bench worker must start", got="killed by SIGKILL")
        return Child(*arguments)

    monkeypatch.setattr(crew, "Child", child)
    pool.close()
    got = [pool.measure(fixtures.problem(33), fixtures.choice(found["plain"]), ASK) for _ in range(2)]
    assert [one.status for one in got] == ["skipped", "ok"]
    assert "SIGKILL" in got[0].reason


def test_too_much_scratch_is_skipped(measure):
    got = measure("greedy")
    assert got.status == "skipped"
    assert str(1 << 50) in got.reason


def test_too_large_a_problem_is_skipped_before_a_launch(measure, pool, monkeypatch):
    measure("plain")
    monkeypatch.setattr(module, "room_bytes", lambda: 1000)
    got = measure("plain", 101)
    assert got.status == "skipped"
    assert "1000 are free" in got.reason
    assert not pool.crew.workers  # parked workers were let go first


def test_a_problem_that_is_there_already_needs_no_more_room(measure, monkeypatch):
    measure("plain")
    monkeypatch.setattr(module, "room_bytes", lambda: 1000)
    assert measure("plain").status == "ok"


def test_an_error_code_ends_the_worker_that_it_may_have_spoiled(measure, pool):
    measure("plain")
    before = worker(pool).pid
    got = measure("error_code", 64)
    assert got.status == "crashed"
    assert "error code 7" in got.reason
    assert measure("error_code", 33).status == "ok"  # its static state died with the worker
    assert worker(pool).pid != before


@pytest.mark.parametrize(
    ("name", "said"), [("needs_more", "avx9000"), ("no_compile", "must compile"), ("redefines", "asked for")]
)
def test_what_cannot_be_launched_is_skipped(measure, name, said):
    got = measure(name)
    assert got.status == "skipped"
    assert said in got.reason


def test_other_reasons_to_skip(pool, found):
    problem, choice = fixtures.problem(100), fixtures.choice(found["plain"])
    other = "libomp" if choice.process.runtime == "libgomp" else "libgomp"
    rows = fixtures.choice(found["rows"])
    for wanted, which in (
        (choice._replace(process=choice.process._replace(runtime=other)), problem),
        (choice._replace(process=choice.process._replace(wait_policy="eager")), problem),
        (choice._replace(team=None), problem),
        (choice._replace(build=choice.build._replace(source_hash="0" * 12)), problem),
        (choice._replace(build=choice.build._replace(compiler="tcc-1")), problem),
        (choice._replace(build=choice.build._replace(flags="fastest")), problem),
        (rows, fixtures.problem(100, width=6)),
    ):
        got = pool.measure(which, wanted, ASK)
        assert got.status == "skipped", got
        assert got.reason


def test_a_mask_or_quota_that_changes_spoils_the_trial(measure, monkeypatch):
    real, seen = module._limits(), []

    def changing():
        seen.append(1)
        return real if len(seen) == 1 else real._replace(quota=0.5)

    monkeypatch.setattr(module, "_limits", changing)
    got = measure("plain")
    assert (got.status, got.samples_ns) == ("skipped", ())
    assert "changed" in got.reason
    assert dict(got.conditions)["quota_after"] == 0.5


# --- processes ---


def test_this_process_stays_as_it_was(measure):
    before = (os.sched_getaffinity(0), dict(os.environ))
    measure("plain", threads=threads())
    measure("segfault_64")
    assert (os.sched_getaffinity(0), dict(os.environ)) == before


def test_a_parked_worker_uses_no_cpu(measure, pool):
    measure("plain", threads=threads(), wait_policy="active")
    parked = worker(pool, "active")
    measure("plain", threads=threads())  # another worker: the first must have stopped before it begins
    assert parked.status() == psutil.STATUS_STOPPED
    before = parked.cpu_times()
    for _ in range(20):
        measure("plain", threads=threads())
    after = parked.cpu_times()
    assert (after.user, after.system) == (before.user, before.system)
    assert measure("plain", threads=threads(), wait_policy="active").status == "ok"


def test_one_worker_a_process_part(measure, pool):
    measure("plain")
    measure("rows")
    assert len(pool.crew.workers) == 1
    measure("plain", wait_policy="passive")
    assert len(pool.crew.workers) == 2
    assert worker(pool, "passive").environ()["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in worker(pool).environ()


def test_nothing_leaks(found):
    def held():
        return (
            len(os.listdir("/proc/self/fd")),
            len(psutil.Process().children(recursive=True)),
            threading.active_count(),
        )

    before = held()
    with WorkerPool(fixtures.here(), fixtures.scale(), tuple(found.values())) as pool:
        for name in ("plain", "segfault_64", "hang", "error_code", "overrun", "no_compile"):
            pool.measure(fixtures.problem(100), fixtures.choice(found[name]), ASK._replace(limit_s=0.5))
    pool.close()
    assert held() == before


@pytest.fixture
def foreground():
    """Ctrl-C as a program in the foreground has it; one that a script starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_ends_the_worker(found):
    with WorkerPool(fixtures.here(), fixtures.scale(), tuple(found.values())) as pool:
        pool.measure(fixtures.problem(33), fixtures.choice(found["plain"]), ASK)
        busy = worker(pool)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            pool.measure(fixtures.problem(33), fixtures.choice(found["hang"]), ASK)
        timer.join()
        assert not busy.is_running()
        assert pool.measure(fixtures.problem(33), fixtures.choice(found["plain"]), ASK).status == "ok"


RUN_AND_DIE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import kernel_fixtures as fixtures
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
variant = fixtures.good("plain")
pool = WorkerPool(fixtures.here(), fixtures.scale(), [variant])
got = pool.measure(fixtures.problem(100), fixtures.choice(variant), Ask(1, 60.0))
print(got.status, *[worker.child.pid for worker in pool.crew.workers.values()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def script(text, *more):
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-c", text, here, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_workers_die_with_their_pool():
    status, pid = script(RUN_AND_DIE).stdout.split()
    assert status == "ok"
    deadline = time.monotonic() + 10
    while psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the worker outlived its pool"
        time.sleep(0.02)


AFTER_OPENMP = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import kernel_fixtures as fixtures
from advisor.kernels.build import build
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
variant, problem = fixtures.good("plain"), fixtures.problem(100)
choice = fixtures.choice(variant, min(2, len(fixtures.here().allowed_cpus)))
library = ctypes.CDLL(build(variant, choice.build, problem).path)
ids = (ctypes.c_int64 * 4)()
assert library.advisor_team(4, ids, ids) == 4  # this process has an OpenMP team now
with WorkerPool(fixtures.here(), fixtures.scale(), [variant]) as pool:
    print(pool.measure(problem, choice, Ask(1, 60.0)).status)
"""


def test_a_worker_runs_after_the_parent_used_openmp():
    done = script(AFTER_OPENMP)
    assert done.stdout.split() == ["ok"], done.stderr


def test_a_module_in_the_working_folder_does_not_get_in(tmp_path, monkeypatch, measure):
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert measure("plain").status == "ok"


def test_prepare_compiles_side_by_side(pool, found, monkeypatch):
    if pool._budget() < 2:
        pytest.skip("needs two CPUs")
    together = threading.Barrier(2)
    real = module.build

    def meeting(*args):
        together.wait(timeout=30)  # breaks unless two builds run at once
        return real(*args)

    monkeypatch.setattr(module, "build", meeting)
    choices = [fixtures.choice(found["rows"], ADV_STEP=step) for step in (1, 8)]
    assert pool.prepare(fixtures.problem(100), choices).ready == 2


def test_prepare_remembers_failures(pool, found, monkeypatch):
    choice = fixtures.choice(found["no_compile"])
    assert pool.prepare(fixtures.problem(100), [choice, choice]).failed == 1
    monkeypatch.setattr(module, "build", None)  # would raise TypeError
    assert "must compile" in pool.measure(fixtures.problem(100), choice, ASK).reason


def test_a_new_source_of_the_same_name_is_another_choice(tmp_path, pool, found):
    path = tmp_path / "plain.c"
    with open(found["plain"].path, encoding="utf-8") as file:
        path.write_text(file.read() + "/* newer */\n")
    newer = read_variant(str(path), "scale")
    got = pool.measure(fixtures.problem(100), fixtures.choice(newer), ASK)
    assert got.status == "skipped"
    assert newer.source_hash in got.reason


def test_edges_are_checked_once_a_build_whichever_worker_does_it(pool, found, monkeypatch):
    sent = []
    real = Child.ask
    monkeypatch.setattr(Child, "ask", lambda self, trial, *limits: sent.append(trial) or real(self, trial, *limits))
    problem, choice = fixtures.problem(100), fixtures.choice(found["plain"])
    assert pool.check(problem, choice, 60.0).status == "ok"
    for _ in range(2):
        assert pool.measure(problem, choice, ASK).status == "ok"
    passive = choice._replace(process=fixtures.process("passive"))
    assert pool.measure(problem, passive, ASK).status == "ok"
    other = choice._replace(team=choice.team._replace(threads=2))
    assert pool.measure(problem, other, ASK).status == "ok"
    assert [len(trial.edges) > 0 for trial in sent] == [False, True, False, False, True]


def test_inputs_and_reference_are_made_within_their_own_limit(pool, found):
    problem, choice = fixtures.problem(1 << 23), fixtures.choice(found["plain"])
    late = pool.measure(problem, choice, ASK._replace(inputs_s=0.02))
    assert late.status == "timeout"
    assert "making inputs and reference" in late.reason


def test_preparing_starts_the_workers_that_choices_need(pool, found):
    one = fixtures.choice(found["plain"])
    pool.close()
    pool.prepare(fixtures.problem(100), [one, one._replace(process=fixtures.process("passive"))])
    before = {lane: worker.child.pid for lane, worker in pool.crew.workers.items()}
    assert [process.wait_policy for process, *_ in before] == ["default", "passive"]
    assert pool.measure(fixtures.problem(100), one, ASK).status == "ok"
    assert {lane: worker.child.pid for lane, worker in pool.crew.workers.items()} == before


def test_libomp_teams_have_workers_of_their_own(pool, found):
    libomp = next((one for one in compilers() if one.runtime == "libomp"), None)
    if libomp is None:
        pytest.skip("no compiler with libomp here")
    plain = fixtures.choice(found["plain"])
    build, process = plain.build._replace(compiler=libomp.name), plain.process._replace(runtime="libomp")
    for threads in (1, 2, 3, 4, 5, 1):
        choice = plain._replace(build=build, process=process, team=Team(threads, "none"))
        got = pool.measure(fixtures.problem(100), choice, ASK)
        assert (got.status, got.threads_observed) == ("ok", threads), got.reason
        assert dict(got.conditions)["openmp"] == ("libomp",)
    assert [team.threads for _, team, _ in pool.crew.workers] == [3, 4, 5, 1]
    assert len(pool.crew.workers) == LIBOMP_WORKERS

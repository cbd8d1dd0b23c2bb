"""Applying an answer: real OpenMP threads are pinned, and everything is put back."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from advisor import apply
from advisor.answers import Answer

SOURCE = r"""
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <unistd.h>
#include <sys/syscall.h>
/* One region: for each thread its system id and how many CPUs its mask has. Returns the size of the team. */
int team(long *ids, int *width, int *first, int room) {
    int size = 0;
    #pragma omp parallel
    {
        int i = omp_get_thread_num();
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof set, &set);
        if (i < room) {
            ids[i] = syscall(SYS_gettid);
            width[i] = CPU_COUNT(&set);
            first[i] = -1;
            for (int c = CPU_SETSIZE - 1; c >= 0; c--) if (CPU_ISSET(c, &set)) first[i] = c;
        }
        #pragma omp single
        size = omp_get_num_threads();
    }
    return size;
}
int threads(void) { return omp_get_max_threads(); }
"""
ROOM = 64
CPUS = tuple(sorted(os.sched_getaffinity(0)))


class Library:
    """The tiny OpenMP library."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)

    def team(self):
        """[(thread id, width of its mask, lowest CPU of it)] of one parallel region."""
        ids, width, first = (ctypes.c_long * ROOM)(), (ctypes.c_int * ROOM)(), (ctypes.c_int * ROOM)()
        size = self.c.team(ids, width, first, ROOM)
        return list(zip(ids[:size], width[:size], first[:size], strict=True))

    def threads(self):
        return self.c.threads()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build an OpenMP library with")
    folder = tmp_path_factory.mktemp("omp")
    source, path = folder / "team.c", str(folder / "team.so")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-fopenmp", "-shared", "-fPIC", "-o", path, str(source)], check=True)
    return Library(path)


@pytest.fixture(autouse=True)
def _clean():
    before = os.sched_getaffinity(0)
    yield
    assert os.sched_getaffinity(0) == before
    assert apply.active() is None


def pinned(threads=2):
    if len(CPUS) < threads:
        pytest.skip(f"needs {threads} CPUs in reach")
    return Answer("decode", threads=threads, cpus=CPUS[:threads], placement="")


def test_threads_are_counted_pinned_and_restored(library):
    library.c.omp_set_num_threads(3)
    with pinned(2).applied() as state:
        assert state.note == ""
        teams = len(state.report.runtimes)  # another test may have loaded a second runtime, with scikit-learn or torch
        assert (state.report.pinned, state.report.unpinned) == (2 * teams, 0)
        assert any("libgomp" in path for path in state.report.runtimes)
        assert library.threads() == 2
        assert [(width, first) for _, width, first in library.team()] == [(1, CPUS[0]), (1, CPUS[1])]
    assert library.threads() == 3
    assert {width for _, width, _ in library.team()} == {len(CPUS)}


def test_everything_is_restored_after_an_exception(library):
    library.c.omp_set_num_threads(2)
    with pytest.raises(RuntimeError, match="mine"), pinned(2).applied():
        raise RuntimeError("mine")
    assert library.threads() == 2
    assert {width for _, width, _ in library.team()} == {len(CPUS)}


def test_one_cpu_does_not_leak_to_threads_made_later(library):
    library.c.omp_set_num_threads(2)
    hold, masks = threading.Event(), {}

    def note(name):
        hold.wait(10)
        masks[name] = os.sched_getaffinity(0)

    with pinned(1).applied():
        inside = threading.Thread(target=note, args=("inside",))
        inside.start()
        library.c.omp_set_num_threads(4)  # the caller grows the team on its own: born with the one CPU of the caller
        assert sum(width == 1 for _, width, _ in library.team()) >= 2
    outside = threading.Thread(target=note, args=("outside",))
    outside.start()
    hold.set()
    inside.join()
    outside.join()
    assert masks == {"inside": set(CPUS), "outside": set(CPUS)}
    library.c.omp_set_num_threads(4)
    assert {width for _, width, _ in library.team()} == {len(CPUS)}


def test_an_unpinned_answer_sets_the_count_alone(library):
    library.c.omp_set_num_threads(1)
    with Answer("decode", threads=3).applied() as state:
        assert (state.note, state.report.pinned) == ("", 0)
        assert library.threads() == 3
        assert {width for _, width, _ in library.team()} == {len(CPUS)}
    assert library.threads() == 1


def test_the_same_choice_nested_is_free(library):
    with pinned(2).applied() as outer:
        with pinned(2)._replace(kernel="forward").applied() as inner:
            assert inner.note == ""
            assert inner.report == outer.report
            assert library.threads() == 2
        assert library.threads() == 2
        assert {width for _, width, _ in library.team()} == {1}


def test_another_choice_while_one_is_active_is_refused(library):
    with pinned(2).applied(), pinned(1).applied() as state:
        assert "another choice is active" in state.note
        assert state.report == apply.NOTHING
        assert library.threads() == 2
    with pinned(1).applied() as state:
        assert state.note == ""


def test_another_thread_is_refused(library):
    notes = []

    def enter():
        with pinned(2).applied() as state:
            notes.append(state.note)

    with pinned(2).applied():
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert "another thread" in notes[0]


def test_cpus_outside_the_mask_are_refused(library):
    answer = pinned(2)
    before = library.threads()
    os.sched_setaffinity(0, {CPUS[0]})
    try:
        with answer.applied() as state:
            assert "outside this thread's mask" in state.note
            assert library.threads() == before
            assert os.sched_getaffinity(0) == {CPUS[0]}
    finally:
        os.sched_setaffinity(0, set(CPUS))


def test_an_answer_for_another_machine_is_refused(library):
    before = library.threads()
    with pinned(1)._replace(refusal="made for another machine").applied() as state:
        assert state.note == "not applied: made for another machine"
        assert library.threads() == before


def test_a_runtime_that_gives_fewer_threads_is_reported(library, monkeypatch):
    monkeypatch.setattr(apply.Runtime, "team", lambda self, threads: {0: threading.get_native_id()})
    with pinned(2).applied() as state:
        assert "not given by the OpenMP runtime" in state.note
        assert state.report.unpinned >= 1


def test_a_runtime_that_fails_leaves_all_as_it_was(library, monkeypatch):
    def fails(self, threads):
        raise OSError("odd runtime")

    library.c.omp_set_num_threads(2)
    monkeypatch.setattr(apply.Runtime, "team", fails)
    with pinned(1).applied() as state:
        assert "odd runtime" in state.note
        assert library.threads() == 2


def test_without_any_runtime_nothing_is_done(monkeypatch):
    monkeypatch.setattr(apply, "runtimes", lambda: ())
    with pinned(1).applied() as state:
        assert "no OpenMP runtime is loaded" in state.note


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang to build against libomp with")
def test_libomp_is_pinned_too(tmp_path):
    (tmp_path / "team.c").write_text(SOURCE)
    command = [
        "clang",
        "-O1",
        "-fopenmp",
        "-shared",
        "-fPIC",
        "-o",
        str(tmp_path / "team.so"),
        str(tmp_path / "team.c"),
    ]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("clang has no OpenMP here")
    code = (
        "import ctypes, os\n"
        f"from advisor.answers import Answer\nlib = ctypes.CDLL({str(tmp_path / 'team.so')!r})\n"
        "cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]\n"
        "ids, width, first = (ctypes.c_long * 64)(), (ctypes.c_int * 64)(), (ctypes.c_int * 64)()\n"
        "with Answer('decode', threads=len(cpus), cpus=cpus).applied() as state:\n"
        "    size = lib.team(ids, width, first, 64)\n"
        "    assert tuple(first[:size]) == cpus and set(width[:size]) == {1}, (size, first[:size], state.note)\n"
        "    assert any('libomp' in path for path in state.report.runtimes)\n"
        "size = lib.team(ids, width, first, 64)\n"
        "assert set(width[:size]) == {len(os.sched_getaffinity(0))}\n"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- fork ---


def in_child(work):
    """What a function returned in a forked child, None where it did not come back in 10 s."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # the default action ends a child that hangs
        os.write(writer, repr(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode()
    os.waitpid(pid, 0)
    return said or None


def apply_there():
    with pinned(2).applied() as state:
        return state.note, sorted(os.sched_getaffinity(0))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_after_a_team_neither_hangs_nor_stays_pinned(library):
    library.team()
    said = in_child(apply_there)
    assert said is not None
    assert "forked" in said
    with pinned(2).applied():
        inside = in_child(apply_there)
    assert inside == said
    assert str(list(CPUS)) in said
    with pinned(2).applied() as state:  # the parent goes on as before
        assert state.note == ""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_that_another_thread_held_at_the_fork_is_free_in_the_child(library):
    with apply._lock:
        assert in_child(apply_there) is not None

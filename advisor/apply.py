"""Apply an answer to the running process: OpenMP thread count and pinning, both restored on leaving.

    with policy.choose("decode", n=4096).applied() as state:
        ...                       # state.note says why when nothing, or not everything, could be applied

Rules: one choice at a time in a process. The same choice nested in the same thread is free. Another choice, or another
thread, while one is active gets a no-op whose `note` says why. Never hold it across an `await`: the other coroutines of
the loop would run pinned. Entering and leaving cost what a change of team size costs (0.2 to 0.7 ms were seen), so wrap
a phase, not a call. Threads that the calling thread starts inside the block inherit its one CPU, as they would from any
pinned thread; leaving gives them the old mask back.

How: the OpenMP runtimes loaded in this process are found in /proc/self/maps; each is asked to run one parallel region
of the wanted size (GOMP_parallel, which libomp and libiomp5 export too) whose threads report their thread ids, and each
is then pinned from outside. Standard library only; `ctypes` is loaded on first use: the hot path imports this module.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, get_ident, get_native_id
from collections import namedtuple

from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    from advisor.answers import Answer

    class Report(NamedTuple):  # noqa: D101 (documented below, where it is made)
        threads: int
        pinned: int
        unpinned: int
        runtimes: tuple[str, ...]

else:
    Report = namedtuple("Report", "threads pinned unpinned runtimes")
    Report.__doc__ = (
        """What was done: threads asked for, threads pinned, threads that run unpinned, runtimes touched."""
    )

RUNTIMES = ("libgomp", "libomp", "libiomp5")
NOTHING = Report(0, 0, 0, ())

_lock = allocate_lock()
_active: list[_State] = []  # at most one
_threads_at_fork = [False]
_stranded = [False]
"""Whether this process was forked while libgomp may have had threads. They are gone, libgomp does not know it, and the
next team would wait for them for ever. libomp and libiomp5 notice a fork by themselves."""


class Runtime(namedtuple("_Runtime", "path library")):
    """One OpenMP runtime loaded in this process: the path it came from and the library as ctypes sees it."""

    __slots__ = ()

    def threads(self) -> int:
        """Size of the next team that the calling thread starts."""
        return int(self.library.omp_get_max_threads())

    def set_threads(self, count: int) -> None:
        """Set the size of the next teams that the calling thread starts."""
        self.library.omp_set_num_threads(count)

    def team(self, threads: int) -> dict[int, int]:
        """Run one region of `threads` threads: OpenMP thread number -> the operating system's thread id."""
        import ctypes

        found: dict[int, int] = {}
        number = self.library.omp_get_thread_num

        def report(_data: object) -> None:
            found[int(number())] = get_native_id()

        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(report)
        self.library.GOMP_parallel(callback, None, ctypes.c_uint(threads), ctypes.c_uint(0))
        return found


def runtimes() -> tuple[Runtime, ...]:
    """The OpenMP runtimes loaded in this process; none where /proc is not readable."""
    import ctypes

    paths: dict[str, None] = {}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").split(maxsplit=5)[-1]
                if path.startswith("/") and os.path.basename(path).startswith(RUNTIMES):
                    paths[path] = None
    except OSError:
        return ()
    found = []
    for path in paths:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            if hasattr(library, "GOMP_parallel") and hasattr(library, "omp_set_num_threads"):
                found.append(Runtime(path, library))
        except OSError:
            continue
    return tuple(found)


class _State:
    """What is applied now, and what has to be put back."""

    __slots__ = ("counts", "depth", "masks", "native", "own_mask", "owner", "report", "seen", "what")

    def __init__(self, what: object) -> None:
        self.what = what
        self.owner = get_ident()
        self.native = get_native_id()
        self.depth = 1
        self.counts: list[tuple[Runtime, int]] = []
        self.masks: dict[int, set[int]] = {}
        self.own_mask: set[int] = set()
        self.seen: set[int] = set()
        self.report = NOTHING


class Applied:
    """The context manager behind `Answer.applied()`. It never raises; exceptions of the block pass through.

    Attributes:
        note: why nothing, or not everything, was applied; empty when all was.
        report: what was done, see Report.
    """

    __slots__ = ("_answer", "_state", "note", "report")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._state: _State | None = None
        self.note = ""
        self.report = NOTHING

    def __repr__(self) -> str:
        done = f"{many(self.report.threads, 'thread')}, {self.report.pinned} pinned, {self.report.unpinned} not"
        return f"<Applied: {self.note or done}>"

    def __enter__(self) -> Applied:
        with _lock:
            self._state, self.note = _enter(self._answer)
        if self._state is not None:
            self.report = self._state.report
        return self

    def __exit__(self, *_: object) -> None:
        state, self._state = self._state, None
        if state is None:
            return
        with _lock:
            state.depth -= 1
            if state.depth == 0 and state in _active:  # a fork inside the block has put it back already
                _active.remove(state)
                _restore(state)


def _native_threads() -> bool:
    """Whether there are threads that Python did not start: an OpenMP runtime's, or another library's."""
    return len(_threads_of_process()) > len(sys._current_frames())


def _before_fork() -> None:
    _threads_at_fork[0] = _native_threads()


def _after_fork_in_child() -> None:
    """Only the forking thread lives on: what another held is free, and what was applied is put back for this one."""
    global _lock  # noqa: PLW0603 (a lock held by a thread that is gone can only be replaced)
    _lock = allocate_lock()
    if _active:
        state = _active.pop()
        _set_mask(0, state.own_mask)
        for runtime, count in state.counts:
            runtime.set_threads(count)
    if _threads_at_fork[0]:
        _stranded[0] = _stranded[0] or _libgomp_is_loaded()


def _libgomp_is_loaded() -> bool:
    try:
        with open("/proc/self/maps", "rb") as maps:
            return b"/libgomp" in maps.read()
    except OSError:
        return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def _enter(answer: Answer) -> tuple[_State | None, str]:
    """Apply, join what is applied already, or refuse. Returns the state to leave later, and the note."""
    what = (answer.threads, answer.cpus)
    if answer.refusal:
        return None, f"not applied: {answer.refusal}"
    if _active:
        state = _active[0]
        if state.owner != get_ident():
            return None, "not applied: another thread of this process has a choice applied"
        if state.what != what:
            return None, "not applied: another choice is active in this process; leave it first"
        state.depth += 1
        return state, ""
    reason = _forbidden(answer)
    if reason:
        return None, f"not applied: {reason}"
    state = _State(what)
    try:
        note = _apply(answer, state)
    except Exception as error:  # whatever a foreign runtime brings, a server goes on as it was
        _restore(state)
        return None, f"not applied: {error}"
    if not state.counts:
        return None, note
    _active.append(state)
    return state, note


def _forbidden(answer: Answer) -> str:
    """Why nothing must be applied now, or the empty text."""
    if _stranded[0]:
        return (
            "this process was forked after libgomp may have started threads, which do not survive a fork; "
            "start workers with spawn, or load the kernels after the fork"
        )
    if not hasattr(os, "sched_setaffinity"):
        return "this system has no affinity call"
    outside = set(answer.cpus or ()) - os.sched_getaffinity(0)
    if outside:
        return f"CPUs {sorted(outside)} are outside this thread's mask, which has shrunk since the policy was loaded"
    return ""


def _apply(answer: Answer, state: _State) -> str:
    """Set counts and pin; fills `state` as it goes, so that a failure half way can be undone. Returns a note."""
    state.own_mask = os.sched_getaffinity(0)
    state.seen = _threads_of_process()
    found = runtimes()
    if not found:
        return "not applied: no OpenMP runtime is loaded yet; load the library with the kernels first"
    teams = []
    for runtime in found:  # all teams first: threads born after the caller is pinned would inherit its one CPU
        state.counts.append((runtime, runtime.threads()))
        runtime.set_threads(answer.threads)
        teams.append(runtime.team(answer.threads) if answer.cpus is not None else {})
    cpus = answer.cpus or ()
    pinned = sum(_pin(tid, cpus[number], state) for team in teams for number, tid in team.items())
    wanted = len(cpus) * len(found)
    state.report = Report(answer.threads, pinned, wanted - pinned, tuple(runtime.path for runtime in found))
    given = sum(map(len, teams))
    if given < wanted:
        return (
            f"{wanted - given} of {many(wanted, 'thread')} were not given by the OpenMP runtime (see OMP_THREAD_LIMIT)"
        )
    return f"{wanted - pinned} of {many(wanted, 'thread')} could not be pinned" if pinned < wanted else ""


def _pin(tid: int, cpu: int, state: _State) -> bool:
    """Pin one thread to one CPU and remember its mask."""
    try:
        state.masks.setdefault(tid, os.sched_getaffinity(tid))
        os.sched_setaffinity(tid, {cpu})
        return True
    except OSError:
        return False


def _threads_of_process() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def _restore(state: _State) -> None:
    """Put masks and counts back, also of threads that were born in the block with the one CPU of the caller."""
    if state.native in state.masks:
        narrow = _mask(state.native)
        for tid in _threads_of_process() - state.seen - set(state.masks):
            if _mask(tid) == narrow:
                state.masks[tid] = state.own_mask
    for tid, mask in state.masks.items():
        _set_mask(tid, mask)
    for runtime, count in state.counts:
        runtime.set_threads(count)


def _mask(tid: int) -> set[int]:
    try:
        return os.sched_getaffinity(tid)
    except OSError:  # the thread is gone
        return set()


def _set_mask(tid: int, mask: set[int]) -> None:
    try:
        os.sched_setaffinity(tid, mask)
    except OSError:  # the thread is gone, or its cpuset has shrunk
        return


def active() -> Any:
    """The report of what is applied now, or None."""
    return _active[0].report if _active else None

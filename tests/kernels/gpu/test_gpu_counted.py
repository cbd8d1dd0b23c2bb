"""The program under the profiler with a stand-in for the device: what lies inside the profiler's range, and what ends
it."""

import contextlib
import itertools
import sys
import time
from types import SimpleNamespace

import pytest
from gpu_fixtures import DECODE, H200, FakeDriver

from advisor.errors import BadInput
from advisor.kernels import registry
from advisor.kernels.executor import Ask
from advisor.kernels.gpu import counted as program
from advisor.kernels.gpu.counted import COUNTED, MARK, SLOW_S, START, CountedBench, begin, benches, main, replies
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.messages import Hello, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_default
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.registry import origin
from advisor.kernels.variant import variants

TOOLS = (("cupy-14.2", "cuda"),)
GROUPED = {"batch": 1, "heads": 5, "kv_heads": 1, "head_dim": 64}
FOUND = variants("decode", (), GPU_LANGUAGES)


def trial(n=100, regime="warm"):
    """A trial of the default choice, as count_all makes it."""
    problem = DECODE.problem(n, "float16", regime, **GROUPED)
    choice = gpu_default(H200, DECODE, FOUND, problem, TOOLS)
    with GpuPool(H200, DECODE, FOUND) as pool:
        return pool.trial(problem, choice, Ask(0, 1.0), "normal")


class Marking(FakeDriver):
    """Notes every launch within the profiler's range: the mark's blocks, or the operands of a real one."""

    def __init__(self, **how):
        super().__init__(**how)
        self.within, self.seen, self.ranges, self.finished = False, [], 0, False

    def launch(self, functions, geometry, arrays):
        if functions in ((MARK,), (START,)):
            assert self.within
            self.seen.append(geometry.grid)
            return
        super().launch(functions, geometry, arrays)
        if self.within:
            self.seen.append(arrays[1].ctypes.data)

    def finish(self):
        self.finished = True

    @contextlib.contextmanager
    def marked(self):
        self.within, self.finished, self.ranges = True, False, self.ranges + 1
        yield
        assert self.finished, "kernels still run when the range ends"
        self.within = False


def hello(spec=DECODE):
    """What begins the trials of a kernel."""
    return Hello(origin(spec), 0, "GPU-0")


def counted(driver, messages, calls=3, until=None):
    """Replies to the trials, of decode if nothing else is said."""
    until = time.monotonic() + 60 if until is None else until
    told = messages if isinstance(messages[0], Hello) else [hello(), *messages]
    return list(replies(benches(driver, until), told, calls, driver.marked))


def test_only_the_calls_asked_for_are_in_the_range_each_after_its_mark():
    driver = Marking()
    (reply,) = counted(driver, [trial()])
    assert reply.status == "ok", reply.reason
    assert driver.ranges == 1
    assert driver.seen[::2] == [(1, 1, 1)] * 3
    assert len(set(driver.seen[1::2])) == 1  # warm: the same operands
    assert len(driver.launched) > 3  # the check and the warm-up lie outside
    assert not driver.timed


def test_cold_calls_take_sets_of_operands_in_turn():
    driver = Marking()
    counted(driver, [trial(4096, "cold")])
    assert len(set(driver.seen[1::2])) == 3


def test_no_more_operands_are_made_than_calls_are_counted():
    driver = Marking()
    counted(driver, [trial(4096, "cold")], calls=1)
    assert len(driver.seen) == 2
    assert len({pointers[1] for _, _, pointers in driver.launched}) == 1


def test_a_slow_call_is_counted_once_and_says_so(monkeypatch):
    (reply,) = counted(Marking(), [trial()])
    assert dict(reply.conditions)[COUNTED] == 3
    monkeypatch.setattr(CountedBench, "_call_s", lambda *_: SLOW_S)
    driver = Marking()
    (reply,) = counted(driver, [trial()])
    assert dict(reply.conditions)[COUNTED] == 1
    assert len(driver.seen) == 2


def test_choices_are_told_apart_by_their_numbers():
    driver = Marking()
    found = counted(driver, [trial(100), trial(200)], calls=2)
    assert [reply.status for reply in found] == ["ok", "ok"]
    assert driver.seen[::2] == [(1, 1, 1)] * 2 + [(2, 1, 1)] * 2


def test_a_wrong_choice_is_not_counted_and_the_next_one_is():
    wrong = iter([7])

    def spoil(arrays):
        for value in itertools.islice(wrong, 1):  # the first call alone
            arrays[3].fill(value)

    driver = Marking(spoil=spoil)
    found = counted(driver, [trial(100), trial(200)])
    assert [reply.status for reply in found] == ["wrong", "ok"]
    assert set(driver.seen[::2]) == {(2, 1, 1)}


@pytest.mark.parametrize(("sticky", "told"), [(False, 2), (True, 1)])
def test_a_lost_context_ends_it(sticky, told):
    driver = Marking(fails=DeviceError("illegal address", sticky))
    found = counted(driver, [trial(100), trial(200)])
    assert [reply.status for reply in found] == ["crashed"] * told
    assert not driver.seen


def test_no_room_is_told_and_the_next_one_goes_on():
    driver = Marking(fails=MemoryError("2 bytes"))
    assert [reply.status for reply in counted(driver, [trial(100), trial(200)])] == ["skipped"] * 2


def test_when_the_time_is_used_no_choice_is_begun():
    driver = Marking()
    assert counted(driver, [trial(100), trial(200)], until=time.monotonic() - 1) == []
    assert not driver.launched


def test_a_choice_whose_time_is_up_half_way_has_no_reply_and_those_before_it_have(monkeypatch):
    now = [0.0]

    class Late(Marking):
        def launch(self, functions, geometry, arrays):
            super().launch(functions, geometry, arrays)
            now[0] = 2.0 if functions == (MARK,) and geometry.grid == (2, 1, 1) else now[0]

    trials = [trial(100), trial(200), trial(300)]
    monkeypatch.setattr(program.time, "monotonic", lambda: now[0])
    driver = Late()
    assert len(counted(driver, trials, until=1.0)) == 1
    assert [grid for grid in driver.seen if isinstance(grid, tuple)] == [(1, 1, 1)] * 3 + [(2, 1, 1)]


def test_another_kernel_has_a_bench_of_its_own_and_large_operands_go(monkeypatch):
    left = []
    monkeypatch.setattr(CountedBench, "leave", lambda bench: left.append(bench.spec.name))
    spec, known = registry.spec("forward"), variants("forward", (), ("cuda",))
    problem = spec.problem(8, "float64", "warm", head_dim=8)
    choice = gpu_default(H200, spec, [v for v in known if v.name == "packed"], problem, TOOLS)
    with GpuPool(H200, spec, known) as pool:
        other = pool.trial(problem, choice, Ask(0, 1.0), "normal")
    driver = Marking()
    found = counted(driver, [hello(), trial(100), hello(spec), other, hello(), trial(200)], calls=1)
    assert [reply.status for reply in found] == ["ok"] * 3, found
    assert [grid for grid in driver.seen if isinstance(grid, tuple)] == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
    assert left == ["decode", "forward"]


def test_leaving_a_kernel_keeps_its_bench_usable():
    driver = Marking()
    bench_of = benches(driver, time.monotonic() + 60)
    bench = bench_of(hello())
    (first,) = replies(bench_of, [hello(), trial(100)], 1, driver.marked)
    bench.leave()
    assert bench_of(hello()) is bench
    assert driver.released
    (again,) = replies(bench_of, [hello(), trial(100)], 1, driver.marked)
    assert (first.status, again.status) == ("ok", "ok")


def test_operands_are_not_rehearsed_under_a_profiler():
    """Each is a launch that a profiler looks at, and there is no limit here that compiling would use up."""
    driver = Marking()
    counted(driver, [trial(100)], calls=1)
    assert len(driver.built) == 2, "the choice and the mark"


def test_the_first_launch_that_is_counted_is_of_nothing():
    driver = Marking()
    begin(driver, driver.marked)
    assert driver.seen == [(1, 1, 1)]
    assert driver.ranges == 1
    assert not driver.launched


@pytest.fixture
def stand_in(monkeypatch):
    """In place of CuPy's driver and profiler; the watchdog is noted, not set."""
    driver, watched = Marking(), []
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.profiler", SimpleNamespace(profile=driver.marked))
    monkeypatch.setitem(sys.modules, "advisor.kernels.gpu.cuda", SimpleNamespace(CudaDriver=lambda uuid: driver))
    monkeypatch.setattr(program.faulthandler, "dump_traceback_later", lambda s, exit: watched.append((s, exit)))
    monkeypatch.setattr(program.faulthandler, "cancel_dump_traceback_later", lambda: watched.append("off"))
    monkeypatch.setattr(program.resource, "setrlimit", lambda *_: None)
    driver.watched = watched
    return driver


@pytest.mark.parametrize(("messages", "lines"), [([trial(100), trial(200)], 2), ([], 0)])
def test_the_program_leaves_replies_and_the_moments_of_its_start_and_end(tmp_path, stand_in, messages, lines):
    first = hello() if messages else Hello("", 0, "GPU-0")
    (tmp_path / "asked").write_bytes(b"".join(map(encode, [first, *messages])))
    before = time.monotonic()
    assert main(str(tmp_path), 3, before + 60) == 0
    start, end = map(float, (tmp_path / "times").read_text().split())
    assert before <= start <= end <= time.monotonic()
    assert len((tmp_path / "replies").read_text().splitlines()) == lines
    ((after_s, ends), off) = stand_in.watched
    assert 60 < after_s <= 60 + program.ORPHAN_S
    assert (ends, off) == (True, "off")


def test_a_program_that_is_asked_nothing_is_refused(tmp_path, stand_in):
    (tmp_path / "asked").write_bytes(b"")
    with pytest.raises(BadInput, match="begins with a Hello"):
        main(str(tmp_path), 3, time.monotonic() + 60)

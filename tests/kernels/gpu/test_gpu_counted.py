"""The program under the profiler with a stand-in for the device: what lies inside the profiler's range, and what ends
it."""

import contextlib
import itertools
import time

import pytest
from gpu_fixtures import DECODE, H200, FakeDriver

from advisor.kernels.executor import Ask
from advisor.kernels.gpu.counted import COUNTED, MARK, SLOW_S, CountedBench, replies
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_default
from advisor.kernels.header import GPU_LANGUAGES
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
        if functions == (MARK,):
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


def counted(driver, trials, calls=3, until=None):
    """Replies to the trials."""
    until = time.monotonic() + 60 if until is None else until
    return list(replies(CountedBench(driver, DECODE, 0), trials, calls, driver.marked, until))


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


def test_when_the_time_is_used_no_further_choice_is_begun():
    driver = Marking()
    assert len(counted(driver, [trial(100), trial(200)], until=time.monotonic() - 1)) == 1

"""The bench of a device with a stand-in for the device: what is checked, what is refused, what is timed."""

import numpy as np
import pytest
from gpu_fixtures import DECODE, H200, FakeDriver, answers

from advisor.kernels.executor import Ask
from advisor.kernels.gpu import operands
from advisor.kernels.gpu.bench import MOST_GRAPH_CALLS, Bench
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.messages import Compile, Trial, decode, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_default, gpu_space
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.messages import Phase, Reply
from advisor.kernels.messages import decode as read
from advisor.kernels.variant import variants

TOOLS = (("cupy-14.2", "cuda"), ("triton-3.6", "triton"))
GROUPED = {"batch": 1, "heads": 5, "kv_heads": 1, "head_dim": 64}


def trial(n=100, dtype="float16", regime="warm", ask=None, draw=None, **shape):
    """A trial of the default choice, as the pool makes it."""
    found = variants("decode", (), GPU_LANGUAGES)
    problem = DECODE.problem(n, dtype, regime, **(shape or GROUPED))
    choice = gpu_default(H200, DECODE, found, problem, TOOLS)
    pool = GpuPool(H200, DECODE, found)
    variant = next(v for v in found if v.name == choice.build.variant)
    return pool._trial(problem, variant, choice, ask or Ask(3, 10.0), draw)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_right_variant_is_checked_on_its_edges_and_draws_then_timed(dtype):
    driver, asked = FakeDriver(), trial(dtype=dtype)
    *phases, reply = answers(driver, asked)
    assert [p.phase for p in phases] == ["inputs", "run"]
    assert reply.status == "ok", reply.reason
    assert reply.samples_ns == (10_000.0,) * 3
    assert 0 <= reply.error <= reply.tolerance
    assert len({(c.problem, c.draw) for c in asked.checks}) > 6
    assert {c.draw for c in asked.checks} == {"normal", "outlier"}
    assert dict(reply.conditions)["calls"] == 100  # 1 ms of 10 us


def test_what_checks_take_is_compiled_before_anything_has_a_limit(monkeypatch):
    done = []
    monkeypatch.setattr(operands, "rehearse", lambda xp, group: done.append(len(group)))
    driver, asked = FakeDriver(), trial()
    bench = Bench(driver, DECODE, 0)
    bench.compile(Compile((asked.program,), asked.case.problem))
    assert done == [4, 4]  # the operands of each draw
    bench.prepare(asked)
    bench.trial(asked)
    assert done == [4, 4]
    bench.prepare(trial(dtype="bfloat16"))
    assert done == [4] * 4


def test_a_rehearsal_leaves_what_a_check_would_find():
    inputs = DECODE.inputs(trial().case.problem, 0)
    group = operands.make(np, DECODE, trial().case.problem, inputs, 1)[0]
    operands.rehearse(np, group)
    assert all(operands.intact(one) for one in group)


@pytest.mark.parametrize("count", [0, 1, operands.SUMMED - 1, operands.SUMMED, 3 * operands.SUMMED + 5])
def test_a_checksum_is_that_of_every_bit_whatever_the_length(count):
    one = operands.block(np, (count,), np.float16)
    one.data[...] = np.arange(count) % 1000
    (found,) = operands.checksums(np, [one])
    assert found == int(one.data.view(np.uint16).astype(np.uint64).sum())
    for place in {0, count // 2, count - 1} & set(range(count)):
        one.data.view(np.uint16)[place] ^= 1
        assert operands.checksums(np, [one]) != [found]
        one.data.view(np.uint16)[place] ^= 1


def test_a_device_lost_while_compiling_ends_the_worker():
    class Lost(FakeDriver):
        @property
        def xp(self):
            raise DeviceError("no device", sticky=True)

    reply = answers(Lost(), Compile((), trial().case.problem))[-1]
    assert (reply.status, reply.sound) == ("crashed", False)


def test_what_passed_once_is_not_checked_again_and_its_graph_is_kept():
    driver, asked = FakeDriver(), trial()
    bench = Bench(driver, DECODE, 0)
    counts = []
    for _ in range(2):
        bench.prepare(asked)
        assert bench.trial(asked).status == "ok"
        counts.append((len(driver.launched), driver.graphs))
    (launches, graphs), (after, graphs_after) = counts
    assert graphs_after == graphs
    assert after - launches == asked.samples


class Small(FakeDriver):
    """A device whose memory holds so many recorded graphs; everything else takes none."""

    def __init__(self, graphs):
        super().__init__()
        self.bench, self.most = Bench(self, DECODE, 0), graphs

    def room_bytes(self):
        return 1 << 40 if len(self.bench._ready) < self.most else 0


@pytest.mark.parametrize(("most", "kept"), [(2, 2), (1, 1), (9, 3)])
def test_graphs_that_were_kept_make_room_for_the_workspace_of_the_next(most, kept):
    driver = Small(most)
    problem = DECODE.problem(100, "float16", "warm", batch=1, heads=40, kv_heads=8, head_dim=128)
    cuda = variants("decode", (), ("cuda",))
    pool = GpuPool(H200, DECODE, cuda)
    for choice in gpu_space(H200, DECODE, cuda, problem, (("cupy-14.2", "cuda"),))[:3]:
        asked = pool.trial(problem, choice, Ask(1, 60.0), "normal")
        driver.bench.prepare(asked)
        assert driver.bench.trial(asked).status == "ok"
    assert len(driver.bench._ready) == kept
    assert next(reversed(driver.bench._ready))[0] == asked.program
    assert (driver.released > 1) == (kept < 3)


def test_cold_operands_rotate_through_twice_the_l2():
    driver, asked = FakeDriver(), trial(n=4096, dtype="float32", regime="cold", ask=Ask(1, 10.0, 1e-4))
    reply = answers(driver, asked)[-1]
    assert reply.status == "ok", reply.reason
    assert asked.sets * 2 * 4096 * 64 * 4 > 2 * (60 << 20)
    used = {pointers[1] for _, _, pointers in driver.launched}
    assert len(used) > asked.sets  # those of the checks too
    assert dict(reply.conditions)["graph_calls"] % asked.sets == 0


def test_a_long_sample_replays_a_graph_of_bounded_length():
    driver = FakeDriver(call_ns=100.0)
    reply = answers(driver, trial())[-1]
    assert dict(reply.conditions)["graph_calls"] == MOST_GRAPH_CALLS
    assert reply.samples_ns == pytest.approx((100.0,) * 3)


def test_a_hopeless_choice_costs_one_sample():
    reply = answers(FakeDriver(), trial(ask=Ask(5, 10.0, give_up_ns=1000.0)))[-1]
    assert len(reply.samples_ns) == 1


def test_a_hopeless_choice_costs_one_call_of_one_set_and_a_race_of_it_all_sets():
    driver = FakeDriver()
    asked = trial(n=4096, dtype="float32", regime="cold", ask=Ask(3, 10.0, 1e-4, give_up_ns=1000.0))
    bench = Bench(driver, DECODE, 0)
    bench.prepare(asked)
    given_up = bench.trial(asked)
    assert given_up.samples_ns == pytest.approx((10_000.0,))
    assert dict(given_up.conditions)["graph_calls"] == 1
    whole = bench.trial(asked._replace(give_up_ns=None))
    assert len(whole.samples_ns) == 3
    assert dict(whole.conditions)["graph_calls"] % asked.sets == 0


def left_unwritten(arrays):
    arrays[3].reshape(-1).view(np.uint32)[-1] = 0x7FC0DEAD


SPOILS = {
    "unwritten": left_unwritten,
    "over the tolerance": lambda a: np.multiply(a[3], 1.5, out=a[3]),
    "NaN": lambda a: a[3].fill(np.nan),
    "wrote to its inputs": lambda a: a[1].reshape(-1).__setitem__(0, 7),
    "start of its workspace": lambda a: a[4].__setitem__(0, 1),
}


@pytest.mark.parametrize("words", SPOILS)
def test_a_wrong_variant_is_never_timed(words):
    driver = FakeDriver(spoil=SPOILS[words])
    reply = answers(driver, trial())[-1]
    assert reply.status == "wrong"
    assert words in reply.reason
    assert not reply.samples_ns
    assert not driver.timed
    assert reply.sound == (words in ("unwritten", "over the tolerance", "NaN"))


def beyond(arrays):
    whole = arrays[3].base
    while whole.base is not None and isinstance(whole.base, np.ndarray):
        whole = whole.base
    whole[-1] = 0


def test_writing_beyond_an_output_ends_the_worker():
    reply = answers(FakeDriver(spoil=beyond), trial())[-1]
    assert reply.status == "wrong"
    assert "outside of an operand" in reply.reason
    assert not reply.sound


@pytest.mark.parametrize(("sticky", "status"), [(True, "crashed"), (False, "skipped")])
def test_an_error_of_the_device_ends_a_trial_and_a_sticky_one_the_worker(sticky, status):
    reply = answers(FakeDriver(fails=DeviceError("illegal address", sticky)), trial())[-1]
    assert (reply.status, reply.sound) == (status, not sticky)
    assert "illegal address" in reply.reason


def test_no_room_on_the_device_is_no_crash_but_costs_the_worker():
    reply = answers(FakeDriver(fails=MemoryError("2 bytes")), trial())[-1]
    assert (reply.status, reply.sound) == ("skipped", False)


def test_programs_are_compiled_ahead_and_those_that_fail_counted(tmp_path):
    asked = trial()
    broken = tmp_path / "x.cu"
    broken.write_text("broken")
    from advisor.sources import source_hash

    bad = asked.program._replace(path=str(broken), source_hash=source_hash(str(broken)))
    driver = FakeDriver()
    *_, reply = answers(driver, Compile((asked.program, bad)))
    assert len(reply.reason.splitlines()) == 1
    assert [symbol for symbol, _ in driver.built] == ["decode_batched_mma"]


def test_an_error_without_text_is_a_failure_like_any_other():
    class Mute(FakeDriver):
        def build(self, source, options, symbol):
            raise RuntimeError

    *_, reply = answers(Mute(), Compile((trial().program,)))
    assert (reply.status, reply.reason) == ("ok", "RuntimeError")


def test_a_source_that_changed_is_not_run(tmp_path):
    reply = answers(FakeDriver(), trial()._replace(program=trial().program._replace(source_hash="0" * 12)))[-1]
    assert reply.status == "skipped"
    assert "changed" in reply.reason


def test_messages_come_back_as_they_were_sent():
    asked = trial()
    assert decode(encode(asked)) == asked
    assert isinstance(asked, Trial)
    assert read(b'{"phase":{"phase":"run"}}') == Phase("run")
    assert isinstance(answers(FakeDriver(), asked)[-1], Reply)

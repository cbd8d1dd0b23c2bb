"""Verdicts on made-up measurements of a device: each both ways round, and where nothing can be said."""

from __future__ import annotations

import pytest
from made_up import made

from advisor.kernels import registry
from advisor.kernels.gpu.counts import Kernel, Predicted
from advisor.validate import judge
from advisor.validate.device_findings import device_findings
from advisor.validate.device_judge import DeviceEvidence, crossings, passing, quantity, steps
from advisor.validate.device_records import Count, Device, Grid
from advisor.validate.device_steps import paper_crossing
from advisor.validate.records import NOT_REPRODUCED, NOT_TESTABLE, REPRODUCED

TWO, GK, FREE = "fused_two_atomics_packed", "fused_gv_columns_packed", "fused_no_atomic_packed"
NAIVE, NAIVE_FREE = "pair_packed", "pair_no_atomic_packed"
DEVICE = Device("NVIDIA H200", 132, "9.0", 143771 << 20, 60 << 20)
SIZES = (512, 1024, 2048, 4096, 8192)


def timed(kernel, variant, times, sizes=SIZES, **changes):
    """One variant on a device; `times`: n -> ns."""
    return [made(kernel, variant, n, 0, times(n), pinned=False, **changes) for n in sizes]


def counted(kernel, variant, n, moved=(6.0, 6.0), reductions=0.0, atomics=0, kernels=()):
    """Counters of one variant; `moved`: bytes read and written, of 4 and 8 predicted."""
    call = Kernel("one", 1e6, *moved, 1e6, 1e6, reductions, 0.0, 0.25, 0.5)
    return Count(kernel, variant, n, call, kernels or (call,), Predicted(4, 8, 1.0, 1.0, atomics))


def judged(series=(), counts=(), grids=(), uncounted="", cold=(), waits=()):
    """Finding -> what is found."""
    series = tuple(series)
    walked = steps(series)
    found = device_findings(
        DeviceEvidence(
            DEVICE,
            series,
            judge.growths(judge.good(series)),
            tuple(grids),
            walked,
            crossings(walked),
            tuple(counts),
            tuple(waits),
            uncounted,
            tuple(cold),
        )
    )
    return {f.finding: f for f in found}


def test_without_evidence_nothing_is_testable_and_every_finding_says_why():
    found = judged(uncounted="ncu is not installed")
    assert {f.verdict for f in found.values()} == {NOT_TESTABLE}
    assert all(f.why and f.paper and f.section for f in found.values())
    for words in ("2.0000x", "M_fwd", "M_block", "count of atomics"):
        named = [f for name, f in found.items() if words in name]
        assert named, words
        assert all("ncu is not installed" in f.why for f in named), words


def test_fortran_and_a_second_gpu_are_never_testable():
    found = judged()
    assert "CUDA C++" in found["Fortran is faster than C on GPUs"].why
    assert found["H200 is faster than A100, and less so at large n"].verdict == NOT_TESTABLE


@pytest.mark.parametrize(
    ("exponent", "sizes", "verdict"),
    [(2.0, SIZES, REPRODUCED), (1.0, SIZES, NOT_REPRODUCED), (2.0, SIZES[:3], NOT_TESTABLE)],
)
def test_growth_of_forward(exponent, sizes, verdict):
    grid = Grid("forward", "packed", 8192, ((128, 128),))
    found = judged(timed("forward", "packed", lambda n: n**exponent, sizes), grids=[grid])
    one = found["forward grows with n^2 (packed, score row in memory)"]
    assert one.verdict == verdict
    if sizes == SIZES:
        assert "128 blocks of 128 threads on 132 multiprocessors" in one.why


def test_growth_of_too_few_rounds_is_not_told():
    found = judged(timed("forward", "packed", lambda n: n**2.0, rounds=3))
    assert found["forward grows with n^2 (packed, score row in memory)"].verdict == NOT_TESTABLE


# --- bytes ---


@pytest.mark.parametrize(
    ("moved", "n", "verdict"),
    [
        ((8.0, 16.0), 4096, REPRODUCED),
        ((4.0, 8.0), 4096, NOT_REPRODUCED),
        ((5.0, 10.0), 4096, NOT_TESTABLE),
        ((8.0, 16.0), 2048, NOT_TESTABLE),
    ],
)
def test_forward_with_its_row_in_memory(moved, n, verdict):
    found = judged(counts=[counted("forward", "packed", n, moved)])
    assert found["forward moves twice M_fwd (packed, score row in memory)"].verdict == verdict


@pytest.mark.parametrize(
    ("moved", "verdict"), [((4.0, 1.0), REPRODUCED), ((8.0, 16.0), NOT_REPRODUCED), ((5.0, 10.0), NOT_TESTABLE)]
)
def test_forward_with_its_row_on_the_chip(moved, verdict):
    found = judged(counts=[counted("forward", "lane_shared", 4096, moved)])
    one = found["M_fwd can be met (lane, score row in shared memory)"]
    assert one.verdict == verdict
    assert verdict != NOT_REPRODUCED or "occupancy 0.25" in one.why


@pytest.mark.parametrize(("moved", "verdict"), [((4.0, 16.0), REPRODUCED), ((16.0, 16.0), NOT_REPRODUCED)])
def test_writes_beside_reads(moved, verdict):
    found = judged(counts=[counted("forward", "packed", 4096, moved)])
    assert found["writes are hit hardest (packed, score row in memory)"].verdict == verdict


@pytest.mark.parametrize(("used", "verdict"), [(9.4, REPRODUCED), (31.0, NOT_REPRODUCED), (None, NOT_TESTABLE)])
def test_bytes_used_of_a_sector(used, verdict):
    count = counted("forward", "packed", 4096)
    count = count._replace(call=count.call._replace(read_sector_bytes=18.2, written_sector_bytes=used))
    found = judged(waits=[count])["its access is not coalesced (packed, score row in memory)"]
    assert found.verdict == verdict


def test_waits_stand_in_the_mechanism():
    series = pair(GK, NAIVE, lambda n: 1.3)
    stalls = (("long_scoreboard", 12.34), ("barrier", 1.0))
    counts = [counted("fused", name, 4096) for name in (GK, NAIVE)]
    waits = [counted("fused", name, 512) for name in (GK, NAIVE)]
    waits[0] = waits[0]._replace(call=Kernel("one", stalls=stalls))
    waits[1] = waits[1]._replace(call=Kernel("one"))
    one = judged(series, counts, waits=waits)["without GV's atomic fused wins (packed, A kept)"]
    assert "counted at n=4096, new / old: from" in one.why
    assert one.why.endswith("counted at n=512, new / old: longest waits for long_scoreboard (12.3 warps) / -")


# --- atomics ---


@pytest.mark.parametrize(("fused", "verdict"), [(200.0, REPRODUCED), (200.02, NOT_REPRODUCED)])
def test_twice_the_atomics(fused, verdict):
    counts = [
        counted("fused", "fused_two_atomics_packed", 2048, reductions=fused, atomics=200),
        counted("backward", "gk_atomic_packed", 2048, reductions=100.0, atomics=100),
    ]
    one = judged(counts=counts)["fused has 2.0000x backward's atomics (packed, A kept)"]
    assert one.verdict == verdict
    assert "by the headers 2.0000x" in one.ours


def test_what_headers_say_stands_there_without_counters():
    counts = [
        counted("fused", "fused_two_atomics_packed", 2048, atomics=200)._replace(call=None),
        counted("backward", "gk_atomic_packed", 2048, atomics=100)._replace(call=None),
    ]
    one = judged(counts=counts, uncounted="not permitted")["fused has 2.0000x backward's atomics (packed, A kept)"]
    assert (one.verdict, one.ours) == (NOT_TESTABLE, "2.0000x by the headers")


@pytest.mark.parametrize(
    ("fused", "verdict"), [(1.97, REPRODUCED), (1.2, NOT_REPRODUCED)], ids=["twice the time", "nearly the same"]
)
def test_time_beside_the_count(fused, verdict):
    series = timed("backward", "gk_atomic_packed", lambda n: n**2.0)
    series += timed("fused", "fused_two_atomics_packed", lambda n: fused * n**2.0)
    assert judged(series)["time follows that count (packed, A kept)"].verdict == verdict


@pytest.mark.parametrize(("lanes", "verdict"), [(536_900_000.0, REPRODUCED), (1e6, NOT_REPRODUCED)])
def test_the_papers_very_count_is_one_active_lane_a_warp(lanes, verdict):
    counts = [
        counted("backward", "gk_atomic_packed", 2048, reductions=16_777_216.0),
        counted("backward", "gk_atomic_one_lane", 1024, reductions=lanes / 4),
    ]
    one = judged(counts=counts)["backward's count of atomics"]
    assert one.verdict == verdict
    assert verdict != REPRODUCED or one.why.endswith("one_lane")


@pytest.mark.parametrize(("share", "verdict"), [(0.85, REPRODUCED), (0.3, NOT_REPRODUCED)])
def test_the_atomic_kernel_of_backward(share, verdict):
    parts = (
        Kernel("gv", (1 - share) * 100, global_reductions=0.0, achieved_occupancy=0.4),
        Kernel("gk", share * 100, global_reductions=5.0, achieved_occupancy=0.1),
    )
    found = judged(counts=[counted("backward", "gk_atomic_packed", 2048, kernels=parts)])
    assert found["its atomic kernel is the bottleneck (packed, A kept)"].verdict == verdict


@pytest.mark.parametrize(
    ("lane", "lanes_count", "verdict"),
    [(3e6, 100.0, REPRODUCED), (30e6, 100.0, NOT_REPRODUCED), (3e6, 500.0, NOT_TESTABLE)],
    ids=["apart", "alike", "another count"],
)
def test_address_patterns(lane, lanes_count, verdict):
    series = timed("backward", "gk_atomic_packed", lambda n: 33e6) + timed("backward", "gk_atomic_lane", lambda n: lane)
    counts = [
        counted("backward", "gk_atomic_packed", 2048, reductions=100.0),
        counted("backward", "gk_atomic_lane", 2048, reductions=lanes_count),
    ]
    assert judged(series, counts)["address pattern decides, not count (ours)"].verdict == verdict


# --- steps ---


def pair(new, old, ratio, sizes=SIZES, **changes):
    """Two variants of fused, or backward, in one race; `ratio`: n -> new over old."""
    kernel = "backward" if old.startswith("gk_") else "fused"
    return timed(kernel, old, lambda n: n**2.0, sizes, **changes) + timed(
        kernel, new, lambda n: ratio(n) * n**2.0, sizes, **changes
    )


@pytest.mark.parametrize(
    ("name", "new", "old", "as_said", "against"),
    [
        ("with two atomics fused loses (packed, A kept)", TWO, NAIVE, 1.5, 0.8),
        ("without GV's atomic fused wins (packed, A kept)", GK, NAIVE, 0.5, 1.2),
        ("removing GV's atomic halves fused (packed, A kept)", GK, TWO, 0.4, 0.9),
        ("removing GK's atomic helps backward (packed, A kept)", "no_atomic_packed", "gk_atomic_packed", 0.6, 1.1),
        ("fused without atomics wins (packed, A kept)", FREE, NAIVE_FREE, 0.7, 1.1),
    ],
)
def test_steps(name, new, old, as_said, against):
    assert judged(pair(new, old, lambda n: as_said))[name].verdict == REPRODUCED
    lost = judged(pair(new, old, lambda n: against))[name]
    assert lost.verdict == NOT_REPRODUCED
    assert "no counters" in lost.why, "the mechanism, or why it is not known"
    assert judged(pair(new, old, lambda n: as_said, SIZES[:2]))[name].verdict == NOT_TESTABLE
    assert judged(pair(new, old, lambda n: as_said, rounds=3))[name].verdict == NOT_TESTABLE


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(lambda n: 1.0, NOT_REPRODUCED), (lambda n: 1.005 if n == 512 else 0.8, REPRODUCED)],
    ids=["neither gain nor loss", "a tie at one n"],
)
def test_ties(ratio, verdict):
    one = judged(pair(GK, NAIVE, ratio))["without GV's atomic fused wins (packed, A kept)"]
    assert one.verdict == verdict


def test_one_size_against_it_is_enough_and_the_mechanism_stands_beside_it():
    series = pair(GK, NAIVE, lambda n: 1.3 if n == 512 else 0.5)
    counts = [
        counted("fused", GK, 4096, (1e9, 1e9), reductions=5e6),
        counted("fused", NAIVE, 4096, (2e9, 2e9), reductions=5e6),
    ]
    one = judged(series, counts)["without GV's atomic fused wins (packed, A kept)"]
    assert one.verdict == NOT_REPRODUCED
    assert "faster at 4 of 5 n" in one.why
    assert "counted at n=4096, new / old: from and to memory 2 GB / 4 GB, reductions 5 M / 5 M" in one.why


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (lambda n: 0.8 if n < 4096 else 1.2, REPRODUCED),
        (lambda n: 0.6, NOT_REPRODUCED),
        (lambda n: 1.4, NOT_REPRODUCED),
    ],
    ids=["crosses", "always faster", "always slower"],
)
def test_the_gk_step_of_fused(ratio, verdict):
    one = judged(pair(FREE, GK, ratio))[
        "removing GK's atomic helps fused at small n and hurts at large (packed, A kept)"
    ]
    assert one.verdict == verdict
    assert ("passes 1 at about n=2999" in one.ours) == (verdict == REPRODUCED)


@pytest.mark.parametrize(
    ("moved", "time", "verdict"),
    [
        (2.0, 1.1, REPRODUCED),
        (2.0, 0.7, NOT_REPRODUCED),
        (1.0, 1.2, NOT_REPRODUCED),
        (1.2, 0.6, NOT_REPRODUCED),
        (1.3, 1.2, NOT_TESTABLE),
    ],
)
def test_bytes_and_time_of_the_gk_step(moved, time, verdict):
    counts = [counted("fused", FREE, 4096, (moved, moved)), counted("fused", GK, 4096, (1.0, 1.0))]
    found = judged(pair(FREE, GK, lambda n: time), counts)["without GK's atomic fused moves more (packed, A kept)"]
    assert found.verdict == verdict
    assert "noisy" not in found.why, "the interval of the time is narrow"


@pytest.mark.parametrize(
    ("moved", "time", "verdict"), [(0.5, 0.8, REPRODUCED), (0.5, 1.2, NOT_REPRODUCED), (0.95, 0.8, NOT_TESTABLE)]
)
def test_bytes_and_time_of_fused(moved, time, verdict):
    counts = [counted("fused", GK, 4096, (moved, moved)), counted("fused", NAIVE, 4096, (1.0, 1.0))]
    found = judged(pair(GK, NAIVE, lambda n: time), counts)["saving bytes saves time (packed, A kept)"]
    assert found.verdict == verdict
    assert "noisy" not in found.why


def test_crossings_are_interpolated_in_logs():
    assert passing((1024, 0.5), (4096, 2.0)) == pytest.approx(2048)
    assert passing((1024, 0.5), (4096, 0.9)) is None
    assert 3500 < paper_crossing() < 3900


# --- sections 5 and 6 ---


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, REPRODUCED), (0.1, NOT_REPRODUCED)])
def test_decode(exponent, verdict):
    sizes = (1024, 32768, 262144, 1048576)
    found = judged(timed("decode", "split_w1", lambda n: n**exponent, sizes))
    assert found["decode's time grows with n"].verdict == verdict
    part = judged(timed("decode", "split_w1", lambda n: n**exponent, sizes[:1]))
    assert part["decode's time grows with n"].verdict == NOT_TESTABLE


@pytest.mark.parametrize(("factor", "verdict"), [(230.0, REPRODUCED), (40.0, NOT_REPRODUCED)])
def test_decodes_factor(factor, verdict):
    series = timed("decode", "split_w1", lambda n: 6e3 if n == 1024 else 6e3 * factor, (1024, 1048576))
    one = judged(series)["decode grows 225x over 1024x in n"]
    assert one.verdict == verdict
    assert ("starting a kernel" in one.why) == (factor < 100)


@pytest.mark.parametrize(
    ("seconds", "verdict"), [((0.2, 0.31, 0.4), REPRODUCED), ((2.0, 2.1, 2.2), NOT_REPRODUCED), ((), NOT_TESTABLE)]
)
def test_the_cold_start(seconds, verdict):
    assert judged(cold=seconds)["a process pays a cold start"].verdict == verdict


@pytest.mark.parametrize(
    ("exponent", "sizes", "verdict"),
    [
        (2.0, (64, 128, 256, 512), REPRODUCED),
        (1.0, (64, 128, 256, 512), NOT_REPRODUCED),
        (2.0, (64, 128), NOT_TESTABLE),
    ],
)
def test_the_blocks_growth(exponent, sizes, verdict):
    assert judged(timed("block", "chain", lambda n: n**exponent, sizes))["the block grows with n^2"].verdict == verdict


@pytest.mark.parametrize(("times", "verdict"), [(1.5, REPRODUCED), (1.0, NOT_REPRODUCED), (1.2, NOT_TESTABLE)])
def test_the_blocks_bytes(times, verdict):
    (formula,) = [f for f in judge.formulas(registry.spec("forward"), registry.spec("block")) if "M_block" in f.name]
    counts = [counted("block", "chain", 256, (times * formula.ours, 0.0)), counted("block", "lean", 256, (1e6, 0.0))]
    series = timed("block", "chain", lambda n: 1e6, (256,)) + timed("block", "lean", lambda n: 1e5, (256,))
    one = judged(series, counts)["the block moves more than M_block"]
    assert one.verdict == verdict
    assert f"chain {times * 10.49:.3g} MB: {times:.2f}x" in one.ours


def test_quantities_are_read_easily():
    assert (quantity(89.8e9, "B"), quantity(0.0), quantity(None), quantity(536_870_912.0)) == (
        "89.8 GB",
        "0",
        "-",
        "537 M",
    )

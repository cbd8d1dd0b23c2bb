"""Judges on made-up measurements: every figure is known beforehand, exactly."""

from __future__ import annotations

from itertools import pairwise

import pytest
from made_up import NODE, made, spec, sweep, windows

from advisor.validate import judge
from advisor.validate.records import Floor

SIZES = (64, 128, 256, 512, 1024, 2048)


def test_an_exponent_is_the_ratio_of_logs():
    series = sweep("forward", "naive", lambda n, t: 3.0 * n**2 / t, SIZES)
    found = judge.growth(series, NODE)
    assert {(g.low_n, g.high_n) for g in found} == set(pairwise(SIZES))
    assert {g.threads for g in found} == {1, 8}, "one thread and all, no others"
    for g in found:
        assert g.exponent.value == pytest.approx(2.0)
        assert g.exponent.low == pytest.approx(2.0)
        assert g.by_flops == pytest.approx(2.0, abs=0.02)
        assert 1.0 < g.by_moved < 2.0, "4nd + n^2"


def test_sizes_need_not_double():
    (found,) = judge.growth([made("forward", "naive", n, 1, n**1.5) for n in (100, 1700)], NODE)
    assert found.exponent.value == pytest.approx(1.5)


def test_an_interval_holds_the_exponent_and_grows_with_noise():
    widths = []
    for spread in (0.01, 0.1):
        series = [made("forward", "naive", n, 1, n**2, spread=spread) for n in (64, 128)]
        (g,) = judge.growth(series, NODE)
        assert g.exponent.low < 2.0 < g.exponent.high
        widths.append(g.exponent.high - g.exponent.low)
    assert widths[0] < widths[1] / 5


def test_few_rounds_have_no_interval():
    series = [made("forward", "naive", n, 1, n**2, rounds=4) for n in (64, 128)]
    (g,) = judge.growth(series, NODE)
    assert (g.exponent.low, g.exponent.high) == (None, None)
    assert judge.ratio(*series).low is None


def test_the_best_count_stands_beside_table_one():
    series = sweep("forward", "naive", lambda n, t: n**2 / t + 400 * t, SIZES)
    found = {c.n: c for c in judge.crossovers(series, NODE)}
    assert [found[n].best for n in (64, 128, 256)] == [4, 8, 8]
    assert [found[n].published for n in SIZES] == [4, 8, 16, 32, 64, 128]
    assert found[64].published_slowdown == 14.5
    assert found[64].all_over_best.value == pytest.approx((64**2 / 8 + 3200) / (64**2 / 4 + 1600))
    assert found[2048].speedup.value == pytest.approx((2048**2 + 400) / (2048**2 / 8 + 3200))
    assert found[2048].all_over_best.value == 1.0


def test_counts_that_are_not_told_apart_are_ties():
    series = [
        made("forward", "naive", 64, 1, 100.0, spread=0.1),
        made("forward", "naive", 64, 2, 99.9, spread=0.05),
        made("forward", "naive", 64, 4, 200.0),
    ]
    (found,) = judge.crossovers(series, NODE)
    assert {found.best, *found.tied} == {1, 2}


def test_more_threads_than_cpus_and_free_threads_are_no_part_of_it():
    series = [
        *sweep("decode", "split", lambda n, t: 100 / t, (1024,), threads=(1, 2, 16)),
        made("decode", "split", 1024, 8, 1.0, pinned=False),
    ]
    (found,) = judge.crossovers(series, NODE)
    assert (found.best, found.tried) == (2, (1, 2))


def test_fused_is_compared_with_each_baseline_and_with_the_papers_figures():
    times = {"naive": 10.0, "pair": 5.0, "owners": 4.0}
    series = [made("fused", name, 4096, t, ns * 1e6) for name, ns in times.items() for t in (1, 8)]
    found = {(f.variant, f.baseline, f.threads): f for f in judge.fusions(series, NODE)}
    assert set(found) == {("owners", base, t) for base in ("naive", "pair") for t in (1, 8)}
    assert found["owners", "naive", 1].ratio.value == pytest.approx(0.4)
    assert found["owners", "pair", 8].ratio.value == pytest.approx(0.8)
    one = dict(found["owners", "pair", 1].published)
    assert one[1] == pytest.approx(208.62 / 175.58)
    assert one[128] == pytest.approx(2.4362 / 3.3961)
    assert dict(found["owners", "pair", 8].published)[8] == pytest.approx(29.84 / 31.69)


def test_without_a_baseline_there_is_no_ratio():
    assert judge.fusions([made("fused", "owners", 64, 1, 1.0)], NODE) == ()


def test_speeds_stand_beside_the_floor_of_the_same_threads():
    floors = [
        Floor(1, 4000, True, (100.0,) * 9),
        Floor(1, 9000, False, (900.0,) * 9),
        Floor(8, 4000, True, (20.0,) * 9),
    ]
    found = {t.threads: t for t in judge.traffic(sweep("forward", "naive", lambda n, t: 1e6 / t, (64,)), floors, NODE)}
    assert set(found) == {1, 8}
    assert found[1].predicted_bytes == 8 * 2 * (64 * 64 + 4 * 64 * 64)
    assert found[1].gb_per_s == pytest.approx(found[1].predicted_bytes / 1e6)
    assert (found[1].floor_cache, found[1].floor_memory) == pytest.approx((40.0, 10.0))
    assert found[8].floor_cache == pytest.approx(200.0)
    assert found[8].floor_memory is None


def test_windows_are_compared_quiet_with_quiet_and_beside_with_beside():
    found = judge.plateau(
        windows({(1024, 4, False): 100, (1024, 8, False): 60, (1024, 4, True): 110, (1024, 8, True): 55000}), NODE
    )
    wide = next(p for p in found if p.threads == 8)
    assert (wide.base_threads, wide.quiet_over_base, wide.beside_over_base) == (4, 0.6, 500.0)
    assert wide.published == pytest.approx(0.044417 / 0.000083)


def test_a_window_that_failed_is_unknown():
    (found,) = judge.plateau(windows({(1024, 8, False): 60}), NODE)
    assert (found.beside_ns, found.quiet_over_base, found.beside_over_base) == (None, None, None)


def test_the_formulas_of_forward_and_of_the_block_are_the_papers():
    found, block = judge.formulas(spec("forward"), spec("block"))
    assert found.ours == 75_497_472
    assert round(found.ours / 1e6, 3) == round(found.published / 1e6, 3) == 75.497
    assert block.ours == 8 * 512 * (24 * 64 + 4 * 256)
    assert round(block.ours / 1e6, 2) == round(block.published / 1e6, 2) == 10.49


def test_c_over_fortran_is_of_the_same_race_and_of_partners_alone():
    """Of gcc to gfortran and of clang to flang, not of gcc to flang; one that failed has none."""
    times = {"gcc-12": 1.0, "gfortran-12": 2.0, "clang-14": 1.5, "flang-19": 1.0}
    names = {"gcc-12": "naive", "clang-14": "naive", "gfortran-12": "fortran", "flang-19": "fortran"}
    series = [made("mlp", names[tool], 64, 1, ns * 1e6, compiler=tool) for tool, ns in times.items()]
    found = {(one.compiler, one.fortran_compiler): one for one in judge.languages(series)}
    assert {pair: pytest.approx(one.ratio.value) for pair, one in found.items()} == {
        ("gcc-12", "gfortran-12"): 0.5,
        ("clang-14", "flang-19"): 1.5,
    }
    assert [one.variant for one in found.values()] == ["naive", "naive"]
    failed = [s._replace(samples_ns=(), status="wrong") if s.compiler == "gcc-12" else s for s in series]
    assert [one.compiler for one in judge.languages(failed)] == ["clang-14"]
    assert judge.languages(()) == ()


def test_the_block_has_paper_bytes_only_where_its_heads_are_one_row():
    one = made("block", "chain_best", 64, 1, 1e6)
    assert [(p.n, p.predicted_bytes) for p in judge.predicted([one, one])] == [(64, 8 * 128 * (24 * 64 + 4 * 256))]
    shared = dict(one.problem.shape) | {"heads": 2}
    wider = one._replace(problem=one.problem._replace(shape=tuple(sorted(shared.items()))))
    assert judge.predicted([wider]) == ()

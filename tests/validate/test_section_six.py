"""Verdicts on C beside Fortran and on the growth of the block, on made-up measurements, both ways round."""

from __future__ import annotations

import pytest
from made_up import NODE, made, sweep

from advisor.validate import judge
from advisor.validate.findings import findings
from advisor.validate.records import NOT_REPRODUCED, NOT_TESTABLE, REPRODUCED
from advisor.validate.verdicts import Evidence

SIZES = (64, 256, 1024, 2048, 4096)


def verdict(words, series=(), languages=(), node=NODE):
    """The finding whose name begins so."""
    crossed = judge.crossovers(series, node)
    evidence = Evidence(node, tuple(series), (), crossed, (), (), (), judge.languages(languages))
    (one,) = [found for found in findings(evidence) if found.finding.startswith(words)]
    return one


# --- languages ---

C, FORTRAN = "gcc-12", "gfortran-12"


def both(kernel, ratios, **changes):
    """A variant in C and one in Fortran at several n, in a race each, C over Fortran as told."""
    found = []
    for n, ratio in ratios.items():
        found += [made(kernel, "naive", n, 1, ratio * 1e6, compiler=C, spread=0.01, **changes)]
        found += [made(kernel, "fortran", n, 1, 1e6, compiler=FORTRAN, spread=0.01, **changes)]
    return found


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ({64: 0.54, 256: 0.7, 1024: 0.84}, REPRODUCED),
        ({64: 0.54, 256: 1.0, 1024: 0.84}, NOT_REPRODUCED),
        ({64: 1.4, 256: 1.2}, NOT_REPRODUCED),
    ],
)
def test_c_is_faster_where_it_is_at_every_size(ratios, expected):
    found = verdict("C is faster", languages=both("mlp", ratios))
    assert found.verdict == expected
    assert f"{C} / {FORTRAN}" in found.ours
    assert f"of {len(ratios)} sizes" in found.why


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ({64: 0.7, 256: 1.55, 1024: 1.0}, REPRODUCED),
        ({64: 1.0, 256: 1.0, 1024: 1.0}, REPRODUCED),
        ({64: 0.7, 256: 0.8, 1024: 0.6}, NOT_REPRODUCED),
        ({64: 0.7, 256: 1.55}, NOT_TESTABLE),
    ],
)
def test_rmsnorm_has_no_pattern_or_has(ratios, expected):
    assert verdict("RMSNorm", languages=both("rmsnorm", ratios)).verdict == expected


def test_few_rounds_and_no_compiler_are_not_testable():
    few = both("mlp", {64: 0.5}, rounds=3)
    assert "too few rounds" in verdict("C is faster", languages=few).why
    assert verdict("C is faster", languages=few).verdict == NOT_TESTABLE
    assert verdict("C is faster").verdict == NOT_TESTABLE


def test_the_verdict_is_of_the_preferred_compilers_and_one_thread():
    preferred = both("mlp", {64: 0.6, 256: 0.7})
    others = {C: "clang-14", FORTRAN: "flang-19"}
    slower = [s._replace(compiler=others[s.compiler]) for s in both("mlp", {64: 1.6, 256: 1.7})]
    wide = [s._replace(threads=2) for s in both("mlp", {64: 2.0})]
    assert verdict("C is faster", languages=[*slower, *wide, *preferred]).verdict == REPRODUCED


# --- the block ---


def block(last, name="chain_naive", sizes=SIZES, penalty=1.0):
    """Time grows fourfold a doubling, but for the step to 4096; all threads over one as told at n = 64."""

    def ns(n, threads):
        alone = 1e3 * n**2 * (last / 4 if n == 4096 else 1.0)
        return alone * penalty if n == 64 and threads > 1 else alone / threads

    return sweep("block", name, ns, sizes, threads=(1, 8), spread=0.01)


@pytest.mark.parametrize(("last", "expected"), [(12.5, REPRODUCED), (4.2, NOT_REPRODUCED), (7.5, NOT_TESTABLE)])
def test_a_jump_is_a_step_far_beyond_the_ones_before(last, expected):
    found = verdict("block: time jumps", block(last))
    assert found.verdict == expected
    assert found.ours.startswith(f"chain_naive: {last:.2f}")
    assert "from n=1024" in found.ours


def test_the_jump_needs_both_sizes_and_prefers_the_naive_chain():
    assert verdict("block: time jumps", block(12.5, sizes=(64, 2048))).verdict == NOT_TESTABLE
    best = block(4.0, name="chain_best")
    assert verdict("block: time jumps", best).ours.startswith("chain_best")
    assert verdict("block: time jumps", [*best, *block(12.5)]).verdict == REPRODUCED
    assert verdict("block: time jumps", [*best, *block(12.5, sizes=(64, 2048))]).ours.startswith("chain_best")


@pytest.mark.parametrize(("penalty", "expected"), [(1.0, REPRODUCED), (6.0, REPRODUCED), (9.0, NOT_REPRODUCED)])
def test_all_threads_may_cost_as_much_as_in_the_paper(penalty, expected):
    found = verdict("block: all threads", block(4.0, penalty=penalty))
    assert found.verdict == expected
    assert "8 CPUs on 1 NUMA node," in found.why


def noisy(series, threads):
    """A race in which two of three rounds of those with so many threads took ten times as long as the others."""
    return [
        s._replace(samples_ns=tuple(x * (3 if i % 3 else 0.3) for i, x in enumerate(s.samples_ns)))
        if s.threads == threads
        else s
        for s in series
    ]


def test_noise_and_few_rounds_do_not_make_all_threads_cheap():
    series = sweep("block", "chain_naive", lambda n, t: n**2, SIZES, threads=(1, 8))
    assert verdict("block: all threads", series).verdict == REPRODUCED
    assert verdict("block: all threads", noisy(series, 8)).verdict == NOT_TESTABLE
    few = [s._replace(samples_ns=s.samples_ns[:3]) for s in series]
    assert verdict("block: all threads", few).verdict == NOT_TESTABLE


def test_noise_is_no_pattern_of_languages():
    series = both("rmsnorm", {64: 1.0, 256: 1.0, 1024: 1.0})
    loud = [s for at, s in enumerate(series) for s in (noisy([s], 1) if at % 2 else [s])]
    assert verdict("RMSNorm", languages=loud).verdict == NOT_TESTABLE


def test_steps_over_several_doublings_are_told_a_doubling_each():
    found = verdict("block: time jumps", block(12.5))
    assert "4.00 [3.94, 4.06]x a doubling from n=64" in found.ours or "4.00" in found.ours.partition("before it")[2]
    assert "16.0" not in found.ours


def test_a_penalty_at_a_large_n_is_not_mild():
    slow = sweep("block", "chain_naive", lambda n, t: n**2 * (2.0 if t > 1 else 1.0), SIZES, threads=(1, 8))
    assert verdict("block: all threads", slow).verdict == NOT_REPRODUCED
    assert verdict("block: all threads", slow, node=NODE._replace(cpus=1)).verdict == NOT_TESTABLE
    assert verdict("block: all threads").verdict == NOT_TESTABLE

"""Verdicts on made-up measurements, both ways round, and where nothing can be said."""

from __future__ import annotations

import random

import pytest
from made_up import NODE, made, sweep, windows

from advisor.validate import judge
from advisor.validate.findings import findings, paper_form
from advisor.validate.records import NOT_REPRODUCED, NOT_TESTABLE, REPRODUCED, StackCheck
from advisor.validate.verdicts import Evidence

SIZES = (64, 256, 1024, 4096)
WIDE = NODE._replace(cpus=64)
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def verdicts(node, series=(), seen=(), stack=()):
    """Finding -> verdict."""
    return {f.finding: f for f in all_findings(node, series, seen, stack)}


def all_findings(node, series, seen, stack):
    return findings(
        Evidence(
            node,
            tuple(series),
            judge.growth(series, node),
            judge.crossovers(series, node),
            judge.fusions(series, node),
            judge.plateau(seen, node),
            tuple(stack),
        )
    )


def forward(overhead, exponent=2.0):
    """Work divides among threads, each thread costs something."""
    return sweep("forward", "naive", lambda n, t: n**exponent / t + overhead * t, SIZES, threads=COUNTS)


def of(found, words):
    """The finding whose name begins so."""
    (one,) = [f for name, f in found.items() if name.startswith(words)]
    return one


def test_every_finding_has_figures_and_a_reason():
    found = verdicts(WIDE, forward(400))
    assert len(found) >= 14
    assert all(f.paper and f.why and f.section for f in found.values())
    assert {f.verdict for f in found.values()} <= {REPRODUCED, NOT_REPRODUCED, NOT_TESTABLE}


def test_a_machine_like_the_papers_reproduces_the_forward_pass():
    found = verdicts(WIDE, forward(400))
    for words in ("best thread count", "all threads hurt", "time grows with n^2", "all threads pay"):
        assert of(found, words).verdict == REPRODUCED, words


def test_without_a_cost_of_threads_nothing_grows_and_nothing_hurts():
    found = verdicts(WIDE, forward(0))
    assert of(found, "best thread count").verdict == NOT_REPRODUCED
    assert of(found, "all threads hurt").verdict == NOT_REPRODUCED


def test_two_cpus_cannot_show_what_the_paper_saw_on_128():
    node = NODE._replace(cpus=2)
    found = verdicts(node, sweep("forward", "naive", lambda n, t: n**2 / t, SIZES, threads=(1, 2)))
    assert of(found, "best thread count").verdict == NOT_TESTABLE
    assert of(found, "all threads hurt").verdict == NOT_TESTABLE


def test_another_growth_is_not_quadratic():
    assert of(verdicts(WIDE, forward(0, exponent=1.5)), "time grows").verdict == NOT_REPRODUCED
    assert of(verdicts(WIDE), "time grows").verdict == NOT_TESTABLE
    few = [s._replace(samples_ns=s.samples_ns[:3]) for s in forward(0, exponent=1.5)]
    assert of(verdicts(WIDE, few), "time grows").verdict == NOT_TESTABLE


def test_the_papers_form_is_naive_or_what_moves_most():
    series = forward(0)
    assert paper_form(series, "forward") == "naive"
    others = [s._replace(variant="rows") for s in series] + [s._replace(variant="a", moved=1) for s in series]
    assert paper_form(others, "forward") == "rows"
    assert paper_form((), "forward") is None


def fused(n, one, all_threads, base="pair"):
    """owners over a baseline at 1 and 8 threads."""
    pairs = ((1, one), (8, all_threads))
    return [
        *(made("fused", base, n, t, 1e9 / t) for t, _ in pairs),
        *(made("fused", "owners", n, t, ratio * 1e9 / t) for t, ratio in pairs),
    ]


@pytest.mark.parametrize(
    ("one", "wide", "expected"),
    [
        (1.19, 0.72, (REPRODUCED, REPRODUCED, REPRODUCED)),
        (0.5, 0.5, (REPRODUCED, NOT_REPRODUCED, NOT_REPRODUCED)),
        (1.0, 1.1, (NOT_REPRODUCED, REPRODUCED, NOT_REPRODUCED)),
    ],
)
def test_fusion(one, wide, expected):
    found = verdicts(NODE, fused(4096, one, wide))
    names = ("fused beats", "fused is at parity", "fusion pays")
    assert tuple(of(found, name).verdict for name in names) == expected


def test_fusion_is_judged_against_what_is_most_like_it():
    series = [*fused(4096, 1.0, 0.9), *(made("fused", "naive", 4096, t, 1e10) for t in (1, 8))]
    assert "owners / pair" in of(verdicts(NODE, series), "fused beats").ours


@pytest.mark.parametrize("n", [64, 2048])
def test_small_sizes_decide_nothing_on_fusion(n):
    found = of(verdicts(NODE, fused(n, 1.19, 0.72)), "fused beats")
    assert (found.verdict, "0.72" in found.ours) == (NOT_TESTABLE, True)
    assert "4096" in found.why


def plateau(stolen):
    """Half of the threads take n ns; all take half of that when quiet, and `stolen(n)` beside a neighbour."""
    times = {}
    for n in (1024, 8192, 65536, 1048576):
        times |= {(n, 4, False): n, (n, 8, False): n / 2, (n, 4, True): n, (n, 8, True): stolen(n)}
    return windows(times)


def test_a_plateau_on_one_numa_node_is_no_numa_effect():
    found = verdicts(NODE, seen=plateau(lambda n: 8e6 + n))
    assert of(found, "decode: all threads").verdict == REPRODUCED
    assert of(found, "decode: that is a plateau").verdict == REPRODUCED
    for words in ("decode: all threads", "decode: that is a plateau"):
        assert "no sign of NUMA" in of(found, words).why


def test_several_numa_nodes_leave_the_cause_open():
    found = verdicts(NODE._replace(numa_nodes=8), seen=plateau(lambda n: 8e6 + n))
    assert "does not tell the causes apart" in of(found, "decode: all threads").why


def test_threads_that_share_the_stolen_core_fairly_show_no_plateau():
    found = verdicts(NODE, seen=plateau(lambda n: 2.0 * n))
    assert of(found, "decode: all threads").verdict == NOT_REPRODUCED
    assert of(found, "decode: that is a plateau").verdict == NOT_TESTABLE


def test_a_penalty_that_stays_does_not_fade():
    found = verdicts(NODE, seen=plateau(lambda n: 20.0 * n))
    assert of(found, "decode: that is a plateau").verdict == NOT_REPRODUCED


def test_stalls_without_the_neighbour_leave_the_plateau_open():
    seen = [w._replace(mean_ns=w.mean_ns * 1000) if w.threads == 8 else w for w in plateau(lambda n: 8e6 + n)]
    found = verdicts(NODE, seen=seen)
    assert "was not quiet" in of(found, "decode: all threads").why
    assert of(found, "decode: that is a plateau").verdict == NOT_TESTABLE


def crowded(ratios, spread=0.0):
    """Twice as many threads as CPUs over as many, neither pinned."""
    return [
        made("decode", "split", n, t, 1e4 * (ratio if t == 16 else 1), pinned=False, spread=spread)
        for n, ratio in ratios.items()
        for t in (8, 16)
    ]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ({1024: 2.0, 16384: 0.7}, (REPRODUCED, REPRODUCED)),
        ({1024: 12.0, 16384: 1.5}, (NOT_REPRODUCED, NOT_REPRODUCED)),
        ({1024: 2.0}, (REPRODUCED, NOT_TESTABLE)),
        ({}, (NOT_TESTABLE, NOT_TESTABLE)),
    ],
)
def test_oversubscription(ratios, expected):
    found = verdicts(NODE, crowded(ratios))
    assert (of(found, "decode: twice").verdict, of(found, "decode: and pay").verdict) == expected


def test_noise_decides_nothing_on_oversubscription():
    base, wide = crowded({1024: 2.8}, spread=0.5)
    series = [base, wide._replace(samples_ns=wide.samples_ns[::-1][1:] + wide.samples_ns[:1])]
    assert of(verdicts(NODE, series), "decode: twice").verdict == NOT_TESTABLE


def test_few_rounds_decide_nothing_on_oversubscription():
    series = [s._replace(samples_ns=s.samples_ns[:3]) for s in crowded({16384: 12.0})]
    found = verdicts(NODE, series)
    assert {of(found, name).verdict for name in ("decode: twice", "decode: and pay")} == {NOT_TESTABLE}


def noisy(series):
    """Two of three rounds take a hundred times as long as the others, not the same ones of every series."""

    def spoilt(at, samples):
        factors = [0.1 if i % 3 == 0 else 10.0 for i in range(len(samples))]
        random.Random(at).shuffle(factors)
        return tuple(x * factor for x, factor in zip(samples, factors, strict=True))

    return [s._replace(samples_ns=spoilt(at, s.samples_ns)) for at, s in enumerate(series)]


@pytest.mark.parametrize("spoil", [noisy, lambda series: [s._replace(samples_ns=s.samples_ns[:3]) for s in series]])
@pytest.mark.parametrize(
    ("words", "series"),
    [
        ("best thread count", forward(400)),
        ("best thread count", forward(0)),
        ("all threads hurt", forward(400)),
        ("all threads hurt", forward(0)),
        ("time grows with n^2", forward(0)),
        ("all threads pay", forward(0)),
        ("fused beats", fused(4096, 1.19, 0.72)),
        ("fused is at parity", fused(4096, 1.1, 0.72)),
        ("fusion pays", fused(4096, 1.19, 0.72)),
        ("decode: twice", crowded({1024: 2.0})),
        ("decode: and pay", crowded({16384: 0.7})),
    ],
)
def test_noise_or_few_rounds_decide_nothing(words, series, spoil):
    node = WIDE if words.startswith(("best", "all", "time")) else NODE
    assert of(verdicts(node, series), words).verdict != NOT_TESTABLE
    assert of(verdicts(node, spoil(series)), words).verdict == NOT_TESTABLE


def test_the_stack():
    good = StackCheck("backward", "owners", 8, 8 << 20, "ok")
    bad = good._replace(variant="reduction", status="crashed", reason="killed by SIGSEGV")
    assert of(verdicts(NODE), "reductions").verdict == NOT_TESTABLE
    assert of(verdicts(NODE, stack=[good]), "reductions").verdict == NOT_REPRODUCED
    crashed = of(verdicts(NODE, stack=[good, bad]), "reductions")
    assert (crashed.verdict, crashed.why) == (REPRODUCED, "killed by SIGSEGV")
    late = of(verdicts(NODE, stack=[good, bad._replace(status="timeout")]), "reductions")
    assert (late.verdict, "timeout" in late.ours) == (NOT_TESTABLE, True)

"""Measuring with a fake executor and a fake clock: what is asked, in which order, what a budget or Ctrl-C leaves."""

from __future__ import annotations

import contextlib

import pytest
from fake import FakeClock, FakeExecutor, fake_machine

from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.compilers import Compiler
from advisor.records import Measurement
from advisor.search.request import Silent
from advisor.topology.placement import UNPINNED
from advisor.validate.floors import floor_problems
from advisor.validate.judge import PARTNERS
from advisor.validate.languages import Pair
from advisor.validate.measure import measure
from advisor.validate.plan import LEAST_ROUNDS, MOST_ROUNDS, Cell, cell_s, fitting
from advisor.validate.records import Node
from advisor.validate.report import document, report
from advisor.validate.request import KERNELS, Request, kernel_names, problems, teams, thread_list
from advisor.validate.show import shown
from advisor.validate.windows import spread_order, window_teams

MACHINE = fake_machine(cores=4)


def pair(c, fortran, runtime):
    """Two compilers of one runtime."""
    names = (c, "c"), (fortran, "fortran")
    return Pair(*(Compiler(name, f"/bin/{name}", f"{name} made up\nmore", of, runtime) for name, of in names))


PAIRS = (pair("gcc-12", "gfortran-12", "libgomp"), pair("clang-14", "flang-19", "libomp"))


class FakePool(FakeExecutor):
    """An executor with what the validation uses besides."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def prepare(self, problem, choices):
        """Nothing to compile."""

    def check(self, problem, choice, limit_s, draw="normal"):
        """Right, and not timed."""
        return Measurement(problem, choice, self.statuses(problem, choice), reason="as told")

    @contextlib.contextmanager
    def disturbed(self, cpu):
        """Calls with all CPUs take a thousand times as long."""
        quiet, self.times = self.times, lambda p, c: quiet(p, c) * (1000 if c.team.threads == 4 else 1)
        yield
        self.times = quiet


class Lab:
    """A clock, and the pools that a validation opened."""

    def __init__(self, times=None, statuses=None, interrupt_at=None, compilers=PAIRS):
        self.clock = FakeClock()
        self.pools = {}
        self.times = times or (lambda p, c: p.n**2 / c.team.threads)
        self.statuses = statuses or (lambda p, c: "ok")
        self.interrupt_at = interrupt_at
        self.compilers = compilers

    def open(self, machine, spec, variants):
        """A pool; the one of forward may be interrupted."""
        at = self.interrupt_at if spec.name == "forward" else None
        pool = FakePool(self.times, statuses=self.statuses, clock=self.clock, interrupt_at=at)
        self.pools[spec.name] = pool
        return pool

    def run(self, **asked):
        """Measured."""
        return self.measured(Request(**asked))

    def measured(self, request, busy=0.0):
        """Measured, on a machine so busy."""
        return measure(request, MACHINE, Silent(), self.open, self.clock, lambda: busy, lambda: self.compilers)


def test_with_time_enough_nothing_is_missing():
    lab = Lab()
    found = lab.run(sizes=(64, 128), budget_s=10_000)
    assert (found.missing, found.interrupted) == ((), False)
    kernels = {s.problem.kernel for s in found.series}
    assert kernels == {"forward", "backward", "fused", "decode", "block"}
    assert {s.problem.kernel for s in found.languages} >= {"decode", "rmsnorm", "mlp"}
    assert {s.threads for s in found.series if s.problem.kernel == "forward"} >= {1, 2, 4}
    assert all(len(s.samples_ns) == MOST_ROUNDS for s in found.series)
    assert {(f.threads, f.in_cache) for f in found.floors} == {(t, c) for t in (1, 4) for c in (True, False)}
    assert {w.beside for w in found.windows} == {True, False}
    assert {c.kernel for c in found.stack} == {"backward", "fused"}
    assert all(pool.closed for pool in lab.pools.values())


def test_dtypes_and_shape_are_the_papers():
    found = Lab().run(sizes=(64,), budget_s=10_000)
    shapes = {(s.problem.kernel, s.problem.dtype, s.item_bytes) for s in found.series}
    deep = ("forward", "backward", "fused", "block")
    assert shapes == {("decode", "float32", 4), *((kernel, "float64", 8) for kernel in deep)}
    assert {dict(s.problem.shape).get("d_ff") for s in found.series} == {None, 256}
    assert {dict(s.problem.shape)["batch"] for s in found.series} == {2}


def test_rounds_are_interleaved_and_shuffled():
    lab = Lab()
    found = lab.run(kernels=("forward",), sizes=(64,), budget_s=10_000)
    asked = [choice for _, choice, _ in lab.pools["forward"].asked]
    cells = len(found.series)
    rounds = [asked[i : i + cells] for i in range(0, len(asked), cells)]
    assert len(rounds) == MOST_ROUNDS
    assert all(set(one) == set(rounds[0]) for one in rounds), "each cell once a round"
    assert len({tuple(one) for one in rounds}) > 1, "not always in the same order"


def test_twice_the_cpus_are_tried_for_decode_alone_and_not_pinned():
    lab = Lab()
    lab.run(sizes=(64,), budget_s=10_000)
    crowded = {
        kernel
        for kernel, pool in lab.pools.items()
        for _, choice, _ in pool.asked
        if choice.team.threads == 8 and choice.team.placement == UNPINNED
    }
    assert crowded == {"decode"}


def test_a_budget_is_kept_and_what_it_leaves_out_is_named():
    lab = Lab(times=lambda p, c: 1e9 if p.n == 2048 else 1e6)
    begun = lab.clock()
    found = lab.run(kernels=("forward",), sizes=(64, 2048), budget_s=10)
    assert lab.clock() - begun < 12
    assert {s.problem.n for s in found.series} == {64}
    assert any("forward n=2048: no time" in words for words in found.missing)


class SlowPool(FakePool):
    """Compiling takes until it is stopped, and every call far longer than its flops let expect."""

    def prepare(self, problem, choices):
        self.clock.now = max(self.clock.now, min(self.until, self.clock.now + 100))

    def measure(self, problem, choice, ask):
        begun = self.clock.now
        found = super().measure(problem, choice, ask)
        self.clock.now = min(begun + self.seconds, begun + ask.limit_s)
        return found._replace(status="timeout", samples_ns=()) if self.seconds > ask.limit_s else found

    def check(self, problem, choice, limit_s, draw="normal"):
        self.clock.now += min(self.seconds, limit_s)
        found = super().check(problem, choice, limit_s, draw)
        return found._replace(status="timeout") if self.seconds > limit_s else found


@pytest.mark.parametrize("seconds", [0.3, 3.0, 1000.0])
@pytest.mark.parametrize("kernels", [("forward", "backward"), ("decode",), ("mlp",)])
def test_a_budget_is_kept_where_compilers_and_calls_take_longer_than_expected(kernels, seconds):
    lab = Lab()
    lab.open = lambda machine, spec, variants: SlowPool(lab.times, clock=lab.clock)
    SlowPool.seconds, begun = seconds, lab.clock()
    found = lab.run(kernels=kernels, sizes=(64, 128), budget_s=40)
    assert lab.clock() - begun <= 1.1 * 40
    assert any("no time" in words for words in found.missing)
    assert not [s for s in (*found.series, *found.languages, *found.stack) if s.status == "timeout"]


def test_what_is_left_goes_to_further_rounds_and_no_further():
    """A round here takes half a second of the fake clock; the sizes cost the same."""
    lab = Lab(times=lambda p, c: 4e7)
    found = lab.run(kernels=("forward",), sizes=(64, 65), budget_s=9)
    rounds = {s.problem.n: len(s.samples_ns) for s in found.series}
    assert LEAST_ROUNDS <= rounds[64] < MOST_ROUNDS
    assert rounds[65] >= LEAST_ROUNDS


def test_an_interrupt_keeps_whole_rounds():
    quiet = Lab()
    cells = len(quiet.run(kernels=("forward",), sizes=(64,), budget_s=10_000).series)
    found = Lab(interrupt_at=3 * cells + 1).run(kernels=("forward",), sizes=(64,), budget_s=10_000)
    assert found.interrupted
    assert {len(s.samples_ns) for s in found.series} == {3}
    assert "interrupted" in found.missing[-1]


def test_a_variant_that_fails_is_named_and_the_others_go_on():
    lab = Lab(statuses=lambda p, c: "wrong" if c.build.variant == "naive" and p.n == 128 else "ok")
    asked = Request(kernels=("forward",), sizes=(64, 128), budget_s=10_000)
    measured = lab.measured(asked)
    failed = [s for s in measured.series if s.status != "ok"]
    assert {(s.variant, s.problem.n, s.status, s.reason) for s in failed} == {("naive", 128, "wrong", "as told")}
    found = report(asked, measured)
    assert found.failed == tuple(failed)
    assert {g.variant for g in found.growth} == {"rows", "tiled"}


def test_other_kernels_than_decode_need_no_neighbour():
    found = Lab().run(kernels=("forward",), sizes=(64,), budget_s=10_000)
    assert (found.windows, found.stack) == ((), ())


def test_the_report_of_a_made_up_machine_reproduces_the_plateau():
    asked = Request(sizes=(64, 128), budget_s=10_000)
    lab = Lab()
    measured = lab.measured(asked)
    found = report(asked, measured)
    (stall,) = [f for f in found.findings if f.finding.startswith("decode: all threads")]
    assert stall.verdict == "reproduced"
    assert [g.exponent.value for g in found.growth] == pytest.approx([2.0] * len(found.growth))
    assert {one.ratio.value for one in found.languages} == {1.0}
    body = document(found, measured)
    assert body["schema"] == "advisor.validation/1.0"
    assert len(body["series"]) == len(measured.series) + len(measured.languages)


def test_tables_for_people():
    asked = Request(sizes=(64, 4096), budget_s=10_000)
    lab = Lab(statuses=lambda p, c: "crashed" if c.build.variant == "rows" else "ok")
    text = shown(report(asked, lab.measured(asked)))
    assert text.count("75.497 MB") == 2
    for title in ("Growth", "Threads", "Fused", "Predicted bytes", "Decode quiet", "Findings of the paper"):
        assert f"\n\n{title}" in text, title
    assert "by elements moved" in text
    assert "0.72" in text, "the paper's figure"
    assert "failed: forward rows n=64 1T: as told" in text


def test_a_busy_machine_is_told():
    asked = Request(kernels=("forward",), sizes=(64,), budget_s=10_000)
    assert "87 % busy" in shown(report(asked, Lab().measured(asked, busy=87.0)))
    assert "busy before" not in shown(report(asked, Lab().measured(asked, busy=3.0)))


def test_a_report_of_nothing_still_has_the_findings():
    asked = Request(kernels=("forward",), sizes=(64,), budget_s=1e-9)
    lab = Lab()
    text = shown(report(asked, lab.measured(asked)))
    assert "Findings of the paper" in text
    assert "Growth" not in text


# --- C beside Fortran ---


def fortran_is(factor):
    """Times of calls where Fortran takes so many times as long, and flang as long again."""
    slower = {"gfortran-12": factor, "flang-19": 2 * factor}
    return lambda p, c: 1e6 * p.n * slower.get(c.build.compiler, 1.0) / c.team.threads


def test_each_fortran_variant_races_the_c_variant_that_it_mirrors_with_compilers_of_one_runtime():
    asked = Request(kernels=("decode", "rmsnorm", "mlp"), sizes=(64, 128, 256), budget_s=100_000)
    lab = Lab(times=fortran_is(1.25))
    measured = lab.measured(asked)
    found = report(asked, measured)
    assert measured.missing == ()
    assert dict(found.compilers)["flang-19"] == "flang-19 made up"
    pairs = {(one.kernel, one.variant, one.compiler, one.fortran_compiler) for one in found.languages}
    mirrored = {"decode": "split", "rmsnorm": "one_pass", "mlp": "naive"}
    both = (("gcc-12", "gfortran-12"), ("clang-14", "flang-19"))
    assert pairs == {(kernel, name, *pair) for kernel, name in mirrored.items() for pair in both}
    ratios = {(one.fortran_compiler, one.threads): one.ratio for one in found.languages if one.kernel == "mlp"}
    assert ratios["gfortran-12", 1].value == pytest.approx(0.8)
    assert ratios["flang-19", 4].value == pytest.approx(0.4)
    assert ratios["gfortran-12", 1].low is not None
    faster, none = (f for f in found.findings if "Fortran on CPUs" in f.finding or "RMSNorm" in f.finding)
    assert (faster.verdict, none.verdict) == ("reproduced", "not reproduced")
    text = shown(found)
    assert "gcc-12 / gfortran-12" in text
    assert "0.54 to 0.84" in text
    assert " gfortran-12: gfortran-12 made up" in text


def test_grouped_queries_are_compared_with_the_grouped_variant():
    asked = Request(kernels=("decode",), sizes=(64,), shape=(("heads", 4), ("kv_heads", 2)), budget_s=10_000)
    found = report(asked, Lab().measured(asked))
    assert {one.variant for one in found.languages} == {"grouped"}


def test_languages_race_interleaved_and_apart_from_other_variants():
    lab = Lab()
    measured = lab.run(kernels=("mlp",), sizes=(64,), budget_s=10_000)
    asked = [choice for _, choice, _ in lab.pools["mlp"].asked]
    assert len(measured.languages) == 8, "two languages, two pairs, one thread and all"
    assert measured.series == ()
    rounds = [asked[i : i + 8] for i in range(0, len(asked), 8)]
    assert len(rounds) == MOST_ROUNDS
    assert all(set(one) == set(rounds[0]) for one in rounds)


def test_without_a_fortran_compiler_that_is_missing_and_the_rest_is_measured():
    asked = Request(kernels=("forward", "mlp"), sizes=(64,), budget_s=10_000)
    measured = Lab(compilers=()).measured(asked)
    assert [words for words in measured.missing if "gfortran" in words and "mlp" in words]
    assert measured.series
    assert not measured.languages
    (one,) = [f for f in report(asked, measured).findings if "(MLP)" in f.finding]
    assert one.verdict == "not testable here"
    assert "no Fortran compiler" in one.why


def test_the_compilers_here_are_pairs_of_one_runtime():
    from advisor.validate.languages import compiler_pairs, versions

    found = compiler_pairs()
    assert {(one.c.language, one.fortran.language) for one in found} <= {("c", "fortran")}
    assert all(one.c.runtime == one.fortran.runtime for one in found)
    families = {tuple(tool.name.partition("-")[0] for tool in (one.fortran, one.c)) for one in found}
    assert families <= set(PARTNERS.items())
    assert set(dict(versions(found))) == {tool.name for one in found for tool in one}


# --- the block ---


def test_the_block_is_measured_with_one_thread_and_all_and_its_paper_bytes_stand_beside():
    jump = {64: 1.0, 2048: 1e3, 4096: 12.5e3}
    asked = Request(kernels=("block",), sizes=(64, 2048, 4096), budget_s=100_000)
    measured = Lab(times=lambda p, c: jump.get(p.n, 1.0) * 1e6 / c.team.threads).measured(asked)
    assert {s.threads for s in measured.series} == {1, 4}
    found = report(asked, measured)
    verdicts = {f.finding: f for f in found.findings}
    assert verdicts["block: time jumps at n=4096 (1 thread)"].verdict == "reproduced"
    assert "chain_naive: 12.50" in verdicts["block: time jumps at n=4096 (1 thread)"].ours
    assert verdicts["block: all threads cost little"].verdict == "reproduced"
    assert {one.n: one.predicted_bytes for one in found.predicted}[4096] == 8 * 2 * 4096 * (24 * 64 + 4 * 256)
    assert "paper: M_block" in shown(found)
    assert {f.ours for f in found.formulas} == {75_497_472, 10_485_760}


def test_thread_counts_that_are_named_are_the_blocks_too():
    found = Lab().run(kernels=("block",), sizes=(64,), threads=(1, 2, 4), budget_s=10_000)
    assert {s.threads for s in found.series} == {1, 2, 4}


def test_what_the_block_has_no_time_for_is_estimated_first_and_named():
    lab = Lab(times=lambda p, c: 1e3 * p.n**2 if p.kernel == "block" else 1e3)
    begun = lab.clock()
    found = lab.run(kernels=("block",), sizes=(64, 1024, 4096), budget_s=30)
    assert lab.clock() - begun < 33
    assert 64 in {s.problem.n for s in found.series}
    assert 4096 not in {s.problem.n for s in found.series}
    assert any("block n=4096: no time" in words for words in found.missing)


def test_a_part_of_the_shape_that_no_kernel_has_is_refused():
    with pytest.raises(BadInput, match="d_ff=64"):
        Lab().run(kernels=("forward",), sizes=(64,), shape=(("d_ff", 64),))


def test_a_dtype_in_which_no_variant_is_here_is_refused():
    with pytest.raises(BadInput, match="forward must have a variant in the dtype for CPUs; got 'float16'"):
        Lab().run(kernels=("forward", "backward"), sizes=(64,), dtype="float16")


# --- plan and request ---


def test_cheap_cells_come_first_and_few_of_them_are_none():
    cells = [Cell(None, index) for index in range(4)]
    costs = dict(zip(cells, (4.0, 1.0, 2.0, 3.0), strict=True))
    assert fitting(costs, 100.0) == tuple(cells)
    assert fitting(costs, 6.0) == tuple(cells[1:])
    assert fitting(costs, 3.0) == (cells[1], cells[2])
    assert fitting(costs, 2.9) == (), "one alone compares with nothing"


def test_a_cell_costs_its_calls_and_its_turns():
    assert cell_s(0.0, 0.1, LEAST_ROUNDS) == pytest.approx(0.6)
    assert cell_s(1e9, 0.0, 1) == pytest.approx(4.0)


def test_windows_are_at_the_ends_first():
    assert spread_order((1, 2, 4, 8, 16)) == (1, 16, 4, 2, 8)
    assert spread_order((1,)) == (1,)
    assert spread_order(()) == ()


def test_window_teams_are_half_all_but_one_and_all():
    found = window_teams(MACHINE)
    assert [team.threads for team in found] == [2, 3, 4, 4]
    assert [team.placement == UNPINNED for team in found] == [False, False, False, True]
    assert len(window_teams(fake_machine(cores=1))) == 1


def test_the_floor_is_read_from_the_cache_and_from_memory():
    from advisor.kernels import registry
    from advisor.validate.floors import FOLDER

    spec = registry.spec("read", [FOLDER])
    small, large = floor_problems(spec, Node("a", 4, 1, 8 << 20, None))
    assert 4 * spec.elements(small).read == 2 << 20
    assert 4 * spec.elements(large).read == 32 << 20


def test_kernels_are_named_in_the_papers_order():
    assert kernel_names("decode, forward") == ("forward", "decode")
    assert kernel_names("all") == tuple(name for name in KERNELS if name in registry.kernels())
    assert kernel_names("block,mlp") == ("mlp", "block")
    for text in ("", "scale", "forward,scale"):
        with pytest.raises(UnknownName, match="forward, backward"):
            kernel_names(text)


def test_thread_counts():
    assert thread_list("4, 1,1") == (1, 4)
    for text in ("", "0", "a", "1,-1", "1.5", "9" * 30):
        with pytest.raises(BadInput, match="whole numbers"):
            thread_list(text)
    assert teams(MACHINE, (1, 8)) == (1, 8)
    with pytest.raises(BadInput, match="1 to 8"):
        teams(MACHINE, (9,))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Request(sizes=(1 << 40,)), "memory"),
        (Request(dtype="int8"), "dtype"),
        (Request(shape=(("batch", 0),)), "batch"),
        (Request(shape=(("heads", 3), ("kv_heads", 2))), "multiple"),
    ],
)
def test_what_makes_no_sense_is_refused(asked, words):
    with pytest.raises(BadInput, match=words):
        problems(asked, "forward")

"""How a signature is put together, with an executor that takes no time."""

from __future__ import annotations

import itertools

import jsonschema
import pytest
from fake import fake_machine

from advisor import codec
from advisor.kernels.compilers import Compiler
from advisor.records import Measurement, pairs
from advisor.search.others import Stat, stat
from advisor.search.space import teams
from advisor.signature import measure
from advisor.signature.keep import signature_of, with_earlier, with_signature
from advisor.signature.quiet import judge
from advisor.signature.records import Quiet
from advisor.signature.show import shown
from advisor.topology.probe import machine_json


class Steps:
    """A progress that keeps what it was told."""

    def __init__(self):
        self.told = []

    def stage(self, name, total):
        self.told.append((name, total))

    def advance(self, text):
        self.told.append(text)

    def seconds_left(self, seconds):
        pass


class Pool:
    """Flat arithmetic, bandwidth that saturates at two threads, a region that costs 1 us a thread."""

    def __init__(self, machine, spec, known, broken=()):
        self.spec, self.closed, self.asked, self.broken = spec, False, [], broken

    def measure(self, problem, choice, ask):
        self.asked.append((problem, choice, ask))
        if choice.team.threads in self.broken:
            return Measurement(problem, choice, "skipped", reason="refused")
        threads, knobs = choice.team.threads, dict(choice.build.knobs)
        ns = {
            "fork_join": 1000.0 * threads * (10 if choice.process.wait_policy == "passive" else 1),
            "peak": self.spec.flops(problem) / (50.0 * threads) * (2 if knobs.get("ADV_V") == 32 else 1),
            "read": 4 * self.spec.elements(problem).read / (10.0 * min(2, threads)) + knobs.get("order", 0),
        }[problem.kernel]
        jitter = itertools.cycle((1.0, 1.02, 1.04))
        samples = tuple(ns * next(jitter) for _ in range(ask.samples))
        return Measurement(problem, choice, "ok", samples, conditions=pairs({"rejected": 1, "kept_noisy": 0}))

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    monkeypatch.setattr(measure, "c_compiler", lambda: Compiler("gcc-12", "/usr/bin/gcc", "12.2", "c", "libgomp"))


def taken(machine, pools=None, **options):
    def opened(*arguments):
        pool = Pool(*arguments, **options)
        (pools if pools is not None else []).append(pool)
        return pool

    steps = Steps()
    return measure.signature(machine, steps, opened), steps


MACHINE = fake_machine(sockets=2, numa=2, cores=4, smt=2)


def test_every_team_of_the_search_has_its_figures():
    pools = []
    found, _ = taken(MACHINE, pools)
    crowd = {(team.threads, team.placement) for team in teams(MACHINE)}
    assert {(one.threads, one.placement) for one in found.read if one.level == "memory"} == crowd
    assert {(one.threads, one.placement) for one in found.fork_join} == crowd
    waits = {one.wait_policy for one in found.fork_join if one.threads > 1}
    assert waits == {"default", "passive"}
    assert {one.wait_policy for one in found.fork_join if one.threads == 1} == {"default"}
    assert [one.threads for one in found.peak if one.dtype == "float32"] == [1, 16, 32]
    assert (found.missing, found.compiler) == ((), "gcc-12")
    assert all(pool.closed for pool in pools)


def test_rates_are_those_of_the_25th_percentile_with_their_interval():
    found, _ = taken(MACHINE)
    for one in (*found.read, *found.peak):
        low, high = one.gb_per_s_ci95 if hasattr(one, "bytes") else one.gflops_ci95
        rate = one.gb_per_s if hasattr(one, "bytes") else one.gflops
        assert low <= rate <= high
    assert {round(one.gflops / one.threads) for one in found.peak} == {50}
    assert {dict(one.knobs)["ADV_V"] for one in found.peak} == {64}
    assert {(min(2, one.threads), round(one.gb_per_s)) for one in found.read} == {(1, 10), (2, 20)}
    assert {one.order for one in found.read} == {0}


def test_the_most_telling_teams_come_first():
    counts = [team.threads for team in measure.ordered(MACHINE)]
    assert counts[0] == 1
    assert counts[1] == 32
    assert set(counts[2:4]) <= {2, 4, 8}


def test_what_there_is_no_time_for_is_said(monkeypatch):
    monkeypatch.setattr(measure, "LIMIT_S", 0.0)
    found, _ = taken(MACHINE)
    assert (found.read, found.fork_join, found.peak) == ((), (), ())
    assert any("fork_join: no time for" in words for words in found.missing)
    assert "missing" in shown(found)


def test_what_failed_is_said_and_the_rest_goes_on():
    found, _ = taken(MACHINE, broken=(16,))
    assert any("16 threads" in words and "refused" in words for words in found.missing)
    assert 16 not in {one.threads for one in found.read}
    assert 8 in {one.threads for one in found.read}


def test_a_machine_without_l3_is_read_from_memory_alone():
    machine = MACHINE._replace(caches=MACHINE.caches._replace(l3=None), l3_groups=())
    assert {one.level for one in taken(machine)[0].read} == {"memory"}


def test_memory_is_read_beyond_the_caches_and_within_the_room(monkeypatch):
    spec = measure.registry.spec("read", measure.FOLDERS)
    sizes = {level: 4 * spec.elements(p).read for level, p in measure.read_problems(spec, MACHINE)}
    reached = len(MACHINE.l3_groups)
    assert sizes["memory"] in (4 * reached * MACHINE.caches.l3, measure.READ_BYTES) or sizes["memory"] < 1 << 30
    assert sizes["l3"] == MACHINE.caches.l3 // 2
    monkeypatch.setattr(measure, "room_bytes", lambda: 1 << 28)
    small = dict(measure.read_problems(spec, MACHINE))["memory"]
    assert measure.need_bytes(spec, small, 2) < 1 << 27


def test_progress_is_told_of_stages_and_steps():
    _, steps = taken(MACHINE)
    assert [one[0] for one in steps.told if isinstance(one, tuple)] == [
        *("fork and join", "read from memory", "read from l3", "flop rate")
    ]
    assert any(isinstance(one, str) and "threads" in one for one in steps.told)


# --- in machine.json ---


def test_a_signature_is_part_of_machine_json_and_read_back(tmp_path):
    found, _ = taken(MACHINE)
    machine = with_signature(MACHINE, found)
    assert signature_of(codec.from_json(type(machine), codec.loads(machine_json(machine)))) == found
    assert signature_of(MACHINE) is None


def test_a_later_probe_keeps_it_only_on_the_very_same_machine(tmp_path):
    found, _ = taken(MACHINE)
    path = tmp_path / "machine.json"
    path.write_text(machine_json(with_signature(MACHINE, found)))
    assert signature_of(with_earlier(MACHINE, str(path))) == found
    assert signature_of(with_earlier(MACHINE._replace(limits_id="other"), str(path))) is None
    newer = with_signature(MACHINE, found._replace(seconds=1.5))
    assert signature_of(with_earlier(newer, str(path))).seconds == 1.5


@pytest.mark.parametrize("text", [None, "", "{}", '{"schema": "advisor.machine/9.0"}'])
def test_an_earlier_file_that_cannot_be_read_is_no_matter(tmp_path, text):
    path = tmp_path / "machine.json"
    if text is not None:
        path.write_text(text)
    assert with_earlier(MACHINE, str(path)) == MACHINE


def test_it_satisfies_the_schema(machine_schema):
    document = codec.loads(machine_json(with_signature(MACHINE, taken(MACHINE)[0])))
    machine_schema.validate(document)
    document["signature"]["read"][0]["gb_per_s"] = "fast"
    with pytest.raises(jsonschema.ValidationError):
        machine_schema.validate(document)


def test_people_see_every_figure():
    found, _ = taken(MACHINE)
    text = shown(found)
    assert text.count("GB/s") == len(found.read)
    assert text.count("Gflop/s") == len(found.peak)
    assert "passive" in text


# --- was it quiet ---


def measurements(kept, rejected=0, noisy=0):
    conditions = pairs({"rejected": rejected, "kept_noisy": noisy})
    return [Measurement(None, None, "ok", (1.0,) * kept, conditions=conditions)]


@pytest.mark.parametrize(
    ("after", "measured", "quiet", "word"),
    [
        (Stat(12, 0, 20, 12), measurements(10), True, ""),
        (Stat(12, 0.5, 20, 12), measurements(10), False, "stolen"),
        (Stat(14, 0, 20, 12), measurements(10), False, "other processes"),
        (Stat(12, 0, 20, 12), measurements(8, rejected=2), False, "waited for a CPU"),
        (Stat(12, 0, 20, 12), measurements(8, noisy=2), False, "waited for a CPU"),
    ],
)
def test_quiet(after, measured, quiet, word):
    found = judge(Stat(10, 0, 0, 10), after, measured, 0.5)
    assert found.quiet is quiet
    assert all(word in reason for reason in found.reasons)
    assert len(found.reasons) == (not quiet)


def test_what_is_not_told_is_unknown_and_no_reason():
    assert judge(None, None, (), None) == Quiet(True, None, None, 0.0, None, ())


def test_counters_of_a_fake_proc(tmp_path):
    assert stat(str(tmp_path)) is None
    (tmp_path / "proc").mkdir()
    for text in ("", "cpu  1 2\n", "cpu x\n"):
        (tmp_path / "proc/stat").write_text(text)
        assert stat(str(tmp_path)) is None
    (tmp_path / "proc/stat").write_text("cpu  100 0 100 700 50 0 50 100 7 0\ncpu0 1\n")
    found = stat(str(tmp_path))
    assert found.busy / found.total == pytest.approx(250 / 1100)
    assert found.stolen / found.total == pytest.approx(100 / 1100)


def test_the_counters_at_hand_go_forward():
    first = stat()
    if first is None:
        pytest.skip("no /proc/stat here")
    assert stat().total >= first.total

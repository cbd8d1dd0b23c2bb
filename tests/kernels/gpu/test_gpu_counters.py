"""Counting with programs that stand for ncu: figures where it works, and where it does not, why and what would help."""

import json
import os
import signal
import subprocess
import sys
import time

import fake_ncu
import pytest
from gpu_fixtures import DECODE, H200

from advisor.codec import from_json, to_json
from advisor.errors import BadInput
from advisor.kernels import registry
from advisor.kernels.gpu import counters, counts, ncu, profiled
from advisor.kernels.gpu.counted import START as START_NAME
from advisor.kernels.gpu.counts import Counters, Kernel, NoCounters
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.messages import Reply
from advisor.kernels.variant import variants

VARIANTS = variants("decode", (), GPU_LANGUAGES)
GROUPED = {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}
TOOLS = (("cupy-14.2", "cuda"), ("triton-3.6", "triton"))


def wanted(name, n=4096, regime="cold"):
    """A choice at its variant's defaults, with its problem."""
    problem = DECODE.problem(n, "float16", regime, **GROUPED)
    variant = next(v for v in VARIANTS if v.name == name)
    choices = gpu_space(H200, DECODE, (variant,), problem, TOOLS)
    return problem, next((c for c in choices if c.build.knobs == variant.defaults), choices[0])


MMA = wanted("batched_mma")
OK, LOST = {"status": "ok"}, {"status": "crashed", "reason": "illegal address", "sound": False}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a program named ncu on PATH, and nothing else; gives what it was called with."""
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nonexistent")
    profiled.tool.cache_clear()

    def put(body):
        folder, calls = fake_ncu.install(tmp_path / "bin", body)
        monkeypatch.setenv("PATH", folder)

        def called():
            every = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
            return [words for words in every if words != ["--version"]]

        return called

    return put


def count(one=MMA, limit_s=30.0):
    """The outcome for one choice."""
    variant = next(v for v in VARIANTS if v.name == one[1].build.variant)
    return counters.count(H200, DECODE, variant, *one, limit_s)


# --- where it works ---


def test_a_choice_is_counted(fake):
    called = fake(f"say({fake_ncu.recorded('decode_cuda', 1)!r}); ran()")
    found = count()
    assert isinstance(found, Counters), found
    assert (found.calls, found.caches, found.tool, found.passes) == (3, "flushed", "ncu 2025.3.1.0", 1)
    assert found.kernels == (found.call,)
    assert found.call.name == "decode_batched_mma"
    assert (found.call.duration_ns, found.call.l2_read_sectors) == (15264.0, 579560.0)  # medians of three
    (words,) = called()
    assert sys.executable in words


def test_kernels_of_a_call_are_summed_but_not_their_occupancies(fake):
    fake(f"say({fake_ncu.recorded('decode_triton', 2)!r}); ran()")
    found = count(wanted("batched_triton"))
    assert isinstance(found, Counters), found
    part, merge = found.kernels
    assert (part.name, merge.name, found.call.name) == ("_part", "_merge", "_part + _merge")
    for field in counts.SUMMED:
        assert getattr(found.call, field) == getattr(part, field) + getattr(merge, field)
    assert found.call.theoretical_occupancy == part.theoretical_occupancy < merge.theoretical_occupancy


def test_choices_of_one_regime_are_counted_by_one_program_and_each_gets_its_own(fake):
    called = fake(f"say({fake_ncu.recorded('decode_cuda', 1, choices=2)!r}); ran()")
    asked = [MMA, wanted("split_w4")]
    found = counters.count_all(H200, DECODE, VARIANTS, [*asked, MMA])
    assert [one.call.name for one in found] == ["decode_batched_mma", "decode_split_w4", "decode_batched_mma"]
    assert len(called()) == 1


def test_each_regime_has_its_own_program(fake):
    called = fake(f"say({fake_ncu.recorded('decode_cuda', 1)!r}); ran()")
    found = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("batched_mma", regime="warm")])
    assert [one.caches for one in found] == ["flushed", "kept"]
    assert [words[words.index("--cache-control") + 1] for words in called()] == ["all", "none"]


def test_counted_traffic_lies_near_what_is_predicted(fake):
    """Bytes of DRAM beside the DNF's, sectors beside the variant's own, atomics beside its header's."""
    fake(f"say({fake_ncu.recorded('decode_cuda', 1, choices=2)!r}); ran()")
    for one in (MMA, wanted("split_w4")):
        variant = next(v for v in VARIANTS if v.name == one[1].build.variant)
        found = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("split_w4")])[one is not MMA].call
        said = counts.predicted(DECODE, variant, *one)
        assert said.dram_read_bytes <= found.dram_read_bytes <= 1.01 * said.dram_read_bytes
        assert 0.8 <= found.l2_read_sectors / said.l2_read_sectors <= 1.2
        assert found.l2_atomic_sectors + found.global_reductions == said.atomics


@pytest.mark.parametrize("name", ["batched_mma", "batched_triton"])
def test_a_prediction_may_speak_of_all_that_a_launch_may(name):
    problem, choice = wanted(name)
    variant = next(v for v in VARIANTS if v.name == name)
    sized = variant._replace(reads="n * item_bytes", writes="heads * real_bytes", atomics="item_bytes")
    said = counts.predicted(DECODE, sized, problem, choice)
    assert said.l2_read_sectors == 4096 * 2 * 2 / 32
    assert said.l2_written_sectors == 40 * 4 * 2 / 32
    assert said.atomics == 2


def test_the_worker_sees_its_device_alone_and_locks_lie_in_a_folder_of_ones_own(fake, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/tmp")
    keys = "{key: os.environ.get(key) for key in ('CUDA_VISIBLE_DEVICES', 'TMPDIR', 'CUPY_CACHE_DIR')}"
    fake(f"say('==ERROR== ' + json.dumps({keys}))")
    found = count()
    told = json.loads(found.reason[found.reason.index("{") :])
    assert told["CUDA_VISIBLE_DEVICES"] == H200.uuid
    assert told["TMPDIR"].endswith("gpu/ncu")
    assert os.stat(told["TMPDIR"]).st_mode & 0o777 == 0o700
    assert told["CUPY_CACHE_DIR"]


def test_choices_of_several_kernels_are_counted_by_one_program(fake, tmp_path):
    """Each after a line that names its kernel, in the order they are wanted."""
    spec, known = registry.spec("forward"), variants("forward", (), ("cuda",))
    problem = spec.problem(64, "float32", "cold")
    (choice,) = gpu_space(H200, spec, [v for v in known if v.name == "packed"], problem, TOOLS[:1])[:1]
    kept = tmp_path / "told"
    page = fake_ncu.recorded("decode_cuda", 1, choices=2)
    called = fake(f"open({str(kept)!r}, 'w').write(chr(10).join(told)); say({page!r}); ran()")
    sources = (counters.Source(DECODE, VARIANTS), counters.Source(spec, known))
    came = counters.count_kernels(H200, sources, [(problem, choice), MMA, wanted("split_w4")])
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["hello", "trial", "hello", "trial", "trial"]
    assert [os.path.basename(os.path.dirname(line["hello"]["spec_path"])) for line in lines if "hello" in line] == [
        "forward",
        "decode",
    ]
    assert [type(one) for one in came.each] == [Counters, Counters, NoCounters]  # of the third there is nothing
    assert len(called()) == 1


def test_what_a_start_takes_is_measured(fake):
    """By clocks of both sides: from before ncu to the first launch, from the last step to ncu's end."""
    now = "time.monotonic()"
    fake(f"say({fake_ncu.recorded('decode_cuda', 1)!r}); time.sleep(.2); times({now}, {now}); time.sleep(.1); ran()")
    came = counters.count_kernels(H200, (counters.Source(DECODE, VARIANTS),), [MMA])
    (start,) = came.starts
    assert (start.tool, start.choices) == ("ncu 2025.3.1.0", 1)
    assert start.start_s >= 0.2
    assert start.end_s >= 0.1
    assert start.cost_s == start.start_s + start.end_s


def test_the_program_is_told_to_end_before_ncu_is_killed(fake):
    fake("say('==ERROR== left ' + repr(until - time.monotonic()))")
    found = count(limit_s=20.0)
    left = float(found.reason.split("left ")[1])
    assert 20.0 - profiled.END_SHARE * 20.0 - 3.0 < left < 20.0 - profiled.END_SHARE * 20.0


def test_what_was_counted_in_time_is_kept_and_the_rest_says_what_the_start_took(fake):
    page = fake_ncu.recorded("decode_cuda", 1)
    fake(f"times(time.monotonic() + 12.0, 0.0); say({page!r}); ran([{{'reply': {OK!r}}}])")
    first, second = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("split_w4")], 20.0)
    assert isinstance(first, Counters), first
    assert "no time was left within 20 s, 12." in second.reason
    assert "s of which ncu took to start" in second.reason
    assert (second.remedy, second.everywhere) == (counters.MORE_TIME, False)


def test_a_start_that_leaves_no_time_for_anything_says_so(fake):
    fake("times(time.monotonic() + 12.0, 0.0); say('==PROF== Disconnected' + chr(10)); ran([])")
    found = count(limit_s=20.0)
    assert "of which ncu took to start" in found.reason
    assert found.remedy == counters.MORE_TIME


# --- an attempt ---


def started(*names):
    """A page whose rows are launches of these."""
    head, units, row = fake_ncu.recorded("decode_cuda", 1, marked=False).splitlines()[-5:-2]
    cells = row.strip('"').split('","')
    rows = ['"' + '","'.join([*cells[:4], name, *cells[5:]]) + '"' for name in names]
    return "\n".join([head, units, *rows, ""])


def test_an_attempt_counts_a_launch_of_nothing_and_says_what_a_start_takes(fake, tmp_path):
    kept = tmp_path / "told"
    page = started(START_NAME)
    fake(f"open({str(kept)!r}, 'w').write(chr(10).join(told)); times(time.monotonic() + 3, 0.0); say({page!r}); ran()")
    found = counters.attempt(H200)
    assert isinstance(found, profiled.Start), found
    assert 3.0 <= found.start_s < 10.0
    (hello,) = [json.loads(line) for line in kept.read_text().splitlines()]
    assert hello["hello"]["spec_path"] == "", "no kernel is loaded for it"
    assert hello["hello"]["uuid"] == H200.uuid


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"say({fake_ncu.PERMISSION!r} + chr(10)); sys.exit(1)", "administrators"),
        (f"times(1.0, 2.0); say({fake_ncu.HELD!r} + chr(10))", "DCGM"),
        ("times(1.0, 2.0)", "raw page"),
        ("sys.exit(3)", "exit status 3"),
        ("times(1.0, 2.0); say(PAGE)", "n/a"),
        ("time.sleep(600)", "ended after 1 s before its first launch"),
    ],
)
def test_an_attempt_that_fails_says_why(fake, body, words):
    fake(body.replace("PAGE", repr(started("other"))))
    found = counters.attempt(H200, 1.0 if "sleep" in body else 30.0)
    assert isinstance(found, NoCounters), found
    assert words in found.reason


def test_an_attempt_without_ncu_says_so(fake):
    assert counters.attempt(H200) == counters.NO_NCU


# --- where it does not ---


def test_without_ncu_there_are_no_counters_and_the_remedy_says_so(fake):
    found = count()
    assert isinstance(found, NoCounters)
    assert "not installed" in found.reason
    assert found.remedy
    assert found.everywhere


def test_without_permission_the_host_side_remedy_is_told_and_nothing_is_tried_twice(fake):
    called = fake(f"say({fake_ncu.PERMISSION!r} + chr(10)); ran(); sys.exit(1)")
    cold, warm = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("batched_mma", regime="warm")])
    assert isinstance(cold, NoCounters)
    assert "ERR_NVGPUCTRPERM" in cold.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in cold.remedy
    assert "--cap-add SYS_ADMIN" in cold.remedy
    assert warm == cold
    assert len(called()) == 1


def test_the_permission_code_on_standard_output_is_seen_too(fake):
    fake(f"print({fake_ncu.PERMISSION!r}); sys.exit(1)")
    assert "ERR_NVGPUCTRPERM" in count().reason


@pytest.fixture
def agent():
    """A monitoring process that is up."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as running:
        yield running
        running.kill()


def test_an_agent_that_holds_the_counters_is_named_and_left_alone(fake, agent):
    """As long as it is there; afterwards they can be had."""
    page = fake_ncu.recorded("decode_cuda", 1)
    up = f"open('/proc/{agent.pid}/stat').read().rpartition(')')[2].split()[0] != 'Z'"
    fake(f"ran()\nif {up}:\n    say({fake_ncu.HELD!r} + chr(10)); sys.exit(9)\nsay({page!r})")
    found = count()
    assert isinstance(found, NoCounters)
    assert "DCGM" in found.reason
    assert "dcgmi profiling --pause" in found.remedy
    assert agent.poll() is None
    agent.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
    assert isinstance(count(), Counters)


def test_one_that_hangs_is_ended_with_all_that_it_started(fake, tmp_path):
    pid = tmp_path / "pid"
    sleeper = "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    fake(f"{sleeper}; open({str(pid)!r}, 'w').write(str(child.pid)); time.sleep(600)")
    found = count(limit_s=2.0)
    assert isinstance(found, NoCounters)
    assert "ended after 2 s" in found.reason
    assert found.everywhere
    until = time.monotonic() + 10
    while _runs(int(pid.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(int(pid.read_text()))


@pytest.mark.parametrize(("limit_s", "words"), [(counters.LIMIT_S, "another profiler"), (20.0, "larger --budget")])
def test_the_remedy_of_a_timeout_is_time_where_the_budget_set_the_limit(limit_s, words):
    (found,) = counters.judged(counters.Ran(124, "", (), limit_s), 1)
    assert words in found.remedy


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


CUT = fake_ncu.recorded("decode_cuda", 1)

UNREADABLE = {
    "garbage": ("say('%PDF-1.4 ' + chr(7) * 100 + chr(10))", "raw page"),
    "nothing": ("pass", "raw page"),
    "cut in a line": (f"say({CUT[:-700]!r})", "whole line"),
    "cut after a line": (f"say({CUT[: CUT.rindex(chr(10), 0, -1) + 1]!r})", "3 calls"),
    "cut after two calls": (f"say({''.join(CUT.splitlines(keepends=True)[:-2])!r})", "3 calls"),
    "no marks": (f"say({fake_ncu.recorded('decode_cuda', 1, marked=False)!r})", "mark of their call"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_gives_no_figures(fake, case):
    body, words = UNREADABLE[case]
    fake(f"{body}; ran()")
    found = count()
    assert isinstance(found, NoCounters), found
    assert words in found.reason
    assert not found.everywhere


def test_a_page_without_any_value_gives_no_figures(fake):
    page = fake_ncu.recorded("decode_cuda", 1)
    for metric in ncu.METRICS:
        page = page.replace(metric.name, f"gone_{metric.field}")
    fake(f"say({page!r}); ran()")
    assert "n/a" in count().reason


def test_ncu_that_never_ran_the_choice_is_told_with_its_own_words(fake):
    fake("say('==ERROR== The application terminated before any instrumented call' + chr(10)); sys.exit(1)")
    found = count()
    assert "exit status 1" in found.reason
    assert "terminated before" in found.reason
    fake("os.kill(os.getpid(), 9)")
    assert "exit status -9" in count().reason


def test_a_choice_that_does_not_run_says_why_and_the_next_one_is_counted(fake):
    replies = [{"reply": {"status": "skipped", "reason": "out of device memory"}}, {"reply": {"status": "ok"}}]
    page = fake_ncu.recorded("decode_cuda", 1, choices=2)
    page = "".join(line for line in page.splitlines(keepends=True) if "mma" not in line and '"(1, 1, 1)"' not in line)
    fake(f"say({page!r}); ran({replies!r})")
    first, second = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("split_w4")])
    assert "out of device memory" in first.reason
    assert isinstance(second, Counters), second


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [(OK, 0, "no time was left"), (OK, 137, "ended early (exit status 137)"), (LOST, 0, "illegal address")],
)
def test_choices_that_were_not_begun_say_why(fake, reply, status, words):
    page = fake_ncu.recorded("decode_cuda", 1)
    fake(f"say({page!r}); ran([{{'reply': {reply!r}}}]); sys.exit({status})")
    first, second = counters.count_all(H200, DECODE, VARIANTS, [MMA, wanted("split_w4")])
    assert isinstance(first, Counters) == (reply == OK)
    assert words in second.reason
    assert not second.everywhere


def test_a_choice_that_cannot_be_is_refused_before_anything_runs(fake):
    called = fake("ran()")
    problem, choice = MMA
    gone = choice._replace(build=choice.build._replace(source_hash="0" * 12))
    (found,) = counters.count_all(H200, DECODE, VARIANTS, [(problem, gone)])
    assert isinstance(found, NoCounters)
    assert not found.everywhere
    assert not called()


def test_a_torn_reply_is_a_crash():
    assert profiled.read_reply('{"reply": {"sta').status == "crashed"
    assert profiled.read_reply('{"phase": {"phase": "run"}}').status == "crashed"
    assert profiled.read_reply('{"reply": {"status": "ok"}}') == Reply("ok")


# --- pure parts ---


def row(name, blocks=1, stalls=(), **figures):
    return ncu.Row(name, blocks, figures, dict(stalls))


def test_launches_between_marks_are_calls():
    rows = [row("advisor_mark", 2), row("a"), row("b"), row("advisor_mark", 2), row("a"), row("advisor_mark", 5)]
    found = counters.calls_of(rows)
    assert {n: [[r.name for r in call] for call in calls] for n, calls in found.items()} == {
        2: [["a", "b"], ["a"]],
        5: [[]],
    }
    assert counters.calls_of([row(START_NAME), *rows]) == found, "the first launch belongs to nobody"
    with pytest.raises(BadInput, match="mark of their call"):
        counters.calls_of([row("a")])


def test_calls_of_unequal_launches_are_refused():
    same = [row("a", duration_ns=1.0)]
    with pytest.raises(BadInput, match="equal launches"):
        counters.of_call([same, same, [*same, row("b")]])
    with pytest.raises(BadInput, match="equal launches"):
        counters.of_call([[], [], []])


def test_a_slow_choice_is_counted_once():
    one = [row("a", duration_ns=1.0)]
    reply = Reply("ok", conditions=(("counted", 1),))
    ran = counters.Ran(0, "", (reply,), 30.0)
    assert counters._of_trial(ran, 1, [one]) == counters.Seen((Kernel("a", 1.0),), 1)
    assert "1 calls" in counters._of_trial(ran, 1, [one] * 3).reason


def test_a_figure_that_one_call_lacks_is_unknown():
    calls = [[row("a", duration_ns=1.0, dram_read_bytes=1.0)], [row("a", duration_ns=3.0)], [row("a", duration_ns=2.0)]]
    assert counters.of_call(calls) == (Kernel("a", duration_ns=2.0),)


def test_the_three_longest_waits_are_named_by_their_medians():
    each = [{"barrier": b, "wait": 2.0, "drain": 0.0, "membar": 9.0, "misc": 1.0} for b in (1.0, 5.0, 3.0)]
    (found,) = counters.of_call([[row("a", stalls=one, duration_ns=1.0)] for one in each])
    assert found.stalls == (("membar", 9.0), ("barrier", 3.0), ("wait", 2.0))
    assert counts.longest_waits({"wait": 0.0}) == ()
    assert counts.longest_waits({}) is None


def test_ratios_and_waits_of_a_call_are_those_of_its_longest_kernel():
    short = Kernel("a", 1.0, 5.0, read_sector_bytes=32.0, stalls=(("wait", 1.0),))
    long = Kernel("b", 2.0, 6.0, read_sector_bytes=4.0, stalls=(("barrier", 7.0),))
    whole = counts.in_total([short, long])
    assert whole == long._replace(name="a + b", duration_ns=3.0, dram_read_bytes=11.0)


def test_counters_come_back_from_a_log_as_they_went_and_those_of_older_logs_too():
    made = Counters(Kernel("a", 1.0, stalls=(("wait", 2.0), ("barrier", 1.0))), (Kernel("a"),), 3, "kept", "ncu", 1.0)
    assert from_json(Counters, to_json(made)) == made
    old = to_json(made)
    for field in ("stalls", "read_sector_bytes"):
        del old["call"][field]
    assert from_json(Counters, old).call == Kernel("a", 1.0)


def made(*kernels, passes=1):
    return Counters(counts.in_total(kernels), kernels, 3, "kept", "ncu", 1.0, passes)


NONE = NoCounters("no time", "")
CORE = made(Kernel("a", 1.0, 5.0), Kernel("b", 2.0, 6.0))
DETAIL = made(Kernel("a", 7.0, read_sector_bytes=8.0), Kernel("b", 9.0, stalls=(("wait", 1.0),)), passes=20)


def test_what_explains_a_call_stands_beside_what_was_counted_first():
    found = counters.joined(CORE, DETAIL)
    assert found.kernels == (
        Kernel("a", 1.0, 5.0, read_sector_bytes=8.0),
        Kernel("b", 2.0, 6.0, stalls=(("wait", 1.0),)),
    )
    assert found.call == Kernel("a + b", 3.0, 11.0, stalls=(("wait", 1.0),))
    assert (found.passes, found.seconds) == (20, 2.0)
    for other in (NONE, made(Kernel("a"))):
        assert counters.joined(CORE, other) == CORE
    assert counters.joined(NONE, DETAIL) == NONE


START = profiled.Start("ncu", 20.0, 2.0, 1)


@pytest.mark.parametrize(("limit_s", "programs"), [(60.0, 2), (22.0 + counters.LEAST_S - 1, 1)])
def test_first_figures_stand_whatever_comes_of_those_that_take_many_passes(monkeypatch, limit_s, programs):
    """And they are counted only where there is time for a second start, as long as the first was."""
    asked = []

    def count_kernels(gpu, sources, wanted, limit_s, metrics=ncu.CORE):
        asked.append((list(wanted), metrics))
        each = tuple(NONE if metrics == ncu.DETAIL or one == "none" else CORE for one in wanted)
        return counters.Came(each, (START,))

    monkeypatch.setattr(counters, "count_kernels", count_kernels)
    assert counters.count_fully(H200, DECODE, VARIANTS, ["one", "none"], limit_s) == (CORE, NONE)
    assert asked == [(["one", "none"], ncu.CORE), (["one"], ncu.DETAIL)][:programs]


def test_a_sum_with_an_unknown_part_is_unknown():
    whole = counts.in_total([Kernel("a", 1.0, 5.0, achieved_occupancy=0.5), Kernel("b", 2.0, achieved_occupancy=0.1)])
    assert whole == Kernel("a + b", 3.0, None, achieved_occupancy=0.1)

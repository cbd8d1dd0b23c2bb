"""A tuning that counts, on a device that is none: whatever ncu does, the tuning ends, and its table says what came of
it."""

from __future__ import annotations

import glob
import json
import math
import os
from types import SimpleNamespace

import fake_ncu
import jsonschema
import pytest
from fake import FakeExecutor
from test_codec import schema

from advisor import cli, tuning, tuning_result
from advisor.errors import BadInput
from advisor.kernels import executors
from advisor.kernels.gpu import ncu, profiled, tools
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.policy.store import load_table
from advisor.records import Gpu, pairs
from advisor.search.counting import recorded, reserve_s
from advisor.search.request import Silent

H200 = Gpu(0, "GPU-0", "NVIDIA H200", 143771 << 20, 132, "9.0", 0, "disabled", 700.0, cuda_index=0, device_id="0" * 12)
GROUPED = (("batch", 1), ("head_dim", 128), ("heads", 40), ("kv_heads", 8))


class FakePool(FakeExecutor):
    """An executor of a device: batched_mma with its default knobs is the fastest."""

    def __init__(self, machine, spec, variants, seed=0, until=math.inf):
        super().__init__(self._ns)
        self.crew = SimpleNamespace(close=lambda: None)
        self._defaults = {variant.name: variant.defaults for variant in variants}

    def _ns(self, problem, choice):
        made = choice.build
        return problem.n * (1.0 if (made.variant, made.knobs) == ("batched_mma", self._defaults[made.variant]) else 2.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def few(kernel, kernel_dirs, machine):
    """One variant with five choices: what is tuned here takes no time."""
    (found,) = [one for one in variants(kernel, kernel_dirs, GPU_LANGUAGES) if one.name == "batched_mma"]
    defaults = dict(found.defaults)
    return (found._replace(build_knobs=tuple((knob, (defaults[knob],)) for knob, _ in found.build_knobs)),)


@pytest.fixture(scope="module")
def machine():
    return tuning.topology.probe()._replace(gpus=(H200,))


@pytest.fixture
def device(tmp_path, monkeypatch, machine):
    """A machine with an H200, CuPy and nothing else; puts an ncu on PATH."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning.topology, "probe", lambda: machine)
    monkeypatch.setattr(tools, "installed", {"cupy": "14.2.0"}.get)
    monkeypatch.setattr(executors, "pool_for", FakePool)
    monkeypatch.setattr(tuning, "variants_for", few)
    monkeypatch.setattr(ncu, "PLACES", ())
    profiled.tool.cache_clear()

    def put(body):
        folder, calls = fake_ncu.install(tmp_path / "bin", body)
        monkeypatch.setenv("PATH", folder)
        return lambda: [line for line in calls.read_text().splitlines() if "--version" not in line]

    monkeypatch.setenv("PATH", "/nonexistent")
    return put


def tuned(*sizes, wanted=True, **more):
    asked = tuning.TuneRequest(
        ("decode",), sizes, "float16", GROUPED, quick=True, regime="cold", device="cuda:0", counters=wanted, **more
    )
    (result,) = tuning.tune(asked, Silent())
    return result


def section(result):
    """The only section of the table as it lies on disk."""
    (found,) = load_table(result.table_path).sections
    return found


PAGE = fake_ncu.recorded("decode_cuda", 1)


def test_winners_are_counted_into_log_table_and_result(device):
    called = device(f"say({PAGE!r}); ran()")
    result = tuned(4096, budget_s=None)
    assert not result.missing
    (one,) = result.counted
    assert one.choice.build.variant == "batched_mma"
    assert one.counters.call.dram_read_bytes == 16837888.0
    (point,) = [p for row in section(result).rows for p in row.points if p.n == 4096]
    figures = dict(point.extra)["counters"]
    assert figures["dram_read_bytes"] == one.counters.call.dram_read_bytes
    assert (figures["caches"], figures["calls"], list(figures["kernels"])) == ("flushed", 3, ["decode_batched_mma"])
    assert recorded(result.log_path) == result.counted
    (best,) = tuning_result.result_json(result)["best"]
    assert best["counters"]["call"]["l2_read_sectors"] == 579560.0
    assert best["no_counters"] is None
    assert ["stalled" in words for words in called()] == [False, True]  # bytes, then what explains them


def test_lines_and_table_keep_to_their_schemas(device):
    device(f"say({PAGE!r}); ran()")
    result = tuned(4096, 8192)  # one program for both sizes, and figures of the first alone
    with open(result.log_path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    counted = [line for line in lines if line["kind"] == "counters"]
    assert [line["counting"]["counters"] is None for line in counted] == [False, True]
    for line in counted:
        schema("measurements").validate(line)
    with open(result.table_path, encoding="utf-8") as file:
        schema("table").validate(json.load(file))
    with pytest.raises(jsonschema.ValidationError):
        schema("measurements").validate({**counted[0], "counting": {}})


ENDS = {
    "no permission": (f"say({fake_ncu.PERMISSION!r} + chr(10)); sys.exit(1)", "NVreg_RestrictProfilingToAdminUsers=0"),
    "held by an agent": (f"ran(); say({fake_ncu.HELD!r} + chr(10)); sys.exit(9)", "dcgmi profiling --pause"),
    "garbage": ("say(chr(0) * 99); ran()", "raw page"),
    "cut": (f"say({PAGE[:-500]!r}); ran()", "whole line"),
    "crashes": ("os.abort()", "exit status -6"),
    "is absent": (None, "not installed"),
}


@pytest.mark.parametrize("case", ENDS)
def test_whatever_ncu_does_the_tuning_ends_and_the_table_says_why(device, case):
    body, words = ENDS[case]
    called = device(body) if body else list
    result = tuned(4096, 8192)
    assert not result.missing
    assert not result.failed
    assert [one.counters for one in result.counted] == [None, None]
    found = section(result)
    assert found.tuned_n == (4096, 8192)
    told = dict(found.extra)["no_counters"]
    assert list(told["n"]) == [4096, 8192]
    assert words in f"{told['reason']} {told['remedy']}"
    assert all("counters" not in dict(point.extra) for row in found.rows for point in row.points)
    assert len(called()) <= 1


def test_one_that_hangs_is_ended_within_the_budget(device, monkeypatch):
    monkeypatch.setattr("advisor.search.counting.LIMIT_S", 1.0)
    device("time.sleep(600)")
    result = tuned(4096, budget_s=60.0)
    assert not result.missing
    assert "was ended after 1 s" in result.counted[0].none.reason


def test_a_budget_too_short_for_counting_is_said(device, monkeypatch):
    monkeypatch.setattr("advisor.search.counting.LEAST_S", 1000.0)
    called = device("ran()")
    result = tuned(4096, budget_s=30.0)
    assert "no time was left" in result.counted[0].none.reason
    assert not called.__closure__[0].cell_contents.exists()


@pytest.mark.parametrize(
    ("budget_s", "wanted", "kept_s"),
    [(None, True, 0.0), (100.0, False, 0.0), (24.0, True, 0.0), (30.0, True, 6.0), (1000.0, True, 60.0)],
)
def test_a_budget_keeps_time_for_counting_only_where_that_is_enough_to_count_in(budget_s, wanted, kept_s):
    assert reserve_s(budget_s, wanted) == pytest.approx(kept_s)


def test_nobody_counts_where_nobody_asked(device):
    device("sys.exit(1)")
    result = tuned(4096, wanted=False)
    assert result.counted == ()
    assert "no_counters" not in dict(section(result).extra)
    assert "counters" not in tuning_result.result_json(result)["best"][0]


def test_what_was_counted_stays_when_other_sizes_are_tuned(device):
    device(f"say({PAGE!r}); ran()")
    tuned(4096)
    found = section(tuned(65536, wanted=False))
    points = {point.n: dict(point.extra) for row in found.rows for point in row.points}
    assert "counters" in points[4096]
    assert "counters" not in points[65536]


def test_a_second_shape_is_counted_beside_the_first(device):
    """The second save took the other shape's sections for an import of the meantime, and the figures were lost."""
    device(f"say({PAGE!r}); ran()")
    asked = tuning.TuneRequest(
        ("decode",), (4096,), "float16", GROUPED, quick=True, regime="cold", device="cuda:0", counters=True
    )
    tuning.tune(asked, Silent())
    (result,) = tuning.tune(asked._replace(shape=pairs({**dict(GROUPED), "heads": 28, "kv_heads": 4})), Silent())
    assert result.decision.verdict == "first"
    found = load_table(result.table_path).sections
    counted = {
        dict(one.shape)["heads"] for one in found for row in one.rows for p in row.points if "counters" in dict(p.extra)
    }
    assert counted == {28, 40}


def test_a_later_refusal_does_not_wipe_what_was_counted(device, monkeypatch):
    device(f"say({PAGE!r}); ran()")
    tuned(4096)
    monkeypatch.setattr("advisor.search.counting.LEAST_S", 1000.0)
    again = tuned(4096, budget_s=30.0)
    assert again.counted[0].none is not None
    (point,) = [p for row in section(again).rows for p in row.points if p.n == 4096]
    assert "counters" in dict(point.extra)
    assert "no_counters" not in dict(section(again).extra)


def test_an_interrupt_while_counting_keeps_the_table(device, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    device("ran()")
    monkeypatch.setattr("advisor.search.counting.count_fully", interrupted)
    result = tuned(4096)
    assert result.outcome.interrupted
    assert section(result).tuned_n == (4096,)


def test_why_pytorch_was_not_tried_is_said_to_those_who_chose_no_tools(device, monkeypatch):
    monkeypatch.setattr(tools, "installed", {"cupy": "14.2.0", "torch": "2.13.0+cpu"}.get)
    (note,) = [note for note in tuned(4096, wanted=False).notes if "PyTorch" in note]
    assert "2.13.0+cpu is a build for CPUs alone" in note
    assert not [note for note in tuned(4096, wanted=False, compilers="cupy-14.2").notes if "PyTorch" in note]
    with pytest.raises(BadInput, match=r"got 'torch-2.13'.*build for CPUs alone"):
        tuned(4096, wanted=False, compilers="torch-2.13")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BadInput("ncu must be one that answers")])
def test_an_error_while_counting_is_a_reason_for_no_counters(device, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr("advisor.search.counting.count_fully", fails)
    result = tuned(4096)
    assert str(error) in result.counted[0].none.reason
    assert section(result).tuned_n == (4096,)
    assert str(error) in dict(section(result).extra)["no_counters"]["reason"]


def test_the_table_lies_there_before_anything_is_counted(device, monkeypatch):
    def dies(*_):
        raise SystemExit(9)

    monkeypatch.setattr("advisor.search.counting.count_fully", dies)
    with pytest.raises(SystemExit):
        tuned(4096)
    (path,) = glob.glob(os.path.join(os.environ["ADVISOR_HOME"], "**", "decode.table.json"), recursive=True)
    assert load_table(path).sections[0].tuned_n == (4096,)


def test_counters_of_cpus_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    asked = tuning.TuneRequest(("decode",), (64,), counters=True)
    with pytest.raises(BadInput, match="--device cuda:0"):
        tuning.tune(asked, Silent())


def command(capsys, *more):
    """Exit status and standard output of `advisor tune` on the device."""
    shape = [word for name, value in GROUPED for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["tune", "--device", "cuda:0", "--n", "4096", "--dtype", "float16", "--regime", "cold", "--quick", *shape]
    with pytest.raises(SystemExit) as ended:
        cli.app([*words, *more])
    return ended.value.code, capsys.readouterr().out


def test_the_command_tells_figures(device, capsys):
    device(f"say({PAGE!r}); ran()")
    status, out = command(capsys, "--counters")
    assert status == 0
    assert "n=4096: memory: 16.8 MB read, 0 B written; L2 sectors: 580 k read" in out
    assert "under the profiler" in out


def test_the_command_tells_why_there_are_none_and_ends_well(device, capsys):
    device(f"print({fake_ncu.PERMISSION!r}); sys.exit(1)")
    status, out = command(capsys, "--counters")
    assert status == 0
    assert "n = 4096: no counters: the driver lets only administrators" in out
    assert "--cap-add SYS_ADMIN" in out


def recommended(capsys, result, *more):
    """Standard output of `advisor recommend` from the tables of a tuning."""
    place = os.path.join(os.path.dirname(result.table_path), "machine.json")
    with pytest.raises(SystemExit) as ended:
        cli.app(["recommend", "--machine", place, "--kernel", "decode", *more])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_recommend_shows_what_was_counted_when_asked(device, capsys):
    device(f"say({PAGE!r}); ran()")
    result = tuned(4096)
    assert "counted  memory: 16.8 MB read" in recommended(capsys, result, "--n", "4096", "--counters")
    assert "counted" not in recommended(capsys, result, "--n", "4096")
    (answer,) = json.loads(recommended(capsys, result, "--n", "4096", "--counters", "--json"))["answers"]
    assert answer["counters"]["dram_read_bytes"] == result.counted[0].counters.call.dram_read_bytes
    assert answer["no_counters"] is None
    assert "counters" not in json.loads(recommended(capsys, result, "--n", "4096", "--json"))["answers"][0]


def test_recommend_says_why_there_are_none(device, capsys):
    device(f"print({fake_ncu.PERMISSION!r}); sys.exit(1)")
    result = tuned(4096)
    assert "counted  no counters: the driver lets" in recommended(capsys, result, "--n", "4096", "--counters")
    (answer,) = json.loads(recommended(capsys, result, "--n", "4096", "--counters", "--json"))["answers"]
    assert answer["counters"] is None
    assert "NVreg_RestrictProfilingToAdminUsers=0" in answer["no_counters"]["remedy"]


def test_recommend_says_that_nobody_counted(device, capsys):
    result = tuned(4096, wanted=False)
    assert "nobody counted" in recommended(capsys, result, "--n", "4096", "--counters")

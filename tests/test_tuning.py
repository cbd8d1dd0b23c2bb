"""Tuning as a whole: what is refused before time is spent, what a table keeps, why something is missing."""

from __future__ import annotations

import json
import os

import pytest
from commanding import SCALE

from advisor import pipeline, records, tuning, tuning_result
from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.memory import operand_sets
from advisor.lookup import Policy
from advisor.policy.store import load_table
from advisor.records import Caches
from advisor.search.others import Others, User
from advisor.search.request import Silent

DIRS = (SCALE[-1],)


@pytest.fixture
def home(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path_factory.getbasetemp() / "pipeline-cache"))
    return tmp_path


def tuned(*sizes, **more):
    asked = tuning.TuneRequest(("scale",), sizes, budget_s=8.0, quick=True, kernel_dirs=DIRS, **more)
    (result,) = tuning.tune(asked, Silent())
    return result


# --- what is refused ---


def test_a_second_kernel_that_cannot_be_tuned_stops_the_first(home):
    shape = (("heads", 4), ("kv_heads", 3), ("width", 3))
    asked = tuning.TuneRequest(("scale", "decode"), (64,), kernel_dirs=DIRS, shape=shape)
    with pytest.raises(BadInput, match="kv_heads"):
        tuning.tune(asked, Silent())
    assert not os.path.exists(home / "home")


@pytest.mark.parametrize("kernels", [("scale",), ("scale", "decode")])
def test_a_shape_entry_that_no_kernel_of_the_list_has_is_refused(home, kernels):
    asked = tuning.TuneRequest(kernels, (64,), kernel_dirs=DIRS, shape=(("causal", 1),))
    with pytest.raises(BadInput, match=r"scale.* must have the shape entry; got 'causal'; allowed: width"):
        tuning.tune(asked, Silent())
    assert not os.path.exists(home / "home")


def test_a_dtype_that_no_variant_for_cpus_serves_is_refused(home):
    asked = tuning.TuneRequest(("forward",), (64,), dtype="bfloat16")
    with pytest.raises(BadInput, match=r"variant in the dtype for CPUs; got 'bfloat16'; allowed: float32, float64"):
        tuning.tune(asked, Silent())
    assert not os.path.exists(home / "home")


def test_a_shape_entry_counts_for_the_kernels_that_have_it(home):
    shape = (("causal", 1), ("width", 3))
    asked = tuning.TuneRequest(("scale", "decode", "forward"), (64,), kernel_dirs=DIRS, shape=shape)
    machine = tuning.topology.probe()
    found = {name: dict(tuning._request(asked, name, machine).problems[0].shape) for name in asked.kernels}
    assert found["scale"] == {"width": 3}
    assert "causal" not in found["decode"]
    assert (found["forward"]["causal"], found["forward"]["heads"]) == (1, 1)


HEADER = """/* variant {"idea": "lies", "language": "c", "symbol": "scale_lies", "dtypes": ["float32"], "reads": "n",
"writes": "n", "mapping": "none", "rank": 1, "kernel": "scale", "valid": ["VALID"]} */
#include "advisor.h"
int64_t scale_lies_workspace(const int64_t *dims, int threads) { return 0; }
int scale_lies(void *const *buffers, const int64_t *dims, void *workspace, int threads) { return 0; }
"""


@pytest.mark.parametrize("valid", ["n // 0 > 1", "no_such_name > 1"])
def test_a_header_whose_expressions_have_no_value_is_refused_by_name(home, valid):
    (home / "lies.c").write_text(HEADER.replace("VALID", valid))
    asked = tuning.TuneRequest(("scale",), (64,), kernel_dirs=(*DIRS, str(home)))
    with pytest.raises(BadInput, match=r"lies\.c.*edit"):
        tuning.tune(asked, Silent())
    with pytest.raises(BadInput, match=r"lies\.c.*edit"):
        pipeline.verify(pipeline.VerifyRequest(("scale",), kernel_dirs=(*DIRS, str(home))), Silent())


@pytest.mark.parametrize("wrong", [{"regime": "tepid"}, {"objective": "speed"}])
def test_an_unknown_regime_or_objective_is_refused(home, wrong):
    asked = tuning.TuneRequest(("scale",), (64,), kernel_dirs=DIRS, **wrong)
    with pytest.raises(UnknownName, match="no such"):
        tuning.tune(asked, Silent())
    assert not os.path.exists(home / "home")


def test_memory_for_the_copies_of_the_cold_regime_is_checked_first(home, monkeypatch):
    machine = tuning.topology.probe()
    room = operand_sets(machine, registry.spec("decode"), registry.spec("decode").problem(64, regime="cold")) << 16
    monkeypatch.setattr(pipeline, "room_bytes", lambda: room // 2)
    asked = tuning.TuneRequest(("decode",), (64,))
    assert tuning._request(asked, "decode", machine).problems[0].regime == "warm"
    with pytest.raises(BadInput, match="in the cold regime"):
        tuning._request(asked._replace(regime="cold"), "decode", machine)


def test_small_operands_that_stay_in_cache_are_named(home):
    machine = tuning.topology.probe()._replace(caches=Caches(None, None, 1 << 30))
    asked = tuning.TuneRequest(("scale",), (64, 1024), kernel_dirs=DIRS, regime="cold")
    request = tuning._request(asked, "scale", machine)
    assert tuning._not_cold(request).startswith("n = 64, 1024: operands are so small")
    assert tuning._not_cold(tuning._request(asked._replace(regime="warm"), "scale", machine)) == ""


# --- what a table keeps ---


def test_who_else_uses_the_machine_is_said_before_tuning_starts_and_logged(home, monkeypatch):
    busy = Others(0.0, 0.5, 0.0, 3.0, (User("make", 2, 1.5),), ("half of it is used by others",))
    monkeypatch.setattr(tuning.others, "look", lambda: busy)
    said = []
    asked = tuning.TuneRequest(("scale",), (64,), budget_s=12.0, quick=True, kernel_dirs=DIRS, regime="cold")
    (result,) = tuning.tune(asked, Silent(), said.append)
    words = "this machine is not quiet (load 3): half of it is used by others"
    assert said == [words]
    assert words in result.notes
    with open(result.log_path, encoding="utf-8") as file:
        session = json.loads(file.readline())
    assert session["others"]["users"] == [{"name": "make", "processes": 2, "cpus": 1.5}]
    table = load_table(result.table_path)
    assert {section.regime for section in table.sections} == {"cold"}
    assert dict(table.provenance)["regime"] == "cold"
    for verdict in (v for v in result.outcome.verdicts if v.purpose == "final"):
        named, answer = (
            tuning_result.chosen(result, verdict),
            Policy.load().best("scale", verdict.problem.n, regime="cold"),
        )
        assert (named.build.variant, named.build.knobs) == (answer.variant, answer.knob_pairs)
        assert (named.team.threads, named.process.wait_policy) == (answer.threads, answer.wait_policy)


def test_a_second_run_adds_its_sizes_and_leaves_other_shapes_alone(home):
    tuned(64)
    tuned(96)
    last = tuned(64, shape=(("width", 3),))
    table = load_table(last.table_path)
    assert {(dict(section.shape)["width"], n) for section in table.sections for n in section.tuned_n} == {
        (3, 64),
        (16, 64),
        (16, 96),
    }
    between = Policy.load().choose("scale", 70, width=9)
    assert dict(table.extra)["rules"]
    assert (between.basis, between.rung, between.in_tuned_region) == ("INTERPOLATED", "rule", False)


def test_every_winner_ran_once_more_in_a_fresh_process(home):
    result = tuned(64, 96)
    with open(result.log_path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    again = [record for record in records if record.get("phase") == "again"]
    names = {(r["measurement"]["choice"]["build"]["variant"], r["measurement"]["status"]) for r in again}
    finals = [verdict for verdict in result.outcome.verdicts if verdict.purpose == "final"]
    notes = " ".join(result.notes)
    assert {status for _, status in names} <= {"ok"}
    assert {v.winner.build.variant for v in finals} <= {name for name, _ in names} or "no time" in notes


def test_sizes_of_a_variant_that_changed_are_not_kept(home, monkeypatch):
    first = tuned(64)
    changed = [variant._replace(source_hash="0" * 12) for variant in pipeline.variants("scale", DIRS)]
    spec = registry.spec("scale", DIRS)
    from advisor.search.known import past

    request = tuning._request(tuning.TuneRequest(("scale",), (96,), kernel_dirs=DIRS), "scale", tuning.topology.probe())
    assert [verdict.problem.n for verdict in past(first.log_path, request).verdicts][:1] == [64]
    assert past(first.log_path, request._replace(variants=tuple(changed))).verdicts == ()
    other = request._replace(problems=(spec.problem(96, width=4),))
    assert past(first.log_path, other).verdicts == ()


# --- why something is missing ---


def failing(status, reason):
    return records.Measurement(registry.spec("scale", DIRS).problem(64), None, status, reason=reason)


def test_the_reason_of_a_failure_is_the_commonest_one():
    trials = [failing("crashed", "boom"), failing("skipped", "no\nroom"), failing("skipped", "no\nroom")]
    assert tuning_result.failure(trials, 64) == "2 of 3 skipped: no room"
    assert tuning_result.failure(trials, 65) == ""
    assert tuning_result.failure([*trials, failing("ok", "")], 64) == ""


CRASHES = HEADER.replace(', "valid": ["VALID"]', "").replace("threads) { return 0; }\n", "threads) { return CODE; }\n")


def test_a_run_in_which_nothing_works_says_why_and_that_it_failed(home, monkeypatch):
    source = CRASHES.replace("CODE", "0", 1).replace("CODE", "7", 1)
    folder = home / "scale"
    folder.mkdir()
    with open(os.path.join(DIRS[0], "scale", "spec.py"), encoding="utf-8") as file:
        (folder / "spec.py").write_text(file.read())
    (folder / "lies.c").write_text(source)
    asked = tuning.TuneRequest(("scale",), (64,), budget_s=20.0, quick=True, kernel_dirs=(str(home),))
    (result,) = tuning.tune(asked, Silent())
    assert result.failed
    assert result.table is None
    assert "no choice ran at n = 64" in result.missing
    assert "error code 7" in result.missing

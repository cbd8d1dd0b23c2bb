"""T4 files: what is read of odd ones, what is refused, and the way there and back."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
from recorded import REAL, entry, failure, put, small

from advisor.errors import BadInput, Missing
from advisor.search import t4
from advisor.search.replay import load, recorded


def one(tmp_path, result, **document):
    """The only result of a file."""
    return t4.read(put(tmp_path / "k-d.json", {"results": [result], **document})).results[0]


# --- reading ---


def test_mean_of_runs_compile_and_overhead_are_read(tmp_path):
    found = one(tmp_path, entry({"a": 1}, [1.0, 3.0]), metadata={"timeunit": "milliseconds"})
    assert found == t4.Result({"a": 1}, "correct", 2.0, (1.0, 3.0), 100.0, 5.0)


@pytest.mark.parametrize(
    ("unit", "ms"),
    [("nanoseconds", 2e-6), ("us", 2e-3), ("microseconds", 2e-3), ("miliseconds", 2.0), ("s", 2e3), ("Seconds", 2e3)],
)
def test_times_are_in_the_unit_of_the_file(tmp_path, unit, ms):
    found = one(tmp_path, entry({"a": 1}, [2.0]), metadata={"timeunit": unit})
    assert found.time_ms == pytest.approx(ms)
    assert found.compile_ms == pytest.approx(50 * ms)


def test_an_unknown_unit_is_refused(tmp_path):
    with pytest.raises(BadInput, match="unit of time"):
        one(tmp_path, entry({"a": 1}, [2.0]), metadata={"timeunit": "fortnights"})


@pytest.mark.parametrize("document", [{}, {"schema_version": "9.1.7"}, {"schema_version": 1, "metadata": None}])
def test_schema_version_and_metadata_are_optional(tmp_path, document):
    assert one(tmp_path, entry({"a": 1}, [2.0]), **document).time_ms == 2.0


def test_a_bare_list_of_results_is_read(tmp_path):
    assert t4.read(put(tmp_path / "k-d.json", [entry({"a": 1}, [2.0])])).results[0].time_ms == 2.0


def test_numbers_as_text_are_numbers(tmp_path):
    found = one(tmp_path, entry({"a": "16"}, ["1.5", "2.5"]))
    assert found.runs_ms == (1.5, 2.5)
    space = recorded(t4.Space("k", "d", (found, found._replace(configuration={"a": "8"}))))
    assert space.configurations == ((16,), (8,))


@pytest.mark.parametrize("unit", ["", "ms"])
def test_without_runs_the_time_measured_counts(tmp_path, unit):
    measurements = [{"name": "GFLOP/s", "value": 7}, {"name": "time", "value": "3.5", "unit": unit}]
    found = one(tmp_path, entry({"a": 1}, None, measurements=measurements, objectives=["GFLOP/s"]))
    assert (found.time_ms, found.runs_ms, found.invalidity) == (3.5, (), "correct")


def test_a_measurement_has_its_own_unit(tmp_path):
    measurements = [{"name": "time", "value": 2.0, "unit": "s"}]
    found = one(tmp_path, entry({"a": 1}, [], measurements=measurements), metadata={"timeunit": "us"})
    assert found.time_ms == 2000.0


@pytest.mark.parametrize("invalidity", ["compile", "runtime", "correctness", "timeout"])
def test_a_failure_has_no_time(tmp_path, invalidity):
    found = one(tmp_path, failure({"a": 1}, invalidity))
    assert (found.invalidity, found.time_ms, found.compile_ms) == (invalidity, None, 100.0)


def test_a_failure_told_as_text_or_as_incorrect_only_is_one(tmp_path):
    silent = {"configuration": {"a": 1}, "measurements": [{"name": "time", "value": "InvalidConfig"}]}
    assert one(tmp_path, silent).time_ms is None
    wrong = one(tmp_path, entry({"a": 1}, [1.0], correctness=0))
    assert (wrong.invalidity, wrong.time_ms) == ("correctness", None)


@pytest.mark.parametrize("run", [float("nan"), float("inf"), 0.0, -1.0, None, "fast"])
def test_runs_that_are_no_times_are_no_runs(tmp_path, run):
    found = one(tmp_path, entry({"a": 1}, [run, 2.0]))
    assert found.runs_ms == (2.0,)
    assert one(tmp_path, entry({"a": 1}, [run])).time_ms is None


def test_a_configuration_may_be_a_list_of_names_and_values(tmp_path):
    found = one(tmp_path, entry([{"Name": "BLOCK", "Value": 16}, {"Name": "TYPE", "Value": "half"}], [1.0]))
    assert found.configuration == {"BLOCK": 16, "TYPE": "half"}


def test_results_without_a_configuration_are_left_out_with_a_note(tmp_path):
    found = t4.read(put(tmp_path / "k-d.json", {"results": [entry({"a": 1}, [1.0]), {"times": {}}, 3, entry({}, [1])]}))
    assert len(found.results) == 1
    assert "3 results" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "kernel", "device"),
    [
        ("convolution-A100.T4.json.gz", "convolution", "A100"),
        ("gemm-RTX_3090_T4.json", "gemm", "RTX_3090"),
        ("sub/MI250X_T4.json", "sub", "MI250X"),
    ],
)
def test_kernel_and_device_come_from_the_name(tmp_path, name, kernel, device):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    t4.write(path, [t4.Result({"a": 1}, "correct", 1.0, (1.0,))], {})
    assert t4.read(path)[:2] == (kernel, device)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[1, 2]",
        b'{"results": {}}',
        b'{"results": []}',
        b"\x1f\x8b\x08broken",
        gzip.compress(b'{"results": [{"configuration": {"a": 1}}]}' * 50, mtime=0)[:60],
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_what_is_no_t4_file_is_refused(tmp_path, content):
    path = tmp_path / "k-d.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"T4 file|JSON|configuration"):
        t4.read(path)


def test_a_cache_of_kernel_tuner_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(BadInput, match="store_output_file"):
        t4.read(put(tmp_path / "k-d.json", {"device_name": "x", "cache": {"1,2": {}}}))


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(Missing, match="must exist"):
        t4.read(tmp_path / "none.json")
    with pytest.raises(BadInput, match="must be a file"):
        t4.read(tmp_path)


# --- the way there and back ---

RESULTS = (
    t4.Result({"variant": "split", "threads": 2, "spin": "-"}, "correct", 1.5, (1.0, 2.0), 20.0, 3.0, "2026-01-02"),
    t4.Result({"variant": "naive", "threads": 1, "spin": "-"}, "timeout", None, (), 1.0, None),
    t4.Result({"variant": "naive", "threads": 3, "spin": "-"}, "correct", 2.5, (2.5,), None, None),
)


@pytest.mark.parametrize("name", ["k-d.json", "k-d.T4.json.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    t4.write(tmp_path / name, RESULTS, {"device": "d"})
    assert t4.read(tmp_path / name) == t4.Space("k", "d", RESULTS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_numbers_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(BadInput, match="finite"):
        t4.write(tmp_path / "k-d.json", [RESULTS[0]._replace(time_ms=float("nan"))], {})
    assert list(tmp_path.iterdir()) == []


def test_every_result_has_what_the_schema_requires():
    document = json.loads(json.dumps(t4.document(RESULTS, {"device": "d"})))
    assert document["metadata"]["timeunit"] == "milliseconds"
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert result["invalidity"] in t4.INVALIDITIES
        assert result["correctness"] == (result["invalidity"] == "correct")


@pytest.mark.skipif(importlib.util.find_spec("kernel_tuner") is None, reason="Kernel Tuner brings the schema")
def test_the_published_schema_accepts_what_is_written():
    import jsonschema

    package = importlib.util.find_spec("kernel_tuner")
    schema = Path(str(package.origin)).parent / "schema/T4/1.0.0/results-schema.json"
    jsonschema.validate(t4.document(RESULTS, {}), json.loads(schema.read_text("utf-8")))


# --- real files, and the arrays ---


@pytest.mark.skipif(not REAL.is_dir(), reason="no recorded spaces beside this checkout")
def test_a_real_space_is_read():
    space = load(REAL / "convolution-A100.T4.json.gz")
    assert (space.kernel, space.device) == ("convolution", "A100")
    assert len(space.configurations) == 4362
    assert int(space.failed.sum()) == 161
    assert {len(runs) for runs, bad in zip(space.runs_ms, space.failed, strict=True) if not bad} == {32}


def test_a_space_without_a_time_cannot_be_replayed(tmp_path):
    with pytest.raises(BadInput, match="with a time"):
        load(put(tmp_path / "k-d.json", {"results": [failure({"a": 1})]}))


def test_results_outside_the_constraints_are_no_part_of_a_space(tmp_path):
    document = small()
    document["results"] += [failure({"block": 1024, "tile": 8, "use": 0}, "constraints")]
    space = load(put(tmp_path / "k-d.json", document))
    assert len(space.configurations) == 48
    assert "outside the constraints" in space.notes[0]


def test_results_of_one_configuration_are_put_together(tmp_path):
    twice = [entry({"a": 1}, [1.0]), failure({"a": 2}), entry({"a": 1}, [2.0, 3.0]), failure({"a": 1})]
    space = load(put(tmp_path / "k-d.json", {"results": twice}))
    assert space.configurations == ((1,), (2,))
    assert space.runs_ms[0] == (1.0, 2.0, 3.0)
    assert space.time_ms[0] == 2.0


def test_parameters_that_some_configurations_lack_and_odd_values_are_kept(tmp_path):
    odd = [entry({"a": [1, 2]}, [1.0]), entry({"a": {"x": 1}, "b": True}, [2.0]), entry({"b": "half"}, [3.0])]
    space = load(put(tmp_path / "k-d.json", {"results": odd}))
    assert space.names == ("a", "b")
    assert space.configurations == (((1, 2), None), ((("x", 1),), True), (None, "half"))

"""Nsight Compute's command line and its output, read from recordings of ncu 2025.3 on an H200."""

import gzip
import itertools
from pathlib import Path

import pytest

from advisor.errors import BadInput
from advisor.kernels.gpu import ncu

DATA = Path(__file__).resolve().parents[2] / "data" / "ncu"


def recorded(name):
    """What ncu wrote: three calls of each choice, decode 40:8 in float16 of head_dim 128, cold."""
    return gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()).decode()


def test_a_recorded_page_is_read_launch_by_launch():
    rows = ncu.parse(recorded("decode_cuda"))
    names = ["batched_mma", "split_w4", "split_w1", "batched_mma", "split_w4", "split_w1"]
    assert [row.name for row in rows] == [f"decode_{name}" for name in names for _ in range(3)]
    assert [rows[i].blocks for i in (0, 6, 9)] == [32, 52, 32]
    first = rows[0].figures
    assert first.keys() == {metric.field for metric in (*ncu.SUMMED, *ncu.RATIOS[:2])}
    assert not rows[0].stalls  # recorded when only those were asked for
    assert (first["duration_ns"], first["dram_read_bytes"], first["l2_read_sectors"]) == (15264.0, 16838144.0, 579780.0)
    assert first["theoretical_occupancy"] == pytest.approx(0.125)
    assert 0.11 < first["achieved_occupancy"] < first["theoretical_occupancy"]


def test_counted_atomics_are_those_that_the_headers_predict():
    """decode's launches at the defaults: splits x batch x (kv_heads, or heads where each takes its own blocks)."""
    counted = {(row.name, row.blocks): row.figures["l2_atomic_sectors"] for row in ncu.parse(recorded("decode_cuda"))}
    assert counted == {("decode_batched_mma", 32): 256, ("decode_split_w4", 13): 520, ("decode_split_w1", 52): 2080}


def with_columns(page, columns):
    """The page with further columns, name -> (unit, value of every row)."""
    head, units, *rows = [line for line in page.splitlines() if line.startswith('"')]
    more = zip(*(((name, unit, *[value] * len(rows)) for name, (unit, value) in columns.items())), strict=True)
    lines = zip((head, units, *rows), more, strict=True)
    return "".join(",".join((line, *(f'"{one}"' for one in added))) + "\n" for line, added in lines)


def test_ratios_and_waits_are_read_and_those_that_ncu_lacks_are_absent():
    """The values are made up: 1, 2, 3 .. in the order of the metrics."""
    units = {"read_sector_bytes": "byte/sector"}
    asked = (*ncu.RATIOS[2:], *ncu.STALLS)
    columns = {one.name: (units.get(one.field, "inst"), str(i)) for i, one in enumerate(asked, 1)}
    page = recorded("decode_cuda")
    row = ncu.parse(with_columns(page, columns))[0]
    assert [row.figures[one.field] for one in ncu.RATIOS[2:]] == [1, 2, 3, 4]
    assert row.stalls == {one.field: i for i, one in enumerate(ncu.STALLS, 5)}
    gone = {**columns, ncu.STALLS[0].name: ("", "n/a"), ncu.RATIOS[3].name: ("", "n/a")}
    row = ncu.parse(with_columns(page, gone))[0]
    assert "long_scoreboard" not in row.stalls
    assert len(row.stalls) == len(ncu.STALLS) - 1
    assert "written_sector_bytes" not in row.figures


def test_kernels_of_a_call_come_one_by_one():
    rows = ncu.parse(recorded("decode_triton"))
    assert [row.name for row in rows] == ["_part", "_merge"] * 3


def test_a_figure_that_ncu_does_not_have_is_absent():
    text = recorded("decode_cuda")
    for word in ("n/a", "nan", "inf", ""):
        (row, *_) = ncu.parse(text.replace('"15,264"', f'"{word}"'))
        assert "duration_ns" not in row.figures
    (row, *_) = ncu.parse(text.replace("dram__bytes_write.sum", "dram__something.sum"))
    assert "dram_written_bytes" not in row.figures
    assert "dram_read_bytes" in row.figures


def test_thousands_are_set_apart_or_not_as_the_locale_says():
    (row, *_) = ncu.parse(recorded("decode_cuda").replace('"15,264"', '"15264"'))
    assert row.figures["duration_ns"] == 15264.0


@pytest.mark.parametrize("cut", [-1, -2, -60, -3000])
def test_a_page_that_was_cut_off_is_refused(cut):
    with pytest.raises(BadInput, match="ncu's page"):
        ncu.parse(recorded("decode_cuda")[:cut])


@pytest.mark.parametrize("text", ["", "Segmentation fault\n", '"a","b"\n"1","2"\n', "\x00\xff\n"])
def test_what_is_no_page_is_refused(text):
    with pytest.raises(BadInput, match="raw page"):
        ncu.parse(text)


def test_a_head_without_rows_is_refused():
    lines = [line for line in recorded("decode_cuda").splitlines(keepends=True) if line.startswith('"')]
    with pytest.raises(BadInput, match="rows"):
        ncu.parse(lines[0])
    assert ncu.parse("".join(lines[:2])) == ()


def test_other_units_are_refused():
    with pytest.raises(BadInput, match="base units"):
        ncu.parse(recorded("decode_cuda").replace('"ns"', '"us"'))


def test_only_the_metrics_are_asked_for_and_clocks_are_left_alone():
    words = ncu.command("/opt/ncu", "cold", "log", ["python", "x"])
    pairs = dict(itertools.pairwise(words))
    assert words[0] == "/opt/ncu"
    assert words[-2:] == ["python", "x"]
    assert (pairs["--clock-control"], pairs["--profile-from-start"], pairs["--log-file"]) == ("none", "off", "log")
    assert pairs["--metrics"].split(",") == [metric.name for metric in ncu.METRICS]
    assert not {"--set", "--section"} & set(words)


def test_fewer_metrics_are_asked_for():
    words = ncu.command("/opt/ncu", "cold", "log", [], ncu.CORE)
    assert dict(itertools.pairwise(words))["--metrics"].split(",") == [metric.name for metric in ncu.CORE]
    assert set(ncu.CORE) < set(ncu.METRICS)


@pytest.mark.parametrize(("regime", "flushed"), [("cold", "all"), ("warm", "none")])
def test_caches_are_flushed_where_the_problem_is_cold(regime, flushed):
    words = ncu.command("ncu", regime, "log", [])
    assert words[words.index("--cache-control") + 1] == flushed


def test_an_unknown_regime_is_refused():
    with pytest.raises(BadInput, match="regime"):
        ncu.command("ncu", "tepid", "log", [])


def test_it_is_found_on_the_path_first_then_where_cuda_puts_it(monkeypatch, tmp_path):
    placed, pathed = tmp_path / "cuda" / "ncu", tmp_path / "bin" / "ncu"
    for path in (placed, pathed):
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setattr(ncu, "PLACES", (str(tmp_path / "cu*" / "ncu"), str(tmp_path / "none")))
    monkeypatch.setenv("PATH", str(pathed.parent))
    assert ncu.find() == str(pathed)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ncu.find() == str(placed)
    placed.chmod(0o644)
    monkeypatch.setattr(ncu, "PLACES", ())
    assert ncu.find() is None


@pytest.mark.parametrize("versions", [("2019.5.0", "2025.3.0"), ("2025.3.1", "2025.10.0")])
def test_of_several_versions_the_latest_is_taken(monkeypatch, tmp_path, versions):
    for version in versions:
        path = tmp_path / version / "ncu"
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setattr(ncu, "PLACES", (str(tmp_path / "*" / "ncu"),))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ncu.find() == str(tmp_path / versions[-1] / "ncu")


@pytest.mark.parametrize("known", ncu.REFUSALS, ids=lambda known: known.words)
def test_a_refusal_is_known_by_its_words(known):
    text = f"==PROF== Connected\n==ERROR== {known.words} - and more\n"
    assert ncu.refusal(text) == known
    assert known.remedy


def test_a_recording_holds_no_refusal_and_no_complaint():
    text = recorded("decode_cuda")
    assert ncu.refusal(text) is None
    assert ncu.complaint(text) == ""


def test_errors_are_told_before_warnings():
    assert ncu.complaint("==WARNING== no kernels\n==ERROR== a\nb\n==ERROR== c\n") == "a c"
    assert ncu.complaint("==WARNING== Note: clocks\n==WARNING== no kernels\n") == "no kernels"

from __future__ import annotations

import json

import pytest
from bench_fixtures import AMD, context, measured, row
from fake import fake_machine
from kernel_rows import Key, conclusions, judge, lies_in, limits, lines, load, mappings, save

from advisor.errors import BadInput
from advisor.kernels.registry import spec
from advisor.records import Caches

# --- judge ---


def test_the_best_form_of_pytorch_counts():
    found = row("forward", {"choice": 100.0, "native": 200.0}, {"torch sdpa 2T": 400.0, "torch matmul 2T": 800.0})
    assert [(peer.kind, peer.name) for peer in found.peers] == [("torch", "torch sdpa 2T")]
    assert found.ratio("choice", "torch").value == pytest.approx(0.25, rel=0.05)
    assert found.ratio("native", "torch").value == pytest.approx(0.5, rel=0.05)
    assert found.ratio("choice", "native").verdict == "faster"


def test_a_bar_holds_for_the_native_forward_alone():
    found = row("forward", {"choice": 100.0, "native": 200.0}, {"torch sdpa 2T": 210.0})
    assert [(bar.over, bar.under, bar.limit, bar.met) for bar in found.bars] == [("native", "torch", 0.55, False)]


@pytest.mark.parametrize(
    ("vendor", "cores", "limit"),
    [("AuthenticAMD", 2, 0.55), ("GenuineIntel", 16, 1.0), ("AuthenticAMD", 16, None), (None, 2, None)],
)
def test_bars_are_of_the_machines_they_were_set_on(vendor, cores, limit):
    key = Key("paper", spec("forward").problem(64), None)
    found = limits(key, fake_machine(cores=cores)._replace(vendor=vendor))
    assert found == ({("native", "torch"): limit} if limit else {})


@pytest.mark.parametrize(
    ("shape", "n", "dtype", "floor"),
    [
        ("paper", 1024, "float32", 1.4),
        ("paper", 4096, "float32", 1.2),
        ("served", 1024, "float32", 2.0),
        ("served", 4096, "float16", None),
        ("paper", 64, "float32", None),
    ],
)
def test_bars_of_decode(shape, n, dtype, floor):
    found = limits(Key(shape, spec("decode").problem(n, dtype), None), AMD)
    assert found.get(("choice", "floor")) == floor


@pytest.mark.parametrize(
    ("kernel", "dtype", "limit"),
    [("mlp", "float32", 0.6), ("rmsnorm", "float32", 0.6), ("mlp", "float64", None), ("block", "float32", None)],
)
def test_bars_around_attention(kernel, dtype, limit):
    found = limits(Key("paper", spec(kernel).problem(64, dtype), None), AMD)
    assert found == ({("native", "torch"): limit} if limit else {})


def test_each_variant_stands_beside_pytorch():
    times = {"choice": 100.0, "native": 200.0, "variant few": 200.0, "variant naive": 800.0}
    found = row("mlp", times, {"torch linear 2T": 400.0})
    assert found.ratio("variant naive", "torch").value == pytest.approx(2.0, rel=0.05)
    text = "\n".join(lines(found))
    assert "variant few/torch 0.5" in text
    assert "native/torch 0.5" in text
    assert "met (bar 0.6)" in text


def test_a_row_says_where_pytorch_cannot_be_beaten_by_much():
    found = row("mlp", {"choice": 110.0, "native": 110.0}, {"floor order=1": 100.0, "torch linear 2T": 125.0})
    assert found.ratio("floor", "torch").value == pytest.approx(0.8, rel=0.05)
    assert "floor/torch 0." in lines(found)[0]


@pytest.mark.parametrize(
    ("size", "where"), [(1 << 14, "in L1"), (1 << 20, "in L2"), (3 << 20, "in L3"), (1 << 30, "beyond all caches")]
)
def test_where_operands_lie(size, where):
    machine = AMD._replace(caches=Caches(1 << 15, 1 << 20, 1 << 25))
    assert lies_in(machine, size).endswith(where)
    assert lies_in(AMD._replace(caches=Caches(None, None, None)), size).endswith("beyond all caches")


def test_decode_is_rated_in_bytes_and_stands_beside_its_floor():
    found = judge(context("decode", 8_000), measured("decode", {"choice": 1000.0}, {"floor order=1": 500.0}))
    assert found.unit == "GB/s"
    assert found.rate == pytest.approx(8.0, rel=0.05)
    assert found.ratio("choice", "floor").value == pytest.approx(2.0, rel=0.05)
    assert not found.bars[0].met


@pytest.mark.parametrize(("fused_ns", "verdict"), [(150.0, "slower"), (100.2, "tie"), (70.0, "faster")])
def test_fused_is_judged_by_the_interval(fused_ns, verdict):
    found = row("fused", {"choice": 70.0, "native": 70.0, "fused": fused_ns, "naive": 100.0}, {})
    assert found.ratio("fused", "naive").verdict == verdict


def test_what_was_not_measured_has_no_ratio():
    found = row("fused", {"choice": 70.0, "native": 70.0}, {})
    assert found.ratio("choice", "torch") is None
    assert found.ratio("fused", "naive") is None
    assert not found.peers


# --- print ---


def test_a_row_says_who_was_timed_and_how_it_was_chosen():
    text = "\n".join(lines(row("forward", {"choice": 1e5, "native": 2e5}, {"torch sdpa 2T": 3e5})))
    for words in ("forward float32 n=1024", "Gflop/s", "MISSED (bar 0.55)", "from the look", "2 threads", "torch sdpa"):
        assert words in text
    assert "without slow: too slow" in text


def test_the_demand_on_fused_is_answered_at_the_largest_n():
    slow = {"choice": 70.0, "native": 70.0, "fused": 150.0, "naive": 100.0}
    fast = {**slow, "fused": 50.0}
    (found,) = conclusions([row("fused", fast, {}, 512), row("fused", slow, {}, 256)])
    assert "not slower than naive at the largest n run (paper, float32, n=512)" in found
    (found,) = conclusions([row("fused", fast, {}, 256), row("fused", slow, {}, 512)])
    assert "SLOWER than naive" in found


def test_bars_are_counted_and_missed_ones_named():
    good = row("forward", {"choice": 10.0, "native": 10.0}, {"torch sdpa 2T": 100.0}, 64)
    bad = row("forward", {"choice": 90.0, "native": 90.0}, {"torch sdpa 2T": 100.0}, 128)
    found = conclusions([good, bad])
    assert found[0] == "bars met: 1 of 2"
    assert "n=128" in found[1]


def test_mappings_are_named_once():
    rows = [row("forward", {"choice": 1.0, "native": 1.0}, {}, n) for n in (64, 128)]
    assert mappings(rows) == ["mapping of forward choice: its own", "mapping of forward native: a strip a thread"]


# --- keep ---


def conditions(machine=AMD) -> dict[str, str]:
    return {"hardware_id": machine.hardware_id, "limits_id": machine.limits_id}


def test_rows_come_back_as_they_were_written(tmp_path):
    path = str(tmp_path / "rows.json")
    rows = [row("forward", {"choice": 1e5, "native": 2e5}, {"torch sdpa 2T": 3e5})]
    save(path, conditions(), rows, {"fused": "too long"})
    assert load(path, AMD) == rows
    assert json.loads((tmp_path / "rows.json").read_text())["left_out"] == {"fused": "too long"}


def test_no_file_is_no_rows(tmp_path):
    assert load(str(tmp_path / "none.json"), AMD) == []


def test_rows_of_another_machine_are_refused(tmp_path):
    path = str(tmp_path / "rows.json")
    save(path, conditions(fake_machine(cores=4)), [], {})
    with pytest.raises(BadInput, match="this machine"):
        load(path, AMD)


def test_a_file_that_is_something_else_is_refused_and_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("my notes")
    with pytest.raises(BadInput):
        load(str(tmp_path / "notes.txt"), AMD)
    assert (tmp_path / "notes.txt").read_text() == "my notes"

"""The published figures: they parse, and they are those of the paper."""

from __future__ import annotations

import pytest

from advisor.errors import SchemaError
from advisor.validate import published


def test_table_one():
    rows = published.forward()
    assert [row.n for row in rows] == [64 << i for i in range(8)]
    assert [row.best_threads for row in rows] == [4, 8, 16, 32, 64, 128, 128, 128]
    assert (rows[0].slowdown, rows[-1].speedup, rows[-1].one_thread_s) == (14.5, 60.6, 24.57)


def test_fused_over_naive():
    ratios = {(pair.n, pair.threads): pair.fused_s / pair.naive_s for pair in published.fused()}
    assert len(ratios) == 8 + 8 - 1, "n = 4096 with 128 threads is in both files"
    assert ratios[4096, 1] == pytest.approx(1.19, abs=0.005)
    assert ratios[4096, 128] == pytest.approx(0.72, abs=0.005)
    assert ratios[128, 128] == pytest.approx(2.07, abs=0.005)


def test_decode_with_half_of_the_threads():
    rows = published.decode()
    assert rows[0].all_s / rows[0].half_s == pytest.approx(535.1, abs=0.1)
    assert (rows[-1].n, round(rows[-1].all_s / rows[-1].half_s, 2)) == (1048576, 1.28)


def test_forward_on_two_gpus():
    rows = published.forward_on_gpus()
    assert [row.n for row in rows] == [64 << i for i in range(8)]
    assert (rows[-1].a100_s, rows[-1].h200_s) == (0.457188, 0.431261)


def test_single_figures_of_the_gpu_sections():
    backward, fused = (
        published.on_gpu(f"atomic instructions {name}", n=2048) for name in ("backward (GK only)", "fused (GV and GK)")
    )
    assert fused / backward == 2
    assert published.on_gpu("fused/naive time before fix (two atomics) lowest", "H200") == 1.34
    with pytest.raises(SchemaError, match="no such figure"):
        published.on_gpu("no such figure")


@pytest.mark.parametrize("text", ["", "n,s\n1,2\n", "# a\nn,s\n1,x\n", "# a\nn,s\n1\n", "# a\n"])
def test_a_broken_table_is_refused(monkeypatch, tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    monkeypatch.setattr(published, "FOLDER", str(tmp_path))
    with pytest.raises(SchemaError, match=r"a\.csv"):
        published.read("a.csv")

"""Random inputs: the distribution, the same for any number of threads, and the outliers by their formulas."""

import math

import numpy as np
import pytest

from advisor.kernels import normal
from advisor.kernels.normal import OUTLIERS, drawn, normals, outliers


def test_numbers_are_standard_normal_and_depend_on_the_seed_alone(monkeypatch):
    monkeypatch.setattr(normal, "FILL_ELEMENTS", 1 << 14)
    first, other = (normals((100, 1000), np.random.SeedSequence(seed)) for seed in (5, 6))
    monkeypatch.setattr(normal, "FILL_THREADS", 1)
    assert np.array_equal(first, normals((100, 1000), np.random.SeedSequence(5)))
    assert not np.array_equal(first, other)
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    assert abs(first.mean()) < 6 / math.sqrt(first.size)
    assert abs(first.std() - 1) < 6 / math.sqrt(2 * first.size)
    assert len(np.unique(first)) > 0.9 * first.size, "the pieces of the threads are streams of their own"


def test_float64_numbers_use_their_whole_precision():
    found = normals((1000,), np.random.SeedSequence(1), np.float64)
    assert found.dtype == np.float64
    assert (found != found.astype(np.float32)).mean() > 0.99


def test_large_inputs_go_on_with_rotations_that_repeat_no_row_in_place(monkeypatch):
    monkeypatch.setattr(normal, "BANK_ELEMENTS", 1000)
    found = normals((4321,), np.random.SeedSequence(1))
    bank = found[:1000]
    assert np.isin(found, bank).all()
    pieces = [found[start : start + 1000] for start in range(0, 4000, 1000)]
    assert all(np.array_equal(np.sort(piece), np.sort(bank)) for piece in pieces)
    assert not any(np.array_equal(piece, bank) for piece in pieces[1:])


def test_outliers_are_the_two_formulas():
    """Written out number by number, as the case they come from has them."""
    q, v = outliers("q", (2, 30)), outliers("v", (60,))
    assert q.shape == (2, 30)
    assert q.dtype == np.float32
    np.testing.assert_allclose(q.ravel(), [((i * 37) % 19 / 5 - 1.9) * 30 for i in range(60)], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(v, [((i * 57) % 11 / 3 - 1.8) * 80 for i in range(60)], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("name", "largest"), [("q", 57.0), ("v", 144.0)])
def test_outliers_reach_their_scale_on_both_sides(name, largest):
    found = outliers(name, (1000,), np.float64)
    assert np.abs(found).max() == pytest.approx(largest)
    assert found.min() < -0.9 * largest
    assert found.max() > 0.8 * largest


def test_a_draw_changes_only_what_has_outliers():
    shapes = {"q": (40,), "k": (40,), "v": (40,)}
    plain, outlier = drawn(shapes, 3, "normal"), drawn(shapes, 3, "outlier")
    for name in shapes:
        assert np.array_equal(plain[name], outlier[name]) == (name not in OUTLIERS)
    assert not np.array_equal(plain["q"], plain["k"]), "a stream of its own for each name"

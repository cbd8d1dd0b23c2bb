"""Inputs and references that workers share."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.kernels.registry import spec
from advisor.kernels.shelf import MOST_BYTES, Shelf
from advisor.kernels.spec import Expected

PROBLEM = spec("forward").problem(3)
DRAWN = (PROBLEM, "normal")


def never():
    pytest.fail("it should have been on the shelf")


def test_the_second_worker_takes_what_the_first_made(tmp_path):
    made = {"q": np.arange(6, dtype=np.float32).reshape(2, 3), "k": np.array([7], np.uint16)}
    assert Shelf(str(tmp_path)).inputs(DRAWN, lambda: made) is made
    found = Shelf(str(tmp_path)).inputs(DRAWN, never)
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in made.items()
    }


def test_a_reference_comes_back_whole(tmp_path):
    made = {"out": Expected(np.ones((2, 2)), 0.5), "gq": Expected(np.zeros((1, 2)), 0.25, np.array([3]))}
    made["gwd"] = Expected(np.zeros((2, 1)), 0.25, columns=np.array([7]))
    Shelf(str(tmp_path)).expected(DRAWN, lambda: made)
    found = Shelf(str(tmp_path)).expected(DRAWN, never)
    assert found["out"].tolerance == 0.5
    assert found["out"].rows is None
    assert found["gq"].tolerance == 0.25
    assert found["gq"].rows.tolist() == [3]
    assert (found["gwd"].rows, found["gwd"].columns.tolist()) == (None, [7])
    assert found["out"].values.tolist() == [[1, 1], [1, 1]]


def test_another_problem_draw_or_kind_is_another_place(tmp_path):
    shelf = Shelf(str(tmp_path))
    shelf.inputs(DRAWN, lambda: {"q": np.zeros(1)})
    for other in ((PROBLEM._replace(n=4), "normal"), (PROBLEM, "outlier")):
        assert shelf.inputs(other, lambda: {"q": np.ones(1)})["q"][0] == 1
    assert shelf.expected(DRAWN, lambda: {"out": Expected(np.ones(1), 1.0)})["out"].values[0] == 1


def test_a_damaged_file_is_made_anew(tmp_path):
    Shelf(str(tmp_path)).inputs(DRAWN, lambda: {"q": np.zeros(100)})
    (path,) = tmp_path.glob("*/*")
    path.write_bytes(path.read_bytes()[:200])
    assert Shelf(str(tmp_path)).inputs(DRAWN, lambda: {"q": np.ones(1)})["q"][0] == 1


def test_nothing_is_kept_without_a_folder_or_when_it_is_gone_or_too_large(tmp_path):
    for folder in ("", str(tmp_path / "gone")):
        assert Shelf(folder).inputs(DRAWN, lambda: {"q": np.ones(1)})["q"][0] == 1
    Shelf(str(tmp_path)).inputs(DRAWN, lambda: {"q": np.empty(MOST_BYTES + 1, np.uint8)})
    assert list(tmp_path.iterdir()) == []

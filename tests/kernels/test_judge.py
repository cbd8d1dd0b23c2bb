"""Right and wrong outputs: sentinels, canaries, NaN, errors; memory of trials."""

from __future__ import annotations

import kernel_fixtures as fixtures
import numpy as np
import pytest

from advisor.kernels import operands as ops
from advisor.kernels.judge import judge, relative_error
from advisor.kernels.sixteen import widen
from advisor.kernels.spec import STORAGE, Expected

DTYPES = [np.float64, np.float32, np.float16]


def expected(*values, tolerance=1e-6, rows=None):
    return Expected(np.array(values, dtype=np.float64), tolerance, rows)


def filled(dtype, values):
    made = ops.block((len(values),), dtype)
    made.data[:] = values
    return made


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_marked_output_counts_as_unwritten_until_it_is_written(dtype):
    made = ops.block((3, 5), dtype)
    ops.mark(made)
    assert np.isnan(made.data).all()
    assert ops.unwritten(made) == 15
    made.data[1, 2] = np.nan  # another NaN than the sentinel
    assert ops.unwritten(made) == 14


@pytest.mark.parametrize("offset", [-1, 0])
def test_canaries_see_one_byte_on_either_side(offset):
    made = ops.block((3,), np.uint8)
    assert ops.intact(made)
    start = made.address - made.whole.ctypes.data
    made.whole[start + (3 if offset == 0 else offset)] ^= 1
    assert not ops.intact(made)


def test_data_starts_on_a_page():
    assert ops.block((7,), np.float32).address % 4096 == 0


def test_no_room_is_a_memory_error():
    with pytest.raises(MemoryError):
        ops.block((1 << 60,), np.float32)


def test_right():
    found = judge({"y": filled(np.float32, [1.0, 2.0])}, {"y": expected(1.0, 2.0 + 1e-7)})
    assert found.reason == ""
    assert found.error == pytest.approx(0.5e-7)


def test_too_far_off():
    found = judge({"y": filled(np.float32, [1.0, 2.1])}, {"y": expected(1.0, 2.0)})
    assert found.error == pytest.approx(0.05)
    assert "over the tolerance" in found.reason


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_has_no_error_number(value):
    found = judge({"y": filled(np.float32, [1.0, value])}, {"y": expected(1.0, 2.0)})
    assert found.error is None
    assert "NaN or infinity" in found.reason


def test_overrun_is_spoiled():
    made = filled(np.float32, [1.0])
    made.whole[made.address - made.whole.ctypes.data + 4] = 0
    found = judge({"y": made}, {"y": expected(1.0)})
    assert found.spoiled
    assert "outside of y" in found.reason


def test_the_output_nearest_its_own_tolerance_is_reported():
    outputs = {"x": filled(np.float32, [1.0 + 2.0**-10]), "y": filled(np.float32, [1.0 + 2.0**-12])}
    loose, tight = expected(1.0, tolerance=1e-2), expected(1.0, tolerance=2.0**-11)
    found = judge(outputs, {"x": loose, "y": tight})
    assert (found.error, found.tolerance, found.reason) == (2.0**-12, 2.0**-11, "")
    assert "of y is over" in judge(outputs, {"x": loose, "y": tight._replace(tolerance=2.0**-13)}).reason


def test_an_output_that_was_never_written_counts_before_any_error():
    found = judge({"x": filled(np.float32, [9.0]), "y": marked()}, {"x": expected(1.0), "y": expected(1.0)})
    assert found.error is None
    assert "of y unwritten" in found.reason


def marked():
    made = ops.block((1,), np.float32)
    ops.mark(made)
    return made


def test_a_tolerance_of_zero_asks_for_the_very_number():
    exact = expected(1.0, tolerance=0.0)
    assert judge({"y": filled(np.float32, [1.0])}, {"y": exact}).reason == ""
    assert "over the tolerance" in judge({"y": filled(np.float32, [1.0 + 2.0**-20])}, {"y": exact}).reason


def rows_of(values):
    made = ops.block((2, 2, 2), np.float32)  # four rows of two
    made.data[...] = np.array(values).reshape(2, 2, 2)
    return made


def test_only_known_rows_are_compared_and_the_rest_must_be_finite():
    known = Expected(np.array([[0.0, 1.0], [6.0, 7.0]]), 1e-6, np.array([0, 3]))
    values = [0.0, 1.0, -9.0, -9.0, -9.0, -9.0, 6.0, 7.0]
    assert judge({"y": rows_of(values)}, {"y": known}).error == 0
    assert "over the tolerance" in judge({"y": rows_of([*values[:6], 6.0, 8.0])}, {"y": known}).reason
    assert "NaN" in judge({"y": rows_of([0.0, 1.0, np.nan, *values[3:]])}, {"y": known}).reason


def test_only_known_columns_are_compared():
    known = Expected(np.array([[1.0], [3.0], [5.0], [7.0]]), 1e-6, columns=np.array([1]))
    assert judge({"y": rows_of([-9.0, 1.0, -9.0, 3.0, -9.0, 5.0, -9.0, 7.0])}, {"y": known}).error == 0
    assert "over the tolerance" in judge({"y": rows_of(range(1, 9))}, {"y": known}).reason


def test_error_is_absolute_below_one_and_relative_above():
    assert relative_error(np.array([0.1]), np.array([0.0])) == pytest.approx(0.1)
    assert relative_error(np.array([110.0]), np.array([100.0])) == pytest.approx(0.1)
    assert relative_error(np.zeros((2,)), np.zeros((3,))) == np.inf
    assert relative_error(np.zeros(0), np.zeros(0)) == 0


def test_operands_of_a_problem():
    spec, problem = fixtures.scale(), fixtures.problem(5)
    given = spec.inputs(problem, 1)
    touched = []
    made = ops.make(spec, problem, given, sets=3, touch=touched.extend)
    assert len(touched) == 6
    assert np.array_equal(ops.inputs(spec, made)["x"], given["x"])
    assert list(ops.outputs(spec, made, 2)) == ["y"]
    assert len({block.address for group in made.sets for block in group}) == 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_stands_in_an_output_of_16_bits_is_no_number(dtype):
    made = ops.block((3, 5), STORAGE[dtype])
    ops.mark(made)
    assert np.isnan(widen(made.data, dtype)).all()
    assert ops.unwritten(made) == 15

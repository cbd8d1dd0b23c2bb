"""Right and wrong outputs: sentinels, canaries, NaN, errors; memory of trials."""

from __future__ import annotations

import kernel_fixtures as fixtures
import numpy as np
import pytest

from advisor.kernels import operands as ops
from advisor.kernels.judge import judge, relative_error

DTYPES = [np.float64, np.float32, np.float16]


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
    found = judge({"y": filled(np.float32, [1.0, 2.0])}, {"y": np.array([1.0, 2.0 + 1e-7])}, 1e-6)
    assert found.reason == ""
    assert found.error == pytest.approx(0.5e-7)


def test_too_far_off():
    found = judge({"y": filled(np.float32, [1.0, 2.1])}, {"y": np.array([1.0, 2.0])}, 1e-6)
    assert found.error == pytest.approx(0.05)
    assert "over the tolerance" in found.reason


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_has_no_error_number(value):
    found = judge({"y": filled(np.float32, [1.0, value])}, {"y": np.array([1.0, 2.0])}, 1e-6)
    assert found.error is None
    assert "NaN or infinity" in found.reason


def test_overrun_is_spoiled():
    made = filled(np.float32, [1.0])
    made.whole[made.address - made.whole.ctypes.data + 4] = 0
    found = judge({"y": made}, {"y": np.array([1.0])}, 1e-6)
    assert found.spoiled
    assert "outside of y" in found.reason


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

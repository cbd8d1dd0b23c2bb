"""Sixteen-bit storage: rounded to nearest, ties to even, and read back exactly."""

import numpy as np
import pytest

from advisor.kernels.sixteen import narrow, widen

DTYPES = ("bfloat16", "float16")
KEPT = {"bfloat16": 7, "float16": 10}
"""Bits of the fraction."""


def numbers():
    """float32 numbers of all sizes that float16 can hold too, both signs, subnormals of float16 among them."""
    generator = np.random.default_rng(3)
    size = np.exp2(generator.uniform(-24, 15.9, 200_000))
    return (size * generator.choice([-1.0, 1.0], size.size)).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pattern_survives_the_way_to_float32_and_back(dtype):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    exponent = 0x7F80 if dtype == "bfloat16" else 0x7C00
    finite = patterns[(patterns & exponent) != exponent]
    stored = finite if dtype == "bfloat16" else finite.view(np.float16)
    assert np.array_equal(narrow(widen(stored, dtype), dtype).view(np.uint16), finite)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_number_of_the_storage_is_nearer(dtype):
    x = numbers()
    stored = narrow(x, dtype)
    assert stored.itemsize == 2
    bits = stored.view(np.uint16)
    exact = x.astype(np.float64)
    off = np.abs(widen(stored, dtype) - exact)
    for step in (-1, 1):
        near = (bits.astype(np.int32) + step).astype(np.uint16)
        other = widen(near if dtype == "bfloat16" else near.view(np.float16), dtype).astype(np.float64)
        assert not (np.abs(other - exact) < off).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_go_to_the_even_neighbour(dtype):
    step = 2.0 ** -KEPT[dtype]
    x = np.array([1 + step / 2, 1 + 3 * step / 2, -1 - step / 2, -1 - 3 * step / 2, 2 - step / 2], np.float32)
    assert widen(narrow(x, dtype), dtype).tolist() == [1.0, 1 + 2 * step, -1.0, -1 - 2 * step, 2.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_as_pytorch(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = numbers()
    theirs = torch.from_numpy(x).to(getattr(torch, dtype))
    assert np.array_equal(narrow(x, dtype).view(np.int16), theirs.view(torch.int16).numpy())
    assert np.array_equal(widen(narrow(x, dtype), dtype), theirs.float().numpy())


def test_other_dtypes_are_left_alone():
    for dtype in ("float32", "float64"):
        x = numbers().astype(dtype)
        assert narrow(x, dtype) is x
        assert widen(x, dtype) is x

"""What stands for the assembler of a warp in emulated kernels: matrix products and loads, beside numpy's."""

import ctypes

import numpy as np
import pytest
from emulation import Call, Triple, compiled, needs_compiler

pytestmark = needs_compiler

SOURCE = """
extern "C" void products(const float *a, const float *b, float *c, const double *x, const double *y, double *z,
                         const unsigned short *p, const unsigned short *q, float *r, int transposed) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  const unsigned tf32[4] = {as<unsigned>(a[g * 8 + t]), as<unsigned>(a[(g + 8) * 8 + t]),
                            as<unsigned>(a[g * 8 + t + 4]), as<unsigned>(a[(g + 8) * 8 + t + 4])};
  float sums[4] = {0, 0, 0, 0};
  multiply_tf32(sums, tf32, as<unsigned>(b[t * 8 + g]), as<unsigned>(b[(t + 4) * 8 + g]));
  double both[2] = {0, 0};
  multiply_double(both, x[g * 4 + t], y[t * 8 + g]);
  for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
  for (int i = 0; i < 2; i++) z[g * 8 + 2 * t + i] = both[i];

  unsigned left[4], right[2];
  load_matrices(left, 4, p + (lane % 16) * 16 + lane / 16 * 8, false);
  if (transposed) load_matrices(right, 2, q + (lane % 16) * 8, true);
  else load_matrices(right, 2, q + (lane % 8) * 16 + lane / 8 % 2 * 8, false);
  float halves[4] = {0, 0, 0, 0};
  multiply_tiles(halves, left, right[0], right[1], from_half);
  for (int i = 0; i < 4; i++) r[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = halves[i];
}
"""


def whole(random, shape, kind):
    """Small whole numbers, whose products and sums are exact in every type."""
    return random.integers(-8, 9, shape).astype(kind)


@pytest.mark.parametrize("transposed", [0, 1])
def test_products_of_a_warp_are_those_of_their_matrices(tmp_path, transposed):
    random = np.random.default_rng(3)
    a, b, c = whole(random, (16, 8), "f4"), whole(random, (8, 8), "f4"), np.zeros((16, 8), "f4")
    x, y, z = whole(random, (8, 4), "f8"), whole(random, (4, 8), "f8"), np.zeros((8, 8))
    p, q, r = whole(random, (16, 16), "f2"), whole(random, (16, 8), "f2"), np.zeros((16, 8), "f4")
    given = q if transposed else np.ascontiguousarray(q.T)  # columns of q, contiguous, where nothing is transposed
    arrays = (a, b, c, x, y, z, p, given, r)
    run = compiled(str(tmp_path), SOURCE, (), ("products",))
    pointers = (ctypes.c_void_p * len(arrays))(*(one.ctypes.data for one in arrays))
    call = Call(pointers, (ctypes.c_int * 1)(transposed), len(arrays), 1, Triple(1, 1, 1), 32, 0)
    assert run(0, ctypes.byref(call)) == b""
    assert np.array_equal(c, a @ b)
    assert np.array_equal(z, x @ y)
    assert np.array_equal(r, p.astype("f4") @ q.astype("f4"))


LANES = """
extern "C" void lanes(int *out, int width) {
  const int i = threadIdx.x;
  int *const own = out + 8 * i;
  own[0] = __shfl_sync(~0u, i, 3, width);
  own[1] = __shfl_down_sync(~0u, i, 1u, width);
  own[2] = __shfl_up_sync(~0u, i, 2u, width);
  own[3] = __shfl_xor_sync(~0u, i, 1, width);
  own[4] = __ballot_sync(~0u, i % 3 == 0);
  own[5] = __any_sync(~0u, i == 40) + 2 * __all_sync(~0u, i < 32);
  own[6] = i % 2 ? __shfl_sync(0xaaaaaaaau, i, 5) : __shfl_sync(0x55555555u, i, 4);
  own[7] = blockDim.x + warpSize;
}
"""


@pytest.mark.parametrize("width", [8, 32])
def test_shuffles_read_from_the_lanes_that_cuda_says(tmp_path, width):
    out = np.zeros((64, 8), "i4")
    run = compiled(str(tmp_path), LANES, (), ("lanes",))
    pointers = (ctypes.c_void_p * 1)(out.ctypes.data)
    call = Call(pointers, (ctypes.c_int * 1)(width), 1, 1, Triple(1, 1, 1), 64, 0)
    assert run(0, ctypes.byref(call)) == b""
    i = np.arange(64)
    lane, first = i % 32 % width, i - i % 32 % width
    assert np.array_equal(out[:, 0], first + 3)
    assert np.array_equal(out[:, 1], np.where(lane + 1 < width, i + 1, i))
    assert np.array_equal(out[:, 2], np.where(lane >= 2, i - 2, i))
    assert np.array_equal(out[:, 3], i ^ 1)
    for warp in (i[:32], i[32:]):
        ballot = sum(1 << k for k, one in enumerate(warp) if one % 3 == 0)
        assert set(out[warp, 4].view("u4")) == {ballot}
    assert np.array_equal(out[:, 5], np.where(i < 32, 2, 1))
    assert np.array_equal(out[:, 6], i - i % 32 + np.where(i % 2, 5, 4))
    assert set(out[:, 7]) == {96}

/* For the bodies of functions that are assembler in the source: numbers of sixteen bits, matrix products of a warp, loads
   of their operands. Fragments as the PTX ISA has them. After intrinsics.h. */

/* IEEE 754 binary16, with subnormal numbers, rounded to nearest even. */
static inline float from_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, part = bits & 1023;
  if (exponent == 31) return as<float>((bits & 0x8000u) << 16 | 0x7f800000u | unsigned(part) << 13);
  const float size = exponent ? ldexpf(float(part + 1024), exponent - 25) : ldexpf(float(part), -24);
  return bits >> 15 ? -size : size;
}
static inline unsigned short to_half(float x) {
  const unsigned sign = as<unsigned>(x) >> 16 & 0x8000u;
  const float size = fabsf(x);
  if (size != size) return (unsigned short)(sign | 0x7fffu);
  if (size >= 65520.0f) return (unsigned short)(sign | 0x7c00u);
  int exponent = 0;
  frexpf(size, &exponent);
  exponent = max(exponent, -13); /* below: steps of 2**-24 */
  const unsigned steps = unsigned(nearbyintf(ldexpf(size, 11 - exponent)));
  const unsigned bits = size == 0 ? 0 : steps + (unsigned(exponent + 13) << 10);
  return (unsigned short)(bits | sign);
}
static inline float from_bfloat(unsigned short bits) { return as<float>(unsigned(bits) << 16); }
static inline unsigned short to_bfloat(float x) {
  const unsigned bits = as<unsigned>(x);
  if (x != x) return (unsigned short)(bits >> 16 | 0x40u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
#ifdef ADV_DTYPE
/* Those of the dtype that is stored. */
static inline float from_stored(unsigned short bits) { return ADV_DTYPE == 3 ? from_bfloat(bits) : from_half(bits); }
static inline unsigned short to_stored(float x) { return ADV_DTYPE == 3 ? to_bfloat(x) : to_half(x); }
#endif
static inline float to_tf32(float x) {
  const unsigned bits = as<unsigned>(x);
  return as<float>((bits + 0x1000u) & ~0x1fffu); /* cvt.rna: ties away from zero */
}

/* mma.m16n8k16, row.col, of sixteen bits into float. `wide`: an operand's bits as float. */
template <typename Wide>
static void multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Wide wide) {
  const int lane = current % 32, g = lane / 4, t = lane % 4;
  unsigned rows[2][8], columns[2][8]; /* A: words of rows g, g + 8 (8 of k each); B: words of columns 2t, 2t + 1 */
  meet(ALL_LANES, {{a[0], a[1], a[2], a[3], b0, b1}}, [&](const Shown *all) {
    for (int w = 0; w < 4; w++)
      for (int j = 0; j < 2; j++) {
        rows[j][w] = all[g * 4 + w].word[j];
        rows[j][w + 4] = all[g * 4 + w].word[j + 2];
        columns[j][w] = all[(2 * t + j) * 4 + w].word[4];
        columns[j][w + 4] = all[(2 * t + j) * 4 + w].word[5];
      }
  });
  for (int i = 0; i < 4; i++)
    for (int w = 0; w < 8; w++)
      for (int half = 0; half < 2; half++)
        c[i] += wide((unsigned short)(rows[i / 2][w] >> 16 * half)) * wide((unsigned short)(columns[i % 2][w] >> 16 * half));
}

/* mma.m16n8k8, row.col, of tf32 into float: the low 13 bits of an operand are not looked at. */
static inline void multiply_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const int lane = current % 32, g = lane / 4, t = lane % 4;
  const auto wide = [](unsigned bits) { return as<float>(bits & ~0x1fffu); };
  meet(ALL_LANES, {{a[0], a[1], a[2], a[3], b0, b1}}, [&](const Shown *all) {
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 8; k++) {
        const unsigned row = all[g * 4 + k % 4].word[i / 2 + k / 4 * 2];
        const unsigned column = all[(2 * t + i % 2) * 4 + k % 4].word[4 + k / 4];
        c[i] += wide(row) * wide(column);
      }
  });
}

/* mma.m8n8k4, row.col, of double. */
static inline void multiply_double(double (&c)[2], double a, double b) {
  const int lane = current % 32, g = lane / 4, t = lane % 4;
  Shown mine = {};
  memcpy(mine.word, &a, 8);
  memcpy(mine.word + 2, &b, 8);
  meet(ALL_LANES, mine, [&](const Shown *all) {
    for (int i = 0; i < 2; i++)
      for (int k = 0; k < 4; k++) {
        double row, column;
        memcpy(&row, all[g * 4 + k].word, 8);
        memcpy(&column, all[(2 * t + i) * 4 + k].word + 2, 8);
        c[i] = fma(row, column, c[i]);
      }
  });
}

/* ldmatrix.x1, x2, x4 of 8 x 8 numbers of sixteen bits: lane 8 m + r brings the address of row r of matrix m. */
static inline void load_matrices(unsigned *found, int count, const void *row, bool transposed) {
  const int lane = current % 32;
  Shown mine = {};
  memcpy(&mine, &row, sizeof row);
  meet(ALL_LANES, mine, [&](const Shown *all) {
    for (int m = 0; m < count; m++) {
      unsigned short part[2];
      for (int j = 0; j < 2; j++) {
        const int r = transposed ? 2 * (lane % 4) + j : lane / 4, c = transposed ? lane / 4 : 2 * (lane % 4) + j;
        const unsigned short *from;
        memcpy(&from, &all[8 * m + r], sizeof from);
        part[j] = from[c];
      }
      memcpy(found + m, part, sizeof part);
    }
  });
}

/* No device has these without a header, and NVRTC is given none. */
#undef INFINITY
#undef NAN
#undef HUGE_VAL
#undef HUGE_VALF
#undef M_PI
#undef M_LOG2E
#undef M_LN2
#pragma GCC poison INFINITY NAN HUGE_VAL HUGE_VALF M_PI M_LOG2E M_LN2
#pragma GCC poison int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t intptr_t std
#define __CUDA_ARCH__ 900
#define __CUDACC__ 1

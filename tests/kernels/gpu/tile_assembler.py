"""What the assembler of frame/tensor_tiles.cuh does, for emulation.emulated."""

TENSOR_TILES = {
    "void multiply(double (&c)[4], const Left &a, const Right &b)": """
        for (int half = 0; half < 2; half++) {
          double rows[2] = {c[2 * half], c[2 * half + 1]};
          multiply_double(rows, a.x[half], b.x[0]);
          multiply_double(rows, a.x[half + 2], b.x[1]);
          c[2 * half] = rows[0];
          c[2 * half + 1] = rows[1];
        }""",
    "void multiply_parts(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])": (
        "multiply_tf32(c, a, b[0], b[1]);"
    ),
    "void fetch(real *to, const real *from, int bytes)": "if (bytes) memcpy(to, from, 16); else memset(to, 0, 16);",
    "void close_group()": "",
    "void await_all_groups()": "",
    "void await_all_groups_but_one()": "",
}
"""Head of a function -> its body on a CPU."""

"""CUDA variants on a CPU, their threads as fibers: what they compute is right without a GPU, and launches fit it."""

import ctypes
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from gpu_fixtures import DECODE

from advisor.kernels.gpu import operands
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.source import options, text
from advisor.kernels.header import OWN_GPU_LANGUAGES
from advisor.kernels.judge import relative_error
from advisor.kernels.variant import knob_sets, variants

HERE = os.path.dirname(os.path.abspath(__file__))
CUDA = {one.name: one for one in variants("decode", (), OWN_GPU_LANGUAGES) if one.language == "cuda"}
PAPER = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
GROUPS = {"batch": 1, "heads": 14, "kv_heads": 2, "head_dim": 128}
FIVE = {"batch": 2, "heads": 5, "kv_heads": 1, "head_dim": 64}

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")

ASSEMBLER = {
    "float ex2(float x)": "return std::exp2(x);",
    "Vec load(const store *p)": "return *(const Vec *)p;",
    "float half_bits(unsigned short bits)": "return from_half(bits);",
    "void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)": """
        multiply_tiles(c, a, b0, b1, [](unsigned short bits) {
            return ADV_DTYPE == 3 ? __uint_as_float(unsigned(bits) << 16) : from_half(bits); });""",
    "void cut(float x, float y, unsigned &high, unsigned &low)": """
        const auto narrow = [](float x) { return ADV_DTYPE == 3 ? to_bfloat(x) : to_half(x); };
        const auto wide = [](unsigned short bits) {
            return ADV_DTYPE == 3 ? __uint_as_float(unsigned(bits) << 16) : from_half(bits); };
        const unsigned short hx = narrow(x), hy = narrow(y);
        high = hx | unsigned(hy) << 16;
        low = narrow((x - wide(hx)) * LOW) | unsigned(narrow((y - wide(hy)) * LOW)) << 16;""",
}
"""Functions of the sources that are assembler -> what they do."""

RUN = """
extern "C" void run(void *q, void *k, void *v, void *out, unsigned char *w, const int *n, const unsigned *g,
                    unsigned block) {
  launch({g[0], g[1], g[2]}, block, [=] {
    ENTRY((const real *)q, (const store *)k, (const store *)v, (real *)out, w, NUMBERS);
  });
}
"""


def plain(source):
    """The source with its assembler replaced."""
    for head, body in ASSEMBLER.items():
        start = source.find(head)
        if start >= 0:
            end = source.index("\n}\n", start)
            source = f"{source[:start]}{head} {{ {body}{source[end:]}"
    assert "asm" not in re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    return source


def built(folder, variant, problem, knobs):
    """The entry as a function of a library; a library for each set of macros."""
    numbers = len(geometry(DECODE, variant, problem, knobs).numbers)
    run = RUN.replace("ENTRY", variant.symbol).replace("NUMBERS", ", ".join(f"n[{i}]" for i in range(numbers)))
    source, library = folder / "x.cpp", folder / "x.so"
    source.write_text(f'#include "threads.h"\n{plain(text(variant.path, variant.source_hash))}\n{run}')
    macros = [word for word in options(variant, problem, knobs) if word.startswith("-D")]
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        f"-I{HERE}",
        *macros,
        str(source),
        "-o",
        str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return ctypes.CDLL(str(library)).run


def error(run, variant, problem, knobs, draw):
    """The error of one launch as a share of the tolerance; what else a trial checks is checked."""
    inputs = DECODE.inputs(problem, 7, draw)
    expected = DECODE.reference(problem, inputs)["out"]
    (group,) = operands.make(np, DECODE, problem, inputs, 1)
    operands.mark(group[3])
    launch = geometry(DECODE, variant, problem, knobs)
    space = operands.scratch(np, launch.workspace_bytes, launch.zero_bytes)
    pointers = [ctypes.c_void_p(one.data.ctypes.data) for one in (*group, space)]
    numbers, grid = (ctypes.c_int * len(launch.numbers))(*launch.numbers), (ctypes.c_uint * 3)(*launch.grid)
    run(*pointers, numbers, grid, ctypes.c_uint(launch.block))
    assert all(operands.intact(one) for one in (*group, space))
    assert not space.data[: launch.zero_bytes].any()
    assert not operands.unwritten(group[3])
    return relative_error(group[3].data, expected.values) / expected.tolerance


CASES = (
    ("split_w1", "float64", {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 128}),
    ("split_w4", "float32", PAPER),
    ("gated", "bfloat16", {"batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 64}),
    ("batched", "float16", GROUPS),
    ("batched_mma", "float16", FIVE),
    ("batched_mma", "bfloat16", GROUPS),
)


@pytest.mark.parametrize(("name", "dtype", "shape"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_variant_computes_the_dnf_in_one_split_and_in_many(tmp_path, name, dtype, shape):
    variant, run, splits = CUDA[name], None, set()
    listed = knob_sets(variant, DECODE.problem(1, dtype, **shape))
    build = {knob: dict(variant.defaults)[knob] for knob, _ in variant.build_knobs}
    blocks = dict(variant.run_knobs)["blocks"]
    for n, wanted, draw in ((1, blocks[0], "normal"), (130, blocks[0], "outlier"), (1000, blocks[2], "normal")):
        problem = DECODE.problem(n, dtype, **shape)
        knobs = next(one for one in listed if dict(one) == build | {"blocks": wanted})
        run = run or built(tmp_path, variant, problem, knobs)
        splits.add(geometry(DECODE, variant, problem, knobs).grid[0])
        assert error(run, variant, problem, knobs, draw) < 1
    assert 1 in splits
    assert max(splits) > 6

"""Runs a variant under the address and undefined-behaviour sanitizers, by a C program of its own.

The program allocates every buffer by itself and to the byte, so that a red zone lies behind each: one element read or
written past an end is an error, where the canaries of a bench worker only see writes.
"""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from advisor.kernels import openblas
from advisor.kernels.build import FRAME, REALS
from advisor.kernels.compilers import compilers, flags
from advisor.kernels.fortran import KINDS, fortran_compilers
from advisor.kernels.memory import ITEM_BYTES
from advisor.kernels.openblas import link_options
from advisor.kernels.variant import entry_dims, is_valid, macro_values

TEAMS = (1, 2, 3, 5)
CHECKED = ("-fcheck=all", "-g1")
"""What gfortran adds: every index against the bounds of its array, which may lie within a red zone's."""
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O0", "-g1")

PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int SYMBOL(void *const *buffers, const int64_t *dims, void *workspace, int threads);
int64_t SYMBOL_workspace(const int64_t *dims, int threads);
#if %(prepares)d
int64_t SYMBOL_prepared(const int64_t *dims);
int SYMBOL_prepare(void *const *buffers, const int64_t *dims, int threads);
#endif

enum { BUFFERS = %(buffers)d, INPUTS = %(inputs)d, DIMS = %(dims)d, PROBLEMS = %(problems)d };
static const int64_t all_dims[PROBLEMS][DIMS + 1] = {%(all_dims)s};
static const int64_t counts[PROBLEMS][BUFFERS] = {%(counts)s};
static const int item_bytes[BUFFERS] = {%(item_bytes)s};
static const uint16_t one[BUFFERS] = {%(one)s}, fraction[BUFFERS] = {%(fraction)s}; /* of 16-bit storage */

static uint64_t state;
static double drawn(void) /* in [-1, 1) */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 11) / 4503599627370496.0 - 1;
}

static void *room(int64_t bytes)
{
    void *found = 0;
    if (posix_memalign(&found, 64, (size_t)bytes)) abort();
    memset(found, 0xff, (size_t)bytes);
    return found;
}

static void fill(void *buffer, int b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double x = drawn();
        uint16_t bits = (uint16_t)(one[b] | ((x < 0) << 15) | ((uint16_t)(state >> 40) & fraction[b]));
        if (item_bytes[b] == 8) ((double *)buffer)[i] = x;
        if (item_bytes[b] == 4) ((float *)buffer)[i] = (float)x;
        if (item_bytes[b] == 2) ((uint16_t *)buffer)[i] = bits;
    }
}

static int run(int p, int threads)
{
    void *buffers[BUFFERS + 1] = {0}, *workspace = room(SYMBOL_workspace(all_dims[p], threads));
    for (int b = 0; b < BUFFERS; b++) {
        buffers[b] = room(counts[p][b] * item_bytes[b]);
        if (b < INPUTS) fill(buffers[b], b, counts[p][b]);
    }
#if %(prepares)d
    buffers[BUFFERS] = room(SYMBOL_prepared(all_dims[p]));
    if (SYMBOL_prepare(buffers, all_dims[p], threads)) return -1;
#endif
    int code = SYMBOL(buffers, all_dims[p], workspace, threads);
    for (int b = 0; b <= BUFFERS; b++) free(buffers[b]);
    free(workspace);
    return code;
}

int main(void)
{
    static const int teams[] = {%(teams)s};
    for (int p = 0; p < PROBLEMS; p++)
        for (unsigned t = 0; t < sizeof teams / sizeof *teams; t++) {
            int code = run(p, teams[t]);
            if (code) return printf("error code %%d, problem %%d, %%d threads\\n", code, p, teams[t]), 1;
        }
    printf("%%d problems\\n", PROBLEMS);
    return 0;
}
"""
ONES = {"bfloat16": (0x3F80, 0x7F), "float16": (0x3C00, 0x3FF)}
"""Bits of 1.0 and of the fraction: what a 16-bit number between 1 and 2 is made of."""


class Sanitized(NamedTuple):
    """How it ended: `said` has the sanitizer's report. `problems`: how many were run."""

    status: int
    said: str
    problems: int


def gcc():
    """The newest gcc here with its sanitizers, None without one."""
    return next((one for one in compilers() if one.name.startswith("gcc")), None)


def gfortran():
    """The newest gfortran here, None without one."""
    return next((one for one in fortran_compilers() if one.name.startswith("gfortran")), None)


def program(spec, variant, problems, knobs):
    """The C program that runs these problems."""
    shapes = [spec.shapes(problem) for problem in problems]
    types = spec.types(problems[0])
    sizes = [[_product(shape[name]) for name in spec.buffers] for shape in shapes]
    dims = [entry_dims(spec, variant, problem, knobs) for problem in problems]
    ones = [ONES.get(types[name], (0, 0)) for name in spec.buffers]
    text = PROGRAM % {
        "buffers": len(spec.buffers),
        "inputs": len(spec.buffers) - len(spec.written),
        "dims": len(dims[0]),
        "problems": len(problems),
        "prepares": bool(variant.prepares),
        "all_dims": ", ".join(_row(row) for row in dims),
        "counts": ", ".join(_row(row) for row in sizes),
        "item_bytes": ", ".join(str(ITEM_BYTES[types[name]]) for name in spec.buffers),
        "one": ", ".join(str(one) for one, _ in ones),
        "fraction": ", ".join(str(fraction) for _, fraction in ones),
        "teams": ", ".join(map(str, TEAMS)),
    }
    return text.replace("SYMBOL", variant.symbol)


def _product(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def _row(values):
    return f"{{{', '.join(map(str, values))}}}"


def compiled(folder, spec, variant, problems):
    """The program of a variant with its default knobs, as far as they are valid: path, and how many problems."""
    first = problems[0]
    knobs = variant.defaults
    macros = macro_values(variant, first, knobs)
    kept = [p for p in problems if is_valid(variant, p, knobs) and macro_values(variant, p, knobs) == macros]
    assert kept, f"{variant.name} has no problem to run"
    real = REALS[first.dtype]
    defines = [f"-D{name}={value}" for name, value in (("ADV_REAL", real.name), ("ADV_DTYPE", real.storage), *macros)]
    path = os.path.join(folder, f"{variant.kernel}-{variant.name}-{first.dtype}")
    with open(f"{path}.c", "w", encoding="utf-8") as file:
        file.write(program(spec, variant, kept, knobs))
    includes = [f"-I{FRAME}", f"-I{os.path.dirname(variant.path)}"]
    made = [gcc().path, *flags("native"), *SANITIZE]
    if variant.language == "fortran":
        own = [gfortran().path, *flags("native"), *SANITIZE, *CHECKED, "-cpp", f"-J{folder}", *defines]
        _run([*own, f"-DADV_KIND={KINDS[real.name]}", "-c", variant.path, "-o", f"{path}.o"])
        _run([*made, "-std=gnu11", f"{path}.c", f"{path}.o", "-o", path, "-lgfortran", "-lm"])
    else:
        linked = link_options(openblas.find().tool) if variant.libraries else ()
        _run([*made, "-std=gnu11", *includes, *defines, f"{path}.c", variant.path, "-o", path, "-lm", *linked])
    return path, len(kept)


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def sanitized(path, problems):
    """Run it. Leaks are not looked for: OpenMP runtimes keep their teams to the end. Waiting threads sleep."""
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "OMP_WAIT_POLICY": "passive"}
    environment = {**os.environ, **options}
    done = subprocess.run([path], capture_output=True, text=True, timeout=120, check=False, env=environment)
    return Sanitized(done.returncode, done.stdout + done.stderr, problems)

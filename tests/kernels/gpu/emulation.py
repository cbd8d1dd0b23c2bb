"""CUDA variants run on a CPU, their threads as fibers (threads.h): what they compute is checked without a GPU.

    from emulation import emulated, needs_compiler, share, taken

    pytestmark = needs_compiler

    def test_the_tiled_kernel_computes_the_dnf(tmp_path):
        problem = SPEC.problem(33, "float32", batch=1, heads=2, kv_heads=1, head_dim=64)
        knobs = taken(VARIANT, problem, ADV_TILE=32)      # the defaults but for what is named
        run = emulated(tmp_path, SPEC, VARIANT, problem, knobs, {"float ex2(float x)": "return exp2f(x);"})
        assert share(run, problem, knobs, "outlier") < 1  # the worst error of all outputs, as a share of its tolerance

`emulated` compiles once for each set of macros, half a second to a second: choose problems that share theirs, such as
several n of one shape, and hand the same `run` to `share`. It launches every kernel of the file, with any buffers.
Blocks are done one after another: keep n under some hundred.

`share` holds what the bench of a device holds too: outputs begin as sentinels and must all be written, guards stand on
both sides of every operand, inputs stay as they were, the workspace is NaN but for `zeros`, and those are zero after
it. Beside that: arguments are as many as are handed over, dynamic shared memory begins as NaN and is not written
beyond its end, no shuffle reads from a lane that is not there, nobody waits in vain. Blocks need not be multiples of
32 threads. Not seen: races, and static `__shared__` memory that is read before it is written.

Functions that are assembler are replaced: keep each `asm` in a small function of its own, and give the head as it
stands in the source with the body that it has here. Bodies may use what tiles.h has: from_stored, to_stored,
from_half, to_half, from_bfloat, to_bfloat, to_tf32; multiply_tiles (m16n8k16), multiply_tf32, multiply_double;
load_matrices (ldmatrix); shared_at(address) for an address of __cvta_generic_to_shared. A copy by cp.async is a
memcpy, its commit and wait do nothing. Names that NVRTC has not (INFINITY, uint32_t, std::) do not compile here either.
"""

import atexit
import ctypes
import functools
import os
import re
import shutil
import subprocess
import tempfile
from typing import NamedTuple

import numpy as np
import pytest

from advisor.kernels.gpu import operands
from advisor.kernels.gpu.geometry import geometry
from advisor.kernels.gpu.source import options, text
from advisor.kernels.judge import compared, worst
from advisor.kernels.variant import knob_sets
from advisor.sources import short_hash

HERE = os.path.dirname(os.path.abspath(__file__))
COMMON, HEADERS = ("threads.h", "intrinsics.h"), ("tiles.h",)
"""Headers that know no macro of a variant, and those that do."""
FLAGS = ("-std=c++17", "-O1", "-fno-ipa-reference", "-U_FORTIFY_SOURCE", "-fno-gnu-unique", "-w", "-fPIC", f"-I{HERE}")

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")

ASSEMBLER = {
    "float ex2(float x)": "return exp2f(x);",
    "Vec load(const store *p)": "return *(const Vec *)p;",
    "float half_bits(unsigned short bits)": "return from_half(bits);",
}
"""Functions of headers that several kernels share -> what they do; a test adds its own."""

LIBRARIES = {}
"""(source, macros, symbols) -> its function: tests of one process compile nothing twice."""

RUN = """
extern "C" const char *run(unsigned which, const Call *call) {
  switch (which) {
CASES
  }
  return "no such kernel";
}
"""

DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s+)?([\w:<>,\s]+?)\s+(\w+)\s*\[\]\s*;"
)
"""`extern __shared__ T name[];`"""


class Triple(ctypes.Structure):
    """Three extents, as in threads.h."""

    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


class Call(ctypes.Structure):
    """One launch, as in threads.h."""

    _fields_ = [
        ("pointers", ctypes.POINTER(ctypes.c_void_p)),
        ("numbers", ctypes.POINTER(ctypes.c_int)),
        ("pointer_count", ctypes.c_uint),
        ("number_count", ctypes.c_uint),
        ("grid", Triple),
        ("block", ctypes.c_uint),
        ("shared", ctypes.c_uint),
    ]


class Emulated(NamedTuple):
    """A compiled variant with one set of macros; `run(which, call)` launches one of its kernels."""

    spec: object
    variant: object
    macros: tuple[str, ...]
    run: object


def taken(variant, problem, **named):
    """The knob set that has these values, and the defaults elsewhere where there is a choice."""
    fitting = [one for one in knob_sets(variant, problem) if named.items() <= dict(one).items()]
    usual = dict(variant.defaults)
    return max(fitting, key=lambda one: sum(usual[name] == value for name, value in one))


def emulated(folder, spec, variant, problem, knobs, assembler=()):
    """Compile a variant for a problem and knobs.

    Args:
        folder: where its files may lie.
        spec, variant, problem, knobs: as `geometry` takes them.
        assembler: head of a function of the source -> its body here, beside ASSEMBLER.
    """
    macros = _macros(variant, problem, knobs)
    source = plain(text(variant.path, variant.source_hash), {**ASSEMBLER, **dict(assembler)})
    key = source, macros, variant.symbols
    if key not in LIBRARIES:
        LIBRARIES[key] = compiled(str(folder), *key)
    return Emulated(spec, variant, macros, LIBRARIES[key])


def share(found, problem, knobs, draw="normal", seed=7):
    """The largest error of an output as a share of its tolerance, after one call.

    Args:
        found: of `emulated`, with the macros of this problem and these knobs.
        problem: what is computed.
        knobs: of the variant.
        draw, seed: of the inputs.
    """
    spec, variant = found.spec, found.variant
    assert _macros(variant, problem, knobs) == found.macros, "compiled for other macros"
    inputs = spec.inputs(problem, seed, draw)
    (group,) = operands.make(np, spec, problem, inputs, 1)
    written = dict(zip(spec.buffers[len(inputs) :], group[len(inputs) :], strict=True))
    for one in written.values():
        operands.mark(one)
    launches = geometry(spec, variant, problem, knobs)
    space = operands.scratch(np, launches.workspace_bytes, launches.zero_bytes)
    _call(found, launches, [*group, space])
    assert all(operands.intact(one) for one in (*group, space)), "wrote outside of an operand"
    assert not space.data[: launches.zero_bytes].any(), "left something at the start of its workspace"
    same = (
        np.array_equal(one.data, inputs[name]) for name, one in zip(spec.buffers, group, strict=False) if name in inputs
    )
    assert all(same), "wrote to its inputs"
    judged = _judged(variant, written, spec.reference(problem, inputs))
    assert judged.error is not None, judged.reason
    return judged.error / judged.tolerance


def _judged(variant, written, reference):
    found = []
    for name, one in written.items():
        expected, missing = reference[name], functools.partial(operands.unwritten, one)
        found.append(compared(name, one.data, missing, expected, expected.allowed(variant.arithmetic)))
    return worst(found)


def _call(found, launches, blocks):
    pointers = (ctypes.c_void_p * len(blocks))(*(one.data.ctypes.data for one in blocks))
    numbers = (ctypes.c_int * len(launches.numbers))(*launches.numbers)
    for which, (grid, block, shared) in enumerate(launches.extents):
        call = Call(pointers, numbers, len(blocks), len(launches.numbers), Triple(*grid), block, shared)
        fault = found.run(which, ctypes.byref(call))
        assert not fault, f"{found.variant.symbols[which]}: {fault.decode()}"


def plain(source, assembler):
    """The source without assembler, and with dynamic shared memory as the one array that it is here."""
    for head, body in assembler.items():
        start = source.find(head)
        if start >= 0:
            source = f"{source[:start]}{head} {{ {body} }}{source[_end(source, start + len(head)) :]}"
    source = DYNAMIC.sub(r"\1 *const \2 = (\1 *)dynamic_shared;", source)
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)
    left = re.search(r"[^\n]*\basm\b[^\n]*", code)
    assert left is None, f"assembler that no body stands for: {left[0]}"
    return source


def _end(source, start):
    """Behind the brace that closes the first one after `start`."""
    depth = 0
    for found in re.finditer(r"[{}]", source[start:]):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return start + found.end()
    raise AssertionError("a function without an end")


def _macros(variant, problem, knobs):
    return tuple(word for word in options(variant, problem, knobs) if word.startswith("-D"))


def compiled(folder, source, macros, symbols):
    """The entries as one function of a library."""
    name = os.path.join(folder, short_hash(repr((source, macros)).encode()))
    cases = "\n".join(f"  case {place}: return start({symbol}, *call);" for place, symbol in enumerate(symbols))
    head = "".join(f'#include "{header}"\n' for header in HEADERS)
    with open(f"{name}.cpp", "w", encoding="utf-8") as file:
        file.write(f"{head}{source}\n{RUN.replace('CASES', cases)}")
    _compile(*macros, "-include", _common(), "-shared", f"{name}.cpp", "-o", f"{name}.so")
    run = ctypes.CDLL(f"{name}.so").run
    run.restype = ctypes.c_char_p
    return run


@functools.cache
def _common():
    """The headers of all kernels, compiled once a process: half of the time that one kernel takes."""
    path = os.path.join(_folder(), "common.h")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{header}"\n' for header in COMMON)
    _compile("-x", "c++-header", path, "-o", f"{path}.gch")
    return path


@functools.cache
def _folder():
    """A folder that goes when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="emulation-")
    atexit.register(folder.cleanup)
    return folder.name


def _compile(*words):
    done = subprocess.run(["g++", *FLAGS, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]

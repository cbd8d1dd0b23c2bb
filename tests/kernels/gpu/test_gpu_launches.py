"""Calls of several kernels, what a header may say of them, and how the bench of a device judges outputs."""

import contextlib
import json
from typing import ClassVar

import numpy as np
import pytest
from emulation import emulated, needs_compiler, share, taken
from gpu_fixtures import FakeDriver

from advisor.errors import BadInput
from advisor.kernels import registry
from advisor.kernels.executor import Ask
from advisor.kernels.gpu.bench import Bench, Refused
from advisor.kernels.gpu.counted import CountedBench
from advisor.kernels.gpu.device import fits
from advisor.kernels.gpu.geometry import check_header, geometry, program
from advisor.kernels.gpu.messages import decode, encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_space
from advisor.kernels.header import GPU_LANGUAGES, read_variant
from advisor.kernels.libraries import FLAGS
from advisor.kernels.sixteen import narrow, widen
from advisor.kernels.spec import Elements, Expected, KernelSpec, Parameter
from advisor.kernels.variant import variants
from advisor.policy.launch.device import words
from advisor.records import Build, Choice, Gpu

H200 = Gpu(0, "GPU-0", "NVIDIA H200", 143771 << 20, 132, "9.0", 0, "disabled", 700.0)


class Columns(KernelSpec):
    """out[j] = sum over i of x[i, j], stored in the problem's dtype."""

    name = "columns"
    axes: ClassVar = {"i": "row", "j": "column"}
    parameters: ClassVar = {"width": Parameter("columns", 40)}
    dtypes = ("float64", "float32", "bfloat16", "float16")
    buffers = ("x", "out")
    written = ("out",)
    dims = ("n", "width")

    known = None

    def flops(self, problem):
        return problem.n * problem.dims()["width"]

    def elements(self, problem):
        return Elements(problem.n * problem.dims()["width"], problem.dims()["width"])

    def shapes(self, problem):
        width = problem.dims()["width"]
        return {"x": (problem.n, width), "out": (1, width)}

    def inputs(self, problem, seed, draw="normal"):
        kind = np.float64 if problem.dtype == "float64" else np.float32
        found = np.random.default_rng(seed).standard_normal(self.shapes(problem)["x"]).astype(kind)
        return {"x": narrow(found, problem.dtype)}

    def reference(self, problem, inputs):
        found = widen(inputs["x"], problem.dtype).astype(np.float64).sum(0)[None]
        tolerance = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}[problem.dtype]
        if self.known is None:
            return {"out": Expected(found, tolerance)}
        return {"out": Expected(found[:, self.known], tolerance, columns=self.known)}

    def edges(self):
        return (self.problem(1), self.problem(3))


SPEC = Columns()
TOOLS = (("cupy-14.2", "cuda"),)
LIBRARY = (*TOOLS, ("triton-3.6", "triton"), ("torch-2.11", "torch"))
HEADER = {
    "idea": "columns summed by atomics, in the order in which blocks come; the first kernel zeroes the sums",
    "language": "cuda",
    "symbol": "columns_zero",
    "dtypes": list(Columns.dtypes),
    "requires": ["sm_80"],
    "build_knobs": {"ADV_ROWS": [4, 8]},
    "defaults": {"ADV_ROWS": 4},
    "reads": "n * width",
    "writes": "width",
    "atomics": "(n + ADV_ROWS - 1) // ADV_ROWS * width",
    "mapping": "a thread a column",
    "rank": 1,
    "derived": {"parts": "(n + ADV_ROWS - 1) // ADV_ROWS"},
    "grid": ["(width + 31) // 32"],
    "block": "32",
    "workspace": "width * real_bytes",
    "then": [
        {
            "symbol": "columns_add",
            "grid": ["(width + 39) // 40", "1", "parts"],
            "block": "40",
            "shared": "40 * real_bytes",
        },
        {"symbol": "columns_store", "grid": ["1"], "block": "64"},
    ],
}
SOURCE = """
#ifndef ADV_ROWS
#define ADV_ROWS 4
#endif
#if ADV_DTYPE == 1
typedef double real; typedef double store;
#else
typedef float real;
#if ADV_DTYPE == 2
typedef float store;
#else
typedef unsigned short store;
#endif
#endif
static __device__ real wide(store bits) {
#if ADV_DTYPE < 3
  return bits;
#else
  float y; asm("cvt" : "=f"(y) : "h"(bits)); return y;
#endif
}
static __device__ store short_of(real x) {
#if ADV_DTYPE < 3
  return x;
#else
  store y; asm("cvt" : "=h"(y) : "f"(x)); return y;
#endif
}
#define ARGUMENTS const store *__restrict__ x, store *__restrict__ out, real *sums, int n, int width, int parts
extern "C" __global__ void columns_zero(ARGUMENTS) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j < width) sums[j] = 0;
}
extern "C" __global__ void __launch_bounds__(40) columns_add(ARGUMENTS) {
  extern __shared__ __align__(16) unsigned char raw[];
  real *const own = (real *)raw;
  const int j = blockIdx.x * 40 + threadIdx.x, first = blockIdx.z * ADV_ROWS;
  own[threadIdx.x] = 0;
  if (j < width)
    for (int i = first; i < min(n, first + ADV_ROWS); i++) own[threadIdx.x] += wide(x[(long long)i * width + j]);
  __syncthreads();
  if (j < width) atomicAdd(&sums[j], own[threadIdx.x]);
}
extern "C" __global__ void columns_store(ARGUMENTS) {
  for (int j = threadIdx.x; j < width; j += 64) out[j] = short_of(sums[j]);
}
"""
WIDE = {"real wide(store bits)": "return ADV_DTYPE < 3 ? bits : from_stored(bits);",
        "store short_of(real x)": "return ADV_DTYPE < 3 ? x : to_stored(x);"}  # fmt: skip


def written(folder, source=SOURCE, **changes):
    """A variant with this header and source."""
    path = folder / "summed.cu"
    path.write_text(f"/* variant {json.dumps({**HEADER, **changes})} */\n{source}")
    return read_variant(str(path), "columns")


def step(**changes):
    """The list of further launches with one entry changed."""
    first, *others = HEADER["then"]
    return [{**first, **changes}, *others]


# --- headers ---


def test_a_header_names_every_kernel_of_a_call_in_order(tmp_path):
    variant = written(tmp_path)
    assert variant.symbols == ("columns_zero", "columns_add", "columns_store")
    assert written(tmp_path, then=[]).symbols == ("columns_zero",)


BROKEN = {
    "no list": ({"then": {"symbol": "columns_add"}}, "then must hold"),
    "no object": ({"then": ["columns_add"]}, "then"),
    "an unknown key": ({"then": step(clusters="2")}, "symbol, grid, block, shared"),
    "no symbol": ({"then": step(symbol=None)}, "a C name"),
    "a symbol that is not there": ({"then": step(symbol="columns_gone")}, "columns_gone"),
    "four extents": ({"then": step(grid=["1"] * 4)}, "one to three"),
    "no grid": ({"then": step(grid=[])}, "one to three"),
    "a number for a block": ({"then": step(block=32)}, "an expression"),
    "other arguments": (
        {"source": SOURCE.replace("columns_store(ARGUMENTS)", "columns_store(ARGUMENTS, int more)")},
        "arguments of columns_zero",
    ),
    "no entry": (
        {"source": SOURCE.replace('extern "C" __global__ void columns_store', "void columns_store")},
        "__global__",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_header_that_lies_about_its_launches_is_refused(tmp_path, case):
    changes, said = BROKEN[case]
    with pytest.raises(BadInput, match=said):
        written(tmp_path, **changes)


# --- launches ---


def test_every_launch_of_a_call_is_worked_out_and_checked(tmp_path):
    variant, problem = written(tmp_path), SPEC.problem(10, width=50)
    found = geometry(SPEC, variant, problem, variant.defaults)
    assert found.extents == (((2, 1, 1), 32, 0), ((2, 1, 3), 40, 160), ((1, 1, 1), 64, 0))
    assert (found.numbers, found.workspace_bytes) == ((10, 50, 3), 200)
    for broken in ({"block": "2000"}, {"grid": ["0"]}, {"shared": "0 - 1"}):
        with pytest.raises(BadInput, match="one that a device can make"):
            geometry(SPEC, written(tmp_path, then=step(**broken)), problem, variant.defaults)


def test_launches_that_differ_in_a_later_step_are_two_choices(tmp_path):
    changes = {"run_knobs": {"wide": [32, 64]}, "defaults": {"ADV_ROWS": 4, "wide": 32}}
    variant, problem = written(tmp_path, then=step(block="wide"), **changes), SPEC.problem(10)
    programs = {program(SPEC, variant, problem, taken(variant, problem, wide=wide)) for wide in (32, 64)}
    assert len(programs) == 2


def test_what_asks_for_more_shared_memory_than_a_block_has_is_no_choice(tmp_path):
    variant = written(tmp_path, then=step(shared="ADV_ROWS * width * 512"))
    listed = {width: SPEC.problem(3, width=width) for width in (40, 64, 128)}
    found = {width: gpu_space(H200, SPEC, [variant], problem, TOOLS) for width, problem in listed.items()}
    assert [[dict(one.build.knobs)["ADV_ROWS"] for one in found[width]] for width in listed] == [[4, 8], [4], []]
    small = H200._replace(compute_capability="8.9")
    assert [len(gpu_space(small, SPEC, [variant], problem, TOOLS)) for problem in listed.values()] == [1, 0, 0]
    unknown = H200._replace(compute_capability=None)
    assert fits(geometry(SPEC, variant, listed[40], variant.defaults), unknown)
    with GpuPool(H200, SPEC, [variant]) as pool, pytest.raises(BadInput, match="a launch that NVIDIA H200 can make"):
        pool.trial(listed[128], found[40][0], Ask(1, 10.0))


@pytest.mark.parametrize("place", ["grid", "then"])
def test_more_blocks_than_a_grid_takes_are_no_choice_and_no_error(tmp_path, place):
    wide = {"grid": ["1", "width"]} if place == "grid" else {"then": step(grid=["1", "width"])}
    variant = written(tmp_path, **wide)
    found = [len(gpu_space(H200, SPEC, [variant], SPEC.problem(3, width=width), TOOLS)) for width in (40, 65536)]
    assert found[0]
    assert not found[1]
    check_header(SPEC, variant, [SPEC.problem(3, width=65536)])


def test_a_large_batch_of_heads_leaves_the_variants_that_can_launch_it():
    shape = {"batch": 4096, "heads": 32, "kv_heads": 32, "head_dim": 64}
    for kernel in ("forward", "backward", "fused", "decode"):
        spec, found = registry.spec(kernel), variants(kernel, (), GPU_LANGUAGES)
        listed = {"float32": spec.problem(64, "float32", "warm", **shape)}
        listed["bfloat16"] = spec.problem(64, "bfloat16", "warm", **shape)
        for problem in listed.values():
            names = {one.build.variant for one in gpu_space(H200, spec, found, problem, LIBRARY)}
            assert names
            assert not names & {"tiled_triton", "tiled_gluon", "tiles_triton", "fused_triton", "lane_shared"}


def test_a_launch_is_told_step_by_step():
    one = {"grid": [4, 2, 1], "block": 128, "warps": 4, "shared_bytes": 0}
    then = {"symbol": "x", "grid": [1, 1, 1], "block": 64, "warps": 2, "shared_bytes": 512}
    said = words({**one, "workspace_bytes": 0, "then": [then]})
    assert (
        said
        == "4 x 2 blocks of 4 warps (128 threads); then 1 block of 2 warps (64 threads), 512 bytes of shared memory"
    )
    assert words({**one, "then": []}) == "4 x 2 blocks of 4 warps (128 threads)"


# --- the bench ---


class Summing(FakeDriver):
    """Does the sums in the last of the three kernels, and notes what was launched."""

    def launch(self, functions, geometry, arrays):
        self.launched.append((functions, geometry.extents))
        if len(geometry.extents) == 1:
            return
        x, out, _ = arrays
        dtype = {2: "float16", 4: "float32", 8: "float64"}[x.itemsize] if x.dtype != np.uint16 else "bfloat16"
        sums = widen(x, dtype).astype(np.float64).sum(0)
        out[...] = narrow(sums.astype(np.float32), dtype) if x.itemsize == 2 else sums
        if self.spoil:
            self.spoil(out)


def trial(folder, dtype="float32", samples=2):
    """A trial of the variant of three kernels."""
    variant, problem = written(folder), SPEC.problem(10, dtype)
    choice = Choice(Build(variant.name, variant.source_hash, variant.defaults, "cupy-14.2", FLAGS), None, None)
    with GpuPool(H200, SPEC, [variant]) as pool:
        return pool._trial(problem, variant, choice, Ask(samples, 10.0), "normal")


def answered(driver, asked, spec=SPEC):
    """The bench's reply."""
    bench = Bench(driver, spec, 0)
    bench._dnf = Hosted(spec)
    bench.prepare(asked)
    return bench.trial(asked)


class Hosted:
    """The DNF on the host; this spec lies in no folder."""

    def __init__(self, spec):
        self.spec = spec

    def inputs(self, xp, problem, seed, draw):
        return self.spec.inputs(problem, seed, draw)

    def reference(self, xp, problem, arrays):
        return self.spec.reference(problem, arrays)


def test_a_call_launches_all_its_kernels_in_order_from_one_build(tmp_path):
    driver, asked = Summing(), trial(tmp_path)
    assert decode(encode(asked)) == asked
    assert answered(driver, asked).status == "ok"
    assert len(driver.built) == 1
    assert {functions for functions, _ in driver.launched} == {("columns_zero", "columns_add", "columns_store")}
    assert {extents for _, extents in driver.launched} == {asked.case.geometry.extents}


def test_counted_calls_have_one_mark_however_many_kernels_they_launch(tmp_path, monkeypatch):
    driver, asked = Summing(), trial(tmp_path)
    bench = CountedBench(driver, SPEC, 0)
    bench._dnf = Hosted(SPEC)
    bench.count(asked, 7, 2, contextlib.nullcontext)
    assert [len(extents) for _, extents in driver.launched[-4:]] == [1, 3, 1, 3]
    assert driver.launched[-2][1] == (((7, 1, 1), 1, 0),)


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_outputs_in_sixteen_bits_are_widened_before_they_are_judged(tmp_path, dtype):
    reply = answered(Summing(), trial(tmp_path, dtype))
    assert reply.status == "ok"
    assert reply.error <= reply.tolerance
    assert (reply.error > 0) == (dtype != "float64")


NAN = {"float16": 0x7E00, "bfloat16": 0x7FC0}


@pytest.mark.parametrize("dtype", NAN)
@pytest.mark.parametrize("words_", ["NaN", "over the tolerance"])
def test_a_wrong_number_in_sixteen_bits_is_found(tmp_path, dtype, words_):
    def spoil(out):
        bits = out.view(np.uint16)
        bits[0, 3] = NAN[dtype] if words_ == "NaN" else bits[0, 3] ^ 0x40

    with pytest.raises(Refused, match=words_):
        answered(Summing(spoil=spoil), trial(tmp_path, dtype))


@pytest.mark.parametrize(("place", "found"), [(5, True), (6, False)])
def test_only_the_part_of_an_output_that_the_reference_has_is_compared(tmp_path, place, found):
    spec = Columns()
    spec.known = np.array([0, 5, 39])

    def spoil(out):
        out[0, place] += 1

    asked = trial(tmp_path)
    if found:
        with pytest.raises(Refused, match="over the tolerance"):
            answered(Summing(spoil=spoil), asked, spec)
    else:
        assert answered(Summing(spoil=spoil), asked, spec).status == "ok"


# --- on the CPU, by threads as fibers ---


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_three_kernels_compute_the_sums_with_blocks_of_any_length(tmp_path, dtype):
    variant = written(tmp_path)
    run = emulated(tmp_path, SPEC, variant, SPEC.problem(1, dtype), variant.defaults, WIDE)
    for n in (1, 11):
        assert share(run, SPEC.problem(n, dtype, width=50), variant.defaults) < 1


FAULTS = {
    "waits in vain": (
        "if (threadIdx.x < 33) __syncwarp();\n  else __shfl_sync(0x3u, 0, 0);\n  __syncthreads();",
        "mask",
    ),
    "a lane that is not there": ("__shfl_xor_sync(~0u, 1, 16);", "not there"),
    "beyond the shared memory": ("((real *)raw)[40] = 1;", "beyond the dynamic"),
    "nobody comes": ("if (threadIdx.x == 0) __syncwarp(3u);\n  else __syncthreads();", "never come"),
    "shared memory that nobody wrote": ("own[threadIdx.x] += ((real *)raw)[39];", "NaN"),
}


@needs_compiler
@pytest.mark.parametrize("case", FAULTS)
def test_what_a_device_would_not_define_is_told(tmp_path, case):
    code, said = FAULTS[case]
    source = SOURCE.replace("  own[threadIdx.x] = 0;\n", f"  own[threadIdx.x] = 0;\n  {code}\n")
    source = (
        source.replace("own[threadIdx.x] = 0;\n", "if (threadIdx.x < 39) own[threadIdx.x] = 0;\n")
        if said == "NaN"
        else source
    )
    variant = written(tmp_path, source)
    run = emulated(tmp_path, SPEC, variant, SPEC.problem(3), variant.defaults, WIDE)
    with pytest.raises(AssertionError, match=said):
        share(run, SPEC.problem(3), variant.defaults)


@needs_compiler
def test_names_that_a_device_lacks_and_assembler_that_stays_do_not_compile(tmp_path):
    variant = written(tmp_path)
    with pytest.raises(AssertionError, match="no body stands for"):
        emulated(tmp_path, SPEC, variant, SPEC.problem(3), variant.defaults)
    variant = written(tmp_path, SOURCE.replace("  if (j < width) sums[j] = 0;", "  if (j < width) sums[j] = INFINITY;"))
    with pytest.raises(AssertionError, match="INFINITY"):
        emulated(tmp_path, SPEC, variant, SPEC.problem(3), variant.defaults, WIDE)

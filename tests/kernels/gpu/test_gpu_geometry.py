"""Launches, spaces and devices: all host code, for every GPU variant that there is."""

import shutil
import subprocess

import pytest
from gpu_fixtures import DECODE, H200

from advisor.errors import BadInput, BuildError, UnknownName
from advisor.kernels import registry
from advisor.kernels.gpu.child import environment
from advisor.kernels.gpu.device import find, machine_of, missing
from advisor.kernels.gpu.geometry import check_header, geometry, program
from advisor.kernels.gpu.memory import is_evicted, need_bytes, sets
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.source import as_text, options, text
from advisor.kernels.gpu.space import gpu_default, gpu_space
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import knob_sets, macro_values, variants

ALL = variants("decode", (), GPU_LANGUAGES)
CUDA = [v for v in ALL if v.language == "cuda"]
KERNELS = {kernel: variants(kernel, (), GPU_LANGUAGES) for kernel in registry.kernels()}
EVERY = [one for found in KERNELS.values() for one in found]
TOOLS = (("cupy-14.2", "cuda"), ("triton-3.6", "triton"))
SHAPES = (
    ("float32", {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}),
    ("float16", {"batch": 1, "heads": 40, "kv_heads": 8, "head_dim": 128}),
    ("bfloat16", {"batch": 1, "heads": 28, "kv_heads": 4, "head_dim": 128}),
)
STRICT = ("-Werror", "all-warnings", "-diag-suppress", "177")
"""Constants of shared headers that a variant does not use are no fault (177)."""
SIZES = (1, 2, 63, 1919, 1920, 1921, 2808, 4094, 4095, 65536, 1048576)


def problems():
    return [DECODE.problem(n, dtype, "warm", **shape) for dtype, shape in SHAPES for n in SIZES]


@pytest.mark.parametrize("variant", CUDA, ids=lambda v: v.name)
def test_the_splits_cover_every_row_once_with_none_empty(variant):
    seen = 0
    for problem in problems():
        for knobs in knob_sets(variant, problem):
            found = geometry(DECODE, variant, problem, knobs)
            derived = dict(zip([name for name, _ in variant.launch.derived], found.numbers[-5:], strict=True))
            assert derived["chunk"] % derived["rows"] == 0
            assert (derived["splits"] - 1) * derived["chunk"] < problem.n <= derived["splits"] * derived["chunk"]
            assert found.grid[0] == derived["splits"]
            assert found.zero_bytes >= 4 * found.grid[1]
            seen += 1
    assert seen > 100


@pytest.mark.parametrize("variant", EVERY, ids=lambda v: f"{v.kernel}-{v.name}")
def test_every_variant_says_how_threads_are_mapped_and_what_it_needs(variant):
    assert any(word in variant.mapping for word in ("block", "program", "PyTorch", "cuDNN", "warp", "thread"))
    assert variant.requires[0].startswith("sm_")
    assert not missing(variant, H200)
    assert missing(variant, H200._replace(compute_capability="5.2")) == variant.requires
    assert missing(variant, H200._replace(compute_capability=None)) == variant.requires


@pytest.mark.parametrize("kernel", [kernel for kernel, found in KERNELS.items() if found])
def test_every_header_of_a_kernel_has_values_on_its_edges_and_where_it_is_served(kernel):
    spec = registry.spec(kernel)
    served = [spec.problem(8192, dtype) for dtype in spec.dtypes]
    for variant in KERNELS[kernel]:
        check_header(spec, variant, (*spec.edges(), *served))


def test_a_space_has_every_program_once_and_a_default_from_it():
    for problem in problems():
        choices = gpu_space(H200, DECODE, ALL, problem, TOOLS)
        by_name = {v.name: v for v in ALL}
        programs = [program(DECODE, by_name[c.build.variant], problem, c.build.knobs) for c in choices]
        assert len(set(programs)) == len(programs) > 5
        assert {(c.team, c.process) for c in choices} == {(None, None)}
        assert gpu_default(H200, DECODE, ALL, problem, TOOLS) in choices


def test_a_grouped_default_is_the_tensor_cores_and_one_head_the_four_warps():
    paper, grouped, _ = (DECODE.problem(4096, dtype, "warm", **shape) for dtype, shape in SHAPES)
    assert gpu_default(H200, DECODE, ALL, grouped, TOOLS).build.variant == "batched_mma"
    assert gpu_default(H200, DECODE, ALL, paper, TOOLS).build.variant == "split_w4"


def test_a_device_that_can_run_nothing_is_told_what_is_needed():
    with pytest.raises(UnknownName, match="sm_80"):
        gpu_default(H200._replace(compute_capability="7.0"), DECODE, ALL, problems()[0], TOOLS)


def test_source_is_one_text_and_its_macros_are_prefixed():
    for variant in CUDA:
        source = text(variant.path, variant.source_hash)
        assert '#include "' not in source
        assert source.count("struct Partial") == 1
        problem = next(p for p in problems() if knob_sets(variant, p))
        words = options(variant, problem, knob_sets(variant, problem)[0])
        assert all(word.startswith(("-DADV_", "--std")) for word in words)
        assert len(words) == 2 + len(macro_values(variant, problem, knob_sets(variant, problem)[0]))


def test_source_that_changed_since_it_was_read_is_refused():
    with pytest.raises(BuildError, match="changed"):
        text(CUDA[0].path, "0" * 12)


def test_sets_are_more_than_the_l2_holds_when_cold():
    cold = DECODE.problem(4096, "float16", "cold", batch=1, heads=40, kv_heads=8, head_dim=128)
    unknown = H200._replace(l2_bytes=None)
    assert sets(DECODE, cold._replace(regime="warm"), unknown) == 1
    assert 2 * (60 << 20) <= sets(DECODE, cold, unknown) * 16 * 1024 * 1024 < 200 << 20
    assert need_bytes(DECODE, cold, sets(DECODE, cold, unknown)) < 2 << 30


def test_the_l2_is_that_of_the_device_where_it_is_told():
    cold = DECODE.problem(4096, "float16", "cold", batch=1, heads=40, kv_heads=8, head_dim=128)
    small, large = H200._replace(l2_bytes=4 << 20), H200._replace(l2_bytes=126 << 20)
    assert sets(DECODE, cold, small) < sets(DECODE, cold, H200._replace(l2_bytes=None)) < sets(DECODE, cold, large)
    assert sets(DECODE, cold, large) * 16 * 1024 * 1024 > 2 * (126 << 20)
    tiny = cold._replace(n=32)
    assert is_evicted(DECODE, tiny, small)
    assert not is_evicted(DECODE, tiny, large)


def test_what_does_not_fit_on_the_device_is_skipped_before_any_worker_starts():
    problem = DECODE.problem(1 << 26, "float32", "warm", batch=2, heads=40, kv_heads=8, head_dim=128)
    pool = GpuPool(H200, DECODE, ALL)
    from advisor.kernels.executor import Ask

    choice = gpu_default(H200, DECODE, ALL, problem, TOOLS)
    found = pool.measure(problem, choice, Ask(1, 1.0))
    assert found.status == "skipped"
    assert "device memory" in found.reason
    assert pool.crew.started == 0


def test_a_device_is_found_by_the_number_that_cuda_gives_it(fake_machine):
    other = H200._replace(index=1, cuda_index=0, uuid="GPU-1")
    machine = fake_machine._replace(gpus=(H200._replace(cuda_index=1), other))
    assert find(machine, "cuda:0") == other
    assert machine_of(machine, other).hardware_id == H200.device_id
    for name in ("cuda:7", "gpu0", "cuda:-1", "cuda"):
        with pytest.raises(BadInput, match="cuda:0, cuda:1"):
            find(machine, name)
    with pytest.raises(BadInput, match="tell its model"):
        find(machine._replace(gpus=(H200._replace(device_id=None),)), "cuda:0")


@pytest.fixture
def fake_machine():
    from advisor.topology import probe

    return probe.probe()


def test_a_worker_sees_its_device_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    rounded = {"NVIDIA_TF32_OVERRIDE": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    found = environment({"A": "b", "CUDA_VISIBLE_DEVICES": "3", **rounded}, "GPU-0")
    assert not set(rounded) & set(found)
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert found["A"] == "b"
    assert found["CUPY_ACCELERATORS"] == ""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.parametrize(
    "variant", [v for v in EVERY if v.language == "cuda"], ids=lambda v: f"{v.kernel}-{v.name}"
)  # fmt: skip
def test_every_variant_compiles(variant, tmp_path):
    """All is parsed and assembled; with the least of optimisation (-Ofc), for the code is not run."""
    spec = registry.spec(variant.kernel)
    listed = problems() if spec is DECODE else [spec.problem(64, dtype) for dtype in spec.dtypes] + [*spec.edges()]
    problem = next(p for p in listed if knob_sets(variant, p))
    source = tmp_path / "variant.cu"
    source.write_text(text(variant.path, variant.source_hash))
    words = options(variant, problem, knob_sets(variant, problem)[0])
    arch = max("sm_75", variant.requires[0])  # the least that a compiler of CUDA 13 knows
    done = subprocess.run(
        ["nvcc", f"-arch={arch}", "-cubin", "-Ofc=max", *STRICT, *words, "-o", str(tmp_path / "x"), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_macros_stand_at_the_head_of_the_text_and_options_are_those_of_every_program():
    words = ("--std=c++17", "-DADV_DTYPE=4", "-DADV_WARPS=8")
    assert as_text("int x;\n", words) == (
        "#define ADV_DTYPE 4\n#define ADV_WARPS 8\n#line 1\nint x;\n",
        ("--std=c++17",),
    )

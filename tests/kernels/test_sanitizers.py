"""Every native variant under the address and undefined-behaviour sanitizers, at small shapes and several team sizes."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest
from sanitizing import compiled, gcc, gfortran, sanitized

from advisor.kernels import openblas, registry
from advisor.kernels.expressions import names_in
from advisor.kernels.variant import is_valid, missing_isa, variants

pytestmark = [pytest.mark.sanitizer, pytest.mark.skipif(gcc() is None, reason="needs gcc with its sanitizers")]

KERNELS = (
    "decode",
    "forward",
    "backward",
    "fused",
    "rmsnorm",
    "rmsnorm_backward",
    "mlp",
    "mlp_backward",
    "norm_linear",
    "block",
    "block_backward",
)
SIZES = (1, 2, 17, 65)
HEADS = tuple({"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": head_dim} for head_dim in (22, 64))
"""Grouped heads. 22 ends within a vector of float and of double; variants that cannot have it take 64."""
ROWS = tuple({"batch": 2, "d_model": 22, **more} for more in ({}, {"d_ff": 37}, {"d_out": 37}))
"""RMSNorm's shape, the gated MLP's, and that of a projection: all end within a vector."""
BLOCKS = ({**HEADS[0], "d_model": 27, "d_ff": 37},)
"""A transformer block of such heads."""


def in_both_types(kernel, variant):
    """Not where indices are the same in both: in Fortran, in calls of a library, and where all vectors are those of
    headers that another kernel is run with."""
    return variant.made_with == "c" and kernel not in ("norm_linear", "block", "block_backward")


NATIVE = [
    (kernel, variant, dtype)
    for kernel in KERNELS
    for variant in variants(kernel)
    for dtype in variant.dtypes
    if variant.language in ("c", "fortran") and (dtype == "float32" or in_both_types(kernel, variant))
]


def problems(kernel, variant, dtype):
    """Causal and not where the kernel has it, all sizes of the first shape that the variant takes."""
    spec = registry.spec(kernel)
    causal = [{"causal": 0}, {"causal": 1}] if "causal" in spec.parameters else [{}]
    for shape in (shape for shape in (*HEADS, *ROWS, *BLOCKS) if set(shape) == set(spec.parameters) - {"causal"}):
        found = [spec.problem(n, dtype, **shape, **more) for more in causal for n in SIZES]
        valid = [problem for problem in found if is_valid(variant, problem, variant.defaults)]
        if valid:
            return valid
    raise AssertionError(f"{variant.name} takes none of the shapes")


def lacking(variant):
    """What a variant is made with beside gcc, where that is not here."""
    if variant.language == "fortran" and gfortran() is None:
        return "gfortran"
    return openblas.find().reason if variant.libraries else ""


@pytest.mark.parametrize(
    ("kernel", "variant", "dtype"),
    NATIVE,
    ids=[f"{kernel}-{variant.name}-{dtype}" for kernel, variant, dtype in NATIVE],
)
def test_a_variant_stays_inside_its_buffers_and_the_language(tmp_path, kernel, variant, dtype):
    """Each compiles its own program: what is compiled ahead for all is compiled by every process that runs a few."""
    missing = missing_isa(variant, fixtures.here())
    if missing:
        pytest.skip(f"{variant.name} needs {' '.join(missing)}")
    if lacking(variant):
        pytest.skip(f"needs {lacking(variant)}")
    found = sanitized(*compiled(str(tmp_path), registry.spec(kernel), variant, problems(kernel, variant, dtype)))
    assert found.status == 0, found.said[-3000:]
    assert found.said == f"{found.problems} problems\n"
    for_few_rows = any("n" in names_in(rule) for rule in variant.valid)
    assert found.problems >= (2 if for_few_rows else len(SIZES))


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        (fixtures.good("plain"), "4 problems"),
        (fixtures.bad("overrun"), "heap-buffer-overflow"),
        (fixtures.bad("workspace_overrun"), "heap-buffer-overflow"),
        (fixtures.bad("reads_past"), "heap-buffer-overflow"),
        (fixtures.bad("overflows"), "signed integer overflow"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_sanitizers_see_what_is_wrong(tmp_path, variant, said):
    spec = fixtures.scale()
    found = sanitized(*compiled(str(tmp_path), spec, variant, [spec.problem(n, width=3) for n in SIZES]))
    assert said in found.said
    assert (found.status == 0) == (variant.name == "plain")

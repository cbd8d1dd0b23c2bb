"""Variants that rearrange constant inputs once: declared, done before the clock for every set, within their room."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant

SOURCE = """/* variant {
  "idea": "adds what it found when it prepared", "language": "c", "symbol": "scale_kept",
  "dtypes": ["float32", "float64"], "prepares": ["x"],
  "reads": "n * width", "writes": "n * width", "mapping": "one thread", "rank": 50
} */
#include "advisor.h"

int64_t scale_kept_workspace(const int64_t *dims, int threads) { (void)dims; (void)threads; return 0; }

/* First whose x it was made of, then the numbers. */
int64_t scale_kept_prepared(const int64_t *dims) { return 64 + dims[0] * dims[1] * (int64_t)sizeof(ADV_REAL); }

int scale_kept_prepare(void *const *buffers, const int64_t *dims, int threads)
{
    const ADV_REAL *x = buffers[0];
    ADV_REAL *kept = (ADV_REAL *)((char *)buffers[2] + 64);
    (void)threads;
    *(const void **)buffers[2] = x;
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) kept[i] = 3 * x[i];
    return 0;
}

int scale_kept(void *const *buffers, const int64_t *dims, void *workspace, int threads)
{
    const ADV_REAL *kept = (const ADV_REAL *)((const char *)buffers[2] + 64);
    ADV_REAL *y = buffers[1];
    (void)workspace;
    if (*(void *const *)buffers[2] != buffers[0]) return 9;
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) y[i] = kept[i] + 1;
    return 0;
}
"""


SCALE = type(fixtures.scale())
CONSTANT = type("Constant", (SCALE,), {"constant": ("x",), "__module__": SCALE.__module__})()
"""The test kernel with a constant input. Workers load it from the file of the test kernel."""


def made(folder, old="", new=""):
    assert old in SOURCE
    path = folder / "kept.c"
    path.write_text(SOURCE.replace(old, new) if old else SOURCE)
    return read_variant(str(path), "scale")


def checked(variant, n=65, spec=None, threads=2):
    with WorkerPool(fixtures.here(), spec or CONSTANT, [variant]) as pool:
        return pool.measure(fixtures.problem(n), fixtures.choice(variant, threads), Ask(2, 60.0))


def test_it_is_prepared_before_it_is_called(tmp_path):
    found = checked(made(tmp_path))
    assert found.status == "ok", found.reason
    assert found.samples_ns


def test_every_set_has_its_own(tmp_path):
    """Cold: calls go round sets of operands, and each finds what was made of its own x, or says 9."""
    variant = made(tmp_path)
    problem = fixtures.problem(4096)._replace(regime="cold")
    with WorkerPool(fixtures.here(), CONSTANT, [variant]) as pool:
        found = pool.measure(problem, fixtures.choice(variant), Ask(2, 60.0))
    assert found.status == "ok", found.reason
    assert dict(found.conditions)["sets"] > 1


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("kept[i] = 3 * x[i];\n    return 0;", "kept[i] = 3 * x[i];\n    return 7;", "crashed", "7"),
        ("kept[i] = 3 * x[i];", "kept[i + 1] = 3 * x[i];", "wrong", "outside of its workspace"),
        ("kept[i] = 3 * x[i];", "if (i) kept[i] = 3 * x[i];", "wrong", "NaN"),
        ("return 64 + dims[0] * dims[1] * (int64_t)sizeof(ADV_REAL);", "return -1;", "crashed", "workspace"),
        ("= x;", "= (const char *)x + 1;", "crashed", "9"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path, old, new, status, said):
    found = checked(made(tmp_path, old, new))
    assert (found.status, said in found.reason) == (status, True), found.reason


def test_an_input_that_changes_may_not_be_prepared(tmp_path):
    found = checked(made(tmp_path), spec=fixtures.scale())
    assert found.status == "skipped"
    assert "stays the same" in found.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (', "prepares": ["x"]', ""),
        ("int scale_kept_prepare(", "int scale_kept_arrange("),
        ("int64_t scale_kept_prepared(", "int64_t scale_kept_size("),
        ('["x"]', "[1]"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, old, new):
    with pytest.raises(BadInput, match="prepares"):
        made(tmp_path, old, new)


def test_the_header_is_read(tmp_path):
    assert made(tmp_path).prepares == ("x",)

"""The kernel of docs/add-a-kernel.md is read, verified in both dtypes, and its tolerance is no formality."""

from __future__ import annotations

import os
import re

import kernel_fixtures as fixtures
import numpy as np
import pytest

from advisor.kernels import registry
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import variants
from advisor.kernels.verify import verify

PAGE = os.path.join(os.path.dirname(fixtures.DATA), os.pardir, "docs", "add-a-kernel.md")


@pytest.fixture(scope="module")
def page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


@pytest.fixture(scope="module")
def folder(page, tmp_path_factory):
    """A --kernel-dir with the files of the page."""
    made = tmp_path_factory.mktemp("mine")
    kernel = made / "matvec"
    kernel.mkdir()
    (kernel / "spec.py").write_text(re.search(r"```python\n(.*?)```", page, re.S)[1])
    (kernel / "rows.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
    return str(made)


def test_the_example_is_a_kernel_whose_variant_is_right(folder):
    spec = registry.spec("matvec", [folder])
    problems = [problem for problem in spec.edges() if problem.n in (1, 65)]
    found = verify(fixtures.here(), spec, variants("matvec", [folder]), problems)
    assert {(row.variant, row.status, row.problem.dtype) for row in found} == {
        ("rows", "ok", "float32"),
        ("rows", "ok", "float64"),
    }
    assert {row.problem.dims()["width"] for row in found} == {1, 7, 64}


@pytest.mark.parametrize("n", [1, 65])
def test_the_tolerance_of_the_example_lets_rounding_pass_and_a_lost_term_not(folder, n):
    spec = registry.spec("matvec", [folder])
    problem = spec.problem(n, "float32")
    inputs = spec.inputs(problem, 3)
    values, tolerance, rows, *_ = spec.reference(problem, inputs)["y"]
    assert rows is None

    def error(y):
        return (np.abs(y - values) / np.maximum(1, np.abs(values))).max()

    assert error(inputs["a"] @ inputs["x"]) <= tolerance
    assert error(inputs["a"][:, :-1] @ inputs["x"][:-1]) > tolerance


def test_the_table_has_all_that_a_spec_is_made_of(page):
    own = {name for name in vars(KernelSpec) if not name.startswith("_")} | set(KernelSpec.__annotations__)
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    assert own - {"problem", "shape_label"} - set(re.findall(r"`(\w+)`", rows)) == set()

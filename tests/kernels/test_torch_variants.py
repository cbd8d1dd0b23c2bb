"""PyTorch's calls as variants: right on edges, on the threads and CPUs asked for, never the default."""

from __future__ import annotations

import importlib.util
import os
import re

import calling as library
import kernel_fixtures as fixtures
import pytest

from advisor.kernels import registry
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import read_variant, variants
from advisor.kernels.verify import rows
from advisor.search.space import default_choice, space_options

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
ATTENTION = ("forward", "decode", "backward", "fused")
CHECK_S = 60.0


@needs_torch
@pytest.mark.parametrize("kernel", ATTENTION)
def test_torch_agrees_with_the_dnf(kernel):
    """Edge problems of every dtype, plain and grouped, both draws, several teams."""
    spec = registry.spec(kernel)
    own = [one for one in variants(kernel) if one.language == "python"]
    assert {one.name for one in own} == {"torch_sdpa", "torch_matmul"}
    chosen = {(p.dtype, dict(p.shape)["heads"] > dict(p.shape)["kv_heads"]): p for p in spec.edges() if p.n in (17, 63)}
    assert len(chosen) == 2 * len(spec.dtypes)
    found = list(rows(fixtures.here(), spec, own, list(chosen.values())))
    assert [row for row in found if row.status != "ok"] == []
    assert {(row.variant, row.problem.dtype) for row in found} == {(v.name, d) for v in own for d in v.dtypes}


@needs_torch
def test_torch_runs_on_the_threads_and_cpus_that_were_asked_for():
    """The frame's team is the library's own: the threads that worked are the pinned ones, and no others."""
    machine, spec = fixtures.here(), registry.spec("forward")
    (one,) = [v for v in variants("forward") if v.name == "torch_sdpa"]
    teams = sorted({1, min(2, len(machine.allowed_cpus))})
    with WorkerPool(machine, spec, [one]) as pool:
        for threads in [*teams, 1]:
            got = pool.measure(spec.problem(300), library.choice(one, threads), Ask(2, CHECK_S, 0.03))
            assert got.status == "ok", got.reason
            assert dict(got.conditions)["openmp"] == ("libgomp",)
            assert dict(got.conditions)["cpus_observed"] == machine.allowed_cpus[:threads]
            assert got.threads_observed == threads


@needs_torch
def test_the_example_of_the_page_runs(tmp_path):
    page = os.path.join(os.path.dirname(fixtures.DATA), os.pardir, "docs", "add-a-variant.md")
    with open(page, encoding="utf-8") as file:
        (tmp_path / "example.py").write_text(re.search(r"```python\n(\"\"\"variant.*?)```", file.read(), re.S)[1])
    (example,) = [one for one in variants("scale", [fixtures.KERNELS, str(tmp_path)]) if one.name == "example"]
    with WorkerPool(fixtures.here(), fixtures.scale(), [example]) as pool:
        got = pool.measure(fixtures.problem(65), library.choice(example), Ask(1, CHECK_S))
    assert got.status == "ok", got.reason


@needs_torch
@pytest.mark.skipif(not compilers(), reason="no C compiler with OpenMP here: there is no other default")
def test_torch_is_never_the_default_of_an_attention_kernel():
    machine = fixtures.here()
    options = space_options(machine)
    for kernel in ATTENTION:
        spec, found = registry.spec(kernel), variants(kernel)
        for dtype in sorted({dtype for one in found for dtype in one.dtypes}):
            chosen = default_choice(machine, spec, found, spec.problem(64, dtype), options)
            assert not chosen.build.variant.startswith("torch")


def test_a_source_of_ours_names_no_other_file():
    """A variant is one file: what it imports of ours would not be in its hash."""
    for kernel in ATTENTION:
        for one in variants(kernel):
            if one.language == "python":
                with open(one.path, encoding="utf-8") as file:
                    assert "advisor." not in file.read().split('"""', 2)[2]
                assert read_variant(one.path, kernel) == one
                assert os.path.basename(one.path).startswith("torch_")

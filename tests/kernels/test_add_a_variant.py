"""The example of docs/add-a-variant.md is read, built and right."""

from __future__ import annotations

import os
import re

import kernel_fixtures as fixtures
import pytest

from advisor.kernels import variant as module
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import variants

PAGE = os.path.join(os.path.dirname(fixtures.DATA), os.pardir, "docs", "add-a-variant.md")


@pytest.fixture(scope="module")
def page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def test_the_example_runs(page, tmp_path):
    kernel = tmp_path / "scale"
    kernel.mkdir()
    with open(os.path.join(fixtures.KERNELS, "scale", "spec.py"), encoding="utf-8") as file:
        (kernel / "spec.py").write_text(file.read())
    (tmp_path / "example.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
    (example,) = variants("scale", [str(tmp_path)])
    with WorkerPool(fixtures.here(), fixtures.scale(), [example]) as pool:
        got = pool.measure(fixtures.problem(65), fixtures.choice(example), Ask(1, 60.0))
    assert got.status == "ok", got.reason


def test_the_table_has_every_key(page):
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    for key in (*module._KINDS, "kernel"):
        assert f"`{key}`" in rows

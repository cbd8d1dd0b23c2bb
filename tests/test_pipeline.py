"""The stages in a row: which kernels and shapes are meant, what is refused before time is spent."""

from __future__ import annotations

import pytest
from commanding import SCALE

from advisor import pipeline
from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry

DIRS = (SCALE[-1],)


def test_names_of_kernels_come_from_folders_and_tables():
    assert "scale" in pipeline.kernel_names("all", DIRS)
    assert pipeline.kernel_names("scale,scale", DIRS) == ("scale",)
    assert pipeline.kernel_names("tabled", tabled=["tabled"]) == ("tabled",)
    with pytest.raises(UnknownName, match=r"allowed: .*decode.*, all"):
        pipeline.kernel_names("scale")


def test_operands_that_do_not_fit_are_refused_with_what_would():
    spec = registry.spec("decode")
    pipeline.check_memory(spec, [spec.problem(1024)])
    with pytest.raises(BadInput, match="about n = "):
        pipeline.check_memory(spec, [spec.problem(1024), spec.problem(10**12)])

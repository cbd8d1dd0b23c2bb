"""The stages in a row: which kernels and shapes are meant, what is refused before time is spent."""

from __future__ import annotations

import os

import pytest
from commanding import SCALE
from tabling import SHAPE, choice, race

from advisor import paths, pipeline
from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.policy import store
from advisor.policy.learn import Made, learn
from advisor.search.request import Silent
from advisor.topology import probe

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


# --- which tables answer ---


@pytest.mark.parametrize(
    ("axes", "match"), [({"dtype": "int8"}, "this dtype"), ({"heads": 3, "kv_heads": 2}, "multiple of kv_heads")]
)
@pytest.mark.parametrize("kernels", ["forward", "forward,decode"])
def test_nonsense_is_no_question_for_a_rule(tmp_path, monkeypatch, kernels, axes, match):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=match):
        pipeline.recommend(kernels, [64], axes, pipeline.Where())


def test_what_only_some_kernels_have_is_asked_of_those(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    _, answers = pipeline.recommend("forward,decode", [64], {"dtype": "bfloat16"}, pipeline.Where())
    assert [(answer.kernel, answer.basis) for answer, _ in answers] == [("decode", "DEFAULT")]


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A home folder with a table of decode for this machine. Its times are made up."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    here = probe.probe()
    verdicts = [race(n, {choice("split", threads=1): n * 10.0}) for n in (1024, 4096)]
    folder = paths.writable(paths.machine_dir(here.hardware_id, here.limits_id))
    store.save_table(
        os.path.join(folder, "decode.table.json"), learn(here, verdicts, [], Made("2026-01-02T03:04:05Z", ()))
    )


@pytest.mark.usefixtures("table")
def test_an_axis_narrows_the_answers_of_the_kernels_that_have_it():
    _, answers = pipeline.recommend("decode,forward", [1024], {"causal": 1, "heads": SHAPE["heads"]}, pipeline.Where())
    assert [(answer.kernel, dict(answer.shape_pairs)) for answer, _ in answers] == [("decode", SHAPE)]
    _, answers = pipeline.recommend("forward", [1024], {"causal": 1}, pipeline.Where())
    assert [(answer.kernel, answer.basis) for answer, _ in answers] == [("forward", "DEFAULT")]
    assert "no table for forward" in answers[0][0].why
    _, answers = pipeline.recommend("decode", [1024], {"heads": SHAPE["heads"] + 1}, pipeline.Where())
    assert [answer.basis for answer, _ in answers] == ["DEFAULT"]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("axes", [{"causal": 1}, {"width": 2, "dtype": "float32"}])
def test_an_axis_that_no_kernel_has_is_refused(axes):
    with pytest.raises(BadInput, match="decode must have the axis"):
        pipeline.recommend("decode", [1024], axes, pipeline.Where())


# --- what is verified ---


def rows(**asked):
    return pipeline.verify(pipeline.VerifyRequest(kernel_dirs=DIRS, **asked), Silent())


def test_a_dtype_and_a_variant_narrow_what_is_verified_to_the_kernels_that_have_them(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path_factory.mktemp("cache")))
    found = rows(kernels=("decode", "scale"), sizes=(9,), dtype="float64", variants=("rows",))
    assert {(kernel, row.variant, row.problem.dtype) for kernel, row in found} == {("scale", "rows", "float64")}
    assert 9 in {row.problem.n for _, row in found}
    assert {row.status for _, row in found} == {"ok"}


def test_a_variant_or_dtype_that_no_kernel_has_is_refused():
    with pytest.raises(UnknownName, match=r"no such variant; got 'best'; allowed: .*plain"):
        rows(kernels=("scale", "decode"), variants=("plain", "best"))
    with pytest.raises(
        BadInput, match=r"scale must be defined for the dtype; got 'bfloat16'; allowed: float32, float64"
    ):
        rows(kernels=("scale",), dtype="bfloat16")


@pytest.mark.parametrize("kernels", [("forward",), ("forward", "mlp"), ("scale", "forward")])
def test_a_dtype_in_which_nothing_could_be_checked_here_is_refused(kernels):
    with pytest.raises(BadInput, match=r"forward must have a variant in the dtype for CPUs; got 'float16'.*cuda:0"):
        rows(kernels=kernels, dtype="float16")

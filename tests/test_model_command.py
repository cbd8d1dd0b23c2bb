"""All kernels of a small model, tuned and asked for by the real command."""

from __future__ import annotations

import json

import pytest
from commanding import Site

from advisor.kernels import registry

TINY = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def site(tmp_path, tmp_path_factory):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return Site(str(tmp_path / "home"), str(tmp_path_factory.getbasetemp() / "model-cache"))


def test_a_few_kernels_of_a_model_are_tuned_in_one_command(site, tmp_path):
    model = ("--model-config", str(tmp_path))
    words = ("tune", "--kernel", "rmsnorm,decode", *model, "--n", "16", "--quick", "--budget", "4s", "--json")
    done = site.advisor(*words)
    assert done.status in (0, 3), done.err
    assert "bfloat16" in done.err
    found = {one["kernel"]: one for one in json.loads(done.out)}
    assert found["decode"]["problems"][0]["dtype"] == "bfloat16"
    assert found["rmsnorm"]["problems"][0]["shape"] == {"batch": 1, "d_model": 64}
    asked = site.advisor("recommend", "--n", "16", *model, "--json")
    assert asked.status == 0, asked.err
    answers = {one["kernel"] for one in json.loads(asked.out)["answers"]}
    assert {"decode", "rmsnorm", "mlp", "forward"} <= answers


@pytest.mark.slow
def test_every_kernel_of_a_model_has_a_table_or_says_what_is_missing(site, tmp_path):
    """The budget is far too small for all of them, on two busy cores for most: what there was no time for is told."""
    done = site.advisor("tune", "--kernel", "all", "--model-config", str(tmp_path), "--budget", "9s", "--json")
    assert done.status in (0, 3), done.err
    found = {one["kernel"]: one for one in json.loads(done.out)}
    assert set(found) == set(registry.kernels())
    assert all(one["best"] or one["missing"] for one in found.values())
    assert all(bool(one["table_path"]) == bool(one["best"]) for one in found.values())
    sheet = site.advisor("recommend", "--n", "64", "--model-config", str(tmp_path)).out
    for words in ("prefill", "decode:", "training"):
        assert words in sheet


def test_what_makes_no_sense_is_refused_in_one_line(site, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "num_key_value_heads": 3}))
    for command in ("tune", "recommend"):
        done = site.advisor(command, "--n", "16", "--model-config", str(tmp_path))
        assert done.status == 1
        assert "num_key_value_heads" in done.err
        assert "Traceback" not in done.err

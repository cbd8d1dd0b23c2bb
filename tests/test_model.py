"""The shapes of a model, from configurations as their publishers write them."""

from __future__ import annotations

import json

import pytest

from advisor import model
from advisor.errors import BadInput
from advisor.kernels import registry

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
QWEN3 = {**LLAMA, "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16}
QWEN3 = {**QWEN3, "head_dim": 128, "sliding_window": None, "use_sliding_window": False}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 4096, "head_dim": None}
GEMMA = {
    "model_type": "gemma2",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-06,
    "sliding_window": 4096,
    "torch_dtype": "float32",
}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_act": "gelu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 8,
    "layer_norm_eps": 1e-05,
    "torch_dtype": "float16",
}
GPT2 = {"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768, "n_head": 12, "n_inner": None}
GPT2 = {**GPT2, "n_layer": 12, "n_positions": 1024, "layer_norm_epsilon": 1e-05}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512, "n_routed_experts": 256}


def parsed(document, **given):
    return model.parse(document, given)


def shape(document, kernel, **given):
    return dict(model.fit(parsed(document, **given), registry.spec(kernel)).shape)


def without(document, **changes):
    return {key: value for key, value in {**document, **changes}.items() if value != "gone"}


# --- what is read ---


def test_each_kernel_takes_the_entries_of_its_own_dnf():
    assert shape(LLAMA, "decode") == {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128}
    assert shape(LLAMA, "forward") == {**shape(LLAMA, "decode"), "causal": 1}
    assert shape(LLAMA, "mlp_backward") == {"batch": 1, "d_model": 4096, "d_ff": 14336}
    assert shape(LLAMA, "rmsnorm") == {"batch": 1, "d_model": 4096}
    assert shape(LLAMA, "norm_linear") == {"batch": 1, "d_model": 4096, "d_out": (32 + 2 * 8) * 128}
    assert shape(LLAMA, "block") == {**shape(LLAMA, "forward"), "d_model": 4096, "d_ff": 14336}
    assert dict(model.fit(parsed(LLAMA), registry.spec("rmsnorm"), batch=4).shape)["batch"] == 4


@pytest.mark.parametrize(
    ("document", "heads"),
    [
        (LLAMA, (32, 8, 128)),
        (QWEN3, (16, 8, 128)),  # its heads are wider than its rows
        (MISTRAL, (32, 8, 128)),  # null: told by the others
        (GEMMA, (8, 4, 256)),
        (NEOX, (8, 8, 256)),  # as many heads of k and v
        (GPT2, (12, 12, 64)),
    ],
)
def test_heads_are_those_of_the_model(document, heads):
    found = dict(parsed(document).entries)
    assert tuple(found[entry] for entry in ("heads", "kv_heads", "head_dim")) == heads


def test_a_nested_text_model_counts_and_what_is_given_counts_more():
    nested = {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {**GEMMA, "torch_dtype": None}}
    assert shape(nested, "decode")["head_dim"] == 256
    assert shape(without(LLAMA, num_attention_heads="gone"), "decode", heads=16, head_dim=128)["heads"] == 16
    assert shape(LLAMA, "forward", causal=0)["causal"] == 0


@pytest.mark.parametrize(
    ("said", "found"),
    [("bfloat16", "bfloat16"), ("torch.float16", "float16"), (None, None), ("auto", None), ("float8_e4m3fn", None)],
)
def test_the_dtype_is_the_models_where_a_kernel_has_it(said, found):
    known = parsed({**LLAMA, "torch_dtype": said})
    assert known.dtype == found
    assert model.fit(known, registry.spec("decode")).dtype == (found or "float32")
    for kernel in ("forward", "mlp"):
        on_cpus = model.fit(known, registry.spec(kernel), served=("float32", "float64"))
        assert (on_cpus.dtype, on_cpus.replaced) == ("float32", found is not None)


def test_a_dtype_that_was_asked_for_leaves_out_kernels_that_no_variant_serves_in_it():
    left = model.fit(parsed(LLAMA), registry.spec("forward"), dtype="float16", served=("float32",))
    assert not left.shape
    assert "forward must have a variant in the dtype; got float16" in left.left_out.replace("'", "")


# --- what is not covered is said ---


def test_what_a_model_does_another_way_is_said():
    assert parsed(LLAMA).notes == ()
    assert "gates its MLP by gelu_pytorch_tanh" in parsed(GEMMA).notes[0]
    assert "look back over 4096 rows" in parsed(MISTRAL).notes[0]
    assert "LayerNorm" in parsed(NEOX).notes[0]
    assert "quantised" in parsed({**LLAMA, "quantization_config": {"bits": 4}}).notes[0]
    assert "float8" in parsed({**LLAMA, "torch_dtype": "float8_e4m3fn"}).notes[0]


@pytest.mark.parametrize(
    ("document", "kernel", "why"),
    [
        (MIXTRAL, "mlp", "mixture of 8 experts"),
        (DEEPSEEK, "decode", "latent"),
        (NEOX, "mlp", "no gate (gelu)"),
        (without(LLAMA, hidden_act="gone"), "mlp_backward", "no activation is named"),
    ],
)
def test_a_kernel_that_the_model_has_no_use_for_is_left_out_with_the_reason(document, kernel, why):
    found = model.fit(parsed(document), registry.spec(kernel))
    assert found.shape == ()
    assert why in found.left_out
    assert model.fit(parsed(document), registry.spec("rmsnorm")).left_out == ""


def test_one_expert_is_none_and_a_width_given_by_hand_stands():
    assert shape({**LLAMA, "num_experts": 1}, "mlp")["d_ff"] == 14336
    assert shape(MIXTRAL, "mlp", d_ff=14336)["d_ff"] == 14336


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": "gone"}, "must say hidden_size"),
        ({"num_attention_heads": None}, "--heads"),
        ({"intermediate_size": "gone"}, "must say intermediate_size"),
        ({"num_key_value_heads": 5}, "must be a multiple of num_key_value_heads"),
        ({"hidden_size": 4100}, "without head_dim"),
        ({"hidden_size": 4096.0}, "whole number"),
        ({"hidden_size": True}, "whole number"),
        ({"intermediate_size": 10**12}, "whole number"),
        ({"num_key_value_heads": -8}, "whole number"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_by_its_key(changes, said):
    with pytest.raises(BadInput, match=said):
        parsed(without(LLAMA, **changes))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"[1]", "holds a list"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (model.MOST_BYTES + 1), "larger than"),
    ],
)
def test_another_file_is_refused(tmp_path, content, said):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(BadInput, match=said):
        model.read(str(tmp_path / "config.json"))


def test_a_folder_stands_for_the_configuration_in_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert model.read(str(tmp_path)) == parsed(LLAMA)
    with pytest.raises(BadInput, match="No such file"):
        model.read(str(tmp_path / "none"))

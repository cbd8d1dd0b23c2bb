"""Model: the shapes of one transformer, read from the config.json that Hugging Face keeps beside its weights.

A model gives values for entries of a fixed shape; each kernel takes those that its own DNF has. What the kernels here
do not compute as the model does is said in `notes`; an entry that makes no sense for it (the width of an MLP of
experts) has a reason in `without` in the place of a value, and kernels that need it are left out.

Source of keys: `PretrainedConfig` of transformers, and the configurations of Llama, Mistral, Qwen2, Qwen3, Gemma, Phi,
GPT-NeoX, Mixtral, DeepSeek and GPT-2 there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from advisor.errors import BadInput
from advisor.kernels.spec import KernelSpec
from advisor.records import DTYPES
from advisor.words import many

MOST_BYTES = 1 << 20
"""A config.json has some kilobytes; what is larger is another file."""

MOST = 1 << 24
"""Of any number in it: the widest vocabularies stay below, and products of a few stay exact."""

FILE = "config.json"

NAMES = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_dim": ("head_dim",),
    "d_ff": ("intermediate_size", "n_inner", "ffn_dim"),
}
"""Entry of a shape -> the keys that it may have, the usual one first."""

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function")
LATENT = "kv_lora_rank"
"""A model with it keeps its cache as a latent vector for all heads: multi-head latent attention."""

SILU = ("silu", "swish", "swiglu")
GATED_TYPES = ("gemma",)
"""Beginnings of `model_type` of models whose MLP is gated by another function than silu."""

DTYPE_NAMES = {**{name: name for name in DTYPES}, "half": "float16", "float": "float32", "double": "float64"}

Entries = dict[str, int]


class Model(NamedTuple):
    """A model's shapes.

    Attributes:
        name: its `model_type`, or "model".
        entries: entry of a shape -> value: d_model, d_ff, heads, kv_heads, head_dim, causal, and d_out, the outputs of
            the projection of queries, keys and values together.
        without: entry -> why it has no value.
        layers, context: layers, and the longest sequence; for information; None where that is not told.
        dtype: of its weights; None where that is not told, or no kernel here has it.
        notes: what is different here, in sentences.
    """

    name: str
    entries: tuple[tuple[str, int], ...]
    without: tuple[tuple[str, str], ...] = ()
    layers: int | None = None
    context: int | None = None
    dtype: str | None = None
    notes: tuple[str, ...] = ()


class Fit(NamedTuple):
    """What a model says of one kernel: its shape, or why there is none (`left_out`); its dtype, and whether that
    replaces the model's."""

    shape: tuple[tuple[str, int], ...]
    dtype: str
    left_out: str = ""
    replaced: bool = False


def read(path: str, given: Mapping[str, int] | None = None) -> Model:
    """The model that a config.json describes.

    Args:
        path: the file, or the folder that it lies in.
        given: entries of a shape that count instead of the file's.

    Raises:
        BadInput: no such file, no JSON object, a key that is needed is missing or makes no sense.
    """
    path = os.path.join(path, FILE) if os.path.isdir(path) else path
    return parse(_document(path), given or {}, path)


def parse(document: Mapping[str, Any], given: Mapping[str, int], where: str = FILE) -> Model:
    """The model of a parsed config.json; see `read`. `where` names it in errors.

    Raises:
        BadInput: as `read`.
    """
    inner = document.get("text_config")
    config = {**document, **inner} if isinstance(inner, dict) else dict(document)
    known = {**_whole_numbers(config, where), **given}
    without = _without(config, known, given)
    heads = known["heads"] = _needed(known, "heads", where)
    known["d_model"] = _needed(known, "d_model", where)
    known.setdefault("kv_heads", _kv_heads(config, heads))
    if "head_dim" not in known and "head_dim" not in without:
        known["head_dim"] = _head_dim(known, where)
    _check_heads(known, where)
    for entry in without:
        known.pop(entry, None)
    if "d_ff" not in without:
        _needed(known, "d_ff", where)
    if {"heads", "kv_heads", "head_dim"} <= set(known):
        known.setdefault("d_out", (known["heads"] + 2 * known["kv_heads"]) * known["head_dim"])
    known.setdefault("causal", 1)
    return Model(
        name=str(config.get("model_type") or "model"),
        entries=tuple(sorted(known.items())),
        without=tuple(sorted(without.items())),
        layers=_first(config, LAYERS, where),
        context=_first(config, CONTEXT, where),
        dtype=_dtype(config),
        notes=_notes(config, without),
    )


def fit(
    model: Model, spec: KernelSpec, batch: int = 1, dtype: str | None = None, served: Collection[str] | None = None
) -> Fit:
    """What a kernel takes of a model.

    Args:
        model: the model.
        spec: the kernel's spec.
        batch: sequences at once.
        dtype: element type asked for; None: the model's, or float32 where the kernel lacks that.
        served: the dtypes in which the kernel has variants for the device that is asked about; None: all of its own.
    """
    known = {**dict(model.entries), "batch": batch}
    wanted = dtype or model.dtype or "float32"
    kind = wanted if dtype or wanted in (spec.dtypes if served is None else served) else "float32"
    absent = next((entry for entry in spec.parameters if entry not in known), None)
    if absent is not None:
        why = dict(model.without).get(absent) or f"its {absent} cannot be told from the model's configuration"
        return Fit((), kind, left_out=f"{spec.name} is left out: {why}")
    shape = {entry: known[entry] for entry in spec.parameters}
    try:
        if served is not None and kind not in served:
            words = ", ".join(one for one in spec.dtypes if one in served) or "none"
            raise BadInput(f"{spec.name} must have a variant in the dtype", got=kind, allowed=words)
        return Fit(spec.problem(1, kind, "warm", **shape).shape, kind, replaced=kind != wanted)
    except BadInput as error:
        return Fit((), kind, left_out=f"{spec.name} is left out: {error}")


# --- the file ---


def _document(path: str) -> dict[str, Any]:
    rule = "--model-config takes a model's config.json"
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(rule, got=f"{path}: {error.strerror}", next_step="name the file, or its folder") from error
    if len(content) > MOST_BYTES:
        raise BadInput(rule, got=f"{path}, larger than {MOST_BYTES} bytes", allowed="config.json, not the weights")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(rule, got=f"{path}, which is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise BadInput(rule, got=f"{path}, which holds a {type(found).__name__}", allowed="one JSON object")
    return found


def _whole(config: Mapping[str, Any], key: str, where: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise BadInput(f"{key} of {where} must be a whole number", got=value, allowed=f"1 to {MOST}")
    return value


def _first(config: Mapping[str, Any], keys: tuple[str, ...], where: str) -> int | None:
    """The value of the first of the keys that is there and not null."""
    key = next((key for key in keys if config.get(key) is not None), None)
    return None if key is None else _whole(config, key, where)


def _whole_numbers(config: Mapping[str, Any], where: str) -> Entries:
    found = {entry: _first(config, keys, where) for entry, keys in NAMES.items()}
    return {entry: value for entry, value in found.items() if value is not None}


def _needed(known: Entries, entry: str, where: str) -> int:
    if entry not in known:
        raise BadInput(
            f"{where} must say {NAMES[entry][0]}",
            got="no such key, or null",
            allowed=" or ".join(NAMES[entry]),
            next_step=f"where it leaves the value to its class's default, give --{entry.replace('_', '-')}",
        )
    return known[entry]


# --- what follows ---


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    """As many as query heads, where nothing is said; one where Falcon and its like say multi_query."""
    return 1 if config.get("multi_query") is True else heads


def _head_dim(known: Entries, where: str) -> int:
    if known["d_model"] % known["heads"]:
        raise BadInput(
            f"without head_dim, hidden_size of {where} must be a multiple of num_attention_heads",
            got=f"{known['d_model']} on {known['heads']} heads",
            next_step="give --head-dim",
        )
    return known["d_model"] // known["heads"]


def _check_heads(known: Entries, where: str) -> None:
    if known["heads"] % known["kv_heads"]:
        raise BadInput(
            f"num_attention_heads of {where} must be a multiple of num_key_value_heads",
            got=f"{known['heads']} query heads on {known['kv_heads']}",
            allowed="every head of k and v serves the same number of query heads",
        )


def _without(config: Mapping[str, Any], known: Entries, given: Mapping[str, int]) -> dict[str, str]:
    """The entries that make no sense for a model, with the reason; those given by hand do."""
    found: dict[str, str] = {}
    experts = next((config[key] for key in EXPERTS if _is_many(config.get(key))), None)
    if experts is not None:
        found["d_ff"] = f"its MLP is a mixture of {experts} experts, which no kernel here computes"
    elif not _is_gated(config):
        said = _activation(config)
        found["d_ff"] = f"its MLP has no gate ({'no activation is named' if said is None else said}), the kernel's has"
    if config.get(LATENT):
        found |= dict.fromkeys(("heads", "kv_heads", "head_dim", "d_out"), f"its cache is latent ({LATENT})")
    return {entry: why for entry, why in found.items() if entry not in given}


def _is_many(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _activation(config: Mapping[str, Any]) -> str | None:
    found = next((config[key] for key in ACTIVATIONS if config.get(key) is not None), None)
    return None if found is None else str(found)[:40]


def _is_gated(config: Mapping[str, Any]) -> bool:
    """Models with silu gate it (Llama and those that follow it), gemma gates gelu; GPT-NeoX, Phi and GPT-2 do not."""
    kind = str(config.get("model_type") or "")
    return str(_activation(config)).lower() in SILU or kind.startswith(GATED_TYPES)


def _dtype(config: Mapping[str, Any]) -> str | None:
    said = config.get("dtype") or config.get("torch_dtype")
    return DTYPE_NAMES.get(str(said).removeprefix("torch."))


def _notes(config: Mapping[str, Any], without: Mapping[str, str]) -> tuple[str, ...]:
    """What the kernels do another way than the model, so that nobody takes it for the model itself."""
    said, found = _activation(config), []
    if "d_ff" not in without and said is not None and said.lower() not in SILU:
        found.append(f"the model gates its MLP by {said}, the kernel by silu: shape and traffic are the model's")
    if "rms_norm_eps" not in config and any(key.startswith("layer_norm_ep") for key in config):
        found.append("the model normalises by LayerNorm, the kernels by RMSNorm: shape and traffic are the model's")
    window = config.get("sliding_window")
    if _is_many(window) and config.get("use_sliding_window", True):
        rows = many(window or 0, "row")
        found.append(f"layers with a sliding window look back over {rows} only: there n is at most that")
    named = config.get("dtype") or config.get("torch_dtype")
    if named and _dtype(config) is None:
        found.append(f"no kernel here has the model's dtype {str(named)[:40]}: float32 is taken")
    if config.get("quantization_config"):
        found.append("the model's weights are quantised: times are those of weights as wide as the dtype")
    return tuple(found)

"""Reads an `Architecture` out of a model's configuration.

In:   a mapping or an object with attributes: of Hugging Face transformers (by `model_type`), of
      KempnerForge, nanoGPT, nanochat, of the demo, or with the names of `Architecture` itself.
Out:  an `Architecture`, or a `FlopsError` that names the field that is missing or not known.

What a family's code fixes (two or three matrices, biases, norms, tied or not) is in the tables here; what
neither the configuration nor the code fixes is asked for and never assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barograph.probes.speed.architecture import Architecture, FlopsError, whole


class _Family(NamedTuple):
    """What the code of a `model_type` of transformers fixes."""

    gated: bool = True
    tied: bool = False  # where the configuration doesn't say
    norms: int = 2  # vectors of hidden width a layer, their biases counted as further ones
    last_norm: int = 1
    head_norm: str = ""  # norms of queries and keys: "" none, "head" of a head's width, "all" of all heads'
    bias: tuple[str, str, str] = ("", "", "")  # option (or "yes") for biases of q k v, of the output, of the FFN
    bias_default: bool = False
    window: str = (
        ""  # layers that a `sliding_window` holds for: "", all, asked (all, if switched on), even, pattern, late
    )


_HEAD = "head"
_ALL = ("attention_bias", "attention_bias", "mlp_bias")
_ATTENTION = ("attention_bias", "attention_bias", "")
_FAMILIES = {
    "llama": _Family(bias=_ALL),
    "mistral": _Family(window="all"),
    "mixtral": _Family(window="all"),
    "smollm3": _Family(bias=_ALL, tied=True, window="late"),
    "granite": _Family(bias=_ALL),
    "qwen2": _Family(bias=("yes", "", ""), window="late"),
    "qwen2_moe": _Family(bias=("qkv_bias", "", ""), bias_default=True, window="late"),
    "qwen3": _Family(bias=_ATTENTION, head_norm=_HEAD, window="late"),
    "qwen3_moe": _Family(bias=_ATTENTION, head_norm=_HEAD, window="asked"),
    "gemma": _Family(bias=_ATTENTION, tied=True),
    "gemma2": _Family(bias=_ATTENTION, tied=True, norms=4, window="even"),
    "gemma3_text": _Family(bias=_ATTENTION, tied=True, norms=4, head_norm=_HEAD, window="pattern"),
    "olmo": _Family(bias=_ATTENTION, norms=0, last_norm=0),
    "olmo2": _Family(bias=_ATTENTION, head_norm="all"),
    "olmoe": _Family(bias=_ATTENTION, head_norm="all"),
    "phi3": _Family(window="all"),
    "gpt2": _Family(gated=False, tied=True, norms=4, last_norm=2, bias=("yes", "yes", "yes")),
    "gpt_neox": _Family(
        gated=False,
        norms=4,
        last_norm=2,
        bias=("attention_bias", "attention_bias", "yes"),
        bias_default=True,
    ),
    "starcoder2": _Family(
        gated=False,
        tied=True,
        norms=4,
        last_norm=2,
        bias=("use_bias", "use_bias", "use_bias"),
        bias_default=True,
        window="all",
    ),
    "deepseek_v2": _Family(bias=("", "attention_bias", "mlp_bias")),
    "deepseek_v3": _Family(bias=("", "attention_bias", "")),
}
_SEQUENCE = ("sequence", "sequence_length", "seq_length", "seq_len", "max_seq_length", "block_size", "sequence_len")
_ASK_SEQUENCE = "the sequence length of the training is not in the configuration{held}; pass sequence=."


class _Fields:
    """Values of a configuration by name; a name that is missing or None is an error that says so."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, *names: str) -> bool:
        return all(self._values.get(name) is not None for name in names)

    def get(self, name: str, otherwise: Any = None) -> Any:
        value = self._values.get(name)
        return otherwise if value is None else value

    def whole(self, *names: str, otherwise: int | None = None, least: int = 1) -> int:
        """The first of these names that is given, as a whole number."""
        for name in names:
            if self._values.get(name) is not None:
                return whole(self._values[name], name, least)
        if otherwise is None:
            raise FlopsError(
                f"the configuration has no {' or '.join(names)}; pass one that has it, or an Architecture."
            )
        return otherwise


def architecture(config: Any, sequence: int | None = None, **given: Any) -> Architecture:
    """The architecture that a configuration describes.

    config: a mapping, an object with attributes or `to_dict`, or an `Architecture`. sequence: tokens of a
    training sequence, over what the configuration says. given: fields of `Architecture` that you know
    better, such as `gated=True` for a `model_type` that is not known here.
    """
    if sequence is not None:
        given["sequence"] = whole(sequence, "sequence")
    check_names(given)
    if isinstance(config, Architecture):
        return dataclasses.replace(config, **given)
    values = dict(_mapping(config))
    nested = values.get("model")
    if nested is not None and not _Fields(values).has("n_layers") and not isinstance(nested, str):
        training = values.get("train")
        values = dict(_mapping(nested))
        if training is not None and (length := _mapping(training).get("seq_len")) is not None:
            values["seq_len"] = length
    fields = _Fields(values)
    for reader, names in _READERS:
        if fields.has(*names):
            return Architecture(**(reader(fields, given) | given))
    if fields.has("text_config"):
        raise FlopsError("the configuration is of several models (text_config and others); pass its text_config.")
    raise FlopsError(
        "the configuration has neither num_hidden_layers, n_layer, n_layers nor layers; pass the model's own "
        "configuration, or an Architecture."
    )


def check_names(given: Iterable[str]) -> None:
    """FlopsError if a name is not a field of `Architecture`."""
    unknown = set(given) - {item.name for item in dataclasses.fields(Architecture)}
    if unknown:
        raise FlopsError(f"an Architecture has no field {min(unknown)!r}.")


def _mapping(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    if callable(getattr(config, "to_dict", None)):
        result = config.to_dict()
        if isinstance(result, Mapping):
            return result
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        # values that are computed, such as KempnerForge's width of the feed-forward layer, come as properties
        result = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
        if (width := getattr(config, "computed_ffn_hidden_dim", None)) is not None:
            result["computed_ffn_hidden_dim"] = width
        return result
    if hasattr(config, "__dict__") and not isinstance(config, type):
        return {name: value for name, value in vars(config).items() if not name.startswith("__")}
    raise FlopsError(f"a configuration is a mapping or an object with attributes, not {type(config).__name__}.")


def _sequence(fields: _Fields, given: Mapping[str, Any], *names: str) -> int:
    if "sequence" in given:
        return int(given["sequence"])
    for name in (*_SEQUENCE, *names):
        if fields.has(name):
            return fields.whole(name)
    held = fields.get("max_position_embeddings") or fields.get("n_positions")
    said = f" (what the model can hold, {held}, is not what it is trained on)" if held else ""
    raise FlopsError(_ASK_SEQUENCE.format(held=said))


# ---------------------------------------------------------------------------------------------
# Hugging Face transformers


def _hugging_face(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    kind = fields.get("model_type")
    if kind not in _FAMILIES:
        if "gated" not in given or "tied" not in given:
            raise FlopsError(
                f"model_type {kind!r} is not known here ({', '.join(sorted(_FAMILIES))} are); if it is an ordinary "
                "transformer, pass gated= (three matrices in its feed-forward layer, or two) and tied=."
            )
        family = _Family()
    else:
        family = _FAMILIES[kind]
    layers, hidden = fields.whole("num_hidden_layers", "n_layer"), fields.whole("hidden_size", "n_embd")
    heads = fields.whole("num_attention_heads", "n_head")
    kv_heads = fields.whole("num_key_value_heads", otherwise=heads)
    result: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": _head_width(fields, hidden, heads, kind),
        "vocab": fields.whole("vocab_size"),
        "sequence": _sequence(fields, given),
        "gated": family.gated,
        "tied": bool(fields.get("tie_word_embeddings", family.tied)),
    }
    result["windows"] = _windows(fields, family, layers)
    result |= _experts(fields, layers)
    if result.get("dense_layers", 1):
        result["ffn"] = fields.whole("intermediate_size", "n_inner", otherwise=4 * hidden if kind == "gpt2" else None)
    else:
        result["ffn"] = fields.whole("intermediate_size", otherwise=0, least=0)
    if kind == "gpt2":
        result["positions"] = fields.whole("n_positions")
    if fields.has("kv_lora_rank"):
        result |= _latent(fields)
    result["vectors"] = _vectors(fields, family, result)
    if result.get("experts") and fields.has(
        "shared_expert_intermediate_size"
    ):  # Qwen2-MoE: one gate of width 1 beside the shared expert
        result["others"] = (layers - result["dense_layers"]) * hidden
    return result


def _head_width(fields: _Fields, hidden: int, heads: int, kind: Any) -> int:
    if fields.has("head_dim"):
        return fields.whole("head_dim")
    if str(kind).startswith("gemma"):
        raise FlopsError(f"the configuration of {kind} has no head_dim, which hidden_size doesn't tell; pass it.")
    if hidden % heads:
        raise FlopsError(f"hidden_size ({hidden}) is not a multiple of num_attention_heads ({heads}); pass head_dim.")
    return hidden // heads


def _windows(fields: _Fields, family: _Family, layers: int) -> tuple[int | None, ...]:
    kinds = fields.get("layer_types")
    window = fields.get("sliding_window")
    if kinds is not None:
        strange = sorted(set(kinds) - {"full_attention", "sliding_attention"})
        if strange:
            raise FlopsError(
                f"layers of type {strange[0]!r} are not counted here; only full and sliding attention are."
            )
        if len(kinds) != layers:
            raise FlopsError(f"layer_types has {len(kinds)} entries for {layers} layers.")
        if "sliding_attention" in kinds:
            width = fields.whole("sliding_window")
            return tuple(width if kind == "sliding_attention" else None for kind in kinds)
        return ()
    if not window or not family.window:
        return ()
    width = whole(window, "sliding_window")
    if family.window in ("asked", "late") and not fields.get("use_sliding_window"):  # off is these families' default
        return ()
    if family.window == "late":
        first = fields.whole("max_window_layers", least=0)
        return tuple(width if layer >= first else None for layer in range(layers))
    if family.window == "even":
        return tuple(width if layer % 2 == 0 else None for layer in range(layers))
    if family.window == "pattern":  # Gemma 3: each sixth layer sees everything
        period = fields.whole("sliding_window_pattern", "_sliding_window_pattern", otherwise=6)
        return tuple(width if (layer + 1) % period else None for layer in range(layers))
    return (width,) * layers


def _experts(fields: _Fields, layers: int) -> dict[str, Any]:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    if not any(fields.get(name) for name in names):
        return {}
    experts = fields.whole(*names)
    width = fields.whole("moe_intermediate_size", "intermediate_size")
    shared = fields.whole("n_shared_experts", otherwise=0, least=0) * width
    shared = fields.whole("shared_expert_intermediate_size", otherwise=shared, least=0)
    dense = set(fields.get("mlp_only_layers", ()))
    period = fields.whole("decoder_sparse_step", "moe_layer_freq", otherwise=1)
    first = fields.whole("first_k_dense_replace", otherwise=0, least=0)
    if fields.has("decoder_sparse_step"):
        dense |= {layer for layer in range(layers) if (layer + 1) % period}
    else:
        dense |= {layer for layer in range(layers) if layer < first or layer % period}
    return {
        "experts": experts,
        "top_k": fields.whole("num_experts_per_tok"),
        "expert_ffn": width,
        "shared_ffn": shared,
        "dense_layers": len(dense & set(range(layers))),
    }


def _latent(fields: _Fields) -> dict[str, Any]:
    rope = fields.whole("qk_rope_head_dim")
    return {
        "head_dim": fields.whole("qk_nope_head_dim") + rope,
        "kv_heads": fields.whole("num_attention_heads"),
        "value_dim": fields.whole("v_head_dim"),
        "query_rank": fields.whole("q_lora_rank", otherwise=0),
        "key_rank": fields.whole("kv_lora_rank"),
        "rope_dim": rope,
    }


def _vectors(fields: _Fields, family: _Family, made: Mapping[str, Any]) -> int:
    """Norms and biases: under a hundredth of a model, counted so that its parameters come out exact."""
    on = [bool(name) and (name == "yes" or bool(fields.get(name, family.bias_default))) for name in family.bias]
    layers, hidden, query = made["layers"], made["hidden"], made["heads"] * made["head_dim"]
    key = made["kv_heads"] * made["head_dim"]
    layer = family.norms * hidden
    if family.head_norm:
        layer += 2 * made["head_dim"] if family.head_norm == _HEAD else query + key
    if rank := made.get("key_rank"):
        layer += rank + made["query_rank"]  # a norm on each latent
        if on[1]:  # of the projections into the latents, too
            layer += (made["query_rank"] or 0) + rank + made["rope_dim"]
    layer += (query + 2 * key) * on[0] + hidden * on[1]
    if on[2] and not made.get("experts"):
        layer += made["ffn"] * (2 if made["gated"] else 1) + hidden
    return int(layers * layer + family.last_norm * hidden)


# ---------------------------------------------------------------------------------------------
# Other code bases


def _kempner(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """KempnerForge: SwiGLU; the feed-forward width is given or 8/3 dim × multiplier, up to a multiple of 256."""
    layers, hidden, heads = fields.whole("n_layers"), fields.whole("dim"), fields.whole("n_heads")
    if fields.has("ffn_hidden_dim") or fields.has("computed_ffn_hidden_dim"):
        width = fields.whole("ffn_hidden_dim", "computed_ffn_hidden_dim")
    elif fields.has("ffn_dim_multiplier"):
        width = -(-int(4 * hidden * (2 / 3) * float(fields.get("ffn_dim_multiplier"))) // 256) * 256
    else:
        raise FlopsError("the configuration has no ffn_hidden_dim and no ffn_dim_multiplier; pass one of them.")
    head_width = _head_width(fields, hidden, heads, "KempnerForge")
    vectors = (2 * layers + 1) * hidden * (2 if fields.get("norm_type") == "layernorm" else 1)
    result: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("n_kv_heads", otherwise=heads),
        "head_dim": head_width,
        "ffn": width,
        "vocab": fields.whole("vocab_size"),
        "sequence": _sequence(fields, given, "max_seq_len"),
        "gated": True,
        "tied": bool(fields.get("tie_embeddings", False)),
        "vectors": vectors + (2 * layers * head_width if fields.get("qk_norm") else 0),
    }
    if fields.get("num_experts"):
        period = fields.whole("moe_frequency", otherwise=1)
        result |= {
            "experts": fields.whole("num_experts"),
            "top_k": fields.whole("moe_top_k"),
            "expert_ffn": width,
            "shared_ffn": fields.whole("moe_shared_experts", otherwise=0, least=0) * width,
            "dense_layers": layers - layers // period,
        }
    return result


def _nano_gpt(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """nanoGPT: feed-forward width 4 × n_embd, tied, learned positions, biases unless they are switched off."""
    layers, hidden, heads = fields.whole("n_layer"), fields.whole("n_embd"), fields.whole("n_head")
    norms, biases = (2, 9) if fields.get("bias", True) else (1, 0)  # 3 + 1 + 4 + 1 widths of biases a layer
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_width(fields, hidden, heads, "nanoGPT"),
        "ffn": 4 * hidden,
        "vocab": fields.whole("vocab_size"),
        "sequence": _sequence(fields, given),
        "gated": False,
        "tied": True,
        "positions": fields.whole("block_size"),
        "vectors": (layers * (2 * norms + biases) + norms) * hidden,
    }


def _nano_chat(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """nanochat: feed-forward width 4 × n_embd with two matrices, untied, windows by a pattern of S and L.

    S sees half the sequence, L all of it, and so does the last layer. Embeddings of values, and the gates on
    them (0.001% of the weights), depend on the version and are not in the configuration: pass others= for these.
    """
    layers, hidden, heads = fields.whole("n_layer"), fields.whole("n_embd"), fields.whole("n_head")
    sequence = _sequence(fields, given)
    pattern = str(fields.get("window_pattern", "L")).upper()
    if not pattern or set(pattern) - {"S", "L"}:
        raise FlopsError(f"window_pattern is {pattern!r}; it is made of S and L.")
    windows = [sequence // 2 if pattern[layer % len(pattern)] == "S" else None for layer in range(layers)]
    vocabulary = fields.whole("vocab_size")
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("n_kv_head"),
        "head_dim": _head_width(fields, hidden, heads, "nanochat"),
        "ffn": 4 * hidden,
        "vocab": -(-vocabulary // 64) * 64,  # padded to a multiple of 64
        "sequence": sequence,
        "gated": False,
        "tied": False,
        "windows": (*windows[:-1], None),
    }


def _demo(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """Our demo: bytes, tied, squared ReLU; an expert has the dense layer's width over top_k."""
    layers, width, heads = fields.whole("layers"), fields.whole("width"), fields.whole("heads")
    inner, experts = fields.whole("hidden"), fields.whole("experts", otherwise=0, least=0)
    result: dict[str, Any] = {
        "layers": layers,
        "hidden": width,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_width(fields, width, heads, "the demo"),
        "ffn": inner,
        "vocab": 256,
        "sequence": _sequence(fields, given, "context"),
        "gated": False,
        "tied": True,
        "vectors": (2 * layers + 1) * width,
    }
    if experts:
        chosen = fields.whole("top_k")
        result |= {"experts": experts, "top_k": chosen, "expert_ffn": inner // chosen}
    return result


def _own(fields: _Fields, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Architecture` by their own names."""
    result = {item.name: fields.get(item.name) for item in dataclasses.fields(Architecture) if fields.has(item.name)}
    missing = [
        item.name
        for item in dataclasses.fields(Architecture)
        if item.default is dataclasses.MISSING and item.name not in result and item.name not in given
    ]
    if missing:
        raise FlopsError(f"the configuration has no {missing[0]}; pass it.")
    if isinstance(result.get("windows"), Iterable):
        result["windows"] = tuple(result["windows"])
    return result


# a reader, and the fields by which its configurations are distinguished from the others; the first that fits reads
_READERS = (
    (_kempner, ("dim", "n_layers")),
    (_hugging_face, ("num_hidden_layers",)),
    (_hugging_face, ("n_layer", "model_type")),
    (_nano_chat, ("n_layer", "sequence_len")),
    (_nano_gpt, ("n_layer", "block_size")),
    (_demo, ("layers", "width", "context")),
    (_own, ("layers", "hidden")),
)

"""Sizes are read from any configuration, exactly, or the missing field is named."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.probes.speed.architecture import Architecture, FlopsError, parameters
from barograph.probes.speed.configurations import architecture

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
PLAIN: dict[str, Any] = {
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "ffn": 128,
    "vocab": 256,
    "sequence": 32,
    "gated": True,
    "tied": False,
}


def test_llama_3_8b_has_its_published_parameters() -> None:
    found = parameters(architecture(LLAMA, sequence=8192))
    assert found.total == found.active == 8_030_261_248
    assert found.embedding == found.head == 128256 * 4096


def test_gpt_2_has_its_published_parameters() -> None:
    config = {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "vocab_size": 50257,
        "n_positions": 1024,
    }
    assert parameters(architecture(config, 1024)).total == 124_439_808


def test_nano_gpt_is_read_as_gpt_2() -> None:
    config = {"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257, "block_size": 1024, "bias": True}
    found = architecture(config)
    assert parameters(found).total == 124_439_808 and found.sequence == 1024
    unsaid = {name: value for name, value in config.items() if name != "bias"}
    assert architecture(unsaid) == found != architecture(config | {"bias": False}), "nanoGPT's default is with biases"


def test_mixtral_8x7b_has_its_published_parameters() -> None:
    config = LLAMA | {
        "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    found = parameters(architecture(config, 4096))
    assert found.total == 46_702_792_704 and found.active == 12_879_925_248


def test_deepseek_v3_has_its_published_parameters() -> None:
    config = {
        "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "n_shared_experts": 1, "n_routed_experts": 256, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "tie_word_embeddings": False,
    }  # fmt: skip
    found = architecture(config, 4096)
    known = parameters(found)
    assert known.total == pytest.approx(671e9, rel=0.001)  # arXiv:2412.19437: 671B, of which 37B a token
    assert known.active - known.embedding == pytest.approx(37e9, rel=0.015)
    assert (found.head_dim, found.value_dim, found.expert_layers) == (192, 128, 58)


def test_palm_540b_has_its_published_parameters() -> None:
    palm = Architecture(
        layers=118, hidden=18432, heads=48, kv_heads=1, head_dim=256, ffn=4 * 18432, vocab=256000, sequence=2048,
        gated=True, tied=True,
    )  # fmt: skip
    assert parameters(palm).total == pytest.approx(540.35e9, rel=1e-4)  # arXiv:2204.02311, table 1


def test_kempner_forge_names_from_a_nested_configuration() -> None:
    model = {
        "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "ffn_dim_multiplier": 1.3,
        "max_seq_len": 8192, "model_type": "transformer",
    }  # fmt: skip
    found = architecture({"model": model, "train": {"seq_len": 4096}})
    assert found.ffn == 14336 and found.sequence == 4096 and not found.tied
    assert parameters(found).total == pytest.approx(8.03e9, rel=1e-3)  # its report's 7B row
    as_objects = types.SimpleNamespace(model=types.SimpleNamespace(**model), train=types.SimpleNamespace(seq_len=4096))
    assert architecture(as_objects) == found
    sparse = architecture(model | {"num_experts": 8, "moe_top_k": 2, "moe_frequency": 2, "moe_shared_experts": 1})
    assert (sparse.experts, sparse.expert_layers, sparse.shared_ffn) == (8, 16, 14336)
    with pytest.raises(FlopsError, match="ffn_hidden_dim"):
        architecture({name: value for name, value in model.items() if name != "ffn_dim_multiplier"})


def test_nanochat_windows_follow_the_pattern_and_the_last_layer_sees_everything() -> None:
    config = {"n_layer": 6, "n_embd": 384, "n_head": 3, "n_kv_head": 3, "vocab_size": 32759, "sequence_len": 2048}
    found = architecture(config | {"window_pattern": "SSSL"})
    assert found.windows == (1024, 1024, 1024, None, 1024, None)
    assert found.vocab == 32768 and not found.gated
    with pytest.raises(FlopsError, match="window_pattern"):
        architecture(config | {"window_pattern": "SX"})


def test_our_demo_has_the_parameters_of_its_model() -> None:
    pytest.importorskip("torch")
    from barograph.demo.model import ByteGPT, ModelShape

    for shape in (ModelShape(), ModelShape(experts=4), ModelShape(layers=2, experts=8, top_k=4)):
        assert parameters(architecture(shape)).total == sum(one.numel() for one in ByteGPT(shape).parameters())


def test_windows_of_hugging_face_families() -> None:
    def windows(**more: Any) -> tuple[int | None, ...]:
        return architecture(LLAMA | {"num_hidden_layers": 6, "head_dim": 128, **more}, 8192).windows

    assert windows(model_type="mistral", sliding_window=4096) == (4096,) * 6
    assert windows(model_type="mistral", sliding_window=None) == ()
    assert windows(model_type="mistral", sliding_window=8192) == ()  # as wide as the sequence
    assert windows(model_type="gemma2", sliding_window=4096) == (4096, None) * 3
    assert windows(model_type="gemma3_text", sliding_window=512) == (512,) * 5 + (None,)
    late = {"sliding_window": 1024, "max_window_layers": 4}
    assert windows(model_type="qwen2", use_sliding_window=True, **late) == (None,) * 4 + (1024,) * 2
    assert windows(model_type="qwen2", use_sliding_window=False, **late) == ()
    assert windows(model_type="llama", sliding_window=1024) == ()  # Llama's code has no windows
    kinds = ["sliding_attention", "full_attention"] * 3
    assert windows(model_type="qwen3", sliding_window=64, layer_types=kinds) == (64, None) * 3
    with pytest.raises(FlopsError, match="linear_attention"):
        windows(model_type="qwen3", layer_types=["linear_attention"] * 6)


def test_a_family_of_experts_without_experts_is_dense() -> None:
    dense = LLAMA | {"model_type": "qwen2_moe", "num_experts": 0, "shared_expert_intermediate_size": 64}
    found = architecture(dense, 4096)
    assert found.experts == found.others == 0 and found.ffn == 14336


@pytest.mark.parametrize(
    "name",
    ["hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"],
)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(FlopsError, match=name):
        architecture({key: value for key, value in LLAMA.items() if key != name}, 4096)


def test_what_a_model_can_hold_is_not_what_it_is_trained_on() -> None:
    with pytest.raises(FlopsError, match=r"131072.*sequence="):
        architecture(LLAMA)
    assert architecture(LLAMA | {"seq_length": 4096}).sequence == 4096


def test_an_unknown_family_is_asked_about_and_never_assumed() -> None:
    strange = LLAMA | {"model_type": "hyena"}
    with pytest.raises(FlopsError, match=r"hyena.*gated="):
        architecture(strange, 4096)
    assert architecture(strange, 4096, gated=True, tied=False).gated
    without = {name: value for name, value in LLAMA.items() if name != "model_type"}
    with pytest.raises(FlopsError, match="gated"):
        architecture(without, 4096)
    with pytest.raises(FlopsError, match="text_config"):
        architecture({"text_config": LLAMA}, 4096)
    for nothing in ({}, {"lr": 1e-4}, object()):
        with pytest.raises(FlopsError):
            architecture(nothing, 4096)
    with pytest.raises(FlopsError, match="no field 'colour'"):
        architecture(LLAMA, 4096, colour=1)


def test_gemma_must_say_its_head_dim() -> None:
    with pytest.raises(FlopsError, match="head_dim"):
        architecture(LLAMA | {"model_type": "gemma"}, 4096)


@pytest.mark.parametrize(
    "value", [0, -1, -0.5, 1.5, float("nan"), float("inf"), float("-inf"), True, "12", None, 10**12]
)
def test_impossible_sizes_are_refused_by_name(value: Any) -> None:
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "sequence"):
        with pytest.raises(FlopsError, match=name):
            Architecture(**(PLAIN | {name: value}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"heads": 3}, "multiple of kv_heads"),
        ({"windows": (8, 8)}, "one a layer"),
        ({"windows": (8, 0, 8, 8)}, "windows"),
        ({"top_k": 2}, "without experts"),
        ({"experts": 4, "top_k": 8, "expert_ffn": 8}, "more than experts"),
        ({"experts": 4, "expert_ffn": 8}, "top_k"),
        ({"experts": 4, "top_k": 2}, "expert_ffn"),
        ({"experts": 4, "top_k": 2, "expert_ffn": 8, "dense_layers": 4}, "leaves none"),
        ({"query_rank": 8}, "key_rank"),
        ({"key_rank": 8, "rope_dim": 17}, "rope_dim"),
        ({"gated": 1}, "true or false"),
        ({"vocab": 2**31, "hidden": 2**31, "head_dim": 2**29}, "parameters"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(FlopsError, match=said):
        Architecture(**(PLAIN | fields))


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_a_window_costs_what_it_shows_and_never_more_than_all(window: int, sequence: int) -> None:
    narrow = Architecture(**(PLAIN | {"sequence": sequence, "windows": (window,) * 4}))
    wide = Architecture(**(PLAIN | {"sequence": sequence}))
    exact = sum(min(position + 1, window) for position in range(sequence)) / sequence
    # the continuous average leaves out the half key of a token's own that the sum has
    assert abs(narrow.spans(causal=True) / 4 - exact) <= 0.5 + 1e-9
    assert narrow.spans(causal=True) <= wide.spans(causal=True) + 1e-9
    assert narrow.spans(causal=False) == 4 * min(window, sequence)


def test_an_architecture_round_trips_by_its_own_names() -> None:
    made = Architecture(**(PLAIN | {"windows": (8, None, 8, None), "positions": 32}))
    assert architecture(dataclasses.asdict(made)) == made
    assert architecture(json.loads(json.dumps(dataclasses.asdict(made)))) == made
    assert architecture(made, sequence=64).sequence == 64
    with pytest.raises(FlopsError, match="vocab"):
        architecture({name: value for name, value in PLAIN.items() if name != "vocab"})

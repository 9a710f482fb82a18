"""The formulas agree with torch's own count of a step, on many kinds of model."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from barograph.demo.model import ByteGPT, ModelShape, next_byte_loss  # noqa: E402
from barograph.probes.speed.architecture import FlopsError, parameters  # noqa: E402
from barograph.probes.speed.counting import architecture_of, count  # noqa: E402
from barograph.probes.speed.flops import flops_per_token, hardware_flops, parts  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
LATENT = {
    "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 2, "moe_intermediate_size": 96,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 24, "n_group": 2, "topk_group": 1,
}  # fmt: skip
NO_GROUPS = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense, tied, every head its own": (
        "models.gpt2", "GPT2LMHeadModel", {"n_embd": 192, "n_layer": 2, "n_head": 4, "vocab_size": 1024},
    ),
    "grouped queries, gated, untied": ("models.llama", "LlamaForCausalLM", SIZES),
    "sliding windows": ("models.mistral", "MistralForCausalLM", SIZES | {"sliding_window": 48}),
    "windows in some layers, head norms": (
        "models.gemma3", "Gemma3ForCausalLM",
        SIZES | {"head_dim": 32, "sliding_window": 48, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "Mixtral": ("models.mixtral", "MixtralForCausalLM", SIZES | {"num_local_experts": 4}),
    "Qwen3-MoE": ("models.qwen3_moe", "Qwen3MoeForCausalLM", SIZES | EXPERTS | {"head_dim": 32}),
    "Qwen2-MoE, shared expert, a dense layer": (
        "models.qwen2_moe", "Qwen2MoeForCausalLM",
        SIZES | EXPERTS | {"shared_expert_intermediate_size": 128, "mlp_only_layers": [0]},
    ),
    "OLMoE": ("models.olmoe", "OlmoeForCausalLM", SIZES | {"num_experts": 8, "num_experts_per_tok": 2}),
    "latent attention": ("models.deepseek_v3", "DeepseekV3ForCausalLM", SIZES | LATENT),
    "LayerNorm and biases, untied": ("models.gpt_neox", "GPTNeoXForCausalLM", NO_GROUPS),
}  # fmt: skip
SEQUENCE = 192


def hugging_face(kind: str) -> Any:
    """A small model of a kind, with random weights; skipped without transformers."""
    pytest.importorskip("transformers")
    import importlib

    place, name, config = MODELS[kind]
    module = importlib.import_module(f"transformers.{place}.modeling_{place.rpartition('.')[2]}")
    model = getattr(module, name)
    torch.manual_seed(0)
    return model(model.config_class(**config))


SLOW = ("windows in some", "Qwen2-MoE", "OLMoE", "LayerNorm")


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=pytest.mark.slow) if one.startswith(SLOW) else one for one in MODELS]
)
def test_formulas_and_parameters_agree_with_torch(kind: str) -> None:
    """Formula "surogate" with what the mask leaves, "palm_non_embedding" with the whole square where no window is."""
    model = hugging_face(kind)
    arch = architecture_of(model, SEQUENCE)
    assert parameters(arch).total == sum(one.numel() for one in model.parameters())
    tokens = torch.randint(0, 1024, (1, SEQUENCE))
    seen = count(model, input_ids=tokens, labels=tokens, masked=False)
    assert flops_per_token(arch, "surogate") == pytest.approx(seen, rel=0.01)
    assert flops_per_token(arch, "megatron") == pytest.approx(seen, rel=0.01)  # routers are left out there
    if not arch.windows:
        whole = count(model, tokens)
        assert flops_per_token(arch, "palm_non_embedding") == pytest.approx(whole, rel=0.01)
        assert parts(arch, "palm_non_embedding").attention == pytest.approx(
            2 * parts(arch, "surogate").attention, rel=1e-12
        )


@pytest.mark.parametrize(
    "shape", [ModelShape(layers=2), ModelShape(layers=2, experts=4), ModelShape(layers=2, experts=8, top_k=4)]
)
def test_formulas_agree_on_our_demo(shape: ModelShape) -> None:
    model = ByteGPT(shape)
    tokens = torch.randint(0, 256, (2, shape.context))
    arch = architecture_of(model)
    assert flops_per_token(arch, "palm_non_embedding") == pytest.approx(count(model, tokens), rel=0.01)
    seen = count(model, tokens, masked=False, loss=lambda output: next_byte_loss(output[0], tokens))
    assert flops_per_token(arch, "surogate") == pytest.approx(seen, rel=0.01)


def test_counting_leaves_the_training_as_it_was() -> None:
    model = ByteGPT(ModelShape(layers=1, width=32, heads=2, hidden=64, context=16))
    tokens = torch.randint(0, 256, (1, 16))
    next_byte_loss(model(tokens)[0], tokens).backward()
    before = [one.grad.clone() for one in model.parameters()]
    held = [one.grad for one in model.parameters()]
    state = torch.get_rng_state()
    first = count(model, tokens)
    assert count(model, tokens) == first
    assert all(one.grad is grad for one, grad in zip(model.parameters(), held, strict=True))
    assert all(torch.equal(one.grad, grad) for one, grad in zip(model.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), state) and model.training


class Block(torch.nn.Module):
    """Attention and a feed-forward layer, with biases here and there."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.num_heads = 4
        self.attn_in = torch.nn.Linear(64, 3 * 64, bias=True)
        self.attn_out = torch.nn.Linear(64, 64, bias=False)
        self.norm = torch.nn.LayerNorm(64)
        self.up = torch.nn.Linear(64, 256)
        self.gate = torch.nn.Linear(64, 256) if gated else None
        self.down = torch.nn.Linear(256, 64)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.unflatten(-1, (4, 16)).transpose(1, 2) for one in self.attn_in(self.norm(x)).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_out(mixed.transpose(1, 2).flatten(2))
        inner = torch.relu(self.up(x))
        return x + self.down(inner if self.gate is None else inner * self.gate(x))


class Plain(torch.nn.Module):
    """A model without a configuration."""

    def __init__(self, gated: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(512, 64)
        self.blocks = torch.nn.ModuleList(Block(gated) for _ in range(3))
        self.head = torch.nn.Linear(64, 512, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_without_configuration_is_read_off_its_modules(gated: bool, tied: bool) -> None:
    model = Plain(gated, tied)
    arch = architecture_of(model, 96)
    assert (arch.layers, arch.hidden, arch.heads, arch.ffn, arch.vocab) == (3, 64, 4, 256, 512)
    assert (arch.gated, arch.tied) == (gated, tied)
    seen = count(model, torch.randint(0, 512, (2, 96)), masked=False)
    assert flops_per_token(arch, "surogate") == pytest.approx(seen, rel=0.01)


def test_what_modules_do_not_show_is_asked_for() -> None:
    with pytest.raises(FlopsError, match="sequence="):
        architecture_of(Plain())
    nameless = Plain()
    for block in nameless.blocks:
        del block.num_heads
    with pytest.raises(FlopsError, match="heads="):
        architecture_of(nameless, 96)
    assert architecture_of(nameless, 96, heads=4) == architecture_of(Plain(), 96)
    odd = Plain()
    odd.extra = torch.nn.Parameter(torch.zeros(7, 7))
    with pytest.raises(FlopsError, match="pass an Architecture"):
        architecture_of(odd, 96)
    with pytest.raises(FlopsError, match="no embedding"):
        architecture_of(torch.nn.Linear(2, 2), 96)
    with pytest.raises(FlopsError, match="torch model"):
        architecture_of("gpt2", 96)
    with pytest.raises(FlopsError, match="no field 'colour'"):
        architecture_of(Plain(), 96, colour=1)


def test_what_can_not_be_counted_is_refused() -> None:
    tokens = torch.randint(0, 512, (1, 8))
    with pytest.raises(FlopsError, match="tokens="):
        count(torch.nn.Linear(4, 4), torch.zeros(2, 4))
    linear = torch.nn.Linear(4, 4)
    assert count(linear, torch.zeros(2, 4), tokens=2) == 2 * 2 * 4 * 4  # its input needs no gradient: two passes
    with pytest.raises(FlopsError, match="scaled_dot_product_attention"):
        count(linear, torch.zeros(2, 4), tokens=2, masked=False)
    with pytest.raises(FlopsError, match="loss="):
        count(Plain(), tokens, loss=lambda output: 3.0)
    with pytest.raises(FlopsError, match="loss="):
        count(Plain(), tokens, loss=lambda output: output.detach().sum())
    with pytest.raises(FlopsError, match="tokens"):
        count(Plain(), tokens, tokens=0)


class Recurrent(torch.nn.Module):
    """A model whose products torch has no count for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Any) -> Any:
        return (
            torch.addmv(x, self.weight, x)
            + torch.ops.aten._int_mm(torch.ones(32, 8, dtype=torch.int8), torch.ones(8, 8, dtype=torch.int8)).float()[0]
        )


def test_a_product_that_torch_has_no_count_for_is_named() -> None:
    with pytest.raises(FlopsError, match="_int_mm"):
        count(Recurrent(), torch.randn(8), tokens=1)


def test_activation_checkpointing_shows_as_hardware_flops() -> None:
    class Checkpointed(Plain):
        def forward(self, tokens: Any) -> Any:
            x = self.table(tokens)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    tokens = torch.randint(0, 512, (1, 96))
    arch = architecture_of(Plain(), 96)
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):  # it would spare each block's last product
        counted = count(Checkpointed(), tokens)
    assert counted == pytest.approx(hardware_flops(arch, "full", "palm_non_embedding"), rel=0.01)
    with pytest.raises(FlopsError, match="again"):
        count(Checkpointed(), tokens, masked=False)

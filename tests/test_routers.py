"""Routers are found in the models people train, and read as these models route."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from barograph.probes.model.moe import RouterWatch, route_statistics  # noqa: E402
from barograph.probes.model.routers import find_routers, plain_name  # noqa: E402

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DEEPSEEK = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
MODELS: dict[str, tuple[dict[str, Any], int, int, int, str]] = {  # what it is made of, layers, experts, top_k, score
    "Mixtral": ({"num_local_experts": 4, "num_experts_per_tok": 2}, 2, 4, 2, "softmax"),
    "Qwen3Moe": (
        {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "head_dim": 8}, 2, 8, 3, "softmax",
    ),
    "Olmoe": ({"num_experts": 8, "num_experts_per_tok": 8}, 2, 8, 8, "softmax"),
    "DeepseekV3": (DEEPSEEK, 1, 8, 2, "sigmoid"),
}  # fmt: skip
TOKENS = torch.randint(3, 64, (3, 7), generator=torch.Generator().manual_seed(0))


def made(name: str) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(SIZES | MODELS[name][0]))
    model = getattr(transformers, f"{name}ForCausalLM")(config).train()
    for router in find_routers(model):  # routers that have made up their mind
        nn.init.normal_(router.module.weight, std=1.0)
        bias = getattr(router.module, "e_score_correction_bias", None)
        if bias is not None:
            bias.normal_()
    return model


@pytest.mark.parametrize("name", MODELS)
def test_transformers_routers_are_found_and_read_as_they_route(name: str) -> None:
    _, layers, experts, top_k, score = MODELS[name]
    model = made(name)
    watch = RouterWatch(model)
    assert [router.experts for router in watch.routers] == [experts] * layers
    assert {(router.top_k, router.score) for router in watch.routers} == {(top_k, score)}
    outputs: list[Any] = []
    handles = [
        router.module.register_forward_hook(lambda module, args, output: outputs.append(output))
        for router in watch.routers
    ]
    model(TOKENS)
    stats = watch.get_moe_stats()
    assert stats["valid"] and 1 <= stats["load_imbalance"] <= experts / top_k
    assert len(outputs) == layers and list(watch.layers()) == [router.layer for router in watch.routers]
    for (layer, figures), load, (logits, _, chosen) in zip(
        watch.layers().items(), watch.loads().values(), outputs, strict=True
    ):
        assert layer.endswith(".mlp") and load.sum() == 21 * top_k
        assert load.tolist() == torch.bincount(chosen.flatten(), minlength=experts).tolist()
        expected = route_statistics(logits, top_k, chosen=chosen, score=score)
        assert figures == pytest.approx(expected)
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Olmoe"])
def test_the_auxiliary_loss_is_top_k_times_smaller_than_transformers(name: str) -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    _, _, experts, top_k, _ = MODELS[name]
    model = made(name)
    watch = RouterWatch(model)
    outputs = model(TOKENS, output_router_logits=True)
    watch.get_moe_stats()
    assert len(outputs.router_logits) == len(watch.layers())
    for logits, figures in zip(outputs.router_logits, watch.layers().values(), strict=True):
        theirs = load_balancing_loss_func((logits.reshape(-1, experts),), experts, top_k)
        assert top_k * figures["aux_loss_raw"] == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # transformers renames the call
@pytest.mark.parametrize("reentrant", [False, True])
def test_transformers_checkpointing_counts_each_pass_once(reentrant: bool) -> None:
    model = made("Mixtral")
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    watch = RouterWatch(model)
    for _ in range(2):
        model(TOKENS, labels=TOKENS).loss.backward()
    watch.get_moe_stats()
    assert [layer["tokens"] for layer in watch.layers().values()] == [42, 42]


class Gate(nn.Linear):
    """As DeepSeek's gate was before: indices and weights, no logits."""

    def __init__(self) -> None:
        super().__init__(6, 4, bias=False)
        self.top_k, self.n_routed_experts = 2, 4

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = super().forward(x).flatten(0, -2).softmax(-1).topk(2)
        return chosen, weights


class Block(nn.Module):
    """An own mixture: a linear layer called `gate` beside a list of experts."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.gate = gate
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.gate_proj = nn.Linear(6, 4)  # no router
        self.shared_expert_gate = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.gate(x)


def test_a_router_without_logits_has_them_computed_again() -> None:
    block = Block(Gate())
    watch = RouterWatch(block, group=False)
    x = torch.randn(2, 5, 6)
    chosen, _ = block(x)
    watch.get_moe_stats()
    expected = route_statistics(x.flatten(0, 1) @ block.gate.weight.T, 2, chosen=chosen)
    assert next(iter(watch.layers().values())) == pytest.approx(expected, rel=1e-5)


def test_a_linear_gate_beside_experts_is_a_router_and_asks_for_top_k_if_nothing_says_it() -> None:
    block = Block(nn.Linear(6, 4))
    said: list[str] = []
    watch = RouterWatch(block, warn=lambda sentence, key: said.append(sentence))
    assert [router.name for router in watch.routers] == ["gate"]
    block(torch.randn(5, 6))
    assert said == ["router 'gate' does not say how many experts a token goes to; say `top_k=`"]
    told = RouterWatch(block, top_k=1)
    block(torch.randn(5, 6))
    assert told.get_moe_stats()["valid"]


def test_routers_are_named_by_pattern_by_module_and_by_function() -> None:
    model = nn.ModuleDict({"one": nn.Linear(6, 4), "two": nn.Linear(6, 3), "other": nn.Linear(6, 6)})
    assert [r.layer for r in find_routers(model, ["one", "t*"], top_k=1)] == ["one", "two"]
    assert [r.name for r in find_routers(model, [model["two"]], top_k=1)] == ["two"]
    watch = RouterWatch(model, modules={"other": lambda module, inputs, output: output[..., :2]}, top_k=1)
    model["other"](torch.randn(5, 6))
    watch.get_moe_stats()
    assert watch.loads()["other"].shape == (2,) and watch.loads()["other"].sum() == 5


def test_a_name_that_is_not_there_is_refused_with_the_nearest() -> None:
    model = nn.ModuleDict({"router_of_one": nn.Linear(6, 4)})
    with pytest.raises(ValueError, match="no module 'router_of_ona'; did you mean 'router_of_one'"):
        find_routers(model, ["router_of_ona"])
    with pytest.raises(ValueError, match="not part of the model"):
        find_routers(model, [nn.Linear(1, 1)])


def test_a_dense_transformer_has_no_routers() -> None:
    assert find_routers(nn.TransformerEncoderLayer(8, 2, 16)) == []


def test_wrappers_leave_no_trace_in_names() -> None:
    assert plain_name("module._orig_mod.model.layers.0.mlp.gate") == "model.layers.0.mlp.gate"
    assert plain_name("a._fsdp_wrapped_module.b._checkpoint_wrapped_module") == "a.b"
    wrapped = torch.compile(nn.ModuleDict({"feed": Block(Gate())}), backend="eager")
    assert [router.layer for router in find_routers(wrapped)] == ["feed"]

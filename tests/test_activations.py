"""Activations: what flows through a model, seen without asking it for anything."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import attention, blocks  # noqa: E402
from barograph.probes.model.activations import ActivationWatch, describe  # noqa: E402


class Block(nn.Module):
    """A block of functions: nothing but its linear layers and itself is a module."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.down(functional.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


TOKENS = torch.arange(40).reshape(2, 20)


def numbers(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {name: {key: float(value) for key, value in row.items()} for name, row in table.items()}


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_a_tensors_statistics_are_those_of_a_slow_reference() -> None:
    torch.manual_seed(1)
    values = torch.randn(7, 30, 11) * 3 + 5
    found = {name: float(value) for name, value in describe(values).items()}
    exact = values.double()
    centred = exact - exact.mean()
    assert found["mean"] == pytest.approx(float(exact.mean()), rel=1e-5)
    assert found["std"] == pytest.approx(float(exact.std()), rel=1e-5)
    assert found["min"] == float(values.min()) and found["max"] == float(values.max())
    assert found["l2_norm"] == pytest.approx(float(exact.norm()), rel=1e-5)
    assert found["rms"] == pytest.approx(float(exact.square().mean().sqrt()), rel=1e-5)
    assert found["kurtosis"] == pytest.approx(float(centred.pow(4).mean() / centred.square().mean() ** 2), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-20, 1e-9, 1e9, 1e18, 1e25])
def test_no_scale_overflows_or_vanishes(scale: float) -> None:
    torch.manual_seed(1)
    values = torch.randn(100, 50) * scale
    found = {name: float(value) for name, value in describe(values).items()}
    exact = values.double()
    centred = exact - exact.mean()
    assert found["std"] == pytest.approx(float(exact.std()), rel=1e-5)
    assert found["rms"] == pytest.approx(float(exact.square().mean().sqrt()), rel=1e-5)
    assert found["kurtosis"] == pytest.approx(float(centred.pow(4).mean() / centred.square().mean() ** 2), rel=1e-4)


def test_half_precision_does_not_overflow() -> None:
    found = describe(torch.full((1000,), 60_000.0, dtype=torch.float16))
    assert float(found["rms"]) == pytest.approx(60_000, rel=1e-3) and float(found["kurtosis"]) >= 0


def test_outliers_of_the_stream_are_counted() -> None:
    values = torch.ones(10_000)
    values[:10] = 1000.0
    assert float(describe(values)["tail"]) == pytest.approx(0.001)


def test_every_block_and_the_embedding_is_seen(model: Model) -> None:
    watch = ActivationWatch(model)
    seen: list[Any] = []
    handle = model.blocks[1].register_forward_hook(lambda module, given, output: seen.append(output.detach()))
    model(TOKENS)
    table = numbers(watch.collect())
    handle.remove()
    assert [name for name in table if name.startswith("blocks.") and name.count(".") == 1] == [
        "blocks.0", "blocks.1", "blocks.2",
    ]  # fmt: skip
    assert "embedding" in table
    assert table["blocks.1"]["rms"] == pytest.approx(float(seen[0].square().mean().sqrt()), rel=1e-5)
    growth = table["blocks.2"]["rms"] / table["blocks.0"]["rms"]
    assert table[""]["residual_growth"] == pytest.approx(growth, rel=1e-5)


def test_dead_units_are_those_that_no_token_woke(model: Model) -> None:
    watch = ActivationWatch(model)
    with torch.no_grad():
        model.blocks[0].up.bias[:16] = -1e6  # a quarter of 64 units
    for _ in range(3):
        model(TOKENS)
    table = numbers(watch.collect())
    reference = functional.relu(model.blocks[0].up(torch.randn(1, 16)))
    assert reference.shape[-1] == 64
    assert table["blocks.0.down"]["dead"] >= 0.25 and table["blocks.0.down"]["zeros"] > 0.25
    assert table["blocks.1.down"]["dead"] < 0.2


def test_a_unit_that_woke_once_in_the_window_is_not_dead() -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))])

        def forward(self, x: Any) -> Any:
            return self.blocks[0](x)

    model = One()
    with torch.no_grad():
        model.blocks[0][0].weight.zero_()
        model.blocks[0][0].bias.zero_()
    watch = ActivationWatch(model)
    model(torch.ones(1, 4))
    with torch.no_grad():
        model.blocks[0][0].bias[0] = 1.0
    model(torch.ones(1, 4))
    assert numbers(watch.collect())["blocks.0.2"]["dead"] == pytest.approx(7 / 8)


def test_saturated_units_are_seen_where_the_function_has_bounds() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias[:] = torch.tensor([50.0, -50.0, 0.0, 0.1])
    watch = ActivationWatch(model)
    model(torch.ones(3, 4))
    assert numbers(watch.collect())["1"]["saturated"] == pytest.approx(0.5)


def test_attention_called_as_a_function_is_seen(model: Model) -> None:
    watch = ActivationWatch(model)
    model(TOKENS)
    table = numbers(watch.collect())
    x = model.embedding(TOKENS).detach()
    q, k, _ = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in model.blocks[0].qkv(x).chunk(3, -1))
    scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~torch.ones(20, 20, dtype=torch.bool).tril(), -torch.inf)
    assert table["blocks.0"]["attention_logit_max"] == pytest.approx(float(scores.detach().max()), rel=1e-4)
    chances = scores.softmax(-1)
    entropy = -(chances * chances.clamp_min(1e-30).log()).sum(-1)[..., 1:]
    wanted = (entropy / torch.arange(2, 21).log()).mean()
    assert table["blocks.0"]["attention_entropy"] == pytest.approx(float(wanted.detach()), rel=1e-4)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_hide_what_they_hide(kind: str) -> None:
    q = k = torch.eye(4).reshape(1, 1, 4, 4) * 10
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    mask = seen if kind == "bool" else torch.zeros(4, 4).masked_fill(~seen, torch.finfo(torch.float32).min)
    largest, entropy, later = attention.of_queries(q, k, attn_mask=mask)[:3]
    assert float(largest) == pytest.approx(50.0) and float(entropy) < 0.01 and float(later) == 0
    assert float(attention.of_queries(q, k)[2]) == 1
    assert torch.isnan(attention.of_queries(q, k[..., :3, :])[2])
    uniform = attention.of_queries(torch.zeros(1, 1, 4, 4), k, attn_mask=mask)
    assert float(uniform[1]) == pytest.approx(1.0)


def test_the_outputs_partition_function_is_seen(model: Model) -> None:
    watch = ActivationWatch(model)
    output = model(TOKENS).detach()
    assert numbers(watch.collect())[""]["log_z"] == pytest.approx(float(output.logsumexp(-1).mean()), rel=1e-5)


def test_a_watch_that_is_off_or_closed_sees_nothing_and_leaves_nothing(model: Model) -> None:
    before = hooks(model)
    watch = ActivationWatch(model)
    watch.on = False
    model(TOKENS)
    assert watch.collect() == {}
    watch.close()
    assert hooks(model) == before
    model(TOKENS)
    assert watch.collect() == {}


def test_evaluation_is_not_training(model: Model) -> None:
    watch = ActivationWatch(model)
    model.eval()
    model(TOKENS)
    assert watch.collect() == {}


def test_a_forward_pass_that_fails_leaves_no_mode_behind(model: Model) -> None:
    watch = ActivationWatch(model)
    with pytest.raises(IndexError):
        model(torch.tensor([[1000]]))
    model(TOKENS)
    assert watch.sees_attention
    watch.close()


def test_the_results_of_the_model_stay_the_same(model: Model) -> None:
    plain = model(TOKENS)
    plain.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    ActivationWatch(model)
    watched = model(TOKENS)
    watched.sum().backward()
    assert torch.equal(plain, watched)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))


def test_modules_may_be_named_and_one_that_is_not_there_is_told(model: Model) -> None:
    told: list[str] = []
    watch = ActivationWatch(
        model, ["head", model.blocks[2], "nose"], heads=False, warn=lambda s, key=None: told.append(s)
    )
    model(TOKENS)
    assert set(watch.collect()) - {""} == {"head", "blocks.2"} and len(told) == 1 and "nose" in told[0]


def test_an_output_of_a_kind_of_its_own_never_raises() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))])

        def forward(self, x: Any) -> Any:
            return {"text": "no tensor", "parts": [self.blocks[0](x), None]}

    told: list[str] = []
    watch = ActivationWatch(Odd(), warn=lambda sentence, key=None: told.append(sentence))
    watch._model(torch.ones(1, 2))
    assert "blocks.0" in watch.collect()


@pytest.mark.parametrize(
    "change", [lambda x: None, lambda x: x.long(), lambda x: torch.complex(x, x), lambda x: x.to_sparse()]
)
def test_an_output_without_real_numbers_is_told_in_a_sentence(change: Any) -> None:
    class Layer(nn.Linear):
        def forward(self, x: Any) -> Any:
            return change(super().forward(x))

    told: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), Layer(2, 2))
    watch = ActivationWatch(model, warn=lambda sentence, key=None: told.append(sentence))
    model(torch.ones(1, 2))
    assert "0" in watch.collect()
    assert len(told) == 1 and told[0].startswith("the output of 1 holds no dense tensor of real numbers")


def test_a_batch_of_nothing_is_nothing_to_tell() -> None:
    told: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    watch = ActivationWatch(model, warn=lambda sentence, key=None: told.append(sentence))
    model(torch.ones(0, 2))
    assert not watch.collect().get("0") and not told


def test_names_are_those_without_wrappers() -> None:
    assert blocks.plain("module._orig_mod.blocks.0._checkpoint_wrapped_module.up.weight") == "blocks.0.up.weight"
    assert blocks.plain("submodule.x") == "submodule.x"

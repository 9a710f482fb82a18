"""The demo's model sees no future, and its routers do what is recorded of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from barograph.demo import model as gpt  # noqa: E402

TINY = gpt.ModelShape(context=16, width=24, layers=2, heads=2, hidden=32)
TINY_MOE = gpt.ModelShape(context=16, width=24, layers=2, heads=2, hidden=32, experts=4, top_k=2)
SHAPES = pytest.mark.parametrize("shape", [TINY, TINY_MOE], ids=["dense", "moe"])


def made(shape: gpt.ModelShape, seed: int = 0) -> gpt.ByteGPT:
    """A model whose layers all do something: no zeros left from the first moment of training."""
    torch.manual_seed(seed)
    model = gpt.ByteGPT(shape)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    return model


def some_bytes(count: int, time: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count, time), generator=torch.Generator().manual_seed(seed))


@SHAPES
def test_there_is_a_logit_for_each_next_byte(shape: gpt.ModelShape) -> None:
    logits, routings = made(shape)(some_bytes(3, 11))
    assert logits.shape == (3, 11, 256) and torch.isfinite(logits).all()
    assert len(routings) == (shape.layers if shape.experts else 0)


@SHAPES
def test_later_bytes_change_no_earlier_logit(shape: gpt.ModelShape) -> None:
    model, text = made(shape), some_bytes(2, 16)
    before, _ = model(text)
    for time in range(1, 16):
        changed = text.clone()
        changed[:, time:] = some_bytes(2, 16 - time, seed=time)
        after, _ = model(changed)
        torch.testing.assert_close(after[:, :time], before[:, :time])
        assert not torch.allclose(after[:, time:], before[:, time:])


def test_earlier_bytes_and_their_order_change_later_logits() -> None:
    model, text = made(TINY), some_bytes(1, 8)
    swapped = text[:, [1, 0, 2, 3, 4, 5, 6, 7]]
    assert not torch.allclose(model(text)[0][:, -1], model(swapped)[0][:, -1], atol=1e-5)


def test_rotation_keeps_lengths_and_makes_products_depend_on_distance_alone() -> None:
    model = made(TINY)
    query, key = torch.randn(2, 1, 1, 1, 12)
    turned = [gpt.rotate(x.expand(1, 1, 16, 12), model.cosine, model.sine)[0, 0] for x in (query, key)]
    torch.testing.assert_close(turned[0].norm(dim=-1), query.norm().expand(16))
    products = turned[0] @ turned[1].T
    for distance in range(-5, 6):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), atol=1e-4, rtol=1e-4)


def test_a_training_on_python_starts_near_the_loss_of_a_uniform_guess() -> None:
    source = torch.tensor(list(Path(gpt.__file__).read_bytes()))[: 64 * 65].view(64, 65)
    for shape in (gpt.ModelShape(), gpt.ModelShape(experts=8)):
        torch.manual_seed(0)
        loss = gpt.next_byte_loss(gpt.ByteGPT(shape)(source[:, :-1])[0], source[:, 1:]).item()
        assert loss == pytest.approx(math.log(256), abs=0.7)


@SHAPES
def test_every_weight_learns(shape: gpt.ModelShape) -> None:
    torch.manual_seed(0)
    model, text = gpt.ByteGPT(shape), some_bytes(8, 17)
    first = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        logits, routings = model(text[:, :-1])
        loss = gpt.next_byte_loss(logits, text[:, 1:])
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + gpt.router_loss(routings)).backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 1.0
    assert all(not torch.equal(weight, first[name]) for name, weight in model.named_parameters())


# -- routing -----------------------------------------------------------------------------------------


def slow_route(logits: list[list[float]], top_k: int) -> tuple[list[dict[int, float]], float, float, list[int]]:
    """By hand: each token's experts with their weights, both losses, the loads."""
    tokens, experts = len(logits), len(logits[0])
    loads, means, z_loss, chosen = [0] * experts, [0.0] * experts, 0.0, []
    for row in logits:
        total = sum(math.exp(value) for value in row)
        chances = [math.exp(value) / total for value in row]
        best = sorted(range(experts), key=lambda expert: -chances[expert])[:top_k]
        kept = sum(chances[expert] for expert in best)
        chosen.append({expert: chances[expert] / kept for expert in best})
        for expert in best:
            loads[expert] += 1
        means = [mean + chance / tokens for mean, chance in zip(means, chances, strict=True)]
        z_loss += math.log(total) ** 2 / tokens
    aux_loss = experts * sum(load / (tokens * top_k) * mean for load, mean in zip(loads, means, strict=True))
    return chosen, aux_loss, z_loss, loads


@pytest.mark.parametrize("top_k", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_routing_is_what_a_slow_reference_computes(top_k: int, scale: float) -> None:
    logits = torch.randn(40, 5, generator=torch.Generator().manual_seed(top_k)) * scale
    weights, chosen, routing = gpt.route(logits, top_k)
    expected, aux_loss, z_loss, loads = slow_route(logits.tolist(), top_k)
    for row in range(40):
        found = dict(zip(chosen[row].tolist(), weights[row].tolist(), strict=True))
        assert found == pytest.approx(expected[row], abs=1e-5)
    assert routing.loads.tolist() == loads and sum(loads) == 40 * top_k
    assert routing.aux_loss.item() == pytest.approx(aux_loss, rel=1e-5)
    assert routing.z_loss.item() == pytest.approx(z_loss, rel=1e-4)


def experts() -> gpt.Experts:
    block = made(TINY_MOE).blocks[0]
    assert isinstance(block, gpt.TransformerBlock) and isinstance(block.feed, gpt.Experts)
    return block.feed


def test_experts_compute_what_a_loop_over_tokens_computes() -> None:
    layer = experts()
    x = torch.randn(3, 7, 24)
    found, routing = layer(x)
    tokens, expected = x.reshape(-1, 24), torch.zeros(21, 24)
    chosen, _, _, loads = slow_route(layer.router(tokens).tolist(), 2)
    for row, weights in enumerate(chosen):
        for expert, weight in weights.items():
            inner = torch.relu(layer.up[expert] @ tokens[row]) ** 2
            expected[row] += weight * (layer.down[expert] @ inner)
    torch.testing.assert_close(found.reshape(-1, 24), expected, atol=1e-4, rtol=1e-4)
    assert routing.loads.tolist() == loads


def test_the_auxiliary_loss_is_1_when_balanced_and_the_number_of_experts_when_collapsed() -> None:
    balanced = torch.eye(4).repeat(5, 1) * 20
    assert gpt.route(balanced, 1)[2].aux_loss.item() == pytest.approx(1.0, rel=1e-4)
    collapsed = torch.tensor([[20.0, 0, 0, 0]]).repeat(9, 1)
    routing = gpt.route(collapsed, 1)[2]
    assert routing.aux_loss.item() == pytest.approx(4.0, rel=1e-4)
    assert routing.loads.tolist() == [9, 0, 0, 0]


def test_an_expert_without_tokens_disturbs_nothing() -> None:
    layer = experts()
    with torch.no_grad():
        layer.router.weight.zero_()  # ties: the same two experts take every token
    found, routing = layer(torch.randn(1, 6, 24))
    assert sorted(routing.loads.tolist()) == [0, 0, 6, 6] and torch.isfinite(found).all()
    found.sum().backward()
    assert all(weight.grad is not None and torch.isfinite(weight.grad).all() for weight in layer.parameters())


def test_stats_are_sums_of_losses_and_means_of_loads() -> None:
    def routing(aux: float, z: float, loads: list[int]) -> gpt.Routing:
        return gpt.Routing(torch.tensor(aux), torch.tensor(z), torch.tensor(loads))

    layers = [routing(1.5, 4.0, [8, 0, 0, 0]), routing(1.0, 2.0, [2, 2, 2, 2])]
    stats = gpt.moe_stats(layers)
    assert stats == pytest.approx(
        {
            "aux_loss": 0.01 * 2.5,
            "z_loss": 0.001 * 6.0,
            "expert_utilization": (1 / 4 + 1) / 2,
            "load_imbalance": (4.0 + 1.0) / 2,
            "valid": True,
        }
    )
    assert gpt.router_loss(layers).item() == pytest.approx(stats["aux_loss"] + stats["z_loss"])
    assert gpt.moe_stats([])["valid"] is False and gpt.router_loss([]).item() == 0.0


# -- measures and text ---------------------------------------------------------------------------------


def test_text_is_drawn_by_the_seed_and_goes_on_past_the_context() -> None:
    model = made(TINY)
    text = gpt.generate(model, b"def ", 40, seed=3)
    assert len(text) == 40 and text == gpt.generate(model, b"def ", 40, seed=3)
    assert text != gpt.generate(model, b"def ", 40, seed=4)
    assert gpt.generate(model, b"a prompt longer than the context", 5, seed=0)

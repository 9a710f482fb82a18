"""What the graph of a loss says of the divergence of latent numbers, and of what is beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_model_objective import ROWS, seen
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from barograph.probes.model import latents

WANTED = torch.linspace(0, 1, ROWS * 3).view(ROWS, 3)
DECODER = nn.Linear(2, 3)

DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of torch": lambda m, v: kl_divergence(Normal(m, (0.5 * v).exp()), Normal(torch.zeros(2), torch.ones(2))).mean(),
    "logarithm": lambda m, v: -0.5 * (1 + v - m.square() - v.exp()).sum(1).mean(),
    "products": lambda m, v: -0.5 * torch.sum(1 + v - m * m - v.exp()) / ROWS,
    "deviation": lambda m, v: _of_deviation(m, functional.softplus(v)),
}
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda x: functional.binary_cross_entropy_with_logits(x, WANTED, reduction="sum") / ROWS,
    "square": lambda x: functional.mse_loss(x, WANTED),
    "squares": lambda x: (x - WANTED).pow(2).sum(1).mean(),
}


def _of_deviation(mean: Tensor, deviation: Tensor) -> Tensor:
    return (0.5 * (mean**2 + deviation**2 - 1) - deviation.log()).sum(1).mean()


def encoded(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, spread = x[:, :4].chunk(2, 1)
    return mean * 1.0, spread * 1.0


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", DIVERGENCES)
def test_latent_numbers_that_the_reconstruction_does_not_reach_are_known(make: str, loss: str, cut: bool) -> None:
    def loss_of(x: Tensor) -> Tensor:
        mean, spread = encoded(x)
        numbers = mean + (0.5 * spread).exp() * torch.randn(ROWS, 2)
        return LOSSES[loss](DECODER(numbers.detach() if cut else numbers)) + 0.1 * DIVERGENCES[make](mean, spread)

    found = seen(loss_of, latents.figures)
    known = make in ("logarithm", "products") and not cut
    assert found == {"latent_cut": float(cut), "latent_logistic": float(loss == "logistic")} | (
        {"latent_noise": 1.0} if known else {}
    )


NOISED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], float]] = {
    "deviation": (lambda m, v, e: m + (0.5 * v).exp() * e, 1.0),
    "half": (lambda m, v, e: e * torch.exp(v / 2) + m, 1.0),
    "root": (lambda m, v, e: m + v.exp().sqrt() * e, 1.0),
    "power": (lambda m, v, e: m + v.exp() ** 0.5 * e, 1.0),
    "addcmul": (lambda m, v, e: m + torch.mul((v * 0.5).exp(), e), 1.0),
    "torch's": (lambda m, v, e: Normal(m, (0.5 * v).exp()).rsample(), 1.0),
    "variance": (lambda m, v, e: m + v.exp() * e, 2.0),
    "torch's, of the variance": (lambda m, v, e: Normal(m, v.exp()).rsample(), 2.0),
    "logarithm": (lambda m, v, e: m + v * e, 3.0),
    "none": (lambda m, v, e: m, 0.0),
}


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("make", ["logarithm", "products"])
@pytest.mark.parametrize("way", NOISED)
def test_what_the_noise_is_multiplied_with_is_known(way: str, make: str, parted: bool) -> None:
    noised, said = NOISED[way]
    layer = nn.Linear(4, 4)

    def loss_of(x: Tensor) -> Tensor:
        mean, spread = layer(x[:, :4]).chunk(2, 1) if parted else encoded(x)
        numbers = noised(mean, spread, torch.randn(ROWS, 2))
        return LOSSES["squares"](DECODER(numbers)) + 0.1 * DIVERGENCES[make](mean, spread)

    assert seen(loss_of, latents.figures)["latent_noise"] == said


def test_a_use_that_is_not_known_says_nothing() -> None:
    def loss_of(x: Tensor) -> Tensor:
        mean, spread = encoded(x)
        return LOSSES["square"](DECODER(mean + functional.softplus(spread) * torch.randn(ROWS, 2))) + DIVERGENCES[
            "logarithm"
        ](mean, spread)

    assert "latent_noise" not in seen(loss_of, latents.figures)


def twice(x: Tensor) -> Tensor:
    """The encoder runs for the divergence, and again for the numbers."""
    mean, _ = encoded(x)
    return functional.mse_loss(DECODER(mean), WANTED) + DIVERGENCES["logarithm"](*encoded(x))


def by_chance(x: Tensor) -> Tensor:
    """Numbers without a gradient, whose chance has one."""
    mean, spread = encoded(x)
    drawn = Normal(mean, (0.5 * spread).exp())
    numbers = drawn.sample()
    error = (DECODER(numbers) - WANTED).pow(2).sum(1)
    return (error + error.detach() * drawn.log_prob(numbers).sum(1)).mean() + DIVERGENCES["logarithm"](mean, spread)


@pytest.mark.parametrize("loss_of", [twice, by_chance])
def test_numbers_that_are_reached_another_way_are_not_cut(loss_of: Callable[[Tensor], Tensor]) -> None:
    assert seen(loss_of, latents.figures).get("latent_cut", 0.0) == 0


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda x: functional.mse_loss(x, torch.zeros_like(x)),
        lambda x: functional.cross_entropy(x, torch.arange(ROWS) % 5),
        lambda x: x.exp().mean() + x.square().mean(),
        lambda x: DIVERGENCES["logarithm"](*encoded(x)),  # alone
        # two of them: which one is meant is not said
        lambda x: DIVERGENCES["logarithm"](*encoded(x)) + DIVERGENCES["logarithm"](*encoded(2 * x)) + x.mean(),
    ],
)
def test_of_another_loss_nothing_is_said(loss_of: Callable[[Tensor], Tensor]) -> None:
    assert seen(loss_of, latents.figures) == {}


def test_a_graph_that_is_too_large_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latents, "_WHOLE", 3)

    def loss_of(x: Tensor) -> Tensor:
        mean, spread = encoded(x)
        return LOSSES["square"](DECODER(mean.detach()).tanh().exp().tanh().exp()) + DIVERGENCES["logarithm"](
            mean, spread
        )

    assert "latent_cut" not in seen(loss_of, latents.figures)

"""What the graph of a loss says of errors beside targets, alignments, divergences and values of chosen actions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_model_objective import ROWS, seen
from torch import Tensor
from torch.nn import functional

from barograph.probes.model import criteria

WANTED = torch.arange(ROWS) % 5
PLACES = 6


def aligned(
    output: Tensor, targets: int = 2, given: int = PLACES, reshaped: bool = False, logs: bool = True, dim: int = -1,
    fewer: int = 0,
) -> Tensor:  # fmt: skip
    """Of an output [N, T, classes]."""
    output = output.unsqueeze(1) + torch.randn(ROWS, PLACES, 5)
    output = output.log_softmax(dim) if logs else output
    output = output.reshape(PLACES, ROWS, 5) if reshaped else output.transpose(0, 1)
    lengths = torch.full((ROWS,), given), torch.full((ROWS,), targets)
    lengths[1][0] -= fewer
    return functional.ctc_loss(output, torch.ones(ROWS, targets, dtype=torch.long), *lengths, zero_infinity=True)


def unit(output: Tensor) -> Tensor:
    return functional.normalize(output, dim=1)


MASK = torch.nn.functional.one_hot(WANTED, 5).float()


def dice(output: Tensor, smooth: float = 1.0, squashed: bool = True) -> Tensor:
    said = output.sigmoid() if squashed else output
    return ((2 * (said * MASK).sum(1) + smooth) / (said.sum(1) + MASK.sum(1) + smooth)).mean()


def union(output: Tensor) -> Tensor:
    said = output.softmax(1)
    both = (said * MASK).sum()
    return (both + 1e-6) / ((said + MASK).sum() - both).clamp(min=1e-6)


def divergence(output: Tensor, logs: bool, reduction: str = "batchmean") -> Tensor:
    return functional.kl_div(
        output.log_softmax(1) if logs else output.softmax(1), torch.full((ROWS, 5), 0.2), reduction=reduction
    )


def focal(each: Tensor, gamma: float = 2.0, alpha: float = 1.0) -> Tensor:
    return alpha * (1 - (-each).exp()) ** gamma * each


def as_chance(output: Tensor) -> Tensor:
    """Of the logarithm of a chance, as it is often written."""
    chance = -functional.cross_entropy(output, WANTED)
    return -((1 - chance.exp()) ** 2) * chance


@pytest.mark.parametrize(
    ("loss_of", "figure", "value"),
    [
        (lambda x: focal(functional.cross_entropy(x, WANTED)), "focal_of_mean", 1.0),
        (lambda x: focal(functional.cross_entropy(x, WANTED), 1.5, 0.25).mean() / 4, "focal_of_mean", 1.0),
        (lambda x: focal(functional.cross_entropy(x, WANTED)) + 1 - dice(x), "focal_of_mean", 1.0),
        (lambda x: focal(functional.binary_cross_entropy_with_logits(x, MASK)), "focal_of_mean", 1.0),
        (lambda x: focal(functional.cross_entropy(x, WANTED, reduction="none").mean()), "focal_of_mean", 1.0),
        (as_chance, "focal_of_mean", 1.0),
        (lambda x: focal(functional.cross_entropy(x, WANTED, reduction="none")).mean(), "focal_of_mean", None),
        (lambda x: focal(functional.cross_entropy(x, WANTED, reduction="none")).sum() / ROWS, "focal_of_mean", None),
        (lambda x: focal(functional.cross_entropy(x[:1], WANTED[:1])), "focal_of_mean", None),  # a row
        (lambda x: sum(focal(functional.cross_entropy(one[None], wanted[None].expand(1))) for one, wanted in
                       zip(x[:2], WANTED[:2], strict=True)), "focal_of_mean", None),
        (lambda x: sum(focal(functional.cross_entropy(x[some], WANTED[some])) for some in (slice(4), slice(4, ROWS))),
         "focal_of_mean", None),  # of pictures, one by one
        (lambda x: focal(functional.cross_entropy(x, WANTED), 0.0), "focal_of_mean", None),
        (lambda x: (1 - functional.cross_entropy(x, WANTED)).exp() * x.mean(), "focal_of_mean", None),
        (lambda x: (-x.mean()).exp() * functional.cross_entropy(x, WANTED) + x.mean(), "focal_of_mean", None),
        (lambda x: functional.cross_entropy(x, WANTED).exp(), "focal_of_mean", None),
        (lambda x: aligned(x), "ctc_alone", 1.0),
        (lambda x: aligned(x) / 2, "ctc_alone", 1.0),
        (lambda x: aligned(x) * 0.5, "ctc_alone", None),  # a factor that may be below 0
        (lambda x: aligned(x) - x.softmax(1).square().mean(), "ctc_alone", None),
        (lambda x: aligned(x, logs=False), "ctc_alone", None),
        (lambda x: aligned(x, dim=1), "ctc_alone", None),
        (lambda x: functional.mse_loss(x, torch.zeros_like(x)), "loss_error", 1.0),
        (lambda x: functional.smooth_l1_loss(x, torch.zeros_like(x)), "loss_error", 1.0),
        (lambda x: functional.l1_loss(x, torch.zeros_like(x)), "loss_error", 1.0),
        (lambda x: ((x - 1) ** 2).mean() + (x - 2).abs().mean(), "loss_error", 1.0),
        (lambda x: functional.mse_loss(x.exp(), torch.zeros_like(x)).log(), "loss_error", None),  # a logarithm of 0
        (lambda x: (((x - 1) ** 2) / x.detach()).mean(), "loss_error", None),  # a division by 0
        (lambda x: functional.cross_entropy(x, WANTED), "loss_error", None),
        (lambda x: dice(x), "overlap_minimised", 1.0),
        (lambda x: functional.l1_loss(x.sigmoid(), torch.ones_like(x)), "loss_bounded", 1.0),
        (lambda x: functional.smooth_l1_loss(x.tanh(), torch.ones_like(x)), "loss_bounded", 2.0),
        (lambda x: (x.sigmoid() - 2).abs().mean(), "loss_bounded", 1.0),
        (lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)), "loss_bounded", None),
        (lambda x: functional.l1_loss(x, torch.ones_like(x)), "loss_bounded", None),
        (lambda x: functional.binary_cross_entropy_with_logits(x, torch.ones_like(x)) / 4, "loss_logistic", 5.0),
        (lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)), "loss_logistic", 5.0),
        (lambda x: functional.binary_cross_entropy_with_logits(x[:, 0], x[:, 0].detach()), "loss_logistic", 1.0),
        (lambda x: functional.mse_loss(x, torch.zeros_like(x)), "loss_logistic", 0.0),
        (lambda x: functional.binary_cross_entropy_with_logits(x, torch.ones_like(x)) + x.square().mean(),
         "loss_logistic", None),
        (lambda x: 1 - dice(x), "overlap_of_scores", 0.0),
        (lambda x: 1 - dice(torch.nn.Linear(5, 5)(x), squashed=False), "overlap_of_scores", 1.0),
        (lambda x: dice(x) - 1, "overlap_minimised", 1.0),
        (lambda x: functional.cross_entropy(x, WANTED) + dice(x), "overlap_minimised", 1.0),
        (lambda x: union(x), "overlap_minimised", 1.0),
        (lambda x: 1 - dice(x), "overlap_minimised", 0.0),
        (lambda x: -union(x), "overlap_minimised", 0.0),
        (lambda x: functional.cross_entropy(x, WANTED) - dice(x, 0.0) + 1, "overlap_minimised", 0.0),
        (lambda x: 0.5 * dice(x), "overlap_minimised", None),  # the number is gone, and may be below 0
        (lambda x: ((x.exp() * MASK).sum(1) / x.exp().sum(1)).mean(), "overlap_minimised", None),  # an expected cost
        (lambda x: ((2 * x * MASK).sum(1) / (MASK.sum(1) + 1)).mean(), "overlap_minimised", None),
        (lambda x: functional.mse_loss(x.gather(1, WANTED[:, None])[:, 0], torch.ones(ROWS)), "loss_of_chosen", 1.0),
        (lambda x: functional.mse_loss(x[torch.arange(ROWS), WANTED], torch.ones(ROWS)), "loss_of_chosen", 1.0),
        (lambda x: functional.mse_loss(x, torch.ones_like(x)), "loss_of_chosen", None),
        (lambda x: functional.mse_loss(x[WANTED > 1], torch.ones_like(x)[WANTED > 1]), "loss_of_chosen", None),
        (lambda x: functional.mse_loss(x.gather(0, WANTED[:, None].expand(-1, 5)), torch.ones_like(x)),
         "loss_of_chosen", None),
        (lambda x: aligned(x), "ctc_reshaped", 0.0),
        (lambda x: aligned(x, reshaped=True), "ctc_reshaped", 1.0),
        (lambda x: aligned(x), "ctc_unnormalised", 0.0),
        (lambda x: aligned(x, logs=False), "ctc_unnormalised", 1.0),
        (lambda x: aligned(x), "ctc_across", 0.0),
        (lambda x: aligned(x, dim=1), "ctc_across", 1.0),
        (lambda x: -functional.logsigmoid(x[:, 0] - x[:, 1]).mean(), "loss_ranks", 1.0),
        (lambda x: -functional.logsigmoid(0.1 * (x[:, 0] - x[:, 1])).mean(), "loss_ranks", 1.0),
        (lambda x: -functional.logsigmoid(0.1 * ((x[:, 0] - x[:, 1]) - x.detach()[:, 2])).mean(), "loss_ranks", 1.0),
        (lambda x: -functional.logsigmoid(x).mean(), "loss_ranks", 0.0),
        (lambda x: -functional.logsigmoid(0.1 * (x[:, 0] - x.detach()[:, 1])).mean(), "loss_ranks", 0.0),
        (lambda x: aligned(x), "ctc_short", 0.0),
        (lambda x: aligned(x, given=1), "ctc_short", 1.0),
        (lambda x: aligned(x), "ctc_full", 0.0),  # of equally many targets: padding may be counted
        (lambda x: aligned(x, fewer=1), "ctc_full", 1.0),
        (lambda x: aligned(x, given=4, fewer=1), "ctc_full", 0.0),
        (lambda x: aligned(x, targets=PLACES + 1, given=4, fewer=1), "ctc_full", 1.0),
        (lambda x: divergence(x, logs=False), "divergence_of_chances", 1.0),
        (lambda x: divergence(x, logs=True), "divergence_of_chances", None),
        (lambda x: divergence(x, logs=True), "divergence_averaged", 0.0),
        (lambda x: divergence(x, logs=True, reduction="none").mean() * 4 + x.mean(), "divergence_averaged", 5.0),
        (lambda x: divergence(x, logs=True, reduction="none").sum(1).mean(), "divergence_averaged", 0.0),
        (lambda x: (torch.full((ROWS, 5), 0.2) * -x.log_softmax(1)).mean(), "divergence_averaged", None),
        (lambda x: (torch.ones(ROWS, 5) - x.softmax(1)).square().mean(), "divergence_of_chances", None),
        (lambda x: functional.mse_loss(x, x.flip(0)), "loss_attracts", 1.0),
        (lambda x: (x - x.flip(0)).pow(2).sum(1).mean(), "loss_attracts", 1.0),
        (lambda x: (x - x.flip(0)).norm(dim=1).mean(), "loss_attracts", 1.0),
        (lambda x: -functional.cosine_similarity(x, x.flip(0)).mean(), "loss_attracts", 1.0),
        (lambda x: -(unit(x) * unit(x.flip(0))).sum(1).mean(), "loss_attracts", 1.0),
        (lambda x: -functional.cosine_similarity(x, x.flip(0).detach()).mean(), "loss_attracts", None),
        (lambda x: functional.mse_loss(x, x.flip(0).detach()), "loss_attracts", None),
        (lambda x: functional.mse_loss(x, x.flip(0)) + x.square().mean(), "loss_attracts", None),
        (lambda x: (x.softmax(1) * x.log_softmax(1)).sum(1).mean(), "loss_attracts", None),  # an entropy
        (lambda x: x.square().mean(), "loss_attracts", None),
        (lambda x: (x - x.flip(0)).mean(), "loss_attracts", None),  # one term less another
        (lambda x: (x - x.flip(0)).pow(3).mean(), "loss_attracts", None),
        (lambda x: (0.9 * functional.logsigmoid(x) - 0.1 * functional.logsigmoid(-x)).mean(), "loss_attracts", None),
        (lambda x: ((x - 1).pow(2).sum(1) - (x + 1).pow(2).sum(1)).mean(), "loss_attracts", None),
        (lambda x: functional.smooth_l1_loss(x.gather(1, WANTED[:, None])[:, 0], 1 + 0.9 * x.flip(0).amax(1)),
         "loss_attracts", 2.0),
        (lambda x: functional.triplet_margin_loss(x, x.flip(0), x.roll(3, 0)), "loss_hinge", 1.0),
        (lambda x: (x[:, 0] - x[:, 1] + 0.2).relu().mean(), "loss_hinge", 1.0),
        (lambda x: x.relu().mean(), "loss_hinge", None),
        (lambda x: functional.cross_entropy(x, WANTED), "loss_hinge", None),
    ],
)  # fmt: skip
def test_what_the_graph_shows(loss_of: Callable[[Tensor], Tensor], figure: str, value: float | None) -> None:
    assert seen(loss_of, criteria.figures).get(figure) == value

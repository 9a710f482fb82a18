"""Targets that are the model's own inputs, told from the gradient of its output; ranges that they are out of."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from barograph.probes.model import noising, reconstruction

DICE = torch.Generator().manual_seed(3)
PICTURES = torch.rand(24, 1, 8, 8, generator=DICE)
NUMBERS = torch.randn(24, 1, 8, 8, generator=DICE)
Loss = Callable[[Tensor, Tensor], Tensor]

LOSSES: dict[str, Loss] = {
    "square": functional.mse_loss,
    "squares": lambda output, wanted: 3 * functional.mse_loss(output, wanted, reduction="sum") / 24,
    "logistic": lambda output, wanted: functional.binary_cross_entropy_with_logits(output, wanted, reduction="sum"),
}


def seen(
    output: Tensor, wanted: Tensor, given: Tensor, loss: Loss, within: tuple[float, float] | None = None
) -> dict[str, float]:
    output = output.detach().requires_grad_()
    loss(output, wanted).backward()
    assert output.grad is not None
    some = reconstruction.input_of([torch.rand(24, 3), given], output)
    assert some is not None
    found = reconstruction.figures(some, noising.some(output.detach()), noising.some(output.grad), within)
    return dict(zip(reconstruction.FIGURES, found.tolist(), strict=True))


@pytest.mark.parametrize("loss", LOSSES)
def test_inputs_that_are_targets_are_known_whatever_the_loss_is_multiplied_by(loss: str) -> None:
    found = seen(NUMBERS, PICTURES, PICTURES, LOSSES[loss])
    assert found["input_target"] == 1
    assert found["target_mean"] == pytest.approx(float(PICTURES.mean()), abs=0.02)
    assert seen(NUMBERS, PICTURES.roll(1, 0), PICTURES, LOSSES[loss])["input_target"] == 0
    noisy = PICTURES + 0.1 * NUMBERS
    assert seen(NUMBERS, PICTURES, noisy, LOSSES[loss])["input_target"] == 0  # of denoising


@pytest.mark.parametrize(
    ("pictures", "share"),
    [(PICTURES, 0.0), (255 * PICTURES, 1.0), ((PICTURES - 0.5) / 0.5, 0.5)],
    ids=["0 to 1", "bytes", "-1 to 1"],
)
@pytest.mark.parametrize("made", ["sigmoid", "chance", "logit"])
def test_how_many_inputs_are_out_of_the_range_of_the_output(made: str, pictures: Tensor, share: float) -> None:
    if made == "chance" and share:
        return  # torch refuses
    loss = {"sigmoid": LOSSES["squares"], "chance": functional.binary_cross_entropy, "logit": LOSSES["logistic"]}[made]
    output = NUMBERS if made == "logit" else NUMBERS.sigmoid()
    found = seen(output, pictures, pictures, loss, None if made == "logit" else (0.0, 1.0))
    assert found["input_target"] == 1
    assert found["out_of_range"] == pytest.approx(share, abs=0.06)


def test_an_output_without_a_range_has_nothing_out_of_it() -> None:
    found = seen(NUMBERS, 255 * PICTURES, 255 * PICTURES, LOSSES["squares"])
    assert found["input_target"] == 1 and math.isnan(found["out_of_range"])
    assert reconstruction.input_of([torch.rand(24, 3, 8, 8)], NUMBERS) is None


def test_an_output_that_is_the_same_for_all_rows_explains_nothing() -> None:
    mean = PICTURES.mean(0, keepdim=True).expand_as(PICTURES)
    assert seen(mean, PICTURES, PICTURES, LOSSES["squares"])["rebuilt"] == pytest.approx(0, abs=1e-6)
    assert seen(torch.logit(mean), PICTURES, PICTURES, LOSSES["logistic"])["rebuilt"] == pytest.approx(0, abs=1e-6)
    assert seen(PICTURES * 0.9, PICTURES, PICTURES, LOSSES["squares"])["rebuilt"] > 0.9

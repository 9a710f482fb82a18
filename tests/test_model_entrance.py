"""Pictures where they enter a model: bytes, those that are scaled twice, and those that are as they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

from barograph.doctor.rules.data.pictures import PicturesUnscaled  # noqa: E402
from barograph.probes.model.entrance import FIGURES, Entrance  # noqa: E402

BYTES = torch.randint(0, 256, (8, 3, 6, 6), generator=torch.Generator().manual_seed(1)).float()
MEAN, DEVIATION = torch.tensor([0.48, 0.45, 0.4])[:, None, None], 0.23
PICTURES = {
    "bytes": (BYTES, "inputs not normalised"),
    "noised bytes": (0.9 * BYTES + torch.randn(BYTES.shape, generator=torch.Generator().manual_seed(2)),
                     "inputs not normalised"),
    "divided": (BYTES / 255, None),
    "from -1 to 1": (BYTES / 127.5 - 1, None),
    "normalised": ((BYTES / 255 - MEAN) / DEVIATION, None),
    "without their mean": (BYTES - 120.0, None),
    "divided twice": (BYTES / 255 / 255, "inputs normalised twice"),
    "divided twice and normalised": ((BYTES / 255 / 255 - MEAN) / DEVIATION, "inputs normalised twice"),
    "dark": (BYTES / 255 / 10, None),
    "blank": (torch.zeros_like(BYTES), None),
}  # fmt: skip


def said_of(numbers: Any) -> list[str]:
    columns = {
        f"model/{name}": (np.array([6]), np.array([float(one)])) for name, one in zip(FIGURES, numbers, strict=True)
    }
    return [one.causes[0].split(":")[0] for one in findings([PicturesUnscaled()], columns).values()]


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_as_stored_scaled_or_scaled_twice(kind: str) -> None:
    pictures, cause = PICTURES[kind]
    look = Entrance()
    look.ran(nn.Conv2d(3, 4, 3), (pictures,), pictures)
    assert look._found is not None
    assert said_of(look._found) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("behind", "whole", "shape", "is_seen"),
    [(nn.BatchNorm2d(3), True, (8, 3, 6, 6), False), (nn.BatchNorm2d(3), False, (8, 3, 6, 6), True),
     (nn.ReLU(), True, (8, 3, 6, 6), True), (nn.GroupNorm(1, 3), True, (8, 3, 6, 6), True),
     (nn.ReLU(), True, (8, 12, 3, 3), False), (nn.ReLU(), True, (8, 108), False)],
)  # fmt: skip
def test_a_normalisation_right_behind_the_first_layer_takes_the_scale_out(
    behind: Any, whole: bool, shape: tuple[int, ...], is_seen: bool
) -> None:
    look, output, given = Entrance(), torch.randn(8, 3, 6, 6), BYTES.reshape(shape)
    look.ran(nn.Identity(), (given,), given)
    look.ran(nn.Conv2d(3, 3, 1), (given,), output)
    look.ran(behind, (output if whole else output + 1,), output)
    assert (look._found is not None) == is_seen


@pytest.mark.parametrize("divides", [False, True])
def test_what_a_model_does_before_its_first_layer_counts(tmp_path: Path, divides: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 1)

        def forward(self, pictures: Any) -> Any:
            scaled = pictures / 255 if divides else pictures
            return self.last(self.first(scaled).relu().mean((2, 3)))

    found = findings_of_training(tmp_path, Net(), lambda model, step: model(BYTES).square().mean(), 10)
    assert ("pictures_unscaled" in found) != divides

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
from barograph.probes.model import entrance  # noqa: E402
from barograph.probes.model.entrance import FIGURES, Entrance, Inputs  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

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


@pytest.mark.parametrize(("every", "is_found"), [(5, True), (50, False)])
def test_a_last_batch_of_one_signal_and_its_views_is_seen(tmp_path: Path, every: int, is_found: bool) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

    def loss_of(model: nn.Module, step: int) -> Any:
        dice = torch.Generator().manual_seed(step)
        rows = torch.randn(1 if step % every == every - 1 else 12, 6, generator=dice)
        said = nn.functional.normalize(model(torch.cat([rows, rows + 0.1 * torch.randn(rows.shape, generator=dice)])))
        scores = (said @ said.T / 0.2).masked_fill(torch.eye(len(said), dtype=torch.bool), -1e9)
        return nn.functional.cross_entropy(scores, torch.arange(len(said)).roll(len(rows)))

    assert ("lone_rows" in findings_of_training(tmp_path, model, loss_of, 20)) == is_found


def moments_of(batches: list[Any], trains: bool, due: bool = True, in_one_step: bool = False) -> list[list[float]]:
    """Mean and deviation by step."""
    inputs, found = Inputs(), []
    for batch in batches:
        inputs.given(batch, trains, due)
        if not in_one_step or batch is batches[-1]:
            current = ModelRound(0, frozenset())
            inputs.put(current)
            found += [column.values[0, :2].tolist() for column in current.columns]
    return found


def test_inputs_of_a_few_numbers_are_put_together_over_steps_and_passes() -> None:
    few = [torch.randn(32, 2, generator=torch.Generator().manual_seed(at)) * 3 + 5 for at in range(16)]
    steps = moments_of(few, trains=True)
    assert len(steps) == 4  # 64 numbers each, 256 together
    assert all(abs(mean - 5) < 0.6 and abs(deviation - 3) < 0.5 for mean, deviation in steps)
    assert len(moments_of(few, trains=False, in_one_step=True)) == 1
    assert moments_of(few, trains=False) == []  # 64 of an evaluation are chance
    assert len(moments_of([torch.randn(32, 8)] * 3, trains=True)) == 3
    assert len(moments_of([torch.randn(40, 2)] * 3, trains=False)) == 3


def test_few_numbers_are_gathered_in_each_step_at_first_and_then_at_looks() -> None:
    few = [torch.randn(32, 2) for _ in range(40)]
    assert len(moments_of(few, trains=True, due=False)) == 3
    assert moments_of([one.flatten()[:32] for one in few], trains=True) == []  # a number a row: a time, a weight


@pytest.mark.parametrize(
    ("shape", "names"),
    [((8, 2, 6, 5), entrance.PAIR), ((8, 3, 6, 5), (*entrance.MOMENTS[2:], *entrance.COLOURS)), ((7, 2, 6, 5), ()),
     ((8, 2, 6), ()), ((8, 1, 6, 5), entrance.MOMENTS[2:])],
)  # fmt: skip
def test_channels_are_looked_at_each_by_itself(shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    given = torch.randn(shape) + 3 * torch.arange(shape[1]).view(-1, *[1] * (len(shape) - 2))
    said, found = entrance.moments(given, given.reshape(-1))
    assert said == ("mean", "std", *names) and len(found) == len(said)
    if shape[1] == 2 and names:
        assert torch.allclose(found[2:4], given.mean((0, 2, 3)), atol=1e-6)
        assert torch.allclose(found[4:], given.transpose(0, 1).flatten(1).std(1), atol=1e-6)


def test_rows_are_looked_at_each_by_itself() -> None:
    def of(batch: Any, trains: bool, inputs: Inputs) -> dict[str, float]:
        inputs.given(batch, trains, True)
        current = ModelRound(0, frozenset())
        inputs.put(current)
        return {
            name: float(value) for one in current.columns for name, value in zip(one.names, one.values[0], strict=True)
        }

    dice = torch.Generator().manual_seed(4)
    batch, inputs = 3 * torch.randn(32, 64, generator=dice) + torch.randn(32, 1, generator=dice), Inputs()
    each = (batch - batch.mean(1, keepdim=True)) / batch.std(1, keepdim=True)
    assert of(each, True, inputs)["rows_off_most"] < 1e-5
    assert of(each.half(), True, inputs)["rows_off_most"] < 2e-3
    assert of((batch - batch.mean()) / batch.std(), False, inputs)["rows_off"] > 0.1
    assert "rows_off" not in of(batch[:, :48], False, inputs)  # rows of another size
    assert "rows_off" not in of(torch.randn(4, 64), True, Inputs())  # few
    assert "rows_off" not in of(torch.randn(64, 8), True, Inputs())
    assert "rows_off" in of(torch.randn(32, 4, 32, 32), True, Inputs())
    assert "rows_off" not in of(torch.randn(32, 3, 224, 224), True, Inputs())  # too large to be read as a whole

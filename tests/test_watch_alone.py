"""Models that give nothing but their loss: what the watch says of them all the same."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


class Scored(nn.Module):
    """A classifier whose `forward` is given the targets, and gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.weight = nn.Parameter(0.1 * torch.randn(4, 16))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional.linear(self.layers(inputs), self.weight), targets)


def drawn(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(rows, 8)
    return inputs, (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()


@pytest.mark.parametrize("updated", [False, True])
def test_an_average_of_such_a_model_that_is_never_updated_is_the_first_cause(tmp_path: Path, updated: bool) -> None:
    torch.manual_seed(0)
    model, held_out = Scored(), drawn(64)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    run = barograph.init(dir=tmp_path, verbosity=-2, git=False, machine=False, watchdog=False, sidecar=False)
    run.watch(model, optimizer)
    for step in range(120):
        loss = model(*drawn(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if updated:
            for mine, its in zip(average.parameters(), model.parameters(), strict=True):
                mine.data.lerp_(its.data, 0.1)
        run.log({"loss": loss.item()}, step=step)
        if step % 12 == 11:
            run.log({"val_loss": average(*held_out).item()}, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    assert set(stored.series("model/passes").value) == {1.0}
    warned = [one for one in diagnose(stored)["findings"] if one["severity"] != "info"]
    assert bool(warned) is not updated
    assert updated or warned[0]["causes"][0].startswith("averaged weights not updated")

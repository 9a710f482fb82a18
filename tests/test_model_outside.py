"""Parameters that the loss reaches, and that neither the watched model nor an optimizer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))


class Layers(nn.Module):
    """Two layers between a first and a last one, kept as somebody keeps them."""

    def __init__(self, keep: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 6)
        self.middle = keep([nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24)) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for layer in self.middle:
            x = x + layer(x).relu()
        return self.last(x)


def found_in(folder: Path, model: nn.Module, more: Any = None, also: Any = None) -> Any:
    """The finding. more: what is added to the loss, of the output; also: called at each step."""

    def loss_of(model: nn.Module, step: int) -> Any:
        inputs = torch.randn(32, 12, generator=torch.Generator().manual_seed(step))
        output = model(inputs)
        if also is not None:
            also()
        return functional.cross_entropy(output, (inputs @ RULE).argmax(1)) + (0 if more is None else more(output))

    return findings_of_training(folder, model, loss_of, 32).get("outside_parameters")


def test_layers_in_a_plain_list_are_found(tmp_path: Path) -> None:
    found = found_in(tmp_path, Layers(list))
    assert found["severity"] == "warning" and found["step"] == 0 and found["evidence"]["parameters"] == 8
    assert found["causes"][0].startswith("layers not registered")


def test_layers_in_a_list_of_modules_are_the_models(tmp_path: Path) -> None:
    assert found_in(tmp_path, Layers(nn.ModuleList)) is None


@pytest.mark.parametrize(("kind", "severity"), [("drawn", "warning"), ("trained", "info"), ("steps", None),
                                               ("frozen", None), ("detached", None)])  # fmt: skip
def test_a_network_beside_the_model_is_found_where_nobody_trains_it(
    tmp_path: Path, kind: str, severity: str | None
) -> None:
    torch.manual_seed(1)
    judge = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    if kind == "trained":
        with torch.no_grad():
            for one in judge.parameters():
                one.copy_(0.1 * torch.randn_like(one) + 0.1 * torch.randn_like(one) * torch.randn_like(one))
    other = torch.optim.SGD(judge.parameters(), 1e-3)
    judge.requires_grad_(kind != "frozen")

    def more(output: Any) -> Any:
        return judge(output).mean() if kind != "detached" else judge(output).mean().detach()

    found = found_in(tmp_path, Layers(nn.ModuleList), more, other.step if kind == "steps" else None)
    assert (found and found["severity"]) == severity

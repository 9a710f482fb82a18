"""Targets of texts that are, or are not, the next tokens of what a model is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_losses import train  # noqa: E402


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
def test_targets_that_are_shifted_wrongly_are_proven(tmp_path: Path, ahead: int) -> None:
    model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))

    def batch(step: int) -> tuple[Any, Any]:
        text = torch.randint(0, 30, (4, 20))
        return text[:, :16], text[:, ahead : ahead + 16]

    def loss_of(output: Any, target: Any) -> Any:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    found, run = train(tmp_path, model, loss_of, batch, 20)
    assert set(run.series("model/target_shift").value) == {float(ahead)}
    assert (found.get("target_shift") == "warning") == (ahead != 1)


def test_targets_of_another_text_are_no_shift(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
    found, run = train(
        tmp_path, model, lambda output, target: functional.cross_entropy(output.flatten(0, 1), target.flatten()),
        lambda step: (torch.randint(0, 30, (4, 16)), torch.randint(0, 30, (4, 16))), 20,
    )  # fmt: skip
    assert "target_shift" not in found and set(run.series("model/target_shift").value) == {-1.0}


class Writer(nn.Module):
    """Writes one sign after the other, each behind the one before; given a source and what is to be written."""

    def __init__(self, shifts: bool) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.source, self.signs, self.cell = nn.Embedding(30, 16), nn.Embedding(30, 16), nn.GRUCell(16, 16)
        self.head, self.shifts = nn.Linear(16, 30), shifts

    def forward(self, source: Any, target: Any) -> Any:
        state, before, said = self.source(source).mean(1), torch.zeros(len(target), dtype=torch.long), []
        if self.shifts:  # all at once, as a decoder that makes its inputs of labels
            ahead = functional.pad(target, (1, 0))[:, :-1]
            return self.head(self.signs(ahead) + state[:, None])
        for at in range(target.shape[1]):
            state = self.cell(self.signs(before), state)
            said.append(self.head(state))
            before = target[:, at]
        return torch.stack(said, 1)


@pytest.mark.parametrize(
    ("length", "shifts", "ahead", "warns"),
    [(6, False, 0, False), (12, False, 0, False), (6, True, 0, False), (12, True, 0, False), (6, True, 1, True)],
)
def test_what_a_model_is_given_behind_a_short_source_may_be_its_targets(
    tmp_path: Path, length: int, shifts: bool, ahead: int, warns: bool
) -> None:
    def batch(step: int) -> tuple[Any, Any]:
        text = torch.randint(1, 30, (8, 17))
        return (torch.randint(0, 30, (8, length)), text[:, :16]), text[:, ahead : ahead + 16]

    def loss_of(output: Any, target: Any) -> Any:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    model = Writer(shifts)
    found, _ = train(tmp_path, Both(model), loss_of, batch, 12)
    assert (found.get("target_shift") == "warning") == warns


class Both(nn.Module):
    """A model of two inputs, given as one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, both: Any) -> Any:
        return self.model(*both)

"""What stands between a model's outputs and its loss: dropout, ignored classes, unused parts, a batch that stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

RULE = torch.randn(12, 6, generator=torch.Generator().manual_seed(3))
Loss = Callable[[Any, int], Any]


def dice(step: int) -> Any:
    return torch.Generator().manual_seed(step)


def examples(step: int, rows: int = 64) -> tuple[Any, Any]:
    inputs = torch.randn(rows, 12, generator=dice(step))
    return inputs, (inputs @ RULE).argmax(1)


def net(*end: nn.Module, middle: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), *([middle] if middle else []), nn.Linear(32, 6), *end)


def plain(model: nn.Module, step: int) -> Any:
    inputs, target = examples(step)
    return functional.cross_entropy(model(inputs), target)


def logistic(model: nn.Module, step: int) -> Any:
    inputs, target = examples(step)
    return functional.binary_cross_entropy_with_logits(model(inputs), functional.one_hot(target, 6).float())


class Masked(nn.Module):
    """Some classes are never an answer: their logits are 0."""

    def forward(self, logits: Any) -> Any:
        return logits * torch.tensor([1.0, 1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("model", "loss_of", "told"),
    [
        (net(nn.Dropout(0.2)), plain, True), (net(nn.Dropout(0.2)), logistic, True), (net(), plain, False),
        (net(middle=nn.Dropout(0.2)), plain, False), (net(Masked()), plain, False), (net(nn.ReLU()), plain, False),
    ],
    ids=["logits", "logistic", "none", "before the last layer", "masked classes", "cut at 0"],
)  # fmt: skip
def test_dropout_on_logits_is_found(tmp_path: Path, model: nn.Module, loss_of: Loss, told: bool) -> None:
    found = findings_of_training(tmp_path, model, loss_of)
    assert ("dropped_outputs" in found) == told
    assert not told or (found["dropped_outputs"]["step"], found["dropped_outputs"]["severity"]) == (0, "warning")


class Neighbours(nn.Module):
    """The mean of some rows of the batch, as a graph has neighbours: dropout takes all of those that a row has."""

    def forward(self, logits: Any) -> Any:
        near = torch.eye(len(logits)) + torch.eye(len(logits)).roll(1, 1)
        return functional.dropout(near / 2, 0.5, self.training) @ logits


def test_rows_that_are_nothing_as_a_whole_are_no_dropout_on_logits(tmp_path: Path) -> None:
    assert "dropped_outputs" not in findings_of_training(tmp_path, net(Neighbours()), plain)


@pytest.mark.parametrize(
    ("index", "missing", "told"), [(0, 0.0, True), (5, 0.0, True), (-100, 0.0, False), (-100, 0.3, False)]
)
def test_a_class_whose_number_is_ignored_is_found(tmp_path: Path, index: int, missing: float, told: bool) -> None:
    def loss_of(model: nn.Module, step: int) -> Any:
        inputs, target = examples(step)
        target = target.masked_fill(torch.rand(len(target), generator=dice(step)) < missing, -100)
        return functional.cross_entropy(model(inputs), target, ignore_index=index)

    found = findings_of_training(tmp_path, net(), loss_of)
    assert ("ignored_class" in found) == told
    assert not told or found["ignored_class"]["evidence"]["class"] == index


class Flow(nn.Module):
    """Couplings, as normalising flows have them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3))

    def forward(self, x: Any) -> tuple[Any, Any]:
        determinant = torch.zeros(len(x))
        for part in self.parts:
            first, second = x.chunk(2, -1)
            scale, shift = part(first).chunk(2, -1)
            x = torch.cat([second * scale.tanh().exp() + shift, first], -1)
            determinant = determinant + scale.tanh().sum(-1)
        return x, determinant


def points(step: int) -> Any:
    drawn = torch.randn(64, 8, generator=dice(step))
    return drawn * torch.linspace(0.5, 2, 8) + 0.3 * drawn.roll(1, 1)


NORMAL = torch.distributions.Normal(0.0, 1.0)


@pytest.mark.parametrize(
    ("loss_of", "told"),
    [
        (lambda z, determinant: -NORMAL.log_prob(z).sum(-1).mean(), True),
        (lambda z, determinant: 0.5 * z.square().sum(-1).mean(), True),
        (lambda z, determinant: -(NORMAL.log_prob(z).sum(-1) + determinant).mean(), False),
        (lambda z, determinant: 0.5 * z.square().sum(-1).mean() - determinant.mean(), False),
        (lambda z, determinant: functional.mse_loss(z, torch.ones_like(z)), False),
    ],
    ids=["missing", "missing, as squares", "right", "right, in two parts", "targets"],
)
def test_a_flow_without_its_determinant_is_found(tmp_path: Path, loss_of: Any, told: bool) -> None:
    found = findings_of_training(tmp_path, Flow(), lambda model, step: loss_of(*model(points(step))))
    assert ("output_unused" in found) == told
    assert not told or found["output_unused"]["causes"][0].startswith("log-determinant missing")


@pytest.mark.parametrize(
    ("tied", "deviation", "cause"),
    [(True, 1.0, "the output matrix is"), (False, 1.0, "the output is"), (True, 0.02, None)],
)
def test_an_embedding_that_is_the_output_matrix_is_named(
    tmp_path: Path, tied: bool, deviation: float, cause: str | None
) -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.words, self.head = nn.Embedding(40, 256), nn.Linear(256, 40, bias=False)
            nn.init.normal_(self.words.weight, std=deviation)
            nn.init.normal_(self.head.weight, std=deviation)
            self.norm = nn.LayerNorm(256)
            if tied:
                self.head.weight = self.words.weight

        def forward(self, tokens: Any) -> Any:
            return self.head(self.norm(self.words(tokens)))

    def loss_of(model: nn.Module, step: int) -> Any:
        text = torch.randint(40, (8, 17), generator=dice(step))
        return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    found = findings_of_training(tmp_path, Language(), loss_of, 12).get("initial_loss", {})
    assert (found.get("severity") == "warning") == (cause is not None)
    assert cause is None or found["causes"][0].startswith(f"bad initialisation: {cause}")


@pytest.mark.parametrize("kind", ["stays", "one order", "drawn", "two batches"])
def test_a_batch_that_stays_from_some_step_on_is_found(tmp_path: Path, kind: str) -> None:
    def loss_of(model: nn.Module, step: int) -> Any:
        number = {"stays": min(step, 35), "one order": step % 7, "drawn": step, "two batches": step % 2}[kind]
        inputs, target = examples(number, 16)
        return functional.cross_entropy(model(inputs), target)

    found = findings_of_training(tmp_path, net(), loss_of, 120).get("repeated_examples")
    assert (found is not None and found["causes"][0].startswith("data exhausted")) == (kind == "stays")
    assert kind != "stays" or (found is not None and 31 <= found["step"] <= 48 and found["severity"] == "warning")

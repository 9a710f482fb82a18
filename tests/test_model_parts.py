"""A model whose parts are called in its place: what is seen of its passes is what is seen of one that is called."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

SEEN = {"output_width", "targets", "loss_weight", "logit_range", "target_shift", "passes_without_gradients",
        "rows_again", "training", "training_in_evaluation", "loss_classes"}  # fmt: skip


class Decoder(nn.Module):
    """Next tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.places = nn.Embedding(12, 16)
        self.tokens, self.middle, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        self.drop = nn.Dropout(0.1)

    def hidden(self, given: Any) -> Any:
        places = self.places(torch.arange(given.shape[1])[None])
        return torch.relu(self.middle(self.drop(self.tokens(given) + places)))

    def forward(self, given: Any) -> Any:
        return self.head(self.hidden(given))

    def loss(self, given: Any, targets: Any) -> Any:
        return functional.cross_entropy(self.head(self.hidden(given)).flatten(0, 1), targets.flatten())

    def loss_of_tied(self, given: Any, targets: Any) -> Any:
        return functional.cross_entropy((self.hidden(given) @ self.tokens.weight.T).flatten(0, 1), targets.flatten())


class StillDropout(nn.Dropout):
    """A part that somebody left in evaluation mode, on purpose."""

    def train(self, mode: bool = True) -> StillDropout:
        return super().train(False)


class Wrapped(nn.Module):
    """A training step around a network, as Lightning's modules are; nothing calls `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Decoder()

    def training_step(self, given: Any, targets: Any) -> Any:
        return functional.cross_entropy(self.net(given).flatten(0, 1), targets.flatten())


def series(
    folder: Path, model: nn.Module, loss_of: Callable[[Any, Any], Any], *, evaluates: bool = True, steps: int = 10
) -> dict[str, Any]:
    """What was recorded of a training, by name; `eval` is called before each evaluation where `evaluates`."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(project="p", dir=folder, console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(steps):
        text = torch.randint(0, 20, (8, 13))
        optimizer.zero_grad()
        loss = loss_of(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if step % 3 == 2:
            model.train(not evaluates)
            with torch.no_grad():
                run.log({"eval/loss": loss_of(text[:, :-1], text[:, 1:]).item()}, step=step)
            model.train()
    pickle.loads(pickle.dumps(model))
    run.finish()
    left = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules()]
    assert sum(left) == 0
    stored = barograph.read(str(run.dir))[0]
    return {name[6:]: stored.series(name).value for name in stored.names() if name.startswith("model/")}


@pytest.mark.parametrize("how", ["called", "method", "parts", "step"])
def test_what_is_seen_of_a_model_that_is_called_is_seen_where_its_parts_are(tmp_path: Path, how: str) -> None:
    model: Any = Wrapped() if how == "step" else Decoder()
    loss_of = {
        "called": lambda given, targets: functional.cross_entropy(model(given).flatten(0, 1), targets.flatten()),
        "parts": lambda given, targets: functional.cross_entropy(
            model.head(model.hidden(given)).flatten(0, 1), targets.flatten()
        ),
        "method": lambda given, targets: model.loss(given, targets),
        "step": lambda given, targets: model.training_step(given, targets),
    }[how]
    seen = series(tmp_path, model, loss_of)
    assert seen.keys() >= SEEN, SEEN - seen.keys()
    assert seen["output_width"][0] == 20 and seen["targets"][-1] == 96 and seen["loss_weight"][-1] == pytest.approx(1)
    assert seen["target_shift"][-1] == 1 and set(seen["passes"]) == {1} and set(seen["rows_again"]) == {0}
    assert list(seen["training"]) == [1] and list(seen["training_in_evaluation"]) == [0]
    assert "gradients_in_evaluation" not in seen


def test_a_head_that_is_a_function_is_no_part_and_its_input_is_not_taken_for_the_output(tmp_path: Path) -> None:
    model = Decoder()
    seen = series(tmp_path, model, model.loss_of_tied)
    assert {"passes_without_gradients", "rows_again", "training"} <= seen.keys()
    assert not {"output_width", "targets", "logit_range", "output_spread"} & seen.keys()
    assert seen["loss_undivided"][0] == 1  # though the last parameter gets no gradient


def test_an_evaluation_by_parts_in_training_mode_is_seen_as_one(tmp_path: Path) -> None:
    model = Decoder()
    assert list(series(tmp_path, model, model.loss, evaluates=False)["training_in_evaluation"]) == [1]


def test_of_parts_in_different_modes_none_is_said(tmp_path: Path) -> None:
    model = Decoder()
    model.more = StillDropout(0.5).train()
    assert "training" not in series(tmp_path, model, model.loss, steps=6)


def test_a_model_that_is_called_in_evaluations_alone_counts_each_pass_once(tmp_path: Path) -> None:
    model = Decoder()

    def loss_of(given: Any, targets: Any) -> Any:
        if torch.is_grad_enabled():
            return model.loss(given, targets)
        return functional.cross_entropy(model(given).flatten(0, 1), targets.flatten())

    seen = series(tmp_path, model, loss_of)
    assert set(seen["passes"]) == {1} and set(seen["evaluated_rows"]) == {8}


class Pieces(Decoder):
    """Its loss is computed in pieces, so that never all logits are there."""

    def forward(self, given: Any, targets: Any = None) -> Any:
        hidden, targets = self.hidden(given).flatten(0, 1), targets.flatten()
        parts = zip(hidden.chunk(4), targets.chunk(4), strict=True)
        return sum(functional.cross_entropy(self.head(one), two, reduction="sum") for one, two in parts) / len(targets)


@pytest.mark.parametrize("called", [True, False])
def test_of_a_head_in_pieces_all_is_seen_but_what_counts_targets(tmp_path: Path, called: bool) -> None:
    model = Pieces()
    seen = series(tmp_path, model, model if called else model.forward)
    assert {"output_width", "logit_range", "softmax_twice"} <= seen.keys()
    assert len(seen["logit_range"]) >= 4
    assert not {"targets", "loss_weight"} & seen.keys()


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mean": functional.mse_loss,
    "by hand": lambda output, target: (output - target).pow(2).mean(),
    "half": lambda output, target: 0.5 * functional.mse_loss(output, target),
    "part": lambda output, target: functional.mse_loss(output, target) / 4,
    "sum": lambda output, target: (output - target).square().sum() / len(output),
    "rows": lambda output, target: ((output - target) ** 2).sum(1).mean(),
    "scaled": lambda output, target: functional.mse_loss(output, target, reduction="none").mean() * 2.0,
    "itself": lambda output, target: (lambda off: (off * off).mean())(output - target),
}


@pytest.mark.parametrize("how", LOSSES)
def test_the_targets_of_any_multiple_of_a_mean_square_are_known(tmp_path: Path, how: str) -> None:
    torch.manual_seed(1)
    model = nn.Linear(6, 3)

    def loss_of(text: Any, _: Any) -> Any:
        given = torch.randn(32, 6)
        return LOSSES[how](model(given), 5 + given[:, :3])

    seen = series(tmp_path, model, loss_of, steps=6)
    assert 4.4 < seen["target_mean"][-1] < 5.6 and 0.6 < seen["target_std"][-1] < 1.4


@pytest.mark.parametrize("how", ["weighted", "penalty", "both sides"])
def test_targets_of_other_losses_are_not_taken_for_those_of_a_mean_square(tmp_path: Path, how: str) -> None:
    torch.manual_seed(1)
    model = nn.Linear(6, 3)

    def loss_of(text: Any, _: Any) -> Any:
        given = torch.randn(32, 6)
        output, target = model(given), 5 + given[:, :3]
        if how == "weighted":
            return (torch.rand(32, 1) * (output - target) ** 2).mean()
        if how == "penalty":
            return functional.mse_loss(output, target) + 0.1 * output.abs().mean()
        return functional.mse_loss(output, model(given + 1))

    assert "target_mean" not in series(tmp_path, model, loss_of, steps=6)


class Towers(nn.Module):
    """Two, of which only the loss makes one: each is called by itself."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Sequential(nn.Linear(size, 16), nn.Dropout(0.1), nn.Linear(16, 8)) for size in (first, second)
        )


def of_towers(folder: Path, sizes: tuple[int, int], evaluated: str = "others", same: bool = False) -> dict[str, Any]:
    """evaluated: which examples: "others", those of the "training", or "all" first ones beside a few second ones."""
    torch.manual_seed(5)
    model, rows = Towers(*sizes), [torch.randn(200, size) for size in sizes]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = barograph.init(project="p", dir=folder, console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(24):
        chosen = torch.arange(step * 8, step * 8 + 8) % 160
        first, second = rows[0][chosen], rows[1][chosen]
        scores = model.one(first) @ model.two(first if same else second).T
        loss = functional.cross_entropy(scores, torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if step % 6 == 5:
            model.eval()
            with torch.no_grad():
                held = torch.arange(160, 200) if evaluated == "others" else torch.arange(40)
                model.one(rows[0][:160] if evaluated == "all" else rows[0][held])
                model.two(rows[1][held])
            model.train()
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    return {name[6:]: stored.series(name).value for name in stored.names() if name.startswith("model/")}


@pytest.mark.parametrize("sizes", [(12, 6), (6, 12), (12, 12)])
def test_examples_of_two_towers_are_known_whichever_is_called_first(tmp_path: Path, sizes: tuple[int, int]) -> None:
    seen = of_towers(tmp_path, sizes)
    assert (
        set(seen["example_rows"]) == {8} and set(seen["rows_again"]) <= {0, 1} and set(seen["evaluated_rows"]) == {40}
    )
    assert set(seen["evaluated_trained"]) == {0} and {"input_std", "eval_input_std"} <= seen.keys()


@pytest.mark.parametrize("sizes", [(12, 6), (6, 12)])
@pytest.mark.parametrize("evaluated", ["training", "all"])
def test_a_catalogue_that_is_trained_on_is_no_leak_and_pairs_of_the_training_are(
    tmp_path: Path, sizes: tuple[int, int], evaluated: str
) -> None:
    seen = of_towers(tmp_path, sizes, evaluated)
    assert len(seen["evaluated_rows"]) == 4  # the last one is behind the last step
    assert ("evaluated_trained" in seen) == (evaluated == "training") and "evaluated_near" not in seen
    assert evaluated == "all" or seen["evaluated_trained"][-1] > 0.4


def test_two_networks_that_are_given_the_same_are_no_towers(tmp_path: Path) -> None:
    seen = of_towers(tmp_path, (12, 12), "all", same=True)
    assert set(seen["example_rows"]) == {8} and len(seen["evaluated_trained"])

"""Targets that are among the inputs, told from the output's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_rules_objective import ROWS, every, warned

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.watch import ModelWatch  # noqa: E402

DICE = torch.Generator().manual_seed(4)
TABLE = torch.randn(200, 9, generator=DICE)
WINDOWS = torch.randn(200, 12, 3, generator=DICE)
NOISE = torch.randn(200, generator=DICE)
RULE = TABLE[:, 0] * TABLE[:, 1] + 0.1 * NOISE


def given(
    x: Tensor,
    y: Tensor,
    outputs: tuple[int, ...],
    loss: Callable[[Any, Tensor], Tensor],
    rows: int = 32,
    name: str = "targets_given",
) -> list[float]:
    """A figure of a few steps."""
    torch.manual_seed(0)
    run = Notes()
    width = int(np.prod(outputs))
    layers = nn.Linear(x[0].numel(), 16), nn.ReLU(), nn.Linear(16, width), nn.Unflatten(1, outputs)
    model = nn.Sequential(nn.Flatten(), *layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(6):
        chosen = torch.arange(rows * step, rows * step + rows) % len(x)
        optimizer.zero_grad()
        loss(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        run.log(step)
    watch.close()
    told = [run.fields(step) for step in run.steps]
    return [fields[name] for fields in told if name in fields]


def beside(y: Tensor, scale: float = 1.0) -> Tensor:
    """The table with a column more."""
    return torch.cat([TABLE, scale * y[:, None] + 5], 1)


@pytest.mark.parametrize(
    ("x", "y", "outputs", "loss", "share"),
    [
        (beside(RULE), RULE[:, None], (1,), functional.mse_loss, 1.0),
        (beside(RULE, 30.0), RULE[:, None], (1,), lambda a, b: (a - b).square().mean(), 1.0),
        (TABLE, RULE[:, None], (1,), functional.mse_loss, 0.0),
        (beside(RULE + 0.05 * NOISE), RULE[:, None], (1,), functional.mse_loss, 0.0),  # a good guess, not the target
        (beside((RULE > 0).float()), (RULE > 0).float()[:, None], (1,),
         functional.binary_cross_entropy_with_logits, 1.0),
        (TABLE, (TABLE[:, 0] > 0).float()[:, None], (1,), functional.binary_cross_entropy_with_logits, 0.0),
        (beside((3 * RULE).round().clamp(-1, 1)), (3 * RULE).round().clamp(-1, 1).long() + 1, (3,),
         functional.cross_entropy, 1.0),
        (TABLE, (TABLE[:, 0] > 0).long(), (2,), functional.cross_entropy, 0.0),
        (WINDOWS, WINDOWS[:, -2:], (2, 3), functional.mse_loss, 1.0),  # the window's end is to be foreseen
        (WINDOWS, WINDOWS[:, :1], (1, 3), functional.mse_loss, 0.0),  # what came first is to be remembered
        (WINDOWS[:-1], WINDOWS[1:, -2:], (2, 3), functional.mse_loss, 0.0),
        (WINDOWS[:, :, 0], WINDOWS[:, -4:, 0], (4,), functional.mse_loss, 1.0),
    ],
)  # fmt: skip
def test_targets_that_are_an_input_are_seen(
    x: Tensor, y: Tensor, outputs: tuple[int, ...], loss: Any, share: float
) -> None:
    said = given(x, y, outputs, loss)
    assert len(said) >= 4 and set(said) == {share}


def test_the_more_frequent_of_two_targets_is_that_of_all_rows_of_a_batch() -> None:
    logistic = functional.binary_cross_entropy_with_logits
    halves = torch.cat([torch.ones(100, 1), torch.zeros(100, 1)])  # what happened, and behind it what did not
    assert set(given(TABLE, halves, (1,), logistic, 200, "top_target_share")) == {0.5}
    assert set(given(TABLE, torch.ones(200, 1), (1,), logistic, 200, "top_target_share")) == {1.0}


def test_reconstructions_and_sequences_say_nothing() -> None:
    assert given(TABLE, TABLE, (9,), functional.mse_loss) == []
    assert given(WINDOWS, WINDOWS[:, :, :1], (12, 1), functional.mse_loss) == []  # as many places as the input


DRAWN = np.random.default_rng(0)
KINDS, LABELS = DRAWN.integers(0, 1500, 4000), DRAWN.integers(0, 2, 4000)


def encoded(way: str) -> Tensor:
    """A column that is made of the targets of rows of one kind, or is like one."""
    labels = LABELS.astype(float)
    sums, counts = np.bincount(KINDS, labels), np.bincount(KINDS)
    made = {
        "own": sums[KINDS] / np.maximum(counts[KINDS], 1),
        "others": (sums[KINDS] - labels) / np.maximum(counts[KINDS] - 1, 1),
        "many": (sums / np.maximum(counts, 1)).mean() + np.bincount(KINDS % 40, labels)[KINDS % 40] / 100,
        "counted": np.where(labels > 0, DRAWN.integers(3, 11, 4000), DRAWN.integers(0, 8, 4000)),
        "cut": np.clip(labels - 0.5 + 0.3 * DRAWN.normal(size=4000), -0.5, 0.5),
    }
    return torch.tensor(np.stack([*DRAWN.normal(size=(4, 4000)), 3 * made[way] - 1], 1)).float()


@pytest.mark.parametrize("way", ["own", "others", "many", "counted", "cut"])
def test_a_column_that_is_made_of_the_targets_is_seen(way: str) -> None:
    labels = torch.tensor(LABELS)
    logistic = functional.binary_cross_entropy_with_logits
    said = given(encoded(way), labels.float()[:, None], (1,), logistic, 64, "targets_encoded")
    assert len(said) >= 4 and (min(said) > 0.05) is (way == "own") and (max(said) == 0) is (way != "own")
    both = given(encoded(way), labels, (2,), functional.cross_entropy, 64, "targets_encoded")
    assert len(both) >= 4 and (min(both) > 0.05) is (way == "own")


def test_encoded_targets_are_said_but_not_of_a_policy() -> None:
    columns = {"loss": every(np.linspace(1.0, 0.1, ROWS)), "model/targets_encoded": (np.arange(1, 8), np.full(7, 0.25))}
    assert warned(columns)["targets_encoded"].step == 1
    assert "targets_encoded" not in warned(columns | {"reward": every(np.sin(np.arange(ROWS)))})
    assert "targets_encoded" not in warned(columns | {"model/targets_encoded": (np.arange(1, 8), np.zeros(7))})


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("share", "reward", "told"), [(1.0, False, True), (0.4, False, False), (1.0, True, False)])
def test_targets_among_the_inputs_are_said_but_not_of_a_policy(
    share: float, reward: bool, told: bool, rows: int
) -> None:
    columns = {"loss": every(np.linspace(1.0, 0.1, ROWS))}
    columns["model/targets_given"] = np.arange(1, 8), np.full(7, share)
    if reward:
        columns["reward"] = every(np.sin(np.arange(ROWS)))
    found = warned(columns, rows)
    assert ("targets_given" in found) is told
    assert not told or (found["targets_given"].step, found["targets_given"].severity) == (1, "warning")


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("means", "deviation", "told"),
    [
        (np.linspace(-1.7, 1.7, 40), 0.05, True),
        (np.tile(np.linspace(-1.7, 1.7, 8), 5), 0.1, True),  # several epochs
        (0.18 * np.random.default_rng(0).normal(size=40), 1.0, False),  # drawn
        (np.sin(np.arange(40)), 0.7, False),  # days of a series, each with its hours
        (np.tile([0.0, 1.0], 20), 1e-6, False),  # a judge of what is real, in turns
    ],
)
def test_targets_in_order_are_told_from_those_that_are_drawn(
    means: np.ndarray, deviation: float, told: bool, rows: int
) -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(np.linspace(1.0, 0.5, ROWS)), "model/target_mean": (looks, means)}
    columns["model/target_std"] = looks, np.full(len(looks), deviation)
    columns["model/example_rows"] = looks, np.full(len(looks), 32.0)
    stream = {name: column for name, column in columns.items() if name != "loss"}
    assert "ordered_targets" not in warned(stream | {"prequential_loss": columns["loss"]}, rows)
    assert ("ordered_targets" in warned(columns, rows)) is told
    assert "ordered_targets" not in warned(columns | {"reward": every(np.sin(np.arange(ROWS)))}, rows)
    assert "ordered_targets" not in warned(columns | {"model/example_rows": (looks, np.ones(len(looks)))}, rows)

"""A logged evaluation loss that is a multiple of the mean of what the evaluation computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.evaluation.multiplied import EvaluationMultiplied

STEPS, EVALUATED = np.arange(160), np.arange(19, 160, 20)
NAMES = ("loss", "loss_even", "loss_least", "loss_most", "targets", "losses")


def told(
    logged: Any,
    *,
    calls: float = 1.0,
    targets: float = 240.0,
    world: int = 1,
    spread: float = 0.2,
    train: Any = 1.0,
    name: str = "val/loss",
    pieces: tuple[int, ...] = (),
    config: dict[str, Any] | None = None,
    **others: Any,
) -> list[str]:
    """Causes. logged: what the loss is, of the mean that was seen. spread: of the calls."""
    loss = falling(160, 2.4, 0.3, 0.005)
    mean = 1.05 * loss[EVALUATED]
    apart = spread if calls > 1 else 0.0
    values = (mean, mean, (1 - apart) * mean, (1 + apart) * mean, mean * 0 + targets, mean * 0 + calls)
    series = {"train/loss": (STEPS, train * loss), name: (EVALUATED, logged(mean))}
    series |= {one: (EVALUATED, other(mean)) for one, other in others.items()}
    series |= {f"model/evaluated_{one}": (EVALUATED + 1, value) for one, value in zip(NAMES, values, strict=True)}
    findings = found([EvaluationMultiplied()], series, pieces, world_size=world, config=config or {})
    assert all(one.severity == "warning" and one.rule == "evaluation_multiplied" for one in findings)
    return [cause for one in findings for cause in one.causes]


SUMMED = "evaluation loss summed: it is added up over {}, and not divided by their number"
OVER_RANKS = "evaluation loss summed over ranks: `all_reduce` adds it up, and it is not divided by their number"
DIVIDED = "evaluation averaged wrongly: it is divided by the number of {} once too often"


@pytest.mark.parametrize("pieces", [(), (30, 70), (21, 41, 61, 62)])
@pytest.mark.parametrize(
    ("times", "how", "said"),
    [
        (2.0, {"world": 2}, OVER_RANKS),
        (2.2, {"world": 2}, OVER_RANKS),  # a rank's own examples are easier
        (0.5, {"world": 2}, DIVIDED.format("ranks")),
        (8.0, {"calls": 8.0}, SUMMED.format("batches")),
        (0.125, {"calls": 8.0}, DIVIDED.format("batches")),
        (16.0, {"calls": 8.0, "world": 2}, SUMMED.format("batches of all ranks")),
        (30.0, {"calls": 8.0}, SUMMED.format("targets of a batch")),
        (1 / 30, {"calls": 8.0}, "evaluation averaged wrongly: means of batches are divided by the number of targets"),
        (240.0, {}, SUMMED.format("targets")),
        (1.0, {"calls": 8.0}, None),
        (1.1, {"world": 2}, None),
        (2.0, {}, None),  # of one rank and one call nothing explains it
        (2.6, {"world": 2}, None),
        (2.0, {"calls": 2.0}, None),  # two parts of a loss
        (7.0, {"calls": 8.0}, None),
    ],
)
def test_a_loss_that_is_a_multiple_of_what_was_computed_is_told_of(
    times: float, how: dict[str, Any], said: str | None, pieces: tuple[int, ...]
) -> None:
    assert told(lambda mean: times * mean, pieces=pieces, **how) == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("logged", "how"),
    [
        (lambda mean: 1.0 + mean, {"world": 2}),  # a further term
        (lambda mean: np.exp(mean), {"world": 2}),
        (lambda mean: mean / np.log(2), {"world": 2}),
        (lambda mean: 8 * mean, {"calls": 8.0, "train": 8.0}),  # a sum on both sides
        (lambda mean: 2 * mean, {"world": 2, "train": 2.0}),  # two parts, here as there
        (lambda mean: 2 * mean, {"world": 2, "calls": 4.0, "spread": 1.2}),  # that of some of the calls
        (lambda mean: 8 * mean, {"calls": 8.0, "val/ce_loss": lambda mean: mean}),  # the mean is logged, too
        (lambda mean: 8 * mean, {"calls": 8.0, "config": {"loss_reduction": "sum"}}),
        (lambda mean: 30 * mean, {"calls": 8.0, "name": "val/loss_sum"}),
        (lambda mean: 0 * mean + 2 * mean[0], {"world": 2}),  # it never changes
        (lambda mean: np.cumsum(mean), {"world": 2}),  # a total of all evaluations
        (lambda mean: np.where(np.arange(len(mean)) % 3 == 2, mean, 2 * mean), {"world": 2}),
    ],
)  # fmt: skip
def test_losses_of_another_kind_are_left_alone(logged: Any, how: dict[str, Any]) -> None:
    assert told(logged, **how) == []


def test_an_evaluation_that_is_over_has_the_figures_of_its_own_step() -> None:
    """A loss that is logged some steps later, or twice, is not compared."""
    loss = falling(160, 2.4, 0.3, 0.005)
    figures = {f"model/evaluated_{one}": (EVALUATED + 1, loss[EVALUATED]) for one in NAMES[:4]}
    figures |= {f"model/evaluated_{one}": (EVALUATED + 1, np.full(len(EVALUATED), 8.0)) for one in NAMES[4:]}
    for steps, says in ((EVALUATED, True), (EVALUATED + 1, True), (EVALUATED - 2, False)):
        series = {"train/loss": (STEPS, loss), "val/loss": (steps, 8 * loss[EVALUATED])} | figures
        assert len(found([EvaluationMultiplied()], series)) == says

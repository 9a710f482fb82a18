"""Clipping behind the step, a loss that is scaled or divided twice or logged as it is scaled, and an
evaluation that smooths its labels alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.evaluation.smoothed import SmoothedEvaluation
from barograph.doctor.rules.gradient.after_step import ClippedAfter, GradientAgain, MicroBatchDropped
from barograph.doctor.rules.loss.given_twice import GivenTwice, LoggedScaled

PIECES = pytest.mark.parametrize("pieces", [(), (4, 30, 70)])
STEPS, EVALUATED = np.arange(120), np.arange(20, 120, 20)


@PIECES
@pytest.mark.parametrize(
    ("times", "passes", "scale", "evaluated", "config", "first"),
    [
        (0.5, 2.0, None, 1.05, {}, "gradient accumulation scaled wrongly"),
        (512.0, 2.0, 1024.0, 1.05, {}, "gradient accumulation scaled wrongly"),
        (0.5, 2.0, None, 0.5, {}, None),  # the logged loss is a sum
        (0.5, 2.0, None, None, {}, None),
        (0.5, 1.0, None, 1.05, {}, None),
        (1.0, 2.0, None, 1.05, {}, None),
        (0.25, 4.0, None, 1.05, {"grad_accum": 4}, None),  # by the gradient of its output
        (1024.0**2, 2.0, 1024.0, 1.05, {}, "loss scaled twice"),
        (1024.0, 2.0, 1024.0, 1.05, {}, None),
    ],
)
def test_what_backward_is_called_with_shows_a_loss_that_is_divided_or_scaled_twice(
    times: float,
    passes: float,
    scale: float | None,
    evaluated: float | None,
    config: dict[str, Any],
    first: str | None,
    pieces: tuple[int, ...],
) -> None:
    loss = falling(120, 3.0, 2.0)
    series = {
        "train/loss": (STEPS, loss),
        "model/loss_given": (STEPS, times * loss),
        "model/losses_given": (STEPS, np.full(120, passes)),
    }
    if scale:
        series["model/loss_scale"] = STEPS, np.full(120, scale)
    if evaluated:
        series["eval/loss"] = EVALUATED, evaluated * loss[EVALUATED]
    if config:
        series["model/loss_weight"] = STEPS, np.full(120, 1 / passes**2)
    told = found([GivenTwice()], series, pieces, config=config)
    assert [one.causes[0].split(":")[0] for one in told] == [first] * (first is not None)


@PIECES
@pytest.mark.parametrize(
    ("logged", "weight", "passes", "scale", "name", "says"),
    [
        (1.0, 1.0, 1.0, 1024.0, "train/loss", True),
        (1.0, 0.5, 2.0, 1024.0, "train/loss", True),
        (1024.0, 1.0, 1.0, 1024.0, "train/loss", False),  # it is logged before it is scaled
        (1.0, 1 / 1024, 1.0, 1024.0, "train/loss", False),  # it was never scaled
        (1.0, 1.0, 1.0, 1.0, "train/loss", False),
        (1.0, 1.0, 1.0, 1024.0, "train/scaled_loss", False),
    ],
)
def test_a_loss_that_is_logged_as_it_is_scaled_is_told(
    logged: float, weight: float, passes: float, scale: float, name: str, says: bool, pieces: tuple[int, ...]
) -> None:
    loss = 1024.0 * falling(120, 3.0, 2.0)
    series = {
        name: (STEPS, loss / logged),
        "model/loss_given": (STEPS, loss),
        "model/losses_given": (STEPS, np.full(120, passes)),
        "model/loss_scale": (STEPS, np.full(120, scale)),
        "model/loss_weight": (STEPS, np.full(120, weight)),
    }
    told = found([LoggedScaled()], series, pieces)
    assert [(one.step, one.kind) for one in told] == [(0, "logging")] * says


@PIECES
@pytest.mark.parametrize(
    ("factors", "says"), [([0.5, 0.4, 0.6, 0.3], True), ([0.5, 0.4, 0.6], False), ([0.5] * 8, False)]
)
def test_gradients_that_are_scaled_behind_the_step_are_clipped_too_late(
    factors: list[float], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"model/scaled_after": (np.arange(2, 2 + len(factors)), np.array(factors))}
    assert len(found([ClippedAfter()], series, pieces)) == says


@PIECES
@pytest.mark.parametrize(("steps", "says"), [(8, True), (7, False)])
def test_steps_with_gradients_that_were_used_already_are_told(steps: int, says: bool, pieces: tuple[int, ...]) -> None:
    series = {"model/gradient_again": (2 * np.arange(steps), np.ones(steps))}
    assert len(found([GradientAgain()], series, pieces)) == says


@PIECES
@pytest.mark.parametrize(
    ("passes", "backwards", "config", "says"),
    [
        (4.0, 3.0, {"grad_accum": 4}, True),
        (4.0, 4.0, {"grad_accum": 4}, False),
        (2.0, 1.0, {}, False),  # two sides of a pair
        (8.0, 4.0, {"grad_accum": 4}, False),
        (8.0, 3.0, {"grad_accum": 4}, False),
        (4.0, 0.0, {"grad_accum": 1}, False),
    ],
)
def test_a_micro_batch_without_a_backward_pass_trains_nothing(
    passes: float, backwards: float, config: dict[str, Any], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"model/passes": (STEPS, np.full(120, passes)), "model/backwards": (STEPS, np.full(120, backwards))}
    assert len(found([MicroBatchDropped()], series, pieces, config=config)) == says


@PIECES
@pytest.mark.parametrize(
    ("passes", "weight", "config", "says"),
    [
        (4.0, 0.3, {"grad_accum": 2}, True),  # two sides of each pair
        (5.0, 0.3, {"grad_accum": 2}, False),
        (2.0, 0.5, {}, True),
        (2.0, 1.0, {}, False),  # a pass for something else
    ],
)
def test_an_output_that_no_backward_pass_comes_to_is_that_of_a_micro_batch(
    passes: float, weight: float, config: dict[str, Any], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"model/passes": (STEPS, np.full(120, passes)), "model/backwards": (STEPS, np.ones(120)),
              "model/loss_weight": (STEPS, np.full(120, weight)),
              "model/graphs_unused": (STEPS[:1], np.ones(1))}  # fmt: skip
    assert len(found([MicroBatchDropped()], series, pieces, config=config)) == says


@PIECES
@pytest.mark.parametrize(("training", "looks", "says"), [(0.0, 2, True), (0.1, 2, False), (0.0, 1, False)])
def test_an_evaluation_that_smooths_its_labels_alone_is_told(
    training: float, looks: int, says: bool, pieces: tuple[int, ...]
) -> None:
    series = {
        "train/loss": (STEPS, falling(120)),
        "model/label_smoothing": (np.array([0]), np.array([training])),
        "model/evaluated_smoothing": (EVALUATED[:looks], np.full(looks, 0.3)),
    }
    assert len(found([SmoothedEvaluation()], series, pieces)) == says


@pytest.mark.parametrize("wrong", [True, False])
def test_a_training_that_clips_too_late_and_smooths_its_evaluation_says_both(tmp_path: Path, wrong: bool) -> None:
    torch = pytest.importorskip("torch")
    import barograph
    from barograph.doctor import diagnose

    torch.manual_seed(3)
    model = torch.nn.Linear(12, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(1, 31):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 12)), torch.randint(0, 6, (16,)))
        optimizer.zero_grad(set_to_none=step % 7 > 0)
        loss.backward()
        if wrong:
            optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if not wrong:
            optimizer.step()
        row = {"train/loss": loss.item()}
        if step % 10 == 0:
            with torch.no_grad():
                output, target = model(torch.randn(64, 12)), torch.randint(0, 6, (64,))
                smoothing = 0.3 if wrong else 0.0
                row["eval/loss"] = torch.nn.functional.cross_entropy(output, target, label_smoothing=smoothing).item()
        run.log(row, step=step)
    run.finish()
    stored = barograph.StoredRun(run.dir)
    told = {part["rule"] for one in diagnose(stored)["findings"] for part in (*one["evidence"].get("story", ()), one)}
    assert ({"clipped_after", "smoothed_evaluation"} & told) == ({"clipped_after", "smoothed_evaluation"} if wrong
                                                                 else set())  # fmt: skip


@pytest.mark.parametrize("how", ["twice", "once", "scaler", "cleared", "by hand", "closure", "two passes"])
def test_only_a_step_without_a_backward_pass_of_its_own_uses_gradients_again(tmp_path: Path, how: str) -> None:
    torch = pytest.importorskip("torch")
    import barograph

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=how == "scaler")
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)

    def backward() -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        scaler.scale(loss).backward()
        return loss

    for step in range(1, 13):
        loss = backward()
        if how == "closure":
            optimizer.step(backward)
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=False) if how == "cleared" else None
        if how == "by hand":
            for parameter in model.parameters():
                parameter.grad.copy_(torch.randn_like(parameter))
        backward() if how == "two passes" else None
        if how != "once":
            optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    again = "model/gradient_again" in barograph.StoredRun(run.dir).names()
    assert again == (how in ("twice", "scaler", "closure"))

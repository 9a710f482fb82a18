"""What backward passes were called with, beside the logged loss: micro-batches that are added, in any kind of loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found as findings_of

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.gradient.scale import LossNotScaled
from barograph.doctor.rules.loss.sums import LossWeight

STEP = np.arange(200)
LOSS = 3.0 - 0.01 * STEP + 0.05 * np.sin(STEP)
LOOKS = np.array([0, 1, 2, 3, 20, 40, 60])


def look(
    times: float, passes: float = 4.0, config: dict[str, Any] | None = None, pieces: tuple[int, ...] = (), **more: float
) -> list[Any]:
    config = {"gradient_accumulation_steps": 4} if config is None else config
    columns = {
        "train/loss": (STEP, LOSS),
        "model/loss_given": (LOOKS, times * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), passes)),
    }
    columns |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in more.items()}
    return findings_of([LossWeight()], columns, pieces, config=config)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7)), (1, 2, 3)])
def test_micro_batches_that_add_up_to_a_multiple_of_the_logged_loss_are_added(pieces: tuple[int, ...]) -> None:
    (finding,) = look(4.0, pieces=pieces)
    assert (finding.step, finding.found, finding.severity) == (0, 2, "warning")
    assert finding.causes == ["gradient accumulation scaled wrongly: divided not at all by 4"]


def test_three_passes_or_more_and_two_whose_mean_is_logged_need_no_configuration() -> None:
    assert look(4.0, config={}) and look(2.0, passes=2.0, config={})
    assert not look(2.02, passes=2.0, config={}) and not look(1.0, passes=2.0, config={})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7)), (1, 2, 3)])
@pytest.mark.parametrize("late", [4, 17])
def test_what_says_it_first_is_the_same_live_and_in_replay(pieces: tuple[int, ...], late: int) -> None:
    """What backward passes were called with is known from the first step on, the weight of a target's loss later."""
    later = np.array([late, late + 3, late + 44])
    columns = {
        "train/loss": (STEP, LOSS), "model/loss_given": (LOOKS, 4.0 * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), 4.0)), "model/loss_weight": (later, np.ones(3)),
        "model/passes": (LOOKS, np.full(len(LOOKS), 4.0)), "model/backwards": (LOOKS, np.full(len(LOOKS), 4.0)),
        "model/targets": (LOOKS, np.full(len(LOOKS), 6.0)),
    }  # fmt: skip
    (finding,) = findings_of([LossWeight()], columns, pieces, config={"gradient_accumulation_steps": 4})
    assert (finding.step, finding.found) == (0, 2)


def test_pairs_of_each_micro_batch_alone_are_added_though_something_passes_without_gradients() -> None:
    assert look(4.0, loss_pairs=16.0, places=16.0, passes_without_gradients=1.0)
    assert look(4.0, loss_pairs=64.0, places=16.0)


def test_a_scalers_scale_is_not_counted() -> None:
    assert look(4.0 * 1024, config={"gradient_accumulation_steps": 4, "precision": "fp16"}, loss_scale=1024.0)


@pytest.mark.parametrize(
    ("times", "passes", "more"),
    [
        (1.0, 4.0, {}),  # divided
        (0.25, 4.0, {}),  # what is logged is a sum
        (3.0, 4.0, {}),
        (4.0, 1.0, {}),  # another number is logged
        (4.0, 4.0, {"clip_coefficient": 0.25}),  # divided behind the passes
        (4.0, 4.0, {"loss_weight": 0.25}),  # the gradient of the output says more
        (4.0, 4.0, {"loss_pairs": 64.0, "places": 16.0, "passes_without_gradients": 1.0}),  # each is of all pairs
        (4.05, 4.0, {}),
    ],
)
def test_nothing_is_said_of_what_may_be_meant_so(times: float, passes: float, more: dict[str, float]) -> None:
    assert not look(times, passes, **more)


AGES = np.arange(0, 200, 10)


@pytest.mark.parametrize(
    ("each", "passes", "config", "says"),
    [
        (4.0, 1.0, {"gradient_accumulation_steps": 4}, True),
        (1.0, 4.0, {"gradient_accumulation_steps": 4}, False),  # as it is meant
        (1.0, 1.0, {"gradient_accumulation_steps": 4}, False),  # the loop's steps are micro-batches
        (4.0, 4.0, {"gradient_accumulation_steps": 4}, False),
        (4.0, 1.0, {}, False),
        (2.0, 1.0, {"gradient_accumulation_steps": 4}, False),
    ],
)
def test_an_optimizer_that_counts_a_step_for_each_micro_batch_is_stepped_at_each(
    each: float, passes: float, config: dict[str, Any], says: bool
) -> None:
    columns = {
        "train/loss": (STEP, LOSS),
        "model/optimizer_age": (AGES, each * AGES),
        "model/losses_given": (AGES, np.full(len(AGES), passes)),
        "model/loss_given": (AGES, np.full(len(AGES), 1.0)),
    }
    found = findings_of([LossWeight()], columns, config=config)
    causes = ["optimizer stepped at each micro-batch: gradients are not accumulated"]
    assert [one.causes for one in found] == [causes] * says


@pytest.mark.parametrize(
    ("times", "scale", "more", "says"),
    [
        (1.0, 65536.0, {}, True),
        (65536.0, 65536.0, {}, False),
        (1.0, 65536.0, {"half_output": 0.0}, False),  # of bfloat16, or a head in single precision
        (1.0, 65536.0, {"half_output": 0.0, "grad_norm": 2e-5}, True),  # something divides the gradients
        (1.0, 65536.0, {"half_output": 0.0, "grad_norm": 0.5}, False),  # nothing uses the scaler
        (1.0, 65536.0, {"loss_weight": 1.0}, False),  # which says more
        (1.0, 128.0, {}, False),  # the logged loss may be the scaled one
        (1.0, 1.0, {}, False),
    ],
)
def test_a_loss_that_is_differentiated_as_it_is_logged_is_not_scaled(
    times: float, scale: float, more: dict[str, float], says: bool
) -> None:
    figures = {"half_output": 1.0, "loss_scale": scale, "losses_given": 1.0} | more
    columns = {"train/loss": (STEP, LOSS), "model/loss_given": (LOOKS, times * LOSS[LOOKS])}
    columns |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    found = findings_of([LossNotScaled()], columns)
    assert [(one.step, one.found) for one in found if "itself" in one.message] == [(0, 2)] * says


def test_logged_means_of_several_steps_prove_nothing() -> None:
    columns = {
        "train/loss": (STEP[9::10], LOSS.reshape(-1, 10).mean(1)),
        "model/loss_given": (LOOKS, 4.0 * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), 4.0)),
    }
    assert not findings_of([LossWeight()], columns, config={"gradient_accumulation_steps": 4})


@pytest.mark.parametrize(
    ("weights", "times", "says"),
    [([0.24, 0.32, 1.2], 4.0, True), ([0.24, 0.32, 1.2], 1.0, False), ([0.24, 0.25, 0.25], 4.0, False)],
)
def test_weights_of_classes_leave_it_to_what_is_differentiated(weights: list[float], times: float, says: bool) -> None:
    columns = {
        "train/loss": (STEP, LOSS),
        "model/loss_given": (LOOKS, times * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), 4.0)),
        "model/loss_weight": (LOOKS, np.resize(weights, len(LOOKS))),
    }
    found = findings_of([LossWeight()], columns, config={"gradient_accumulation_steps": 4})
    assert [one.causes[0][:21] for one in found] == ["gradient accumulation"] * says


@pytest.mark.parametrize("divides", [True, False])
def test_a_loss_in_pieces_within_the_model_is_seen_by_what_is_differentiated(divides: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = torch.nn.Embedding(11, 16), torch.nn.Linear(16, 11)

        def forward(self, tokens: Any, targets: Any) -> Any:
            hidden, total = self.table(tokens), 0.0
            for some, wanted in zip(hidden.split(4, 1), targets.split(4, 1), strict=True):
                logits = self.head(some).flatten(0, 1)
                total = total + torch.nn.functional.cross_entropy(logits, wanted.flatten(), reduction="sum")
            return total / targets.numel()

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False,
        config={"accumulation": 3},
    )  # fmt: skip
    run.watch(model, optimizer)
    for step in range(12):
        total = 0.0
        for _ in range(3):
            tokens = torch.randint(11, (4, 9))
            loss = model(tokens[:, :-1], tokens[:, 1:])
            (loss / 3 if divides else loss).backward()
            total += loss.item() / 3
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": total}, step=step)
    run.finish()
    said = [one for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["rule"] == "loss_weight"]
    assert [one["causes"][0].endswith("not at all by 3") for one in said] == [True] * (not divides)


def last_logged(each: float, passes: float = 4.0, noise: float = 0.1, logged: float = 1.0, **more: Any) -> list[Any]:
    """Each pass is called with `each` times the loss; the last one's is logged, `logged` times as large."""
    noisy = LOSS * (1 + noise * np.sin(3.0 * STEP)) * each * logged
    columns = {
        "train/loss": (STEP, noisy),
        "model/loss_given": (LOOKS, each * passes * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), passes)),
        "model/loss_undivided": (LOOKS[:1], np.zeros(1)),
    }
    evaluated = more.pop("evaluated", None)
    if evaluated is not None:
        columns["eval/loss"] = (np.array([10, 30, 50]), evaluated * LOSS[[10, 30, 50]])
    columns |= {f"model/{name}": (LOOKS[:1], np.full(1, value)) for name, value in more.items()}
    return findings_of([LossWeight()], columns, (), config={})


def test_the_last_micro_batchs_loss_is_compared_with_the_evaluations() -> None:
    (finding,) = last_logged(1.0, evaluated=1.1)
    assert finding.causes == ["gradient accumulation scaled wrongly: divided not at all by 4"]
    assert not last_logged(0.25, evaluated=1.1)  # divided, and logged so
    assert not last_logged(0.25, evaluated=1.1, logged=4.0)  # divided, and logged as it was
    assert not last_logged(1.0, evaluated=2.0)  # too far from it to be sure
    assert not last_logged(1.0, passes=2.0, evaluated=1.1)  # two losses


def test_without_an_evaluation_the_first_losses_are_compared_with_a_guess() -> None:
    classes = round(np.exp(3.0 / 1.1))
    assert last_logged(1.0, loss_classes=classes)
    assert not last_logged(0.25, loss_classes=classes) and not last_logged(1.0)
    assert not last_logged(1.0, loss_classes=3) and not last_logged(1.0, passes=3.0, loss_classes=classes)


@pytest.mark.parametrize(("undivided", "passes", "says"), [(1.0, 4.0, True), (0.0, 4.0, False), (1.0, 1.0, False)])
def test_a_mean_that_nothing_divides_is_one_whatever_the_gradient_of_the_output_looks_like(
    undivided: float, passes: float, says: bool
) -> None:
    columns = {"train/loss": (STEP, LOSS), "model/loss_undivided": (LOOKS[:1], np.full(1, undivided))}
    for name, value in {
        "loss_weight": 0.34,
        "passes": 4.0,
        "backwards": passes,
        "targets": 32.0,
        "clip_coefficient": 1.0,
    }.items():
        columns[f"model/{name}"] = (LOOKS, np.full(len(LOOKS), value))
    config = {"gradient_accumulation_steps": 4}
    assert bool(findings_of([LossWeight()], columns, (), config=config)) == says

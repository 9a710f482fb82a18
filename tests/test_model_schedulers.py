"""What is read of torch's schedulers, and what is said of their counts beside the optimizer's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from test_rules_objective import ROWS, every, warned

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler as made  # noqa: E402
from watched_models import Model, Notes, loss_of  # noqa: E402

from barograph.doctor.rules.optimizer.again import PlateauTold, SteppedAgain  # noqa: E402
from barograph.doctor.rules.optimizer.scheduled import ScheduleCount  # noqa: E402
from barograph.probes.model import schedulers  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

STEPS = np.arange(20, ROWS, 10)


def optimizer() -> Any:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


def test_schedulers_are_found_with_their_counts_and_lengths() -> None:
    ours, plain, waiting, chained = (optimizer() for _ in range(4))
    cosine = made.CosineAnnealingLR(ours, 50)
    plateau = made.ReduceLROnPlateau(waiting, "max")
    both = made.SequentialLR(chained, [made.LinearLR(chained), made.CosineAnnealingLR(chained, 90)], [10])
    for one in (ours, waiting, chained):
        one.step()
    cosine.step()
    plateau.step(3.0)
    both.step()
    schedulers.find([ours, plain, waiting, chained])
    counted = {"scheduler_steps": 1.0, "schedule_beside": pytest.approx(1.0)}
    assert schedulers.figures(ours) == counted | {"scheduler_length": 50.0}
    assert schedulers.figures(plain) == {}
    assert schedulers.figures(waiting) == {"plateau_best": 3.0, "plateau_highest": 1.0, "plateau_steps": 1.0,
                                           "plateau_patience": 10.0}  # fmt: skip
    assert schedulers.figures(chained) == {"scheduler_steps": 1.0, "scheduler_length": 100.0}
    del cosine
    assert schedulers.figures(ours) == {}  # nothing is kept alive
    stairs = made.MultiStepLR(plain, [5, 8])
    schedulers.find([plain])
    assert stairs is not None and schedulers.figures(plain) == {
        "scheduler_steps": 0.0, "scheduler_last_mark": 8.0, "schedule_beside": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "inner, outer, expected",
    [
        (0, 2, {"scheduler_moves": 6.0, "scheduler_jumps": 6.0, "scheduler_jump": 2.0, "scheduler_jumps_even": 1.0}),
        (1, 1, {"scheduler_moves": 59.0, "scheduler_jumps": 5.0, "scheduler_jump": 2.0, "scheduler_jumps_even": 1.0}),
        (0, 1, {}),
        (1, 0, {}),
    ],
)
def test_steps_of_a_scheduler_in_two_places_show_in_its_count(
    inner: int, outer: int, expected: dict[str, float]
) -> None:
    ours = optimizer()
    stairs = made.StepLR(ours, 1000)
    ours.step()
    schedulers.find([ours])
    for step in range(60):
        schedulers.follow(ours)
        for _ in range(inner):
            stairs.step()
        if step % 10 == 9 - (outer == 2):
            for _ in range(outer):
                stairs.step()
    schedulers.follow(ours) if not inner else None
    found = schedulers.figures(ours)
    assert {name: found[name] for name in found if "jump" in name or "moves" in name} == expected


@pytest.mark.parametrize(
    ("sets", "besides", "expected"),
    [
        (3, False, {"plateau_moves": 6.0, "plateau_jumps": 6.0, "plateau_jump": 3.0}),
        (1, False, {}),
        (3, True, {}),
    ],
)
def test_numbers_that_a_scheduler_waiting_for_a_plateau_is_given_at_once_are_counted(
    sets: int, besides: bool, expected: dict[str, float]
) -> None:
    ours = optimizer()
    plateau = made.ReduceLROnPlateau(ours)
    other = made.StepLR(ours, 1000) if besides else None
    ours.step()
    schedulers.find([ours])
    for step in range(61):
        schedulers.follow(ours)
        for number in range(sets if step % 10 == 9 else 0):
            plateau.step(float(number))
    found = schedulers.figures(ours)
    names = ("plateau_moves", "plateau_jumps", "plateau_jump")
    assert {name: found[name] for name in names if name in found} == expected
    assert (other is not None) == besides


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"plateau_moves": 8.0}, False),  # at times once
        ({"plateau_moves": 3.0, "plateau_jumps": 3.0}, False),
        ({"plateau_jump": 0.0}, False),  # as behind a load
        ({"plateau_steps": 80.0}, False),  # that of the step is given with the loss
        ({"rate_share": 1.0}, False),  # nothing has come of it
    ],
)
def test_a_scheduler_that_waits_for_a_plateau_of_several_sets_is_warned(change: dict[str, float], said: bool) -> None:
    columns = {"plateau_moves": 5.0, "plateau_jumps": 5.0, "plateau_jump": 3.0, "plateau_steps": 15.0,
               "plateau_patience": 1.0, "rate_share": 0.1} | change  # fmt: skip
    looks = np.array([20, 100])
    given = {f"model/{name}": (looks, np.array([1.0 if name == "rate_share" else 0.0, value]))
             for name, value in columns.items()}  # fmt: skip
    assert bool(findings([PlateauTold()], given)) is said


JUMPS = np.arange(1, 13, dtype=float)  # at looks that are ten steps apart


@pytest.mark.parametrize(
    "change, said",
    [
        ({}, True),
        ({"scheduler_jump": 0.0}, False),  # by different numbers, as behind a load
        ({"scheduler_moves": JUMPS + 1}, True),  # and by one as well
        ({"scheduler_moves": JUMPS + 1, "scheduler_jump": 3.0}, False),
        ({"scheduler_moves": 2 * STEPS[:12] / 3, "scheduler_jumps": 2 * STEPS[:12] / 3}, False),  # at most of the steps
        ({"world_size": 2}, False),  # accelerate steps it once for each rank
        ({"scheduler_moves": STEPS[:12] - 20.0}, True),
        ({"scheduler_moves": STEPS[:12] - 20.0, "scheduler_jumps_even": 0.5}, False),  # steps were left out
        ({"scheduler_moves": STEPS[:12] - 20.0, "scheduler_jump": 4.0}, False),
        ({"scheduler_moves": STEPS[:12] - 20.0, "loss_scale": 1024.0}, False),  # steps that overflowed
    ],
)
def test_a_scheduler_that_is_stepped_in_two_places_is_warned(change: dict[str, Any], said: bool) -> None:
    looks = STEPS[:12]
    columns = {"scheduler_moves": JUMPS, "scheduler_jumps": JUMPS, "scheduler_jump": 2.0, "scheduler_jumps_even": 1.0,
               "scheduled_steps": looks.astype(float)} | change  # fmt: skip
    facts = {"world_size": columns.pop("world_size", 1)}
    given = {f"model/{name}": (looks, values + 0.0 * looks) for name, values in columns.items()}
    assert bool(findings([SteppedAgain()], given, facts=facts)) is said


def counted(pace: float, length: float, share: Any = 1.0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of a run of ROWS steps, whose scheduler is stepped so often at each and is made for so many."""
    count = np.floor(STEPS * pace)
    found = {"scheduler_steps": count, "scheduled_steps": STEPS.astype(float), "rate_share": share + 0 * count}
    if length:
        found["scheduler_length"] = length + 0 * count
    return {f"model/{name}": (STEPS, values) for name, values in found.items()}


def cosine(length: float) -> np.ndarray:
    return np.asarray(0.5 + 0.5 * np.cos(np.pi * STEPS / length))


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("pace", "length", "share", "cause"),
    [
        (0.0, ROWS, 1.0, "scheduler never stepped"),
        (0.0, 10, 1.0, ""),  # epochs, of which one is not over
        (0.0, 0.6 * ROWS, 1.0, ""),  # as many epochs, perhaps
        (1 / 30, ROWS, 1.0, "scheduler stepped too seldom"),
        (1 / 30, ROWS / 30, 1.0, ""),  # once an epoch, and it counts epochs
        (1 / 30, 3 * ROWS, 1.0, ""),  # epochs of a run that was to be far longer
        (2.0, ROWS, 1.0, "scheduler stepped too often: 2 times"),
        (2.0, 2 * ROWS, 1.0, ""),  # two processes, and it counts those of both
        (1.0, ROWS, cosine(ROWS), ""),
        (1.0, ROWS / 2, cosine(ROWS / 2), "schedule too short"),
        (1.0, ROWS / 20, cosine(ROWS / 20), ""),  # many waves: cycles, or `ScheduleUnits`
        (1.0, ROWS / 2, np.maximum(1e-3, 1 - STEPS / (ROWS / 2)), ""),  # it stays low
    ],
)
def test_counts_that_do_not_go_together_are_said(pace: float, length: float, share: Any, cause: str, rows: int) -> None:
    loss = {"loss": every(np.linspace(2.0, 1.0, ROWS))}
    found = warned(loss | counted(pace, length, share), rows)
    assert ("schedule_count" in found) == bool(cause)
    if cause:
        assert found["schedule_count"].causes[0].startswith(cause) and found["schedule_count"].step == 20


def test_a_scheduler_that_is_stepped_at_each_micro_batch_is_named_so() -> None:
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS))} | counted(4.0, ROWS)
    columns["model/backwards"] = STEPS, np.full(len(STEPS), 4.0)
    assert warned(columns)["schedule_count"].causes[0].startswith("scheduler stepped per micro-batch: 4 times")


@pytest.mark.parametrize(
    ("pace", "passes", "share", "world", "told"),
    [
        (2.0, 2.0, 1 / np.sqrt(1 + STEPS / 20), 1, True),
        (2.0, 2.0, 0.97**STEPS, 1, True),
        (2.0, 2.0, np.maximum(0.0, 1 - STEPS / ROWS), 1, False),  # made for as many, perhaps: it ends with the run
        (2.0, 2.0, 1 / np.sqrt(1 + STEPS / 20), 2, False),  # once for each rank
        (2.0, 1.0, 1 / np.sqrt(1 + STEPS / 20), 1, False),
        (1.0, 1.0, 1 / np.sqrt(1 + STEPS / 20), 1, False),
    ],
)
def test_a_schedule_without_a_length_is_held_against_the_backward_passes(
    pace: float, passes: float, share: Any, world: int, told: bool
) -> None:
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS))} | counted(pace, 0, share)
    columns["model/backwards"] = STEPS, np.full(len(STEPS), passes)
    found = findings([ScheduleCount()], columns, facts={"finished": True, "world_size": world})
    assert [one.causes[0][:35] for one in found.values()] == ["scheduler stepped per micro-batch: "] * told


@pytest.mark.parametrize(
    ("pace", "length", "told"), [(1.0, 5.0, True), (1.0, 6.0, False), (1 / 60, 5.0, False), (1.0, 5.0 * 60, False)]
)
def test_a_schedule_of_as_many_steps_as_epochs_that_is_stepped_at_each_batch_is_named_so(
    pace: float, length: float, told: bool
) -> None:
    epochs = {"epoch": every(np.arange(ROWS) * 5 // ROWS)}
    found = warned({"loss": every(np.linspace(2.0, 1.0, ROWS))} | epochs | counted(pace, length))
    assert ("schedule_count" in found) == told
    if told:
        assert found["schedule_count"].causes[0].startswith("scheduler stepped per batch")


def test_a_scheduler_that_was_not_stepped_in_three_epochs_is_said_whatever_its_length() -> None:
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS)), "epoch": every(np.arange(ROWS) // 60)} | counted(0.0, 0)
    assert "schedule_count" in warned(columns)
    assert "schedule_count" not in warned(columns | {"epoch": every(np.arange(ROWS) // 200)})


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("highest", "best", "metric", "told"),
    [
        (1.0, "max", "val_loss", True),
        (0.0, "min", "val_loss", False),
        (1.0, "max", "val_accuracy", False),
        (0.0, "min", "val_accuracy", True),
        (1.0, "other", "val_loss", False),  # it is given another metric
    ],
)
def test_a_plateau_scheduler_of_the_wrong_mode_is_proved_by_what_it_takes_for_the_best(
    highest: float, best: str, metric: str, told: bool, rows: int
) -> None:
    at = np.arange(15, ROWS, 16)
    values = np.linspace(2.0, 1.0, len(at)) if metric == "val_loss" else np.linspace(0.3, 0.9, len(at))
    ours = {"max": np.maximum.accumulate(values), "min": np.minimum.accumulate(values), "other": values + 7}[best]
    kept = {f"model/{name}": (at + 1, numbers) for name, numbers in
            {"plateau_best": ours, "plateau_highest": highest + 0 * ours}.items()}  # fmt: skip
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS)), metric: (at, values)} | kept
    assert ("plateau_mode" in warned(columns, rows)) is told


@pytest.mark.parametrize(("steps", "told"), [([1.0, 2.0], True), ([20.0, 40.0], False)])
def test_two_evaluations_are_enough_where_a_plateau_scheduler_was_given_both(steps: list[float], told: bool) -> None:
    at, values = np.array([20, 40]), np.array([0.7, 0.5])
    kept = {"best": np.full(2, 0.7), "highest": np.ones(2), "steps": np.array(steps), "patience": np.zeros(2)}
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS)), "val_loss": (at, values)}
    columns |= {f"model/plateau_{name}": (at + 1, numbers) for name, numbers in kept.items()}
    assert ("plateau_mode" in warned(columns, ROWS)) is told


@pytest.mark.parametrize(
    ("mark", "pace", "epochs", "warns"),
    [(8.0, 1.0, 9, True), (8.0, 0.05, 9, False), (60.0, 1.0, 9, False), (12.0, 1.0, 9, False), (8.0, 1.0, 60, False)],
)
def test_stairs_at_numbers_of_epochs_that_are_over_within_the_first_are_of_batches(
    mark: float, pace: float, epochs: int, warns: bool
) -> None:
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS)), "epoch": every(np.arange(ROWS) * epochs // ROWS)}
    columns |= counted(pace, 0.0) | {"model/scheduler_last_mark": (STEPS, mark + 0.0 * STEPS)}
    assert ("schedule_count" in warned(columns)) == warns


@pytest.mark.parametrize(
    ("pace", "patience", "end", "told"),
    [(1.0, 2.0, 1e-3, True), (0.02, 2.0, 1e-3, False), (1.0, 400.0, 1e-3, False), (1.0, 2.0, 0.3, False)],
)
def test_a_plateau_scheduler_that_is_stepped_at_each_batch_is_named_so(
    pace: float, patience: float, end: float, told: bool
) -> None:
    figures = {"plateau_steps": np.floor(STEPS * pace), "plateau_patience": patience + 0.0 * STEPS,
               "rate_share": np.geomspace(1.0, end, len(STEPS))}  # fmt: skip
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS))}
    columns |= {f"model/{name}": (STEPS, values) for name, values in figures.items()}
    assert ("plateau_pace" in warned(columns)) == told


@pytest.mark.parametrize(
    ("mark", "pace", "ends", "told"),
    [(150.0, 0.03, 1.0, True), (150.0, 0.03, 0.1, False), (12.0, 0.03, 1.0, False), (900.0, 0.03, 1.0, False)],
)
def test_stairs_in_steps_of_a_schedule_that_is_stepped_once_an_epoch_are_never_reached(
    mark: float, pace: float, ends: float, told: bool
) -> None:
    columns = {"loss": every(np.linspace(2.0, 1.0, ROWS))}
    columns |= counted(pace, 0.0, np.linspace(1.0, ends, len(STEPS)))
    columns |= {"model/scheduler_last_mark": (STEPS, mark + 0.0 * STEPS)}
    assert ("schedule_count" in warned(columns)) == told


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("often", [1, 4])
def test_the_schedule_of_copies_of_the_weights_is_counted_as_well(often: int, groups: int) -> None:
    """Weights that are kept in full by hand, beside a model in sixteen bits."""
    model = Model().bfloat16()
    ours = list(model.parameters())
    copies = [nn.Parameter(one.detach().float().clone()) for one in ours]
    flat = [one for one in copies if one.dim() < 2] if groups > 1 else []
    kinds = [[one for one in copies if all(one is not other for other in flat)], flat]
    optimizer = torch.optim.AdamW([{"params": one} for one in kinds if one], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    run = Notes()
    watch = ModelWatch(run, model, optimizer, gradients=0, updates=0, weights=0, histograms=0, activations=0,
                       optimizer_state=0, budget=None)  # fmt: skip
    for step in range(41):
        loss_of(model).backward()
        for one, copy in zip(ours, copies, strict=True):
            copy.grad = one.grad.float()
        optimizer.step()
        with torch.no_grad():
            for one, copy in zip(ours, copies, strict=True):
                one.copy_(copy)
        model.zero_grad()
        for _ in range(often):
            schedule.step()
        run.log(step)
    watch.close()
    said = {name: value for kind, _, fields in run.records if kind == "model" for name, value in fields.items()}
    assert said["scheduler_steps"] == 40 * often and said["scheduled_steps"] == 40
    assert said["scheduler_length"] == 40 and "rate_share" in said and "update_p50" not in said

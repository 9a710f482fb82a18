"""In which mode an evaluation was, where other passes without gradients come beside it."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.evaluation.mode import ModelMode

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.pass_modes import PassModes  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

Pass = tuple[bool, int]  # training mode, rows


@pytest.mark.parametrize(
    ("passes", "norm", "training"),
    [
        ([(True, 40), (True, 40), (False, 2), (False, 2)], False, True),  # a sample is drawn behind it
        ([(False, 2), (True, 40)], False, True),
        ([(True, 40), (False, 40)], False, False),
        ([(True, 40), (False, 11)], False, False),
        ([(True, 7), (False, 1)], False, False),  # few in either
        ([(False, 40), (True, 2)], False, False),
        ([(True, 40), (False, 2)], True, False),  # statistics of batch norm may be gathered
        ([(True, 40)], False, True),
        ([(False, 40)], False, False),
    ],
)
def test_the_mode_of_an_evaluation_is_that_of_its_large_passes(passes: list[Pass], norm: bool, training: bool) -> None:
    parts: list[nn.Module] = [nn.Linear(4, 4), nn.Dropout(0.5), *([nn.BatchNorm1d(4)] if norm else [])]
    modes = PassModes(nn.Sequential(*parts))
    for mode, rows in passes:
        modes.passed(mode, [torch.randn(rows, 4)])
    found = modes.put(ModelRound(1, frozenset()))
    assert found["training_in_evaluation"] == training
    assert "statistics_gathered" not in found or not training


@pytest.mark.parametrize("norm", [False, True])
def test_an_evaluation_beside_passes_of_each_step_is_where_many_more_come(norm: bool) -> None:
    modes = PassModes(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4) if norm else nn.Dropout(0.5)))

    def step(*seen: bool) -> float | None:
        for mode in seen:
            modes.passed(mode, [torch.randn(6, 4)])
        current = ModelRound(1, frozenset())
        modes.put(current)
        return current.figures.get("evaluated_in_training")

    assert [step(True) for _ in range(6)] == [None] * 6
    assert step(True, *[True] * 4) == 1 and step(True) is None
    assert step(True, *[False] * 4) == 0 and step(True, True) is None
    modes.rested()
    assert step(*[True] * 9) is None  # of several steps, of which nothing was looked at


def test_where_steps_have_no_such_passes_their_own_mode_says_all() -> None:
    modes = PassModes(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
    current = ModelRound(1, frozenset())
    for _ in range(6):
        modes.put(current)
    modes.passed(True, [torch.randn(6, 4)])
    assert modes.put(current)["training_in_evaluation"] == 1 and "evaluated_in_training" not in current.figures


@pytest.mark.parametrize(
    ("modes", "logged", "told"),
    [
        ([1, 1, 1], 19, True),
        ([1, 1, 1], None, False),
        ([1, 1, 1], 9, False),  # labels are made anew, and the evaluation is elsewhere
        ([0, 0, 0], 19, False),
        ([1, 0, 1], 19, False),
    ],
)
def test_two_evaluations_in_training_mode_beside_passes_of_each_step_are_said(
    modes: list[int], logged: int | None, told: bool
) -> None:
    columns = {"model/evaluated_in_training": (np.array([20, 40, 60]), np.array(modes, float)),
               "fit/loss": (np.arange(80), 1.0 - 0.001 * np.arange(80))}  # fmt: skip
    if logged is not None:
        columns["val/loss"] = (np.arange(logged, 80, 20), np.ones(len(range(logged, 80, 20))))
    for cuts in ((), tuple(range(0, 80, 3))):
        found = only(findings([ModelMode()], columns, cuts=cuts), "model_mode")
        assert [one.step for one in found] == [20] * told


@pytest.mark.parametrize(
    ("passes", "norm", "says"),
    [
        ([(False, 40)] * 2 + [(True, 40)] * 3, False, 1.0),
        ([(False, 40)] * 2 + [(True, 40)], False, None),  # one, as of a sample or of a training batch
        ([(False, 40)] * 2 + [(True, 40), (False, 40), (True, 40), (True, 40)], False, None),
        ([(True, 40)] * 2 + [(False, 40)] * 3, False, None),
        ([(False, 40)] * 5, False, None),
        ([(True, 40)] * 5, False, None),
        ([(False, 40)] * 2 + [(True, 40)] * 3, True, None),  # statistics of batch norm are gathered
        ([(False, 40)] * 2 + [(True, 0)] * 3, False, 0.0),  # the first rows again, with dropout on
    ],
)
def test_sets_behind_the_first_one_that_are_evaluated_in_training_mode_are_told(
    passes: list[Pass], norm: bool, says: float | None
) -> None:
    parts: list[nn.Module] = [nn.Linear(4, 4), nn.Dropout(0.5), *([nn.BatchNorm1d(4)] if norm else [])]
    modes, first = PassModes(nn.Sequential(*parts)), torch.randn(40, 4)
    for at, (mode, rows) in enumerate(passes):
        modes.passed(mode, [torch.randn(rows, 4) if at and rows else first])
    current = ModelRound(1, frozenset())
    assert "training_behind_evaluation" not in modes.put(current)
    found = {name: float(one.values[0, 0]) for one in current.columns for name in one.names}
    assert found.get("training_behind_evaluation") == says
    for mode in (False, False, False) if says else ():
        modes.passed(mode, [torch.randn(40, 4)])
    assert modes.put(ModelRound(2, frozenset())).get("training_behind_evaluation") == (0.0 if says else None)


@pytest.mark.parametrize(
    ("other", "config", "known", "told"),
    [
        ("test_loss", {}, 0.0, True),
        ("forum/loss", {}, 0.0, True),
        ("dev_accuracy", {}, 0.0, False),  # one set
        ("rare_loss", {}, 0.0, False),  # of other steps
        ("test_loss", {"mc_dropout": 8}, 0.0, False),
        ("test_loss", {}, 0.4, False),  # rows of the training, as where hard ones are chosen
    ],
)
def test_two_evaluations_whose_later_sets_are_in_training_mode_are_said(
    other: str, config: dict[str, int], known: float, told: bool
) -> None:
    steps = np.arange(19, 80, 20)
    columns = {
        "model/training_behind_evaluation": (steps[:3] + 1, np.ones(3)), "dev_loss": (steps, np.ones(4)),
        "train_loss": (np.arange(80), 1.0 - 0.001 * np.arange(80)),
        "model/evaluated_known": (steps[:3] + 1, np.full(3, known)),
        other: (steps if other != "rare_loss" else steps[1:], np.ones(4 - (other == "rare_loss"))),
    }  # fmt: skip
    found = only(findings([ModelMode()], columns, facts={"config": config}), "model_mode")
    assert [one.step for one in found] == [20] * told

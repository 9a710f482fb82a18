"""Evaluations whose names say nothing of a loss are told by their first rows, whenever somebody asks."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.core.roles import is_loss_of_other_data, is_of_held_out, is_unnamed_evaluation
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import evaluations_of

STEPS, EACH = 200, 20
FALLS = 0.3 + 2 * np.exp(-np.arange(STEPS) / 40) + 0.02 * np.sin(np.arange(STEPS))
AT = np.arange(EACH - 1, STEPS, EACH)
MEANS = FALLS.reshape(-1, EACH).mean(1)


def played(columns: dict[str, tuple[np.ndarray, np.ndarray]], each: int) -> tuple[str | None, str | None, set[str]]:
    """Which series are the evaluation's loss and accuracy, asked behind so many steps each; the roles that changed."""
    seen, changed = RunHistory(), set()
    for low in range(0, STEPS, each):
        for name, (steps, values) in columns.items():
            some = (steps >= low) & (steps < low + each)
            if some.any():
                seen.add(name, steps[some], values[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        found = [seen.role(role) for role in ("loss", "eval_loss", "eval_accuracy")]
        changed |= seen.played.replaced()
    assert found[0] is not None and found[0].name in ("train/loss", "fit/loss", "fit/weighted_loss")
    return *(one.name if one is not None else None for one in found[1:]), changed  # type: ignore[return-value]


def beside(loss: str, name: str, values: np.ndarray, **others: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    columns = {loss: (np.arange(STEPS), FALLS), name: (AT, values)}
    return columns | {f"{name.rpartition('/')[0]}/{other}": (AT, values) for other, values in others.items()}


@pytest.mark.parametrize("each", [1, 7, 50, STEPS])
@pytest.mark.parametrize(
    ("loss", "name", "values", "told"),
    [
        ("train/loss", "val/masses", FALLS[AT] + 0.2, True),
        ("train/loss", "heldout/masses", FALLS[AT] * 3, True),  # of other data
        ("fit/loss", "review/loss", FALLS[AT] + 0.2, True),
        ("fit/loss", "review/loss", np.linspace(3, 9, len(AT)), True),  # labels are others
        ("fit/loss", "epoch/loss", MEANS, False),  # of the training
        ("fit/loss", "whole/loss", MEANS, False),
        ("fit/loss", "extra/loss", FALLS[AT] / 20, False),  # a part
        ("train/loss", "val/agreed", np.linspace(0.3, 0.9, len(AT)), False),  # a share of what is right
        ("train/loss", "val/agreed", np.linspace(30, 90, len(AT)), False),
        ("train/loss", "val/accuracy_of_rare", FALLS[AT], False),  # its name says what it is
        ("train/loss", "val/masses", -FALLS[AT], False),
    ],
)
def test_a_loss_of_data_held_out_is_told_by_its_rows(
    loss: str, name: str, values: np.ndarray, told: bool, each: int
) -> None:
    assert played(beside(loss, name, values), each)[0] == (name if told else None)


def test_what_is_told_by_its_rows_has_its_accuracy_beside_it_and_begins_rules_anew() -> None:
    right = np.linspace(0.3, 0.9, len(AT))
    columns = beside("fit/loss", "review/loss", FALLS[AT] + 0.2, accuracy=right, recall=right)
    for each, again in ((1, {"eval_loss", "eval_accuracy"}), (STEPS, set())):
        evaluation, accuracy, changed = played(columns, each)
        assert (evaluation, accuracy) == ("review/loss", "review/accuracy")
        assert changed == again, "rules that looked before, and they alone, must look again"


@pytest.mark.parametrize("each", [1, 7, STEPS])
@pytest.mark.parametrize(
    ("loss", "name", "measure", "told"),
    [
        ("train/loss", "gallery/ce", "acc1", True),
        ("fit/weighted_loss", "survey/ce", "macro_f1", True),
        ("train/loss", "gallery/ce", "seconds", False),  # nothing says how good answers are
        ("train/loss", "gen/ce", "acc1", False),  # of a player
    ],
)
def test_a_loss_under_a_name_of_its_own_is_told_by_the_measures_beside_it(
    loss: str, name: str, measure: str, told: bool, each: int
) -> None:
    columns = beside(loss, name, FALLS[AT] + 0.2, **{measure: np.linspace(0.3, 0.9, len(AT))})
    assert played(columns, each)[0] == (name if told else None)


def test_a_name_that_is_known_goes_before_rows_that_look_like_a_loss() -> None:
    columns = beside("train/loss", "val/masses", FALLS[AT] + 0.1) | {"val/loss": (AT[3:], FALLS[AT[3:]] + 0.3)}
    assert [played(columns, each)[0] for each in (1, 20, STEPS)] == ["val/loss"] * 3


def test_the_nearest_of_two_that_came_together_is_told() -> None:
    columns = beside("train/loss", "val/masses", FALLS[AT] * 2.5) | {"val/charges": (AT, FALLS[AT] + 0.05)}
    assert {played(columns, each)[0] for each in (1, 13, STEPS)} == {"val/charges"}


@pytest.mark.parametrize(
    ("name", "may"),
    [("val/masses", True), ("eval/spans", True), ("val/f1", False), ("eval/samples_per_second", False),
     ("test/wer", False), ("val/loss", False), ("train/masses", False), ("validity", False),
     ("model/eval_input_mean", False), ("goodput/eval_share", False)],
)  # fmt: skip
def test_only_a_name_that_says_nothing_of_another_measure_may_be_a_loss(name: str, may: bool) -> None:
    assert is_unnamed_evaluation(name) == may


@pytest.mark.parametrize(
    ("name", "loss", "may"),
    [("review/loss", "fit/loss", True), ("loss/review", "loss/fit", True), ("aux/loss", "train/loss", False),
     ("d/loss", "g/loss", False), ("epoch/loss", "batch/loss", False), ("loss", "fit/loss", False),
     ("fit/loss", "fit/loss", False), ("review/norm", "fit/norm", False)],
)  # fmt: skip
def test_a_loss_of_other_data_is_called_as_that_of_the_training_but_for_one_word(
    name: str, loss: str, may: bool
) -> None:
    assert is_loss_of_other_data(name, loss) == may


@pytest.mark.parametrize(
    ("name", "held_out"),
    [("val/f1", True), ("eval/rouge_l", True), ("f1/val", True), ("test recall", True), ("check/accuracy", True),
     ("val/seconds", False), ("eval_every", False), ("train/f1", False), ("model/evaluated_rows", False),
     ("evaluated", False), ("f1", False)],
)  # fmt: skip
def test_what_is_measured_on_data_held_out_is_an_evaluation_whatever_it_measures(name: str, held_out: bool) -> None:
    assert is_of_held_out(name) == held_out
    seen = RunHistory()
    seen.add(name, np.arange(3), np.ones(3), np.arange(3) * 1_000 + 1, np.ones(3, int))
    found = evaluations_of(seen)
    assert (found is not None and found.name == name) == held_out

"""Evaluations that leap from one to the next: what is said of them, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found, warned
from test_rules_evaluation import AT, falling, look

from barograph.doctor.rules.evaluation.evaluation import Overfitting, ValidationDivergence


def test_an_evaluation_that_leaps_at_once_is_no_overfitting() -> None:
    evaluations = falling(2000, noise=0)[AT] * np.where(AT >= 1000, 2.0, 1.0)
    steady = next(one for one in look(falling(2000), evaluations) if one.rule == "overfitting")
    assert steady.step == 900 and steady.causes[0].startswith("tokenizer mismatch")
    since = np.clip(np.arange(2000) - 900, 0, None)
    for falls, cause in ((np.exp(-since / 20), "labels shifted"), (np.where(since > 0, 0.3, 1.0), "overfitting")):
        seen = next(one for one in look(falling(2000) * falls, evaluations) if one.rule == "overfitting")
        assert seen.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (0.5, False),  # gets better again, as an average that begins anew does
        (0.95, True),
        (1.2, True),
    ],
)
def test_an_evaluation_that_leaps_and_gets_better_since_is_no_overfitting(ends: float, told: bool) -> None:
    since = np.clip((AT - 1000) / 900, 0, 1)
    evaluations = falling(2000, noise=0)[np.minimum(AT, 1000)] * np.where(
        AT >= 1000, 2.0 * (1 + (ends - 1) * since), 1.0
    )
    found = look(falling(2000) * np.where(np.arange(2000) > 900, 0.8, 1.0), evaluations)
    assert ("overfitting" in {one.rule for one in found if one.severity == "warning"}) is told


def test_one_low_row_at_the_best_of_evaluations_that_each_row_has_is_no_rise_of_the_training() -> None:
    """Of a graph with dropout, evaluated at each row: the training loss goes up and down by a fifth."""
    steps = np.arange(1, 56)
    loss = np.array([
        1.618, 1.554, 1.487, 1.413, 1.335, 1.268, 1.196, 1.095, 1.007, 0.97, 0.874, 0.806, 0.729, 0.643, 0.62, 0.549,
        0.486, 0.466, 0.411, 0.422, 0.371, 0.344, 0.306, 0.291, 0.353, 0.303, 0.315, 0.27, 0.289, 0.252, 0.282, 0.26,
        0.233, 0.221, 0.206, 0.218, 0.26, 0.203, 0.27, 0.168, 0.239, 0.183, 0.19, 0.215, 0.278, 0.248, 0.226, 0.185,
        0.205, 0.291, 0.134, 0.214, 0.144, 0.205, 0.223,
    ])  # fmt: skip
    evaluations = np.array([
        1.554, 1.489, 1.422, 1.351, 1.273, 1.19, 1.103, 1.013, 0.922, 0.833, 0.747, 0.666, 0.592, 0.526, 0.469, 0.419,
        0.377, 0.342, 0.313, 0.291, 0.272, 0.257, 0.245, 0.235, 0.227, 0.221, 0.217, 0.213, 0.21, 0.208, 0.208, 0.206,
        0.205, 0.2044, 0.2043, 0.205, 0.205, 0.206, 0.208, 0.21, 0.213, 0.216, 0.219, 0.22, 0.222, 0.223, 0.224, 0.226,
        0.228, 0.231, 0.234, 0.237, 0.238, 0.24, 0.239,
    ])  # fmt: skip
    said = found([ValidationDivergence()], {"train/loss": (steps, loss), "eval/loss": (steps, evaluations)})
    assert not [one for one in said if one.severity == "warning"]


def test_the_best_of_evaluations_that_were_below_0_is_the_lowest() -> None:
    at = np.arange(1, 17)
    seen = np.array([-1.8, -4.7, -7.1, -8.4, -6.2, -3.3, -0.9, 0.7, 1.2, 9.8, 17.0, 24.0, 35.0, 47.0, 60.0, 77.0])
    (one,) = warned(found([Overfitting()], {"train/loss": (at, -1.5 * at), "eval/loss": (at, seen)}))
    assert "-8.4 at step 4" in one.message and one.step == 4 and one.remedies[0].startswith("Keep the model of step 4")


@pytest.mark.parametrize("rises", [False, True])
def test_a_rise_of_the_training_is_as_sure_as_there_are_rows_before_each_evaluation(rises: bool) -> None:
    """Losses of single batches differ by a third; of a log of each tenth step there are two before an evaluation."""
    at = np.arange(9, 160, 10)
    loss = np.array([1.476, 0.817, 0.938, 1.149, 0.884, 0.357, 0.993, 0.309, 0.823, 0.888, 0.758, 0.926, 0.929, 0.564,
                     0.572, 0.684])  # fmt: skip
    if rises:
        loss = np.array(
            [1.476, 1.31, 1.14, 0.95, 0.84, 0.73, 0.66, 0.65, 0.78, 0.8, 0.83, 0.82, 0.86, 0.85, 0.88, 0.87]
        )
    seen = np.array([0.65, 0.523, 0.456, 0.336, 0.378, 0.3545, 0.373, 0.38])
    said = found([ValidationDivergence()], {"train/loss": (at, loss), "eval/loss": (at[1::2], seen)})
    assert [one.severity for one in said if one.severity == "warning"][:1] == ["warning"] * rises

"""A token that is never a target of the training, and that evaluations ask for."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.data.outputs import IgnoredClass
from barograph.doctor.rules.data.texts import IgnoredToken

LOOKS, EVALUATIONS = np.arange(0, 100, 10), np.arange(25, 100, 20)


@pytest.mark.parametrize("cuts", [(), (11, 26, 46, 70)])
@pytest.mark.parametrize(
    ("inside", "evaluation", "severities"),
    [
        (9.0, {"asked_all": 1.0}, ["info", "warning"]),
        (9.0, {"asked_all": 0.0, "ignored_token": 3.0}, ["info", "warning"]),  # the padding alone is not asked for
        (9.0, {"asked_all": 0.0, "ignored_token": 0.0}, ["info"]),  # as in the training
        (9.0, {"asked_all": 0.0}, ["info"]),  # prompts are not asked for, and what they have is not known
        (9.0, {"asked_all": 1.0, "target_shift": 0.0}, ["info"]),  # of something else than the next token
        (9.0, {"asked_all": 1.0, "opens_with": 0.0}, ["info"]),  # each text begins with it: nothing asks for it
        (9.0, {"asked_all": 1.0, "opens_with": -1.0}, ["info", "warning"]),
        (9.0, {"asked_all": 0.0, "ignored_token": 3.0, "opens_with": 0.0}, ["info"]),
        (0.0, {"asked_all": 1.0}, []),  # at the end of rows alone
    ],
)
def test_a_token_that_only_evaluations_ask_for_is_a_warning(
    inside: float, evaluation: dict[str, float], severities: list[str], cuts: tuple[int, ...]
) -> None:
    columns = {"train/loss": 3 - np.arange(100) / 100, "model/ignored_inside": (LOOKS, np.full(10, inside)),
               "model/ignored_token": (LOOKS, np.zeros(10))}  # fmt: skip
    figures = {"target_shift": 1.0} | evaluation
    columns |= {f"model/eval_{name}": (EVALUATIONS, np.full(4, value)) for name, value in figures.items()}
    found = findings([IgnoredToken()], columns, cuts=cuts).values()
    assert sorted(one.severity for one in found) == severities
    assert [(one.step, one.found) for one in found if one.severity == "warning"] == [(25, 45)] * (len(severities) == 2)


@pytest.mark.parametrize("cuts", [(), (11, 26, 46, 70)])
@pytest.mark.parametrize(
    ("share", "which", "index", "told"),
    [(0.26, 0.0, 0.0, True), (0.26, 2.0, 0.0, False), (0.01, 0.0, 0.0, False), (0.26, 0.0, None, False)],
)
def test_a_class_whose_number_is_ignored_is_told_by_an_evaluation_that_asks_for_it(
    share: float, which: float, index: float | None, told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {"train/loss": 3 - np.arange(100) / 100, "model/asked_untargeted": (EVALUATIONS, np.full(4, share)),
               "model/asked_class": (EVALUATIONS, np.full(4, which))}  # fmt: skip
    if index is not None:
        columns["model/ignore_index"] = np.zeros(1, int), np.full(1, index)
    found = findings([IgnoredClass()], columns, cuts=cuts).values()
    assert [(one.severity, one.found) for one in found] == [("warning", 45)] * told

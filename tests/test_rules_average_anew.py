"""An average of the weights that begins anew at a resume."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.evaluation.average_anew import AverageAnew


@pytest.mark.parametrize("cuts", [(), (3, 4, 5)])
@pytest.mark.parametrize(
    ("apart", "whose", "resumed", "told"),
    [
        ([0.05, 0.04, 0.03, 0.57, 0.2], 2.0, 70, True),
        ([0.05, 0.04, 0.03, 0.03, 0.02], 2.0, 70, False),  # loaded
        ([0.05, 0.04, 0.03, 0.08, 0.04], 2.0, 70, False),  # a copy of the weights, that begins anew
        ([0.38, 0.33, 0.23, 0.7, 0.2], 2.0, 70, True),  # of an average that lags
        ([0.05, 0.04, 0.3, 0.57, 0.2], 2.0, 70, False),  # as far as before
        ([0.05, 0.04, 0.03, 0.57, 0.2], 1.0, 70, True),  # put into the model
        ([0.0, 0.0, 0.0, 0.57, 0.2], 1.0, 70, False),  # nothing was put into it before
        ([0.05, 0.04, 0.03, 0.57, 0.2], 0.0, 70, True),  # the same, where copies may not be heard
        ([0.05, 0.04, 0.03, 0.57, 0.2], 2.0, 200, False),  # no resume
        ([0.05, 0.57, 0.2, 0.1, 0.05], 2.0, 30, False),  # one evaluation before
    ],
)
def test_an_average_that_is_far_away_behind_a_resume_was_not_loaded(
    apart: list[float], whose: float, resumed: int, told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.array([20, 40, 60, 80, 100])
    columns = {"model/evaluated_apart": (steps, numpy.array(apart)),
               "model/evaluated_whose": (steps, numpy.full(5, whose))}  # fmt: skip
    found = only(findings([AverageAnew()], columns, segments={resumed: 2}, cuts=cuts), "average_anew")
    assert [one.step for one in found] == [80] * told


@pytest.mark.parametrize("cuts", [(), (3, 4, 5)])
@pytest.mark.parametrize(
    ("apart", "begun", "told"),
    [
        ([0.05, 0.08, 0.07, 0.15, 0.02], 1.1, True),  # it has come near by the first evaluation behind the resume
        ([0.05, 0.08, 0.07, 0.15, 0.02], 0.31, True),
        ([0.05, 0.08, 0.07, 0.15, 0.02], 0.29, False),
        ([0.05, 0.11, 0.07, 0.15, 0.02], 0.31, False),  # less than three times as far as before
        ([0.05, 0.08, 0.07, 0.08, 0.02], 0.08, False),  # loaded
        ([0.05, 0.08, 0.07, 0.02, 0.02], 0.0, False),  # a copy of the weights
    ],
)
def test_a_copy_that_was_far_away_when_the_launch_began_was_not_loaded(
    apart: list[float], begun: float, told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.array([20, 40, 60, 80, 100])
    columns = {"model/evaluated_apart": (steps, numpy.array(apart)),
               "model/evaluated_whose": (steps, numpy.full(5, 2.0)),
               "model/evaluated_begun_apart": (steps[3:4], numpy.array([begun]))}  # fmt: skip
    found = only(findings([AverageAnew()], columns, segments={70: 2}, cuts=cuts), "average_anew")
    assert [one.step for one in found] == [80] * told


@pytest.mark.parametrize("cuts", [(), (3, 4, 5)])
@pytest.mark.parametrize(
    ("begun", "whole", "told"),
    [
        (0.67, [0.99, 0.98, 0.98, 0.36, 0.57], True),
        (0.67, [0.99, 0.98, 0.98, 0.95, 0.96], False),  # of the same weights
        (0.67, [0.5, 0.6, 0.7, 0.36, 0.57], False),  # as before: it began at zeros
        (0.67, [-1.0, 0.98, 0.98, 0.36, 0.57], False),  # not known before
        (0.67, [0.99, 0.98, 0.98, -1.0, 0.57], False),
        (0.37, [0.99, 0.98, 0.98, 0.36, 0.57], False),  # no farther than before
    ],
)
def test_a_slow_average_that_is_of_other_weights_behind_a_resume_was_not_loaded(
    begun: float, whole: list[float], told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.array([20, 40, 60, 80, 100])
    columns = {"model/evaluated_apart": (steps, numpy.array([0.18, 0.35, 0.38, 0.48, 0.34])),
               "model/evaluated_whole_least": (steps, numpy.array(whole)),
               "model/evaluated_whose": (steps, numpy.full(5, 2.0)),
               "model/evaluated_begun_apart": (steps[3:4], numpy.array([begun]))}  # fmt: skip
    found = only(findings([AverageAnew()], columns, segments={70: 2}, cuts=cuts), "average_anew")
    assert [one.step for one in found] == [80] * told


STILL = [-1.0, 0.29, 0.29, -1.0, -1.0, 0.95]  # shares that are left
CHANGED = [-1.0, 0.4, 0.3, -1.0, 0.031, 0.009]


@pytest.mark.parametrize("cuts", [(), (3, 4, 5)])
@pytest.mark.parametrize(
    ("apart", "kept", "changed", "steps", "told"),
    [
        ([0.09, 0.1, 0.106], STILL, CHANGED, 20, True),
        ([0.09, 0.08, 0.07], STILL, CHANGED, 20, False),  # comes nearer
        ([0.09, 0.1, 0.106], STILL, [*CHANGED[:5], 0.02], 20, False),  # changes shrink with the learning rate
        ([0.09, 0.1, 0.106], [*STILL[:4], 0.29, 0.29], CHANGED, 20, False),  # an average of what is trained
        ([0.09, 0.1, 0.106], [-1.0, -1.0, 0.29, *STILL[3:]], CHANGED, 20, False),  # one evaluation before
        ([0.09, 0.1, 0.106], [-1.0, 0.29, 0.4, *STILL[3:]], CHANGED, 20, False),  # a decay that is warmed up
        ([0.09, 0.1, 0.106], STILL, CHANGED, 40, False),  # of other numbers of steps
    ],
)
def test_an_average_follows_the_model_that_is_trained(
    apart: list[float], kept: list[float], changed: list[float], steps: int, told: bool, cuts: tuple[int, ...]
) -> None:
    at = numpy.array([20, 40, 60, 80, 100, 120])
    columns = {"evaluated_apart": [0.26, 0.18, 0.14, *apart], "evaluated_whose": [2.0] * 6, "evaluated_kept": kept,
               "evaluated_changed": changed, "evaluated_steps": [20, 40, 60, steps, 2 * steps, 3 * steps]}  # fmt: skip
    series = {f"model/{name}": (at, numpy.array(values, float)) for name, values in columns.items()}
    found = only(findings([AverageAnew()], series, segments={70: 2}, cuts=cuts), "average_anew")
    assert [one.step for one in found] == [120] * told

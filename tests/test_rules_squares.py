"""Sums of squares that clipping cuts at each step, and sums that it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.loss.squares import SquaresAdded, SquaresSummed

STEP = np.arange(0, 300, 10)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 300, 7))])
@pytest.mark.parametrize(
    ("added", "of_batch", "left", "says"),
    [
        (256.0, 0.0, 0.004, "over 256 elements of each example"),
        (8192.0, 1.0, 0.0002, "over 8192 elements of a batch"),
        (256.0, 0.0, 0.3, ""),  # clipping leaves the most of it
        (256.0, 0.0, 0.0005, ""),  # it would cut the mean's, too
        (2.0, 0.0, 0.01, ""),  # points of the plane
        (1.0, 0.0, 0.01, ""),
    ],
)
def test_a_sum_is_said_where_clipping_would_leave_the_mean_alone(
    added: float, of_batch: float, left: float, says: str, pieces: tuple[int, ...]
) -> None:
    columns = {
        "model/squares_added": (STEP[:1], np.array([added])),
        "model/squares_of_batch": (STEP[:1], np.array([of_batch])),
        "model/clip_coefficient": (STEP, np.full(len(STEP), left)),
    }
    found = findings_of([SquaresAdded()], columns, pieces)
    assert [(one.step, one.found) for one in found] == [(0, 20)] * bool(says)
    assert not says or found[0].causes == [f"loss summed: {says}, not averaged"]


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 300, 7)), (1, 2, 3)])
@pytest.mark.parametrize(
    ("name", "added", "times", "says"),
    [
        ("squares_added", 64.0, 64.0, True),
        ("squares_added", 64.0, 30.0, True),  # a model that does better where it is trained
        ("weighted_squares_added", 1024.0, 700.0, True),
        ("squares_added", 64.0, 1.0, False),  # the evaluation's is the same sum
        ("squares_added", 64.0, 8.0, False),  # another measure
        ("squares_added", 1.0, 1.0, False),
        ("weighted_squares_added", 64.0, 1.0, False),  # by weights that add up to 1
        ("squares_added", 4.0, 4.0, False),  # points of a plane
    ],
)
def test_a_sum_is_said_where_the_evaluations_are_means(
    name: str, added: float, times: float, says: bool, pieces: tuple[int, ...]
) -> None:
    falls = 1.0 / (1 + STEP / 30)
    columns = {
        "train/loss": (STEP, times * falls),
        "eval/loss": (STEP[5::6] + 1, falls[5::6]),
        f"model/{name}": (STEP[:1], np.array([added])),
    }
    found = findings_of([SquaresSummed()], columns, pieces)
    assert [(one.step, one.found, one.severity) for one in found] == [(0, 111, "warning")] * says
    chosen = findings_of([SquaresSummed()], columns, pieces, config={"reduction": "sum"})
    assert [one.severity for one in chosen] == ["info"] * says


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 300, 7)), (1, 2, 3)])
@pytest.mark.parametrize(
    ("times", "given", "scale", "says"),
    [
        (1000.0, 1.0, 0.0, True),  # divided by the number of passes, or by 1
        (1000.0, 0.001, 0.0, False),  # what is logged alone is a sum
        (1000.0, 1.0, 512.0, False),  # multiplied for half precision
        (1.0, 1.0, 0.0, False),  # divided by the number of elements
        (32.0, 1.0, 0.0, False),  # or by that of rows
    ],
)
def test_a_sum_that_one_number_divides_is_said_where_passes_are_called_with_what_is_logged(
    times: float, given: float, scale: float, says: bool, pieces: tuple[int, ...]
) -> None:
    falls = 1.0 / (1 + STEP / 30)
    columns = {
        "train/loss": (STEP, times * falls),
        "eval/loss": (STEP[5::6] + 1, falls[5::6]),
        "model/scaled_squares_added": (STEP[:1], np.array([1024.0])),
        "model/loss_given": (STEP[::4], given * times * falls[::4]),
    }
    columns |= {"train/loss_scale": (STEP, np.full(len(STEP), scale))} if scale else {}
    found = findings_of([SquaresSummed()], columns, pieces)
    assert [(one.step, one.causes) for one in found] == [(0, ["loss summed: over 1024 elements, not averaged"])] * says
    del columns["model/loss_given"]
    assert not findings_of([SquaresSummed()], columns, pieces)


@pytest.mark.parametrize(
    ("weight", "passes", "adds", "times", "says"),
    [
        (1536.0, 1.0, 1.0, 1500.0, True),  # a sum that is divided by the one micro-batch of a step
        (768.0, 2.0, 1.0, 1500.0, True),  # or by two
        (1536.0, 1.0, 0.0, 1500.0, False),  # a mean that is multiplied by a number
        (64.0, 1.0, 1.0, 1.0, False),  # divided by rows, as in the evaluation
        (1.0, 1.0, 1.0, 1500.0, False),  # what is logged alone is a sum
        (70.4, 1.0, 1.0, 70.4, False),  # no number of elements
    ],
)
def test_a_sum_that_is_divided_is_said_by_its_gradient(
    weight: float, passes: float, adds: float, times: float, says: bool
) -> None:
    falls = 1.0 / (1 + STEP / 30)
    columns = {
        "train/loss": (STEP, times * falls),
        "eval/loss": (STEP[5::6] + 1, falls[5::6]),
        "model/square_weight": (STEP, np.full(len(STEP), weight)),
        "model/backwards": (STEP, np.full(len(STEP), passes)),
        "model/loss_adds": (STEP[:1], np.array([adds])),
    }
    found = findings_of([SquaresSummed()], columns)
    assert [one.causes for one in found] == [["loss summed: over 1536 elements, not averaged"]] * says
    assert not findings_of([SquaresSummed()], columns | {"train/loss_scale": (STEP, np.full(len(STEP), 1024.0))})
    cut = columns | {"model/clip_coefficient": (STEP, np.full(len(STEP), 0.001))}
    assert len(findings_of([SquaresAdded()], cut)) == (weight * passes > 1000 and adds == 1)

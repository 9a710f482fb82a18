"""What a training of denoising does is held against what its configuration says of targets and conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_rules_noising import LOOKS, looked
from test_rules_objective import FALLS, ROWS, every, warned


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("config", "late", "noise", "told"),
    [
        ({"prediction_type": "v_prediction"}, 0.97, 1.0, True),
        ({"objective": "pred_v"}, 0.97, 1.0, True),
        ({"parameterization": "v"}, 0.97, 1.0, True),
        ({"prediction_type": "epsilon"}, 0.97, 1.0, False),
        ({"prediction_type": "v_prediction"}, 0.97, 0.0, False),  # velocities of examples that aren't normalised
        ({"prediction_type": "v_prediction"}, 0.1, 1.0, False),  # of normalised ones: nothing of them is in the inputs
        ({"prediction_type": "velocity", "model": "rectified_flow"}, 0.97, 1.0, False),
    ],
)
def test_noise_is_no_target_where_velocities_are_configured(
    config: dict[str, Any], late: float, noise: float, told: bool, rows: int
) -> None:
    figures = looked(noise_share_early=0.07 * late, noise_share_late=late, noise_share=0.6 * late, noise_target=noise)
    assert ("velocity_targets" in warned({"loss": every(FALLS)} | figures, rows, config)) == told


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("config", "share", "told"),
    [
        ({"cond_drop_prob": 0.1}, 0.9, True),
        ({"model": {"class_dropout_prob": 0.15}}, 0.85, True),
        ({"untold_share": 0.15}, 0.85, True),
        ({"dropout": 0.15}, 0.85, False),
        ({"p_uncond": 0.1}, 0.9, True),
        ({"proportion_empty": 0.3}, 0.7, True),
        ({"cond_drop_prob": 0.1}, 0.25, False),
        ({"cond_drop_prob": 0.1}, 0.75, False),  # one class is frequent, or more are left out on purpose
        ({"cond_drop_prob": 0.0}, 1.0, False),  # there is one class
        ({"dropout": 0.1}, 0.9, False),
        ({"cond_drop_prob": 0.5}, 0.5, False),
    ],
)
def test_a_condition_is_left_out_in_as_many_rows_as_is_configured(
    config: dict[str, Any], share: float, told: bool, rows: int
) -> None:
    values = np.clip(share + 0.04 * np.where(np.arange(len(LOOKS)) % 2, 1, -1), 0, 1)
    figures = {"model/input_class": (LOOKS, 6.0 + 0 * LOOKS), "model/input_class_share": (LOOKS, values)}
    assert ("condition_dropped" in warned({"loss": every(FALLS)} | figures, rows, config)) == told


def test_a_class_that_is_another_one_in_some_batches_is_no_absent_one() -> None:
    figures = {"model/input_class": (LOOKS, LOOKS // 10 % 12), "model/input_class_share": (LOOKS, 0.9 + 0 * LOOKS)}
    assert "condition_dropped" not in warned({"loss": every(FALLS)} | figures, ROWS, {"cond_drop_prob": 0.1})


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("config", "share", "count", "told"),
    [
        ({"untold": 0.1}, 0.9, 300.0, True),
        ({"beta1": 0.9}, 0.9, 300.0, True),
        ({"untold": 0.9}, 0.9, 300.0, False),  # it is meant
        ({"keep_class": 0.5}, 0.5, 300.0, False),
        ({"untold": 0.1}, 0.9, 100.0, False),
        ({"untold": 0.1}, np.nan, 300.0, False),  # evaluations have the same classes
    ],
)
def test_a_class_that_evaluations_lack_is_not_in_most_rows_of_the_training(
    config: dict[str, Any], share: float, count: float, told: bool, rows: int
) -> None:
    figures = {"model/given_alone": 5.0, "model/given_alone_share": share, "model/given_rows": count}
    series = {name: (LOOKS[2::4], value + 0.0 * LOOKS[2::4]) for name, value in figures.items()}
    assert ("condition_dropped" in warned({"loss": every(FALLS)} | series, rows, config)) == told

"""Evaluations of a run that logs no loss of its training, which never change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.alone import EvaluationsStill


@pytest.mark.parametrize("cuts", [(), (3, 7)])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"valid_0 binary_logloss": np.full(12, 0.180457)}, True),
        ({"valid_0 binary_logloss": np.full(9, 0.180457)}, False),  # too few
        ({"valid_0 binary_logloss": np.full(12, 0.18)}, False),  # rounded
        ({"valid_0 binary_logloss": np.linspace(0.5, 0.4, 12)}, False),
        ({"valid_0 binary_logloss": np.full(12, 0.180457), "train/loss": np.full(12, 0.2)}, False),
        ({"validation_0-auc": np.full(5, 0.5)}, True),
        ({"validation_0-auc": np.full(4, 0.5)}, False),
        ({"validation_0-auc": np.full(12, 0.61004)}, True),
        ({"validation_0-auc": np.full(12, 1.0)}, False),  # solved
        ({"val/dice": np.full(12, 0.0)}, False),
        ({"valid_0 rmse": np.array([3.2145] * 11 + [3.2144])}, False),
    ],
)
def test_evaluations_alone_that_never_change_warn(
    columns: dict[str, np.ndarray], says: bool, cuts: tuple[int, ...]
) -> None:
    assert bool(findings([EvaluationsStill()], columns, cuts=cuts)) == says


def test_a_log_of_rounds_that_add_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "small.log").write_text("".join(f"[{at}]\tvalidation_0-auc:0.50000\n" for at in range(8)))
    (finding,) = diagnose(barograph.read(tmp_path / "small.log")[0])["findings"]
    assert (finding["rule"], finding["severity"]) == ("evaluations_still", "warning")

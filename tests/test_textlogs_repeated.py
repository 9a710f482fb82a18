"""Rows of evaluations that say the step of a row of the training once more, in its words."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

ROW = "Pass {e}  Iteration {at}  lr = 0.02 cost = {loss:.4f} * 1  score = 0.{at}\n"
SAID = "{blank}Pass {e}  Iteration {at} cost = {loss:.4f} * 1  score = 0.{at}\n"
STEPS = range(300, 4500, 300)


def text(every: int, ahead: bool, other: float = 0.05) -> str:
    lines = []
    for at in STEPS:
        row = ROW.format(e=at // 1000, at=at, loss=900 / at)
        said = SAID.format(blank=" " * 60, e=at // 1000, at=at, loss=900 / at + other)
        lines += [row] if at % every else [said, row] if ahead else [row, said]
    return "".join(lines)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_row_that_says_a_step_again_without_the_rate_is_the_evaluations(tmp_path: Path, ahead: bool) -> None:
    path = tmp_path / "train.log"
    path.write_text(text(600, ahead))
    series = read(path).series
    assert series["cost"] == [(at, round(900 / at, 4)) for at in STEPS]
    assert series["val cost"] == [(at, round(900 / at + 0.05, 4)) for at in STEPS if at % 600 == 0]
    assert [at for at, _ in series["val score"]] == [at for at in STEPS if at % 600 == 0]


@pytest.mark.parametrize(("every", "other"), [(300, 0.05), (600, 0.0)])
def test_one_beside_each_row_or_with_its_values_is_none(tmp_path: Path, every: int, other: float) -> None:
    path = tmp_path / "train.log"
    path.write_text(text(every, True, other))
    assert not any(name.startswith("val") for name in read(path).series)

"""Objects of numbers below a line that says a step are rows, each over several lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

STEPS = list(range(200, 1400, 200))
HEAD = "W0517 04:41:09.{step:06d} 52 loops.py:88] Step {step} took 0.27s\n"
FIRST = "INFO:engine:{{'Loss/box': {box:.5f},\n 'Loss/total_loss': {loss:.5f},\n 'learning_rate': 0.04}}\n"
SECOND = FIRST.replace("INFO:engine:", "W0517 04:41:09.{step:06d} 52 loops.py:90] ")


def losses(folder: Path, form: str) -> dict[str, list[tuple[int, float]]]:
    path = folder / "train.log"
    path.write_text("".join(form.format(step=step, box=9 / step, loss=300 / step) for step in STEPS))
    return read(path).series


@pytest.mark.parametrize("form", [
    "INFO:engine:Step {step} took 0.27s\n" + HEAD + FIRST + SECOND, HEAD + FIRST, HEAD + SECOND, HEAD + FIRST + SECOND,
])  # fmt: skip
def test_an_object_of_numbers_below_a_step_is_a_row_of_it(tmp_path: Path, form: str) -> None:
    series = losses(tmp_path, form)
    assert series["Loss/total_loss"] == [(step, round(300 / step, 5)) for step in STEPS]
    assert series["Loss/box"] == [(step, round(9 / step, 5)) for step in STEPS]
    assert series["learning_rate"] == [(step, 0.04) for step in STEPS]


def test_an_object_below_no_step_is_none(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("the weights are\n{'box_loss': 2.0,\n 'class_loss': 0.5}\n" * 4)
    assert find(path) == []

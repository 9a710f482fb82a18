"""What an interpreter shows of several values, or of a call, is a row."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.importing.textlogs import shown

LOSSES = [round(4.2 * 0.8**at + 0.5, 4) for at in range(9)]
EPOCHS = list(enumerate(LOSSES))


def written(folder: Path, form: str, launches: int = 1) -> Path:
    path = folder / "train.log"
    rows = "".join(form.format(e=at, v=value) + "\n" for at, value in EPOCHS)
    path.write_text("Killed\n$ python2 fit.py --width 64\n".join(["$ python2 fit.py --width 64\n" + rows] * launches))
    return path


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("('epoch:', {e}, ' loss (validated):', {v})", "val loss"),
        ("('Epoch:', {e}, 'completed out of', 40, 'loss:', {v})", "loss"),
        ("('Epoch:', '{e:04d}', 'cost =', '{v:.9f}')", "cost"),
        ("(u'epoch', {e}, u'train loss', {v}, u'took', 1.5)", "train loss"),
        ("('Episode #', {e}, '\\tfinished with reward', {v}, '\\tmean steps', 17.5)", "reward"),
    ],
)
def test_printed_tuples_are_rows(form: str, name: str, tmp_path: Path) -> None:
    series = read(written(tmp_path, form)).series
    assert series[name] == EPOCHS
    assert not {"completed out", "_of"} & {*series}


def test_a_second_launch_of_printed_tuples_begins_anew(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "('Epoch:', {e}, 'loss:', {v})", launches=2))
    assert reading.series["loss"] == EPOCHS * 2
    assert len(reading.restarts) == 1


def test_tuples_without_a_name_or_in_a_call_are_no_rows(tmp_path: Path) -> None:
    assert not find(written(tmp_path, "({e}, {v})"))
    assert shown.as_text(b"print('loss:', 0.4)") == b"print('loss:', 0.4)"
    assert shown.as_text(b"[('loss', 0.4), ('lr', 0.1)]") == b"[loss: 0.4, lr: 0.1]"


def test_a_shown_call_is_a_value(tmp_path: Path) -> None:
    form = "┌ Info: Epoch {e}\n└ @ Main train.jl:99\nloss(data[1], y) = {v:.4f}f0"
    assert [value for _, value in read(written(tmp_path, form)).series["loss"]] == LOSSES
    assert shown.as_text(b"accuracy(x, y) = 0.5") == b"accuracy = 0.5"
    assert shown.as_text(b"loss(0.3) = 0.5") == b"loss(0.3) = 0.5"

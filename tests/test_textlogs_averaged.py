"""Means of an epoch and of an evaluation below their rows, in the words of these."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

ROW = "Epoch: [{e}]  [{at:>2}/40]  eta: 0:01:10  lr: 0.000300  class_error: {err} (70.00)  loss: {loss:.4f} (7.5000)"
EVALUATED = "{head}  [{at}/6]  eta: 0:00:02  class_error: 61.00 (62.50)  loss: {loss:.4f} (6.2500)  data: 0.02"
TIMES = "[09:12:0{}.118203] "


def written(path: Path, *, head: str = "Test:", ahead: tuple[str, str] = ("A", "A"), timed: bool = False) -> Path:
    lines = []
    for e in range(3):
        lines += [ROW.format(e=e, at=at, err=80 - e, loss=9 - e - at / 40) for at in (0, 20, 39)]
        lines += [f"Epoch: [{e}] Total time: 0:00:41 (1.03 s / it)"]
        lines += [f"{ahead[0]}veraged stats: lr: 0.000300  class_error: 79.00 (77.50)  loss: 5.5 ({8.25 - e})"]
        lines += [EVALUATED.format(head=head, at=at, loss=6 - e) for at in (0, 5)]
        lines += [f"{ahead[1]}veraged stats: class_error: 61.00 (62.75)  loss: 5.75 ({6.5 - e})"]
    path.write_text("".join(f"{TIMES.format(at % 10) * timed}{line}\n" for at, line in enumerate(lines)))
    return path


@pytest.mark.parametrize("ahead", [("A", "A"), ("[Train] a", "[Val] a"), ("Train A", "Test A")])
@pytest.mark.parametrize(("head", "timed"), [("Test:", False), ("Val:", True)])
def test_means_of_an_epoch_and_of_an_evaluation_have_names_of_their_own(
    tmp_path: Path, head: str, timed: bool, ahead: tuple[str, str]
) -> None:
    reading = read(written(tmp_path / "train.log", head=head, ahead=ahead, timed=timed))
    series = reading.series
    assert [at for at, _ in series["loss"]] == [0, 20, 39, 40, 60, 79, 80, 100, 119]
    assert series["averaged_loss"] == [(39, 8.25), (79, 7.25), (119, 6.25)]
    assert series["val loss"][-3:] == [(39, 6.5), (79, 5.5), (119, 4.5)]
    assert series["val class_error"][-1] == (119, 62.75)
    assert "averaged_lr" not in series
    assert not reading.restarts


def test_means_behind_the_rows_read_before_are_an_evaluations(tmp_path: Path) -> None:
    path = written(tmp_path / "train.log")
    whole = path.read_text()
    text, _, rest = whole.rpartition("Averaged")
    path.write_text(text)
    before = read(path)
    path.write_text(whole)
    after = read(path, since=before.mark)
    assert after.series["val loss"] == [(119, 4.5)]
    assert rest


def test_means_without_a_training_above_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [f"Averaged stats: lr: 0.02  loss: {4 / at:.3f}" for at in range(1, 6)]
    path.write_text("\n".join(rows) + "\n")
    assert [value for _, value in read(path).series["averaged_loss"]] == [4.0, 2.0, 1.333, 1.0, 0.8]


def test_a_mean_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    path, lines = tmp_path / "train.log", []
    for e in range(3):
        lines += [ROW.format(e=e, at=at, err=80 - e, loss=9 - e - at / 40) for at in (0, 20, 39)]
        lines += [f"Averaged stats: loss: 5.5 ({8.25 - e})  grad_norm: 0.5 ({'nan' if e else 0.75})  lr: 0.000300"]
    path.write_text("\n".join(lines) + "\n")
    series = read(path).series
    assert series["averaged_loss"] == [(39, 8.25), (79, 7.25), (119, 6.25)]
    assert series["averaged_grad_norm"] == [(39, 0.75)]

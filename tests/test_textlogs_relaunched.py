"""Rows that are numbered begin anew where a program that has ended is launched once more."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import collect, find, read

LOSSES = [round(3.3 * 0.9**at + 0.4, 4) for at in range(20)]
FIRST = "Reading the data of {n} files from /data/set\n"
ROWS = "".join(f"train loss: {value}\n" for value in LOSSES)
ENDS = {
    "killed": "Killed\n",
    "a job's end": "slurmstepd: error: *** JOB 77 ON a1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
    "an exception": 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nKeyError: 7\n',
}


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("end", ENDS)
def test_numbers_begin_anew_behind_a_kill(end: str, tmp_path: Path) -> None:
    reading = read(written(tmp_path, FIRST.format(n=3) + ROWS + ENDS[end] + FIRST.format(n=4) + ROWS))
    assert reading.series["train loss"] == [*enumerate(LOSSES, 1)] * 2
    assert len(reading.restarts) == 1


def test_a_line_that_comes_in_each_epoch_is_no_launch(tmp_path: Path) -> None:
    reading = read(written(tmp_path, (FIRST.format(n=3) + ROWS) * 3))
    assert [step for step, _ in reading.series["train loss"]] == [*range(1, 61)]
    assert not reading.restarts


def test_a_launch_is_seen_as_the_file_grows(tmp_path: Path) -> None:
    path = written(tmp_path, FIRST.format(n=3) + ROWS)
    dialect, found = find(path)[0]
    mark = collect(dialect, found).mark
    path.write_text(path.read_text() + "Killed\n" + FIRST.format(n=3) + ROWS)
    more = collect(dialect, found, mark)
    assert more.series["train loss"] == [*enumerate(LOSSES, 1)]
    assert len(more.restarts) == 1

"""CSV exports of W&B's charts: a run a column, and the spread where W&B has put points together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barograph.importing.source import ImportedPoints, ImportMark, Item, Unread
from barograph.importing.wandb_csv import SOURCE

EXPORT = """"Step","run - a - train/loss","run - a - train/loss__MIN","run - a - train/loss__MAX","b - train/loss",\
"b - train/loss__MIN","b - train/loss__MAX"
"0","3.5","3.5","3.5","","",""
"10","3.25","3","3.5","NaN","NaN","NaN"
"20","","","","-Infinity","-Infinity","-Infinity"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "export.csv"
    path.write_text(text)
    return path


def items(path: Path, run: int = 0, since: ImportMark | None = None) -> list[Item]:
    found = list(SOURCE.find(path, path.read_bytes()[:65536]))[run]
    return list(SOURCE.read(found, since))


def rows(read: list[Item]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for one in read:
        if isinstance(one, ImportedPoints):
            for column, name in enumerate(one.names):
                pairs = zip(one.steps.tolist(), one.values[:, column].tolist(), strict=True)
                found.setdefault(name, []).extend(pairs)
    return found


def test_each_run_of_a_chart_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, EXPORT)
    assert [found.key for found in SOURCE.find(path, path.read_bytes())] == ["run - a", "b"]
    assert rows(items(path)) == {
        "train/loss": [(0, 3.5), (10, 3.25)],
        "train/loss__MIN": [(10, 3.0)],
        "train/loss__MAX": [(10, 3.5)],
    }
    second = rows(items(path, 1))["train/loss"]
    assert second[0][0] == 10 and math.isnan(second[0][1]) and second[1] == (20, -math.inf)
    assert rows(items(path, 1)).keys() == {"train/loss"}


@pytest.mark.parametrize(
    "text",
    ["step,loss\n1,2\n", "Step,a - b\n1,2\n", "a__MIN,b\n1,2\n", "", "Step,a__MIN - b\n1,2\n", "x - y,y__MIN\n1,2\n"],
)
def test_other_tables_are_not_claimed(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    assert not list(SOURCE.find(path, path.read_bytes()))


def test_the_first_column_says_what_steps_count(tmp_path: Path) -> None:
    points = [
        one for one in items(write(tmp_path, EXPORT.replace('"Step"', '"tokens"'))) if isinstance(one, ImportedPoints)
    ]
    assert {one.x for one in points} == {"tokens"}


def test_rows_over_time_take_the_runs_own_steps(tmp_path: Path) -> None:
    text = (
        "Wall Time,a - _step,a - _step__MIN,a - _timestamp,a - loss,a - loss__MIN\n1700000000,30,30,1700000000.5,2,2\n"
    )
    (points,) = (one for one in items(write(tmp_path, text)) if isinstance(one, ImportedPoints))
    assert points.steps.tolist() == [30] and points.times.tolist() == [1_700_000_000_500_000]


def test_rows_over_time_without_steps_are_numbered_and_told(tmp_path: Path) -> None:
    read = items(write(tmp_path, EXPORT.replace('"Step"', '"Relative Time (Process)"')))
    assert rows(read)["train/loss"] == [(0, 3.5), (1, 3.25)]
    assert [one.why for one in read if isinstance(one, Unread)] == [
        "the first column is 'Relative Time (Process)' and there are no steps: rows are numbered"
    ]


def test_what_is_no_number_is_told_with_its_line(tmp_path: Path) -> None:
    read = items(write(tmp_path, EXPORT.replace('"3.25"', '"what"')))
    (unread,) = (one for one in read if isinstance(one, Unread))
    assert (unread.where, unread.text) == (3, "what")
    assert rows(read)["train/loss"] == [(0, 3.5)]


def test_reading_goes_on_behind_a_mark(tmp_path: Path) -> None:
    path = write(tmp_path, EXPORT)
    mark = items(path)[-1]
    assert isinstance(mark, ImportMark) and not rows(items(path, 0, mark))
    path.write_text(EXPORT + '"30","1","1","1","","",""\n')
    assert rows(items(path, 0, mark))["train/loss"] == [(30, 1.0)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
@given(data=st.data())
def test_no_damage_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray(EXPORT.encode())
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "export.csv"
    path.write_bytes(bytes(text[: data.draw(st.integers(0, len(text)))]))
    for found in SOURCE.find(path, path.read_bytes()):
        assert isinstance(list(SOURCE.read(found))[-1], ImportMark)

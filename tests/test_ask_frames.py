"""Data frames hold exactly what the series hold."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

import barograph
from barograph.query.catalog import runs
from barograph.query.frames import frame
from barograph.query.stored import StoredRun

QUIET: dict[str, Any] = {"verbosity": -2, "git": False, "doctor": False, "machine": False, "ranks": False}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    root = tmp_path_factory.mktemp("frames")
    for name in ("a", "b"):
        run = barograph.init(project="p", id=name, dir=str(root), **QUIET)
        for step in range(6):
            values = {"train/loss": math.nan if step == 2 else 5.0 - step, "train/step_tokens": 10.0}
            run.log(values | ({"only/b": float(step), "time": 1.0} if name == "b" and step % 2 else {}), step=step)
        if name == "a":
            run.rewind(4)
            run.log({"train/loss": 9.0, "train/step_tokens": 10.0}, step=4)
        run.finish()
    return runs(root)


def test_wide_has_a_row_a_step_and_tells_null_from_nan(both: list[StoredRun]) -> None:
    table = frame(both[1], ["loss", "only/*"], library="arrow")
    assert table.column_names == ["step", "time", "train/loss", "only/b"]
    assert table["step"].to_pylist() == list(range(6))
    assert table["only/b"].to_pylist() == [None, 1.0, None, 3.0, None, 5.0]
    loss = table["train/loss"]
    assert loss.null_count == 0 and math.isnan(loss[2].as_py()) and loss[3].as_py() == 2.0
    series = both[1].series("train/loss")
    numpy.testing.assert_allclose([one.timestamp() for one in table["time"].to_pylist()], series.time, atol=1e-3)


def test_long_is_the_series_one_after_the_other(both: list[StoredRun]) -> None:
    table = frame(both[0], layout="long", library="arrow")
    for name in both[0].names():
        series = both[0].series(name)
        mine = table.filter(numpy.array(table["name"].to_pylist()) == name)
        assert (
            mine["step"].to_pylist() == series.step.tolist() and mine["segment"].to_pylist() == series.segment.tolist()
        )
        numpy.testing.assert_array_equal(mine["value"].to_numpy(), series.value)


def test_the_live_branch_alone_unless_asked(both: list[StoredRun]) -> None:
    live = frame(both[0], "train/loss", library="arrow")
    assert live["step"].to_pylist() == [0, 1, 2, 3, 4] and live["train/loss"][4].as_py() == 9.0
    every = frame(both[0], "train/loss", layout="long", branch="all", library="arrow")
    assert every.num_rows == 7 and set(every["segment"].to_pylist()) == {1, 2}


@pytest.mark.parametrize("x", ["time", "relative", "tokens", "train/step_tokens"])
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_x_is_what_a_series_has_for_it(both: list[StoredRun], x: str, layout: str) -> None:
    table = frame(both[1], "train/loss", x=x, layout=layout, library="arrow")
    if x != "time":
        expected = both[1].series("train/loss", x=x).x
        numpy.testing.assert_allclose(table[x].to_numpy(), expected, atol=1e-6)


def test_runs_stand_under_each_other_with_their_ids(both: list[StoredRun]) -> None:
    table = frame(both, ["train/loss", "only/b"], library="arrow")
    assert table.column_names == ["run", "step", "time", "train/loss", "only/b"]
    assert table["run"].to_pylist() == ["a"] * 5 + ["b"] * 6
    assert table["only/b"].to_pylist()[:5] == [None] * 5
    assert frame([], library="arrow").num_rows == 0


def test_a_series_that_is_called_like_a_column_keeps_apart(both: list[StoredRun]) -> None:
    table = frame(both[1], library="arrow")
    assert table["series/time"].to_pylist() == [None, 1.0, None, 1.0, None, 1.0]


def test_pandas_and_polars_hold_the_same(both: list[StoredRun]) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow = frame(both, "train/loss", library="arrow")
    one, other = frame(both, "train/loss"), frame(both, "train/loss", library="polars")
    assert isinstance(one, pandas.DataFrame) and isinstance(other, polars.DataFrame)
    for made in (one["train/loss"], other["train/loss"]):
        numpy.testing.assert_array_equal(numpy.array(made), arrow["train/loss"].to_numpy())
    assert other["run"].to_list() == list(one["run"]) == arrow["run"].to_pylist()
    assert frame(both[0], layout="long").groupby("name", observed=True)["value"].size()["train/loss"] == 5


def test_the_sentence_says_what_there_is(both: list[StoredRun], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="the nearest is 'train/loss'"):
        frame(both[0], "train/los")
    with pytest.raises(KeyError, match="no run has a series 'only/c'; the nearest is 'only/b'"):
        frame(both, ["train/loss", "only/c"])
    with pytest.raises(ValueError, match="layout is 'tall', but it is one of wide, long"):
        frame(both, layout="tall")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        frame(both[0], library="polars")

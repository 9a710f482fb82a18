"""A run may be given in every way that a person has one, to every public function that takes a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barograph

TAKES_ONE: dict[str, Callable[[Any], Any]] = {
    "diagnose": lambda run: barograph.diagnose(run)["run"],
    "forecast": lambda run: barograph.forecast(run, planned_steps=600).step,
    "lineage": lambda run: barograph.lineage(run).asked.run.id,
    "stretches": lambda run: len(barograph.stretches(run, "train/loss").live),
    "report_html": lambda run: "<html" in barograph.report_html(run),
    "charts": lambda run: "train/loss" in barograph.charts(run, "train/loss")._repr_html_(),
}
TAKES_SEVERAL: dict[str, Callable[[Any], Any]] = {
    "frame": lambda run: barograph.frame(run, "train/loss")["train/loss"].tolist(),
    "report": lambda run: barograph.report(run, html_only=True),
    "compare_widths": lambda run: barograph.compare_widths(run if isinstance(run, list) else [run])[0]["loss"],
}
WAYS = ("open", "stored", "str", "path", "id", "project/id", "log")


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    with barograph.init(
        project="p", id="one", config={"width": 8, "lr": 1e-3}, console="none", git=False, machine=False, sidecar=False
    ) as run:
        for step in range(1, 301):
            run.log_step(step, step / 300, 1000, 100, 1.0, 2 + 8 / step, 1e-3)
        stored = barograph.StoredRun(run.dir)
        yield {
            "open": run, "stored": stored, "str": str(run.dir), "path": run.dir, "id": "one", "project/id": "p/one",
            "log": run.log_file,
        }  # fmt: skip


@pytest.mark.parametrize("function", [*TAKES_ONE, *TAKES_SEVERAL])
def test_a_run_is_taken_however_it_is_given(function: str, ways: dict[str, Any]) -> None:
    ask = (TAKES_ONE | TAKES_SEVERAL)[function]
    wanted = ask(ways["stored"])
    for way in WAYS[:-1] if function in ("diagnose", "lineage") else WAYS:  # a log alone is a run of its own
        assert ask(ways[way]) == wanted, way
    ask(ways["log"])
    assert ask([ways["open"]]) is not None, "one in a list"


@pytest.mark.parametrize("function", TAKES_ONE)
def test_several_where_one_is_wanted_are_one_sentence(function: str, ways: dict[str, Any]) -> None:
    for given in (["one", ways["stored"]], []):
        with pytest.raises(ValueError, match=r"^(one run is wanted, and these are 2: one, one|no run is given)$"):
            TAKES_ONE[function](given)


@pytest.mark.parametrize("function", [*TAKES_ONE, *TAKES_SEVERAL])
def test_what_is_no_run_is_one_sentence(function: str, ways: dict[str, Any]) -> None:
    ask = (TAKES_ONE | TAKES_SEVERAL)[function]
    with pytest.raises(KeyError, match=r"there is no run 'ona' in .*; the nearest is 'one'"):
        ask("ona")
    if function != "compare_widths":
        with pytest.raises(
            ValueError, match=r"^a run is a StoredRun, an open run, its folder, its id or a log, not 7$"
        ):
            ask(7)


def test_sides_and_sizes_take_them_too(ways: dict[str, Any], tmp_path: Path) -> None:
    with barograph.init(project="p", id="two", console="none", git=False, machine=False, sidecar=False) as other:
        for step in range(1, 301):
            other.log_step(step, step / 300, 1000, 100, 1.0, 2 + 9 / step, 1e-3)
        for way in WAYS[:-1]:
            assert [side.label for side in barograph.compare(ways[way], other).sides] == ["one", "two"], way
        assert len(barograph.compare(["one"], ["two"]).sides) == 2
    assert len(barograph.sql("select * from runs", runs=["one", ways["path"].parent / "two"])) == 2


@pytest.mark.parametrize("function", [*TAKES_ONE, *TAKES_SEVERAL])
def test_a_stored_run_whose_folder_is_not_there_is_one_sentence(function: str, tmp_path: Path) -> None:
    gone = barograph.StoredRun(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"there is no folder of a run: '.*gone'$"):
        (TAKES_ONE | TAKES_SEVERAL)[function](gone)

"""A run that is being written is asked as a stored one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.store import merge
from barograph.store.logs import RunLog
from barograph.store.part import Part
from barograph.store.seal import seal


def test_a_run_in_progress_answers_what_its_stored_form_answers(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with barograph.init("p", "a", dir=tmp_path, verbosity=-2) as run:
        for step in range(1, 21):
            run.log({"train/loss": 1.0 / step}, step=step)
        stored = barograph.StoredRun(run.dir)
        assert run.names() == stored.names() == ["train/loss"]
        assert run.series("train/loss").value.tolist() == stored.series("train/loss").value.tolist()
        assert len(barograph.frame(run)) == len(barograph.frame([run])) == len(barograph.frame(stored)) == 20
        assert barograph.lineage(run).trunk.kept.steps == barograph.lineage(stored).trunk.kept.steps == 20
        assert run.goodput().held > 0 and run.cost().keys() == stored.cost().keys()
        assert barograph.stretches(run, "train/loss").live.step.tolist() == list(range(1, 21))
        assert "train/loss" in barograph.report_html(run)
        assert {one["rule"] for one in barograph.diagnose(run)["findings"]} == {
            one["rule"] for one in barograph.diagnose(stored)["findings"]
        }
        assert barograph.report([run], tmp_path / "report") == 0
        assert (tmp_path / "report" / "report.html").is_file()
        assert barograph.forecast(run).reason == barograph.forecast(stored).reason


def test_a_misspelt_name_of_a_run_is_an_attribute_error(tmp_path: Path) -> None:
    with barograph.init("p", "a", dir=tmp_path, verbosity=-2) as run, pytest.raises(AttributeError, match="lgo"):
        run.lgo  # noqa: B018


@pytest.mark.parametrize("where", ["list_parts", "read_log", "read_blocks", "read"])
def test_a_reader_during_whose_every_step_the_run_goes_on_and_is_sealed_has_each_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = barograph.init("p", "a", dir=tmp_path, verbosity=-2, git=False, sidecar=False)
    monkeypatch.setattr(merge, "MERGE_PARTS", 3)  # so that parts go away while they are read
    home: type = Part if where == "read" else RunLog
    step, busy, happened, original = 0, False, 0, getattr(home, where)

    def go_on() -> None:
        nonlocal step, busy, happened
        if busy:
            return
        busy = True
        happened += 1
        for _ in range(7):
            run.log({"loss": float(step)}, step=step)
            run.model.wide({"act/a": float(step), "act/b": 0.0}, step=step)
            run.log_histogram("h", [float(step), 1.0], step=step)
            step += 1
        seal(run.dir, final=True)
        busy = False

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        go_on()
        found = original(*arguments, **named)
        if where == "read":
            found = iter(list(found))
        go_on()
        return found

    for _ in range(4):
        go_on()
    monkeypatch.setattr(home, where, meanwhile)
    stored = barograph.StoredRun(run.dir)
    for round_ in range(6):
        before, happened = step, 0
        if round_ % 2:
            stored = barograph.StoredRun(run.dir)
        series = {name: stored.series(name).step.tolist() for name in ("loss", "act/a", "act/b")}
        series["h"] = [row.step for row in stored.histograms("h")]
        assert happened
        for name, found in series.items():
            assert found == list(range(len(found))) and len(found) >= before, name
    monkeypatch.undo()
    run.finish()
    assert barograph.StoredRun(run.dir).series("loss").step.tolist() == list(range(step))


@pytest.mark.parametrize("absent", ["norm", "loss", "lr"])
def test_what_was_not_measured_is_no_point_no_nan_and_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], absent: str
) -> None:
    """norm=None: there is no clipping. The same holds for each number of the call."""
    run = barograph.init("p", "a", dir=tmp_path, git=False, sidecar=False, total_steps=200)
    for step in range(1, 201):
        values: dict[str, Any] = {"norm": 0.5, "loss": 4 * step**-0.1, "lr": 1e-3 * (1 - step / 201)}
        if step >= 8:
            values[absent] = None
        run.log_step(step, step / 200, 1000, 100, **values)
    run.finish()
    shown = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert shown and "nan" not in shown[-1].lower()
    stored = barograph.StoredRun(run.dir)
    (name,) = [name for name in stored.names() if name.rsplit("/", 1)[-1] in (absent, f"grad_{absent}")]
    assert stored.series(name).step.tolist() == list(range(1, 8))
    assert [one for one in barograph.diagnose(stored)["findings"] if "finite" in one["rule"]] == []

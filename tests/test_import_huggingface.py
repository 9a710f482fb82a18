"""Hugging Face's trainer_state.json: one run a training, only new entries added, what hides NaN told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from barograph.importing.collect import collect
from barograph.importing.huggingface import SOURCE
from barograph.importing.registry import identify
from barograph.importing.source import ImportMark, Unread
from barograph.query.stored import StoredRun


def entry(step: int, loss: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "epoch": step / 100,
        "step": step,
        **({"loss": loss, "learning_rate": 1e-4} if loss is not None else {}),
    } | more


def save(path: Path, history: list[dict[str, Any]], **more: Any) -> Path:
    state = {"best_metric": None, "best_model_checkpoint": None, "epoch": 1.0, "global_step": history[-1]["step"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state | {"is_world_process_zero": True, "log_history": history, "max_steps": 40} | more))
    return path


def imported(path: Path, root: Path) -> StoredRun:
    ((source, found),) = identify(path)
    return StoredRun(collect(source, found, root)[0])


HISTORY = [entry(step, 3.0 - step / 100) for step in range(1, 31)]


def test_the_history_is_series_with_the_names_of_the_trainers_own_rewriting(tmp_path: Path) -> None:
    history = [*HISTORY, entry(30, eval_loss=2.1, eval_runtime=3.0), entry(31, rewards=1.5, **{"kl/mean": 0.1})]
    history.append(entry(31, train_runtime=60.0, train_loss=2.8, total_flos=1e9))
    run = imported(save(tmp_path / "out" / "trainer_state.json", history), tmp_path / "runs")
    assert run.name == "out" and run.status == "finished" and run.manifest["wall_seconds"] == 60.0
    assert run.series("train/loss").value.tolist() == [one["loss"] for one in HISTORY]
    assert run.series("eval/loss").value.tolist() == [2.1] and run.series("eval/runtime").value.tolist() == [3.0]
    assert run.series("train/mean_loss").value.tolist() == [2.8] and run.series("kl/mean").value.tolist() == [0.1]
    assert run.series("train/rewards").step.tolist() == [31]
    assert run.config["max_steps"] == 40 and run.manifest["source"]["names"]["train/lr"] == "learning_rate"


def test_the_filter_that_hides_nan_is_flagged_unless_nan_is_there(tmp_path: Path) -> None:
    run = imported(save(tmp_path / "a" / "trainer_state.json", HISTORY), tmp_path / "runs")
    (flag,) = (one for one in run.records("info") if one.fields.get("flag") == "logging_nan_inf_filter")
    assert "replaced by the average" in flag.fields["message"]
    run = imported(save(tmp_path / "b" / "trainer_state.json", [*HISTORY, entry(40, math.nan)]), tmp_path / "runs")
    assert math.isnan(run.series("train/loss").value[-1])
    assert not [one for one in run.records("info") if "flag" in one.fields]


def test_checkpoints_of_one_training_are_one_run_with_the_longest_history(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for count in (10, 20, 30):
        save(out / f"checkpoint-{count}" / "trainer_state.json", HISTORY[:count])
    run = imported(out, tmp_path / "runs")
    assert run.name == "out" and len(run.series("train/loss")) == 30
    save(out / "trainer_state.json", [*HISTORY, entry(31, 1.0)])
    assert imported(out, tmp_path / "runs").dir == run.dir and len(run.series("train/loss")) == 31
    assert imported(out / "checkpoint-10" / "trainer_state.json", tmp_path / "runs").dir == run.dir


def test_a_later_save_adds_its_new_entries_and_an_earlier_one_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / "out" / "trainer_state.json"
    run = imported(save(path, HISTORY[:20]), tmp_path / "runs")
    assert imported(save(path, HISTORY), tmp_path / "runs").dir == run.dir
    assert run.series("train/loss").step.tolist() == list(range(1, 31))
    imported(save(path, HISTORY[:15]), tmp_path / "runs")
    imported(save(path, HISTORY), tmp_path / "runs")
    assert run.series("train/loss", branch="all").step.tolist() == list(range(1, 31))


def test_a_training_resumed_from_an_earlier_checkpoint_supersedes(tmp_path: Path) -> None:
    path = tmp_path / "out" / "trainer_state.json"
    run = imported(save(path, HISTORY), tmp_path / "runs")
    other = [*HISTORY[:16], *(entry(step, 9.0) for step in range(17, 25))]
    assert imported(save(path, other), tmp_path / "runs").dir == run.dir
    series = run.series("train/loss")
    assert series.step.tolist() == list(range(1, 25)) and series.value[-8:].tolist() == [9.0] * 8
    assert len(run.segments) == 2 and len(run.series("train/loss", branch="all")) > 24


def test_another_training_in_the_same_folder_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "out" / "trainer_state.json"
    run = imported(save(path, HISTORY), tmp_path / "runs")
    other = imported(save(path, [entry(step, 7.0) for step in range(1, 5)]), tmp_path / "runs")
    assert other.dir != run.dir and len(other.series("train/loss")) == 4 and len(run.series("train/loss")) == 30


def test_a_file_being_written_is_told_once_and_read_later(tmp_path: Path) -> None:
    path = save(tmp_path / "out" / "trainer_state.json", HISTORY)
    whole = path.read_text()
    path.write_text(whole[:900])
    ((_, found),) = identify(path)
    items = list(SOURCE.read(found))
    assert isinstance(items[0], Unread) and "line 1: not whole JSON" in items[0].why
    assert isinstance(items[1], ImportMark) and list(SOURCE.read(found, items[1])) == [items[1]]
    path.write_text(whole)
    assert len([item for item in SOURCE.read(found, items[1]) if not isinstance(item, Unread)]) > 2


@pytest.mark.parametrize("odd", [{"loss": 1.0}, entry(3, None, note="text"), entry(3, None, deep={"a": 1})])
def test_an_entry_that_is_no_row_of_numbers_is_counted(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = save(tmp_path / "out" / "trainer_state.json", [odd, *HISTORY])
    run = imported(path, tmp_path / "runs")
    assert run.manifest["source"]["unread"]["count"] == 1 and len(run.series("train/loss")) == 30
    assert run.manifest["source"]["unread"]["examples"][0]["where"] == 1

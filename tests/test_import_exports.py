"""What other programs export under names of their own: a file named for its series, a model card's table, lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barograph.doctor import diagnose
from barograph.importing.read import read

LOSSES = [2.5 - at / 10 for at in range(12)]


@pytest.mark.parametrize(("name", "series"), [
    ("run-train-tag-epoch_loss.csv", "epoch_loss"), ("run_train_tag_loss.csv", "train/loss"),
    ("train_loss.csv", "train/loss"), ("tag-val_loss.csv", "eval/loss"),
])  # fmt: skip
def test_a_table_of_one_series_is_named_for_its_file(tmp_path: Path, name: str, series: str) -> None:
    path = tmp_path / name
    rows = "".join(f"{1_600_000_000 + at}.5,{10 * at},{value}\n" for at, value in enumerate(LOSSES))
    path.write_text("Wall time,Step,Value\n" + rows)
    (run,) = read(str(path))
    assert run.series(series).step.tolist() == [10 * at for at in range(12)]
    assert diagnose(run)["judged_by"] == series


def test_a_table_in_a_file_that_is_named_for_nothing_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("Wall time,Step,Value\n" + "".join(f"{1_600_000_000 + at},{at},{at}\n" for at in range(9)))
    (run,) = read(str(path))
    assert run.names() == ["Value"]


def test_a_list_of_points_is_named_for_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run_train_tag_epoch_loss.json"
    path.write_text(json.dumps([[1_600_000_000.5 + at, 10 * at, value] for at, value in enumerate(LOSSES)]))
    (run,) = read(str(path))
    assert run.series("epoch_loss").value.tolist() == LOSSES


def test_steps_and_values_of_one_series_have_its_name(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"training.loss": {"steps": list(range(5, 17)), "values": LOSSES}}))
    (run,) = read(str(path))
    assert run.series("training.loss").step.tolist() == list(range(5, 17))


def test_results_of_boosting_are_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    path.write_text(json.dumps({"validation_0": {"logloss": LOSSES}}))
    (run,) = read(str(path))
    assert diagnose(run)["judged_by"] == "validation_0/logloss"


@pytest.mark.parametrize("alone", [True, False])
def test_the_table_of_a_model_card_has_its_steps(tmp_path: Path, alone: bool) -> None:
    head = "| Training Loss | Epoch | Step | Validation Loss |\n|:---:|:---:|:---:|:---:|\n"
    rows = "".join(
        f"| {'No log' if at < 2 else format(value, '.4f')} | {at + 1}.0 | {100 * at + 100} | {value + 0.1:.4f} |\n"
        for at, value in enumerate(LOSSES)
    )
    path = tmp_path / "README.md"
    path.write_text(("" if alone else "# A model\n\n- num_epochs: 12\n\n### Results\n\n") + head + rows)
    (run,) = read(str(path))
    assert run.series("eval/loss").step.tolist() == [100 * at + 100 for at in range(12)]
    loss = diagnose(run)
    assert loss["judged_by"] is not None and not loss["unread"].get("count")
    assert run.series(loss["judged_by"]).step.tolist() == [100 * at + 100 for at in range(2, 12)]

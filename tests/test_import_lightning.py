"""Lightning's metrics.csv with its sparse rows, written anew when a name is added."""

from __future__ import annotations

from pathlib import Path

from barograph.importing.collect import Collector, collect
from barograph.importing.registry import identify
from barograph.query.stored import StoredRun

HPARAMS = """
lr: 0.001
model: !!python/object:some.module.Model
  width: 8
betas: !!python/tuple
- 0.9
- 0.95
"""


def version(folder: Path, rows: list[str], header: str = "epoch,lr-AdamW,step,train_loss_step,val_loss") -> Path:
    path = folder / "lightning_logs" / "version_0" / "metrics.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def imported(path: Path, root: Path) -> StoredRun:
    ((source, found),) = identify(path)
    assert source.kind == "lightning"
    return StoredRun(collect(source, found, root)[0])


ROWS = ["0,,9,2.5,", ",0.001,9,,", "0,,19,2.25,", "0,,19,,2.1", "1,,29,2.0,"]


def test_sparse_rows_are_series_at_their_steps_with_the_hyperparameters(tmp_path: Path) -> None:
    path = version(tmp_path / "exp", ROWS)
    (path.parent / "hparams.yaml").write_text(HPARAMS)
    run = imported(tmp_path, tmp_path / "runs")
    assert run.name == "exp version_0"
    assert run.config == {"lr": 0.001, "model": {"width": 8}, "betas": [0.9, 0.95]}
    assert run.series("train/loss").value.tolist() == [2.5, 2.25, 2.0]
    assert run.series("eval/loss").step.tolist() == [19] and run.series("train/lr").value.tolist() == [0.001]
    assert run.series("train/epoch").step.tolist() == [9, 19, 19, 29] and len(run.segments) == 1


def test_rows_that_are_added_are_added(tmp_path: Path) -> None:
    run = imported(version(tmp_path, ROWS[:3]), tmp_path / "runs")
    assert imported(version(tmp_path, ROWS), tmp_path / "runs").dir == run.dir
    assert run.series("train/loss").value.tolist() == [2.5, 2.25, 2.0] and len(run.series("eval/loss")) == 1
    imported(version(tmp_path, ROWS), tmp_path / "runs")
    assert len(run.series("train/loss")) == 3


def test_a_column_that_is_added_rewrites_the_file_and_adds_only_what_is_new(tmp_path: Path) -> None:
    run = imported(version(tmp_path, ROWS), tmp_path / "runs")
    wide = [f"{row.split(',')[0]},{','.join(row.split(',')[1:])}," for row in ROWS] + ["1,,39,1.5,,0.7"]
    path = version(tmp_path, wide, "epoch,lr-AdamW,step,train_loss_step,val_loss,val_acc")
    assert imported(path, tmp_path / "runs").dir == run.dir
    assert run.series("train/loss").value.tolist() == [2.5, 2.25, 2.0, 1.5]
    assert run.series("eval/accuracy").value.tolist() == [0.7] and len(run.series("eval/loss")) == 1


def test_another_training_in_the_same_file_is_another_run(tmp_path: Path) -> None:
    run = imported(version(tmp_path, ROWS), tmp_path / "runs")
    other = imported(version(tmp_path, ["0,,4,9.5,", "0,,8,9.25,"]), tmp_path / "runs")
    assert other.dir != run.dir and other.series("train/loss").value.tolist() == [9.5, 9.25]
    assert len(run.series("train/loss")) == 3


def test_a_test_at_step_0_at_the_end_takes_nothing_away(tmp_path: Path) -> None:
    path = version(
        tmp_path, [*(f"{row}," for row in ROWS), "0,,0,,,0.5"], "epoch,lr-AdamW,step,train_loss_step,val_loss,t"
    )
    run = imported(path, tmp_path / "runs")
    assert len(run.series("train/loss")) == 3 and run.series("t").step.tolist() == [0] and len(run.segments) == 1


def test_a_row_without_its_line_break_waits_for_it_while_the_file_is_followed(tmp_path: Path) -> None:
    path = version(tmp_path, ["0,,9,2.5,2.5"])
    ((source, found),) = identify(path)
    source.patient = True  # type: ignore[attr-defined]
    try:
        with Collector(source, found, tmp_path / "runs", live=True) as collector:
            collector.read()
            for text, values in (("0,,19,2.25,2.1", [2.5]), ("25", [2.5]), ("\n", [2.5, 2.125])):
                with open(path, "a") as file:
                    file.write(text)
                collector.read()
                assert StoredRun(collector.folder).series("eval/loss").value.tolist() == values
    finally:
        source.patient = False  # type: ignore[attr-defined]

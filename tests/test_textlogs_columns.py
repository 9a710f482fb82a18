"""Tables whose headings name measures alone, and what else counts rows where no word does."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

import barograph
from barograph.core.roles import candidates
from barograph.doctor import diagnose
from barograph.importing.textlogs import columns

LOSS = [(at, round(1 + 4 / at, 4)) for at in range(1, 10)]


def written(folder: Path, text: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rows(form: str) -> str:
    """Rows of a form: {e} counts, {v} falls, {w} is above it."""
    return "".join(form.format(e=at, v=f"{value:.4f}", w=f"{value + 1:.4f}") for at, value in LOSS)


@pytest.mark.parametrize(("heading", "form", "name"), [
    ("train loss   va_loss  train_acc   val_acc", "  {v}  {w}   0.530021  0.370833", "train_loss"),
    ("val_loss\ttrain_dist\tdist", "{v}\t27.5545\t21.5814", "val_loss"),
    ("   loss  val_loss", "{e}  {v}  {w}", "loss"),
    ("loss,acc", "{v},0.52", "loss"),
    ("Cost function value\t", " {v}\t", "Cost"),
    ("% loss (test set)\t", " {v}\t", "test_loss"),
])  # fmt: skip
def test_rows_below_a_heading_of_measures_are_counted(tmp_path: Path, heading: str, form: str, name: str) -> None:
    table = f"Training Summary:\n{heading}\n{rows(form + chr(10))}Remarks: none\n\n"
    reading = read(written(tmp_path, "batch-size =32\n" + table))
    assert reading.series[name] == LOSS and not reading.unread
    twice = read(written(tmp_path, table * 2, "twice.log"))
    assert twice.series[name] == LOSS * 2
    assert [restart.step for restart in twice.restarts] == [1]


@pytest.mark.parametrize("text", [
    "loss functions\n" + "see 1.5 below\n" * 6,
    "loss val_loss\n0.5 0.6\n0.4 0.5\n",  # too few
    "accuracy  precision\n" + "svm  0.91  0.88\n" * 6,
])  # fmt: skip
def test_other_lines_below_such_words_are_no_rows(tmp_path: Path, text: str) -> None:
    assert find(written(tmp_path, text)) == []


@pytest.mark.parametrize(("form", "axis"), [
    ("-----{e}------\ntrain_mean loss: {v}\ntrain_accuracy: 0.5\n", "epoch"),
    (" -- 00{e} / 2000 --\nmean loss: {v}\nsegmentation accuracy: 0.5\n", "step"),
    ("Train {e}, loss: {v}, train acc: 0.5\nTest {e}, loss: {w}, test acc: 0.5\n", "epoch"),
    ("INFO: Train {e}: loss:{v}\n", "step"),
])  # fmt: skip
def test_a_count_between_rules_or_behind_the_word_for_the_data(tmp_path: Path, form: str, axis: str) -> None:
    reading = read(written(tmp_path, rows(form)))
    name = next(name for name in reading.series if name.endswith("loss") and not name.startswith("test"))
    assert reading.series[name] == LOSS and reading.axes[name] == axis
    held_out = [(at, round(value + 1, 4)) for at, value in LOSS]
    assert form.startswith("Train") is (reading.series.get("test loss") == held_out)


def test_a_summary_of_a_test_is_of_the_test(tmp_path: Path) -> None:
    text = "".join(
        f"Train: [{at}/90]\titer: {at}\tLoss: {value}\n"
        + (f"Test_summary: [9/90] iter: {at}\tLoss: 9.5\n" if at % 3 == 0 else "")
        for at, value in LOSS
    )
    series = read(written(tmp_path, text)).series
    assert series["Loss"] == LOSS and series["test Loss"] == [(at, 9.5) for at in (3, 6, 9)]


def test_a_programs_arguments_are_no_row(tmp_path: Path) -> None:
    text = "++ python fit.py --max_number_of_steps=100 --learning_rate=1e-3 --loss=0.5\nstarting\n" * 6
    assert find(written(tmp_path, text)) == []


@pytest.mark.parametrize("break_", ["\r", ""])
def test_states_of_a_bar_are_rows_where_their_carriage_returns_got_lost(tmp_path: Path, break_: str) -> None:
    for behind in (", v_num=3, loss={v}]", "] loss=, {v}"):
        bar = "Epoch 0:   0%|          | {e}/400 [00:01<00:38,  3.89it/s" + behind
        states = break_.join(bar.format(e=at, v=value) for at, value in LOSS)
        path = written(tmp_path, f"Epoch 0:   0%|          | 0/400 [00:00<?, ?it/s]{break_}{states}\n")
        assert read(path).series["loss"] == LOSS


def test_lightnings_values_that_are_not_finite_are_read(tmp_path: Path) -> None:
    bar = "Epoch 0:   0%| | {e}/400 [00:01<00:38,  3.89it/s, v_num=0, train_loss={v}]\n"
    text = "".join(bar.format(e=at, v="nan.0" if at > 5 else 2.5) for at in range(1, 12))
    result = diagnose(barograph.read(written(tmp_path, text))[0])
    assert [(one["rule"], one["step"]) for one in result["findings"]][:1] == [("non_finite_loss", 6)]


def test_an_epochs_mean_with_the_name_of_its_batches_is_another_series(tmp_path: Path) -> None:
    text = "".join(
        "".join(f"Epoch {epoch} | Batch {at}0/40 | Train Loss {3 - epoch - at / 9:.4f}\n" for at in range(1, 5))
        + f"Epoch {epoch} | Time 9.1 sec | Train Loss 9.5 | Valid Loss 2.5\n"
        for epoch in range(1, 4)
    )
    series = read(written(tmp_path, text)).series
    assert len(series["Train Loss"]) == 12 and [value for _, value in series["epoch Train Loss"]] == [9.5] * 3
    assert len(series["Valid Loss"]) == 3


def test_precision_is_not_called_accuracy(tmp_path: Path) -> None:
    form = "[Epoch 0/3, Batch {e}/90] [total {v}, recall: 0.2, precision: 0.1]\n"
    series = read(written(tmp_path, rows(form))).series
    assert "precision" in series and "accuracy" not in series


def test_runs_that_follow_each_other_in_one_log_are_no_restarts(tmp_path: Path) -> None:
    text = "".join(
        f"2024-05-0{day} 10:00:{at:02},1 | INFO | step={at:04} loss={5 - at / 20:.3f}\n"
        for day in (1, 2, 5) for at in range(40)
    )  # fmt: skip
    result = diagnose(barograph.read(written(tmp_path, text))[0])
    assert "restart_time" not in {one["rule"] for one in result["findings"]}


def test_a_detectors_parts_behind_an_epoch_and_a_batch_are_losses(tmp_path: Path) -> None:
    heading = "2021-03-04 05:06:07 [INFO]:    Epoch       Batch       box      conf        id     total      time\n"
    body = "".join(
        f"2021-03-04 05:06:{at:02d} [INFO]: {at // 3:5d}/9 {at % 3 * 30:7d}/90  0.{9 - at}3  0.41  12.{at}"
        f"  {19 - at}.5  4.1\n"
        for at in range(9)
    )
    reading = read(written(tmp_path, heading + body))
    assert [step for step, _ in reading.series["total_loss"]] == [0, 30, 60, 90, 120, 150, 180, 210, 240]
    assert {"box_loss", "conf_loss", "id_loss"} <= set(reading.series)


def test_errors_of_a_training_below_their_heading_are_counted(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "training error\t\n" + rows(" 4{v}e+01\t\n"), "loss.txt"))
    assert [step for step, _ in reading.series["training_error loss"]] == list(range(1, 10))


def test_a_table_of_markdown_may_mark_the_best_separate_thousands_and_end_with_notes(tmp_path: Path) -> None:
    text = (
        "| Epoch | Train Loss | Val Loss | Force RMSE (eV/\u00c5) | Improvement |\n|---|---|---|---|---|\n"
        "| **Initial** | - | 6,132,000.25 | 11.81 | Baseline |\n"
        "| **1** | 451,163.5 | 45,038.5 | 3.43 | 71% force RMSE reduction |\n"
        "| **2** | 29,092.5 | 15,837.5 | 2.83 | 17% improvement |\n"
        "| **3** | 820.5 | 165.25 | **0.72** | **better** |\n"
    )
    path = tmp_path / "README.md"
    path.write_text(text)
    series = read(path).series
    assert series["Train_Loss"] == [(1, 451163.5), (2, 29092.5), (3, 820.5)]
    assert series["Val_Loss"] == [(1, 45038.5), (2, 15837.5), (3, 165.25)]
    assert series["Force_RMSE"] == [(1, 3.43), (2, 2.83), (3, 0.72)]


def test_columns_that_say_their_data_in_brackets_are_told_apart() -> None:
    assert columns.heading(b"| Epoch | Loss (train) | Loss (val) | MAE (eV) |")[1:] == [
        b"Epoch", b"train_Loss", b"val_Loss", b"MAE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line", [b"| Epochs | Accuracy | Notes |", b"| Epochs | Loss | Comments |", b"| Steps | Loss | Description |"]
)
def test_trials_with_notes_are_no_steps(line: bytes) -> None:
    assert columns.heading(line) == []


@pytest.mark.parametrize(
    ("head", "row", "name", "steps"),
    [
        (
            "#  step      rmse_val    rmse_trn         lr",
            "{at:7d}    {val:.2e}    {loss:.2e}    1.0e-03",
            "rmse_trn",
            1,
        ),
        ("# Epoch batch         loss       loss_f", "      {at}    10        {loss:.3g}        0.25", "train/loss", 10),
        ("; step  loss  lr", "{at} {loss:.4f} 0.001", "train/loss", 1),
    ],
)
def test_a_heading_that_is_a_comment_has_its_names(head: str, row: str, name: str, steps: int, tmp_path: Path) -> None:
    losses = [3.0 / (1 + at / 9) for at in range(1, 41)]
    rows = [row.format(at=at, loss=loss, val=loss + 0.1) for at, loss in enumerate(losses, 1)]
    path = tmp_path / "lcurve.out"
    path.write_text("\n".join(["training", head, *rows, ""]))
    found = barograph.read(path)[0].series(name)
    assert found.step.tolist() == [steps * at for at in range(1, 41)]
    assert found.value.tolist() == pytest.approx(losses, rel=0.01)


def test_a_heading_of_two_lines_of_words_names_the_rows_below_it(tmp_path: Path) -> None:
    text = "rate = 0.25\nmean       since        sample    sample    this\n"
    text += "loss       last        counter    weight   label\n"
    rows = [(5 * 2**at, 0.7 / (at + 1)) for at in range(6)]
    text += "".join(f"{loss:.6f}   {loss / 2:.6f}   {count:9d} {count:9.1f}  1.0000\n" for count, loss in rows)
    path = tmp_path / "table.log"
    path.write_text(text + "\nfinished\n9.0 8.0 7 6.0 1.0\n")
    reading = read(path)
    assert reading.series["mean_loss"] == [(count, pytest.approx(loss, abs=1e-6)) for count, loss in rows]
    assert reading.series["since_last"][0] == (5, pytest.approx(0.35))


def test_a_table_with_a_column_for_each_data_says_the_losses_of_an_epoch(tmp_path: Path) -> None:
    text = ""
    for epoch in range(6):
        text += f"- trainer - Epoch {epoch}/20\n- trainer - Validating\n"
        text += f"span_f1: 0.{epoch}17, loss: {0.9 - epoch / 11:.4f} ||: 100%|######| 61/61 [00:03<00:00, 9.1it/s]\n"
        text += "- board -                    Training |  Validation\n"
        text += (
            f"- board - span_f1        |     0.{epoch}19  |     0.{epoch}17\n- board - gpu_MB |  913.000  |    N/A\n"
        )
        text += f"- board - loss        |     {0.8 - epoch / 9:.3f}  |     {0.9 - epoch / 11:.3f}\n- trainer - took 9\n"
    path = tmp_path / "table.log"
    path.write_text(text)
    reading = read(path)
    assert reading.series["train loss"] == [(epoch, pytest.approx(0.8 - epoch / 9, abs=1e-3)) for epoch in range(6)]
    assert {step for step, _ in reading.series["val loss"]} == set(range(6)) and reading.axes["val loss"] == "epoch"


def test_errors_of_a_potential_are_losses_of_their_data(tmp_path: Path) -> None:
    text = "# batch      l2_tst    l2_trn    l2_e_tst  l2_e_trn         lr\n"
    text += "".join(f" {at:6d}    {9 / at:.2e}  {8 / at:.2e}    1e-2  2e-2  1.0e-03\n" for at in range(100, 900, 100))
    path = tmp_path / "table.log"
    path.write_text(text)
    series = read(path).series
    assert len(series["l2_trn"]) == len(series["l2_tst"]) == 8
    assert candidates("loss", series)[0] == "l2_trn" and candidates("eval_loss", series)[0] == "l2_tst"


def test_a_mean_that_is_not_a_number_is_read_though_its_bar_was_left_in_the_middle(tmp_path: Path) -> None:
    text = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
    for epoch, ends in ((1, True), (2, True), (3, True), (4, False)):
        for count in (31, 62, 90) if ends else (31, 62):
            loss = "nan" if epoch == 4 else f"{2 / epoch + (90 - count) / 100:.4f}"
            bar = f"{count / 0.9:3.0f}%|####5     | {count}/90 [00:05<00:07,  5.6it/s]"
            text += f"        {epoch}/9      1.9G     {loss:>7}     {loss:>7}         17        512: {bar}\r"
        text += "\n"
    path = tmp_path / "detector.log"
    path.write_text(text)
    losses = read(path).series["box_loss"]
    assert losses[:3] == [(1, 2.0), (2, 1.0), (3, pytest.approx(2 / 3, abs=1e-4))]
    assert losses[3][0] == 4 and losses[3][1] != losses[3][1]


def test_cells_may_be_times_with_units_and_dates(tmp_path: Path) -> None:
    heading = "      Iter       Train Loss   Remaining Time         End Time "
    text = f"{heading}\n" + "".join(
        f"{at:10d} {value:16.4f} {9.5 - at:15.2f}m     {at} Oct 15:3{at}\n" for at, value in LOSS
    )
    reading = read(written(tmp_path, text))
    assert [*reading.series] == ["Train_Loss"] and reading.series["Train_Loss"] == LOSS


def test_an_objective_beside_errors_of_two_data_is_no_part_of_a_detectors_loss(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = "".join(f"{at:>4} {3 / at:>12.4f} {3.3 / at:>12.4f} {90 / at:>12.4e}\n" for at in range(1, 9))
    path.write_text("iter      tr_rmse      va_rmse          obj\n" + rows)
    series = read(path).series
    assert set(series) >= {"tr_rmse", "va_rmse", "obj"} and len(series["tr_rmse"]) == 8


def test_rows_that_a_notebook_has_no_log_for_are_rows(tmp_path: Path) -> None:
    table = "Step | Training Loss | reward | entropy\n-- | -- | -- | --\n1 | 0.4125 | 1.5 | 0\n"
    table += "".join(f"{at} | {0.4125 / at:.4f} | {at}.25 | No Log\n" for at in range(2, 6))
    series = read(written(tmp_path, table)).series
    assert [step for step, _ in series["Training_Loss"]] == [1, 2, 3, 4, 5]
    assert series["reward"][1:3] == [(2, 2.25), (3, 3.25)] and len(series["entropy"]) == 1


@pytest.mark.parametrize("mark", ["% ", "%  "])
def test_a_table_in_the_comments_of_a_script_is_read(mark: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rule = f"{mark}|{'=' * 60}|\n"
    head = (
        f"{mark}|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Base Learning  |\n"
        f"{mark}|         |             |   (hh:mm:ss)   |     Loss     |      Rate       |\n"
    )
    form = mark + "|       {e} |         {s:3} |       00:00:0{e} |       {v:.4f} |      1.0000e-04 |\n"
    rows = [(40 * at, 3.5 - at / 3) for at in range(1, 8)]
    path.write_text(
        "%% what it printed:\n" + rule + head + rule + "".join(form.format(e=s // 40, s=s, v=v) for s, v in rows) + rule
    )
    assert read(path).series["Mini-batch_Loss"] == [(s, round(v, 4)) for s, v in rows]


def test_how_long_an_epoch_took_in_minutes_and_seconds_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [(at, 3 - at / 4, 3.5 - at / 4, f"{20 + at}m {at}s" if at % 2 else f"1h {at}m 5.5s") for at in range(1, 6)]
    saved = "Saved the model at epoch {0} with Val Acc: 0.5{0}\n"
    path.write_text("Epoch,Train Loss,Val Loss,Epoch Time\n" + "".join(
        ",".join(map(str, row)) + "\n" + (saved.format(row[0]) if row[0] < 4 else "") for row in rows
    ))  # fmt: skip
    series = read(path).series
    assert series["Train_Loss"] == [row[:2] for row in rows] and len(series["Val_Loss"]) == 5

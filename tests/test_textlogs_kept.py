"""Rows as log files have them that people keep: with warnings glued to them, in pages of R, in tables of samplers."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.core.roles import losses
from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of

VALUES = [round(2 + 8 / at, 4) for at in range(1, 15)]
LOSS = [(at, value) for at, value in enumerate(VALUES, 1)]


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def rows(form: str, values: list[float] | None = None) -> str:
    return "".join(form.format(e=at, v=value) for at, value in enumerate(values or VALUES, 1))


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("step {e} || Loss: {v} || /opt/reeds/mix.py:9: UserWarning: 3 rows of 'kind' are bent\n  pick = 1\n", "Loss"),
        ("step {e} loss {v} <stdin>:1: FutureWarning: bent\n", "loss"),
        ("L: {v}, L_tone: 1.5, epoch: 0/5::   0%|          | {e}/99 [00:03<1:18:31,  3.32s/it]\n", "loss"),
        ("[train: 1, {e} / 99] FPS: 21.6 (18.0)  ,  Loss/total: {v}  ,  Loss/reed: 0.1\n", "Loss/total"),
    ],
)
def test_rows_are_read_whatever_stands_around_them(tmp_path: Path, form: str, name: str) -> None:
    assert read(written(tmp_path, rows(form))).series[name] == LOSS


def test_what_is_said_of_other_data_in_brackets_is_told_apart(tmp_path: Path) -> None:
    form = "[train: 2, {e} / 14] FPS: 21.6 (18.0)  ,  Loss/total: {v}\n"
    text = rows(form) + "[val: 2, 3 / 3] FPS: 40.1 (40.1)  ,  Loss/total: 3.5\n"
    series = read(written(tmp_path, text)).series
    assert series["Loss/total"] == LOSS
    assert [value for _, value in series["val Loss/total"]] == [3.5]


@pytest.mark.parametrize("nan", ["nan", "-nan", "NaN"])
@pytest.mark.parametrize("mark", ["", "## ", "#> ", "    ## "])
def test_tables_of_deviances_are_read_in_pages_of_r(tmp_path: Path, mark: str, nan: str) -> None:
    table = f"{mark}Iter   TrainDeviance   ValidDeviance   StepSize   Improve\n"
    text = table + rows(mark + f"{{e:6d}} {{v:13.4f}}            {nan:>4}     0.1000    0.2390\n")
    path = written(tmp_path, text)
    series = read(path).series
    assert series["TrainDeviance"] == LOSS
    assert "ValidDeviance" not in series  # no rows were held out
    found = diagnose(runs_of(path)[0])
    assert (found["judged_by"], found["findings"]) == ("TrainDeviance", [])


def test_a_bound_is_read_in_a_table_with_notes_behind_its_rows(tmp_path: Path) -> None:
    values = [-900.5, -400.25, -300.125, -250.5, -240.25, -239.5, -239.25, -239.125]
    text = (
        "Chain 2: Iteration:   1 / 50 [  2%]  (Adaptation)\n"
        "Chain 2:   iter             ELBO   delta_ELBO_mean   delta_ELBO_med   notes \n"
        + rows("Chain 2: {e:6d} {v:16.3f}             1.000            1.000\n", values)
        + "Chain 2:      9         -239.000             0.001            0.001   MEDIAN ELBO CONVERGED\n"
    )
    bound = read(written(tmp_path, text)).series["ELBO"]
    assert bound == [(at, value) for at, value in enumerate([*values, -239.0], 1)]


def test_units_behind_a_time_belong_to_no_name(tmp_path: Path) -> None:
    text = rows("[INFO] Reeds. Step: {e}. Time Elapsed: 9.5 s. Mean Reward: {v}. Std of Reward: 0.5. Training.\n")
    assert read(written(tmp_path, text)).series["Mean Reward"] == LOSS


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("All Loss", "Smooth Loss", "Bent Loss"), "All Loss"),
        (("loss_kl", "loss_mmd", "loss_recon", "loss_vae"), "loss_vae"),
        (("smooth_loss", "loss"), "loss"),
        (("train-rmspe", "eval-rmspe"), "train-rmspe"),
        (("TrainDeviance", "Improve"), "TrainDeviance"),
    ],
)
def test_the_whole_loss_is_known_among_its_parts(names: tuple[str, ...], first: str) -> None:
    assert losses(names)[0] == first


def test_each_measure_of_a_batch_has_a_line_of_its_own(tmp_path: Path) -> None:
    form = (
        "Epoch[0] Batch [{e}]\tSpeed: 20.0 samples/sec\tTrain-Acc=0.5\n"
        "Epoch[0] Batch [{e}]\tSpeed: 20.0 samples/sec\tTrain-ReedL1={v:.4f}\n"
        "Epoch[0] Batch [{e}]\tSpeed: 20.0 samples/sec\tTrain-SmoothL1={v:.4f}\n"
    )
    path = written(tmp_path, rows(form))
    series = read(path).series
    assert series["Train-ReedL1"] == series["Train-SmoothL1"] == LOSS
    assert diagnose(runs_of(path)[0])["judged_by"] == "Train-SmoothL1"


def test_sizes_and_times_of_a_set_are_no_measures(tmp_path: Path) -> None:
    form = "Epoch {e}: train-size=3.5, train-time=2.5\n"
    assert runs_of(written(tmp_path, rows(form) + rows("Epoch {e}: loss {v}\n")))[0].names() == ["train/loss"]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("Training Loss: 1.5\n\nModel evaluation.\n\nModel test error: {v}\n", "Model test error"),
        ("Iteration {e}, loss = 1.5\nValidation score: {v}\n", "Validation score"),
        (
            "> EPOCH: {e}/20\n  --> STEP: 5/9 -- GLOBAL_STEP: {e}\n     | > loss_gen: 1.5  (1.6)\n\n"
            "  --> EVAL PERFORMANCE\n     | > avg_loss_gen: {v} (+0)\n",
            "val avg_loss_gen",
        ),
    ],
)
def test_what_is_measured_between_rows_is_of_the_step_above(tmp_path: Path, form: str, name: str) -> None:
    assert read(written(tmp_path, rows(form))).series[name] == LOSS


def test_names_and_behind_them_their_values(tmp_path: Path) -> None:
    series = read(
        written(tmp_path, rows("Epoch: [0][{e}/99]\tLoss 3.5 (3.6)\nloss1,loss2,reed_loss {v} 1.5 0.25\n"))
    ).series
    assert series["loss1"] == LOSS
    assert {value for _, value in series["loss2"]} == {1.5}
    assert {value for _, value in series["reed_loss"]} == {0.25}

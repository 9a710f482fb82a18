"""Lines that come again with the same words and other numbers are rows, if something counts; tables are none."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from textlog_readings import collect, find, read

from barograph.core.roles import main_loss
from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def test_a_boosting_round_that_begins_the_line_counts(tmp_path: Path) -> None:
    lines = [f"[{at}]:\ttrain's l2:{0.9 - at / 50:.4f}\tvalid's l2:{0.95 - at / 60:.4f}" for at in range(3, 9)]
    reading = read(written(tmp_path, "\n".join(lines) + "\n"))
    assert reading.series["train l2"][0] == (3, 0.84)
    assert [step for step, _ in reading.series["valid l2"]] == [3, 4, 5, 6, 7, 8]
    (run,) = runs_of(tmp_path / "train.log")
    assert diagnose(run)["judged_by"] == "train l2"


def test_a_generators_and_a_discriminators_names_are_losses(tmp_path: Path) -> None:
    lines = [f"(epoch: 2, iters: {at}, time: 0.31) D_A: 0.2{at} G_A: 0.5{at} cyc_A: 2.{at}" for at in (100, 200, 300)]
    reading = read(written(tmp_path, "\n".join(lines) + "\n"))
    assert set(reading.series) == {"D_A_loss", "G_A_loss", "cyc_A"}


def test_words_before_a_count_name_the_number_behind_it(tmp_path: Path) -> None:
    text = "".join(
        f"LOG (train[5.5]:Print():nnet.cc:330) Average objective for minibatches {at}-{at + 9} is -0.{31 - at} over"
        f" {6336 + at} frames.\n"
        for at in (0, 10, 20)
    )
    reading = read(written(tmp_path, text))
    assert reading.series["Average objective"] == [(0, -0.31), (10, -0.21), (20, -0.11)]


def test_measures_of_no_known_name_stand_beside_a_dialects_rows(tmp_path: Path) -> None:
    text = "".join(
        f"step {at} loss {2.5 - at / 900:.3f}\n[ITER {at}] Evaluating test: L1 0.0{at} PSNR 2{at / 100:.1f}\n"
        for at in (200, 400, 600, 800)
    )
    reading = read(written(tmp_path, text))
    assert len(reading.series["loss"]) == 4
    assert reading.series["test PSNR"][0] == (200, 22.0)


TABLES = {
    "trades": "{at}, SPY, 41{at}.2, profit: {at}.5, loss: 0.0, drawdown: 0.1{at}",
    "models": "Model {at}: loss=0.{at}12 acc=0.9{at}",
    "tasks": "Task {at} | test loss 0.{at}12 | accuracy 0.9{at}",
    "regressions": "모델 {at}: RMSE: 2.{at}1, MAE: 1.{at}0, R2: 0.7{at}",
    "games": "Round {at}: team A 21 - team B 18 (win {at}, loss 1)",
    "packets": "round {at}: packet loss {at}%",
    "revenue": "Day {at}: revenue 12{at}.4 loss {at}.25",
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_things_gets_no_verdict(tmp_path: Path, table: str) -> None:
    path = written(tmp_path, "".join(TABLES[table].format(at=at) + "\n" for at in range(1, 9)))
    for run in runs_of(path) if find(path) else ():
        assert diagnose(run)["judged_by"] is None


def test_two_lines_alike_are_no_rows(tmp_path: Path) -> None:
    assert not find(written(tmp_path, "0: learn: 0.69 test: 0.68\n1: learn: 0.61 test: 0.62\nthe end\n"))


def test_a_line_that_counts_no_whole_number_is_no_row_beside_those_that_were(tmp_path: Path) -> None:
    path = written(
        tmp_path, "".join(f"[{at}]:\ttrain's l2:0.{90 - at}\tvalid's l2:0.{95 - at}\n" for at in range(3, 9))
    )
    dialect, found = find(path)[0]
    mark = collect(dialect, found).mark
    with path.open("a") as file:
        file.write("[50.00]:\ttrain's l2:0.31\tvalid's l2:0.42\n[10]:\ttrain's l2:0.30\tvalid's l2:0.41\n")
    assert collect(dialect, found, mark).series["train l2"] == [(10, 0.30)]


def boosted(sign: int) -> list[str]:
    """CatBoost's lines: of an error that falls, or a score that rises."""
    return [
        f"{at}:\tlearn: {0.69 + sign * at / 50:.4f}\ttest: {0.7 + sign * at / 60:.4f}\t"
        f"best: {0.7 + sign * at / 60:.4f} ({at})\ttotal: 1{at}ms"
        for at in range(12)
    ]


def fallen(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


ERRORS, SCORES = boosted(-1), boosted(1)


def test_numbers_that_are_not_finite_make_no_other_line(tmp_path: Path) -> None:
    lines = [re.sub(r"(learn|test): [\d.]+", r"\1: nan", line) if at > 8 else line for at, line in enumerate(ERRORS)]
    (run,) = runs_of(written(tmp_path, fallen(lines)))
    assert [math.isnan(value) for value in run.series("learn/loss").value] == [False] * 9 + [True] * 3
    short = [
        f"{at}:\tlearn: {learnt}\ttotal: {at}m 2s\tremaining: 1m 6s" for at, learnt in ((7, 0.61), (8, 0.6), (9, "nan"))
    ]
    (run,) = runs_of(written(tmp_path, fallen(short)))
    assert diagnose(run)["findings"][0]["rule"] == "non_finite_loss"


def test_data_whose_best_is_the_least_are_losses(tmp_path: Path) -> None:
    (run,) = runs_of(written(tmp_path, fallen(ERRORS)))
    assert diagnose(run)["judged_by"] == "learn/loss"
    assert len(run.series("test/loss")) == 12


def test_data_whose_best_is_the_greatest_are_none(tmp_path: Path) -> None:
    (run,) = runs_of(written(tmp_path, fallen(SCORES)))
    assert diagnose(run)["judged_by"] is None
    assert set(run.names()) == {"learn", "test"}


@pytest.mark.parametrize("damage", [
    "5:\tlearn: 0.5900\tte",
    "5:\tlearn: 0.5900\tWARNING: 3 workers are slow\ttest: 0.6167\tbest: 0.6167 (5)\ttotal: 15ms",
])  # fmt: skip
def test_a_damaged_line_takes_no_other_row_away(tmp_path: Path, damage: str) -> None:
    lines = [*ERRORS]
    lines[5] = damage
    reading = read(written(tmp_path, fallen(lines)))
    assert [step for step, _ in reading.series["test/loss"]] == [at for at in range(12) if at != 5]


def test_folds_that_begin_anew_are_segments(tmp_path: Path) -> None:
    lines = [
        f"    {at}:\ttest: 0.8{at}{fold}\tbest: 0.8{at}{fold} ({at})\ttotal: 3{at}ms"
        for fold in (1, 2, 3)
        for at in (0, 10, 20, 29)
    ]
    reading = read(written(tmp_path, fallen(lines)))
    assert len(reading.series["test"]) == 12


def test_the_last_of_a_count_is_no_value(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}/9...\nTraining: 100%|####| 50/50 [00:09<00:00, 5.01it/s, loss=2.{9 - at}]\n" for at in range(1, 7)
    )
    (run,) = runs_of(written(tmp_path, text))
    assert set(run.names()) == {"train/loss", "it/s"}


def test_a_name_ends_with_its_sentence_and_before_its_verb(tmp_path: Path) -> None:
    text = "".join(
        f"[Epoch 3 {at}][Iteration {at}][Wall Clock 9{at}.8s] Throughput is 408.{at} records/second. Loss is 1.{at}5."
        " Current learning rate is 0.046.\n"
        for at in range(400, 412)
    )
    assert read(written(tmp_path, text)).series["Loss"][:2] == [(400, 1.4005), (401, 1.4015)]
    text = "".join(
        f"Epoch {at}, global step {at}0: 'val_loss' reached 2.{99 - at} (best 2.{99 - at})\n" for at in range(12)
    )
    assert read(written(tmp_path, text)).series["val_loss"][:2] == [(0, 2.99), (10, 2.98)]


def test_a_step_that_begins_anew_with_each_epoch_is_its_batch(tmp_path: Path) -> None:
    lines = [
        f"Epoch {epoch}, Step {at}, took 7.1{at} (s), G_A: 0.2{at} D_A: 0.{9 - epoch}{at}"
        for epoch in range(3) for at in (10, 20, 30)
    ]  # fmt: skip
    reading = read(written(tmp_path, "\n".join(lines) + "\n"))
    assert [step for step, _ in reading.series["G_A_loss"]] == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_iterations_of_an_epoch_in_such_lines_count_on(tmp_path: Path) -> None:
    lines = [
        f"(epoch: {epoch}, iters: {at}, time: 0.31) D_A: 0.2{at} G_A: 0.5{epoch} cyc_A: 2.{at}"
        for epoch in (1, 2, 3)
        for at in (150, 300, 450)
    ]
    reading = read(written(tmp_path, "\n".join(lines) + "\n"))
    assert [step for step, _ in reading.series["D_A_loss"]] == [150, 300, 450, 600, 750, 900, 1050, 1200, 1350]
    assert not reading.restarts


def test_rows_whose_times_have_other_units_are_all_read(tmp_path: Path) -> None:
    spent = ("270us", "906us", "1.06ms", "1.38ms", "58s", "1m 4s")
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"{at}:\tlearn: 0.68{60 - at}\ttotal: {time}\tremaining: 9ms\n" for at, time in enumerate(spent))
    )
    assert [step for step, _ in read(path).series["learn/loss"]] == list(range(6))


def test_trees_of_a_forest_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "fit.log"
    path.write_text("".join(f"built tree {at} of 40, train score = {3 / at:.6e}\n" for at in range(1, 9)))
    series = read(path).series["train score"]
    assert [step for step, _ in series] == [*range(1, 9)] and series[1][1] == 1.5


def test_the_value_of_an_optimiser_is_its_objective(tmp_path: Path) -> None:
    path = tmp_path / "fit.log"
    path.write_text("".join(f"iter {at:4d} value {900 - at}.182513\n" for at in range(10, 90, 10)) + "converged\n")
    reading = read(path)
    assert reading.series["objective"] == [(at, 900.182513 - at) for at in range(10, 90, 10)]
    assert main_loss(reading.series) == "objective"


def test_what_counts_is_no_measure(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    bar = "100%|#####| 99/100 [17:30<00:00, 12.19it/s]"
    path.write_text(
        "".join(f"Epoch {at}: average [s/it]: 0.0422, current metric: {3 / at:.5f}: {bar}\n" for at in range(1, 9))
    )
    series = read(path).series
    assert [*series] == ["current metric"] and series["current metric"][1] == (2, 1.5)


def test_a_likelihood_behind_a_count_that_begins_the_line_is_read(tmp_path: Path) -> None:
    text = "words: 412\n" + "".join(f"<{at}0> LL/token: -{9 - at / 10:.3f}\n" for at in range(1, 8))
    assert read(written(tmp_path, text)).series["LL/token"][0] == (10, -8.9)


def test_the_unit_of_the_number_ahead_is_no_name(tmp_path: Path) -> None:
    text = "".join(f"Iter {at} gap 0.{at}2 value {8 / at:.3f} 0.{at}4s |{9 / at:.3f}E2| x\n" for at in range(1, 9))
    assert set(read(written(tmp_path, text)).series) == {"gap", "value"}


def test_a_count_without_a_name_between_two_marks(tmp_path: Path) -> None:
    text = "".join(
        f"0:12:{at:02d} - {700 + 4 * at:7d} -  5{at}.12 rows/s -  21{at}3.80 words/s - XYZ-ab:  {9 - at / 10:.4f} -  "
        f"- part LR: 3.{at}e-06\n"
        for at in range(1, 9)
    )
    reading = read(written(tmp_path, text))
    assert reading.series["XYZ-ab"] == [(700 + 4 * at, round(9 - at / 10, 4)) for at in range(1, 9)]
    assert "rows/s" not in reading.series


def test_a_number_that_runs_into_the_next_name_is_one(tmp_path: Path) -> None:
    text = "".join(f"{at}:\tlearn {0.71 - at / 50:.10f}passed: 2.1 sec\ttotal: {at}m 4s\tremaining: 9m {at}s\n"
                   for at in range(10))  # fmt: skip
    assert [step for step, _ in read(written(tmp_path, text)).series["learn/loss"]] == [*range(10)]

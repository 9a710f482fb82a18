"""Which number of a row counts is decided by the rows: the one that rises."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

import barograph
from barograph.core.roles import main_loss
from barograph.doctor import diagnose


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_fraction_that_rises_within_an_epoch_is_its_batch(tmp_path: Path) -> None:
    lines = [f"# [Train Epoch: 18/50] [{at}000/900000 particles] loss=0.{at}" for at in (584, 588, 592, 596)]
    assert read(written(tmp_path, lines)).series["loss"] == [
        (584000, 0.584), (588000, 0.588), (592000, 0.592), (596000, 0.596),
    ]  # fmt: skip


def test_a_fraction_that_stands_still_counts_nothing(tmp_path: Path) -> None:
    lines = [f"epoch {at} loss 0.{9 - at} patience 0/10" for at in range(1, 5)]
    reading = read(written(tmp_path, lines))
    assert [step for step, _ in reading.series["loss"]] == [1, 2, 3, 4]
    assert reading.axes["loss"] == "epoch"


def test_a_batch_that_stands_still_before_a_count_that_rises_is_an_epoch(tmp_path: Path) -> None:
    lines = [f"TRAIN Batch {78 + at // 40}/{at % 40} loss 2{at % 7}.5" for at in range(0, 80, 10)]
    assert [step for step, _ in read(written(tmp_path, lines)).series["loss"]] == [0, 10, 20, 30, 31, 41, 51, 61]


def test_an_episode_counts_where_its_steps_go_up_and_down(tmp_path: Path) -> None:
    steps = (13, 337, 446, 393, 270)
    lines = [f"episode: {at}, episode steps: {step}, loss: 5.{at}" for at, step in enumerate(steps, 569)]
    reading = read(written(tmp_path, lines))
    assert [step for step, _ in reading.series["loss"]] == [569, 570, 571, 572, 573]
    assert not reading.restarts


def test_rows_of_one_epoch_and_no_batch_are_numbered(tmp_path: Path) -> None:
    lines = [f"Epoch 1 complete [{at}%] Loss: {3.7 - at / 10}" for at in (0, 10, 20)]
    reading = read(written(tmp_path, lines))
    assert [step for step, _ in reading.series["Loss"]] == [1, 2, 3]


def test_a_row_ahead_of_the_first_heading_is_one_heading_back(tmp_path: Path) -> None:
    lines = ["Mean training loss: 0.31.", "Training epoch: 86", "Mean training loss: 0.30.", "Training epoch: 87",
             "Mean training loss: 0.29."]  # fmt: skip
    assert read(written(tmp_path, lines)).series["Mean training loss"] == [(85, 0.31), (86, 0.30), (87, 0.29)]


def test_a_count_of_batches_is_no_part_of_a_name(tmp_path: Path) -> None:
    lines = [
        text
        for at in (4, 5, 6)
        for text in (f"Epoch: {at}", f"Mean training loss: 0.{at}", f"Mean test loss of 8 batches: 0.{at}1.")
    ]
    assert read(written(tmp_path, lines)).series["Mean test loss"] == [(4, 0.41), (5, 0.51), (6, 0.61)]


def test_a_list_in_a_table_is_the_parts_of_a_loss(tmp_path: Path) -> None:
    lines = ["Step      Train loss                Test loss", *(f"{at}      [{at}.5e-02, 1.25e+00]    [0.5, 0.25]    "
             for at in (1000, 2000, 3000))]  # fmt: skip
    reading = read(written(tmp_path, lines))
    assert reading.series["Train_loss_1"][0] == (1000, 10.005)
    assert [value for _, value in reading.series["Train_loss_2"]] == [1.25] * 3
    assert reading.series["Train_loss"] == [(1000, 11.255), (2000, 21.255), (3000, 31.255)]
    assert reading.series["Test_loss"][0] == (1000, 0.75)


def test_a_sum_of_parts_falls_though_one_of_them_rises(tmp_path: Path) -> None:
    lines = ["Step      Train loss                Test loss                 Test metric"]
    for at in range(40):
        falls = 0.8**at
        inner, outer = 0.02 if at == 0 else 90 * falls + 0.1, 7000 * falls + 0.01
        lines.append(f"{at * 500}      [{inner:.2e}, {outer:.2e}]    [{inner * 1.1:.2e}, 0.00e+00]    []  ")
    path = written(tmp_path, lines)
    series = read(path).series
    assert [series[name][0][1] for name in ("Train_loss", "Test_loss")] == [
        7000.02,
        7000.022,
    ]  # the other part is of the training
    assert not diagnose(barograph.read(path)[0])["findings"]


def test_counts_and_losses_in_other_scripts_are_read(tmp_path: Path) -> None:
    lines = [f"第{at}轮 训练损失: 2.{at} 验证损失: 2.{at + 1}" for at in (1, 2, 3)]
    reading = read(written(tmp_path, lines))
    assert reading.series["train loss"] == [(1, 2.1), (2, 2.2), (3, 2.3)]
    assert reading.series["val loss"] == [(1, 2.2), (2, 2.3), (3, 2.4)]


def test_a_training_loss_goes_before_a_part_of_it_with_another_word() -> None:
    assert main_loss(["Mean graph loss", "Mean training loss"]) == "Mean training loss"


def test_epochs_of_other_lengths_stand_behind_each_other(tmp_path: Path) -> None:
    lengths = (100, 100, 50, 200)
    lines = [
        f"Train Epoch: {epoch} Loss: 2.{batch:03}: [{batch}/{length}]"
        for epoch, length in enumerate(lengths, 1)
        for batch in (length // 2, length)
    ]
    steps = [step for step, _ in read(written(tmp_path, lines)).series["Loss"]]
    assert steps == [50, 100, 150, 200, 225, 250, 350, 450]


def test_a_step_beside_a_bar_of_its_length_is_of_an_epoch(tmp_path: Path) -> None:
    lines = [
        f"Training Epoch: {epoch}/2, step {at}/167 completed (loss: 2.{at}):  58%|# | {at + 1}/167 [00:31<01:10, 1s/it]"
        for epoch in (1, 2)
        for at in range(0, 167, 40)
    ]
    steps = [step for step, _ in read(written(tmp_path, lines)).series["loss"]]
    assert steps == [0, 40, 80, 120, 160, 167, 207, 247, 287, 327]


def test_a_value_a_line_has_the_name_beside_it(tmp_path: Path) -> None:
    lines = [
        f"[metric] step={at} name={name} value={value}"
        for at in range(1, 9)
        for name, value in (("lr", 3e-4), ("loss", 2 + at / 10), ("grad_norm", "nan" if at == 8 else 1.5))
    ]
    series = read(written(tmp_path, lines)).series
    assert series["loss"] == [(at, 2 + at / 10) for at in range(1, 9)]
    assert [step for step, _ in series["grad_norm"]] == [step for step, _ in series["lr"]] == list(range(1, 9))


def test_a_line_that_says_how_many_steps_counts_them_where_its_number_rises(tmp_path: Path) -> None:
    lines = [
        f"06/02/2025 07:1{at}:18 INFO     {what}"
        for at in range(6)
        for what in ("saved models", f"iterations: {29000 + at}", f"loss: 2.{9 - at}1")
    ]
    series = read(written(tmp_path, lines)).series["loss"]
    assert series == [(29000 + at, float(f"2.{9 - at}1")) for at in range(6)]


def test_a_line_that_says_once_how_many_steps_there_will_be_counts_nothing(tmp_path: Path) -> None:
    lines = ["epochs: 30", "iterations: 5000"] * 2 + [f"epoch {at} loss 2.{9 - at}" for at in range(1, 7)]
    reading = read(written(tmp_path, lines))
    assert [step for step, _ in reading.series["loss"]] == [1, 2, 3, 4, 5, 6] and reading.axes["loss"] == "epoch"


def test_a_number_ahead_that_several_processes_print_is_the_step_once_each(tmp_path: Path) -> None:
    lines = [
        f"I0102 03:00:05.{at}78901 {process} writer.py:35] [{at * 100}] train_loss={3 - at / 10:.2f}, rate={process}"
        for at in range(1, 7)
        for process in (140, 139, 141)
    ]
    reading = read(written(tmp_path, lines))
    steps = [step for step, _ in reading.series["train_loss"]]
    assert sorted(set(steps)) == [100, 200, 300, 400, 500, 600] and not reading.restarts


def test_an_epoch_ahead_of_several_rows_is_not_taken_for_their_step(tmp_path: Path) -> None:
    lines = [f"[{epoch}] loss={3 - epoch / 10 - at / 100:.2f}" for epoch in range(1, 7) for at in range(3)]
    steps = [step for step, _ in read(written(tmp_path, lines)).series["loss"]]
    assert steps == list(range(1, 19))


def test_a_fraction_in_brackets_ahead_of_both_losses_counts_for_the_line_below_too(tmp_path: Path) -> None:
    lines = [
        text
        for at in range(1, 6)
        for text in (f"[{at * 2000}/300000] Train loss: {3 - at / 10:.2f}, Valid loss: {3.1 - at / 10:.2f}, Took: 9.1",
                     f"Current_accuracy : {40 + at}.5, Current_norm  : 0.{at}")
    ]  # fmt: skip
    series = read(written(tmp_path, lines)).series
    for name in ("Train loss", "Valid loss", "Current_accuracy"):
        assert [step for step, _ in series[name]] == [2000, 4000, 6000, 8000, 10000]


def test_a_rate_of_each_device_ahead_of_the_learning_rate_is_no_part_of_its_name(tmp_path: Path) -> None:
    lines = [f"Train Epoch: 0 [{at * 32}/640 ({at * 5}%)] 99.1/s, 98.1/s/gpu LR: 0.00{at} Loss: 2.{9 - at}"
             for at in range(1, 6)]  # fmt: skip
    assert [value for _, value in read(written(tmp_path, lines)).series["LR"]] == [0.001, 0.002, 0.003, 0.004, 0.005]


def test_batches_that_are_headings_below_an_epochs_heading_count_on(tmp_path: Path) -> None:
    lines = ["Let's use 4 GPUs!"]
    for epoch in range(3):
        lines.append(f"**** EPOCH {epoch:03d} ****")
        for batch in (20, 40, 60):
            lines += [f" ---- batch: {batch:03d} ----", f"mean acc: 0.{5 + epoch}1", f"mean loss: {2.5 - epoch / 2}"]
    reading = read(written(tmp_path, lines))
    steps = [step for step, _ in reading.series["mean loss"]]
    assert steps == [20, 40, 60, 80, 100, 120, 140, 160, 180] and not reading.restarts


def test_a_count_out_of_all_is_a_count(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch/Epochs: {epoch}/9 | Iter: {batch}/800 | Disc Loss: {1 / (1 + epoch + batch):.4f}\n"
        for epoch in range(4)
        for batch in (0, 300, 600)
    )
    series = read(written(tmp_path, text.splitlines())).series
    assert [step for step, _ in series["Disc Loss"]][:4] == [0, 300, 600, 800]


def test_how_many_were_right_is_no_bar(tmp_path: Path) -> None:
    text = "".join(
        f"step {at * 50} / 900 (epoch {at}.00 / 18):\n  loss_average = {2 / at:.3f}\n"
        f"  validation accuracy: 0.6{at} ({at + 60} / 120), loss: {2.1 / at:.3f}\n"
        for at in range(1, 9)
    )
    series = read(written(tmp_path, text.splitlines())).series
    assert [step for step, _ in series["validation accuracy"]] == [at * 50 for at in range(1, 9)]
    assert len(series["val loss"]) == 8


def test_updates_in_all_count_and_not_those_since_the_last_row(tmp_path: Path) -> None:
    path, done, text = tmp_path / "agent.log", 0, ""
    for at, updates in enumerate((21, 19, 23, 20, 22, 18)):
        done += updates
        text += f"[ time:{at}.5s epochs:0.0{at} ] {{'exs': 9, 'mean_loss': {9 - at / 2}, 'updates': {updates}, "
        text += f"'lr': 2e-05, 'total_train_updates': {done}}}\n"
    path.write_text(text)
    reading = read(path)
    assert [step for step, _ in reading.series["mean_loss"]] == [21, 40, 63, 83, 105, 123] and not reading.restarts


def test_a_batch_of_an_epoch_in_an_object_counts_on_over_epochs(tmp_path: Path) -> None:
    path = tmp_path / "video.log"
    path.write_text(
        "".join(
            f'[05/06 07:08:09][INFO] logging.py:  99: json_stats: {{"_type": "train_iter", "epoch": "{epoch}/30", '
            f'"iter": "{batch}/70", "learning_rate": 0.01, "loss": {6 - epoch - batch / 100:.3f}}}\n'
            for epoch in (4, 5)
            for batch in (20, 40, 60)
        )
    )
    assert [step for step, _ in read(path).series["loss"]] == [20, 40, 60, 90, 110, 130]


def test_a_module_and_its_line_ahead_of_a_row_are_no_value(tmp_path: Path) -> None:
    path = tmp_path / "module.log"
    path.write_text(
        "".join(
            f"2031-02-03 04:05:{at} | INFO | box.core.run:253 - epoch: 2/9, iter: {at}/90, total_loss: {9 / at:.2f}\n"
            for at in range(10, 60, 10)
        )
    )
    assert [*read(path).series] == ["total_loss"]


@pytest.mark.parametrize(("off", "is_loss"), [(0.0, True), (0.5, False)])
def test_a_number_of_the_training_that_is_the_sum_of_others_is_a_loss(
    tmp_path: Path, off: float, is_loss: bool
) -> None:
    path = tmp_path / "vae.log"
    path.write_text("".join(
        f"Epoch {at}/9 | Train: {57 - at + off:.4f} (Recon: {52 - at:.4f}, KL: 5.0000) | Val: {58 - at:.4f}\n"
        for at in range(1, 6)
    ))  # fmt: skip
    assert main_loss(read(path).series) == ("Train loss" if is_loss else None)


def test_a_count_in_brackets_may_have_blanks_ahead(tmp_path: Path) -> None:
    rows = [
        f"  [{at:4d}] obj={300 / at:.2f}   act={900 - at}   err= 3.71%/25.41% time=0.23s/0.23s" for at in range(1, 12)
    ]
    reading = read(written(tmp_path, ["* Train the model with l-bfgs", *rows]))
    assert reading.series["obj"] == [(at, round(300 / at, 2)) for at in range(1, 12)]
    assert main_loss(reading.series) == "obj"


@pytest.mark.parametrize("mean", ["epoch {} loss: {}", "epoch {} loss metric {}"])
def test_steps_begin_anew_below_the_mean_of_an_epoch(tmp_path: Path, mean: str) -> None:
    rows = [
        row
        for epoch in (1, 2, 3)
        for row in [
            *(f"\tbatch training step {at} loss: {4 - epoch + at / 100}" for at in (5, 10, 15)),
            mean.format(epoch, f"{4.5 - epoch}"),
        ]
    ]
    reading = read(written(tmp_path, rows))
    assert [step for step, _ in reading.series["loss"]] == [5, 10, 15, 20, 25, 30, 35, 40, 45] and not reading.restarts
    assert reading.series["epoch loss"] == [(15, 3.5), (30, 2.5), (45, 1.5)]


@pytest.mark.parametrize(
    ("first", "epochs", "steps"),
    [
        ((280, 300), (6, 7), [280, 300, 301, 321, 341]),  # a file that begins in the middle of an epoch
        ((280, 300), (6, 6), [280, 300, 301, 321, 341]),  # the mean alone
        ((0, 20, 40), (1, 2), [0, 20, 40, 41, 61, 81]),
        ((280, 300), (6, 3), [0, 20, 40]),  # an epoch comes again: another launch
    ],
)
def test_counts_from_zero_begin_anew_between_the_means_of_an_epoch_and_the_words_of_the_next(
    tmp_path: Path, first: tuple[int, ...], epochs: tuple[int, int], steps: list[int]
) -> None:
    rows = [
        *(f"[12:00:0{nth}] part: {at}/308, iter: {at}, loss: 0.{9 - nth}" for nth, at in enumerate(first)),
        f"[12:00:07] Epoch: {epochs[0]}/9 --- lr: 0.0008, avg_loss: 0.85",
        *([f"[12:00:08] Training at epoch {epochs[1]} (total 9) with lr 0.0008"] if len(set(epochs)) > 1 else []),
        *(f"[12:00:1{nth}] part: {at}/308, iter: {at}, loss: 0.{6 - nth}" for nth, at in enumerate((0, 20, 40))),
        *(["[12:00:17] Epoch: 7/9 --- lr: 0.0008, avg_loss: 0.55"] if len(set(epochs)) == 1 else []),
    ]
    assert [step for step, _ in read(written(tmp_path, rows)).series["loss"]][-len(steps) :] == steps


def test_steps_that_go_on_below_the_mean_of_an_epoch_are_as_they_say(tmp_path: Path) -> None:
    rows = [
        row
        for epoch in (1, 2, 3)
        for row in [
            *(f"step {10 * epoch + at} loss: {4 - epoch + at / 100}" for at in (0, 3, 6)),
            f"epoch {epoch} loss: {4.5 - epoch}",
        ]
    ]
    series = read(written(tmp_path, rows)).series
    assert [step for step, _ in series["loss"]] == [10, 13, 16, 20, 23, 26, 30, 33, 36]


def test_several_things_that_are_trained_at_once_have_series_of_their_own(tmp_path: Path) -> None:
    lines = [
        f"Epoch {at}: head: {head}, loss= {value + at / 100:.4f}, gap= {at}.5 mm"
        for at in range(9)
        for head, value in (("plain", 0.2), ("wide", 0.7))
    ]
    series = read(written(tmp_path, lines)).series
    assert series["loss"] == [(at, round(0.2 + at / 100, 4)) for at in range(9)]
    assert series["wide loss"] == [(at, round(0.7 + at / 100, 4)) for at in range(9)]


def test_things_that_take_turns_are_one_training(tmp_path: Path) -> None:
    lines = [f"step {at}, task: {'abc'[at * 7 % 3]}-{at % 5}, loss: {1 + 4 / at:.4f}" for at in range(1, 30)]
    assert read(written(tmp_path, lines)).series["loss"] == [(at, round(1 + 4 / at, 4)) for at in range(1, 30)]


@pytest.mark.parametrize(("lines", "losses"), [
    (["Train Loss: 2.3 | Val Loss: 2.1", "Train Loss: nan | Val Loss: nan"], ["2.3", "nan"]),
    (["Train Loss: 2.3 | Val Loss: 2.1", "Train Loss: 2.2 | Val Loss: 2.0"], []),
    (["Train Loss: nan | Val Loss: nan"], []),  # it may be what stands there before the first
    (["begin: train loss: nan", *(f"Epoch {at} train loss: {at}.5" for at in (1, 2, 3))], ["1.5", "2.5", "3.5"]),
])  # fmt: skip
def test_two_rows_without_a_count_are_enough_where_one_says_nan(
    tmp_path: Path, lines: list[str], losses: list[str]
) -> None:
    series = read(written(tmp_path, lines)).series
    assert [f"{value}" for _, value in series.get("Train Loss", series.get("train loss", []))] == losses


@pytest.mark.parametrize("form", [
    "[R0] | E{e} iter[ {b}/ 20] | [Loss] {v:.2f} | [exp] ./runs/a_B40 | [step]  {s} | [best] 0",
    "iter {b}/20 | loss {v:.2f} | step {s}",
    "E{e} iter[ 19/ 20] loss: {v:.2f} step: {s}",  # the last one of each epoch alone
])  # fmt: skip
def test_a_step_behind_a_count_that_begins_anew_is_the_step(tmp_path: Path, form: str) -> None:
    lines = [form.format(e=at // 4, b=at % 4 * 5, s=at * 5, v=5 - at / 5) for at in range(12)]
    reading = read(written(tmp_path, lines))
    assert [series for name, series in reading.series.items() if name.lower() == "loss"] == [
        [(at * 5, 5 - at / 5) for at in range(12)]
    ]
    assert not reading.restarts


def test_a_step_behind_a_count_that_rises_is_something_else(tmp_path: Path) -> None:
    for behind in ("steps 400", "step {0}7"):
        lines = [f"step {at}/90 loss 2.{at} | {behind.format(at)}" for at in (5, 10, 15, 20)]
        assert read(written(tmp_path, lines)).series["loss"] == [(at, float(f"2.{at}")) for at in (5, 10, 15, 20)]


def test_rows_of_one_epoch_are_numbered_though_some_are_alike(tmp_path: Path) -> None:
    values = (0.41, 0.41, 0.4, 0.41, 0.41, 0.39, 0.41)
    lines = [f"Epoch 2 train Loc Loss: 0.21 Tot Loss: {value}" for value in values]
    assert [value for _, value in read(written(tmp_path, lines)).series["Tot Loss"]] == [*values]
    lines = [f"Epoch 2 loss: {value}" for value in (0.41, 0.41, 0.4, 0.4, 0.39, 0.39)]  # each of two processes'
    assert len(read(written(tmp_path, lines)).series["loss"]) < 4


def test_how_long_something_was_in_a_warning_is_no_step(tmp_path: Path) -> None:
    lines = [
        line
        for at in range(4)
        for line in (
            "x — WARNING — The path was cut off at 12 steps",
            f"x — INFO — Epoch: {at}",
            f"Mean loss: 0.{9 - at}",
        )
    ]
    reading = read(written(tmp_path, lines))
    assert reading.series["Mean loss"] == [(at, float(f"0.{9 - at}")) for at in range(4)]


def test_values_below_the_first_two_epochs_that_took_some_time_are_theirs(tmp_path: Path) -> None:
    lines = [
        line
        for at in (2, 90)
        for line in (f"Epoch {at} of 900 took 3.5s", f"  training loss:   0.{at}5", f"  validation loss: 0.{at}7")
    ]
    series = read(written(tmp_path, lines)).series
    assert series["training loss"] == [(2, 0.25), (90, 0.905)] and series["validation loss"][1] == (90, 0.907)


def test_parts_of_a_loss_in_a_dictionary_without_a_step_are_rows(tmp_path: Path) -> None:
    lines = [
        f"(trainer:88) INFO: {{'gen_loss': tensor([{7 - at}.1234], device='cuda:0'), 'adv_loss': tensor([0.5{at}21])}}"
        for at in range(6)
    ]
    assert [value for _, value in read(written(tmp_path, lines)).series["gen_loss"]] == [7.1234 - at for at in range(6)]
    weights = ["{'gen_loss': 0.5, 'adv_loss': 1.0}"] * 6  # how much each counts
    assert find(written(tmp_path, weights)) == []


@pytest.mark.parametrize(
    "name", ["avg loss in epoch =", "Average loss over the epoch:", "train loss for this epoch is"]
)
def test_a_loss_that_says_it_is_an_epochs_is_one(tmp_path: Path, name: str) -> None:
    lines = [line for at in range(1, 6) for line in (f"Iter: {at}", f"{name} {3 - at / 8}", "time per batch = 0.25")]
    (series,) = (series for name, series in read(written(tmp_path, lines)).series.items() if name.endswith("loss"))
    assert series == [(at, 3 - at / 8) for at in range(1, 6)]

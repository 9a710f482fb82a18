"""Rows in other words and other layouts are rows: other languages, objects, containers, parts of losses, tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.core.roles import plays
from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of


def written(folder: Path, text: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rows(form: str, count: int = 12) -> str:
    """Rows of a form: {e} counts, {v} falls, {w} is above it."""
    values = [(at, f"{2 + 8 / at:.4f}", f"{2.5 + 8 / at:.4f}") for at in range(1, count + 1)]
    return "".join(form.format(e=at, v=value, w=other) for at, value, other in values)


LOSS = [(at, float(f"{2 + 8 / at:.4f}")) for at in range(1, 13)]
HELD_OUT = [(at, float(f"{2.5 + 8 / at:.4f}")) for at in range(1, 13)]


@pytest.mark.parametrize("text", ["Paso 3: instale el programa, 2 archivos\n" * 9, "der Verlust von 3 Paketen\n" * 9])
def test_words_of_other_languages_alone_are_no_rows(tmp_path: Path, text: str) -> None:
    assert find(written(tmp_path, text)) == []


@pytest.mark.parametrize("break_", ["\n", "\r\n"])
@pytest.mark.parametrize("as_json", [True, False])
def test_objects_over_several_lines_are_rows(tmp_path: Path, as_json: bool, break_: str) -> None:
    form = '{{\n  "lr": 0.1,\n  "loss": {v},\n  "step": {e}\n}}\n' if as_json else "{{'step': {e},\n 'loss': {v}}}\n"
    path = tmp_path / "train.log"
    path.write_bytes(("using 2 devices\n" + rows(form)).replace("\n", break_).encode())
    assert read(path).series["loss"] == LOSS


def test_settings_over_several_lines_are_no_rows(tmp_path: Path) -> None:
    text = '{\n  "steps": 100,\n  "loss_weight": 0.5,\n  "lr": 0.1\n}\n' * 3
    assert find(written(tmp_path, text)) == []


def test_an_object_that_is_not_whole_waits_for_its_end(tmp_path: Path) -> None:
    whole = rows('{{\n  "loss": {v},\n  "step": {e}\n}}\n')
    path = written(tmp_path, whole[: whole.rindex('  "step"')])
    first = read(path)
    assert first.series["loss"] == LOSS[:-1]
    path.write_text(whole)
    assert read(path, since=first.mark).series["loss"] == LOSS[-1:]


def test_what_a_container_printed_is_read_as_it_was_printed(tmp_path: Path) -> None:
    printed = rows('{{\n "größe": 1,\n "loss": {v},\n "step": {e}\n}}\n').splitlines(keepends=True)
    lines = [json.dumps({"log": line, "stream": "stdout", "time": "2025-01-01T10:00:00Z"}) for line in printed]
    assert read(written(tmp_path, "\n".join(lines) + "\n")).series["loss"] == LOSS


def test_values_that_are_objects_of_their_own_have_the_name_that_they_say(tmp_path: Path) -> None:
    form = 'M {{"name": "train loss", "value": {v}, "step": {e}}}\nM {{"name": "lr", "value": 1, "step": {e}}}\n'
    assert read(written(tmp_path, rows(form))).series["train loss"] == LOSS


@pytest.mark.parametrize(
    ("form", "axis"),
    [
        ("tokens {e},000 / 90,000 | loss {v}\n", "tokens"),
        ("seen {e}000 examples, loss {v}\n", "samples"),
        ("[rank0]: samples={e}000 loss={v}\n[rank1]: samples={e}000 loss={v}\n", "samples"),
    ],
)
def test_where_nothing_else_counts_what_was_seen_does(tmp_path: Path, form: str, axis: str) -> None:
    reading = read(written(tmp_path, rows(form)))
    (name,) = reading.series
    assert reading.series[name] == [(1000 * at, value) for at, value in LOSS]
    assert reading.axes[name] == axis


def test_tokens_that_stay_the_same_count_nothing(tmp_path: Path) -> None:
    reading = read(written(tmp_path, rows("tokens 4096 | loss {v}\n")))
    assert reading.series["loss"] == LOSS
    assert reading.axes["loss"] == "row"


@pytest.mark.parametrize("tag", ["[GPU{r}] ", "worker{r}: "])
def test_of_several_workers_the_lowest_one_is_read(tmp_path: Path, tag: str) -> None:
    text = "".join(
        f"{tag.format(r=rank)}step {step} loss {3 - step / 10 + rank:.3f}\n"
        for step in range(1, 9)
        for rank in ((1, 0) if step % 2 else (0, 1))
    )
    assert read(written(tmp_path, text)).series["loss"] == [(step, round(3 - step / 10, 3)) for step in range(1, 9)]


@pytest.mark.parametrize(
    "form",
    [
        "train loss: {v}\nval loss: {w}\nEpoch {e} finished\n",
        "train loss: {v}\nval loss: {w}\nepoch {e}/12 took 12.1 s\n",
        "train loss: {v}\nval loss: {w}\n=== Epoch {e} ===\n",
        "Epoch {e}\ntrain loss: {v}\nval loss: {w}\n",
        "Epoch {e}\ntrain loss: {v}\nEpoch {e} took 12.1 s\nval loss: {w}\n",
    ],
)
def test_epochs_stand_above_their_values_or_below_them(tmp_path: Path, form: str) -> None:
    reading = read(written(tmp_path, "loading\n" + rows(form)))
    assert reading.series["train loss"] == LOSS
    assert reading.series["val loss"] == HELD_OUT


def test_parts_of_a_loss_in_a_list_are_series_that_nobody_judges(tmp_path: Path) -> None:
    path = written(tmp_path, rows("Epoch {e}\ntrain losses: [{v}, 0.5, 0.25]\n"))
    reading = read(path)
    assert reading.series["train losses_1"] == LOSS
    assert {name for name in reading.series} == {"train losses_1", "train losses_2", "train losses_3"}
    assert diagnose(runs_of(path)[0])["judged_by"] is None


def test_numbers_without_a_name_are_counted_and_shown(tmp_path: Path) -> None:
    path = written(tmp_path, rows("INFO\tTrain Epoch: {e} [0%]\nINFO\t[{v}, 0.5, 0.25, 200, 0.0001]\n"))
    with pytest.raises(ValueError, match=r"12 lines hold numbers without a name, the first one is line 2: \[10\.0"):
        runs_of(path)


def test_an_agent_is_judged_by_its_reward_and_not_by_the_parts_of_its_loss(tmp_path: Path) -> None:
    block = (
        "      Learning iteration {e}/1500\n\n     Value function loss: {w}\n          Surrogate loss: -0.00{e}\n"
        "             Mean reward: {v}\n     Mean episode length: 20.5\n"
    )
    path = written(tmp_path, rows(block))
    assert read(path).series["Mean reward"] == LOSS
    assert diagnose(runs_of(path)[0])["judged_by"] == "Mean reward"


@pytest.mark.parametrize("before", ["", "[10:00:01] ", "10:00:01.001 INFO  ", "(Worker pid=9, ip=10.0.0.9) 10:00:01 "])
@pytest.mark.parametrize("noise", ["", "checkpoint every 500 steps\n"])
def test_rounds_behind_a_loggers_words_are_counted(tmp_path: Path, before: str, noise: str) -> None:
    form = before + "[{e}]\ttrain-logloss:{v}\teval-logloss:{w}\n" + noise
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["train-logloss"] == LOSS
    assert reading.axes["train-logloss"] == "step"


def test_a_table_of_one_row_is_read(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "epoch | train loss | val loss\n----- | ----- | -----\n  1 | 0.51 | 0.61\n"))
    assert reading.series == {"train_loss": [(1, 0.51)], "val_loss": [(1, 0.61)]}


def test_rows_of_numbers_are_yolos_only_if_their_sum_is_one(tmp_path: Path) -> None:
    row = "{at}/9  3.5G  0.1  0.05  0.02  {total}  80  640  0.1  0.2  0.3  0.4  0.07  0.05  0.01\n"
    for total, kinds in ((0.17, ["yolo_results"]), (0.18, [])):
        path = written(tmp_path, "".join(row.format(at=at, total=total) for at in range(10)), f"{total}.txt")
        assert [source.kind for source, _ in find(path)] == kinds


def test_bars_behind_a_count_of_epochs_follow_each_other(tmp_path: Path) -> None:
    form = "[{e}/12] Loss_D: {v} Loss_G: 0.5: 100%|#####| 250/250 [01:10<00:00,  3.5it/s]\n[images] PSNR: 20.1\n"
    assert read(written(tmp_path, rows(form))).series["Loss_D"] == [(250 * at, value) for at, value in LOSS]


def test_of_two_rows_below_each_heading_the_first_one_is_read(tmp_path: Path) -> None:
    form = "Epoch 1 Batch {e}\nBefore: Generator loss {v} Critic loss 0.5\nAfter: Generator loss {w} Critic loss 0.4\n"
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["Generator loss"] == LOSS
    assert {value for _, value in reading.series["Critic loss"]} == {0.5}


RESULT = """Result for PPO_Pole_1:
  custom_metrics: {{}}
  date: 2025-01-01_10-00-00
  episode_reward_mean: {v}
  episodes_total: 175
  info:
    learner:
      default_policy:
        cur_lr: 5.0e-05
        policy_loss: -0.03
        total_loss: {w}
        vf_loss: 8.5
  iterations_since_restore: 1
  pid: 4711
  timesteps_total: 4{e}000
  training_iteration: {e}

"""


@pytest.mark.parametrize("indented", [True, False])
def test_results_of_an_agents_iterations_are_rows(tmp_path: Path, indented: bool) -> None:
    text = RESULT if indented else "\n".join(line[2:] for line in RESULT.split("\n")[1:])
    path = written(tmp_path, rows(text))
    reading = read(path)
    assert reading.series["episode_reward_mean"] == LOSS
    assert reading.series["total_loss"] == HELD_OUT
    assert not {"pid", "iterations_since_restore"} & set(reading.series)
    assert not reading.unread
    assert diagnose(runs_of(path)[0])["judged_by"] == "episode_reward_mean"


def test_a_tests_heading_moves_no_step(tmp_path: Path) -> None:
    lines = [
        f"Training Epoch={epoch} Step={step} Loss={3 - epoch / 2 - step / 100:.2f}\n"
        + (f"Test Step=0 Epoch={epoch} Time=10:00:00\n" if step == 40 else "")
        for epoch in (1, 2, 3)
        for step in (0, 20, 40)
    ]
    reading = read(written(tmp_path, "".join(lines)))
    assert [step for step, _ in reading.series["Loss"]] == [0, 20, 40, 41, 61, 81, 82, 102, 122]
    assert not reading.restarts


def test_a_sentence_of_several_ranks_is_read_once(tmp_path: Path) -> None:
    form = "".join(f"[rank{rank}]: At step {{e}} the focal_loss was {{v}}, with a rate of 3e-4.\n" for rank in range(3))
    (series,) = [points for name, points in read(written(tmp_path, rows(form))).series.items() if "loss" in name]
    assert series == LOSS


def test_a_line_about_what_is_to_come_says_no_step(tmp_path: Path) -> None:
    form = "(next test at 1200 iterations)\n {e}: 9.5, {v} avg loss, 0.01 rate, 1.4 seconds, 75 images\n"
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["avg loss"] == LOSS
    assert reading.axes["avg loss"] == "step"


def test_a_step_and_a_rate_without_names_below_an_epochs_share_count(tmp_path: Path) -> None:
    form = "INFO:x:Train Epoch: 9 [20%]\nINFO:x:[{e}00, 9.9e-05]\nINFO:x:loss_disc={v}, loss_mel={w}\n"
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["loss_disc"] == [(100 * at, value) for at, value in LOSS]
    assert reading.series["lr"] == [(100 * at, 9.9e-05) for at, _ in LOSS]


def test_dictionaries_that_say_a_runtime_are_rows_of_training(tmp_path: Path) -> None:
    form = (
        "{{'loss': '{v}', 'learning_rate': '0.1', 'epoch': '0.{e}', 'train_runtime': '110.7'}}\n"
        " 60%|######    | {e}/30 [01:50<00:19,  1.65s/it]\n"
    )
    path = written(tmp_path, rows(form))
    assert [source.kind for source, _ in find(path)] == ["hf_printed"]
    assert read(path).series["loss"] == LOSS


@pytest.mark.parametrize(
    ("form", "planned"), [("step {e}/40 loss {v}\n", 40), ("Epoch 1 ; step {e}/40 loss {v}\n", None)]
)
def test_the_length_of_an_epoch_is_no_plan(tmp_path: Path, form: str, planned: int | None) -> None:
    reading = read(written(tmp_path, rows(form)))
    assert [fact.fields.get("value") for fact in reading.facts] == ([planned] if planned else [])


def test_the_total_of_a_detectors_parts_is_its_loss(tmp_path: Path) -> None:
    heading = "     Epoch   gpu_mem       box       obj       cls     total   targets\n"
    form = heading + "     {e}/12    0.868G   0.06393   0.01588  0.009617   {v}        36: 100%|#| 21/21 [00:48<00:\n"
    assert read(written(tmp_path, rows(form))).series["total_loss"] == LOSS


def test_values_of_a_library_behind_a_call_are_numbers(tmp_path: Path) -> None:
    reading = read(written(tmp_path, rows("loss(x, y) = param({v})\naccuracy(m, x, label, 0.0:9) = 0.5\n")))
    assert reading.series["loss"] == LOSS
    assert set(reading.series) == {"loss", "accuracy"}


@pytest.mark.parametrize("before", ["", "2025-01-01T10:00:00.1Z stdout F "])
def test_epochs_of_keras_behind_a_loggers_words_begin_anew(tmp_path: Path, before: str) -> None:
    form = before + "Epoch {e}/12\n" + before + "32/32 - 5s - 150ms/step - loss: {v} - val_loss: {w}\n"
    reading = read(written(tmp_path, rows(form) * 2))
    assert reading.series["loss"] == LOSS * 2
    assert len(reading.restarts) == 1


@pytest.mark.parametrize("kind", ["binary", "categorical", "sparse_categorical"])
@pytest.mark.parametrize("beside", ["", " - accuracy: 0.5"])
def test_accuracies_by_kerass_longer_names_are_accuracies(tmp_path: Path, kind: str, beside: str) -> None:
    form = "Epoch {e}/12\n32/32 - 5s - loss: {v}" + beside + f" - {kind}_accuracy: 0.6 - val_{kind}_accuracy: 0.7\n"
    run = runs_of(written(tmp_path, rows(form)))[0]
    assert set(run.series("eval/accuracy").value) == {0.7}
    assert set(run.series("train/accuracy").value) == {0.5 if beside else 0.6}


HEADINGS = {
    "as MATLAB prints them": (
        "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |  Base Learning  |",
        "|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |      Rate       |",
        "|       1 | {e:>11} |       00:00:04 |       71.88% | {v:>12} |          0.0100 |",
    ),
    "of three columns": (
        "|  Step  |  Training  |  Learning  |",
        "|        |  Loss      |  Rate      |",
        "| {e:>6} | {v:>10} |     0.0100 |",
    ),
}


@pytest.mark.parametrize("kind", HEADINGS)
@pytest.mark.parametrize("rule", ["=", "-"])
def test_a_heading_of_two_lines_is_one(tmp_path: Path, kind: str, rule: str) -> None:
    first, second, row = HEADINGS[kind]
    line = f"|{rule * (len(first) - 2)}|\n"
    text = f"Training on single CPU.\n{line}{first}\n{second}\n{line}{rows(row + chr(10))}{line}Training finished.\n"
    series = read(written(tmp_path, text)).series
    (loss,) = (name for name in series if "oss" in name)
    assert plays("loss", loss) and series[loss] == LOSS


def test_a_clouds_objects_around_printed_lines_are_taken_off(tmp_path: Path) -> None:
    printed = ["using device cuda:0", *rows("step {e}: loss {v} lr 3.0e-04\n").splitlines()]
    objects = [
        json.dumps({"insertId": f"a{at:04}", "severity": "INFO", "textPayload": line, "timestamp": "2025-10-02T12:00"})
        for at, line in enumerate(printed)
    ]
    assert LOSS in read(written(tmp_path, "\n".join(objects) + "\n")).series.values()


def test_objects_that_hold_numbers_beside_a_text_are_rows_themselves(tmp_path: Path) -> None:
    text = rows('{{"message": "step done", "step": {e}, "loss": {v}}}\n')
    assert LOSS in read(written(tmp_path, text, "train.jsonl")).series.values()


@pytest.mark.parametrize(("form", "name"), [
    ("step {e} losses: {{'recon': {v}, 'kl': {w}}}\n", "recon_loss"),
    ("step: {e}/12, [('loss', {v}), ('acc', 0.4)], {{'data_load': '0.1'}}\n", "loss"),
    ("step:[ {e}/ 12], loss:[{v}/{w}], lr:1e-05\n", "loss"),
    ("INFO: fit progress: ({e}, {v}, {{'accuracy': 0.5}}, 12.3)\n", "loss"),
])  # fmt: skip
def test_printed_objects_are_names_with_values(tmp_path: Path, form: str, name: str) -> None:
    assert read(written(tmp_path, rows(form))).series[name] == LOSS


def test_a_bars_counts_in_thousands_are_steps(tmp_path: Path) -> None:
    counts = [("940.0it", 940), ("980.0it", 980), ("1.01kit", 1010), ("1.05kit", 1050), ("1.11kit", 1110)]
    text = "".join(
        f"Progress on:train {said}/10.0kit rate:1.2it/s elapsed:00:05 postfix:loss=2.5\n" for said, _ in counts
    )
    assert read(written(tmp_path, text)).series["loss"] == [(step, 2.5) for _, step in counts]


def test_a_total_alone_behind_an_epoch_and_its_batch_is_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"[epoch: 3/20, iter: {at}/90] total: 1.{at}1234 \n" for at in (0, 30, 60)))
    assert [step for step, _ in read(path).series["total_loss"]] == [0, 30, 60]


def test_the_best_so_far_and_settings_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = "".join(f"[Fold 1 Ep {at:03d}] tr_loss=0.{9 - at}1 | val_auc=0.5{at}\n" for at in range(1, 7))
    path.write_text(f"Batch: 4, LR: 0.0002, Epochs: 70\nID_LOSS_WEIGHT : 0.25\n{rows}done: best_AUC=0.56 epoch=4\n")
    reading = read(path)
    assert set(reading.series) == {"tr_loss", "val_auc"} and not reading.restarts and not reading.unread


def test_words_ahead_of_a_measure_are_no_part_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = (
        f"epoch {at}: loss: 0.{9 - at}\nThe result with SGD is test acc: 7{at}.5%, loss: 0.8\n" for at in range(1, 6)
    )
    path.write_text("".join(lines))
    assert [value for _, value in read(path).series["test acc"]] == [71.5, 72.5, 73.5, 74.5, 75.5]


def test_an_epoch_and_an_iteration_with_one_name_are_two_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"epoch/iter: {5 + at // 3}/{1000 + 50 * at}  total_loss: 7.{90 - at}\n" for at in range(6))
    )
    assert [step for step, _ in read(path).series["total_loss"]] == [1000 + 50 * at for at in range(6)]


def test_what_matlab_makes_small_is_the_loss(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"Epoch {25 * at}/1000, Time 1.{at}, Performance 0.{90 - at}/1e-12, Gradient 1.{at}/1e-06, "
            f"Validation Checks {at}/500\n"
            for at in range(6)
        )
    )
    series = read(path).series
    assert series["loss"] == [(25 * at, (90 - at) / 100) for at in range(6)]
    assert series["grad_norm"] == [(25 * at, 1 + at / 10) for at in range(6)]


def test_the_square_of_r_is_a_score(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"epoch {at}/9 - train loss: 0.{90 - at}, validation R\u00b2: 0.{at + 1}\n" for at in range(6))
    )
    assert read(path).series["validation r2"] == [(at, (at + 1) / 10) for at in range(6)]


@pytest.mark.parametrize("arrow", ["  ===>", " ->", ":"])
def test_names_of_which_the_first_says_the_data_stand_ahead_of_their_values(tmp_path: Path, arrow: str) -> None:
    path = tmp_path / "train.log"
    line = "12:00 - a.py - main ::: {}, round, loss, acc{} {:03d}, {:.5f}, 0.41,\n"
    path.write_text(
        "".join(
            line.format(data, arrow, at, 2 / at + less)
            for at in range(1, 9)
            for data, less in (("train", 0), ("val", 1))
        )
    )
    series = read(path).series
    assert series["loss"] == [(at, round(2 / at, 5)) for at in range(1, 9)]
    assert series["val loss"] == [(at, round(2 / at + 1, 5)) for at in range(1, 9)]


def test_parts_of_a_loss_in_brackets_are_losses(tmp_path: Path) -> None:
    series = read(
        written(tmp_path, rows("Epoch: [1]  [{e}/12]  lr: 0.01  mask_loss: [last: {v} | mean: {w}]  t: 1\n"))
    ).series
    assert series["mask_last_loss"] == LOSS and series["mask_mean_loss"] == HELD_OUT


@pytest.mark.parametrize("marks", [">", "=", "#"])
def test_a_count_behind_a_drawn_bar_is_the_step(tmp_path: Path, marks: str) -> None:
    text = "".join(f"Training [{marks * at:20s}] {50 * at + 7}/9000, loss_G={v:.4f}, lr=1e-4  1.5 step/sec\n"
                   for at, v in LOSS)  # fmt: skip
    assert read(written(tmp_path, text)).series["loss_G"] == [(50 * at + 7, v) for at, v in LOSS]
    broken = "Training [>>        ] 250/9000, loss=nan, lr=1e-4\nTraining [>>>       ] 300/9000, loss=nan, lr=1e-4\n"
    assert [step for step, _ in read(written(tmp_path, broken, "b.log")).series["loss"]] == [250, 300]

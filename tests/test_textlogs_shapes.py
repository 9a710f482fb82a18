"""Shapes of lines as people paste them: each loss is read at its step, under a name that the rules know."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import pytest
from textlog_readings import collect, find, read

import barograph
from barograph.core.roles import candidates
from barograph.doctor import diagnose
from barograph.importing.textlogs.stanzas import SOURCE as stanzas

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))

import dialects

STEPS = range(3, 60, 2)


def values(steps: range = STEPS) -> list[tuple[int, str]]:
    return [(step, f"{6 - step / 20:.3f}") for step in steps]


def write(folder: Path, text: str, name: str = "small.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "form",
    [
        "Ep. 2 : Up. {s} : Sen. 1,024,{s:03d} : Cost {v} : Time 1.2s : 310.5 words/s\n",
        "E. 1 | Upd. {s} | cost = {v}\n",
        "[{s}]\tholdout-logloss:0.9\ttrain-logloss:{v}\n",
        "({s}) loss {v}\n",
        "10:00:00 - engine - INFO - ({s}/400) | took=0.2s | loss={v}\n",
        "[11/01 10:00:00 events]: [{s}] | took= 0.2s | total cost= {v}\n",
        "[{s}]\ttraining's ce_loss: {v}\tvalid_0's ce_loss: 9.5\n",
        "{s}/400 [==>......] - ETA: 3:02 - loss: {v} - accuracy: 0.31\n",
        " {s}/400 ━━━━━━━━━━━━ 2:01 31ms/step - acc: 0.3 - loss: {v}\n",
        " {s}: {v}, {v} avg loss, 0.001 rate, 2.0 seconds\n",
        "{s}: 9.1 seconds, {v} mean loss, 0.001 learning rate\n",
        "计数：{s}, Loss：{v}\n",
        "第{s}步 step：{s}，loss：{v}\n",
        "s={s} loss={v} lr=0.1\n",
        "u={s} grad=1.5 loss={v}\n",
        "epoch 1 step {s} batch 7/9 loss {v}\n",
        "Step {s}: loss (running): {v}, val (last): None\n",
        "iter {s} | loss train: {v}, val: n/a | iter time: 20.1 ms\n",
        "12/08 10:00:00 [loop.py:77] iter {s}, loss: [{v}]\n",
        "[run.cpp:{s}] iteration {s} (2.1 iter/s, 20s/50 iter), loss = {v}\n",
        "Epoch 1:  97% {s}/400 [10:00<00:24,  2.1it/s, loss={v}, v_num=3]\n",
        "Train Iteration: {s} Step Time: 1.2 Loss: {v}\n",
        "done step: {s}, seconds: 1.5, loss: {v}\n",
        "step {s} 8.25/s LR: 0.1 objective: {v}\n",
        "Batch={s} samples=25600 AvgCost={v} Eval: error=0.8 tok_error=6.2\n",
        "[train] Epoch[0] Batch [{s}]  Speed: 18.5 samples/sec  loss=**{v}**\n",
        "   --> STEP: 7/60 -- GLOBAL_STEP: {s}\n     | > loss: {v}  (9.5)\n     | > lr: 0.1 \n",
        "steps:  38%|###   | {s}/400 [13:09<21:55, 21.9s/it, avr_loss={v}]INFO:data:epoch is incremented. epoch: 7\n",
        "epoch: {s}, iter: 7k, loss: {v}\n",
        "*** Epoch 3, global step {s}: ***     Train loss: {v}\ntime per step = 0:00:0.230\n",
        "global step {s}, loss: {v}\nms per step: 23\n",
        "s: {s} the_objective_is_below\nstep {s}: objective was {v}\n",
    ],
)
def test_each_row_is_read_at_its_step(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, "".join(form.format(s=s, v=v) for s, v in values()))
    assert dialects.problem_of(path, values()) == ""


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("epoch     train_loss  valid_loss  error_rate  time\n", "{s}         {v}    9.5    0.2900    00:12\n"),
        ("Itn.  Dep Loss  NER Loss  Tag %   CPU WPS\n", "{s}     {v}     9.5   88.0   349.7\n"),
        ("E    #       LOSS NER  ENTS_F  SCORE\n---  ------  --------  ------  ------\n",
         "  1   {s}      {v}   12.50    0.12\n"),
        (" Epoch   gpu_mem       box       obj       cls    labels\n",
         "      {s}/99     2.64G         {v}    9.1   9.2   4: 100%|████| 7/7 [00:15<00:00,  2.27s/it]\n"),
        ("[PC] (run:7) INFO: It.   valid's cost   train's cost\n", "[PC] (run:7) INFO: {s}    [9.512]    [{v}]\n"),
        ("| Round | train objective | took |\n|---|---|---|\n", "| {s} | {v} | 1:02:03 |\n"),
    ],
)  # fmt: skip
def test_tables_with_times_sizes_and_short_names(tmp_path: Path, heading: str, row: str) -> None:
    path = write(tmp_path, heading + "".join(row.format(s=s, v=v) for s, v in values()))
    _, _, rows = dialects.rows_read(path)
    assert rows == [(s, pytest.approx(float(v))) for s, v in values()]


def test_two_numbers_ahead_of_a_row_are_its_epoch_and_its_batch(tmp_path: Path) -> None:
    text = "".join(f"{epoch} {batch} Loss=2.{batch}\n" for epoch in (1, 2) for batch in range(1, 5))
    assert [step for step, _ in read(write(tmp_path, text)).series["Loss"]] == list(range(1, 9))


def test_a_row_that_is_drawn_again_counts_once_its_bar_is_full(tmp_path: Path) -> None:
    text = " Epoch  gpu_mem  box_loss  cls_loss\n"
    for epoch in range(1, 9):
        for done in (1, 4, 7):
            text += f"  {epoch}/8  2.1G  {9 - epoch - done / 100:.3f}  0.5: {done * 14}%|##| {done}/7 [00:01<00:02]\n"
    series = read(write(tmp_path, text)).series
    assert series["box_loss"] == [(epoch, pytest.approx(9 - epoch - 0.07)) for epoch in range(1, 9)]


def test_states_of_a_bar_beside_whole_epochs_are_no_rows(tmp_path: Path) -> None:
    text = ""
    for epoch in range(1, 9):
        text += f"Epoch {epoch}/8\n"
        text += "".join(f" {at}/50 [=>....] - ETA: 3s - loss: {7 - epoch / 9:.3f}\n" for at in range(1, 50, 7))
        text += f"50/50 [======] - 9s 7ms/step - loss: {6 - epoch / 9:.3f} - val_loss: 6.5\n"
    series = read(write(tmp_path, text)).series
    assert series["loss"] == [(epoch, pytest.approx(6 - epoch / 9, abs=1e-3)) for epoch in range(1, 9)]


@pytest.mark.parametrize("form", ["Epoch {e} complete [{p}%]    Loss: {v}\n", "{p}% of epoch {e}: train loss {v}\n"])
def test_rows_by_percentage_of_an_epoch_are_all_read(tmp_path: Path, form: str) -> None:
    rows = [(epoch, share, 5 - epoch - share / 200) for epoch in (1, 2) for share in range(0, 100, 10)]
    path = write(tmp_path, "".join(form.format(e=epoch, p=share, v=f"{loss:.3f}") for epoch, share, loss in rows))
    reading = read(path)
    (name,) = (name for name in reading.series if name.lower().endswith("loss"))
    assert [loss for _, loss in reading.series[name]] == pytest.approx([loss for _, _, loss in rows])
    assert reading.axes[name] == "row"


@pytest.mark.parametrize("form", ["{e}epoch:train:{a}-{b}batch: time=0.1, loss={v}, lr_0=0.1\n",
                                  "{e}epoch:train:{b}batch: loss={v}\n"])  # fmt: skip
def test_counts_with_their_unit_behind_them(tmp_path: Path, form: str) -> None:
    text = "".join(form.format(e=1, a=at * 50 + 1, b=at * 50 + 50, v=5 - at / 10) for at in range(20))
    assert read(write(tmp_path, text)).series["loss"] == [(at * 50 + 50, 5 - at / 10) for at in range(20)]


@pytest.mark.parametrize("between", [", {b}/900; acc: 4.1; xent: {v}; 310 tok/s\n", "; {b}/900; xent: {v}\n"])
def test_an_epoch_and_its_batch_behind_a_mark(tmp_path: Path, between: str) -> None:
    text = "".join(f"Epoch  1{between.format(b=batch, v=9 - batch / 300)}" for batch in range(50, 900, 50))
    assert [step for step, _ in read(write(tmp_path, text)).series["xent"]] == list(range(50, 900, 50))


@pytest.mark.parametrize(
    ("text", "step"),
    [("iter 3198: total loss nan, time: 134ms\n", 3198), ("Steps:   0%|   | 0/3000 [00:07<?, ?it/s, loss=nan]\n", 0)],
)
def test_a_file_of_one_row_is_read(tmp_path: Path, text: str, step: int) -> None:
    reading = read(write(tmp_path, f"some words first\n{text}and some behind\n"))
    assert [at for name, points in reading.series.items() if "loss" in name for at, _ in points] == [step]
    assert find(write(tmp_path, text, "README.md")) == []


def test_means_of_an_epoch_are_another_series(tmp_path: Path) -> None:
    text = ""
    for epoch in range(1, 9):
        text += f"Epoch {epoch}: 100%|####| 90/90 [00:30<00:00, 3.1it/s, Loss: {5 - epoch / 9:.3f}]\n"
        text += f"Epoch [{epoch}/8] Loss: {6 - epoch / 9:.3f}\n"
    series = read(write(tmp_path, text)).series
    assert series["Loss"] == [(90 * epoch, pytest.approx(5 - epoch / 9, abs=1e-3)) for epoch in range(1, 9)]
    assert len(series["epoch Loss"]) == 8


def test_the_same_said_twice_is_read_once(tmp_path: Path) -> None:
    text = "".join(
        f"Iteration {at} (2 iter/s), loss = {5 - at / 50:.2f}\n    net output #0: loss = {5 - at / 50:.2f}\n"
        for at in range(0, 100, 5)
    )
    reading = read(write(tmp_path, text))
    assert [step for step, _ in reading.series["loss"]] == list(range(0, 100, 5)) and reading.unread == []


def test_a_loss_below_counted_lines_is_placed_or_counted(tmp_path: Path) -> None:
    text = ""
    for at in range(1, 9):
        text += f"iteration {at}/900\n" + "".join(f"  epoch {inner}/4\n" for inner in range(1, 5))
        text += f"  reward_per_s=0.1, loss={5 - at / 9:.3f}, entropy=7.1\n"
    assert [step for step, _ in read(write(tmp_path, text)).series["loss"]] == list(range(1, 9))


@pytest.mark.parametrize(
    "text",
    [
        "see model.py:51) and loop.py line:78] of step 3\nsee model.py:52) of step 4\n",
        "worker 3/8 [====] ready\nworker 4/8 [====] ready\n",
        "It costs 5 a step.\nThe cost was 7.\n2: apples, 3 pears\n",
        "1: read the loss curve\n2: lower the rate to 0.1\n3: go on\n",
    ],
)
def test_places_and_words_are_no_rows(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text * 6)
    assert find(path) == [] or not read(path).series


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["loss_cls", "loss_box", "total_loss"], "total_loss"),
        (["ibot_loss", "koleo_loss", "overall loss"], "overall loss"),
        (["loss_scale", "Loss content", "loss_max"], "Loss content"),
        (["loss_disc", "loss_kl", "loss_weight"], "loss_disc"),
        (["data_cost", "Time cost", "Cost"], "Cost"),
        (["loss/ce", "holdout_loss"], "loss/ce"),
    ],
)
def test_the_whole_stands_before_its_parts(names: list[str], chosen: str) -> None:
    assert candidates("loss", {name: [1] * 9 for name in names})[:1] == [chosen]


@pytest.mark.parametrize("said", ["total_loss: {v}  part_loss: 2.5", "loss_a: 0.5 loss_all: 2.5 total loss: {v}"])
def test_a_total_that_is_not_finite_is_found(tmp_path: Path, said: str) -> None:
    text = "".join(f"Training [ {at}/900] {said.format(v='inf' if at > 40 else 12.1)}\n" for at in range(10, 70))
    result = diagnose(barograph.read(write(tmp_path, text))[0])
    assert result["findings"][0]["rule"] == "non_finite_loss" and result["findings"][0]["step"] == 41


@pytest.mark.parametrize(
    "said",
    ["ERROR:trainer:Model diverged with loss = NaN.", "Loss is nan, stopping training", "Batch 3: Invalid loss, end"],
)
def test_a_loss_that_words_call_nan_is_said(tmp_path: Path, said: str) -> None:
    rows = "".join(f"step {at}: loss = {3 - at / 50:.2f}\n" for at in range(20))
    reading = read(write(tmp_path, f"{rows}{said}\n"))
    assert [fact.fields["line"] for fact in reading.facts if said in str(fact.fields)] == [21]
    assert all(len(points) == 20 for points in reading.series.values())


def test_a_row_printed_behind_a_bar_that_goes_on_is_read(tmp_path: Path) -> None:
    text = "".join(
        f"Epochs:   {at}%|#    | {at}/50 [00:{at:02}<01:00,  1.2it/s]Part: 1%, Epoch: {at}, "
        f"Train Loss: {3 - at / 9:.3f}, Val Loss: {3.1 - at / 9:.3f}\n\n"
        for at in (2, 4, 6, 8)
    )
    series = read(write(tmp_path, text)).series
    assert [step for step, _ in series["Train Loss"]] == [2, 4, 6, 8]
    assert [step for step, _ in series["Val Loss"]] == [2, 4, 6, 8]


def test_how_full_a_bar_of_stars_is_is_no_loss(tmp_path: Path) -> None:
    text = "".join(
        f"\rtrain loss: 50%[****->....]0.9\rtrain loss: 100%[********->]0.5{at}\n28.9 s\n"
        f"[epoch {at}] train_loss: 0.{9 - at}00  test_accuracy: 0.{60 + at}\n"
        for at in range(1, 6)
    )
    run = next(iter(barograph.read(write(tmp_path, text))))
    assert run.series("train/loss").value.tolist() == [0.8, 0.7, 0.6, 0.5, 0.4]


def test_games_that_were_lost_are_no_loss(tmp_path: Path) -> None:
    text = "".join(f"Step {at}: equity=1{at}20.50 pnl=1{at}.5 loss={at} wins=2\n" for at in range(1, 8))
    for run in barograph.read(write(tmp_path, text)):
        assert diagnose(run)["judged_by"] is None


def test_a_guide_to_usual_losses_is_no_log(tmp_path: Path) -> None:
    assert not find(write(tmp_path, "".join(f"step {at}00:  loss: {5 - at}.5-{6 - at}.0\n" for at in range(1, 5))))


def test_a_loggers_level_is_no_part_of_a_name(tmp_path: Path) -> None:
    text = "".join(f"2024-05-01 10:0{at}:00 INFO loss={3 - at / 9:.3f}, epoch={at}, lr=0.1\n" for at in range(1, 7))
    assert len(read(write(tmp_path, text)).series["loss"]) == 6


def test_a_rate_on_a_line_that_ends_with_the_evaluation_is_of_training(tmp_path: Path) -> None:
    text = "".join(f"Epoch {at} Train Loss: 0.{9 - at} | Val Loss: 0.{9 - at}5 | LR: 1.0e-04\n" for at in range(1, 6))
    assert set(read(write(tmp_path, text)).series) == {"Train Loss", "Val Loss", "LR"}


def test_a_dict_behind_the_bar_of_the_dict_before_is_a_row_of_its_own(tmp_path: Path) -> None:
    text = "{'loss': 0.41, 'reward': -2.0, 'learning_rate': 5e-05}\n" + "".join(
        f"  0%|        | {at}/900 [00:{at:02}<09:00, 1.1s/it]"
        f"{{'loss': {float('nan') if at == 2 else 0.4 - at / 99:.3f}, 'reward': {at}.5, 'learning_rate': 5e-05}}\n"
        for at in range(1, 6)
    )
    series = read(write(tmp_path, text + "  0%|        | 6/900 [00:06<09:00, 1.1s/it]\n")).series
    assert [step for step, _ in series["loss"]] == [1, 2, 3, 4, 5, 6]


def test_a_bar_that_has_counted_nothing_yet_says_no_row_of_its_own(tmp_path: Path) -> None:
    text = ""
    for epoch in range(3):
        for at in range(4):
            value, rate = f"{5 - epoch - at / 5:.3f}", "?it/s" if at == 0 else "3.1it/s"
            left = "?" if at == 0 else "00:09"
            text += f"Epoch {epoch}:  10%|#  | {at}/4 [00:05<{left}, {rate}, loss={value}]\r"
            text += f"Epoch {epoch}:  10%|#  | {at + 1}/4 [00:05<00:09, 3.1it/s, loss={value}]\r"
        text += f"\nVal Acc: 0.{epoch + 5}1\n"
    series = read(write(tmp_path, text)).series
    assert series["loss"] == [
        (4 * epoch + at + 1, pytest.approx(5 - epoch - at / 5)) for epoch in range(3) for at in range(4)
    ]
    assert [value for _, value in series["Val Acc"]] == [0.51, 0.61, 0.71]


def test_accuracies_alone_are_no_rows(tmp_path: Path) -> None:
    assert find(write(tmp_path, "".join(f"forest {at}\nAccuracy: 0.8{at}\n" for at in range(9)))) == []


def test_a_mean_of_the_epoch_so_far_is_its_loss(tmp_path: Path) -> None:
    text = ""
    for epoch in range(3):
        for at in (25, 50, 75):
            text += f"Epoch {epoch}, Step {at}, used 7.17 (s), avg loss so far is {4 - epoch - at / 100}\n"
        text += f"Epoch {epoch}, val loss is {3 - epoch}.5, val mse is 0.2.\n"
    series = read(write(tmp_path, text)).series
    assert [at for at, _ in series["avg loss"]] == [25, 50, 75, 100, 125, 150, 175, 200, 225]
    assert len(series["val loss"]) == 3


def test_a_row_right_behind_a_bar_is_one_of_its_own(tmp_path: Path) -> None:
    text = "".join(
        f"  {step}%|#    | {step}/400 [00:32<53:42, 3.2s/it, objective={5 - step / 90:.3f}]"
        f"Iter {step + 10}: train loss {4 - step / 90:.3f}, lr 1e-4\n"
        for step in range(10, 90, 10)
    )
    series = read(write(tmp_path, text)).series
    assert series["train loss"] == [(step + 10, pytest.approx(4 - step / 90, abs=1e-3)) for step in range(10, 90, 10)]
    assert series["objective"] == [(step, pytest.approx(5 - step / 90, abs=1e-3)) for step in range(10, 90, 10)]


def test_a_bar_that_is_drawn_over_the_end_of_a_message_is_read(tmp_path: Path) -> None:
    bar = "[==============================]"
    text = "".join(
        f"Epoch {epoch}/4\nEpoch {epoch}: val_loss got better, writing the best mo870/870 {bar} - 9s - "
        f"loss: {1 / epoch:.4f} - val_loss: {1.2 / epoch:.4f}\n"
        for epoch in range(1, 5)
    )
    series = read(write(tmp_path, text)).series
    assert [value for _, value in next(iter(series.values()))] == [1.0, 0.5, pytest.approx(0.3333), 0.25]


def test_batches_of_an_epoch_ahead_of_the_loss_count_on(tmp_path: Path) -> None:
    text = "".join(
        f"| epoch {epoch:03d}  {batch} / 700 loss={5 - epoch + batch / 1e4:.3f} (4.1), lr=0.002, gnorm=1.2\n"
        for epoch in (3, 4, 5)
        for batch in (200, 400, 600)
    )
    reading = read(write(tmp_path, text))
    assert [step for step, _ in reading.series["loss"]] == [200, 400, 600, 900, 1100, 1300, 1600, 1800, 2000]
    assert not reading.restarts


def test_the_distance_of_images_held_out_is_an_evaluation_s_loss(tmp_path: Path) -> None:
    text = "".join(
        f"Training: {at}%|##| {at}00/9000 [00:04<01:09, 51.3it/s, Loss={1 / at:.5f}]\n"
        f"\n[ITER {at}00] Evaluating test: L1 {0.4 / at:.14f} PSNR {20 + at / 7:.9f} [01/02 03:04:05]\n"
        for at in range(3, 11)
    )
    series = read(write(tmp_path, text)).series
    assert series["test L1"] == [(100 * at, pytest.approx(0.4 / at)) for at in range(3, 11)]
    assert candidates("eval_loss", series) == ["test L1"]


def test_a_learning_rate_of_one_of_two_optimisers_is_read_below_its_step(tmp_path: Path) -> None:
    text = "".join(
        f"   --> STEP: {at}/90 -- GLOBAL_STEP: {7000 + at}\n     | > loss_gen: {5 - at / 40:.5f}  (4.1)\n"
        f"     | > current_lr_0: {at / 1e5:.5f} \n     | > current_lr_1: 0.5 \n"
        for at in range(10, 90, 10)
    )
    series = read(write(tmp_path, text)).series
    assert series["lr"] == [(7000 + at, pytest.approx(at / 1e5)) for at in range(10, 90, 10)]


def test_a_bar_of_the_whole_run_counts_on_below_the_headings_of_epochs(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = "".join(
        f"epoch {at}/40\nsteps:  {at}%|##   | {at * 12}/480 [00:4{at}<02:44,  3.79it/s, avr_loss=0.{90 - at}]\n"
        for at in range(3, 10)
    )
    path.write_text(text)
    assert [step for step, _ in read(path).series["avr_loss"]] == [at * 12 for at in range(3, 10)]


@pytest.mark.parametrize(
    "form", ["{s} {p}% (0m {p}s) {v} Ebanez / Thracian ✗ (Dacian)", "1m {p}s (- 2m 4s) ({s} {p}%) {v}"]
)
def test_a_count_with_its_share_and_the_time_goes_before_a_loss_without_a_name(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    rows = [(700 * at, round(0.5 + 3 / at, 4)) for at in range(1, 10)]
    path.write_text("".join(form.format(s=step, p=step // 70, v=f"{value:.4f}") + "\n" for step, value in rows))
    assert read(path).series["loss"] == rows


def test_lines_of_a_logger_that_lost_their_breaks_are_rows_each(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [
        f"2031-05-07 09:0{at}:12,41{at} - INFO - epoch: 0, batch_id: {at}0, loss:{9 - at}.5, rate: 7.1 ex/s"
        for at in range(1, 9)
    ]
    path.write_text("".join(rows) + "\n")
    assert read(path).series["loss"] == [(10 * at, 9.5 - at) for at in range(1, 9)]


TABLE = """2031-05-07 09:01:12 | epoch #{e} | Saved
-----------------------------  ---------
Trial/AverageReturn             {r}
Trial/Round                       {e}
TotalEnvSteps                {s}
plan/LossBefore                 {v}
-----------------------------  ---------
"""


def test_tables_of_two_columns_between_dashes_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [(400 * at, at, round(0.1 + 1 / at, 3)) for at in range(1, 8)]
    tables = [TABLE.format(e=at, r=10 + at, s=step, v=value) for step, at, value in rows]
    path.write_text("".join(tables))
    ((dialect, found), *_) = find(path)
    whole = collect(dialect, found)
    assert whole.series["plan/LossBefore"] == [(step, value) for step, _, value in rows]
    assert whole.series["Trial/AverageReturn"][0] == (400, 11.0)
    text, mark, pieces = "".join(tables), None, []
    for end in (*range(len(tables[0]) * 2, len(text), 37), len(text)):  # followed while it is written
        path.write_text(text[:end])
        reading = collect(dialect, found, mark)
        mark, pieces = reading.mark, pieces + reading.series.get("plan/LossBefore", [])
    assert pieces == whole.series["plan/LossBefore"]


def test_names_ahead_of_their_values_in_brackets(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step, tf_loss[0.0{9 - at}173][{4000 + at}]\n" for at in range(1, 9)))
    assert read(path).series["tf_loss"] == [(4000 + at, round((9 - at) / 100 + 0.00173, 5)) for at in range(1, 9)]


@pytest.mark.parametrize(
    "row", [b"a a a a   1", b"a" + b"  b" * 30, b"a" + b" " * 90 + b"b" * 50, b"ab  1", b"a    b   "]
)
def test_no_table_of_two_columns_takes_long(row: bytes) -> None:
    text = b"-----  ----\n" + (row + b"\n") * 4000
    begin = perf_counter()
    assert stanzas.prepare(text, {}) == text
    stanzas.hold(text)
    assert perf_counter() - begin < 5


@pytest.mark.parametrize("name", ["loss", "train_loss", "val_accuracy"])
def test_a_name_behind_the_speed_of_a_bar_is_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"Epoch {at}/19 {'━' * 40} 80/80 0:00:0{at} • 0:00:00 17.{at}1it/s {name}: 0.{90 - at} v_num: 2.000\n"
        for at in range(9)
    ), encoding="utf-8")  # fmt: skip
    series = read(path).series
    assert series[name] == [(at, float(f"0.{90 - at}")) for at in range(9)]
    assert not [one for one in series if one.startswith("s ")]

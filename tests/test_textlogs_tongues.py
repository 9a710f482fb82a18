"""Rows in other languages, with letters of mathematics, arrays and tuples are read at their steps; what only looks like
them is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))

import dialects
from textlog_readings import read

ROWS = [(step, f"{6 - step / 20:.3f}") for step in range(3, 60, 2)]


@pytest.mark.parametrize(
    "form",
    [
        "Эпоха 1 | Шаг {s} | Потери: {v}\n",
        "Шаг {s}/90, потеря на обучении: {v}\n",
        "스텝 {s}/90 - 훈련 손실: {v} - 정확도: 0.3\n",
        "{s}번째 스텝 손실: {v}\n",
        "ステップ {s}/90 訓練損失={v} 学習率=0.0003\n",
        "{s}ステップ目: 損失 {v}\n",
        "第1轮，第{s}批，损失值：{v}\n",
        "【步数】{s}【损失】{v}【学习率】0.0003\n",
        "Adım {s}, Kayıp: {v}\n",
        "krok {s} z 90, strata treningowa: {v}\n",
        "Stap {s}, verlies {v}\n",
        "Bước {s}/90 - Hàm mất mát: {v} - Độ chính xác: 0.3\n",
        "Ітерація {s}, функція втрат: {v}, точність: 0.3\n",
        "steg {s}: förlust = {v}, noggrannhet = 0.3\n",
        "Lernschritt {s}, mittlerer Verlust {v}\n",
        "Itération {s} : coût = {v}\n",
        "(step, loss) = ({s}, {v}f0)\n",
        "[epoch]: 1, [batch]: {s}, [loss]: {v}\n",
        " Epoch[ 1 of 3]-Minibatch[    1-{s:>5}, 12.34%]: ce = {v} * 1000; errs = 31.20% * 1000; time = 0.0159s\n",
        "Training loss (for one batch) at step {s}: {v}\n",
        "Train loss {s} {v} Grad Norm 1.212312 0.51s/it\n",
        "k = {s}, f(x) = {v}, |g| = 1.21\n",
        "iter {s} J(θ) = {v}\n",
        "step {s} loss Array({v}, dtype=float32)\n",
        "step {s} loss <tf.Tensor: shape=(), dtype=float32, numpy={v}>\n",
        "step {s}: {v} nats/token\n",
        "step <{s}/90> loss <{v}>\n",
        "[{s} of 90] loss={v}\n",
        "Training   ━━━━╸    {s}/90 0:01:02 loss: {v}\n",
        "step {s}: recon 1.5, kld 0.31, total {v}\n",
        "i = {s}\nloss = {v}\n",
        '{{"_PID": "77", "MESSAGE": "{s}/90 (epoch 0.31), train_loss = {v}, time/batch = 0.2s"}}\n',
        "[pod/train-0/pytorch] {s}: train-rmse:{v}\n",
        "gpu01: {s} train loss:  {v} test acc: 31.08%\n",
        "Oct 02 12:00:07 host train[77]: [{s}] accuracy=0.3, loss={v}\n",
    ],
)
def test_each_row_is_read_at_its_step(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(s=s, v=v) for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


def test_a_maker_is_judged_before_its_adversary(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {s} loss_disc: 0.69 loss_gen: {v}\n" for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


def test_what_took_some_time_heads_what_stands_below_it(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    block = "Epoch {s} of 90 took 12.3s\n  training loss:\t\t{v}\n  validation loss:\t\t9.5\n"
    path.write_text("".join(block.format(s=s, v=v) for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("step & loss & lr \\\\\n\\hline\n", "{s} & {v} & 3e-4 \\\\\n"),
        ("      Iter       Train Loss   Remaining Time \n", "{s:>10} {v:>16} {v:>15}m \n"),
    ],
)
def test_tables_of_other_makers(tmp_path: Path, heading: str, row: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(heading + "".join(row.format(s=s, v=v) for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


@pytest.mark.parametrize(
    "form",
    [
        "Schritt {s}: Kosten 12,{s} Euro\n",
        "12:00:{s:02d} ERROR line {s}: Fehler 404 in Modul {s}\n",
        "Krok {s}: kliknij przycisk 0.{s}\n",
        "n = {s}, E = {v}\n",
        "E = {v} eV, k = {s}, J = 0.{s}\n",
        "packet {s}: {v} bits/s\n",
        "best loss {v} at step {s}\n",
        "Round {s}: wins {s}, losses 3\n",
        "Downloading: {s}%|###   | {s}M/100M [00:01<00:05, 12.1MB/s]\n",
        "aten::op{s}   1.21%   3.210us   1.30%   4.100us   {s}\n",
        "layer {s}: norm {v} std 0.1 mean 0.01\n",
        "dense_{s} (Dense)    (None, 64)    {s}000\n",
        '{{"message": "request {s} done", "duration": {v}}}\n',
        "Trial {s}: lr=0.001 batch=32 -> val loss {v}\n",
    ],
)
def test_what_is_no_training_stays_unread(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(s=s, v=v) for s, v in ROWS))
    assert dialects.rows_read(path)[2] == []


def test_figures_in_an_object_of_their_own_are_at_its_step(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    form = '{{"timestamp": "2025-10-02T12:00:{s:02d}Z", "level": "INFO", "fields": {{"step": {s}, "loss": {v}}}}}\n'
    path.write_text("".join(form.format(s=s, v=v) for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


@pytest.mark.parametrize("form", ["step {s} ⇒ loss ≈ {v}\n", "[step]: {s} [loss]: {v}\n", "Шаг {s}: потери = {v}\n",
                                  "step {s} loss Array({v}, dtype=float32)\n"])  # fmt: skip
def test_a_loss_that_is_no_number_is_read_at_its_step(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(s=s, v=v if s < 40 else "nan") for s, v in ROWS))
    rows = dialects.rows_read(path)[2]
    assert [step for step, loss in rows if loss != loss] == [step for step, _ in ROWS if step >= 40]


@pytest.mark.parametrize(
    "form",
    [
        "{s}:\tlearn: {v}\ttest: {w}\tbestTest: {w} ({s})\ttotal: 12ms\tremaining: 1m 3s\n",
        "{s}:\tlearn: {v}\ttotal: 58.6ms\tremaining: 58.6s\n",
        " {s}: 5.1234, {v} avg, 0.001000 rate, 3.2 seconds, 64 images\n",
        "12:00:{s:02d}.123 [main] INFO  o.d.o.l.ScoreIterationListener - Score at iteration {s} is {v}\n",
        "   --> STEP: {s}/60 -- GLOBAL_STEP: {s}\n     | > loss_disc: 2.5  (2.6)\n     | > loss_0: 2.5  (2.6)\n"
        "     | > loss_gen: 2.1  (2.2)\n     | > loss_1: {v}  (9.5)\n",
    ],
)
def test_programs_with_words_of_their_own(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(s=s, v=v, w=f"{float(v) + 0.2:.3f}") for s, v in ROWS))
    assert dialects.problem_of(path, ROWS) == ""


def test_how_often_was_trained_counts_and_what_is_right_is_an_accuracy(tmp_path: Path) -> None:
    rows = "".join(f"训练次数：{at}00, Loss：{2 + 8 / at:.4f}\n" for at in range(1, 9))
    path = tmp_path / "train.log"
    path.write_text(rows + "整体测试集上的正确率: 0.4125\n")
    series = read(path).series
    assert series["Loss"] == [(100 * at, round(2 + 8 / at, 4)) for at in range(1, 9)]
    assert series["test accuracy"] == [(800, 0.4125)]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("Episode {s}/90 | Reward moyen (100 ep): {v}\n", "mean reward"),
        ("Episode {s}/90 | Recompensa media: {v}\n", "mean reward"),
        ("Episode {s} | Mean Reward (50 eps): {v} | Epsilon: 0.9\n", "Mean Reward"),
        ("回合 Episode {s} 奖励: {v}\n", "reward"),
    ],
)
def test_rewards_are_read_in_other_languages_and_with_the_episodes_they_are_a_mean_of(
    tmp_path: Path, form: str, name: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(s=s, v=v) for s, v in ROWS))
    assert read(path).series[name] == [(s, float(v)) for s, v in ROWS]


@pytest.mark.parametrize("bar", ["", "| "])
def test_tables_of_markdown_in_other_languages_are_rows(tmp_path: Path, bar: str) -> None:
    path = tmp_path / "train.md"
    heading = f"{bar}轮次 | 训练损失 | 验证损失 |\n{bar}--- | --- | --- |\n"
    path.write_text(heading + "".join(f"{bar}{s} | {v} | 9.5 |\n" for s, v in ROWS))
    assert read(path).series["train_loss"] == [(s, float(v)) for s, v in ROWS]


def test_epochs_of_keras_whose_time_was_taken_out_keep_their_first_measure(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch {s}/90\n800/800 - loss: {v} - acc: 0.31 - val_loss: 9.5\n" for s, v in ROWS))
    assert read(path).series["loss"] == [(s, float(v)) for s, v in ROWS]


def test_fits_of_one_epoch_each_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch 1/1\n800/800 [====] - 12s - loss: {2 / at:.4f} - acc: 0.3\n" for at in range(1, 9)))
    assert read(path).series["loss"] == [(at, round(2 / at, 4)) for at in range(1, 9)]

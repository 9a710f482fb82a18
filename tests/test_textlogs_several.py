"""Several numbers behind one name, each under a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.importing.textlogs import several


@pytest.mark.parametrize(("line", "apart"), [
    (b"Reward: mean=3.5, min=1.5, std=0.2", b"Reward_mean: 3.5, Reward_min: 1.5, Reward_std: 0.2"),
    (b"step 5 loss (mean: 0.4 max: 0.9)", b"step 5 loss_mean: 0.4 loss_max: 0.9"),
    (b"episode return: avg=7 | median=6.5", b"episode return_avg: 7 | episode return_median: 6.5"),
    (b"  - Train Loss: epoch 0.41 - batch NaN", b"  - Train Loss: 0.41"),
    (b"  - Valid Accuracy: epoch 91.50 % - batch 90.00 %", b"  - Valid Accuracy: 91.50%"),
])  # fmt: skip
def test_numbers_have_names_of_their_own(line: bytes, apart: bytes) -> None:
    assert several.apart(line) == apart


@pytest.mark.parametrize("line", [
    b"step 5 loss: 0.4 mean=0.2, max=0.9", b"loss: mean=0.4", b"Steps: mean=3.0, min=1.0", b"lr: min=1e-5, max=1e-3",
    b"Train Loss: epoch 3 - batch 4 - 0.5",
])  # fmt: skip
def test_other_lines_stay(line: bytes) -> None:
    assert several.apart(line) == line


def test_evaluations_of_a_reward_below_their_steps_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"Eval metrics at step {at * 7}:\n  Reward: mean={value}, max=9.5\n  Steps:  mean=400.0, max=500.0\n"
        for at, value in enumerate(("2.5", "nan", "nan"))
    ))  # fmt: skip
    (step, first), *later = read(path).series["val Reward_mean"]
    assert (step, first, [at for at, _ in later]) == (0, 2.5, [7, 14])


def screen(at: int) -> str:
    return (
        f"[Metrics]\n  - Train Loss: epoch 0.{9 - at}5 - batch 0.70\n  - Valid Loss: epoch 0.{9 - at}8 - batch 0.71\n\n"
        f"[Progress]\n  - Iteration {at * 50} Epoch {at}/6\n  - epoch     [##>--] (3s)\n\n"
    )


def test_metrics_stand_at_what_is_shown_below_them(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(map(screen, range(1, 5))))
    series = read(path).series
    assert [value for _, value in series["Train Loss"]] == [0.85, 0.75, 0.65, 0.55]
    assert [value for _, value in series["Valid Loss"]] == [0.88, 0.78, 0.68, 0.58]
    path.write_text(screen(3))
    assert read(path).series["Train Loss"] == [(150, 0.65)]


@pytest.mark.parametrize("lead", ["INFO:tensorflow:", "I0412 03:04:05.{step:06d} 77 log.py:9] "])
def test_what_a_hook_prints_ahead_of_its_step_is_of_that_step(tmp_path: Path, lead: str) -> None:
    form = (
        lead
        + "entropy_loss = {tensor:.4f}, learning_rate = 0.02{sec}\n"
        + lead
        + "loss = {loss:.4f}, step = {step}{sec}\n"
    )
    steps = range(0, 1400, 200)
    text = "".join(
        form.format(step=at, tensor=3 - at / 900, loss=4 - at / 800, sec=" (2.107 sec)" if at else "") for at in steps
    )
    path = tmp_path / "train.log"
    path.write_text(text)
    series = read(path).series
    assert series["loss"] == [(at, round(4 - at / 800, 4)) for at in steps]
    assert series["entropy_loss"] == [(at, round(3 - at / 900, 4)) for at in steps]
    rest = text[text.index("\n", text.index("step = 0")) + 1 :]  # of which nothing says which stands first
    path.write_text(rest)
    assert [at for at, _ in read(path).series["loss"]] == list(steps)[1:]


def test_names_in_brackets_have_their_numbers_in_others(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    form = "Epoch[4] Batch[{at}/90] Speed: 31.5 samples/sec, Loss:(left, right)/({a:.3f}, {b:.3f})\n"
    rows = [(at, 4 - at / 40, 1 / at) for at in range(10, 90, 10)]
    path.write_text("".join(form.format(at=at, a=a, b=b) for at, a, b in rows))
    series = read(path).series
    assert [value for _, value in series["left_Loss"]] == [round(a, 3) for _, a, _ in rows]
    assert [value for _, value in series["right_Loss"]] == [round(b, 3) for _, _, b in rows]
    assert several.apart(b"loss (a, b)/(1.5, 2.5, 3.5)") == b"loss (a, b)/(1.5, 2.5, 3.5)"


def test_an_evaluation_that_says_sums_and_how_many_is_its_mean(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    form = (
        "[Epoch {e} 40/90][Iteration {at}] Train 512 in 0.4seconds. Throughput is 12.5 records/second. Loss is {a}.\n"
    )
    said = (
        "Loss is (Loss: 91.5, count: 30, Average Loss: 3.05)\n"
        "Top1Accuracy is Accuracy(correct: 6, count: 9, accuracy: 0.{at})\n"
    )
    steps = range(10, 170, 10)
    text = "".join(
        form.format(e=1 + (at - 1) // 40, at=at, a=3 - at / 50) + said.format(at=at) * (at % 40 == 0) for at in steps
    )
    path.write_text(text)
    series = read(path).series
    assert [value for _, value in series["Loss"]] == [3 - at / 50 for at in steps]
    assert [value for _, value in series["val loss"]] == [3.05] * 4
    assert [value for _, value in series["val top1"]] == [0.40, 0.80, 0.120, 0.160]


def test_a_total_in_short_ahead_of_a_bar_is_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    bars = [
        f"[SGD] Tot:{9 / (at + 1):.3e} BC:{at}.1e-03/2.0e-04:   1%|1         | {at}/900 [00:09<12:30,  3.1it/s]"
        for at in range(20)
    ]
    path.write_text("Phase 1\n" + "\r".join(bars) + "\n")
    assert [value for _, value in read(path).series["total_loss"]] == [float(f"{9 / (at + 1):.3e}") for at in range(20)]

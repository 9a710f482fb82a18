"""Scores beside a loss, or alone below lines that count, are read; reports of things and settings are no rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

STEPS = range(1, 13)


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def falls(at: int) -> str:
    return f"{0.2 + 0.7 * 0.8**at:.4f}"


def rises(at: int) -> str:
    return f"{30 - 9 * 0.8**at:.3f}"


def test_scores_in_a_stanza_are_read_at_its_epoch(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}/12\n  Train Loss: {falls(at)}\n  Val Dice:   0.{at + 20}11\n  Val IoU: 0.{at + 10}2\n"
        f"  Test PSNR: {rises(at)} dB\n  Top1: {at + 40}.25%\n"
        for at in STEPS
    )
    series = read(written(tmp_path, text)).series
    for name in ("Train Loss", "Val Dice", "Val IoU", "Test PSNR", "Top1"):
        assert [step for step, _ in series[name]] == list(STEPS)


def test_scores_of_several_sets_below_one_epoch_begin_no_launch(tmp_path: Path) -> None:
    text = "".join(
        f"EPOCH {at}/12: Train Loss: {falls(at)}\nA: ssim: 0.7{at}2 psnr: {rises(at)}\nB: ssim: 0.601 psnr: 20.1\n"
        for at in STEPS
    )
    reading = read(written(tmp_path, text))
    assert not reading.restarts
    assert reading.series["psnr"] == [(at, float(rises(at))) for at in STEPS]


def test_a_rank_of_scores_keeps_its_number(tmp_path: Path) -> None:
    text = "".join(f"epoch {at} tested, Recall@20: 0.0{at + 10}1, NDCG@20: 0.0{at + 10}\n" for at in STEPS)
    assert set(read(written(tmp_path, text)).series) == {"Recall@20", "NDCG@20"}


@pytest.mark.parametrize("text", [
    "precision: 16\nrecall: 3\n" * 4,
    "class 1: IoU: 0.41\nclass 2: IoU: 0.52\nclass 3: IoU: 0.61\n",
    "Precision: 0.81\nRecall: 0.77\nF1: 0.79\n",
    "PSNR: 27.10\nSSIM: 0.81\nPSNR: 27.90\nSSIM: 0.82\n",
])  # fmt: skip
def test_scores_of_nothing_that_counts_claim_no_file(tmp_path: Path, text: str) -> None:
    assert not find(written(tmp_path, text))


def test_what_is_printed_behind_a_bar_that_begins_is_a_row(tmp_path: Path) -> None:
    text = "".join(
        f"epoch: {at}/99: : 50it [00:01, 39.1it/s, loss={falls(at)}]\n"
        f"epoch: {at + 1}/99:   0%|          | 0/50 [00:00<?, ?it/s]eval psnr: {rises(at)}\n"
        for at in STEPS
    )
    assert read(written(tmp_path, text)).series["eval psnr"] == [(at, float(rises(at))) for at in STEPS]


@pytest.mark.parametrize(("form", "name"), [
    ("Epoch {at:03d}/12 | Train: {v} | Val: {v}\n", "Train loss"),
    ("epoch 2, phase train, step {at}, loss_train, {v}\n", "loss_train"),
    ("the train loss of epoch2-batch-{at}:{v}\n", "train loss"),
    ("[I 240102 10:00:00 models:110] 3 {at} train loss: {v} early stop: 3\n", "train loss"),
    ("net epo:[{at}/100] eta 3s\n\nloss_A:{v} loss_B:0.3\n", "loss_A"),
    ("epoch: {at},  loss is: {v}, acc is: 0.5\n", "loss"),
])  # fmt: skip
def test_forms_of_a_loss(tmp_path: Path, form: str, name: str) -> None:
    series = read(written(tmp_path, "".join(form.format(at=at, v=falls(at)) for at in STEPS))).series
    assert series[name] == [(at, float(falls(at))) for at in STEPS]


@pytest.mark.parametrize("values", [
    [f"{0.9 - 0.6 * 0.8**at:.4f}" for at in STEPS], [f"{0.71 - 0.001 * at:.4f}" for at in STEPS],
])  # fmt: skip
def test_what_rises_or_stays_below_one_is_no_loss(tmp_path: Path, values: list[str]) -> None:
    text = "".join(f"Epoch {at} | Train: {value} | Val: {value}\n" for at, value in zip(STEPS, values, strict=True))
    assert not any("loss" in name for name in read(written(tmp_path, text)).series)


def test_a_row_below_a_heading_that_says_the_epoch_again_is_the_evaluations(tmp_path: Path) -> None:
    text = "".join(
        f"epoch: {at}, loss: {falls(at)}\nevaluating in eval mode...\nepoch: {at}, loss: 0.9{at}\nnow training on\n"
        for at in STEPS
    )
    series = read(written(tmp_path, text)).series
    assert series["loss"] == [(at, float(falls(at))) for at in STEPS]
    assert [step for step, _ in series["val loss"]] == list(STEPS)


def test_the_next_epoch_below_a_heading_is_the_trainings(tmp_path: Path) -> None:
    text = "".join(f"epoch: {at}, loss: {falls(at)}\nevaluating...\n" for at in STEPS)
    assert set(read(written(tmp_path, text)).series) == {"loss"}


@pytest.mark.parametrize("name", ["val MIoU1", "Mean IU", "val FWIoU"])
def test_spellings_of_an_overlap_are_scores(tmp_path: Path, name: str) -> None:
    text = "".join(f"Epoch {at}: train loss {falls(at)}\n{name}: 0.{at + 20}1\n" for at in STEPS)
    assert [step for step, _ in read(written(tmp_path, text)).series[name]] == list(STEPS)


def test_precisions_and_parts_of_a_loss_stand_right_before_their_values(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    form = (
        "Epoch: [2][{at}/70]  Time 0.31 (0.40)  Loss {a:.4f} (1.9)  Bbox Loss {b:.5f} (0.7)  Prec@1 {c:.3f} (41.000)\n"
    )
    rows = [(at, 2 - at / 50, 1 / (at + 2), 30 + at / 4) for at in range(10, 70, 10)]
    path.write_text("".join(form.format(at=at, a=a, b=b, c=c) for at, a, b, c in rows))
    series = read(path).series
    for name, place, digits in (("Loss", 1, 4), ("Bbox Loss", 2, 5), ("Prec@1", 3, 3)):
        assert series[name] == [(row[0], round(row[place], digits)) for row in rows]

"""Ways to write a row that are rarer: empty cells, parts in round brackets, calls as names, words glued to a loss."""

from __future__ import annotations

import contextlib
from pathlib import Path

from textlog_readings import read

from barograph.core.roles import main_loss
from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def test_a_tables_row_with_empty_cells_is_read_by_the_places_of_its_names(tmp_path: Path) -> None:
    names = ("epoch", "iteration", "net/loss", "held/net/loss", "net/acc", "seconds")
    rows = [(0, 20 * at, 5 - at / 4, "" if at % 4 else 6 - at / 4, round(at / 30, 4), 9.5 * at) for at in range(1, 13)]
    text = "".join("".join(f"{cell:<15}" for cell in row).rstrip() + "\n" for row in (names, *rows))
    reading = read(written(tmp_path, text))
    assert [step for step, _ in reading.series["net/loss"]] == [20 * at for at in range(1, 13)]
    assert reading.series["held/net/loss"] == [(80, 5.0), (160, 4.0), (240, 3.0)]
    assert reading.series["net/acc"][0] == (20, 0.0333)


def test_a_row_whose_cells_stand_beside_their_names_is_none(tmp_path: Path) -> None:
    names = ("epoch", "iteration", "net/loss", "held/net/loss", "net/acc")
    text = "".join(f"{name:<15}" for name in names).rstrip() + "\n"
    text += "".join(f"{at:<12}{at * 9:<12}{2.5 - at / 9:<12.3f}\n" for at in range(1, 13))
    path = written(tmp_path, text)
    with contextlib.suppress(ValueError):  # nothing was found: as well
        assert "held/net/loss" not in runs_of(path)[0].names()


def test_parts_of_a_loss_in_round_brackets_have_names(tmp_path: Path) -> None:
    text = "".join(
        f"[2031-05-04 10:0{at}:12.120] Step: {at}\n[2031-05-04 10:0{at}:18.293] Losses(total: {4 - at / 9:.3f}, "
        f"policy: {3 - at / 9:.3f}, value: 0.95, l2: 0.05)\n"
        for at in range(1, 10)
    )
    reading = read(written(tmp_path, text))
    assert reading.series["total_loss"][0] == (1, 3.889)
    assert len(reading.series["policy_loss"]) == 9
    assert main_loss(reading.series) == "total_loss"


def test_a_call_among_the_names_of_a_pair_is_its_functions_name(tmp_path: Path) -> None:
    text = "".join(f"(i, loss(xs[1], ys)) = ({at}, {3 - at / 7:.6f} (tracked))\n" for at in range(1, 10))
    reading = read(written(tmp_path, text))
    assert reading.series["loss"][0] == (1, 2.857143)
    assert len(reading.series["loss"]) == 9


def test_a_word_glued_behind_a_loss_says_per_what(tmp_path: Path) -> None:
    text = "".join(
        f"Starting Epoch {epoch}: learning rate per sample = 0.0002\n"
        + "".join(
            f" Epoch[ {epoch} of 4]-Minibatch[ {at - 9:3}-{at:4}, 0.000000{at}%]: SamplesSeen = 160; "
            f"TrainLossPerSample =  {3 - epoch / 2 - at / 90:.5f}; TotalTime = 1.1s\n"
            for at in (10, 20, 30)
        )
        + f"Finished Epoch[ {epoch} of 4]: [Training Set] TrainLossPerSample = {2.9 - epoch / 2:.5f}; EpochTime=12.2\n"
        for epoch in (1, 2, 3)
    )
    reading = read(written(tmp_path, text))
    assert [step for step, _ in reading.series["TrainLossPerSample"]] == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert reading.series["epoch TrainLossPerSample"][0][1] == 2.4


def test_a_fraction_and_a_colon_behind_an_epoch_are_its_batches(tmp_path: Path) -> None:
    text = "".join(
        f"train: epoch 02: {at}/311: 8.1 (7.9) Hz top5err: 0.31 objective: {3 - at / 90:.3f}\n" for at in range(41, 56)
    )
    reading = read(written(tmp_path, text))
    assert [step for step, _ in reading.series["objective"]][:3] == [41, 42, 43]


def test_a_batchs_letter_counts_for_the_row_below(tmp_path: Path) -> None:
    text = "".join(
        f"batch i:{at}, episode_len:{20 + at % 9}\nkl:0.041,lr_multiplier:0.1,loss:[{4 - at / 90:.5f}],entropy:3.2\n"
        for at in range(148, 160)
    )
    assert read(written(tmp_path, text)).series["loss"][0] == (148, 2.35556)


def test_an_error_of_many_digits_is_a_loss_though_it_rises(tmp_path: Path) -> None:
    values = [0.0712345678123 + 0.0031234567 * at for at in range(40)]
    text = "".join(f"iterations: {10 * at} training error: {value:.15f}\n" for at, value in enumerate(values))
    (run,) = runs_of(written(tmp_path, text))
    found = diagnose(run)
    assert found["judged_by"] == "training error loss"
    assert "divergence" in {finding["rule"] for finding in found["findings"]}


def test_a_tick_of_markdown_ahead_of_the_first_epoch_is_none_of_its_row(tmp_path: Path) -> None:
    rows = "".join(f"Epoch {at}/9\n8/8 [======] - 2s 12ms/step - loss: 0.{9 - at}5\n" for at in range(1, 5))
    for ticks in ("`", "```"):
        series = read(written(tmp_path, ticks + rows)).series["loss"]
        assert series == [(at, float(f"0.{9 - at}5")) for at in range(1, 5)]

"""Counts that are rounded, glued to a bar, said twice, or beside those of an episode."""

from __future__ import annotations

from pathlib import Path

import pytest

import barograph


def series(path: Path, text: str, name: str) -> tuple[list[int], list[float]]:
    path.write_text(text)
    found = barograph.read(path)[0].series(name)
    return [*map(int, found.x)], [round(float(value), 4) for value in found.y]


def values(number: int) -> list[float]:
    return [round(3 - at / 10, 4) for at in range(number)]


def short(step: int) -> str:
    return f"{step / 1000:.0f}K" if step >= 1000 else str(step)


@pytest.mark.parametrize("first", [100, 300, 500])
def test_rounded_steps_are_as_far_apart_as_whole_ones(tmp_path: Path, first: int) -> None:
    steps = [first + 100 * at for at in range(24)]
    rows = zip(steps, values(24), strict=True)
    text = "".join(f"step:{short(step)} smpl:{short(8 * step)} loss:{value:.3f} lr:1.0e-04\n" for step, value in rows)
    assert series(tmp_path / "a.log", text, "train/loss") == (steps, values(24))


def test_rounded_steps_alone_are_all_read(tmp_path: Path) -> None:
    rows = zip(range(4000, 12000, 250), values(32), strict=True)
    text = "".join(f"step: {short(step)}, loss: {value:.3f}, lr: 1.0e-04\n" for step, value in rows)
    steps, found = series(tmp_path / "a.log", text, "train/loss")
    assert found == values(32) and steps == sorted({*steps}) and abs(steps[-1] - 11750) < 1000


def test_a_step_and_a_loss_behind_a_bar(tmp_path: Path) -> None:
    text = "".join(
        f"  2%|2   | {at + 1}/900 [00:1{at % 9}<2:54:35, 17.49s/it]{at}, {value}\n"
        for at, value in enumerate(values(12))
    )
    assert series(tmp_path / "a.log", text, "train/loss") == ([*range(12)], values(12))


def test_rows_that_begin_with_what_lines_between_them_say(tmp_path: Path) -> None:
    text = "".join(
        f"[10:00:{at:02}] [{at}]  held-error:{value / 7:.6f} train-error:{value / 9:.6f}\n"
        f"[10:00:{at:02}] boosting round {at + 1}, {at + 3.5} sec elapsed\n"
        for at, value in enumerate(values(12))
    )
    steps, _ = series(tmp_path / "a.log", text, "train-error")
    assert steps == [*range(12)]


LENGTHS = [9900, 9900, 9750, 7700, 5900, 5400, 5100, 4000, 2300, 2310, 2700, 1700, 1300, 1310]


@pytest.mark.parametrize("form", [
    "Episode {n:5}\tAvg: {v}\tBest: -9.25\tε: 0.60  Buffer: 5000  Steps: {s:6}  Secs: 12\n",
    "Episode {n} | loss: {v} | Steps: {s} | lr 0.001\n",
    " {s}/50000: episode: {n}, duration: 5.5s, episode steps: {s}, episode reward: -7.5, loss: {v}, mean_q: 1.5\n",
])  # fmt: skip
def test_how_long_an_episode_was_is_no_step(tmp_path: Path, form: str) -> None:
    text = "".join(form.format(n=10 * at + 10, s=steps, v=3 - at / 10) for at, steps in enumerate(LENGTHS))
    path = tmp_path / "a.log"
    path.write_text(text)
    run = barograph.read(path)[0]
    name = "Avg reward" if "Avg" in form else "train/loss"
    assert [*map(int, run.series(name).x)] == [10 * at + 10 for at in range(len(LENGTHS))]

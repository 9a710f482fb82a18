"""Where a log begins anew: launches at the step of the last row, and what looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

HEAD = "Loading the corpus of letters\nThe model has 1,234 weights\n"


def rows(first: int, last: int, gap: int = 10) -> str:
    return "".join(f"iter {step}: loss {6 - step / 100:.4f}, lr 1.0e-03\n" for step in range(first, last, gap))


def said(text: str, folder: Path) -> tuple[list[int], int]:
    """The steps at which segments begin, and how many losses were read."""
    path = folder / "small.log"
    path.write_text(text)
    found = read(path)
    return [restart.step for restart in found.restarts], len(found.series["loss"])


def test_launches_that_begin_at_the_step_of_the_last_row_are_segments(tmp_path: Path) -> None:
    crash = "Traceback (most recent call last):\nRuntimeError: the cable was pulled\n"
    text = HEAD + rows(10, 60) + crash + HEAD + rows(10, 20) + crash + HEAD + rows(10, 20) + HEAD + rows(10, 90)
    assert said(text, tmp_path) == ([10, 10, 10], 5 + 1 + 1 + 8)


def test_a_launch_that_goes_on_at_the_step_of_the_last_row_is_a_segment(tmp_path: Path) -> None:
    assert said(HEAD + rows(10, 60) + HEAD + rows(50, 90), tmp_path) == ([50], 5 + 4)


def test_epochs_that_begin_anew_at_the_first_one(tmp_path: Path) -> None:
    launch = "=== The third attempt begins ===\n"
    epoch = "Epoch {e} begins, as all of them do\nEpoch {e} | mean loss: {v}\n"
    one = epoch.format(e=1, v=4.5)
    path = tmp_path / "small.log"
    path.write_text(launch + one + launch + one + launch + "".join(epoch.format(e=e, v=5 - e / 8) for e in range(1, 9)))
    found = read(path)
    assert [restart.step for restart in found.restarts] == [1, 1]
    assert len(found.series["mean loss"]) == 10


@pytest.mark.parametrize(
    "between",
    [
        "",  # two processes print the same
        "Another line that nobody said before\n",
        "Shard 7 of the letters is open\n",  # said ahead of the first row, and between others
    ],
)
def test_the_same_step_again_is_no_launch(tmp_path: Path, between: str) -> None:
    head = HEAD + "Shard 1 of the letters is open\n"
    text = head + rows(10, 60) + "Shard 3 of the letters is open\n" + rows(60, 90) + between + rows(80, 120)
    restarts, losses = said(text, tmp_path)
    assert restarts == []
    assert losses == 11


def test_a_log_that_grows_says_the_same(tmp_path: Path) -> None:
    text = HEAD + rows(10, 60) + HEAD + rows(50, 90) + HEAD + rows(80, 120)
    path, lines = tmp_path / "small.log", text.splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    grown = read(path)
    restarts = [restart.step for restart in grown.restarts]
    for count in range(6, len(lines) + 1):
        path.write_text("".join(lines[:count]))
        grown = read(path, since=grown.mark)
        restarts += [restart.step for restart in grown.restarts]
    assert restarts == said(text, tmp_path)[0] == [50, 80]


@pytest.mark.parametrize(
    ("values", "read_as"),
    [
        (("1,234", "1,180", "0,990"), [1.234, 1.18, 0.99]),
        (("1,2345", "1,180", "1,1"), [1.2345, 1.18, 1.1]),
        (("1,234", "1,180", "1,102"), [1234, 1180, 1102]),
        (("1,234", "1,180.5", "990.25"), [1234, 1180.5, 990.25]),
    ],
)
def test_commas_are_what_the_other_numbers_of_their_name_say(
    tmp_path: Path, values: tuple[str, ...], read_as: list[float]
) -> None:
    path = tmp_path / "small.log"
    path.write_text("".join(f"Step {step:05d} | Validation bpb: {value}\n" for step, value in enumerate(values)))
    assert [value for _, value in read(path).series["Validation bpb"]] == read_as


def kinds_of_rows(learner: range, world: range) -> str:
    """A learner that counts its updates and a world that counts its steps, in turns."""
    lines = []
    for update, step in zip(learner, world, strict=True):
        lines += [f"[Pupil] Loss = {3 - update / 90:.3f} | Steps = {update} | Walltime = {update / 9:.1f}"]
        lines += [f"[World] Episode Return = {update / 4:.1f} | Episodes = {update} | Steps = {step}"]
    return "\n".join(lines) + "\n"


def test_kinds_of_rows_that_count_apart_begin_nothing(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text(kinds_of_rows(range(1, 9), range(700, 5500, 600)))
    found = read(path)
    assert not found.restarts
    assert [step for step, _ in found.series["Loss"]] == list(range(1, 9))
    assert [step for step, _ in found.series["Episode Return"]] == list(range(700, 5500, 600))


def test_a_launch_among_kinds_that_count_apart_is_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text(2 * kinds_of_rows(range(1, 9), range(700, 5500, 600)))
    assert [restart.step for restart in read(path).restarts] == [1]


def test_a_launch_whose_rows_have_other_names_is_a_segment(tmp_path: Path) -> None:
    text = rows(10, 60) + rows(10, 60).replace("lr 1.0e-03", "lr 1.0e-03, gnorm 0.51")
    assert said(text, tmp_path)[0] == [10]

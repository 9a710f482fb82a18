"""A tuner's tables are rows of its trials, each as often as it has gone on."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.importing.textlogs import trials

RULE = "+--------------+---------+-------+------+--------+------------------+---------+\n"
HEAD = "| Trial name   | status  | loc   |   lr |   iter |   total time (s) |    loss |\n"
STATUS = "== Status ==\nMemory usage on this node: 9.1/64.0 GiB\n"
LOSSES = [round(3.1 * 0.85**at + 0.4, 4) for at in range(10)]
STEPS = list(enumerate(LOSSES, 1))


def table(*rows: str) -> str:
    return STATUS + RULE + HEAD + RULE.replace("+", "|") + "".join(rows) + RULE


def row(trial: int, count: object, loss: object, status: str = "RUNNING") -> str:
    return f"| fit_{trial:05d}    | {status:7} | :{trial}    | 0.01 | {count:>6} | {7.5:16} | {loss:>7} |\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "tune.log"
    path.write_text(text)
    return path


def test_a_trial_alone_has_its_names_as_they_are(tmp_path: Path) -> None:
    text = "".join(table(row(0, step, loss)) for step, loss in STEPS)
    series = read(written(tmp_path, text)).series
    assert series == {"loss": STEPS}  # a learning rate ahead of the time is a setting


def test_trials_side_by_side_are_told_apart(tmp_path: Path) -> None:
    waiting = "| fit_00007    | PENDING |       | 0.10 |        |                  |         |\n"
    text = "".join(table(row(0, step, loss), row(1, step, 2 * loss), waiting) for step, loss in STEPS)
    series = read(written(tmp_path, text)).series
    assert series == {"loss": STEPS, "fit_00001 loss": [(step, 2 * loss) for step, loss in STEPS]}


def test_a_trial_that_has_ended_stands_in_later_tables_too(tmp_path: Path) -> None:
    text = "".join(table(row(0, step, loss)) * 3 for step, loss in STEPS) + table(row(0, *STEPS[-1], "TERMINATED"))
    reading = read(written(tmp_path, text))
    assert reading.series["loss"] == STEPS and not reading.restarts


def test_a_drawn_box_behind_a_process_is_a_table(tmp_path: Path) -> None:
    ahead = "(TunerInternal pid=77) "
    parts = [
        f"{ahead}╭{'─' * 70}╮\n{ahead}│ Trial name    status      lr    iter     total time (s)     loss │\n"
        f"{ahead}├{'─' * 70}┤\n{ahead}│ fit_a_00000   RUNNING    0.1   {step:5}           12.5     {loss:8} │\n"
        f"{ahead}│ fit_a_00001   PENDING    0.2                                  │\n{ahead}╰{'─' * 70}╯\n"
        for step, loss in STEPS
    ]
    assert read(written(tmp_path, "".join(parts))).series["loss"] == STEPS


@pytest.mark.parametrize("later", [0, 7])
def test_two_launches_with_a_kill_between_them(later: int, tmp_path: Path) -> None:
    launches = [
        "".join(
            table(row(first, step, loss), row(first + 1, step, 2 * loss)) + "/a/b.py:7: UserWarning: slow\n"
            for step, loss in STEPS
        )
        for first in (0, later)
    ]
    reading = read(written(tmp_path, "Killed\n".join(launches)))
    assert reading.series == {"loss": STEPS * 2, "fit_00001 loss": [(step, 2 * loss) for step, loss in STEPS] * 2}
    assert len(reading.restarts) == 1


BOX = """Trial fit_{trial:05d} finished iteration {step} at 2025-01-02 03:04:05. Total running time: 7s
╭──────────────────────────────────────╮
│ Trial fit_{trial:05d} result               │
├──────────────────────────────────────┤
│ time_this_iter_s             1.20817 │
│ training_iteration {step:17} │
│ loss {loss:31} │
╰──────────────────────────────────────╯
"""
LINES = """Result for fit_{trial:05d}:
  date: 2020-05-05_10-10-10
  done: false
  pid: 77
  mean_loss: {loss}
  training_iteration: {step}
  trial_id: a7_{trial:05d}

"""


@pytest.mark.parametrize(
    ("form", "name", "other"), [(BOX, "loss", "fit_00002 loss"), (LINES, "mean_loss", "a7_00002 ")]
)
def test_results_of_trials_that_run_at_once_are_told_apart(form: str, name: str, other: str, tmp_path: Path) -> None:
    other += "" if "loss" in other else name
    parts = [
        form.format(trial=trial, step=step, loss=loss * (trial + 1))
        for step, loss in STEPS
        for trial in ((0, 2) if step % 3 == 1 else (2, 0))
    ]
    series = read(written(tmp_path, "".join(parts))).series
    assert series[name] == STEPS
    assert series[other] == [(step, loss * 3) for step, loss in STEPS]


@pytest.mark.parametrize(("form", "name"), [(BOX, "loss"), (LINES, "mean_loss")])
def test_trials_one_behind_the_other_begin_anew(form: str, name: str, tmp_path: Path) -> None:
    text = "".join(form.format(trial=trial, step=step, loss=loss) for trial in (0, 1) for step, loss in STEPS)
    reading = read(written(tmp_path, text))
    assert reading.series[name] == STEPS * 2 and len(reading.restarts) == 1


def test_a_heading_holds_for_the_text_that_follows() -> None:
    own: dict[str, object] = {}
    trials.named(HEAD.encode(), own)
    said = trials.named(row(0, 4, 2.5).encode(), own)
    assert said == b"iteration 4, task: fit_00000, loss: 2.5\n"
    assert trials.named(row(0, 4, 2.5).encode(), own) == row(0, 4, 2.5).encode()  # said before
    assert trials.named(b"done\n" + row(0, 5, 2.5).encode(), own) == b"done\n" + row(0, 5, 2.5).encode()


def test_a_table_without_a_count_or_a_time_is_none(tmp_path: Path) -> None:
    text = "".join(f"| Trial name | loss |\n|---|---|\n| a_{at} | 2.{at} |\n" for at in range(9))
    assert not find(written(tmp_path, text))

"""Rows of agents: tables pasted with a margin, evaluators that are counted, dicts that say how far they are."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import read

from barograph.core.roles import candidates, main_loss

VALUES = [(500 * at, at / 4) for at in range(1, 9)]


def series(text: str, folder: Path) -> dict[str, list[tuple[int, float]]]:
    path = folder / "small.log"
    path.write_text(text)
    return read(path).series


def test_a_table_of_an_agent_may_stand_in_from_the_margin(tmp_path: Path) -> None:
    rule = " ------------------------------------\n"
    table = rule + " | ep_rewmean     | {v:<16} |\n | value_loss | {v} |\n | total_timesteps | {s} |\n" + rule
    found = series("".join(table.format(s=step, v=value) for step, value in VALUES), tmp_path)
    assert found["ep_rewmean"] == found["value_loss"] == VALUES


def test_the_steps_of_an_evaluator_are_no_evaluation(tmp_path: Path) -> None:
    line = (
        "[Pupil] World Steps = {s} | Evaluator Episodes = 3 | Evaluator Steps = 900 | Loss = {v} | Policy Loss = {v}\n"
    )
    found = series("".join(line.format(s=step, v=value) for step, value in VALUES), tmp_path)
    assert [value for _, value in found["Loss"]] == [value for _, value in found["Policy Loss"]]
    assert [value for _, value in found["Loss"]] == [value for _, value in VALUES]


def test_the_name_of_a_run_that_ends_in_test_says_nothing_of_the_data(tmp_path: Path) -> None:
    line = "INFO:trainers: late_test: Fetching: Step: {s}. Mean Reward: {v}. Std of Reward: 0.25. Training.\n"
    found = series("".join(line.format(s=step, v=value) for step, value in VALUES), tmp_path)
    assert found["Mean Reward"] == VALUES
    line = "test: Fetching: Step: {s}. Mean Reward: {v}. Std of Reward: 0.25. Training.\n"
    found = series("".join(line.format(s=step, v=value) for step, value in VALUES), tmp_path)
    assert all(name.startswith("test ") for name in found)


def test_dicts_that_say_how_far_they_are_are_placed_by_it(tmp_path: Path) -> None:
    line = (
        "{{'loss': {v}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5, 'global_step/max_steps': '{s}/9000'}}\n"
    )
    found = series("".join(line.format(s=step, v=value) for step, value in VALUES), tmp_path)
    assert found["loss"] == VALUES
    text = "".join(line.format(s=step, v=value) for step, value in VALUES).replace("'", '"')
    assert series(text, tmp_path)["loss"] == VALUES


def test_rewards_in_words_that_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"-----------------\nIteration: \t {at}\nLoss:     \t {3 / at:.6f}\nMaxRew: \t -{90 - at}.5\n"
        f"MeanRew: \t -{120 - at}.25 +- 63.18\nElapsed time\t 9.5 seconds\n-----------------\n"
        for at in range(1, 9)
    ))  # fmt: skip
    series = read(path).series
    assert series["MeanRew"] == [(at, at - 120.25) for at in range(1, 9)]
    assert candidates("reward", series)[0] == "MeanRew" and main_loss(series) == "Loss"

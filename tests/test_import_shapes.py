"""Tables and objects of shapes that are known by their make: a monitor's columns, objects over several lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_import_tables import table

import barograph
from barograph.importing.registry import identify


def test_the_monitor_of_stable_baselines_is_a_reward_an_episode(tmp_path: Path) -> None:
    rows = "".join(f"{20 + at}.5,{at + 9},{at / 10}\n" for at in range(30))
    run, tally = table(tmp_path, '#{"t_start": 1700000000.1, "env_id": "CartPole-v1"}\nr,l,t\n' + rows, "0.monitor.csv")
    assert run.names() == ["episode_length", "reward", "wall_seconds"] and tally.unread == 0
    assert run.series("reward").value.tolist() == [20.5 + at for at in range(30)]
    assert barograph.diagnose(run)["judged_by"] == "reward"
    other = tmp_path / "other.csv"
    other.write_text("r,l,x\n" + rows)
    assert not list(identify(other))  # letters that say nothing


@pytest.mark.parametrize("name", ["run.log", "run.json", "run.jsonl", "run.txt"])
@pytest.mark.parametrize(
    ("between", "end", "count"), [("\n", "", 40), (",\n", "", 40), ("\n", '\n{\n  "step": 40,\n  "lo', 40)]
)
def test_objects_over_several_lines_are_rows(tmp_path: Path, name: str, between: str, end: str, count: int) -> None:
    objects = [json.dumps({"step": at, "loss": 5 - at / 10, "eval": {"loss": 6.0}}, indent=2) for at in range(40)]
    run, _ = table(tmp_path, between.join(objects) + end, name)
    assert len(run.series("train/loss")) == count and run.series("train/loss").step.tolist() == list(range(40))
    assert len(run.series("eval/loss")) == count


def test_one_object_over_several_lines_is_no_row_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "config.log"
    path.write_text(json.dumps({"step": 1, "loss": 2.0, "lr": 1e-3}, indent=2))
    assert not list(identify(path))


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
@pytest.mark.parametrize("words", [False, True])
def test_a_row_of_each_rank_is_one_row(tmp_path: Path, name: str, words: bool) -> None:
    """Four ranks append to one file, each the same numbers of each step."""
    rows = [
        {"step": 5 * at, "loss": 3 - at / 50, "lr": 1e-3} | ({"who": "all"} if words else {}) for at in range(1, 61)
    ]
    lines = [json.dumps(row) if name.endswith("l") else ",".join(map(str, row.values())) for row in rows]
    head = "" if name.endswith("l") else ",".join(rows[0]) + "\n"
    run, _ = table(tmp_path, head + "".join(f"{line}\n" * 4 for line in lines), name)
    assert run.series("train/loss").step.tolist() == [5 * at for at in range(1, 61)]
    assert not [one for one in barograph.diagnose(run)["findings"] if one["rule"] in ("steps_go_back", "divergence")]


def test_a_rank_that_lags_says_nothing_new(tmp_path: Path) -> None:
    said = [1, 1, 2, 3, 2, 3, 4, 4, 5, 6, 5, 6]
    run, _ = table(tmp_path, "".join(json.dumps({"step": at, "loss": 1 / at}) + "\n" for at in said), "run.jsonl")
    assert run.series("train/loss").step.tolist() == [1, 2, 3, 4, 5, 6]


def test_batches_of_an_epoch_that_lose_the_same_are_rows(tmp_path: Path) -> None:
    """A loss that stands still, numbered by its epoch, is not another rank's."""
    run, _ = table(tmp_path, "epoch,loss\n" + "".join(f"{at // 9},0.6931\n" for at in range(45)), "run.csv")
    assert len(run.series("train/loss")) == 45


def test_of_a_loss_and_its_mean_at_the_end_the_first_is_the_trainings(tmp_path: Path) -> None:
    """A trainer's history as a table: what it says once, at the end, stands in columns of its own."""
    rows = [f"{1 / at:.4f},2e-05,{at}.0,,,\n,,{at}.0,{1.2 / at:.4f},,\n" for at in range(1, 6)]
    head = "loss,learning_rate,epoch,eval_loss,train_runtime,train_loss\n"
    run, _ = table(tmp_path, head + "".join(rows) + ",,5.0,,920.5,0.4567\n", "log.csv")
    assert run.series("train/loss").value.tolist() == [1.0, 0.5, 0.3333, 0.25, 0.2]
    assert run.series("train_loss").value.tolist() == [0.4567] and len(run.series("eval/loss")) == 5

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

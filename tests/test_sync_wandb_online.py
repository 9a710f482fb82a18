"""W&B online: a run that is resumed goes on, and each row is on the server once, also after a kill."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import mirror_runs
import pytest
from mirror_runs import Story, ours
from wandb_server import StoredRun, serving

from barograph.trackers import position

pytest.importorskip("wandb")


def points_of(run: StoredRun) -> Counter[mirror_runs.Point]:
    found: Counter[mirror_runs.Point] = Counter()
    for row in run.rows:
        for name, value in row.items():
            if not name.startswith(("_", "barograph_")) and name != "step" and isinstance(value, (int, float, str)):
                found[name, row["step"], repr(float(value))] += 1
    return found


def test_a_resumed_run_goes_on_at_the_server(tmp_path: Path) -> None:
    with serving() as server:
        variables = server.variables | {"WANDB_DIR": str(tmp_path), "HOME": str(tmp_path)}
        story = Story(tmp_path)
        story.train(range(30))
        story.run.flush()
        first = mirror_runs.send(story.dir, "wandb", {}, variables=variables)
        assert "done=True" in first.stdout, first.stderr + str(server.unknown)
        story.resume()
        story.train(range(30, 60))
        story.finish()
        second = mirror_runs.send(story.dir, "wandb", {}, variables=variables)
        assert "done=True" in second.stdout, second.stderr
        [run] = server.runs.values()
        assert run.id == position.read(story.dir, "wandb").state["run_id"]
        assert ours(points_of(run)) == ours(story.points)
        assert json.loads(run.config)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_after_kills_each_point_that_the_server_took_is_there_once(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    with serving() as server:
        variables = server.variables | {"WANDB_DIR": str(tmp_path), "HOME": str(tmp_path)}
        story = Story(tmp_path, seed)
        for begin in range(0, 160, 40):
            story.train(range(begin, begin + 40))
            story.run.flush()
            mirror_runs.send(story.dir, "wandb", {}, generator.randint(1, 300), variables)
        story.finish()
        done = mirror_runs.send(story.dir, "wandb", {}, variables=variables)
        assert "done=True" in done.stdout, done.stderr
        [run] = server.runs.values()
        found, wanted = ours(points_of(run)), ours(story.points)
        assert not wanted - found, "nothing is lost"
        assert not found - wanted, "nothing is doubled"

"""What a configuration says is the same wherever it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written_runs import WrittenRun

from barograph import forecast, runs
from barograph.analysis.compare.facts import gather
from barograph.core.configuration import PLANNED_STEPS, Configuration, planned_steps
from barograph.doctor.replay import replay
from barograph.views.server.places import RunPlace
from barograph.views.server.rows import RunRow, signature
from barograph.views.top.watching import RunWatch

PLANS: list[tuple[dict[str, Any], int | None]] = [
    ({"total_steps": 400, "config": {"max_steps": 900}}, 400),  # what the run was told counts before its options
    ({"config": {"max_steps": 900}}, 900),
    ({"config": {"training": {"steps": "1,200"}}}, 1200),
    ({"config": {"trainer/train_iters": 700, "lr_decay_iters": 600}}, 700),
    ({"config": {"n-steps": 800, "save_steps": 50}}, 800),
    ({"config": {"max_steps": -1, "num_train_steps": 300}}, 300),
    ({"config": {"max_steps": True, "epochs": 3}}, None),
    ({"config": {}}, None),
]


@pytest.mark.parametrize(("about", "planned"), PLANS)
def test_every_part_knows_the_same_plan(tmp_path: Path, about: dict[str, Any], planned: int | None) -> None:
    written = WrittenRun(tmp_path)
    for step in range(200):
        written.rank(0).loss(step, 3.0 / (step + 1) + 1)
    path = written.dir / "run_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | about))
    written.end()
    (run,) = runs(tmp_path)
    row = RunRow(RunPlace("r", written.dir, tmp_path))
    row.build(signature(written.dir))
    assert planned_steps(run.manifest) == planned
    assert replay(run).seen.facts.get("planned_steps") == planned
    assert gather(run).planned_steps == planned
    assert row.data["total_steps"] == planned
    assert RunWatch(run).progress()[1] == planned
    assert forecast(run).planned_steps == planned


@pytest.mark.parametrize("name", PLANNED_STEPS)
def test_a_name_is_found_at_any_depth_and_in_any_spelling(name: str) -> None:
    dashed = name.rpartition(".")[2].replace("_", "-").upper()
    for config in ({name: 70}, {"a": {name: 70}}, {f"a/b/{name}": 70}, {name: "70"}, {name: 70.0}):
        assert planned_steps({"config": config}) == 70, config
    if "." not in name:
        assert planned_steps({"config": {"trainer": {dashed: 70}}}) == 70
    assert Configuration({name: "seventy"}).count(PLANNED_STEPS) is None


def test_a_configuration_of_thousands_of_sections_is_read_to_a_depth() -> None:
    deep: dict[str, Any] = {"max_steps": 5}
    for _ in range(5000):
        deep = {"a": deep}
    assert planned_steps({"config": deep}) is None
    assert planned_steps({"config": deep | {"max_steps": 7}}) == 7

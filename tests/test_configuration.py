"""What a configuration says is the same wherever it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from written_runs import WrittenRun

from barograph import forecast, runs
from barograph.analysis.compare.facts import gather
from barograph.core.configuration import (
    ACCUMULATION,
    BATCH,
    CLIP,
    PLANNED_STEPS,
    PROCESSES,
    SEQUENCE,
    Configuration,
    planned_steps,
)
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.facts import facts_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.remedies import clip_limit, fitting
from barograph.doctor.replay import replay
from barograph.doctor.rules.loss.given import summands
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


@pytest.mark.parametrize("spelling", [str, str.upper, lambda name: name.replace("_", "-")])
@pytest.mark.parametrize(
    ("batch", "accumulation", "processes", "sequence", "clip"),
    [
        *((name, "accumulation", "world_size", "block_size", "clip") for name in BATCH),
        *(("batch_size", name, "world_size", "seq_len", "grad_clip") for name in ACCUMULATION),
        *(("bsz", "grad_accum", name, "length", "max_grad_norm") for name in PROCESSES),
        *(("batch", "accum_iter", "num_gpus", name, "clip_grad") for name in SEQUENCE),
        *(("batch_size", "accum_freq", "n_gpus", "n_ctx", name) for name in CLIP),
    ],
)
def test_a_batch_is_the_same_for_a_comparison_and_for_a_rule(
    tmp_path: Path, spelling: Any, batch: str, accumulation: str, processes: str, sequence: str, clip: str
) -> None:
    config: dict[str, Any] = {}
    for name, value in zip((batch, accumulation, processes, sequence, clip), (6, "4", 2, 48, 0.5), strict=True):
        section, _, leaf = name.rpartition(".")
        config.setdefault(section or "trainer", {})[spelling(leaf)] = value
    written = WrittenRun(tmp_path)
    path = written.dir / "run_manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"config": config}))
    written.end()
    (run,) = runs(tmp_path)
    facts = gather(run)
    assert (facts.batch_samples, facts.sequence, facts.batch_tokens) == (48, 48, 48 * 48)
    history = RunHistory(facts_of(config))
    assert {(2, "ranks"), (4, "micro-batches"), (6, "examples"), (48, "tokens")} <= set(summands(history))
    assert clip_limit(history) == 0.5


def test_names_in_humps_are_names_with_underscores() -> None:
    config = {"trainer": {"gradAccumSteps": 4, "maxGradNorm": 1.0, "seqLen": 512}}
    options = Configuration(config)
    assert [options.amount(names) for names in (ACCUMULATION, CLIP, SEQUENCE)] == [4, 1, 512]


def test_what_switches_an_option_on_is_no_number_of_it() -> None:
    options = Configuration({"clip_grad": True, "gradient_clipping": "norm", "clip_norm": 0.0, "clip": 2})
    assert options.amount(CLIP) == 2 and options.amount(BATCH) is None


@pytest.mark.parametrize("number", ["1.0", "0.25", "1e-3"])
def test_an_advice_that_ends_with_a_number_is_read(number: str) -> None:
    advice = [f"Clip gradients to a norm of {number}.", "Wait."]
    finding = Finding(rule="r", family="f", kind="k", severity="warning", step=5, message="m", remedies=advice)
    for limit, kept in ((2.0, 2), (1e-5, 1)):
        history = RunHistory(facts_of({"grad_clip": limit}))
        assert len(fitting(finding, history).remedies) == kept

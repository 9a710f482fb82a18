"""What a report says is what the run did: figures against what was logged, and no figure where none is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from reported_runs import broken, sound, start, stored

from barograph.query.stored import StoredRun
from barograph.store.write import ImportWriter
from barograph.views.report.assemble import assemble
from barograph.views.report.content import Chart, Heat, Report, ReportFinding, ReportTable, Sentence, Tiles


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return sound(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def report(good: StoredRun) -> Report:
    return assemble(good)


def said(made: Report, slug: str) -> str:
    (one,) = (one for one in made.sections if one.slug == slug)
    return " ".join(block.text for block in one.blocks if isinstance(block, Sentence))


def everything(made: Report) -> str:
    return " ".join(said(made, one.slug) for one in made.sections)


def charts(made: Report) -> dict[str, Chart]:
    return {block.slug: block for one in made.sections for block in one.blocks if isinstance(block, Chart)}


def test_the_order_is_that_of_a_careful_reader(report: Report) -> None:
    slugs = [one.slug for one in report.sections]
    order = ["loss", "header", "hardware", "runtime", "hyper-parameters", "schedule", "gradients", "throughput",
             "system", "evaluations", "checkpoints", "samples", "findings", "forecast", "cost",
             "environment"]  # fmt: skip
    assert [slug for slug in slugs if slug in order] == order


def test_the_losses_figures_are_those_of_the_run(good: StoredRun, report: Report) -> None:
    value = good.series("train/loss").value
    few = len(value) // 20
    text = said(report, "loss")
    assert f"fell from {value[:few].mean():.5g} to {value[-few:].mean():.5g}" in text
    assert f"{value.min():.5g}, at step {int(good.series('train/loss').step[value.argmin()])}" in text
    assert f"lowest at its end, {good.series('eval/loss').value[-1]:.5g} at step 400" in text


def test_every_figure_of_a_sentence_is_in_its_text_and_has_a_source(report: Report) -> None:
    found = [
        block for one in report.sections for block in one.blocks if isinstance(block, Sentence) and not block.source
    ]
    assert sum(len(one.figures) for one in found) > 40
    for sentence in found:
        for figure in sentence.figures:
            assert figure.text in sentence.text
            if isinstance(figure.value, float | int) and figure.text:
                assert figure.source, sentence.text


def test_training_and_evaluation_loss_are_read_together(report: Report) -> None:
    names = {line.name for line in charts(report)["loss"].lines}
    assert names == {"train/loss", "eval/loss"}


def test_checkpoints_samples_and_evaluations_are_told(report: Report) -> None:
    assert "2 checkpoints were saved" in said(report, "checkpoints")
    assert "the one of step 400 has the lowest validation loss" in said(report, "checkpoints")
    (samples,) = (one for one in report.sections if one.slug == "samples")
    bodies = [getattr(block, "body", None) for block in samples.blocks]
    assert "Once xx" in bodies and "Once upon a time" in bodies
    (evaluations,) = (one for one in report.sections if one.slug == "evaluations")
    table = next(block for block in evaluations.blocks if isinstance(block, ReportTable))
    assert table.rows[0][1].text == "8"  # type: ignore[union-attr]


def test_layers_are_heat_maps_and_not_charts(good: StoredRun, report: Report) -> None:
    heats = [block for one in report.sections for block in one.blocks if isinstance(block, Heat)]
    assert [one.grid.rows for one in heats] == [tuple(f"blocks.{at}.w" for at in range(4))]
    assert float(np.nanmax(heats[0].grid.values)) == good.series("gradients/blocks.3.w/norm").value.max()
    assert not any(line.name.startswith("gradients/") for chart in charts(report).values() for line in chart.lines)


def test_the_forecast_is_held_against_the_outcome(good: StoredRun, report: Report) -> None:
    outcome = good.series("train/loss").value[-20:].mean()
    text = said(report, "forecast")
    assert "At 30% of its steps" in text
    assert any(f"it ended at {value}" in text for value in (f"{outcome:.4g}", f"{outcome:.3g}", f"{outcome:.2f}"))


def test_a_price_gives_a_cost_only_where_there_were_devices(good: StoredRun) -> None:
    assert "how many devices it held is not recorded (--devices" in said(assemble(good, price=2.0), "cost")
    assert "The run cost" in said(assemble(good, price=2.0, devices=4), "cost")


def test_a_run_with_devices_and_a_price_says_what_it_cost(tmp_path: Path) -> None:
    run = start(tmp_path, "paid", config={"max_steps": 50}, price_per_gpu_hour=3.0)
    for step in range(50):
        run.log_step(step, 0.0, 1000, 100.0, 1.0, 3.0 - step / 50, 1e-3)
        if step % 10 == 0:
            run.log_gpu_state(step, 0, {"power": 400_000, "temperature": 60, "gpu_util": 90})
    run.finish()
    found = stored(tmp_path, "paid")
    cost = found.cost(price_per_gpu_hour=7200.0)
    made = assemble(found, price=7200.0)
    shown = f"{cost['cost']:,.2f}" if cost["cost"] >= 1 else f"{cost['cost']:.3g}"
    assert f"The run cost {shown}" in said(made, "cost")


def test_a_run_that_broke_is_told_up_to_where_it_was_finite(tmp_path: Path) -> None:
    made = assemble(broken(tmp_path))
    text = said(made, "loss")
    assert (
        "150 of the 300 values of train/loss are not finite, the first at step 150, and none is after step 149" in text
    )
    assert "While it was finite, up to step 149" in text
    assert "150 logged steps, 50% of all" in said(made, "cost")
    tiles = next(block for block in made.sections[0].blocks if isinstance(block, Tiles))
    (loss,) = (row for row in tiles.rows if row[0] == "training loss")
    assert loss[1].text == "nan" and "step 149" in loss[2]
    findings = [block for one in made.sections for block in one.blocks if isinstance(block, ReportFinding)]
    assert findings[0].severity == "critical"
    flags = charts(made)["loss"].flags
    assert flags[0].number == 1 and flags[0].step == findings[0].step and abs(flags[0].step - 149) <= 1
    assert made.mood == "bad"


def test_a_run_of_no_steps_says_that_there_is_nothing_to_say(tmp_path: Path) -> None:
    start(tmp_path, "none").finish()
    made = assemble(stored(tmp_path, "none"))
    assert "The run logged no step" in said(made, "header")
    assert "No loss is recorded." in said(made, "loss")
    assert "No configuration is recorded" in everything(made)
    tiles = next(block for block in made.sections[0].blocks if isinstance(block, Tiles))
    assert "last step" not in [row[0] for row in tiles.rows]


def test_a_run_of_one_step_has_values_and_no_curves(tmp_path: Path) -> None:
    run = start(tmp_path, "one")
    run.log({"loss": 2.5}, step=7)
    run.finish()
    made = assemble(stored(tmp_path, "one"))
    assert "a single step, step 7" in said(made, "header")
    assert "The training loss has one value, 2.5." in said(made, "loss")
    assert "one value" in said(made, "forecast")


def test_a_run_that_was_never_finite_has_no_figures_of_its_loss(tmp_path: Path) -> None:
    run = start(tmp_path, "nan", config={"max_steps": 40})
    for step in range(40):
        run.log_step(step, 0.0, 10, 5.0, math.nan, math.nan, 1e-3)
    run.finish()
    made = assemble(stored(tmp_path, "nan"))
    assert "train/loss was never finite in 40 points" in said(made, "loss")
    assert "fell" not in said(made, "loss") and "nan" not in said(made, "loss")
    assert "be compared with the outcome" in said(made, "forecast")


def test_a_run_that_goes_on_is_reported_as_it_stands(tmp_path: Path) -> None:
    run = start(tmp_path, "alive", config={"max_steps": 1000})
    for step in range(120):
        run.log_step(step, 0.0, 10, 5.0, 1.0, 3 - step / 100, 1e-3)
    run.flush()
    made = assemble(stored(tmp_path, "alive"))
    assert "is still running at step 119, 12% of 1,000 planned steps" in said(made, "header")
    assert "those at the time of this report" in said(made, "header")
    assert not [one for one in made.sections if one.title == "Forecast against outcome"]
    run.finish()


def test_a_run_that_stopped_early_has_no_outcome_to_hold_a_forecast_against(tmp_path: Path) -> None:
    run = start(tmp_path, "early", config={"max_steps": 1000})
    for step in range(300):
        run.log_step(step, 0.0, 10, 5.0, 1.0, 2 + 3 * math.exp(-step / 50), 1e-3)
    run.finish()
    made = assemble(stored(tmp_path, "early"))
    assert "ended at step 299 of 1,000 planned" in said(made, "forecast")


def test_series_of_users_own_are_drawn_and_listed(tmp_path: Path) -> None:
    run = start(tmp_path, "own")
    for step in range(100):
        run.log({"score": step * 0.1, "still": 1.0}, step=step)
    run.finish()
    made = assemble(stored(tmp_path, "own"))
    (rest,) = (one for one in made.sections if one.slug == "other-series")
    assert [block.title for block in rest.blocks if isinstance(block, Chart)] == ["score"]
    table = next(block for block in rest.blocks if isinstance(block, ReportTable))
    assert {row[0].text for row in table.rows} >= {"score", "still"}  # type: ignore[union-attr]


def test_steps_that_a_resume_superseded_are_not_in_the_figures(tmp_path: Path) -> None:
    run = start(tmp_path, "again")
    for step in range(100):
        run.log({"train/loss": 9.0 if step >= 60 else 5.0 - step / 100}, step=step)
    run.rewind(60)
    for step in range(60, 100):
        run.log({"train/loss": 5.0 - step / 100}, step=step)
    run.finish()
    made = assemble(stored(tmp_path, "again"))
    assert "its highest 5, at step 0" in said(made, "loss")
    assert any(isinstance(block, ReportTable) and block.label == "Segments of the run"
               for one in made.sections for block in one.blocks)  # fmt: skip


def test_what_the_doctor_is_not_given_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph.views.report.subject.MOST_LOOKS", 10)
    made = assemble(sound(tmp_path))
    assert "one record in 2 was checked" in said(made, "findings")


def test_a_log_without_the_steps_gives_no_account_of_the_time(tmp_path: Path) -> None:
    run = start(tmp_path, "wide")
    run.finish()
    writer = ImportWriter(run.dir / "store" / "bulk")
    step = np.arange(1_000)
    writer.points(("train/loss",), step, 1_800_000_000_000_000 + step * 1_000_000, np.ones((1_000, 1)), 1)
    writer.commit(0, ())
    made = assemble(stored(tmp_path, "wide"))
    assert "From its first logged step to its last the run took 16m39s" in said(made, "runtime")
    assert "goodput" not in everything(made)


def test_an_evaluation_below_the_training_loss_is_no_gap_that_widens(tmp_path: Path) -> None:
    run = start(tmp_path, "below")
    for step in range(200):
        run.log({"train/loss": 3 - step / 200, "eval/loss": 2.5 - step / 210}, step=step)
    run.finish()
    text = said(assemble(stored(tmp_path, "below")), "loss")
    assert "below the training loss around it" in text and "widens" not in text and "-" not in text


@pytest.mark.parametrize(("first", "best", "share"), [(0, 29, "75%"), (0, 59, "50%"), (1, 90, "25%")])
def test_the_steps_after_the_best_evaluation_are_a_share_of_all_steps(
    first: int, best: int, share: str, tmp_path: Path
) -> None:
    """Also where the best evaluation is the first: the steps before it are steps of the run too."""
    run = start(tmp_path, "best", sidecar=False)
    for step in range(first, first + 120):
        run.log({"train/loss": 2.5 - step / 1000}, step=step)
        if (step + 1 - first) % 30 == 0:
            run.log({"eval/loss": 2.0 if step == best else 2.5}, step=step)
    run.finish()
    assert f"What came after step {best}, {share} of the steps" in said(assemble(stored(tmp_path, "best")), "cost")

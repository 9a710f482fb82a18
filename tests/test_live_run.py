"""A run that is being written is asked as a stored one is."""

from __future__ import annotations

from pathlib import Path

import pytest

import barograph


def test_a_run_in_progress_answers_what_its_stored_form_answers(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with barograph.init("p", "a", dir=tmp_path, verbosity=-2) as run:
        for step in range(1, 21):
            run.log({"train/loss": 1.0 / step}, step=step)
        stored = barograph.StoredRun(run.dir)
        assert run.names() == stored.names() == ["train/loss"]
        assert run.series("train/loss").value.tolist() == stored.series("train/loss").value.tolist()
        assert len(barograph.frame(run)) == len(barograph.frame([run])) == len(barograph.frame(stored)) == 20
        assert barograph.lineage(run).trunk.kept.steps == barograph.lineage(stored).trunk.kept.steps == 20
        assert run.goodput().held > 0 and run.cost().keys() == stored.cost().keys()
        assert barograph.stretches(run, "train/loss").live.step.tolist() == list(range(1, 21))
        assert "train/loss" in barograph.report_html(run)
        assert {one["rule"] for one in barograph.diagnose(run)["findings"]} == {
            one["rule"] for one in barograph.diagnose(stored)["findings"]
        }
        assert barograph.report([run], tmp_path / "report") == 0
        assert (tmp_path / "report" / "report.html").is_file()
        assert barograph.forecast(run).reason == barograph.forecast(stored).reason


def test_a_misspelt_name_of_a_run_is_an_attribute_error(tmp_path: Path) -> None:
    with barograph.init("p", "a", dir=tmp_path, verbosity=-2) as run, pytest.raises(AttributeError, match="lgo"):
        run.lgo  # noqa: B018

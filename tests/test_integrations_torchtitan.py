"""Loggers with the methods of torchtitan and torchtune, called as these call them."""

from __future__ import annotations

from pathlib import Path

import pytest

import barograph
from barograph.integrations.torchtitan import TorchtitanLogger, TorchtuneLogger


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")


def test_a_logger_of_torchtitan() -> None:
    logger = TorchtitanLogger({"training": {"steps": 3}}, tag="ft", project="titan")
    for step in range(1, 4):
        logger.log({"loss_metrics/global_avg_loss": 3.0 / step, "mfu(%)": 40.0}, step)
    logger.close()
    run = barograph.StoredRun(logger.run.dir)
    assert list(run.series("ft/loss_metrics/global_avg_loss").step) == [1, 2, 3]
    assert run.manifest["config"] == {"training": {"steps": 3}} and run.manifest["status"] == "finished"


def test_a_logger_of_torchtune() -> None:
    with barograph.init(project="own", console="none") as run:
        logger = TorchtuneLogger()
        logger.log_config({"model": {"_component_": "llama3_2_1b"}})
        logger.log_dict({"loss": 1.0, "lr": 2e-5}, step=1)
        logger.log("loss", 0.5, 2)
        logger.close()
        assert run.about.status == "running" and run.config["model"]["_component_"] == "llama3_2_1b"
    assert list(barograph.StoredRun(run.dir).series("loss").step) == [1, 2]

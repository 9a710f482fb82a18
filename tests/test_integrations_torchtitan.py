"""Loggers with the methods of torchtitan, torchtune and DeepSpeed, called as these call them."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.integrations.deepspeed import add_monitor
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


class Monitor:
    """Another monitor of the engine."""

    def __init__(self) -> None:
        self.enabled, self.events, self.tb_monitor = True, [], "kept"  # type: ignore[var-annotated]

    def write_events(self, events: list[Any]) -> None:
        self.events += events


def test_a_monitor_of_deepspeed() -> None:
    before = Monitor()
    engine: Any = types.SimpleNamespace(monitor=before, global_steps=0)
    run = add_monitor(engine, project="ds")
    assert add_monitor(engine) is run and engine.monitor.enabled and engine.monitor.tb_monitor == "kept"
    for step in range(1, 4):
        engine.global_steps = step
        engine.monitor.write_events([("Train/Samples/train_loss", 1.0 / step, 32 * step)])
        engine.monitor.write_events([("Train/Samples/lr", 1e-4, 32 * step)])
    run.finish()
    found = barograph.StoredRun(run.dir)
    assert (
        list(found.series("Train/Samples/train_loss").step) == [1, 2, 3] == list(found.series("Train/Samples/lr").step)
    )
    assert {32.0, 64.0, 96.0} == set(found.series("samples").value) and len(before.events) == 6

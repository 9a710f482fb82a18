"""Loggers with the methods of torchtitan and torchtune, called as these call them."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.integrations.torchtitan import TorchtitanLogger, TorchtuneLogger, add_logger


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


class Container:
    """torchtitan's `LoggerContainer`."""

    def __init__(self) -> None:
        self._loggers: list[Any] = []

    def add_logger(self, logger: Any) -> None:
        self._loggers.append(logger)

    def log(self, metrics: dict[str, Any], step: int) -> None:
        for logger in self._loggers:
            logger.log(metrics, step)

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()


class Silent:
    """Its `BaseLogger`, which a rank has that does not log, and every rank where no logger is switched on."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        raise AssertionError("replaced")


def _trainer(logger: Any, stages: int = 1, schedule: str = "1F1B") -> Any:
    names = types.SimpleNamespace
    config = names(training=names(steps=3), parallelism=names(pipeline_parallel_schedule=schedule))
    config.to_dict = lambda: {"training": {"steps": 3}}
    dims = names(pp_enabled=stages > 1, pp=stages, world_size=max(2, stages))
    return names(metrics_processor=names(logger=logger, parallel_dims=dims), config=config)


@pytest.mark.parametrize("logger", [Container(), Silent()], ids=["others", "alone"])
def test_a_trainer_of_torchtitans_gets_one_logger(logger: Any) -> None:
    trainer = _trainer(logger)
    run = add_logger(trainer, project="titan")
    assert add_logger(trainer) is run
    for step in range(1, 4):
        trainer.metrics_processor.logger.log({"loss_metrics/global_avg_loss": 3.0 / step}, step)
    trainer.metrics_processor.logger.close()
    found = barograph.StoredRun(run.dir)
    assert found.series("loss_metrics/global_avg_loss").step.tolist() == [1, 2, 3]
    assert (found.status, found.manifest["total_steps"]) == ("finished", 3)


RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from test_integrations_torchtitan import Silent, _trainer, add_logger
trainer = _trainer(Silent(), int(sys.argv[2]), sys.argv[3])
run = add_logger(trainer, project="titan", dir="runs")
trainer.metrics_processor.logger.log({"loss": -1.0 if run._out.rank != int(sys.argv[4]) else 2.5}, 1)
trainer.metrics_processor.logger.close()
"""


@pytest.mark.parametrize("stages, schedule, rank", [(1, "1F1B", 0), (2, "1F1B", 1), (2, "ZBVZeroBubble", 0)])
def test_the_rank_that_has_the_loss_records_and_all_are_one_run(stages: int, schedule: str, rank: int) -> None:
    words = [sys.executable, "-c", RANK, str(Path(__file__).parent), str(stages), schedule, str(rank)]
    about = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29000"}
    ranks = [
        subprocess.Popen(words, env=os.environ | about | {"RANK": str(number), "LOCAL_RANK": str(number)})
        for number in range(2)
    ]
    assert [process.wait() for process in ranks] == [0, 0]
    (folder,) = Path("runs/titan").glob("titan_*")
    found = barograph.StoredRun(folder)
    assert found.series("loss").value.tolist() == [2.5] and found.status == "finished"
    assert found.manifest["config"] == {"training": {"steps": 3}}

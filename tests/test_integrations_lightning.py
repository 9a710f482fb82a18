"""Lightning and Fabric with a tiny model: the logger, checkpoints, the end, and the callback that looks inside."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import pytest

import barograph

pytest.importorskip("lightning")
import lightning
import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from barograph.integrations.lightning import BarographLogger, BarographMonitor

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")


def stored() -> list[barograph.StoredRun]:
    return [barograph.StoredRun(path.parent) for path in sorted(Path().glob("runs/*/*/run_manifest.json"))]


class Small(LightningModule):
    def __init__(self, width: int = 4, breaks_at: int = -1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch: Any, at: int) -> Any:
        if at == self.hparams["breaks_at"]:
            raise ValueError("broken on purpose")
        loss = self.layer(batch).square().mean()
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: Any, at: int) -> None:
        self.log("val/loss", self.layer(batch).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def data() -> Any:
    return torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=4)


def trainer(logger: Any, **more: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "devices": 1}
    return Trainer(logger=logger, max_steps=6, log_every_n_steps=1, **{**quiet, "enable_checkpointing": False, **more})


def test_a_training_is_recorded_with_its_hyperparameters_and_checkpoints() -> None:
    logger = BarographLogger(project="lit", name="first")
    saves = ModelCheckpoint(every_n_train_steps=2, save_top_k=-1)
    trainer(logger, callbacks=[saves], enable_checkpointing=True).fit(Small(), data(), data())
    (run,) = stored()
    assert list(run.series("train/loss").step) == [0, 1, 2, 3, 4, 5] and len(run.series("val/loss").step) >= 1
    held = run.manifest
    assert held["config"]["width"] == 4 and held["status"] == "finished" and held["name"] == "first"
    assert [each["step"] for each in held["checkpoints"]][:3] == [2, 4, 6]


def test_a_training_that_breaks_is_a_failed_run() -> None:
    with pytest.raises(ValueError, match="on purpose"):
        trainer(BarographLogger()).fit(Small(breaks_at=2), data())
    assert stored()[0].manifest["status"] == "failed"


def test_the_callback_looks_inside_and_times_steps() -> None:
    logger = BarographLogger(project="inside")
    monitor = BarographMonitor(gradients=1)
    trainer(logger, callbacks=[monitor], accumulate_grad_batches=2).fit(Small(), data())
    (run,) = stored()
    assert run.manifest["total_steps"] == 6
    assert list(run.series("speed/step_ms").step) == [0, 1, 2, 3, 4, 5]
    assert list(run.series("model/grad_norm").step) == [0, 1, 2, 3, 4, 5]
    assert any(name.startswith("gradients/") for name in run.names())


def test_the_loggers_contract() -> None:
    logger = BarographLogger(project="contract", run=None)
    assert isinstance(logger, lightning.pytorch.loggers.Logger)
    logger.log_hyperparams(argparse.Namespace(lr=0.1), extra=1)
    logger.log_hyperparams({"nested": {"depth": 2}})
    logger.log_metrics(metrics={"a": torch.tensor(1.0)}, step=3)
    logger.log_graph(Small())
    logger.save()
    assert logger.name == "contract" and logger.version == logger.experiment.id and logger.group_separator == "/"
    assert Path(logger.log_dir).parent == Path(logger.root_dir) and Path(logger.root_dir).parent == Path(
        logger.save_dir
    )
    worker = pickle.loads(pickle.dumps(logger))
    worker.finalize("success")
    assert logger.run.about.status == "running"
    for _ in range(2):
        logger.finalize("success")
    (run,) = stored()
    assert run.manifest["status"] == "finished" and run.manifest["config"]["nested"] == {"depth": 2}


def test_a_logger_that_is_used_after_its_end_begins_another_run() -> None:
    logger = BarographLogger(project="again")
    for _ in range(2):
        trainer(logger).fit(Small(), data())
        assert Path(logger.log_dir).name == logger.version  # begins no run
    assert [list(run.series("train/loss").step) for run in stored()] == [[0, 1, 2, 3, 4, 5]] * 2


def test_fabric_takes_the_same_logger_and_a_run_of_the_programs_own() -> None:
    with barograph.init(project="own", console="none") as run:
        fabric = Fabric(accelerator="cpu", devices=1, loggers=BarographLogger())
        fabric.launch()
        for step in range(3):
            fabric.log("loss", 1.0 / (step + 1), step=step)
        fabric.log_dict({"lr": 0.1}, step=2)
        fabric.logger.finalize("success")
        assert run.about.status == "running"
    (found,) = stored()
    assert list(found.series("loss").step) == [0, 1, 2]


def test_of_two_loggers_and_two_monitors_at_once_one_records(caplog: pytest.LogCaptureFixture) -> None:
    loggers = [BarographLogger(project="two"), BarographLogger(project="two")]
    trainer(loggers, callbacks=[BarographMonitor(gradients=1), BarographMonitor(gradients=1)]).fit(Small(), data())
    (run,) = stored()
    steps = list(run.series("train/loss").step)
    assert steps == sorted(set(steps)) and len(list(run.series("model/grad_norm").step)) == run.manifest["total_steps"]
    said = [record.getMessage() for record in caplog.records if "at once" in record.getMessage()]
    assert len(said) == 2 and "two of BarographLogger record into the run" in said[1]
    assert run.status == "finished"


def test_a_logger_may_record_into_the_run_of_one_whose_training_is_over() -> None:
    with barograph.init(project="own", console="none") as run:
        for _ in range(2):
            trainer(BarographLogger()).fit(Small(), data())
    assert len(barograph.StoredRun(run.dir).series("train/loss").step) > 0
    assert len({record.time for record in barograph.StoredRun(run.dir).records("metrics")}) > 6

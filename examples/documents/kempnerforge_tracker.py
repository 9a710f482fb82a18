"""Everything in the reference of `kempnerforge.metrics.tracker`: python examples/documents/kempnerforge_tracker.py

In:   a folder to work in.
Out:  a job that is tracked, stopped and resumed, in a run, in TensorBoard and in W&B. Each step is checked.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import barograph
from barograph import MetricsConfig, MetricsTracker, StepMetrics
from barograph.trackers.tensorboard import TensorBoardBackend
from barograph.trackers.wandb import WandBBackend

FIELDS = ["loss", "grad_norm", "lr", "tokens_per_sec", "mfu", "step_time_sec", "allocated_gb", "peak_gb",
          "reserved_gb", "total_gb", "mem_utilization"]  # fmt: skip


@dataclasses.dataclass
class ModelConfig:
    dim: int = 64
    n_layers: int = 2
    n_heads: int = 4
    vocab_size: int = 256
    ffn_hidden_dim: int = 128


@dataclasses.dataclass
class TrainConfig:
    seq_len: int = 32
    lr: float = 3e-4


@dataclasses.dataclass
class JobConfig:
    metrics: MetricsConfig
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


def job(config: JobConfig, first: int, last: int) -> list[int]:
    """The reference's calls; the steps whose metrics came back."""
    tracker = MetricsTracker(config, num_gpus=2, gpu_peak_tflops=1000.0)
    tracker.init_backends(config)
    returned = []
    for step in range(first, last + 1):
        tracker.start_step()
        loss = math.nan if step == 15 else 3.0 / step
        metrics = tracker.end_step(step, loss=loss, grad_norm=1.0, lr=3e-4, tokens_in_step=4096)
        if metrics is not None:
            assert isinstance(metrics, StepMetrics) and metrics.loss == loss and metrics.grad_norm == 1.0
            assert metrics.tokens_per_sec > 0 and metrics.mfu > 0 and metrics.step_time_sec > 0
            returned.append(step)
    tracker.log_eval({"eval/loss": 2.5}, last)
    tracker.close()
    return returned


def points(folder: Path, name: str) -> dict[int, float]:
    (run,) = barograph.read(folder)
    series = run.series(name)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "BAROGRAPH_GIT": "false"}
    os.environ |= {"BAROGRAPH_MACHINE": "false"}
    assert [field.name for field in dataclasses.fields(StepMetrics)] == FIELDS
    assert dataclasses.astuple(StepMetrics()) == (0.0,) * 11
    config = JobConfig(MetricsConfig(log_interval=10, enable_wandb=True, enable_tensorboard=True, wandb_run_name="job"))
    assert job(config, 1, 20) == [1, 10, 20]
    kept = config.metrics.wandb_run_id  # in the job's checkpoint
    assert kept
    sent = points(folder / "tb_logs", "train/loss")
    assert set(sent) == {1, 10, 15, 20} and math.isnan(sent[15]), "a NaN step between two intervals arrives"
    (copy,) = barograph.read(next((folder / "wandb").glob("offline-run-*")))
    flat = str(copy.config)
    assert "ffn_hidden_dim" in flat and "seq_len" in flat, "the configuration is in every backend"
    resumed = JobConfig(MetricsConfig(log_interval=10, wandb_run_name="job", wandb_run_id=kept))
    assert job(resumed, 21, 30) == [30]
    (run,) = barograph.runs(folder / "runs", project="kempnerforge")
    assert run.series("train/loss").step.tolist() == list(range(1, 31)), "one run, every step"
    assert len(run.series("speed/smoothed/loss")) == 30 and run.series("eval/loss").step.tolist() == [20, 30]
    backends(folder)
    print("all of the reference holds")


def backends(folder: Path) -> None:
    """The two backends by themselves."""
    config = MetricsConfig(tensorboard_dir=str(folder / "alone"), wandb_project="alone")
    for backend in (TensorBoardBackend(config), WandBBackend(config)):
        made: Any = backend
        made.log({"train/loss": 2.0}, 1)
        made.close()
        assert not made.lost
    assert points(folder / "alone", "train/loss") == {1: 2.0}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())

"""MetricsTracker: code written from its document runs, raw and smoothed stay apart, bad input has no speed."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import until

import barograph
from barograph.integrations.tracker import MetricsConfig, MetricsTracker, StepMetrics, backend_metrics, metrics_config


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAROGRAPH_VERBOSITY", "-2")
    monkeypatch.setenv("BAROGRAPH_GIT", "false")
    monkeypatch.setenv("BAROGRAPH_MACHINE", "false")


@pytest.fixture
def run(tmp_path: Path) -> barograph.Run:
    return barograph.init(project="p", dir=tmp_path / "runs")


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_step_metrics_have_the_documents_fields_and_defaults() -> None:
    assert [field.name for field in dataclasses.fields(StepMetrics)] == [
        "loss", "grad_norm", "lr", "tokens_per_sec", "mfu", "step_time_sec",
        "allocated_gb", "peak_gb", "reserved_gb", "total_gb", "mem_utilization",
    ]  # fmt: skip
    assert dataclasses.astuple(StepMetrics()) == (0.0,) * 11


def job(**metrics: Any) -> Any:
    """A job's configuration as KempnerForge has it."""
    model = SimpleNamespace(
        dim=64, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=256, ffn_hidden_dim=128, max_seq_len=32
    )
    return SimpleNamespace(model=model, train=SimpleNamespace(seq_len=32), metrics=MetricsConfig(**metrics))


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        ({"loss": 2.5, "perplexity": 12.2}, "[step 7] eval/loss=2.5000 | perplexity=12.2"),
        (
            {"eval/loss": 2.5, "eval/accuracy": 0.5, "val/acc": 0.25},
            "[step 7] eval/loss=2.5000 | eval/accuracy=0.5 | val/acc=0.25",
        ),
        ({"val_loss": 2.5, "eval/duration_ms": 230}, "[step 7] eval/loss=2.5000 | step_time=0.23s"),
        ({"perplexity": 12.2}, "[step 7] perplexity=12.2"),
    ],
)
def test_all_metrics_of_an_evaluation_are_one_line_of_the_console(
    metrics: dict[str, float], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAROGRAPH_VERBOSITY", "0")
    tracker = MetricsTracker(MetricsConfig())
    tracker.log_eval(metrics=metrics, step=7)
    tracker.close()
    assert [shown for shown in capsys.readouterr().out.splitlines() if "[step" in shown] == [line]
    (stored,) = barograph.runs("runs")
    for name, value in metrics.items():
        assert stored.series("eval/loss" if name in ("loss", "val_loss") else name).value.tolist() == [value]


def test_code_written_from_the_document_runs(tmp_path: Path) -> None:
    config = job(log_interval=5, enable_tensorboard=True, tensorboard_dir=str(tmp_path / "tb"))
    tracker = MetricsTracker(config, num_gpus=2, gpu_peak_tflops=100.0)
    tracker.init_backends(config)
    returned = []
    for step in range(1, 11):
        tracker.start_step()
        time.sleep(0.002)
        returned.append(tracker.end_step(step, loss=3.0 / step, grad_norm=1.0, lr=1e-3, tokens_in_step=64))
    tracker.log_eval({"eval/loss": 2.5, "data/books/tokens": 100}, 10)
    tracker.close()
    assert [metrics is not None for metrics in returned] == [step == 1 or step % 5 == 0 for step in range(1, 11)]
    last = returned[-1]
    assert last is not None and last.loss == pytest.approx(0.3)
    assert last.step_time_sec >= 0.002 and last.tokens_per_sec == pytest.approx(64 / last.step_time_sec)
    stored = barograph.runs(tmp_path / "runs")[0]
    assert len(stored.series("train/loss")) == 10, "every step is in the run"
    mfu = stored.series("train/mfu").value
    assert mfu[-1] == pytest.approx(last.mfu) and 0 < last.mfu < 1
    assert stored.series("eval/loss").value.tolist() == [2.5]
    assert stored.series("data/books/tokens").value.tolist() == [100]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = {path.parent for path in (tmp_path / "tb").rglob("events.*")}
    reader = EventAccumulator(str(events)).Reload()
    assert [point.step for point in reader.Scalars("train/loss")] == [1, 5, 10]
    assert {"smoothed/loss", "gpu/peak_gb", "eval/loss"} <= set(reader.Tags()["scalars"])


def test_the_smoothed_value_is_an_average_and_the_raw_one_is_not(run: barograph.Run, tmp_path: Path) -> None:
    tracker = MetricsTracker(MetricsConfig(log_interval=1), run=run)
    losses = [4.0, 2.0, math.nan, 1.0]
    for step, loss in enumerate(losses):
        tracker.start_step()
        metrics = tracker.end_step(step, loss, 1.0, 1e-3, 10)
        assert metrics is not None and (metrics.loss == loss or math.isnan(loss) == math.isnan(metrics.loss))
    run.finish()
    stored = barograph.runs(tmp_path / "runs")[0]
    raw, smoothed = stored.series("train/loss").value, stored.series("speed/smoothed/loss").value
    assert math.isnan(raw[2]) and raw[3] == 1.0
    assert smoothed.tolist() == pytest.approx([4.0, 3.8, 3.8, 3.52]), "weight 0.1; NaN enters nothing"


def test_a_step_gone_wrong_is_shown_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = barograph.init(project="p", dir=tmp_path / "runs", console="kempnerforge", verbosity=0)
    tracker = MetricsTracker(MetricsConfig(log_interval=100), run=run)
    for step, loss in ((1, 2.0), (2, 1.9), (3, math.nan), (4, 1.8)):
        tracker.start_step()
        tracker.end_step(step, loss, 1.0, 1e-3, 10)
    run.finish()
    shown = [line.split("]")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("[step")]
    assert shown == ["[step 1", "[step 3"]


@pytest.mark.parametrize("tokens", [0, -5, math.nan])
def test_a_step_without_tokens_has_no_speed(run: barograph.Run, tokens: Any, caplog: pytest.LogCaptureFixture) -> None:
    tracker = MetricsTracker(run=run)
    tracker.start_step()
    metrics = tracker.end_step(1, 1.0, 1.0, 1e-3, tokens)
    assert metrics is not None and math.isnan(metrics.tokens_per_sec) and metrics.step_time_sec > 0
    assert "has no speed" in warnings_of(caplog)


def test_an_end_without_a_start_is_said_and_recorded(run: barograph.Run, caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricsTracker(run=run).end_step(1, 1.0, 1.0, 1e-3, 100)
    assert metrics is not None and metrics.loss == 1.0 and math.isnan(metrics.step_time_sec)
    assert "not begun" in warnings_of(caplog)


def test_an_impossible_mfu_is_flagged_and_not_clipped(run: barograph.Run, caplog: pytest.LogCaptureFixture) -> None:
    tracker = MetricsTracker(job(), gpu_peak_tflops=1e-6, run=run)
    tracker.start_step()
    metrics = tracker.end_step(1, 1.0, 1.0, 1e-3, 10**9)
    assert metrics is not None and metrics.mfu > 1
    assert "can't be" in warnings_of(caplog)


def test_a_missing_field_of_the_model_is_named(run: barograph.Run, caplog: pytest.LogCaptureFixture) -> None:
    config = job()
    del config.model.n_layers
    tracker = MetricsTracker(config, run=run)
    tracker.start_step()
    metrics = tracker.end_step(1, 1.0, 1.0, 1e-3, 10)
    assert metrics is not None and math.isnan(metrics.mfu)
    assert "layers" in warnings_of(caplog)


@pytest.mark.parametrize("gpus", [0, -1, 1.5, True])
def test_a_number_of_devices_that_is_none_is_refused(gpus: Any) -> None:
    with pytest.raises(ValueError, match="num_gpus"):
        MetricsTracker(num_gpus=gpus)


def test_an_interval_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="log_interval"):
        MetricsConfig(log_interval=0)


def test_the_tracker_feeds_the_run_that_is_open(run: barograph.Run) -> None:
    assert MetricsTracker().run is run


def test_a_configuration_may_be_a_mapping_and_its_mistakes_are_named() -> None:
    assert metrics_config({"metrics": {"log_interval": 3}}).log_interval == 3
    with pytest.raises(barograph.ConfigError, match="log_interval"):
        metrics_config({"metrics": {"log_intervall": 3}})


def test_the_keys_are_the_documents() -> None:
    keys = backend_metrics(StepMetrics(), {"loss": 1.0})
    assert set(keys) == {
        "train/loss", "train/grad_norm", "train/lr", "train/tokens_per_sec", "train/mfu", "train/step_time_sec",
        "gpu/allocated_gb", "gpu/peak_gb", "gpu/reserved_gb", "gpu/total_gb", "gpu/mem_utilization", "smoothed/loss",
    }  # fmt: skip


def test_phases_work_between_the_two_calls(run: barograph.Run, tmp_path: Path) -> None:
    tracker = MetricsTracker(run=run)
    for step, _ in enumerate(run.wrap(range(3))):
        tracker.start_step()
        with run.phase("forward"):
            pass
        tracker.end_step(step, 1.0, 1.0, 1e-3, 10)
    run.finish()
    stored = barograph.runs(tmp_path / "runs")[0]
    for name in ("data", "forward", "other"):
        assert len(stored.series(f"speed/phase/{name}_ms")) == 3


def points(folder: Path, name: str) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return {point.step: point.value for point in EventAccumulator(str(folder)).Reload().Scalars(name)}


@pytest.mark.parametrize(
    ("loss", "norm", "sent"),
    [(math.nan, 1.0, {1, 15, 20}), (math.inf, 1.0, {1, 15, 20}), (2.0, math.inf, {1, 15, 20}), (2.0, 1.0, {1, 20})],
)
def test_a_step_gone_wrong_between_two_intervals_reaches_the_backends(
    loss: float, norm: float, sent: set[int], tmp_path: Path
) -> None:
    config = job(log_interval=20, enable_tensorboard=True, tensorboard_dir=str(tmp_path / "tb"))
    tracker = MetricsTracker(config, gpu_peak_tflops=100.0)
    tracker.init_backends(config)
    for step in range(1, 21):
        tracker.start_step()
        spoilt = step == 15
        returned = tracker.end_step(step, loss if spoilt else 2.0, norm if spoilt else 1.0, 1e-3, 64)
        assert (returned is not None) == (step in (1, 20)), "the document's StepMetrics at logging steps alone"
    tracker.close()
    assert set(points(tmp_path / "tb", "train/loss")) == sent


def test_a_norm_that_is_never_given_is_no_news(tmp_path: Path) -> None:
    config = job(log_interval=20, enable_tensorboard=True, tensorboard_dir=str(tmp_path / "tb"))
    tracker = MetricsTracker(config, gpu_peak_tflops=100.0)
    tracker.init_backends(config)
    for step in range(1, 21):
        tracker.start_step()
        tracker.end_step(step, 2.0, math.nan, 1e-3, 64)
    tracker.close()
    assert set(points(tmp_path / "tb", "train/loss")) == {1, 20}


@pytest.mark.parametrize("kind", ["mapping", "namespace", "dataclass"])
def test_the_jobs_configuration_reaches_every_backend(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    names = {"enable_wandb": True, "enable_tensorboard": True, "tensorboard_dir": str(tmp_path / "tb")}
    train = {"seq_len": 32, "optimizer": {"name": "adamw", "eps": 1e-8}, "api_key": "hf_abcdefghijklmnopqrstuvwxyz01"}
    config: Any = {"train": train, "metrics": names}
    if kind != "mapping":
        parts = {"train": SimpleNamespace(**train), "metrics": MetricsConfig(**names)}
        made = dataclasses.make_dataclass("JobConfig", [(name, Any) for name in parts])
        config = made(**parts) if kind == "dataclass" else SimpleNamespace(**parts)
    tracker = MetricsTracker(config)
    tracker.init_backends(config)
    tracker.start_step()
    tracker.end_step(1, 2.0, 1.0, 1e-3, 64)
    wandb = tracker._backends[0]
    assert until(lambda: wandb.run, 120.0), "W&B starts in a thread of its own"
    tracker.close()
    (offline,) = barograph.read(Path(wandb.run.dir).parent)
    (events,) = barograph.read(tmp_path / "tb")
    found = {"W&B": offline.config, "run": barograph.runs(tmp_path / "runs")[0].config}
    for where, about in found.items():
        kept = about.get("train") or {name[6:]: value for name, value in about.items() if name.startswith("train/")}
        assert kept["seq_len"] == 32 and (kept.get("optimizer") or {}).get("eps", kept.get("optimizer/eps")) == 1e-8, (
            where
        )
        assert "hf_abc" not in str(about), where
    table = (next((tmp_path / "tb").rglob("events.*"))).read_bytes()
    assert b"train/optimizer/eps" in table and b"hf_abc" not in table and len(events.series("train/loss")) == 1


def test_a_kept_wandb_run_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")

    def train(first: int, **about: Any) -> MetricsConfig:
        config = MetricsConfig(log_interval=1, wandb_project="kf", wandb_run_name="job", **about)
        tracker = MetricsTracker(config)
        tracker.init_backends(config)
        for step in range(first, first + 5):
            tracker.start_step()
            tracker.end_step(step, 3.0 / step, 1.0, 1e-3, 100)
        tracker.close()
        return config

    kept = train(1, enable_wandb=True).wandb_run_id  # a new W&B run, whose identity is found out later
    assert kept
    train(6, wandb_run_id=kept)
    train(1, wandb_run_id="another")
    train(6, wandb_run_id="another")
    train(1)
    steps = {run.id: run.series("train/loss").step.tolist() for run in barograph.runs()}
    assert steps == {"job": list(range(1, 11)), "job-2": list(range(1, 11)), "job-3": list(range(1, 6))}
    assert barograph.fork("job", step=5, project="kf", wandb_run_id=kept).id not in steps, "a fork is a new run"

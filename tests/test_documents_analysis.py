"""The documents on stability and on run analysis: their example scripts do what the documents ask, from end to end."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import barograph
from barograph.doctor.diagnosis import diagnose
from barograph.trackers.sync import sync

EXAMPLES = Path(__file__).parents[1] / "examples" / "documents"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stability_guide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = script("stability_guide").main(tmp_path)
    printed = capsys.readouterr().out
    assert "HEALTHY TRAINING" in printed and printed.count(": yes (") >= 5 and "not measured" in printed
    names = set(run.names())
    assert {"gradients/0.weight/norm", "gradients/0.weight/mean", "gradients/0.weight/std"} <= names
    assert "updates/0.weight/ratio" in names and "gradients_hist/0.weight" in run.histogram_names()
    monkeypatch.setenv("BAROGRAPH_TENSORBOARD_LAYOUT", "grouped")
    assert sync([run.dir], "tensorboard", out=str(tmp_path / "sent")) == 0  # here no sidecar sends
    (file,) = (tmp_path / "sent").rglob("events.out.tfevents.*")
    tags = accumulator.EventAccumulator(str(file.parent)).Reload().Tags()
    assert {"Loss/train", "Loss/validation", "Gradients/norm_global", "Optimization/lr",
            "Performance/tokens_per_sec", "Gradients/per_layer/0.weight/norm"} <= set(tags["scalars"])  # fmt: skip
    assert "Gradients_Hist/per_layer/0.weight" in tags["tensors"]
    assert len(diagnose(run)["checklist"]) == 8


def test_run_analysis(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    made = script("run_analysis").main(tmp_path)
    log, outlook = made["log"], made["forecast"]
    assert log.config["total_steps"] == 400 and log.config["world_size"] == 8
    assert outlook.final is not None and outlook.planned_steps == 400
    assert log.series("eval/accuracy").value.tolist() == [0.5]
    written = (tmp_path / "log-report" / "report.md").read_text()
    assert "The run cost" in written and "tokens a second" in written and "50.00%" in written
    both = (tmp_path / "comparison" / "report.md").read_text()
    assert "Paris is the capital" in both and "the the the" in both and "changed: stage and lr" in both
    own = (tmp_path / "report" / "report.md").read_text()
    for word in ("Hardware", "Run time", "Learning rate", "Throughput", "Checkpoints", "Samples", "device hours"):
        assert word in own
    tuned = made["tuned"]
    assert isinstance(tuned, barograph.StoredRun) and (tmp_path / "tb").is_dir()
    assert [one["step"] for one in tuned.checkpoints()] == [50, 100]

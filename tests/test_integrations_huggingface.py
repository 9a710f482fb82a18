"""Hugging Face's Trainer with a tiny model: losses, gradients, evaluations, checkpoints, resume, what goes wrong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import barograph

pytest.importorskip("transformers")
from small_trainers import trainer

from barograph.integrations import huggingface
from barograph.integrations.huggingface import BarographCallback

QUIET = {"blackbox": False, "git": False, "console": "none"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")
    huggingface._begun.clear()


def stored() -> list[barograph.StoredRun]:
    return [barograph.StoredRun(path.parent) for path in sorted(Path().glob("runs/*/*/run_manifest.json"))]


def test_a_training_is_recorded_with_gradients_times_evaluations_and_checkpoints(tmp_path: Path) -> None:
    callback = BarographCallback(watch={"gradients": 1}, project="hf", name="first")
    training = trainer(
        tmp_path / "out", [callback], eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3
    )
    training.train()
    training.evaluate()
    training.evaluate(metric_key_prefix="test")
    callback.run.finish()
    (run,) = stored()
    assert list(run.series("train/loss").step) == [2, 4, 6] and list(run.series("eval/loss").step)[:2] == [3, 6]
    assert list(run.series("test/loss").step) == [6] and list(run.series("train/grad_norm").step) == [2, 4, 6]
    gradients = [name for name in run.names() if name.startswith("gradients/") and name.endswith("/norm")]
    assert gradients and {int(step) for step in run.series(gradients[0]).step} == {1, 2, 3, 4, 5, 6}
    assert set(run.series("model/target_shift").value) == {1.0}  # the model shifts its labels itself
    speeds = [record.step for record in run.records() if record.kind == "speed"]
    assert speeds == [1, 2, 3, 4, 5, 6]
    held = run.manifest
    assert held["total_steps"] == 6 and held["config"]["learning_rate"] and held["config"]["model"]["n_layer"] == 1
    assert [each["step"] for each in held["checkpoints"]] == [3, 6] and held["name"] == "first"


def test_report_to_finds_it_once_it_is_imported(tmp_path: Path) -> None:
    training = trainer(tmp_path / "named", report_to="barograph", run_name="by-name")
    training.train()
    huggingface._begun[-1].finish()
    (run,) = stored()
    assert run.manifest["name"] == "by-name" and list(run.series("train/loss").step) == [2, 4, 6]


def test_two_callbacks_at_once_record_once(tmp_path: Path) -> None:
    trainer(tmp_path / "twice", [BarographCallback(watch=False)], report_to="barograph").train()
    huggingface._begun[-1].finish()
    (run,) = stored()
    assert [record.step for record in run.records() if record.kind == "metrics"] == [2, 4, 6, 6]


def test_a_training_that_is_resumed_goes_on_in_its_run(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 1}
    trainer(tmp_path / "out", [BarographCallback(watch=False)], **options).train()
    huggingface._begun[-1].finish()
    again = trainer(tmp_path / "out", [BarographCallback(watch=False)], **options, max_steps=8)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    huggingface._begun[-1].finish()
    (run,) = stored()
    assert list(run.series("train/loss").step) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [segment.kind for segment in run.segments] == ["start", "resume"]


def test_a_run_of_the_programs_own_is_used_and_stays_open(tmp_path: Path) -> None:
    with barograph.init(project="own", **QUIET) as run:
        trainer(tmp_path / "a", [BarographCallback(watch=False)]).train()
        trainer(tmp_path / "b", [BarographCallback(run, watch=False)]).evaluate()
        assert run.about.status == "running"
    assert len(stored()) == 1


def test_trainings_one_after_another_are_runs_of_their_own(tmp_path: Path) -> None:
    callback = BarographCallback(watch=False)
    training = trainer(tmp_path / "a", [callback])
    training.train()
    training.train()  # from the first step again
    trainer(tmp_path / "b", [BarographCallback(watch=False)]).train()
    huggingface._begun[-1].finish()
    runs = stored()
    assert len(runs) == 3 and all(list(run.series("train/loss").step) == [2, 4, 6] for run in runs)
    assert {run.manifest["status"] for run in runs} == {"finished"}


def test_the_filter_of_nan_losses_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barograph"):
        trainer(tmp_path / "out", [BarographCallback(watch=False)], logging_nan_inf_filter=True).train()
    huggingface._begun[-1].finish()
    assert sum("logging_nan_inf_filter" in record.getMessage() for record in caplog.records) == 1


def test_a_stop_that_is_asked_for_ends_the_training(tmp_path: Path) -> None:
    with barograph.init(project="stops", **QUIET) as run:
        training = trainer(tmp_path / "out", [BarographCallback(watch=False)], max_steps=50)
        run.request_stop("enough")
        training.train()
        assert training.state.global_step == 1


RANKS = """
import os, sys
from pathlib import Path
import torch
sys.path[:0] = os.environ["TESTS"].split(os.pathsep)
from small_trainers import trainer
from barograph.integrations.huggingface import BarographCallback
callback = BarographCallback(project="ranks", blackbox=False, git=False)
trainer(Path("out"), [callback], ddp_backend="gloo").train()
callback.run.finish()
torch.distributed.barrier()
torch.distributed.destroy_process_group()  # a rank that exits with threads of gloo running may abort
"""


def test_every_rank_has_its_own_steps(tmp_path: Path) -> None:
    Path("train.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = os.environ | {
        "TESTS": str(Path(__file__).parent),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = stored()
    assert list(run.series("train/loss").step) == [2, 4, 6]
    for rank in (0, 1):
        assert list(run.series("speed/step_ms", rank=rank).step) == [1, 2, 3, 4, 5, 6], run.names()

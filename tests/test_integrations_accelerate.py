"""Accelerate with a tiny model: the tracker by object and by name, and on two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import barograph

pytest.importorskip("accelerate")
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState

from barograph.integrations.accelerate import BarographTracker


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")
    AcceleratorState._reset_state(True)
    PartialState._reset_state()


def stored() -> list[barograph.StoredRun]:
    return [barograph.StoredRun(path.parent) for path in sorted(Path().glob("runs/*/*/run_manifest.json"))]


def train(accelerator: Accelerator) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1))
    for step in range(4):
        loss = model(torch.ones(2, 4)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"train/loss": loss.detach()}, step=step)


@pytest.mark.parametrize("log_with", ["barograph", BarographTracker("mine", name="by-object")], ids=["name", "object"])
def test_a_training_is_recorded(log_with: Any) -> None:
    accelerator = Accelerator(cpu=True, log_with=log_with)
    accelerator.init_trackers("named", config={"lr": 0.1, "layers": 2})
    train(accelerator)
    assert accelerator.get_tracker("barograph", unwrap=True).about.status == "running"
    accelerator.end_training()
    (run,) = stored()
    assert list(run.series("train/loss").step) == [0, 1, 2, 3] and run.manifest["config"] == {"lr": 0.1, "layers": 2}
    assert run.manifest["project"] == ("named" if log_with == "barograph" else "mine")
    assert run.manifest["status"] == "finished"


def test_a_run_of_the_programs_own_stays_open() -> None:
    with barograph.init(project="own", console="none") as run:
        accelerator = Accelerator(cpu=True, log_with="barograph")
        accelerator.init_trackers("other", config={"a": 1})
        train(accelerator)
        accelerator.end_training()
        assert run.about.status == "running" and run.config["a"] == 1
    assert len(stored()) == 1


def test_a_tracker_that_is_used_after_its_end_begins_another_run() -> None:
    tracker = BarographTracker("again")
    for _ in range(2):
        tracker.start()
        tracker.log({"loss": 1.0}, step=0)
        tracker.finish()
    assert len(stored()) == 2


PROGRAM = """
import torch
from accelerate import Accelerator
import barograph.integrations.accelerate
accelerator = Accelerator(cpu=True, log_with="barograph")
accelerator.init_trackers("ranks", config={"lr": 0.1})
for step in range(3):
    accelerator.log({"loss": 1.0 + accelerator.process_index}, step=step)
accelerator.end_training()
"""


def test_two_processes_are_one_run() -> None:
    Path("train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = stored()
    assert list(run.series("loss").value) == [1.0] * 3  # Accelerate calls its trackers on the main process alone
    assert run.manifest["config"] == {"lr": 0.1} and run.manifest["world_size"] == 2

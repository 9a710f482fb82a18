"""Every adapter: sent to workers, used after its end, in a cell that is run again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")


def _run() -> Any:
    run = barograph.init(project="p", console="none")
    return run, run, run.finish


def _wandb() -> Any:
    import barograph.compat.wandb as wandb

    run = wandb.init(project="p")
    return run, run.barograph, run.finish


def _tensorboard() -> Any:
    pytest.importorskip("torch")
    from barograph.compat.tensorboard import SummaryWriter

    writer = SummaryWriter("p/one")
    return writer, writer.barograph, writer.close


def _lightning() -> Any:
    pytest.importorskip("lightning")
    from barograph.integrations.lightning import BarographLogger

    logger = BarographLogger(project="p")
    return logger, logger.run, lambda: logger.finalize("success")


def _huggingface() -> Any:
    pytest.importorskip("transformers")
    from barograph.integrations.huggingface import BarographCallback

    run = barograph.init(project="p", console="none")
    callback = BarographCallback(run=run)
    callback._step = run.step(step=1)
    return callback, run, run.finish


def _accelerate() -> Any:
    pytest.importorskip("accelerate")
    from barograph.integrations.accelerate import BarographTracker

    tracker = BarographTracker("p")
    tracker.start()
    return tracker, tracker.tracker, tracker.finish


def _torchtitan() -> Any:
    from barograph.integrations.torchtitan import TorchtitanLogger

    logger = TorchtitanLogger(project="p")
    return logger, logger.run, logger.close


def _keras() -> Any:
    pytest.importorskip("torch")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    from barograph.integrations.keras import KerasCallback

    run = barograph.init(project="p", console="none")
    return KerasCallback(run=run), run, run.finish


def _deepspeed() -> Any:
    from barograph.integrations.deepspeed import DeepSpeedMonitor

    run = barograph.init(project="p", console="none")
    engine = types.SimpleNamespace(monitor=None, global_steps=0)
    return DeepSpeedMonitor(engine, run), run, run.finish


ADAPTERS = [_run, _wandb, _tensorboard, _lightning, _huggingface, _accelerate, _torchtitan, _keras, _deepspeed]


def _in_a_worker(data: bytes, end: str) -> None:
    found = pickle.loads(data)
    run = getattr(found, "barograph", None) or getattr(found, "run", None) or found
    run.log({"data/index": 7}, step=1)
    if end and hasattr(found, end):
        getattr(found, end)()


@pytest.mark.parametrize("begin", ADAPTERS, ids=lambda begin: begin.__name__.strip("_"))
def test_sent_to_a_worker_it_records_into_the_same_run_and_does_not_end_it(begin: Callable[[], Any]) -> None:
    adapter, run, end = begin()
    run.log({"train/loss": 1.0}, step=0)
    for method in ("fork", "spawn"):
        worker = multiprocessing.get_context(method).Process(target=_in_a_worker, args=(pickle.dumps(adapter), "close"))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    run.log({"train/loss": 0.5}, step=2)
    end()
    found = barograph.StoredRun(run.dir)
    assert found.series("train/loss").step.tolist() == [0, 2] and found.manifest["status"] == "finished"
    assert set(found.series("data/index").value) == {7.0}


@pytest.mark.parametrize("begin", ADAPTERS, ids=lambda begin: begin.__name__.strip("_"))
def test_used_after_its_end_it_says_so_once_and_raises_nothing(
    begin: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, run, end = begin()
    run.log({"train/loss": 1.0}, step=0)
    end()
    with caplog.at_level(logging.WARNING, "barograph"):
        for step in range(1, 4):
            run.log({"train/loss": 1.0}, step=step)
        end()
    assert [record.getMessage() for record in caplog.records if "not recorded" in record.getMessage()][1:] == []
    assert barograph.StoredRun(run.dir).series("train/loss").step.tolist() == [0]


def test_a_cell_that_is_run_again_begins_a_run_and_names_the_one_that_still_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    with caplog.at_level(logging.WARNING, "barograph"):
        first = barograph.init(project="p", name="cell", console="none")
        first.log({"train/loss": 1.0}, step=0)
        assert not [record for record in caplog.records if "still records" in record.getMessage()]
        second = barograph.init(project="p", name="cell", console="none")
    assert len([record for record in caplog.records if "cell still records" in record.getMessage()]) == 1
    second.log({"train/loss": 2.0}, step=0)
    first.finish()
    second.finish()
    assert [barograph.StoredRun(run.dir).series("train/loss").value.tolist() for run in (first, second)] == [
        [1.0],
        [2.0],
    ]


SPAWNED = """
import sys
import torch
import barograph

def work(rank, meeting):
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    run = barograph.init("spawned", dir="runs", console="none")
    for step in range(3):
        run.log({"train/loss": 1.0 + rank}, step=step)
    run.finish()
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    for launch in range(2):
        torch.multiprocessing.spawn(work, (f"{sys.argv[1]}/meeting{launch}",), nprocs=2)
"""


@pytest.mark.slow
def test_processes_that_a_program_spawns_are_ranks_of_one_run_and_the_next_ones_of_another(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(SPAWNED)
    clear = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    subprocess.run([sys.executable, str(program), str(tmp_path)], check=True, env=clear)
    found = [barograph.StoredRun(folder) for folder in sorted(Path("runs/spawned").glob("spawned_*"))]
    assert [run.manifest["world_size"] for run in found] == [2, 2]
    for run in found:
        assert run.status == "finished" and run.series("train/loss").value.tolist() == [1.0] * 3
        assert run.series("train/loss", rank=1).value.tolist() == [2.0] * 3

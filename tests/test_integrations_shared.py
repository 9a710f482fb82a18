"""Every adapter: sent to workers, used after its end, in a cell that is run again."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.training.ending import open_runs


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


ADAPTERS = [_run, _wandb, _tensorboard, _lightning, _huggingface, _accelerate, _torchtitan]


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
    for run in list(open_runs):
        run.finish()
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

"""The thread beside a training that captures CUDA graphs."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import time
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest

import barograph
from barograph.training import captures


def gpu(begun: bool) -> Any:
    return types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: begun))


class Driver:
    """Stands for the driver's library."""

    modes: ClassVar[list[int]] = []

    def __init__(self, name: str):
        assert name == "libcuda.so.1"

        def exchange(mode: Any) -> int:
            Driver.modes.append(mode._obj.value)
            return 0

        self.cuThreadExchangeStreamCaptureMode = exchange


@pytest.mark.skipif(sys.platform != "linux", reason="the library has another name elsewhere")
def test_the_driver_is_told_once_a_gpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    Driver.modes.clear()
    monkeypatch.setitem(sys.modules, "torch", gpu(False))
    assert not captures.leave_alone() and not Driver.modes
    monkeypatch.setitem(sys.modules, "torch", gpu(True))
    assert captures.leave_alone() and Driver.modes == [1]


@pytest.mark.parametrize("half", [types.SimpleNamespace(), types.SimpleNamespace(cuda=types.SimpleNamespace())])
def test_a_torch_that_another_thread_is_importing_ends_no_thread(half: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", half)
    assert not captures.leave_alone()


def test_without_torch_or_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not captures.leave_alone()
    monkeypatch.setitem(sys.modules, "torch", gpu(True))
    monkeypatch.setitem(captures._DRIVERS, sys.platform, "libof_no_driver.so")
    assert captures.leave_alone()


def on_a_gpu() -> bool:
    return importlib.util.find_spec("torch") is not None and importlib.import_module("torch").cuda.is_available()


if on_a_gpu():  # asked here, because a skipped test counts as a failure in CI

    def test_a_capture_goes_on_while_numbers_are_waited_for(tmp_path: Path) -> None:
        torch = importlib.import_module("torch")
        model, given = torch.nn.Linear(64, 64).cuda(), torch.ones(8, 64, device="cuda")
        with barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False) as run:
            for step in range(50):
                model(given).sum().backward()
                run.log({"train/loss": model(given).sum().detach()}, step=step)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):  # in the mode that lets no other thread ask
                    output = model(given)
                    time.sleep(0.02)
                graph.replay()
                assert torch.isfinite(output).all()

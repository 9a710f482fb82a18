"""The thread beside a training that captures CUDA graphs."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any, ClassVar

import pytest

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


def test_without_torch_or_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not captures.leave_alone()
    monkeypatch.setitem(sys.modules, "torch", gpu(True))
    monkeypatch.setitem(captures._DRIVERS, sys.platform, "libof_no_driver.so")
    assert captures.leave_alone()

"""How long a test may wait on a machine that others use too.

In:   seconds that something takes at most on a machine with nothing else to do.
Out:  the same, times how much slower this machine is right now than that one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

_ROUNDS = 20
_NOMINAL = 0.015  # seconds of the work below on one free core of a usual machine


def _work() -> None:
    rows: list[dict[str, Any]] = [
        {"step": step, "loss": 2.0 / (step + 1), "name": f"row {step}"} for step in range(300)
    ]
    for _ in range(_ROUNDS):
        json.loads(json.dumps(rows))


def slowness() -> float:
    """How many times slower than nominal this machine is at this moment; at least 1."""
    began = time.perf_counter()
    _work()
    return max(1.0, (time.perf_counter() - began) / _NOMINAL)


def patient(seconds: float) -> float:
    """A limit in seconds, by the slowest of three looks: a busy machine gives and takes its cores in turns."""
    return seconds * max(slowness() for _ in range(3))


def until(true: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until it is true, on a slow machine as many times longer as it is slower; what it was at last."""
    began, limit = time.monotonic(), 0.0
    while not (found := true()):
        if time.monotonic() - began > max(seconds, limit):
            limit = max(limit, patient(seconds))
            if time.monotonic() - began > limit:
                break
        time.sleep(0.01)
    return found

"""Steps that begin anew with each epoch, counted on.

In:   rows in their order: a step, and the epoch that stands beside it.
Out:  steps that go on: where the step falls while the epoch rises, the epochs before are added.

mmdetection's `{"epoch": 2, "iter": 50}` and tables with the columns `epoch, batch` count so. A step that falls while
the epoch does not rise is a restart, and stays one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy
from numpy.typing import NDArray

from barograph.core.aliases import normal

_MOST = 10_000  # epochs whose beginning is remembered


def column_of(names: Iterable[str], step: str | None) -> str | None:
    """The column that counts epochs beside one that counts steps; None where there is none."""
    if step is None:
        return None
    return next(
        (name for name in names if name != step and normal(name).rpartition("/")[2] in ("epoch", "epochs")), None
    )


class Epochs:
    """Takes rows one after another. `state` is plain JSON."""

    def __init__(self, state: dict[str, Any] | None = None):
        state = state or {}
        self._bases: dict[str, int] = dict(state.get("bases") or {})
        self._kind = state.get("kind")  # of the rows that count; others stand among them
        self._base = int(state.get("base", 0))
        self._last, self._spacing = int(state.get("last", -1)), int(state.get("spacing", 1))
        self._epoch = float(state.get("epoch", -math.inf)) if state.get("epoch") is not None else -math.inf

    @property
    def state(self) -> dict[str, Any]:
        return {
            "bases": self._bases, "kind": self._kind, "base": self._base, "last": self._last,
            "spacing": self._spacing, "epoch": self._epoch if math.isfinite(self._epoch) else None,
        }  # fmt: skip

    def step(self, step: int, epoch: float | None, kind: str = "") -> int:
        """The step of one row. kind: what sort of row it is, such as training or validation."""
        if epoch is None or not math.isfinite(epoch) or epoch != epoch // 1:
            return step + self._base
        if self._kind is None:
            self._kind = kind
        if kind != self._kind:  # an evaluation behind an epoch's rows may count its own batches
            return (max(step, self._last) if epoch == self._epoch else step) + self._base
        if step < self._last and epoch > self._epoch:
            self._base += self._last + max(self._spacing - step, 0)
        elif epoch < self._epoch:  # begun anew
            self._base = self._bases.get(f"{epoch:g}", 0)
        elif step > self._last >= 0:
            self._spacing = step - self._last
        if len(self._bases) < _MOST:
            self._bases.setdefault(f"{epoch:g}", self._base)
        self._last, self._epoch = step, epoch
        return step + self._base

    def steps(self, steps: NDArray[numpy.int64], epochs: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
        """`step` of many rows of one kind."""
        if not len(steps):
            return steps
        if not bool((steps[1:] < steps[:-1]).any()) and (self._last < 0 or steps[0] >= self._last):
            self.step(int(steps[0]), float(epochs[0]))
            self.step(int(steps[-1]), float(epochs[-1]))
            if len(steps) > 1:
                self._spacing = max(int(steps[-1] - steps[-2]), 1)
            return steps + self._base
        pairs = zip(steps.tolist(), epochs.tolist(), strict=True)
        return numpy.array([self.step(step, epoch) for step, epoch in pairs], numpy.int64)

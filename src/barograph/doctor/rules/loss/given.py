"""What backward passes were called with, beside the loss that is logged.

In:   `model/loss_given`, the sum over a step's passes, and `model/losses_given`, their number; the logged loss.
Out:  for each step that has both, how many times the logged loss was differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy

from barograph.doctor.kernel.cursor import RowCursor, is_past, known

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory


class Given(NamedTuple):
    """A step. place: its number, the moment when both were known, its launch. times: the sum of what its passes were
    called with, of the logged loss. passes: how many there were."""

    place: tuple[int, int, int]
    times: float
    passes: float


class GivenLosses:
    """Pairs both, step by step. Steps without a logged loss of their own are left out."""

    def __init__(self) -> None:
        self._cursor = RowCursor()
        self._waiting: list[tuple[int, int, int, float]] = []

    def new(self, history: RunHistory) -> Iterator[Given]:
        """Those that have come since."""
        channel = history.channel("model/loss_given")
        rows = self._cursor.new(channel)
        for at in range(len(rows) if rows is not None else 0):
            assert rows is not None
            self._waiting.append((int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]), float(rows.value[at])))
        loss = history.role("loss")
        if not self._waiting or loss is None or not loss.end:
            return
        logged = loss.rows()
        while self._waiting:
            step, time, segment, value = self._waiting[0]
            same = numpy.flatnonzero((logged.step == step) & (logged.segment == segment))
            if not len(same) and not is_past(loss, step, segment):
                return
            self._waiting.pop(0)
            if len(same) != 1:
                continue
            size, moment = float(logged.value[same[0]]), max(time, int(logged.time[same[0]]))
            times = value / size if size else math.nan
            if math.isfinite(times):
                passes = known(history.channel("model/losses_given"), step, moment, segment)
                yield Given((step, moment, segment), times, passes)

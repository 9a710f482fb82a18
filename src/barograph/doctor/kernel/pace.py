"""How long steps take by the clock, where nothing measures it.

In:   the times at which a run's own rows of its loss were logged. Another tool's times are too coarse, or missing.
Out:  a channel of milliseconds a step that grows with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from barograph.doctor.kernel.channels import Channel
from barograph.doctor.kernel.cursor import RowCursor

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory


def has_times(history: RunHistory) -> bool:
    """Whether the loss of a run has times of Barograph's own clock."""
    loss = history.role("loss") if history.facts.get("source") == "barograph" else None
    return loss is not None and loss.end > 0


class LossPace:
    """Follows one run; pauses between rows, for evaluations and checkpoints, are in the row behind them."""

    def __init__(self) -> None:
        self._cursor = RowCursor()
        self.made: dict[str, Channel] = {}  # by the loss: another may turn out to be it
        self._last = (0, 0, -1)  # step, time, segment

    def channel(self, history: RunHistory) -> Channel | None:
        """Milliseconds a step, up to the newest row; None where there are no times."""
        loss = history.role("loss") if has_times(history) else None
        if loss is None:
            return None
        if loss.name not in self.made:
            self.made[loss.name], self._last = Channel(f"pace of {loss.name}", clock=history.clock), (0, 0, -1)
        made, rows = self.made[loss.name], self._cursor.new(loss)
        if rows is None or not len(rows):
            return made
        step, time, segment = (
            numpy.concatenate([[before], column])
            for before, column in zip(self._last, (rows.step, rows.time, rows.segment), strict=True)
        )
        self._last = int(step[-1]), int(time[-1]), int(segment[-1])
        steps, passed = numpy.diff(step), numpy.diff(time)
        able = (steps > 0) & (passed > 0) & (segment[1:] == segment[:-1])
        if able.any():
            taken = passed[able] / steps[able] / 1000.0
            made.add(step[1:][able], taken, time[1:][able], segment[1:][able])
        return made

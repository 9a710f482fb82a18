"""A rule that walks along the smoothed loss curve.

In:   the series of the loss.
Out:  `CurveRule`, told of each point of the curve, of a new segment, and of the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.curve import Tick, curve_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule


class CurveRule(SeriesRule):
    """A rule that walks along the smoothed loss curve."""

    needs = ("loss",)

    def reset(self) -> None:
        self._tick = 0
        self._segment = -1

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        curve = curve_of(history, channel)
        for tick in curve.rows(self._tick):
            if tick.segment != self._segment:
                self.begin(history, channel, tick, self._segment)
                self._segment = tick.segment
            history.as_of(tick.time)
            yield from self.step(history, channel, tick)
        self._tick = curve.ticks.end

    def begin(self, history: RunHistory, channel: Channel, tick: Tick, old: int) -> None:
        """A segment begins."""
        raise NotImplementedError

    def step(self, history: RunHistory, channel: Channel, tick: Tick) -> Iterator[Finding]:
        """One point of the curve."""
        raise NotImplementedError

"""A rule that walks along the smoothed loss curve.

In:   the series of the loss.
Out:  `Follower`, told of each point of the curve, of a new segment, and of the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barograph.rules.channels import Channel, Seen
from barograph.rules.curve import Cursor, Tick, curve_of
from barograph.rules.finding import Finding
from barograph.rules.rule import Rule

if TYPE_CHECKING:
    pass


class Follower(Rule):
    """A rule that walks along the smoothed loss curve."""

    needs = ("loss",)

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._tick = 0
        self._segment = -1

    def examine(self, seen: Seen) -> Iterator[Finding]:
        channel = seen.role("loss")
        rows = self._cursor.take(channel, seen)
        if rows is None or channel is None:
            return
        if self._cursor.fresh:
            self._tick, self._segment = 0, -1
        curve = curve_of(seen, channel)
        for tick in curve.rows(self._tick):
            if tick.segment != self._segment:
                self.begin(seen, channel, tick, self._segment)
                self._segment = tick.segment
            yield from self.step(seen, channel, tick)
        self._tick = curve.ticks.end
        if seen.facts.get("finished"):
            yield from self.end(seen, channel)

    def begin(self, seen: Seen, channel: Channel, tick: Tick, old: int) -> None:
        """A segment begins."""
        raise NotImplementedError

    def step(self, seen: Seen, channel: Channel, tick: Tick) -> Iterator[Finding]:
        """One point of the curve."""
        raise NotImplementedError

    def end(self, seen: Seen, channel: Channel) -> Iterator[Finding]:
        """The run is over."""
        yield from ()

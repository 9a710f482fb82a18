"""What a watch takes of each step: seconds of its calls, of what settles the step, of its share of the run's thread.

In:   when calls begin and end, on the clock of the model's device.
Out:  the step's seconds without the watch, and the watch's own: for its schedule, and for the `model` record.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class OwnTime:
    """`spent`: seconds in this step's calls so far."""

    def __init__(self, clock: Callable[[], float]):
        self.clock = clock
        self.spent = self._began = 0.0
        self._closed = clock()  # the step before
        self._taken = self._settling = 0.0  # of this step; behind the account of the step before
        self._since = self._gap = 0.0  # since the last record: its own, all
        self._written = self._paid = 0.0  # of the run's thread

    def begin(self) -> None:
        """A call begins."""
        self._began = self.clock()

    def end(self) -> None:
        """It is over."""
        self.spent += self.clock() - self._began

    def step_seconds(self) -> float:
        """Within the last call of a step: how long the step took without the watch."""
        return self._began - self._closed - self.spent

    def besides(self, looked: float) -> float:
        """The step is over, but for its account: what it took beside the seconds that its looks did."""
        now = self.clock()
        self._taken = self.spent + now - self._began
        paid, self._paid = self._paid, self._written
        found = max(0.0, self._taken + self._settling - looked) + self._paid - paid
        self._began = now
        return found

    def settled(self) -> None:
        """The account of the step is settled: the next one begins."""
        now = self.clock()
        self._settling = now - self._began
        self._since += self._taken + self._settling
        self._gap += now - self._closed
        self.spent, self._closed, self._began = 0.0, now, now

    def skipped(self, now: float) -> float:
        """Seconds of a step in which nothing was looked at, which ended at this moment."""
        seconds, self._closed = now - self._closed, now
        return seconds

    def wrote(self, began: float) -> None:
        """The run's thread has written since this moment of its own time."""
        self._written += time.thread_time() - began

    def figures(self) -> dict[str, float]:
        """Of all since the last time: `watch_ms`, and its share of the time as `watch_share`."""
        found = {"watch_ms": round(self._since * 1e3, 4)}
        if self._gap > 0:
            found["watch_share"] = round(self._since / self._gap, 6)
        self._since = self._gap = 0.0
        return found

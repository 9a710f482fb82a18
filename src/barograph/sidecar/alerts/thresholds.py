"""Thresholds: a condition on a metric, and what has been seen of it so far.

In:   the values of metrics, row by row; now and then the time.
Out:  whether the condition stands, has just ended, or says nothing.

Pure: the same values give the same answers. What a value is compared with never holds the value itself.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
from bisect import bisect_left, insort
from collections import deque
from typing import Literal

from barograph.core.text import number

Answer = Literal["quiet", "stands", "over", "settled"]
"""`settled`: the values have been at a new level for so long that it is the normal one now."""


@dataclasses.dataclass(frozen=True, slots=True)
class Threshold:
    """One entry of `alerts`; options.py checks it. docs/guides/alerts.md describes each field.

    rows: rows in a row for which the condition must hold, and then not hold. after: first rows that don't count.
    change: relative to the median of the last `window` rows; negative for a drop. missing: seconds.
    notify: addresses instead of the run's own, None for those. cooldown: seconds, None for the run's own.
    """

    metric: str
    above: float | None = None
    below: float | None = None
    change: float | None = None
    missing: float | None = None
    not_finite: bool = False
    window: int = 50
    rows: int = 1
    after: int = 0
    severity: str = "warning"
    title: str = ""
    notify: tuple[tuple[str, str], ...] | None = None
    cooldown: float | None = None

    @property
    def is_pattern(self) -> bool:
        return any(sign in self.metric for sign in "*?[")

    def pattern(self) -> re.Pattern[str]:
        """What names match, beside the very name; `*` goes across `/`."""
        return re.compile(fnmatch.translate(self.metric))

    def condition(self) -> str:
        """The condition in words."""
        parts = []
        if self.above is not None:
            parts.append(f"above {number(self.above, 6)}")
        if self.below is not None:
            parts.append(f"below {number(self.below, 6)}")
        if self.change is not None:
            word = "up" if self.change > 0 else "down"
            parts.append(f"{word} by {abs(self.change):.4g} of the median of {self.window} rows")
        if self.missing is not None:
            parts.append(f"no value for {number(self.missing, 6)} s")
        if self.not_finite:
            parts.append("not finite")
        lasting = f" for {self.rows} rows" if self.rows > 1 and self.missing is None else ""
        return " or ".join(parts) + lasting


class Watched:
    """One metric under one threshold. `value` and `step` are those seen last; `began` the step of the first row
    of the trouble that stands, or stood last."""

    def __init__(self, threshold: Threshold, name: str, now: float):
        self.threshold, self.name = threshold, name
        self.cause = f"{threshold.metric}: {threshold.condition()}" + (f" [{name}]" if threshold.is_pattern else "")
        self.value, self.step, self.began = math.nan, 0, 0
        self.active = False
        self._seen = self._breaches = self._calm = 0
        self._heard_at = now
        self._normal = Normal(threshold.window) if threshold.change is not None else None

    def begin(self, now: float) -> None:
        """Nothing is missing before this time."""
        self._heard_at = max(self._heard_at, now)

    @property
    def usual(self) -> float:
        """What the value is compared with for `change`; NaN where nothing is."""
        return self._normal.median if self._normal is not None else math.nan

    def see(self, value: float, step: int, now: float) -> Answer:
        """A value of the metric at a step. A value that is not finite says nothing, but for `not_finite`."""
        self.value, self.step, self._heard_at = value, step, now
        if self.threshold.missing is not None:
            return self._end() if self.active else "quiet"
        self._seen += 1
        if self._seen <= self.threshold.after:
            return "quiet"
        breach = self._breach(value)
        if breach is None:
            return "quiet"
        if breach:
            return self._worse(value)
        self._breaches = 0
        if self._normal is not None:
            self._normal.add(value)
        if not self.active:
            return "quiet"
        self._calm += 1
        return self._end() if self._calm >= self.threshold.rows else "quiet"

    def tick(self, now: float, step: int) -> Answer:
        """The time: for `missing` alone."""
        limit = self.threshold.missing
        if limit is None or now - self._heard_at <= limit:
            return "quiet"
        if not self.active:
            self.active, self.began, self.step = True, step, step
        return "stands"

    def text(self) -> str:
        """What there is to say of it, with its numbers."""
        if self.threshold.missing is not None:
            if self.active:
                return f"{self.name} has had {self.threshold.condition()}"
            return f"{self.name} is there again: {number(self.value, 6)}"
        value = f"{self.name} is {number(self.value, 6)}"
        if self._normal is not None and not math.isnan(self.usual):
            value += f", usually {number(self.usual, 6)}"
        if self.active:
            return f"{value}: {self.threshold.condition()}, since step {self.began}"
        return f"{value}; it was {self.threshold.condition()}"

    def _end(self) -> Answer:
        self.active = False
        self._breaches = self._calm = 0
        return "over"

    def _worse(self, value: float) -> Answer:
        if not self.active and self._breaches == 0:
            self.began = self.step
        self._breaches += 1
        self._calm = 0
        if self._normal is not None and self._normal.differs(value):
            self.active, self._breaches = False, 0
            return "settled"
        if self._breaches >= self.threshold.rows:
            self.active = True
        return "stands" if self.active else "quiet"

    def _breach(self, value: float) -> bool | None:
        told = self.threshold
        if told.not_finite:
            return not math.isfinite(value)
        if math.isnan(value):
            return None
        if self._normal is not None and told.change is not None:
            if math.isinf(value):
                return None
            usual = self._normal.median
            if math.isnan(usual) or usual == 0:  # nothing is relative to nothing
                self._normal.add(value)
                return None
            relative = (value - usual) / abs(usual)
            return relative >= told.change if told.change > 0 else relative <= told.change
        above = told.above is not None and value > told.above
        return above or (told.below is not None and value < told.below)


class Normal:
    """The median of the last `window` values that were normal; NaN until there are that many.

    Values that differ are kept aside. Once a whole window of them has come in a row, they are the normal.
    """

    def __init__(self, window: int):
        self._window = window
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._aside: list[float] = []

    @property
    def median(self) -> float:
        if len(self._order) < self._window:
            return math.nan
        middle = self._window // 2
        if self._window % 2:
            return self._sorted[middle]
        return self._sorted[middle - 1] / 2 + self._sorted[middle] / 2

    def add(self, value: float) -> None:
        """A normal value."""
        self._aside.clear()
        if len(self._order) == self._window:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._order.append(value)
        insort(self._sorted, value)

    def differs(self, value: float) -> bool:
        """A value that is not normal. Whether it, and those before it, have just become so."""
        self._aside.append(value)
        if len(self._aside) < self._window:
            return False
        self._order, self._sorted = deque(self._aside), sorted(self._aside)
        self._aside = []
        return True

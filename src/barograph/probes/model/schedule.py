"""When a watch looks at what: an interval for each family of figures, and a budget that widens them.

In:   steps; what each look cost, and how long the steps took.
Out:  the families that are due at a step. The same for the same input, so ranks with the same input agree.

A share of the step time is predicted as Σ cost / interval / step time. Above the budget the family that takes
the greatest part has its interval doubled, until the prediction holds. An interval is halved again, never below
what the user gave, when the prediction with it stays below `EASE` of the budget for `PATIENCE` steps: the gap
between the two keeps an interval from swinging.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median

FAMILIES = (
    "norms",
    "gradients",
    "updates",
    "weights",
    "histograms",
    "activations",
    "spectral",
    "optimizer_state",
    "moe",
)
"""All there are. `norms` are the global norms of every step."""

WIDEST = 100_000  # steps; a family that is too dear even so is looked at this rarely
EASE = 0.7
PATIENCE = 50  # steps between two changes to a narrower interval
_TIMES = 21  # steps whose median is the step time: an evaluation in between is not a step


class WatchSchedule:
    """Intervals in optimizer steps; 0 is off. `budget`: the share of the step time to stay below, or None."""

    def __init__(self, intervals: Mapping[str, int], budget: float | None = None):
        for family, interval in intervals.items():
            if family not in FAMILIES:
                raise ValueError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
            if isinstance(interval, bool) or not isinstance(interval, int) or interval < 0:
                raise ValueError(f"{family} takes an interval in steps, a whole number from 0 (off), not {interval!r}")
        if budget is not None and not (isinstance(budget, (int, float)) and 0 < budget < 1):
            raise ValueError(f"budget is the share of the step time to stay below, between 0 and 1, not {budget!r}")
        self.given = {family: intervals.get(family, 0) for family in FAMILIES}
        self.intervals = dict(self.given)
        self.budget = budget
        self._last: int | None = None
        self._costs: dict[str, deque[float]] = {family: deque(maxlen=3) for family in FAMILIES}
        self._times: deque[float] = deque(maxlen=_TIMES)
        self._calm = 0

    def due(self, step: int) -> frozenset[str]:
        """The families to look at in this step: at multiples of their interval, or past one since `begin`."""
        last = self._last
        return frozenset(
            family
            for family, interval in self.intervals.items()
            if interval
            and (step % interval == 0 or (last is not None and last < step and step // interval > last // interval))
        )

    def begin(self, step: int) -> frozenset[str]:
        """`due` of a step that begins."""
        result = self.due(step)
        self._last = step
        return result

    # -- the budget ------------------------------------------------------------------------------------

    def spend(self, costs: Mapping[str, float], step_seconds: float) -> None:
        """A step took this long without the looks, and each family's look its seconds."""
        for family, seconds in costs.items():
            if math.isfinite(seconds):
                self._costs[family].append(seconds)
        if math.isfinite(step_seconds) and step_seconds > 0:
            self._times.append(step_seconds)
        if self.budget is not None and len(self._times) >= 3:
            self._adapt(self.budget)

    def share(self, intervals: Mapping[str, int] | None = None) -> float:
        """The predicted share of the step time; NaN before anything is known."""
        if not self._times:
            return math.nan
        chosen = self.intervals if intervals is None else intervals
        return math.fsum(self._parts(chosen).values()) / median(self._times)

    def _parts(self, intervals: Mapping[str, int]) -> dict[str, float]:
        # the least of the last looks: the first one pays for memory that later ones find
        return {
            family: min(costs) / intervals[family]
            for family, costs in self._costs.items()
            if costs and intervals[family]
        }

    def _adapt(self, budget: float) -> None:
        self._calm += 1
        while self.share() > budget:
            parts = {name: part for name, part in self._parts(self.intervals).items() if self.intervals[name] < WIDEST}
            if not parts:
                break
            dearest = max(parts, key=lambda family: parts[family])
            self.intervals[dearest] = min(WIDEST, 2 * self.intervals[dearest])
            self._calm = 0
        if self._calm < PATIENCE:
            return
        widened = [family for family, interval in self.intervals.items() if interval > self.given[family]]
        # the one that was widened most comes back first
        for family in sorted(widened, key=lambda name: self.given[name] / self.intervals[name]):
            narrower = self.intervals | {family: max(self.given[family], self.intervals[family] // 2)}
            if self.share(narrower) < EASE * budget:
                self.intervals = narrower
                self._calm = 0
                return

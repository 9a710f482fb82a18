"""When a watch looks at what: an interval for each family of figures, and a budget that widens them.

In:   steps; what each look cost, and how long the steps took.
Out:  the families that are due at a step. The same for the same input, so ranks with the same input agree.

With a budget there is an account in seconds: each step pays in its share of the step's time, and everything that the
watch does is paid from it: each measurement, what a step with measurements costs besides, and what one without them
does. A family that is due and that the account does not cover is postponed until it does; the others wait for one that
was postponed for longer than its interval. The first measurement of all is the cheapest family alone, timed; what the
others will cost is estimated from it until they were measured. A step without measurements pays in half its share at
least, so that on steps of a millisecond not everything is postponed for ever. Each of the first steps pays in a part of
a millisecond besides, a quarter of a second in all: a short training of short steps is looked at too.

What is done in each step, measurements or not, is paid from the other half. Behind the first steps the watch rests
where it is not: some steps in a row are looked at, and none of the next ones until these are paid.

A share of the step time is predicted as Σ cost / interval / step time. Above the budget the family that takes
the greatest part has its interval doubled, until the prediction holds. An interval is halved again, never below
what the user gave, when the prediction with it stays below `EASE` of the budget for `PATIENCE` steps: the gap
between the two keeps an interval from swinging.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
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

DEFAULTS = {
    "norms": 1, "gradients": 10, "updates": 10, "weights": 100, "histograms": 500, "activations": 100, "spectral": 0,
    "optimizer_state": 100, "moe": 0,
}  # fmt: skip
"""Intervals where none is given."""
BUDGET = 0.02  # at the default intervals
OPENING, OPENING_STEPS = 0.25e-3, 1000  # seconds that each of the first steps pays in beside its share
AWAKE = 3  # steps in a row that are looked at between two rests: what one has done is seen in the next one
_LONGEST = 256  # steps of a rest: what more is owed than they pay, as behind an evaluation, is not paid

# Cost of a measurement before the first one, as a multiple of the norms': the most of a model of many small tensors
# (0.8 million parameters in 52) and one of few large ones (GPT-2's shapes), rounded up.
_ESTIMATES = {
    "norms": 1, "weights": 2, "gradients": 3, "moe": 3, "updates": 4, "activations": 6, "optimizer_state": 8,
    "histograms": 8, "spectral": 50,
}  # fmt: skip

WIDEST = 100_000  # steps; a family that is too dear even so is looked at this rarely
EASE = 0.7
PATIENCE = 50  # steps between two changes to a narrower interval
_TIMES = 21  # steps whose median is the step time: an evaluation in between is not a step


class WatchSchedule:
    """Intervals in optimizer steps; 0 is off. `budget`: the share of the step time to stay below, or None.

    `fixed`: families that keep their intervals whatever they cost, because all ranks measure them together.
    """

    def __init__(self, intervals: Mapping[str, int], budget: float | None = None, fixed: Collection[str] = ()):
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
        self._fixed = frozenset(fixed)
        self._last: int | None = None
        self._costs: dict[str, deque[float]] = {family: deque(maxlen=3) for family in FAMILIES}
        self._besides: deque[float] = deque(maxlen=3)  # of steps with measurements: seconds beside those of families
        self._known: dict[str, float] | None = None  # the prices, until a cost is added
        self._times: deque[float] = deque(maxlen=_TIMES)
        self._calm = 0
        self._account = 0.0  # seconds
        self._opening = OPENING_STEPS if budget is not None else 0  # steps that pay in more, to come
        self._charged: dict[str, float] = {}  # predicted costs that are paid, and not yet reported by `spend`
        self._postponed: dict[str, int] = {}  # the steps at which they became due, in that order
        self._started = False  # whether the first measurement has begun
        self._decided: tuple[int, frozenset[str]] | None = None
        self._standing = 0.0  # seconds; the account of what is done in each step
        self._awake = 0  # steps since the last rest
        self.rests = False  # whether the step to come is better not looked at

    def due(self, step: int) -> frozenset[str]:
        """The families to look at in this step: at multiples of their interval, or past one since `begin`.

        With a budget, those of them that the account covers now; `begin` of this step gives the same.
        """
        wanted = self._wanted(step)
        if self.budget is None:
            return frozenset(wanted)
        self._decided = step, frozenset(self._covered(wanted, step))
        return self._decided[1]

    def _wanted(self, step: int) -> list[str]:
        last = self._last
        return [
            family
            for family, interval in self.intervals.items()
            if interval
            and (step % interval == 0 or (last is not None and last < step and step // interval > last // interval))
        ]

    def _covered(self, wanted: Sequence[str], step: int) -> list[str]:
        """Those that the account covers, the longest postponed first."""
        prices = self._prices()
        if not prices:  # nothing has been measured: the cheapest, once
            first = [] if self._started else sorted(wanted, key=lambda family: _ESTIMATES[family])[:1]
            return first + [family for family in wanted if family in self._fixed and family not in first]
        result, left = [], self._account - min(self._besides, default=0.0)
        for family, since in self._queue(wanted, step).items():
            if self.intervals[family] and (prices[family] <= left or family in self._fixed):
                result.append(family)
                left -= prices[family]
            elif self.intervals[family] and step - since > self.intervals[family]:
                left = min(left, 0.0)  # the others wait for it
        return result

    def _queue(self, wanted: Iterable[str], step: int) -> dict[str, int]:
        """The postponed families, and then those that become due at this step."""
        return self._postponed | {family: step for family in wanted if family not in self._postponed}

    def _prices(self) -> dict[str, float]:
        """What a measurement of each family costs; nothing before the first of all.

        The least of the last three: the first one pays for memory that later ones find.
        """
        if self._known is None:
            least = {family: min(costs) for family, costs in self._costs.items() if costs}
            unit = max((price / _ESTIMATES[family] for family, price in least.items()), default=0.0)
            self._known = {family: least.get(family, unit * _ESTIMATES[family]) for family in FAMILIES if least}
        return self._known

    def begin(self, step: int) -> frozenset[str]:
        """`due` of a step that begins; with a budget, they are paid."""
        decided = self._decided if self.budget is not None else None
        result = decided[1] if decided is not None and decided[0] == step else self.due(step)
        self._decided = None
        if self.budget is not None:
            prices = self._prices()
            for family in result:
                price = prices.get(family, 0.0)
                self._account -= price
                self._charged[family] = self._charged.get(family, 0.0) + price
            self._started = self._started or not self._fixed.issuperset(result)
            waiting = self._queue(self._wanted(step), step)
            self._postponed = {family: since for family, since in waiting.items() if family not in result}
        self._last = step
        return result

    def refund(self, families: Iterable[str]) -> None:
        """These were due in the step that has begun, and are not measured."""
        for family in families:
            self._account += self._charged.pop(family, 0.0)
        self._started = self._started and any(self._costs.values())

    # -- the budget ------------------------------------------------------------------------------------

    def spend(
        self, costs: Mapping[str, float], step_seconds: float, due: Iterable[str] = (), besides: float = 0.0
    ) -> None:
        """A step took this long without the watch, each family's look its seconds, and the rest of the watch `besides`.

        due: what was paid for this step; one of which there is no cost here was not measured after all.
        """
        self.refund(family for family in due if family not in costs)
        if self.budget is not None and math.isfinite(besides):
            if costs and self._times:  # the first time it is also what is done once
                self._besides.append(besides)
            elif not costs and math.isfinite(step_seconds):
                half = self.budget * max(0.0, step_seconds) / 2
                self._stand(half, besides)
                besides = half if self._standing < 0 else min(besides, half)
            self._account -= besides
        for family, seconds in costs.items():
            if math.isfinite(seconds):
                self._costs[family].append(seconds)
                self._known = None
                if self.budget is not None:
                    self._account += self._charged.pop(family, 0.0) - seconds
        if math.isfinite(step_seconds) and step_seconds > 0:
            self._times.append(step_seconds)
            self._account += (self.budget or 0.0) * step_seconds + (OPENING if self._opening else 0.0)
            self._opening = max(0, self._opening - 1)
        self._awake = 0 if self.rests else self._awake + 1
        looked = self.rests or self._awake >= AWAKE
        self.rests = self.budget is not None and self._standing < 0 and looked
        self._calm += 1
        known = len(self._times)
        if self.budget is not None and known >= 3 and (costs or known == 3 or self._calm % PATIENCE == 0):
            self._adapt(self.budget + (OPENING / median(self._times) if self._opening else 0.0))

    def _stand(self, half: float, besides: float) -> None:
        """A step without measurements: what half of its share leaves of what the watch did all the same."""
        if not self._opening:
            left = max(half - besides, half / 2) if self.rests else half - besides
            self._standing = min(0.0, max(self._standing + left, -_LONGEST * half / 2))

    def share(self, intervals: Mapping[str, int] | None = None) -> float:
        """The predicted share of the step time; NaN before anything is known."""
        if not self._times:
            return math.nan
        chosen = self.intervals if intervals is None else intervals
        return math.fsum(self._parts(chosen).values()) / median(self._times)

    def _parts(self, intervals: Mapping[str, int]) -> dict[str, float]:
        parts = {family: price / intervals[family] for family, price in self._prices().items() if intervals[family]}
        if parts and self._besides:
            most = min(parts, key=lambda family: intervals[family])  # what is measured most often makes the steps
            parts[most] += min(self._besides) / intervals[most]
        return parts

    def _adapt(self, budget: float) -> None:
        while self.share() > budget:
            parts = {
                name: part
                for name, part in self._parts(self.intervals).items()
                if self.intervals[name] < WIDEST and name not in self._fixed
            }
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

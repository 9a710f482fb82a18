"""What a forecast says: numbers, with the sentence they rest on, or the reason why there are none.

In:   nothing; `forecast` fills it.
Out:  `Forecast`, `LossTarget`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossTarget:
    """When a loss is reached.

    loss: the target. verdict: "reached" (the smoothed loss has been there), "expected" (the middle of the forecast
    reaches it within the plan and the whole interval does: "certain" is never said), "likely" (the middle does),
    "unlikely" (only the interval's lower edge does), "no" (not even that). probability: of the final loss being at or
    below it; for a target already reached 1. step: where the middle is there; early, late: where the lower and the
    upper edge are; None if not within the plan. hours, cost: from now to `step`, each None if not known.
    """

    loss: float
    verdict: str
    probability: float
    step: int | None = None
    early: int | None = None
    late: int | None = None
    hours: float | None = None
    cost: float | None = None


@dataclass(frozen=True, eq=False)
class Forecast:
    """What is to be expected of a run.

    final: the loss at the end of the plan, without batch noise: the mean of the plan's last 5%. low, high: the interval
    that covers it with probability `coverage`. All None with a `reason` where nothing can be said.
    basis: what it rests on, in a sentence. known_schedule: the learning rate to come is known.
    step: the last step seen; planned_steps; level: the loss now without batch noise, None if there is none.
    hours, cost: from now to the end of the plan; None if not known.
    ahead: steps from now on [j], and there the loss: middle, lower, upper [j]; empty if there is no forecast.
    """

    final: float | None
    low: float | None
    high: float | None
    coverage: float
    basis: str
    known_schedule: bool
    step: int
    planned_steps: int | None
    level: float | None
    reason: str | None = None
    hours: float | None = None
    cost: float | None = None
    target: LossTarget | None = None
    ahead: Floats | None = None
    middle: Floats | None = None
    lower: Floats | None = None
    upper: Floats | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and sentences, ready for JSON; the columns ahead are left out."""
        target = self.target
        return {
            "final_loss": self.final,
            "low": self.low,
            "high": self.high,
            "coverage": self.coverage,
            "basis": self.basis,
            "known_schedule": self.known_schedule,
            "step": self.step,
            "planned_steps": self.planned_steps,
            "loss_now": self.level,
            "reason": self.reason,
            "hours": self.hours,
            "cost": self.cost,
            "target": None if target is None else {name: getattr(target, name) for name in target.__dataclass_fields__},
        }

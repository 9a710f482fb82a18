"""What a run will come to: its final loss with an interval, when a target is reached, what the rest costs.

In:   columns of step, loss and learning rate, or a stored run.
Out:  `forecast`, `forecast_run`, `sentences`, `plateau`, `Schedule`; docs/forecast.md has formulas and errors.
"""

from __future__ import annotations

from barograph.forecast.outlook import Forecast, Target
from barograph.forecast.plans import planned_steps_of, schedule_of
from barograph.forecast.predict import forecast
from barograph.forecast.schedule import Schedule, named
from barograph.forecast.stored import forecast_run
from barograph.forecast.stretch import Plateau, plateau
from barograph.forecast.words import sentences

__all__ = [
    "Forecast", "Plateau", "Schedule", "Target", "forecast", "forecast_run", "named", "planned_steps_of", "plateau",
    "schedule_of", "sentences",
]  # fmt: skip

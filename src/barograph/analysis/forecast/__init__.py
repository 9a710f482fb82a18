"""What a run will come to: its final loss with an interval, when a target is reached, what the rest costs.

In:   columns of step, loss and learning rate, or a stored run.
Out:  `forecast`, `forecast_columns`, `forecast_sentences`, `plateau`, `RateSchedule`; docs/guides/forecast.md
      has formulas and errors.
"""

from __future__ import annotations

from barograph.analysis.forecast.outlook import Forecast, LossTarget
from barograph.analysis.forecast.plans import schedule_of
from barograph.analysis.forecast.predict import forecast_columns
from barograph.analysis.forecast.schedule import RateSchedule, named
from barograph.analysis.forecast.stored import forecast
from barograph.analysis.forecast.stretch import ForecastPlateau, plateau
from barograph.analysis.forecast.words import forecast_sentences

__all__ = [
    "Forecast", "ForecastPlateau", "LossTarget", "RateSchedule", "forecast", "forecast_columns", "forecast_sentences",
    "named", "plateau", "schedule_of",
]  # fmt: skip

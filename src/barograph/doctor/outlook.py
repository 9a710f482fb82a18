"""What the doctor's rules ask of the forecast: whether a run reaches its target.

In:   steps, losses and learning rates so far, the configuration, the plan and the target.
Out:  the final loss with its interval, and the chance of the target; None where no forecast can be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.doctor.kernel.facts import Outlook


def outlook_of(
    steps: Any, losses: Any, rates: Any, config: Mapping[str, Any], plan: int, target: float
) -> Outlook | None:
    """The fact `outlook` of a run that rules look at: they know the forecast by this function alone."""
    from barograph.analysis.forecast import forecast_columns, schedule_of  # few runs have a target

    forecast = forecast_columns(
        steps, losses, lr=rates, schedule=schedule_of(config, plan), planned_steps=plan, target=target
    )
    if forecast.final is None or forecast.low is None or forecast.high is None or forecast.target is None:
        return None
    return Outlook(forecast.final, forecast.low, forecast.high, forecast.target.probability)

"""A forecast in sentences, for a report or a console.

In:   a `Forecast`.
Out:  sentences, the most important first.
"""

from __future__ import annotations

from barograph.analysis.forecast.outlook import Forecast, LossTarget
from barograph.core.text import duration, money, number, percent


def forecast_sentences(outlook: Forecast, currency: str = "") -> list[str]:
    """What a forecast says, in one to four sentences. currency: written before amounts of money, such as "$"."""
    result = []
    if outlook.final is None:
        result.append(f"No forecast: {outlook.reason}")
    elif outlook.low is not None and outlook.high is not None:
        when = f"at step {outlook.planned_steps:,}" if outlook.planned_steps else "at the end"
        sure = f"{percent(outlook.coverage)} interval {number(outlook.low, 4)} to {number(outlook.high, 4)}"
        result.append(
            f"The loss will be about {number(outlook.final, 4)} {when} ({sure}); it is {number(outlook.level, 4)} now."
        )
        wide = "" if outlook.known_schedule else ", so the interval is wide"
        result.append(f"{outlook.basis[:1].upper()}{outlook.basis[1:]}{wide}.")
    if outlook.target is not None:
        result.append(_of_target(outlook, outlook.target, currency))
    if outlook.hours:
        result.append(f"The rest of the plan takes {duration(3600 * outlook.hours)}{_costs(outlook.cost, currency)}.")
    return result


def _of_target(outlook: Forecast, target: LossTarget, currency: str) -> str:
    loss, chance = number(target.loss, 4), _chance(target.probability)
    span = f"the plan of {outlook.planned_steps:,} steps" if outlook.planned_steps else "the steps looked at"
    if target.verdict == "reached":
        return f"The target {loss} was reached at step {target.step:,}."
    if target.verdict == "no":
        return f"This run will not reach its target {loss}: it will not be reached within {span} ({chance})."
    if target.verdict == "unlikely":
        return f"This run will probably not reach its target {loss} within {span} ({chance})."
    late = f"{target.late:,}" if target.late is not None else "beyond the plan"
    between = (
        f"between {target.early:,} and {late}" if target.late is not None else f"from {target.early:,} on, or never"
    )
    rest = f", in {duration(3600 * target.hours)}{_costs(target.cost, currency)}" if target.hours is not None else ""
    return f"The target {loss} will be reached at about step {target.step:,} ({between}; {chance}){rest}."


def _chance(probability: float) -> str:
    if probability < 0.01:
        return "chance below 1%"
    return "chance above 99%" if probability > 0.99 else f"chance {percent(probability, 0)}"


def _costs(cost: float | None, currency: str) -> str:
    return "" if cost is None else f" and costs {currency}{money(cost)}"

"""A forecast in sentences, for a report or a console.

In:   a `Forecast`.
Out:  sentences, the most important first.
"""

from __future__ import annotations

from barograph.forecast.outlook import Forecast, Target


def sentences(outlook: Forecast, currency: str = "") -> list[str]:
    """What a forecast says, in one to four sentences. currency: written before amounts of money, such as "$"."""
    said = []
    if outlook.final is None:
        said.append(f"No forecast: {outlook.reason}")
    elif outlook.low is not None and outlook.high is not None:
        when = f"at step {outlook.planned_steps:,}" if outlook.planned_steps else "at the end"
        sure = f"{outlook.coverage:.0%} interval {_loss(outlook.low)} to {_loss(outlook.high)}"
        said.append(f"The loss will be about {_loss(outlook.final)} {when} ({sure}); it is {_loss(outlook.level)} now.")
        wide = "" if outlook.known_schedule else ", so the interval is wide"
        said.append(f"{outlook.basis[:1].upper()}{outlook.basis[1:]}{wide}.")
    if outlook.target is not None:
        said.append(_of_target(outlook, outlook.target, currency))
    if outlook.hours:
        said.append(f"The rest of the plan takes {_hours(outlook.hours)}{_money(outlook.cost, currency)}.")
    return said


def _of_target(outlook: Forecast, target: Target, currency: str) -> str:
    loss, chance = _loss(target.loss), _chance(target.probability)
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
    rest = f", in {_hours(target.hours)}{_money(target.cost, currency)}" if target.hours is not None else ""
    return f"The target {loss} will be reached at about step {target.step:,} ({between}; {chance}){rest}."


def _loss(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _chance(probability: float) -> str:
    if probability < 0.01:
        return "chance below 1%"
    return "chance above 99%" if probability > 0.99 else f"chance {probability:.0%}"


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} minutes" if hours >= 1 / 60 else "less than a minute"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _money(cost: float | None, currency: str) -> str:
    return "" if cost is None else f" and costs {currency}{cost:,.2f}"

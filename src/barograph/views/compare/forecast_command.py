"""The command `barograph forecast`.

In:   a run or log as typed.
Out:  where its training goes, in sentences or JSON; an exit code.
"""

from __future__ import annotations

from barograph.analysis.forecast import forecast, forecast_sentences
from barograph.core.record import json_text
from barograph.importing.resolve import resolve


def run_forecast(
    name: str,
    *,
    dir: str | None = None,
    steps: int | None = None,
    target: float | None = None,
    price_per_hour: float | None = None,
    as_json: bool = False,
) -> int:
    """Print the forecast of each run of that name; returns the exit code 0. Raises as `forecast` does."""
    results = []
    for run, source in resolve(name, dir):
        outlook = forecast(run, planned_steps=steps, target=target, price_per_hour=price_per_hour)
        results.append({"run": run.id, "source": source} | outlook.as_dict())
        if not as_json:
            print("\n".join([run.id, *(f"  {sentence}" for sentence in forecast_sentences(outlook))]))
    if as_json:
        print(json_text(results))
    return 0

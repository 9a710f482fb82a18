"""The forecast of a stored run: its columns, its plan and its step's time are taken from it.

In:   a run with `names()`, `series(name)` and `config`, such as `barograph.runs()` and `barograph.read()` give.
Out:  a `Forecast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from barograph.analysis.forecast.outlook import Forecast
from barograph.analysis.forecast.plans import schedule_of
from barograph.analysis.forecast.predict import forecast_columns
from barograph.core import configuration
from barograph.core.configuration import as_number
from barograph.query.given import GivenRun, stored_run
from barograph.query.losses import losses_by_name, run_losses
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RATES = ("train/lr", "train/learning_rate", "lr", "learning_rate", "train/lr_multiplier", "lr_multiplier")
LEAST_RATES = 8
TARGETS = ("target_loss", "loss_target")


class ForecastColumn(Protocol):
    """One series of a run."""

    @property
    def step(self) -> NDArray[Any]: ...

    @property
    def value(self) -> NDArray[Any]: ...

    @property
    def time(self) -> NDArray[Any]: ...


class ForecastRun(Protocol):
    """What a forecast asks of a stored run."""

    @property
    def config(self) -> dict[str, Any]: ...

    def names(self) -> list[str]: ...

    def series(self, name: str) -> Any: ...


def forecast(
    run: ForecastRun | GivenRun,
    *,
    planned_steps: int | None = None,
    schedule: Any = None,
    target: float | None = None,
    seconds_per_step: float | None = None,
    price_per_hour: float | None = None,
    coverage: float = 0.9,
) -> Forecast:
    """Forecast a run. What is given counts before what the run says.

    The plan and the schedule come from the configuration and the learning rate logged, the target from `target_loss`,
    seconds per step from the times of its last rows (their median, so pauses don't count).
    A configuration whose plan is shorter than the run is not believed. A run without a training loss gets a reason.
    """
    other = hasattr(run, "series") and not isinstance(run, StoredRun)
    stored = cast("ForecastRun", run) if other else stored_run(cast("GivenRun", run))
    names, config = stored.names(), stored.config
    name = (run_losses(stored, names) if isinstance(stored, StoredRun) else losses_by_name(names)).loss
    if name is None:
        return Forecast(None, None, None, coverage, "nothing", False, 0, None, None, "The run has no training loss.")
    losses: ForecastColumn = stored.series(name)
    last = int(losses.step[-1]) if len(losses.step) else 0
    if planned_steps is None:
        planned_steps = configuration.planned_steps({**getattr(stored, "manifest", {}), "config": config})
        if planned_steps is not None and last > planned_steps * 1.01 + 1:
            planned_steps = None
    if schedule is None and planned_steps is not None:
        schedule = schedule_of(config, planned_steps)
    if target is None:
        target = next((found for item in TARGETS if (found := as_number(_leaf(config, item))) is not None), None)
    return forecast_columns(
        losses.step,
        losses.value,
        lr=_rates(stored, names, losses),
        schedule=schedule,
        planned_steps=planned_steps,
        target=target,
        seconds_per_step=_seconds(losses) if seconds_per_step is None else seconds_per_step,
        price_per_hour=price_per_hour,
        coverage=coverage,
    )


def _leaf(config: Mapping[str, Any], name: str) -> Any:
    if name in config:
        return config[name]
    nested = (_leaf(value, name) for value in config.values() if isinstance(value, Mapping))
    return next((found for found in nested if found is not None), None)


def _rates(run: ForecastRun, names: list[str], losses: ForecastColumn) -> Floats | None:
    """The learning rate at the loss's steps, NaN where it is not known.

    Between rates that were logged less often a line would hide the schedule's form, so there it is NaN too, unless
    next to none was logged at a step of the loss.
    """
    name = next((item for item in RATES if item in names), None)
    if name is None:
        return None
    rates: ForecastColumn = run.series(name)
    good = np.isfinite(rates.value)
    if good.sum() < 2:
        return None
    step, value = np.asarray(rates.step[good], np.float64), np.asarray(rates.value[good], np.float64)
    between = np.asarray(np.interp(losses.step, step, value, left=np.nan, right=np.nan))
    logged = np.isin(losses.step, step)
    return np.where(logged, between, np.nan) if logged.sum() >= LEAST_RATES else between


def _seconds(losses: ForecastColumn) -> float | None:
    """Median seconds per step over the last thousand rows; None if the rows have no times that go on."""
    step, time = np.asarray(losses.step[-1000:], np.float64), np.asarray(losses.time[-1000:], np.float64)
    gone, taken = np.diff(step), np.diff(time)
    good = (gone > 0) & np.isfinite(taken) & (taken > 0)
    if good.sum() < 3:
        return None
    return float(np.median(taken[good] / gone[good]))

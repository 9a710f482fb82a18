"""Barograph: telemetry for training language models.

    import barograph

    run = barograph.init(project="gpt", config={"lr": 3e-4})
    run.log({"train/loss": 2.31, "train/lr": 3e-4}, step=1)
    run.finish()

Names are loaded when they are used: importing the package loads no other library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph.adapters.tensorboard import TensorBoardBackend
    from barograph.adapters.wandb import WandBBackend
    from barograph.ask.filters import runs
    from barograph.ask.frames import frame
    from barograph.ask.sql import sql
    from barograph.comparing.comparison import compare
    from barograph.config import ConfigError
    from barograph.importing.read import read
    from barograph.logtext import LogFileError, read_log
    from barograph.notebook.display import charts
    from barograph.probes.model.monitor import TrainingMonitor
    from barograph.probes.widths.mup import coord_check
    from barograph.probes.widths.transfer import transfer_check
    from barograph.reading.query import StoredRun
    from barograph.writing.logger import LogVerbosity, TrainingRunLogger
    from barograph.writing.run import Run
    from barograph.writing.simple import SimpleLogger
    from barograph.writing.start import fork, init
    from barograph.writing.tracker import MetricsConfig, MetricsTracker, StepMetrics

__version__ = "0.1.0"

_HOMES = {
    "charts": "notebook.display",
    "compare": "comparing.comparison",
    "ConfigError": "config",
    "LogFileError": "logtext",
    "LogVerbosity": "writing.logger",
    "MetricsConfig": "writing.tracker",
    "MetricsTracker": "writing.tracker",
    "Run": "writing.run",
    "SimpleLogger": "writing.simple",
    "coord_check": "probes.widths.mup",
    "fork": "writing.start",
    "StepMetrics": "writing.tracker",
    "StoredRun": "reading.query",
    "TensorBoardBackend": "adapters.tensorboard",
    "TrainingMonitor": "probes.model.monitor",
    "TrainingRunLogger": "writing.logger",
    "WandBBackend": "adapters.wandb",
    "init": "writing.start",
    "read": "importing.read",
    "read_log": "logtext",
    "runs": "ask.filters",
    "frame": "ask.frames",
    "sql": "ask.sql",
    "transfer_check": "probes.widths.transfer",
}

__all__ = [
    "ConfigError",
    "LogFileError",
    "LogVerbosity",
    "MetricsConfig",
    "MetricsTracker",
    "Run",
    "SimpleLogger",
    "StepMetrics",
    "StoredRun",
    "TensorBoardBackend",
    "TrainingMonitor",
    "TrainingRunLogger",
    "WandBBackend",
    "charts",
    "compare",
    "coord_check",
    "fork",
    "frame",
    "init",
    "read",
    "read_log",
    "runs",
    "sql",
    "transfer_check",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barograph' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"barograph.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

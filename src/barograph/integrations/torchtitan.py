"""torchtitan and torchtune: loggers with the methods that these have.

In:   `log(metrics, step)` and `close()` of torchtitan's `BaseLogger`, a trainer of torchtitan's; torchtune's `log`,
      `log_dict`, `log_config`.
Out:  a run. Neither library is imported: both take an object with these methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.integrations.shared import SentToWorkers, begin, open_run
from barograph.training.configuration import as_mapping
from barograph.training.run import Run


class TorchtitanLogger(SentToWorkers):
    """A `BaseLogger`. `run`: the run that is open, else one that the logger begins and ends.

    config: the job's configuration. tag: goes before the names, as for torchtitan's own loggers. The rank that
    makes the logger records; other options are those of `barograph.init`.
    """

    records = True

    def __init__(self, config: Any = None, tag: str | None = None, run: Run | None = None, **options: Any):
        found = run or open_run()
        self._own, self._tag = found is None, tag
        self.run: Run = found or begin(as_mapping(config), **options)
        if not self._own and config is not None:
            self.run.config.update(as_mapping(config))

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Named values at a step."""
        if not self.records:
            return
        lead = "" if self._tag is None else f"{self._tag}/"
        self.run.log({f"{lead}{name}": value for name, value in metrics.items()} if lead else metrics, step)

    def close(self) -> None:
        """End the run, if the logger began it."""
        if self._own:
            self.run.finish()


def add_logger(trainer: Any, run: Run | None = None, **options: Any) -> Run:
    """Record what a trainer of torchtitan's logs, beside the loggers that it has.

    Call it on every rank, before `train`; the one that has the loss records. Options are those of `barograph.init`.
    Returns the run, which the trainer's `close` ends.
    """
    processor, config = trainer.metrics_processor, trainer.config
    before = processor.logger
    for logger in getattr(before, "_loggers", [before]):
        if isinstance(logger, TorchtitanLogger) and logger.run._ending.is_here:
            return logger.run
    mine = TorchtitanLogger(config.to_dict(), run=run, **{"total_steps": config.training.steps, **options})
    mine.records = mine.run._out.rank == _logging_rank(processor.parallel_dims, config)
    if hasattr(before, "add_logger"):
        before.add_logger(mine)
    else:  # the one that does nothing: no other logger is switched on, or not on this rank
        processor.logger = mine
    return mine.run


def _logging_rank(dims: Any, config: Any) -> int:
    """The first rank of the last stage of a pipeline; without one, and where the first stage has the loss, rank 0."""
    if not dims.pp_enabled or config.parallelism.pipeline_parallel_schedule == "ZBVZeroBubble":
        return 0
    return int(dims.world_size // dims.pp * (dims.pp - 1))


class TorchtuneLogger:
    """torchtune's `MetricLoggerInterface`, named as `metric_logger._component_` in a recipe.

    Options are those of `barograph.init`; the recipe's configuration comes by `log_config`.
    """

    def __init__(self, **options: Any):
        self._logger = TorchtitanLogger(**options)
        self.run = self._logger.run

    def log(self, name: str, data: Any, step: int) -> None:
        """One value, also a tensor."""
        self.run.log({name: data}, step)

    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        """Named values."""
        self.run.log(payload, step)

    def log_config(self, config: Any) -> None:
        """The recipe's configuration."""
        self.run.config.update(as_mapping(config))

    def close(self) -> None:
        """End the run, if the logger began it."""
        self._logger.close()

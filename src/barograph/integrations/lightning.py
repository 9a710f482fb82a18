"""Lightning and Fabric: `Trainer(logger=BarographLogger())`, `Fabric(loggers=BarographLogger())`, and a callback.

In:   the calls that a Trainer or Fabric makes of its loggers and callbacks.
Out:  a run with metrics, hyperparameters, checkpoints; with the callback also gradients, and times of steps by rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.integrations.shared import SentToWorkers, begin, ends, open_run, records
from barograph.training.configuration import as_mapping
from barograph.training.guard import guarded
from barograph.training.run import Run

try:
    from lightning.fabric.loggers.logger import rank_zero_experiment
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers.logger import Logger
    from lightning.pytorch.utilities import rank_zero_only
except ImportError as error:
    raise ImportError(
        f"barograph.integrations.lightning needs lightning 2.2 or newer ({error}): pip install -U lightning"
    ) from None

_STATUS = {"success": "finished", "finished": "finished", "failed": "failed"}


class BarographLogger(SentToWorkers, Logger):
    """A logger of Lightning and of Fabric. `experiment`: the run, on rank 0.

    run: one of your own. Other options are those of `barograph.init`. The run begins with the first call, is the open
    one where the program has begun it itself, and ends with the training if the logger began it.
    """

    def __init__(self, run: Run | None = None, **options: Any):
        super().__init__()
        self._run, self._options, self._own = run, options, False
        self._saved: dict[str, float] = {}

    @property
    def run(self) -> Run:
        """The run, on every rank."""
        if self._run is None or (self._own and not self._run._ending.is_here):
            found = open_run()
            self._own = found is None
            self._run = found or begin(**self._options)
        return self._run

    @property
    def _last(self) -> Run:
        """The run, also one that has ended: who asks for its folder begins no other."""
        return self._run or self.run

    @property
    @rank_zero_experiment
    def experiment(self) -> Run:
        """The run, on rank 0."""
        return self.run

    @property
    def name(self) -> str:
        """The project."""
        return self._last.about.project

    @property
    def version(self) -> str:
        """The run's id."""
        return self._last.id

    @property
    def save_dir(self) -> str:
        """Where runs of all projects are: Lightning puts its checkpoints below it."""
        return str(self._last.dir.parent.parent)

    @property
    def root_dir(self) -> str:
        """The project's folder."""
        return str(self._last.dir.parent)

    @property
    def log_dir(self) -> str:
        """The run's folder."""
        return str(self._last.dir)

    @property
    def _out(self) -> Any:
        return self._last._out

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Named values at a step."""
        if records(self, self.run):
            self.run.log(metrics, step)

    @rank_zero_only
    @guarded("set of hyperparameters")
    def log_hyperparams(self, params: Any, *arguments: Any, **named: Any) -> None:
        """The configuration: a mapping, a namespace."""
        self.run.config.update(as_mapping(params) | named)

    @rank_zero_only
    @guarded("checkpoint")
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Checkpoints that Lightning has written since the last call."""
        if not records(self, self.run):
            return
        trainer = getattr(checkpoint_callback, "_trainer", None)
        best, last = checkpoint_callback.best_model_path, checkpoint_callback.last_model_path
        for name in dict.fromkeys([*checkpoint_callback.best_k_models, best, last]):
            path = Path(name) if name else None
            if path is None or not path.exists() or self._saved.get(name) == path.stat().st_mtime:
                continue
            self._saved[name] = path.stat().st_mtime
            step = trainer.global_step if trainer is not None else checkpoint_callback._last_global_step_saved
            self.run.checkpoints.save(path, step)

    @guarded("end of a training")
    def finalize(self, status: str) -> None:
        """End the run, if the logger began it; an evaluation after the training begins no other."""
        if self._run is not None:
            ends(self, self._run)
        if self._run is not None and self._own and self._run._ending.is_here:
            self._run.finish(_STATUS.get(str(status), "failed"))


class BarographMonitor(SentToWorkers, Callback):
    """A callback: gradients and weights of the model (`run.watch`), and the time of each step, on every rank.

    Options are those of `run.watch`.
    """

    _step: Any = None
    _off = False  # another one looks already

    def __init__(self, **options: Any):
        super().__init__()
        self._options = options
        self._logger: Any = None

    @property
    def _out(self) -> Any:
        return self._logger.run._out

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Watch the model."""
        found = [logger for logger in trainer.loggers if isinstance(logger, BarographLogger)]
        self._logger = found[0] if found else BarographLogger()
        run = self._logger.run
        self._off = not records(self, run)
        if self._off:
            return
        if trainer.max_steps and trainer.max_steps > 0:
            run.about.plan_steps(trainer.max_steps)
        run.watch(pl_module, trainer.optimizers or None, **self._options)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins, or goes on where gradients are accumulated."""
        self._begin(trainer)

    @guarded("step")
    def _begin(self, trainer: Any) -> None:
        if self._step is None and not self._off:
            self._out.next_step = trainer.global_step
            self._step = self._logger.run.step(step=trainer.global_step)
            self._step.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The step ends with the optimizer's."""
        self._end(trainer)

    @guarded("step")
    def _end(self, trainer: Any) -> None:
        if self._step is not None and trainer.global_step > self._step.number:
            step, self._step = self._step, None
            step.__exit__(None, None, None)
            if self._logger.run.stop_requested:
                trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """What the watch holds is written before the run ends."""
        if self._logger is not None and not self._off:
            self._logger.run.model.flush()
            ends(self, self._logger.run)

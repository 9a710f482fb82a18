"""SimpleLogger: the door that speedrun-style scripts use.

In:   `SimpleLogger(use_wandb=…, project_name=…, experiment_name=…, config=…)`, dictionaries, speedrun-mup's calls.
Out:  a Run, named from the config, with modded-nanogpt's lines on the console.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from barograph.core.arguments import Options
from barograph.core.names import run_name
from barograph.core.record import json_text
from barograph.core.secrets import masked
from barograph.core.text import duration
from barograph.core.values import number
from barograph.integrations.shared import SentToWorkers
from barograph.training.guard import guarded
from barograph.training.start import init


class SimpleLogger(SentToWorkers):
    """A Run behind speedrun-mup's calls. `run` is the Run itself, `log_dir` its folder.

    use_wandb: mirror to W&B (as `report_to="wandb"`).
    experiment_name: without one, a name is made: `speedrun_20250831_143022_mup_w1024_base768`.
    """

    def __init__(
        self,
        use_wandb: bool = False,
        project_name: str = "speedrun-mup",
        experiment_name: str | None = None,
        config: Any = None,
        **options: Unpack[Options],
    ):
        options.setdefault("console", "modded-nanogpt")
        if use_wandb:
            options.setdefault("report_to", "wandb")
            options.setdefault("wandb_project", project_name)
        name = experiment_name or run_name("speedrun", config, datetime.now())
        self.run = init(project=project_name, name=name, config=config, **options)
        self.experiment_name, self.log_dir = self.run.about.name, self.run.dir

    @property
    def _out(self) -> Any:
        return self.run._out

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record named numbers; `step` in the metrics is the step if none is given. Rows with `training_time_ms` or a
        loss are drawn."""
        if step is None and isinstance(metrics.get("step"), int):
            step = metrics["step"]
        self.run.log(metrics, step)

    @guarded("step")
    def log_step(
        self, step: int, total_steps: int, training_time_ms: float, val_loss: float | None = None, **more: Any
    ) -> None:
        """A step after so much training time, drawn as `step:1000/1750 val_loss:3.2847 train_time:180420.0ms …`."""
        self.run.about.plan_steps(total_steps)
        average = number(training_time_ms) / max(self._out.step_of(step), 1)
        values = {"training_time_ms": training_time_ms, "step_avg_ms": average}
        scored = {} if val_loss is None else {"val_loss": val_loss}
        self.run.log(values | scored | more, step)

    def log_final_stats(self, peak_memory_mb: float, reserved_memory_mb: float, total_training_time: float) -> None:
        """The end's figures: memory in MiB, training time in seconds."""
        step = self._out.current_step
        figures = {"peak_memory_mb": peak_memory_mb, "reserved_memory_mb": reserved_memory_mb}
        self.run.log(figures | {"total_training_time_s": total_training_time}, step)
        memory = f"peak memory allocated: {peak_memory_mb} MiB reserved: {reserved_memory_mb} MiB"
        self.run.log_message(step, memory)
        self.run.log_message(step, f"total training time: {duration(total_training_time)}")

    def save_config(self, config: Any) -> None:
        """The configuration, into the run's and into `config.json` in its folder."""
        self.run.config.update(config)
        try:
            (self.log_dir / "config.json").write_text(json_text(masked(dict(self.run.config))) + "\n")
        except OSError as error:
            self._out.failed("configuration", error)

    def finish(self) -> None:
        """End the run."""
        self.run.finish()

    close = finish

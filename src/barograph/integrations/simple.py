"""SimpleLogger: the door that speedrun-style scripts use.

In:   `SimpleLogger(use_wandb=…, project_name=…, experiment_name=…, config=…)` and dictionaries.
Out:  a Run, named from the config, with modded-nanogpt's lines on the console.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from barograph.core.arguments import Options
from barograph.core.names import run_name
from barograph.training.start import init


class SimpleLogger:
    """A Run behind three calls. `run` is the Run itself.

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

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record named numbers; `step` in the metrics is the step if none is given."""
        if step is None and isinstance(metrics.get("step"), int):
            step = metrics["step"]
        self.run.log(metrics, step)

    def finish(self) -> None:
        """End the run."""
        self.run.finish()

    close = finish

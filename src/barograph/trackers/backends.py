"""The backends that a run can be sent to, by name; each is imported when it is asked for.

In:   a name, the run's manifest, options from settings, a command line or an earlier position.
Out:  a `LoggingBackend` that goes on where the position says.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from barograph.trackers.backend import LoggingBackend
from barograph.trackers.position import Position


class Door(NamedTuple):
    """Where a backend's class is. options: names of settings that say where it sends to; folders: those that are
    paths. destination: the one that `--out` sets."""

    place: str
    options: tuple[str, ...]
    destination: str = ""


DOORS: dict[str, Door] = {
    "wandb": Door("barograph.trackers.wandb:WandBBackend", (
        "wandb_project", "wandb_name", "wandb_run_name", "wandb_run_id",
    ), "wandb_project"),
    "tensorboard": Door("barograph.trackers.tensorboard:TensorBoardBackend", (
        "tensorboard_dir", "tensorboard_layout",
    ), "tensorboard_dir"),
    "mlflow": Door("barograph.trackers.mlflow:MLflowBackend", (
        "mlflow_tracking_uri", "mlflow_experiment", "mlflow_name", "mlflow_run_id",
    ), "mlflow_tracking_uri"),
    "aim": Door("barograph.trackers.aim:AimBackend", (
        "aim_repo", "aim_experiment", "aim_name", "aim_run_id",
    ), "aim_repo"),
    "trackio": Door("barograph.trackers.trackio:TrackioBackend", (
        "trackio_project", "trackio_name", "trackio_space", "trackio_run_id",
    ), "trackio_project"),
    "otel": Door("barograph.trackers.opentelemetry:OpenTelemetryBackend", ("otel_endpoint",), "otel_endpoint"),
}  # fmt: skip
NAMES = tuple(DOORS)


def options_of(name: str, settings: Any) -> dict[str, Any]:
    """What settings say of a backend: the options that are not as they are by default, and the user's `aliases`."""
    default = type(settings)()
    found = {item: getattr(settings, item, None) for item in (*DOORS[name].options, "aliases")}
    return {item: value for item, value in found.items() if value and value != getattr(default, item, None)}


def make(
    name: str, run_id: str, about: Mapping[str, Any], position: Position, options: Mapping[str, Any], log_file: str
) -> LoggingBackend:
    """The backend, not opened yet. about: the run's manifest; options win over the position's.

    TensorBoard's folder is one for each run below `tensorboard_dir`. Raises ValueError for a name that is none.
    """
    if name not in DOORS:
        raise ValueError(f"there is no backend {name!r}; there are {', '.join(NAMES)}")
    chosen = {**position.options, **options}
    if name == "tensorboard":
        folder = str(options.get("tensorboard_dir") or "")
        if folder or "tensorboard_dir" not in position.options:
            chosen["tensorboard_dir"] = os.path.abspath(os.path.join(folder or "tb_logs", run_id))
    position.options = chosen
    project = str(about.get("project") or "barograph")
    config = SimpleNamespace(
        project=project,
        name=str(about.get("name") or run_id),
        run_id=run_id,
        tags=list(about.get("tags") or ()),
        notes=str(about.get("notes") or ""),
        **{option: chosen.get(option, "") for option in DOORS[name].options},
    )
    if f"{name}_run_id" in DOORS[name].options and not getattr(config, f"{name}_run_id"):
        setattr(config, f"{name}_run_id", str(position.state.get("run_id") or ""))
    module, _, made = DOORS[name].place.partition(":")
    backend: LoggingBackend = getattr(importlib.import_module(module), made)(config, log_file=log_file)
    backend._resume(position.state)
    return backend

"""Barograph: telemetry for training language models.

    import barograph

    run = barograph.init(project="gpt", config={"lr": 3e-4})
    run.log({"train/loss": 2.31, "train/lr": 3e-4}, step=1)
    run.finish()

Names are loaded when they are used: importing the package loads no other library. The one list of them, and of the
modules that they come from, is `__init__.pyi` beside this file.
"""

from __future__ import annotations

from barograph.core import providers as _providers

__version__ = "0.1.0"
_homes: dict[str, str] = {}

# what a room below needs of one above, such as what draws a thing that lives there
_providers.provide({
    "metrics in TensorBoard": "barograph.trackers.tensorboard:TensorBoardBackend",
    "metrics in W&B": "barograph.trackers.wandb:WandBBackend",
    "alert": "barograph.sidecar.alerts.alert:alert_of",
    "alert rule": "barograph.sidecar.alerts.options:read_threshold",
    "alert rules": "barograph.sidecar.alerts.options:rule_fields",
    "alert routes": "barograph.sidecar.alerts.options:read_routes",
    "diagnosis": "barograph.doctor.diagnosis:diagnose",
    "doctor's rules": "barograph.doctor.kernel.registry:make_rules",
    "sealed blocks": "barograph.store.sealed:sealed_blocks",
    "runs that a word means": "barograph.importing.resolve:resolve",
    "loss at a run's end": "barograph.query.losses:loss_at_end",
    "losses of a run's folder": "barograph.query.losses:losses_of_folder",
    "stored run": "barograph.query.stored:StoredRun",
    "run in a notebook": "barograph.views.notebook.display:of_run",
    "run's folder in a notebook": "barograph.views.notebook.display:of_folder",
    "comparison in a notebook": "barograph.views.notebook.display:of_comparison",
    "comparison as text": "barograph.views.compare.tables:page",
    "comparison as Markdown": "barograph.views.compare.markdown:document",
    "comparison as HTML": "barograph.views.compare.webpage:document",
    "importance as text": "barograph.views.importance:page",
    "importance as Markdown": "barograph.views.importance:markdown",
    "scaling law as text": "barograph.views.compare.scaling_page:page",
    "width check as text": "barograph.views.widths:check_text",
    "width check as PNG": "barograph.views.widths:check_png",
})  # fmt: skip


def _names() -> dict[str, str]:
    """The public names with their modules, from the stub's lines `from MODULE import NAME as NAME`."""
    if not _homes:
        with open(__file__.rpartition(".")[0] + ".pyi", encoding="utf-8") as stub:
            lines = [line.split() for line in stub if line.startswith("from barograph.")]
        _homes.update((words[5], words[1]) for words in lines)
    return _homes


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_names())
    if name.startswith("_") or name not in _names():
        raise AttributeError(f"module 'barograph' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_names()[name]), name)
    return value


def __dir__() -> list[str]:
    return ["__version__", *sorted(_names())]

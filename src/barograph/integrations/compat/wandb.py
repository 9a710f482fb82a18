"""W&B's module, recorded by Barograph: `import barograph.compat.wandb as wandb`.

In:   `wandb.init`, `wandb.log`, `wandb.config` and the rest of a program's calls; W&B's environment variables.
Out:  a run of Barograph. Nothing is sent anywhere. What is not supported says so once, and the training goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import string
import sys
import threading
from collections.abc import Mapping
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from barograph.core import liveness, manifest, place
from barograph.core.names import folder_name
from barograph.core.options import ConfigError, load
from barograph.core.values import text
from barograph.integrations.compat.tensorboard import copy_writers
from barograph.integrations.compat.unsupported import say_once, unsupported
from barograph.integrations.compat.wandb_artifacts import WandbArtifact
from barograph.integrations.compat.wandb_media import (
    WandbAudio,
    WandbFigure,
    WandbHistogram,
    WandbHtml,
    WandbImage,
    WandbObject,
    WandbTable,
    WandbVideo,
    chart,
)
from barograph.integrations.compat.wandb_run import AttributeMapping, WandbRun
from barograph.integrations.shared import quiet
from barograph.training import start
from barograph.training.configuration import as_mapping

__version__ = "0.31.0"  # of W&B's interface: libraries ask for it
Artifact = WandbArtifact
Audio = WandbAudio
Histogram = WandbHistogram
Html = WandbHtml
Image = WandbImage
Molecule = WandbObject
Object3D = WandbObject
Plotly = WandbFigure
Run = WandbRun
Table = WandbTable
Video = WandbVideo
Error = ConfigError
UsageError = ConfigError
CommError = ConfigError
run: Run | None = None
_open: list[Run] = []
_turn = threading.RLock()
_warnings = logging.getLogger("barograph")
_YES = ("1", "true", "yes", "on", "y", "t")


class AlertLevel(Enum):
    """How urgent an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class WandbSettings(SimpleNamespace):
    """W&B's settings; those that describe the run are used, the others are taken and left."""


Settings = WandbSettings


class _Plots:
    """`wandb.plot`: each function's arguments are kept as a file."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return chart(name)


plot = _Plots()
plots = plot
plot_table = plot.plot_table
util = SimpleNamespace(
    generate_id=lambda length=8: "".join(
        secrets.choice(string.ascii_lowercase + string.digits) for _ in range(int(length))
    )
)
errors = SimpleNamespace(Error=Error, UsageError=UsageError, CommError=CommError)


# -- the run ---------------------------------------------------------------------------------------------


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Any = None,
    config: Any = None,
    config_exclude_keys: Any = None,
    config_include_keys: Any = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    reinit: Any = None,
    resume: Any = None,
    settings: Any = None,
    **options: Any,
) -> Run:
    """Start a run, or go on with one. Arguments go before `settings`, these before W&B's environment variables.

    mode: `disabled` records nothing; `online` and `offline` are the same here. A second call gives the run that is
    open, unless `reinit` says otherwise (`True` or `finish_previous`, `create_new`).
    """
    held = settings if isinstance(settings, Mapping) else vars(settings) if settings is not None else {}

    def given(value: Any, setting: str, variable: str) -> Any:
        value = held.get(setting) if value is None else value
        return (os.environ.get(variable) or None) if value is None else value

    values = _values(config, config_include_keys, config_exclude_keys)
    with _turn:
        again = given(reinit, "reinit", "WANDB_REINIT")
        if _open and (again in (True, "finish_previous", "true") or (not again and place.in_notebook())):
            for other in tuple(_open):
                other.finish()
        elif _open and again != "create_new":
            say_once("wandb.init is called while a run is open: it gives that run; reinit=True begins another")
            _open[-1].config.update(values)
            return _open[-1]
        about = {
            "project": given(project, "project", "WANDB_PROJECT"),
            "name": given(name, "run_name", "WANDB_NAME"),
            "notes": given(notes, "run_notes", "WANDB_NOTES"),
            "group": given(group, "run_group", "WANDB_RUN_GROUP"),
            "job_type": given(job_type, "run_job_type", "WANDB_JOB_TYPE"),
        }
        words = given(tags, "run_tags", "WANDB_TAGS") or ()
        about["tags"] = [word for word in words.split(",") if word] if isinstance(words, str) else list(words)
        mode = str(given(mode, "mode", "WANDB_MODE") or "online")
        if os.environ.get("WANDB_DISABLED", "").lower() in _YES:
            mode = "disabled"
        which = given(id, "run_id", "WANDB_RUN_ID")
        begun = None
        if mode != "disabled":
            chosen = {key: value for key, value in about.items() if value not in (None, "")}
            chosen |= _place(given(dir, "root_dir", "WANDB_DIR"))
            chosen |= _resumption(chosen, which, given(resume, "resume", "WANDB_RESUME"))
            begun = start.init(config=values, **quiet(chosen))
            if (options.get("sync_tensorboard") or options.get("tensorboard")) and not copy_writers():
                say_once(
                    "sync_tensorboard found no SummaryWriter: import torch.utils.tensorboard or tensorboardX before "
                    "wandb.init, or use barograph.compat.tensorboard.SummaryWriter"
                )
        about["id"] = which or util.generate_id()
        about["entity"] = given(entity, "entity", "WANDB_ENTITY") or ""
        about["settings"] = WandbSettings(**{**held, "mode": mode})
        fresh = Run(begun, _described(begun, about), _finished)
        fresh.config.update(_early if begun is not None else _early | values)
        if not (again == "create_new" and _open):
            _this().__dict__["run"] = fresh
        _open.append(fresh)
        return fresh


def _values(config: Any, include: Any, exclude: Any) -> dict[str, Any]:
    if isinstance(config, (str, os.PathLike)):
        say_once("wandb.init(config=PATH) is not supported: give the values; the training goes on without them")
        return {}
    values = as_mapping(config)
    return {
        key: value for key, value in values.items() if (not include or key in include) and key not in (exclude or ())
    }


def _described(begun: Any, about: dict[str, Any]) -> dict[str, Any]:
    """What W&B's run says of itself."""
    about |= {"resumed": False, "offline": True, "dir": ""}
    if begun is not None:
        about |= {"id": begun.id, "name": begun.about.name, "project": begun.about.project, "dir": str(begun.dir)}
        about["resumed"] = begun.about.segment.parent is not None
    about["path"] = f"{about['entity']}/{about['project']}/{about['id']}".lstrip("/")
    return about


def _place(folder: Any) -> dict[str, Any]:
    return {"dir": str(Path(folder) / "runs")} if folder and not os.environ.get("BAROGRAPH_DIR") else {}


def _resumption(chosen: Mapping[str, Any], which: Any, resume: Any) -> dict[str, Any]:
    """W&B's `id` and `resume` as options of ours. `auto` goes on with the last run where that did not end well."""
    word = str(resume).lower() if resume not in (None, False, "") else ""
    if which:
        if word == "must":
            return {"id": text(which), "resume": "must"}
        return {"id": text(which), **({"resume": "allow"} if word in ("allow", "auto", "true") else {})}
    if word == "must":
        raise UsageError('resume="must" needs the id of the run to go on with: wandb.init(id=…, resume="must").')
    if word not in ("auto", "true"):
        return {}
    settings = load({name: chosen[name] for name in ("project", "dir") if name in chosen})
    home = Path(settings.dir) / folder_name(settings.project)
    found = [(folder, manifest.read(folder)) for folder in (home.iterdir() if home.is_dir() else ())]
    ended = [(about.get("started") or "", folder.name, about) for folder, about in found if about]
    if not ended:
        return {}
    _, last, about = max(ended, key=lambda item: item[0])
    if about.get("status") == "finished" or liveness.is_alive(about):
        return {}
    return {"id": last, "resume": "allow"}


def _finished(ended: Run) -> None:
    with _turn:
        if ended in _open:
            _open.remove(ended)
        if _this().__dict__.get("run") is ended:
            _this().__dict__["run"] = _open[-1] if _open else None


def _current(call: str) -> Run | None:
    found: Run | None = _this().__dict__.get("run")
    if found is None:
        say_once(f"{call} is called before wandb.init, or after wandb.finish: it does nothing")
    return found


# -- calls of the module ------------------------------------------------------------------------------------


def log(data: Any = None, step: Any = None, commit: bool | None = None, sync: bool | None = None) -> None:
    """See `Run.log`."""
    found = _current("wandb.log")
    if found is not None:
        found.log(data, step, commit)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run."""
    found = _this().__dict__.get("run")
    if found is not None:
        found.finish(exit_code, quiet)


join = teardown = finish


def login(*arguments: Any, **named: Any) -> bool:
    """Nobody has to log in here."""
    return True


def setup(settings: Any = None) -> None:
    """There is nothing to set up."""


def install() -> None:
    """Take W&B's place in this process: from now on `import wandb` gives this module, in libraries too."""
    sys.modules["wandb"] = _this()
    _this().__dict__["__path__"] = []  # `import wandb.sdk` asks for it
    if not any(isinstance(finder, _Parts) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Parts())


class _Part(ModuleType):
    """`wandb.sdk.wandb_run` and the like: its names are the module's."""

    __path__: list[str] = []  # noqa: RUF012  # every one may have parts of its own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_this(), name)


class _Parts(MetaPathFinder, Loader):
    """Finds the parts of `wandb` once this module stands for it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Any part, also one that W&B does not have."""
        return ModuleSpec(name, self, is_package=True) if name.startswith("wandb.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One part."""
        return _Part(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


_early: dict[str, Any] = {}
"""What was written into `wandb.config` before `wandb.init`."""


def _held(part: str) -> Any:
    found = _this().__dict__.get("run")
    return _early if found is None else getattr(found, part)


def _change(part: str, changes: Mapping[str, Any]) -> None:
    found = _this().__dict__.get("run")
    (_early if found is None else getattr(found, part)).update(dict(changes))


config = AttributeMapping(lambda: _held("config"), lambda changes: _change("config", changes))
summary = AttributeMapping(lambda: _held("summary"), lambda changes: _change("summary", changes))
_CALLS = (
    "define_metric", "watch", "unwatch", "alert", "log_artifact", "log_model", "use_artifact", "save", "log_code",
    "mark_preempting",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """The run's calls; anything else says once that it is not supported."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _CALLS:
        found = _current(f"wandb.{name}")
        return unsupported(f"wandb.{name} without a run") if found is None else getattr(found, name)
    if name == "agent":
        raise UsageError("W&B's sweeps are not supported: call the training with each set of values yourself.")
    return unsupported(f"wandb.{name}")


class _Module(ModuleType):
    """`wandb.config = {…}`, as old programs write it, adds to the configuration."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "config":
            with contextlib.suppress(TypeError):
                _change("config", as_mapping(value))
            return
        super().__setattr__(name, value)


def _this() -> ModuleType:
    return sys.modules[__name__]


_this().__class__ = _Module

"""W&B's run object: what `wandb.init` returns.

In:   `run.log(…)`, `run.config`, `run.summary`, `run.define_metric`, artifacts, alerts.
Out:  the same in a `Run`, at the step that W&B would give it. A run that is disabled records nothing.
"""

from __future__ import annotations

import fnmatch
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from barograph.core import manifest
from barograph.core.values import PLAIN, number, text, whole
from barograph.integrations.compat.unsupported import say_once, unsupported
from barograph.integrations.compat.wandb_artifacts import WandbArtifact, find_artifact
from barograph.integrations.compat.wandb_media import WandbMedia, media
from barograph.probes.model.schedule import BUDGET
from barograph.training.configuration import as_mapping
from barograph.training.run import Run, attach
from barograph.training.shapes import step_name

_LEVELS = {"INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "critical"}
_QUICK = PLAIN | {str, type(None)}


class AttributeMapping(MutableMapping[str, Any]):
    """A mapping whose values are attributes too. `held` gives the dictionary; `changed` is called with changes."""

    def __init__(self, held: Callable[[], Any], changed: Callable[[dict[str, Any]], Any]):
        self.__dict__["_held"], self.__dict__["_changed"] = held, changed

    def __getitem__(self, name: str) -> Any:
        return self._held()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._changed({name: value})

    def __delitem__(self, name: str) -> None:
        self._held().pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def __getattr__(self, name: str) -> Any:
        try:
            return self._held()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, values: Any = None, allow_val_change: Any = None, **named: Any) -> None:  # type: ignore[override]
        """More values: a mapping, a namespace, a dataclass."""
        self._changed(as_mapping(values) | named)

    def setdefaults(self, values: Any) -> None:
        """Those that are not there yet."""
        self.update({name: value for name, value in as_mapping(values).items() if name not in self})

    def as_dict(self) -> dict[str, Any]:
        """A dictionary of its own."""
        return dict(self._held())

    def __repr__(self) -> str:
        return repr(dict(self._held()))


class WandbRun:
    """One run as W&B has it. `barograph`: the `Run` that records it, None where it is disabled."""

    def __init__(self, run: Run | None, about: Mapping[str, Any], on_finish: Callable[[WandbRun], Any]):
        own = self.__dict__
        own.update(about)
        own.update(barograph=run, disabled=run is None, start_time=time.time(), _on_finish=on_finish, sweep_id=None)
        own["_step"] = own["starting_step"] = 0 if run is None else run._out.next_step
        own["_axes"], own["_axis_of"], own["_last_of_axis"], own["_summarized"] = {}, {}, {}, {}
        own["_watches"] = []
        values: dict[str, Any] = {}
        own["config"] = AttributeMapping(
            lambda: values if run is None else run.config, values.update if run is None else run.config.update
        )
        summary: dict[str, Any] = {}
        own["_last_values"] = summary
        own["summary"] = AttributeMapping(lambda: summary, self._summarize)

    # -- values --------------------------------------------------------------------------------------------

    def log(self, data: Any = None, step: Any = None, commit: bool | None = None, sync: bool | None = None) -> None:
        """Named values; without any, what waits is committed. Without `step` each call is a step of its own, unless
        `commit=False`; with `step`, calls of one step are one row. A step that the values name themselves (`iter`,
        `global_step`, …) counts."""
        run = self.barograph
        if run is None:
            return
        try:
            data = {} if data is None else data
            if not isinstance(data, Mapping):
                run.log(data)
                return
            at = self._at(data, step)
            if step is None and "step" in data and at == whole(data["step"]):
                data = {name: value for name, value in data.items() if name != "step"}  # it is the row's step
            if commit is True or (commit is None and step is None):
                self.__dict__["_step"] = max(at + 1, self._step)
            elif at >= self._step:
                self.__dict__["_step"] = at
            if any(type(value) not in _QUICK for value in data.values()):
                data = self._keep_media(run, data, at)
            if self._axes:
                self._log_by_axis(run, data, at)
            elif data:
                run.log(data, at)
            for name, value in data.items():
                self._last_values[name] = value.detach() if hasattr(value, "detach") else value
            if self._summarized:
                self._summarize_rows(data)
        except Exception as error:
            run._out.failed("row of W&B's", error)

    def _at(self, data: Mapping[Any, Any], step: Any) -> int:
        given = None if step is None else whole(step)
        if given is None:
            name = step_name(data)
            named = None if name is None else whole(data[name])
            return self._step if named is None else named
        if given < self._step:
            say_once(f"step {given} comes after step {self._step}: W&B would drop it; it is recorded at its step")
        return given

    def _keep_media(self, run: Run, data: Mapping[Any, Any], at: int, prefix: str = "") -> dict[str, Any]:
        """The values without what is kept as a file or as a histogram."""
        rest: dict[str, Any] = {}
        for key, value in data.items():
            name = f"{prefix}{text(key)}"
            if type(value) in _QUICK:
                rest[name] = value
            elif isinstance(value, Mapping):
                rest |= self._keep_media(run, value, at, f"{name}/")
            elif isinstance(value, (list, tuple)) and value and media(value[0]) is not None:
                for item in value:
                    self._keep(run, media(item), name, at)
            elif (kept := media(value)) is not None:
                self._keep(run, kept, name, at)
            else:
                rest[name] = value
        return rest

    def _keep(self, run: Run, item: WandbMedia | None, name: str, at: int) -> None:
        try:
            if item is not None:
                item.keep(run, name, at)
        except Exception as error:
            run._out.failed(f"wandb.{item.kind}" if item is not None else "file", error)

    def define_metric(self, name: Any, step_metric: Any = None, summary: Any = None, **options: Any) -> Any:
        """`step_metric`: the values of that name are the step of these metrics, where it counts steps.
        summary: `min`, `max`, `mean`, `last`, also several with commas."""
        axis = getattr(step_metric, "name", step_metric)
        if axis is not None and any(word in text(axis).lower() for word in ("step", "iter")):
            self._axes[text(name)] = text(axis)
            self._axis_of.clear()
        if summary:
            self._summarized[text(name)] = [word.strip() for word in text(summary).split(",")]
        return WandbMetric(text(name), axis)

    def _log_by_axis(self, run: Run, data: Mapping[Any, Any], at: int) -> None:
        rows: dict[int, dict[Any, Any]] = {}
        for name in set(self._axes.values()) & set(map(text, data)):
            self._last_of_axis[name] = whole(data[name])
        for key, value in data.items():
            name = text(key)
            if name not in self._axis_of:
                fits = [pattern for pattern in self._axes if fnmatch.fnmatchcase(name, pattern)]
                axis = self._axes[max(fits, key=len)] if fits else None  # the most specific pattern
                self._axis_of[name] = name if name in self._axes.values() else axis
            step = self._last_of_axis.get(self._axis_of[name])
            rows.setdefault(at if step is None else step, {})[key] = value
        for step, row in rows.items():
            run.log(row, step)

    def _summarize_rows(self, data: Mapping[Any, Any]) -> None:
        for pattern, words in self._summarized.items():
            for key, value in data.items():
                name, new = text(key), number(value)
                if fnmatch.fnmatchcase(name, pattern) and new == new:
                    for word in set(words) & {"min", "max"}:
                        best = self._last_values.get(f"{name}.{word}", new)
                        self._last_values[f"{name}.{word}"] = min(best, new) if word == "min" else max(best, new)

    def _summarize(self, changes: Mapping[str, Any]) -> None:
        self._last_values.update(changes)
        run = self.barograph
        if run is not None:
            for name, value in changes.items():
                kept = media(value)
                if kept is not None:
                    self._keep(run, kept, f"summary/{name}", run.about.step)
                else:
                    run.config._record({f"summary/{name}": value})

    # -- the model, people, files ----------------------------------------------------------------------------

    def watch(
        self, models: Any, criterion: Any = None, log: Any = "gradients", log_freq: int = 1000, **options: Any
    ) -> None:
        """Gradients each `log_freq` steps; with `log="all"` or `"parameters"` weights too."""
        every = max(1, whole(log_freq) or 1000)
        if self.barograph is not None and log is not None:
            wanted: dict[str, Any] = {"gradients": every if log in ("gradients", "all") else 0, "histograms": every}
            if every == 1000:  # W&B's default, not an interval that was asked for
                wanted["budget"] = BUDGET
            self._watches.append(self.barograph.watch(models, weights=every if log != "gradients" else 0, **wanted))

    def unwatch(self, models: Any = None) -> None:
        """No longer."""
        wanted = models if isinstance(models, (list, tuple)) else [models]
        for watch in filter(None, self._watches):
            if models is None or any(model is each for model in wanted for each in watch.model.modules()):
                watch.close()

    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """A message to people. wait_duration: seconds, or a timedelta, before the same one is sent again."""
        seconds = wait_duration.total_seconds() if hasattr(wait_duration, "total_seconds") else wait_duration
        word = _LEVELS.get(str(getattr(level, "value", level) or "INFO").upper(), "info")
        if self.barograph is not None:
            self.barograph.alerts.send(title, text, level=word, cooldown=seconds)

    def log_artifact(
        self, artifact_or_path: Any, name: str | None = None, type: str | None = None, aliases: Any = None, **more: Any
    ) -> WandbArtifact:
        """Keep an artifact, or a file or folder as one."""
        artifact = artifact_or_path
        if not isinstance(artifact, WandbArtifact):
            path = Path(artifact_or_path)
            artifact = WandbArtifact(name or f"run-{self.id}-{path.name}", type or "unspecified")
            (artifact.add_dir if path.is_dir() else artifact.add_file)(path)
        try:
            if self.barograph is not None:
                artifact.keep(self.barograph, aliases)
        except Exception as error:
            assert self.barograph is not None
            self.barograph._out.failed("W&B artifact", error)
        return artifact

    def log_model(self, path: Any, name: str | None = None, aliases: Any = None) -> None:
        """A checkpoint as an artifact."""
        self.log_artifact(path, name, "model", aliases)

    def use_artifact(self, artifact_or_name: Any, type: str | None = None, **more: Any) -> WandbArtifact:
        """One that a run of this project kept. Raises ValueError where there is none."""
        if isinstance(artifact_or_name, WandbArtifact):
            return artifact_or_name
        found = None if self.barograph is None else find_artifact(self.barograph, text(artifact_or_name))
        if found is None:
            raise ValueError(f"no run of project {self.project!r} has kept an artifact {artifact_or_name!r}")
        return found

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Keep files as they are now."""
        kept: list[str] = []
        run = self.barograph
        if run is None or glob_str is None:
            return kept
        try:
            pattern = Path(glob_str)
            for path in [pattern] if pattern.is_file() else sorted(pattern.parent.glob(pattern.name)):
                if path.is_file():
                    place = run.dir / "files" / (path.relative_to(base_path) if base_path else path.name)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, place)
                    kept.append(str(place))
        except Exception as error:
            run._out.failed("W&B file", error)
        return kept

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; with an exit code other than 0 as failed."""
        if self.barograph is not None:
            self.barograph.finish("failed" if exit_code else None)
        self._on_finish(self)

    def __enter__(self) -> WandbRun:
        return self

    def __exit__(self, *problem: Any) -> None:
        if self.barograph is not None:
            self.barograph.__exit__(*problem)
        self._on_finish(self)

    # -- what it is --------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = list(value) if name == "tags" else value
        if name in ("name", "notes", "tags", "group", "job_type") and self.barograph is not None:
            try:
                manifest.update(self.barograph.dir, **{name: self.__dict__[name]})
            except OSError as error:
                self.barograph._out.failed(name, error)

    def __getattr__(self, name: str) -> Any:
        if name == "step":
            return self._step
        if name == "url":
            return "" if self.barograph is None else self.barograph.dir.absolute().as_uri()
        if name in ("get_url", "project_name"):
            return lambda: self.url if name == "get_url" else self.project
        if name in ("log_code", "mark_preempting", "display", "status", "_label", "to_html"):
            return lambda *arguments, **named: None
        if name.startswith("__"):
            raise AttributeError(name)
        return unsupported(f"wandb.run.{name}")

    def __reduce__(self) -> tuple[Any, ...]:
        about = {name: self.__dict__.get(name) for name in _PICKLED}
        run = self.barograph
        return _unpickled, (about, None if run is None else (str(run.dir), run._out.settings, dict(run.config)))


_PICKLED = (
    "id",
    "name",
    "project",
    "entity",
    "group",
    "job_type",
    "notes",
    "tags",
    "dir",
    "path",
    "resumed",
    "offline",
)


def _unpickled(about: Mapping[str, Any], run: tuple[Any, ...] | None) -> WandbRun:
    """In another process the same run, written by that process."""
    return WandbRun(None if run is None else attach(*run), about, lambda run: None)


class WandbMetric:
    """What `define_metric` returns."""

    def __init__(self, name: str, step_metric: Any):
        self.name, self.step_metric = name, step_metric

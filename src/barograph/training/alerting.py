"""RunAlerts: the alerts that a loop sends, and the requests that it gets.

In:   `run.alerts.send`, `add`, `stop_early`; requests of the process beside the training.
Out:  `alert-request`, `alert-rule` and `stop-rule` records, which that process acts upon; whether to stop.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barograph.core import providers
from barograph.core.values import flatten, plain, text
from barograph.training.beside import Beside
from barograph.training.control import ControlFile
from barograph.training.debugging import DebugMode
from barograph.training.guard import guarded
from barograph.training.recorder import Recorder
from barograph.training.stopping import EarlyStopping, StopRequest

LEVELS = ("info", "warning", "critical")


class RunAlerts:
    """`run.alerts`. `stop`: the request to stop, true once there is one."""

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self._control = ControlFile(recorder.dir, recorder.failed)
        recorder.folder.on_change.append(self._again)
        self.stop: StopRequest = self._control.stop
        self.debug: DebugMode | None = None  # set by `run.model.debug_after_findings`
        self.stoppers: list[EarlyStopping] = []
        self.beside: Beside | None = None  # set by `init`
        self._on_alert: Callable[[Any], Any] | None = None
        self._doctor_named = False  # the console has said how to read all findings
        self._control.on |= {
            "alert": self._show,
            "warn": lambda line: recorder.warn(str(line.get("reason", ""))),
            "look_closer": self._look_closer,
        }
        recorder.each_second.append(self._each_second)

    # -- what to tell -----------------------------------------------------------------------------------

    @guarded("alert")
    def send(self, title: str, text: str = "", level: str = "warning", **about: Any) -> None:
        """Tell people something now, at most once in a while for the same `cause` (default: the same words).

        level: info, warning or critical. about: `cause`, `metric`, `value`, `step`, `cooldown` (seconds).
        """
        fields = {"title": _words(title) or "Alert", "text": _words(text), "level": str(level).strip().lower()}
        fields |= {name: plain(value, name, self._out.odd) for name, value in about.items() if value is not None}
        step = fields.pop("step", None)
        self._out.emit("alert-request", self._out.current_step if step is None else step, fields, checked=True)
        self.need_sidecar()

    @guarded("alert rule")
    def add(self, metric: str, **options: Any) -> None:
        """Tell people when a metric is out of bounds: `above`, `below`, `change`, `missing` or `not_finite`, and
        more options: docs/guides/alerts.md. A pattern such as `gpu/*/power` watches each metric that fits."""
        try:
            providers.provider("alert rule")({"metric": metric} | options, f"the alert on {metric!r}")
        except ValueError as error:
            self._out.odd(str(error))
            return
        fields = {"metric": text(metric)} | {name: _listed(value) for name, value in options.items()}
        self._out.emit("alert-rule", self._out.current_step, fields, checked=True)
        self.need_sidecar()

    @guarded("early stopping")
    def stop_early(self, stopper: EarlyStopping | None = None, **criteria: Any) -> EarlyStopping | None:
        """Ask for a stop when a metric has stopped to improve: `patience`, `min_delta`, `metric`, `mode`, `target`."""
        try:
            chosen = EarlyStopping(**criteria) if stopper is None else stopper
        except (ValueError, TypeError) as error:
            self._out.odd(f"no early stopping: {error}")
            return None
        self.stoppers.append(chosen)
        fields = {name: value for name, value in chosen.criteria().items() if value is not None}
        self._out.emit("stop-rule", self._out.current_step, fields, checked=True)
        self.need_sidecar()
        return chosen

    def call(self, on_alert: Callable[[Any], Any], make: Callable[[dict[str, Any]], Any]) -> None:
        """Call a function with each alert, in another thread. make: an alert of a request's fields."""
        self._on_alert = lambda line: on_alert(make(line))
        self._out.later.each_round(self._control.look)

    # -- what is asked of the loop ------------------------------------------------------------------------

    @property
    def stop_requested(self) -> bool:
        """Whether the loop is asked to stop; a fraction of a microsecond."""
        if time.monotonic() >= self._control._look_at:
            self._control.look()
        return bool(self.stop)

    @property
    def stop_reason(self) -> str:
        """Why the loop is asked to stop; empty if it isn't."""
        return self.stop.reason

    @property
    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint is asked for; `run.checkpoints.save` answers it."""
        self._control.look()
        return self.stop.checkpoint_requested

    def request_stop(self, reason: str) -> None:
        """Ask the loop to stop after a checkpoint."""
        self.stop.ask(text(reason), self._out.current_step)

    def last_look(self) -> None:
        """The run has ended: what its sidecar has warned of meanwhile."""
        self._control.on = {"warn": self._control.on["warn"]}
        self._control.look(now_or_never=True)

    def on_request(self, request: str, call: Callable[[dict[str, Any]], Any]) -> None:
        """Have `call` called with each line of that request."""
        self._control.on[request] = call

    # -- inside ---------------------------------------------------------------------------------------------

    def need_sidecar(self) -> None:
        """Something has to be judged beside the training: start the sidecar, or say once that there is none."""
        if self.beside is None:
            return
        self.beside.look(self._out.later.call, now=True)
        if not self._out.settings.sidecar and self._out.rank == 0:
            self._out.warn(
                "alerts and early stopping are judged by the sidecar, which this run has none of (sidecar=False): "
                f"nothing is sent and no stop is asked for while it trains; `barograph attend {self._out.dir}` says "
                "afterwards what would have been",
                key="no sidecar",
            )

    def _each_second(self) -> None:
        self._control.look()
        if self.beside is not None:
            self.beside.look(self._out.later.call)
        if self.debug is not None:
            self.debug.at(self._out.current_step)

    def _again(self, folder: Path) -> None:
        """The folder was deleted or moved, and the process beside the training has left it."""
        self._control.move(folder)
        if self.beside is not None:
            self.beside.again(folder)

    def _show(self, line: dict[str, Any]) -> None:
        about = line.get("alert") if isinstance(line.get("alert"), dict) else line
        assert about is not None
        title, said = _words(about.get("title", "")), _words(about.get("text", ""))
        recovered = bool(about.get("recovered"))
        shown = f"{title}: {said}" if said and said != title else title
        lines = [f"alert: {'recovered: ' if recovered else ''}{shown} (step {line.get('step', 0)})"]
        if str(about.get("cause", "")).startswith("doctor: ") and not self._doctor_named:
            self._doctor_named = True
            lines.append(f"all findings, with evidence: barograph doctor {self._out.dir}")
        self._out.console.say(lines, "INFO" if recovered else str(about.get("level", "warning")).upper())
        if self._on_alert is not None:
            on_alert = self._on_alert
            self._out.later.call(lambda: on_alert({"step": line.get("step"), "time": line.get("time")} | about))

    def _look_closer(self, line: dict[str, Any]) -> None:
        if self.debug is not None and isinstance(line.get("finding"), dict):
            self.debug.told(_Finding(**{
                item.name: line["finding"].get(item.name, item.default) for item in dataclasses.fields(_Finding)
            }), self._out.current_step)  # fmt: skip


@dataclasses.dataclass
class _Finding:
    """What debug mode needs of a finding."""

    rule: str = ""
    severity: str = "warning"
    step: int = 0
    key: str = ""
    segment: int = 0


def _words(value: Any) -> str:
    return text(value)[:2000]


def _listed(value: Any) -> Any:
    """An option of a rule as JSON holds it."""
    if isinstance(value, dict):
        return flatten(value, lambda sentence: None)
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    return plain(value, "", lambda sentence: None)

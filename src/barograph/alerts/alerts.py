"""Alerts: what a run tells people while it goes on.

In:   records from the pump's thread, calls of the loop, findings of the doctor.
Out:  `alert` records, lines on the console, messages by threads of their own, requests to stop.

Everything is decided in microseconds. Nothing is sent by the training's thread nor by the pump's.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from barograph.alerts.alert import LEVELS, Alert, clean, level_of, rank, shown, title_of
from barograph.alerts.debugging import DebugMode
from barograph.alerts.delivery import Delivery
from barograph.alerts.gate import Gate
from barograph.alerts.options import read_routes, read_threshold, read_thresholds
from barograph.alerts.stopping import EarlyStopping, StopRequest
from barograph.alerts.targets import Address, Callback
from barograph.alerts.thresholds import Answer, Threshold, Watched
from barograph.alerts.watching import Watching
from barograph.probes.recording import Recording
from barograph.record import Record

CLOSE_SECONDS = 10.0
_MOST_FINDINGS = 10_000  # remembered as told


class Trouble(Protocol):
    """What is needed of a finding of the doctor's."""

    rule: str
    severity: str
    step: int
    last_step: int
    message: str
    key: str
    segment: int
    causes: list[str]
    remedies: list[str]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The run's options for alerts, with what holds where it has none."""

    cooldown: float = 600.0
    digest: float = 60.0
    recovery: bool = True
    findings: str = "warning"
    stop_on: str = "none"

    @classmethod
    def of(cls, settings: Any) -> _Plan:
        given = {
            one.name: getattr(settings, f"alert_{one.name}")
            for one in dataclasses.fields(cls)
            if hasattr(settings, f"alert_{one.name}")
        }
        plan = cls(**given)
        return dataclasses.replace(plan, stop_on=getattr(settings, "stop_on", None) or "none")


class Alerts:
    """One run's alerts. A listener of its pump; `send` and `report` may be called from any thread.

    settings: with `alerts`, `notify`, `alert_cooldown` (seconds), `alert_digest` (seconds), `alert_recovery`,
    `alert_findings` (lowest severity of findings that are sent, or "none") and `stop_on` ("critical", "warning" or
    "none"). on_alert: called with each Alert, in a thread of its own. show: called with lines and a level; the
    console's `say`. clock: seconds that only go forward. deliver: makes a Delivery, for tests.

    Raises ConfigError for entries that are none. Messages go out from rank 0 alone; other ranks record.
    """

    def __init__(
        self,
        run: Recording,
        settings: Any = None,
        *,
        on_alert: Callable[[Alert], Any] | None = None,
        show: Callable[[list[str], str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        deliver: Callable[..., Delivery] = Delivery,
    ):
        settings = run.settings if settings is None else settings
        self._run, self._show, self._clock, self._make = run, show, clock, deliver
        self._plan = _Plan.of(settings)
        thresholds = read_thresholds(getattr(settings, "alerts", None))
        routes = read_routes(getattr(settings, "notify", None))
        self.stop = StopRequest()
        self.stoppers: list[EarlyStopping] = []
        self.debug: DebugMode | None = None
        self._gate, self._watching = Gate(), Watching()
        self._lock = threading.RLock()  # of the gate and the deliveries; held for microseconds
        self._owner, self._closed = os.getpid(), False
        self._told: dict[tuple[Any, ...], tuple[int, int]] = {}  # finding → rank told (-1: none), its last step
        self._waiting: list[tuple[Alert, Threshold | None]] = []  # decided in `take`, emitted in `settle`
        self._deliveries: dict[tuple[str, str], Delivery] = {}
        self._callback: Delivery | None = None
        if on_alert is not None:
            self.call(on_alert)
        self._routes = self._open(routes)
        for threshold in thresholds:
            self._add(threshold)

    @property
    def _sends(self) -> bool:
        return self._run.rank == 0

    def call(self, on_alert: Callable[[Alert], Any]) -> None:
        """Call a function with each alert, in a thread of its own; on rank 0."""
        if self._sends:
            self._callback = self._delivery(Callback(on_alert), "info")

    # -- what to look for ------------------------------------------------------------------------------

    def add(self, metric: str, **options: Any) -> None:
        """Watch a metric: `add("train/loss", above=10, rows=5)`, with the options of an entry of `alerts`.

        Raises ConfigError for options that are none.
        """
        self._add(read_threshold({"metric": metric} | options, f"the alert on {metric!r}"))

    def _add(self, threshold: Threshold) -> None:
        if threshold.notify is not None:
            self._open(threshold.notify)
        self._watching.add(threshold, self._clock())

    def stop_early(self, stopper: EarlyStopping) -> EarlyStopping:
        """Have the metric of `stopper` followed; the run's stop is asked for when its criteria are met."""
        self.stoppers = [*self.stoppers, stopper]
        return stopper

    # -- in the pump's thread --------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """A record of the log, in its order."""
        if self.debug is not None:
            self.debug.at(record.step)

    def take_row(self, names: tuple[str, ...], values: tuple[float, ...], step: int, time: int, segment: int) -> None:
        """The numbers of a record, or of a wide row."""
        now = self._clock()
        if self._watching:
            for watched, answer in self._watching.take(names, values, step, now):
                self._judge(watched, answer, now)
        for stopper in self.stoppers:
            if not stopper.stopped and stopper.metric in names:
                self._take_stopper(stopper, step, values[names.index(stopper.metric)])

    def _take_stopper(self, stopper: EarlyStopping, step: int, value: float) -> None:
        if stopper.update(step, value):
            self.stop.ask(stopper.reason, step)
            alert = self._alert("Early stopping", stopper.reason, "info", "early stopping", step)
            self._waiting.append((dataclasses.replace(alert, metric=stopper.metric, value=value), None))

    def settle(self) -> None:
        """What waited has been given: record and send what was decided."""
        if self._closed:
            return
        now, step = self._clock(), self._run.current_step
        for watched, answer in self._watching.tick(now, step):
            self._judge(watched, answer, now)
        self._emit_waiting()
        for key, sentence in self._watching.doubts():
            self._run.warn(sentence, key=f"alert {key}")
        for delivery in tuple(self._deliveries.values()):
            delivery.check()

    def _emit_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for alert, threshold in waiting:
            self._emit(alert, threshold)

    def _judge(self, watched: Watched, answer: Answer, now: float) -> None:
        threshold = watched.threshold
        cooldown = self._plan.cooldown if threshold.cooldown is None else threshold.cooldown
        with self._lock:
            if answer == "stands":
                tell = self._gate.stands(watched.cause, threshold.severity, now, cooldown)
            else:
                tell = self._gate.over(watched.cause) and self._plan.recovery
        if not tell:
            return
        over = answer != "stands"
        title = threshold.title or f"{watched.name} {threshold.condition()}"
        text = watched.text()
        if answer == "settled":
            text = f"{watched.name} has stayed at {shown(watched.value)} so long that this is its usual value now"
        alert = self._alert(title, text, threshold.severity, watched.cause, watched.step)
        alert = dataclasses.replace(alert, metric=clean(watched.name), value=watched.value, recovered=over)
        if threshold.missing is not None and not over:
            alert = dataclasses.replace(alert, value=None)
        self._waiting.append((alert, threshold))

    # -- from any thread ---------------------------------------------------------------------------------

    def send(
        self,
        title: str,
        text: str = "",
        level: str = "warning",
        *,
        cause: str = "",
        metric: str = "",
        value: float | None = None,
        step: int | None = None,
        cooldown: float | None = None,
    ) -> bool:
        """Send an alert now; whether it goes out. The same cause (by default the same words) is sent again only
        after the cool-down. level: "info", "warning" or "critical". Never raises, never waits."""
        try:
            known = level_of(level)
            if known is None:
                self._run.warn(f"there is no alert level {level!r:.60}; there are {', '.join(LEVELS)}", "alert level")
            title = title_of(str(title)) or "Alert"
            text = clean(str(text))
            at = self._run.current_step if step is None else step
            alert = self._alert(title, text, known or "warning", cause or f"{title}: {text}", at)
            alert = dataclasses.replace(alert, metric=clean(metric), value=value)
            if os.getpid() != self._owner:  # a forked child: the lock may be held for good, the threads are gone
                self._run.record("alert", alert.step, alert.fields(), draw=False)
                return False
            with self._lock:
                pause = self._plan.cooldown if cooldown is None else cooldown
                if not self._gate.happens(alert.cause, alert.level, self._clock(), pause):
                    return False
            self._emit(alert, None)
            return True
        except Exception as error:
            self._run.warn(f"an alert could not be sent ({type(error).__name__}: {error})", "alert send")
            return False

    def report(self, finding: Trouble, over: bool = False) -> bool:
        """A finding of the doctor's, as often as it learns of it; `over`: it is gone. Whether it goes out.

        The same finding is told once, again if it becomes graver; another one of the same rule and key after the
        cool-down.
        """
        try:
            return self._report(finding, over)
        except Exception as error:
            self._run.warn(f"a finding could not be sent ({type(error).__name__}: {error})", "alert report")
            return False

    def _report(self, finding: Trouble, over: bool) -> bool:
        if os.getpid() != self._owner:
            return False
        level, cause = level_of(finding.severity) or "warning", f"doctor: {finding.rule}"
        cause += f" [{clean(finding.key, 80)}]" if finding.key else ""
        identity = (finding.rule, finding.key, finding.segment, finding.step)
        if not over and self.debug is not None:
            self.debug.told(finding, self._run.current_step)
        if not over:
            self._ask_to_stop(level, finding.message, finding.last_step)
        if self._plan.findings == "none" or rank(level) < rank(self._plan.findings):
            return False
        with self._lock:
            told, seen_to = self._told.get(identity, (-1, -1))
            if over:
                if told < 0:
                    return False
                del self._told[identity]
                if not self._plan.recovery:
                    return False
            else:
                if rank(level) <= told or (told < 0 and seen_to >= finding.last_step):
                    return False
                passes = told >= 0 or self._gate.happens(cause, level, self._clock(), self._plan.cooldown)
                if len(self._told) >= _MOST_FINDINGS:
                    del self._told[next(iter(self._told))]
                self._told[identity] = (rank(level) if passes else -1, finding.last_step)
                if not passes:
                    return False
        text = clean(finding.message)
        if over:
            text = f"This is over: {text}"
        elif finding.causes or finding.remedies:
            cause_told = f" Probable cause: {clean(finding.causes[0], 300)}." if finding.causes else ""
            text += cause_told + (f" Try: {clean(finding.remedies[0], 300)}" if finding.remedies else "")
        title = finding.rule.replace("_", " ").capitalize() + (f" [{finding.key}]" if finding.key else "")
        alert = self._alert(title, text, level, cause, finding.last_step)
        self._emit(dataclasses.replace(alert, recovered=over), None, ask=False)
        return True

    def _alert(self, title: str, text: str, level: str, cause: str, step: int) -> Alert:
        return Alert(title_of(title), clean(text), level, clean(cause, 300), step=step, time=time.time_ns() // 1000)

    def _emit(self, alert: Alert, threshold: Threshold | None, ask: bool = True) -> None:
        self._run.record("alert", alert.step, alert.fields(), draw=False)
        if ask and not alert.recovered:
            self._ask_to_stop(alert.level, f"{alert.title}: {alert.text}", alert.step)
        if self._closed:
            return
        if self._show is not None:
            word = "INFO" if alert.recovered or alert.level == "info" else alert.level.upper()
            self._show([f"alert: {alert.line()}"], word)
        own = threshold is not None and threshold.notify is not None
        routes = self._routes if not own or threshold is None else self._find(threshold.notify or ())
        for delivery in (*routes, *((self._callback,) if self._callback is not None else ())):
            delivery.put(alert)

    def _ask_to_stop(self, level: str, reason: str, step: int) -> None:
        if self._plan.stop_on != "none" and rank(level) >= rank(self._plan.stop_on) and not self.stop:
            self.stop.ask(clean(reason, 500), step)

    # -- targets ---------------------------------------------------------------------------------------

    def _open(self, routes: tuple[tuple[str, str], ...]) -> tuple[Delivery, ...]:
        for address, level in routes:
            if self._sends and (address, level) not in self._deliveries:
                self._deliveries[(address, level)] = self._delivery(Address(address), level)
        return self._find(routes)

    def _find(self, routes: tuple[tuple[str, str], ...]) -> tuple[Delivery, ...]:
        return tuple(self._deliveries[one] for one in routes if one in self._deliveries)

    def _delivery(self, target: Any, lowest: str) -> Delivery:
        return self._make(target, warn=self._run.warn, about=self._about, lowest=lowest, digest=self._plan.digest)

    def _about(self) -> str:
        name = getattr(self._run, "name", "") or self._run.dir.name
        project = getattr(self._run, "project", "")
        return clean(f"run {name}" + (f" of {project}" if project else "") + f", {os.uname().nodename}:{self._run.dir}")

    # -- the end ---------------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Send what waits, with one try each, in at most `timeout` seconds in all; whether all of it was dealt
        with. Nothing is taken after that. To be called when the pump has stopped."""
        if self._closed or os.getpid() != self._owner:
            return True
        self._emit_waiting()
        self._closed = True
        if self.debug is not None:
            self.debug.end()
        every = [*self._deliveries.values(), *([self._callback] if self._callback is not None else [])]
        for delivery in every:
            delivery.end()
        deadline = time.monotonic() + timeout
        return all([delivery.wait(deadline) for delivery in every])

"""Alerts: what a run tells people while it goes on.

In:   entries of the run's logs in order, among them what the training asks for; findings of the doctor.
Out:  `alert` records, messages by threads of their own, requests to the loop.

Time is that of the records: the same records give the same alerts, however late they are read. Only what is missing
altogether needs the present, which the sidecar gives by `tick`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from barograph.core import providers
from barograph.core.options import ConfigError, Settings
from barograph.core.record import HAS_NUMBERS, Record
from barograph.core.text import number
from barograph.log.blocks import WideRow
from barograph.log.follow import Entry
from barograph.query.ranks import RankRow
from barograph.sidecar.alerts.alert import LEVELS, Alert, clean, level_of, rank, title_of
from barograph.sidecar.alerts.delivery import Delivery
from barograph.sidecar.alerts.gate import Gate
from barograph.sidecar.alerts.options import read_routes, read_threshold, read_thresholds
from barograph.sidecar.alerts.targets import Address
from barograph.sidecar.alerts.thresholds import Answer, Threshold, Watched
from barograph.sidecar.alerts.watching import Watching
from barograph.sidecar.columns import ChosenRows
from barograph.training.stopping import EarlyStopping

CLOSE_SECONDS = 10.0
_MOST_FINDINGS = 10_000  # remembered as reported
_OLD_SECONDS = 3600.0  # of an alert that nobody needs to be woken for any more
_STOPPING = ("patience", "min_delta", "metric", "mode", "divergence", "target", "patience_steps", "finite", "least")
_CONCLUSIONS = frozenset({"finding", "goodput", "energy", "sidecar"})  # their times say when a sidecar read
_SENDING = ("title", "text", "level", "cause", "metric", "value", "cooldown")


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


class AlertRun(Protocol):
    """What is needed of a run: the sidecar's `Journal`."""

    dir: Path
    settings: Settings

    @property
    def current_step(self) -> int:
        """The step of the newest record."""

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> bool | None:
        """Write a record; False if the sidecar before has written it."""

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Say something to the user, once."""


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
            item.name: getattr(settings, f"alert_{item.name}")
            for item in dataclasses.fields(cls)
            if hasattr(settings, f"alert_{item.name}")
        }
        plan = cls(**given)
        return dataclasses.replace(plan, stop_on=getattr(settings, "stop_on", None) or "none")


class _Deliveries:
    """The deliveries to addresses, one of each address and lowest level. make: a Delivery of an address."""

    def __init__(self, make: Callable[..., Delivery]):
        self._make = make
        self._known: dict[tuple[str, str], Delivery] = {}

    def __iter__(self) -> Iterator[Delivery]:
        return iter(tuple(self._known.values()))

    def open(self, routes: tuple[tuple[str, str], ...]) -> tuple[Delivery, ...]:
        for address, level in routes:
            if (address, level) not in self._known:
                self._known[(address, level)] = self._make(Address(address), lowest=level)
        return self.find(routes)

    def find(self, routes: tuple[tuple[str, str], ...]) -> tuple[Delivery, ...]:
        return tuple(self._known[route] for route in routes if route in self._known)


def _about(run: AlertRun) -> str:
    name = getattr(run, "name", "") or run.dir.name
    project = getattr(run, "project", "")
    return clean(f"run {name}" + (f" of {project}" if project else "") + f", {os.uname().nodename}:{run.dir}")


class Alerts:
    """One run's alerts, a consumer.

    settings: with `alerts`, `notify`, `alert_cooldown` (seconds), `alert_digest` (seconds), `alert_recovery`,
    `alert_findings` (lowest severity of findings that are sent, or "none") and `stop_on` ("critical", "warning" or
    "none"). ask: takes a request to the loop: its name, a reason, a step, further fields. rows: shared with the rules.
    deliver: makes a Delivery, for tests.

    Raises ConfigError for entries of the settings that are invalid.
    """

    def __init__(
        self,
        run: AlertRun,
        settings: Any = None,
        *,
        ask: Callable[[str, str, int, Mapping[str, Any]], Any] = lambda request, reason, step, more: None,
        rows: ChosenRows | None = None,
        deliver: Callable[..., Delivery] = Delivery,
    ):
        settings = run.settings if settings is None else settings
        self._run, self._ask = run, ask
        self._plan = _Plan.of(settings)
        thresholds = read_thresholds(getattr(settings, "alerts", None))
        routes = read_routes(getattr(settings, "notify", None))
        self.stoppers: list[EarlyStopping] = []
        self.now = 0.0  # seconds since 1970 by the records
        self._gate = Gate()
        self._watching = Watching(lambda: providers.provider("losses of a run's folder")(run.dir))
        self._rows = rows or ChosenRows()
        self._closed = self._stop_asked = False
        self._reported: dict[tuple[Any, ...], tuple[int, int]] = {}  # finding → rank sent (-1: none), its last step
        self._deliveries = _Deliveries(
            partial(deliver, warn=run.warn, about=partial(_about, run), digest=self._plan.digest)
        )
        self._routes = self._deliveries.open(routes)
        for threshold in thresholds:
            self._add(threshold)

    # -- what to look for ------------------------------------------------------------------------------

    def add(self, metric: str, **options: Any) -> None:
        """Watch a metric: `add("train/loss", above=10, rows=5)`, with the options of an entry of `alerts`.

        Raises ConfigError for options that are none.
        """
        self._add(read_threshold({"metric": metric} | options, f"the alert on {metric!r}"))

    def _add(self, threshold: Threshold) -> None:
        if threshold.notify is not None:
            self._deliveries.open(threshold.notify)
        self._watching.add(threshold, self.now)

    def stop_early(self, stopper: EarlyStopping) -> EarlyStopping:
        """Have the metric of `stopper` followed; the run's stop is asked for when its criteria are met."""
        self.stoppers = [*self.stoppers, stopper]
        return stopper

    # -- entries ---------------------------------------------------------------------------------------

    def take(self, entry: Entry) -> None:
        """An entry: what the training asks for, and numbers: of several ranks those that rules see too."""
        item = entry.item
        if isinstance(item, Record):
            self.take_record(item, entry.rank, entry.segment)
        elif isinstance(item, WideRow) and (rows := self._rows.of(item, entry.rank, entry.segment)):
            self.tick(item.time / 1e6)
            self._take_rows(rows)

    def take_record(self, record: Record, rank: int = 0, segment: int = 1) -> None:
        """A record of a rank, or of a sidecar."""
        kind = record.kind
        if kind in HAS_NUMBERS and kind not in _CONCLUSIONS:
            self.tick(record.time / 1e6)
            self._take_rows(self._rows.of(record, rank, segment))
            return
        if kind == "alert":
            if getattr(self._run, "repeating", False):
                self._recall(record)
            return
        if kind not in _CONCLUSIONS:
            self.tick(record.time / 1e6)
        if kind == "alert-request":
            self._send_asked(record)
        elif kind == "segment" and rank == 0:
            self._stop_asked = False
        elif kind in ("alert-rule", "stop-rule") and rank == 0:
            self._add_asked(record)
        elif kind in HAS_NUMBERS:
            self._take_rows(self._rows.of(record, rank, segment))

    def _take_rows(self, rows: list[RankRow]) -> None:
        if self.stoppers or self._watching:
            for row in rows:
                self.take_row(row.names, memoryview(row.values).cast("d"), row.step)

    def take_row(self, names: tuple[str, ...], values: Any, step: int) -> None:
        """The numbers of a record, or of a wide row."""
        if self._watching:
            for watched, answer in self._watching.take(names, values, step, self.now):
                self._judge(watched, answer, self.now)
        for stopper in self.stoppers:
            if not stopper.stopped and stopper.metric in names:
                self._take_stopper(stopper, step, values[names.index(stopper.metric)])

    def tick(self, now: float) -> None:
        """The time, in seconds since 1970; it only goes forward."""
        if now <= self.now:
            return
        if not self.now:
            self._watching.begin(now)
        elif self._watching.timed:
            for watched, answer in self._watching.tick(now, self._run.current_step):
                self._judge(watched, answer, now)
        self.now = now

    def settle(self, idle: bool) -> None:
        """All there is for now was given."""
        if self._closed:
            return
        for key, sentence in self._watching.doubts():
            self._run.warn(sentence, key=f"alert {key}")
        for delivery in self._deliveries:
            delivery.check()

    def finish(self) -> None:
        """The run has ended; `close` sends what waits."""
        self._take_rows(self._rows.finish())

    def _take_stopper(self, stopper: EarlyStopping, step: int, value: float) -> None:
        if stopper.update(step, value):
            self._request_stop(stopper.reason, step)
            alert = self._alert("Early stopping", stopper.reason, "info", "early stopping", step)
            self._emit(dataclasses.replace(alert, metric=stopper.metric, value=value), None)

    def _send_asked(self, record: Record) -> None:
        given = {name: record.fields[name] for name in _SENDING if record.fields.get(name) is not None}
        if "title" in given:
            self.send(**given, step=record.step)

    def _add_asked(self, record: Record) -> None:
        try:
            if record.kind == "stop-rule":
                self.stop_early(EarlyStopping(**{k: v for k, v in record.fields.items() if k in _STOPPING}))
            else:
                entry = {name: value for name, value in record.fields.items() if name != "at"}
                self._add(read_threshold(entry, f"the alert on {entry.get('metric')!r}"))
        except (ConfigError, ValueError, TypeError) as error:
            self._run.warn(f"a rule that the training asked for is left out: {error}", key=f"rule {error}")

    def _recall(self, record: Record) -> None:
        """An alert that the sidecar before has sent; it stands behind the record that caused it."""
        cause, level = record.fields.get("cause"), level_of(record.fields.get("level"))
        if isinstance(cause, str) and level is not None and not record.fields.get("recovered"):
            self._gate.sent(cause, level, self.now)

    def _judge(self, watched: Watched, answer: Answer, now: float) -> None:
        threshold = watched.threshold
        cooldown = self._plan.cooldown if threshold.cooldown is None else threshold.cooldown
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
            text = f"{watched.name} has stayed at {number(watched.value, 6)} so long that this is its usual value now"
        alert = self._alert(title, text, threshold.severity, watched.cause, watched.step)
        alert = dataclasses.replace(alert, metric=clean(watched.name), value=watched.value, recovered=over)
        if threshold.missing is not None and not over:
            alert = dataclasses.replace(alert, value=None)
        self._emit(alert, threshold)

    # -- calls -----------------------------------------------------------------------------------------

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
            pause = self._plan.cooldown if cooldown is None else cooldown
            if not self._gate.happens(alert.cause, alert.level, self.now, pause):
                return False
            self._emit(alert, None)
            return True
        except Exception as error:
            self._run.warn(f"an alert could not be sent ({type(error).__name__}: {error})", "alert send")
            return False

    def report(self, finding: Trouble, over: bool = False) -> bool:
        """A finding of the doctor's, as often as it learns of it; `over`: it is gone. Whether it goes out.

        The same finding is sent once, again if it becomes more severe; another one of the same rule and key after the
        cool-down.
        """
        try:
            return self._report(finding, over)
        except Exception as error:
            self._run.warn(f"a finding could not be sent ({type(error).__name__}: {error})", "alert report")
            return False

    def _report(self, finding: Trouble, over: bool) -> bool:
        level, cause = level_of(finding.severity) or "warning", f"doctor: {finding.rule}"
        cause += f" [{clean(finding.key, 80)}]" if finding.key else ""
        identity = (finding.rule, finding.key, finding.segment, finding.step)
        if not over and self._plan.stop_on != "none" and rank(level) >= rank(self._plan.stop_on):
            self._request_stop(finding.message, finding.last_step)
        if self._plan.findings == "none" or rank(level) < rank(self._plan.findings):
            return False
        sent, seen_to = self._reported.get(identity, (-1, -1))
        if over:
            if sent < 0:
                return False
            del self._reported[identity]
            if not self._plan.recovery:
                return False
        else:
            if rank(level) <= sent or (sent < 0 and seen_to >= finding.last_step):
                return False
            passes = sent >= 0 or self._gate.happens(cause, level, self.now, self._plan.cooldown)
            if len(self._reported) >= _MOST_FINDINGS:
                del self._reported[next(iter(self._reported))]
            self._reported[identity] = (rank(level) if passes else -1, finding.last_step)
            if not passes:
                return False
        alert = self._alert(
            _title_of_finding(finding), _text_of_finding(finding, over), level, cause, finding.last_step
        )
        self._emit(dataclasses.replace(alert, recovered=over), None, ask=False)
        return True

    def _alert(self, title: str, text: str, level: str, cause: str, step: int) -> Alert:
        moment = int(self.now * 1e6) or time.time_ns() // 1000
        return Alert(title_of(title), clean(text), level, clean(cause, 300), step=step, time=moment)

    def _emit(self, alert: Alert, threshold: Threshold | None, ask: bool = True) -> None:
        if self._run.record("alert", alert.step, alert.fields(), draw=False) is False:  # written, and sent, long ago
            return
        if (
            ask
            and not alert.recovered
            and self._plan.stop_on != "none"
            and rank(alert.level) >= rank(self._plan.stop_on)
        ):
            self._request_stop(f"{alert.title}: {alert.text}", alert.step)
        self._ask("alert", alert.line(), alert.step, {"alert": alert.fields() | {"time": alert.time}})
        if self._closed or time.time() - alert.time / 1e6 > _OLD_SECONDS:
            return
        own = threshold.notify if threshold is not None else None
        for delivery in self._routes if own is None else self._deliveries.find(own):
            delivery.put(alert)

    def _request_stop(self, reason: str, step: int) -> None:
        if not self._stop_asked:
            self._stop_asked = True
            self._ask("stop", clean(reason, 500), step, {})

    # -- the end ---------------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Send what waits, with one try each, in at most `timeout` seconds in all; whether all of it was dealt
        with. Nothing is taken after that."""
        if self._closed:
            return True
        self._closed = True
        every = list(self._deliveries)
        for delivery in every:
            delivery.end()
        deadline = time.monotonic() + timeout
        return all([delivery.wait(deadline) for delivery in every])

    @property
    def owes(self) -> int:
        """Alerts that are still to be sent."""
        return sum(delivery.waiting for delivery in self._deliveries)


def _title_of_finding(finding: Trouble) -> str:
    return finding.rule.replace("_", " ").capitalize() + (f" [{finding.key}]" if finding.key else "")


def _text_of_finding(finding: Trouble, over: bool) -> str:
    text = clean(finding.message)
    if over:
        return f"This is over: {text}"
    if finding.causes:
        text += f" Probable cause: {clean(finding.causes[0], 300)}."
    if finding.remedies:
        text += f" Try: {clean(finding.remedies[0], 300)}"
    return text

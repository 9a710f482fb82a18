"""Rules over where the wall time goes: checkpoints, evaluations, restarts; messages that repeat.

In:   the times of steps, spans and phases with their durations, segments, messages.
Out:  findings of the family `speed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import RowCursor
from barograph.doctor.kernel.rule import Rule
from barograph.query.causes import cause_of_time

if TYPE_CHECKING:
    from barograph.core.record import Record
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class _Spent:
    """Time that went to one cause in a segment."""

    def __init__(self, step: int):
        self.first, self.last, self.count, self.seconds = step, step, 0, 0.0


class TimeShare(Rule):
    """Checkpoints or evaluations take much of the wall time.

    Their spans and phases are added up and set against the time since the segment's first step. From three on, and a
    minute after that step, a share above 10% informs and one above 30% warns. What it says is of the last one so far.
    """

    name, family, kind, severity = "time_share", "speed", "efficiency", "warning"
    needs = ("loss|duration_ms",)
    least = 3
    about = "Checkpoints or evaluations take much of the wall time."
    thresholds: ClassVar = {
        "informs": (0.1, "of the wall time; ours"),
        "warns": (0.3, "of the wall time; ours"),
        "count": (3.0, "checkpoints or evaluations before the first; ours"),
        "seconds": (60.0, "after the first step: a start says little of the run; ours"),
    }
    remedies_of: ClassVar = {
        "checkpoint": ["save in the background, while the training goes on", "save more seldom", "use a faster disk"],
        "evaluation": ["evaluate more seldom", "evaluate on fewer batches", "evaluate in a process of its own"],
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._begun: dict[int, int] = {}  # segment → time of its first row
        self._names: dict[str, str] = {}
        self._channels = 0
        self._spent: dict[tuple[str, int], _Spent] = {}
        self._told: set[tuple[str, int]] = set()

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        main = history.role("loss") or history.role("duration_ms")
        rows = self._cursor.new(main)
        if rows is not None:
            for place in (0, *rows.cuts):
                self._begun.setdefault(int(rows.segment[place]), int(rows.time[place]))
        if len(history.channels) != self._channels:
            self._channels = len(history.channels)
            self._names = {name: cause for name in history.channels if (cause := cause_of_time(name)) is not None}
        came = []
        for name, cause in self._names.items():
            new = self._cursor.new(history.channel(name))
            if new is not None:
                columns = (new.time, new.segment, new.step, new.value)
                came += [(*row, cause) for row in zip(*(column.tolist() for column in columns), strict=True)]
        told: dict[tuple[str, int], int] = {}  # what is said, and when it was last true
        for time, segment, step, value, cause in sorted(came):
            if value > 0 and value < 1e12:
                spent = self._spent.setdefault((cause, segment), _Spent(step))
                spent.last, spent.count, spent.seconds = step, spent.count + 1, spent.seconds + value / 1e3
                if (cause, segment) in self._told or self._share(cause, segment, time) > self.at["informs"]:
                    self._told.add((cause, segment))
                    told[cause, segment] = time
        for (cause, segment), time in sorted(told.items()):
            yield self._say(cause, segment, self._share(cause, segment, time))

    def _share(self, cause: str, segment: int, now: int) -> float:
        """The share of the wall time so far; 0 where it is too early to say."""
        spent, begun = self._spent[cause, segment], self._begun.get(segment)
        wall = (now - begun) / 1e6 if begun else 0.0
        enough = spent.count >= self.at["count"] and wall >= self.at["seconds"]
        return min(spent.seconds / wall, 1.0) if enough else 0.0

    def _say(self, cause: str, segment: int, share: float) -> Finding:
        spent = self._spent[cause, segment]
        what = "evaluation" if cause == "evaluation record" else cause
        mean = spent.seconds / spent.count
        return self.finding(
            spent.first, f"{what.capitalize()}s took {share:.0%} of the wall time so far: {spent.count} of {mean:.3g} s"
            " each.", key=what, severity="warning" if share > self.at["warns"] else "info", segment=segment,
            last_step=spent.last, confidence=0.9, causes=[f"{what}s that the training waits for"],
            remedies=self.remedies_of[what],
            evidence={"share": share, "count": spent.count, "seconds_each": mean, "seconds": spent.seconds},
        )  # fmt: skip


class RestartTime(Rule):
    """Restarts cost much of the wall time: being down after a crash, and doing steps again.

    At the first row of a segment that follows one without a planned end: the time since the last row before, and the
    time that the steps took that are now done again, against the time since the run's first row. Above 10% it informs,
    above 30%, and ten minutes, it warns. Less than a minute is never said. A segment that begins at the first step
    again is another run in the same log: the time is counted from there.
    """

    name, family, kind, severity = "restart_time", "speed", "efficiency", "warning"
    needs = ("loss",)
    least = 2
    about = "Crashes and restarts cost much of the wall time."
    thresholds: ClassVar = {
        "informs": (0.1, "of the wall time; ours"),
        "warns": (0.3, "of the wall time; ours"),
        "seconds": (60.0, "that were lost, at least; ours"),
        "loud": (600.0, "seconds that were lost, at least, to warn; ours"),
    }
    causes = ("a crash, and steps since the last checkpoint that are done again",)
    remedies = ("save more often, or in the background", "restart by itself: a supervisor, or the scheduler's requeue")

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._times: dict[int, int] = {}  # step → time of the newest row; the last 65,536
        self._begun = self._last = self._segment = self._count = self._first = 0
        self._lost = 0.0
        self._events = self._current = 0
        self._ended: set[int] = set()  # segments that ended as planned

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        new, self._events = history.events[self._events :], len(history.events)
        for event in new:
            if event.fields.get("rank"):
                continue
            if event.kind == "segment":
                self._current = int(event.fields.get("segment") or 0)
            elif event.kind == "end" and event.fields.get("status") in ("finished", "paused", "stopped"):
                self._ended.add(self._current)
        rows = self._cursor.new(history.role("loss"))
        if rows is None:
            return
        if rows.all_of(self._segment) and (self._begun or not rows.time.any()):
            self._times.update(zip(rows.step.tolist(), rows.time.tolist(), strict=True))
            self._last = int(rows.time[-1])
            self._forget()
            return
        for step, time, segment in zip(rows.step.tolist(), rows.time.tolist(), rows.segment.tolist(), strict=True):
            if not self._begun:
                self._begun, self._segment, self._first = time, segment, step
            if segment != self._segment:
                if step <= self._first:
                    self._begun, self._lost, self._count = time, 0.0, 0
                    self._times.clear()
                elif self._segment not in self._ended and time > self._last:
                    yield from self._restarted(step, time, segment)
                elif self._segment in self._ended:
                    self._begun += max(time - self._last, 0)  # a planned pause does not count
                self._segment = segment
            self._times[step], self._last = time, time
            self._forget()

    def _forget(self) -> None:
        if len(self._times) > 1 << 17:
            self._times = dict(list(self._times.items())[1 << 16 :])

    def _restarted(self, step: int, time: int, segment: int) -> Iterator[Finding]:
        again = self._last - self._times.get(step - 1, self._last)
        self._count += 1
        self._lost += (time - self._last + max(again, 0)) / 1e6
        wall = (time - self._begun) / 1e6
        share = self._lost / wall if wall > 0 else 0.0
        loud = share > self.at["warns"] and self._lost >= self.at["loud"]
        if share > self.at["informs"] and self._lost >= self.at["seconds"]:
            yield self.finding(
                step, f"Restarts have cost {share:.0%} of the wall time: {self._count} of them, {self._lost:.4g} s.",
                severity="warning" if loud else "info", segment=segment, confidence=0.8,
                evidence={"share": share, "restarts": self._count, "seconds": self._lost},
            )  # fmt: skip


_VARIES = expression(r"0x[0-9a-fA-F]+|\d+(?:[.:,]\d+)*")
_INPUT = expression(r"retr(?:y|ies)|time[d -]?out|i/o|read|load|data|shard|network|connection|storage|disk|nfs", re.I)
_MOST_TEMPLATES = 256
_RECENT = 512  # steps with a message whose durations are looked at


class _Repeated:
    """Messages that are alike but for their numbers."""

    def __init__(self, step: int, example: str):
        self.first, self.last, self.count, self.example = step, step, 0, example
        self.steps: list[int] = []


class RepeatedMessages(Rule):
    """The same trouble is logged again and again: retries, timeouts, errors, warnings.

    Messages are counted by their text without its numbers. From 16 on they inform; they warn where the steps with such
    a message take half as long again as the others, in the median, or longer.
    """

    name, family, kind, severity = "repeated_messages", "speed", "logging", "warning"
    needs = ("!info",)
    about = "The same retry, timeout, error or warning is logged again and again."
    thresholds: ClassVar = {"count": (16.0, "messages alike; ours"), "slower": (1.5, "times as long; ours")}

    def reset(self) -> None:
        self._events = self._segment = 0
        self._known: dict[str, _Repeated] = {}

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        new, self._events = history.events[self._events :], len(history.events)
        for event in new:
            if event.kind == "segment":
                self._segment = int(event.fields.get("segment") or 0)
            elif event.kind == "info":
                yield from self._take(history, event)
        if history.facts.get("finished"):
            for template, item in self._known.items():
                if item.count >= self.at["count"]:
                    yield self._say(history, template, item)

    def _take(self, history: RunHistory, event: Record) -> Iterator[Finding]:
        text = str(event.fields.get("message", ""))
        template = _VARIES.sub("#", text)[:200]
        if template not in self._known and len(self._known) >= _MOST_TEMPLATES:
            return
        one = self._known.setdefault(template, _Repeated(event.step, text[:200]))
        one.count, one.last = one.count + 1, event.step
        if not one.steps or one.steps[-1] != event.step:
            one.steps = [*one.steps[-_RECENT:], event.step]
        if one.count >= self.at["count"] and one.count & (one.count - 1) == 0:
            yield self._say(history, template, one)

    def _say(self, history: RunHistory, template: str, repeated: _Repeated) -> Finding:
        slower, share = self._slower(history, repeated)
        slow = slower >= self.at["slower"]
        about_input = _INPUT.search(template) is not None
        message = (
            f"“{repeated.example}” and messages like it came {repeated.count} times "
            f"from step {repeated.first} to {repeated.last}"
        )
        if slow:
            message += f"; steps with one take {slower:.3g} times as long, and {share:.0%} of the slow steps have one"
        causes = ["loader slow: reads fail and are tried again"] if about_input else ["what the message says"]
        evidence: dict[str, Any] = {
            "count": repeated.count,
            "example": repeated.example,
            "slower": slower,
            "slow_share": share,
        }
        return self.finding(
            repeated.first, f"{message}.", key=template[:80], severity="warning" if slow else "info",
            last_step=repeated.last,
            kind="input_bound" if about_input else "logging", evidence=evidence, causes=causes,
            confidence=0.8 if slow else 0.4,
            remedies=["look at the storage and the network that the data come over", "copy the data to a local disk"]
            if about_input else ["follow what the message says, or silence it if it is harmless"],
        )  # fmt: skip

    def _slower(self, history: RunHistory, repeated: _Repeated) -> tuple[float, float]:
        """How many times as long steps with a message take, and the share of slow steps that have one; NaN: unknown."""
        channel = history.role("duration_ms") or history.channel("speed/step_ms")
        if channel is None:
            return float("nan"), float("nan")
        rows = channel.rows(max(channel.start, channel.end - 16_384))
        inside = (rows.step >= repeated.steps[0]) & (rows.step <= repeated.last) & numpy.isfinite(rows.value)
        step, value = rows.step[inside], rows.value[inside]
        has = numpy.isin(step, repeated.steps)
        if has.sum() < 8 or (~has).sum() < 8:
            return float("nan"), float("nan")
        usual = float(numpy.median(value[~has]))
        slow = value > 2 * usual
        share = float(has[slow].mean()) if slow.any() else float("nan")
        return float(numpy.median(value[has])) / usual if usual > 0 else float("nan"), share


RULES = (TimeShare, RestartTime, RepeatedMessages)

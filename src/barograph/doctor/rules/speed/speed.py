"""Rules over the time of steps: throughput that drops, pauses, drift, standing still.

In:   throughput, durations and phases of steps, the wall time of rows, stacks of a process that stands still.
Out:  findings of the family `speed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.text import compact, milliseconds
from barograph.doctor.kernel.blocks import NewBlocks, SteppedCourse
from barograph.doctor.kernel.cursor import RowCursor, usual
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.pace import LossPace
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.shifts import Shift, Shifts
from barograph.doctor.rules.speed import efficiency
from barograph.doctor.rules.speed.efficiency import duration_of, throughput_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


_LATER = 8  # steps


def pace_of(history: RunHistory) -> tuple[Channel | None, int]:
    """The series that tells how fast steps go, and its sign: -1 where less is slower, +1 where more is.

    A speed that begins later than durations is logged less often, or of something else.
    """
    speed, duration = throughput_of(history), duration_of(history)
    if speed is not None and (duration is None or speed.began[0] <= duration.began[0] + _LATER):
        return speed, -1
    return duration, 1


class ThroughputDrop(Rule):
    """Training has become permanently slower.

    Tokens a second (where they begin later or are missing: milliseconds a step) leave their level and do not return:
    at least 80% of the rows that confirm it, and their median, must be below. Half of what it was for 12 rows warns,
    a fifth is critical once it has cost five minutes (both shares from the stability guide). Three quarters for 40
    rows, where the level was steady enough, is a warning too; a tenth less for 40 rows is an info finding. Where nobody
    measures speed, the times of the loss's rows tell it, and half of what it was is what counts. Pauses for
    checkpoints and evaluations do not count, nor do slow first steps. Where only durations are known, a step that
    takes twice or more times as long may be a larger batch, so a whole factor is an info finding. All of it is an
    info finding until a minute has been lost, and where the steps behind the change are erratic (a robust deviation
    of 0.5 of the logarithm, and half as much again as before): a machine that other programs use does that, and a
    slower training is steady. If the level comes back, it was a stall, an info finding; one that has cost five
    minutes stays a warning.

    What to do: look at devices (temperature, clock), at the time that steps wait for a batch, at other jobs on
    the machine.
    """

    name, family, kind, severity = "throughput_drop", "speed", "slowdown", "critical"
    needs = ("throughput|duration_ms|=speed/step_ms|pace",)
    least = 48
    about = "Training has become permanently slower."
    sources = ("FALCON: changes of 10%", "stability guide: throughput_drop 0.5, red alert at 80%")
    thresholds: ClassVar = {
        "share": (0.5, "of what it was; stability guide, throughput_drop"),
        "red": (0.2, "stability guide, red alert conditions"),
        "lasting": (0.75, "of what it was, for 40 rows; a step that takes a third longer; ours"),
        "informs": (0.9, "of what it was, for 40 rows; FALCON's 10%"),
        "rows": (12.0, "ours"),
        "many": (40.0, "ours"),
        "seconds": (60.0, "lost, before it warns; ours"),
        "erratic": (0.5, "deviation of the logarithm from which on other programs are at work; ours"),
        "stall": (300.0, "seconds lost, before it is critical, or a warning although it is over; ours"),
    }

    def reset(self) -> None:
        few, many = int(self.at["rows"]), int(self.at["many"])
        self._shifts: dict[str, Shifts] = {}
        self._by_rows = LossPace()
        # ratio, rows, noise that the first row must be beyond, share of rows
        self._grades = {
            "half": (1 / self.at["share"], few, 4.0, 0.8),
            "lasting": (1 / self.at["lasting"], many, 3.0, 0.8),
            "slight": (1 / self.at["informs"], many, 3.0, 0.9),
        }
        self._open: dict[str, tuple[Shift, list[float]]] = {}  # changes, and when they will have cost more
        self._due: dict[str, int] = {}  # the step at which they had cost enough to warn

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, sign = self._pace(history)
        if channel is None or channel.end == self._looked(channel):
            return
        grades = ["half"] if self._is_by_rows(channel) else list(self._grades)
        for grade in grades:
            ratio, rows, z, share = self._grades[grade]
            key = f"{channel.name} {grade}"
            shifts = self._shifts.get(key)
            if shifts is None:
                shifts = self._shifts[key] = Shifts(ratio, rows, sign=sign, z=z, share=share)
            first = shifts.looked
            for shift in shifts.follow(history, channel):
                yield from self._settle(
                    history, key, channel, first, shift.last if shift.back is None else shift.back_row, sign
                )
                if shift.back is None:
                    self._open[key] = (shift, self._dues(channel, shift))
                    self._due.pop(key, None)
                yield self._say(history, shift, key, sign)
                if shift.back is not None:
                    del self._open[key]
            yield from self._settle(history, key, channel, first, channel.end, sign)

    def _pace(self, history: RunHistory) -> tuple[Channel | None, int]:
        channel, sign = pace_of(history)
        return (channel, sign) if channel is not None else (self._by_rows.channel(history), 1)

    def _is_by_rows(self, channel: Channel) -> bool:
        return channel in self._by_rows.made.values()

    def _dues(self, channel: Channel, shift: Shift) -> list[float]:
        """When the change has cost enough to warn, and to be critical: µs since 1970, minus infinity without times."""
        share = min(shift.ratio, 1 / shift.ratio)
        rows = channel.rows(shift.first, shift.last + 1)
        if not rows.time[-1] > rows.time[0]:
            return [-math.inf, -math.inf]
        return [shift.time + seconds * 1e6 / (1 - share) for seconds in (self.at["seconds"], self.at["stall"])]

    def _settle(
        self, history: RunHistory, key: str, channel: Channel, first: int, last: int, sign: int
    ) -> Iterator[Finding]:
        """What an open change has cost by these rows."""
        while key in self._open and self._open[key][1]:
            shift, dues = self._open[key]
            rows = channel.rows(max(first, shift.last), last)
            late = numpy.flatnonzero((rows.time >= dues[0]) & (rows.segment == shift.segment))
            if not len(late):
                return
            self._open[key] = (shift, dues[1:])
            self._due.setdefault(key, int(rows.step[late[0]]))
            yield self._say(history, shift, key, sign)

    def _looked(self, channel: Channel) -> int:
        shifts = self._shifts.get(f"{channel.name} half")
        return shifts.looked if shifts is not None else -1

    def _is_erratic(self, history: RunHistory, shift: Shift, found: int) -> bool:
        """Whether the rows behind a change, up to a step, scatter far more than those before it."""
        channel, _ = self._pace(history)
        assert channel is not None
        rows = channel.rows(max(shift.first - 64, 0))
        later = slice(shift.first - rows.first, None)
        here = (rows.segment[later] == shift.segment) & (rows.step[later] <= found)
        behind = _deviation(rows.value[later][here])
        return behind > max(self.at["erratic"], 1.5 * _deviation(rows.value[: shift.first - rows.first]))

    def _say(self, history: RunHistory, shift: Shift, key: str, sign: int) -> Finding:
        grade, found = key.rsplit(" ", 1)[1], self._due.get(key, shift.found)
        share = shift.ratio if sign < 0 else 1 / shift.ratio
        # 0: it has cost nothing worth a word; 2: minutes. What is over counts for one less.
        cost = 2 - len(self._open[key][1]) - (shift.back is not None)
        severity = "info" if cost < 1 else "critical" if cost > 1 and share < self.at["red"] else "warning"
        whole = sign > 0 and abs(1 / share / max(2, round(1 / share)) - 1) < 0.03
        erratic = self._is_erratic(history, shift, found)
        if grade == "slight" or whole or erratic:
            severity = "info"
        what, shown = ("Throughput", compact) if sign < 0 else ("Speed", milliseconds)
        message = (
            f"{what} since step {shift.step} is {share:.0%} of what it was before: "
            f"{shown(shift.before)} became {shown(shift.after)}"
        )
        message += f", until step {shift.back}." if shift.back is not None else "."
        causes = _slow_causes(history, shift, self._pace(history)[0])
        if erratic:
            _, remedy = causes.popitem()
            causes = {"other programs: the machine is shared, and its steps are erratic": remedy} | causes
        return self.finding(
            shift.step, message, severity=severity, key=grade, segment=shift.segment,
            last_step=shift.back if shift.back is not None else max(found, shift.found), found=found,
            evidence={"share": share, "before": shift.before, "after": shift.after}, causes=list(causes),
            remedies=list(dict.fromkeys(causes.values())),
            confidence={"critical": 0.9, "warning": 0.7, "info": 0.3}[severity],
        )  # fmt: skip


def _deviation(values: NDArray[Any]) -> float:
    """The robust standard deviation of the logarithms of positive values; 0 of fewer than four."""
    logs = numpy.log(values[(values > 0) & numpy.isfinite(values)])
    return 1.4826 * median(numpy.abs(logs - median(logs))) if len(logs) > 3 else 0.0


_CLOCK = 0.95  # of a device's clock before, below which it is lower


def _slow_causes(history: RunHistory, shift: Shift, pace: Channel | None) -> dict[str, str]:
    """What became slower with it, as far as phases, devices and ranks tell: cause → remedy, the likeliest first."""

    def before_and_after(channel: Channel | None) -> tuple[float, float]:
        if channel is None:
            return math.nan, math.nan
        rows = channel.rows(max(channel.start, channel.end - 8192 - 512))
        here = (rows.step >= shift.step) & (rows.step <= shift.found) & (rows.segment == shift.segment)
        after = median(rows.value[here]) if here.any() else math.nan
        return usual(channel, shift.step - 1, shift.time, shift.segment, 64), after

    causes: dict[str, str] = {}
    for name in sorted(history.channels):
        if name.startswith("gpu/") and name.endswith("/clock"):
            before, after = before_and_after(history.channel(name))
            if after < _CLOCK * before:
                words = f"device throttled: the clock of device {name[4:-6]} is {after:.4g} MHz, it was {before:.4g}"
                causes[words] = "look at the device's temperature and power limit"
                break
    ranks = "look at which rank the others wait for"
    if (history.facts.get("world_size") or 0) > 1 or any(name.startswith("ranks/") for name in history.channels):
        causes["rank slow"] = ranks
    before, after = before_and_after(history.channel("speed/phase/data_ms"))
    waits = "look at the time that steps wait for a batch"
    step_ms = usual(duration_of(history) or pace, shift.step - 1, shift.time, shift.segment, 64)
    if after - before > 0.3 * step_ms * abs(max(shift.ratio, 1 / shift.ratio) - 1):
        causes = {f"loader slow: the wait for a batch is {after:.3g} ms, it was {before:.3g}": waits} | causes
    elif math.isnan(after):
        causes["loader slow"] = waits
    return causes | {"other programs: on the machine, or on its storage": "check what else runs there since then"}


class StepTimeOutliers(Rule):
    """Single steps take far longer than the steps around them.

    More than three times the level, and more than five robust deviations. When three quarters of the distances
    between them are the same (or multiples of one), they are periodic: checkpoints, evaluations, garbage collection.
    Always an info finding.
    """

    name, family, kind, severity = "step_time_outliers", "speed", "slowdown", "info"
    needs = ("duration_ms|=speed/step_ms",)
    least = 48
    about = "Single steps take far longer than the steps around them."
    sources = ("SageMaker Debugger: StepOutlier, 5 sigma",)
    thresholds: ClassVar = {"z": (5.0, "SageMaker"), "ratio": (3.0, "ours"), "count": (4.0, "ours")}

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._segment = -1
        self._rows: list[int] = []
        self._first, self._count, self._longest = 0, 0, 0.0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, sign = pace_of(history)
        rows = self._cursor.new(channel)
        if rows is None or channel is None:
            return
        local = history.local(channel, log=True)
        lowest, highest = local.extremes(rows.first)
        if not (highest if sign > 0 else -lowest) > self.at["z"]:
            return
        _, spread, z = local.rows(rows.first)
        high = z * sign > self.at["z"]
        with numpy.errstate(invalid="ignore", over="ignore"):
            times = numpy.exp(z * sign * spread)  # as long as others
        high &= times > self.at["ratio"]
        for at in numpy.flatnonzero(high):
            segment, step = int(rows.segment[at]), int(rows.step[at])
            if segment != self._segment:
                self._segment, self._rows, self._count, self._longest = segment, [], 0, 0.0
                self._first = step
            self._count += 1
            self._rows = [*self._rows[-31:], rows.first + int(at)]
            self._longest = max(self._longest, float(times[at]))
            count = self._count
            if count >= self.at["count"] and count & (count - 1) == 0:
                period = _period(self._rows)
                how = f"every {period} rows" if period else "at no regular distance"
                yield self.finding(
                    self._first, f"{count} steps took more than {self.at['ratio']:.3g} times as long as others, "
                    f"{how}; the "
                    f"longest {self._longest:.3g} times.", found=step, segment=segment,
                    confidence=0.3,
                    evidence={"count": count, "period": period, "longest": self._longest},
                    causes=["checkpoints, evaluations or garbage collection"] if period else ["loader slow",
                    "other programs"],
                )  # fmt: skip


def _period(rows: list[int]) -> int:
    """The distance that three quarters of the distances are, or are a multiple of; 0 if there is none."""
    gaps = [later - earlier for earlier, later in pairwise(rows) if later - earlier > 1]
    if len(gaps) < 3:
        return 0
    base = sorted(gaps)[len(gaps) // 4]
    fits = [gap for gap in gaps if abs(gap / base - round(gap / base)) * base <= 1]
    return base if len(fits) >= 0.75 * len(gaps) else 0


class Stalled(Rule):
    """No step was logged for a long time.

    A record of stacks says so while it lasts: the watchdog waits for ten times the median step, 120 s at least; it is
    critical until there are steps again. Without one, two rows further apart than half an hour (SageMaker) and fifty
    times the median distance are an info finding when they are read: a pause, or a stall that is over.
    """

    name, family, kind, severity = "stalled", "speed", "stall", "critical"
    prompt = ("!stacks",)
    needs = ("loss|!stacks",)
    about = "No step was logged for a long time."
    sources = (
        "SageMaker Debugger: StalledTrainingRule, 1800 s",
        "MegaScale: stacks of all ranks",
        "ByteRobust: stacks of all ranks",
    )
    thresholds: ClassVar = {"seconds": (1800.0, "SageMaker"), "ratio": (50.0, "times the median distance; ours")}

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._events = 0
        self._open: Finding | None = None
        self._last = 0

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if len(history.events) != self._events:
            new, self._events = history.events[self._events :], len(history.events)
            for event in new:
                if event.kind == "stacks":
                    yield from self._stacks(event.step, event.fields)
        channel = history.role("loss")
        rows = self._cursor.new(channel)
        if rows is not None and channel is not None:
            yield from self._look(channel, rows)

    def _stacks(self, step: int, fields: dict[str, object]) -> Iterator[Finding]:
        if fields.get("resumed") and self._open is not None:
            stood = fields.get("stood_seconds")
            self._open.severity = "warning"
            self._open.message = f"No step for {stood} s after step {self._open.step}; steps are logged again."
            self._open.evidence = self._open.evidence | {"stood_seconds": stood}
            yield self._open
            self._open = None
            return
        waited = fields.get("waited_seconds")
        if waited is None:
            return
        places = fields.get("ranks")
        where = (
            fields.get("summary")
            or f"No step for {waited} s after step {step}; the process is in {fields.get('where')}."
        )
        evidence: dict[str, object] = {"waited_seconds": waited, "where": str(fields.get("where", ""))}
        if isinstance(places, dict):
            evidence["ranks"] = [f"{rank}: {place}" for rank, place in list(places.items())[:16]]
        causes = (
            ["loader slow: it hangs"]
            if "data" in str(fields.get("where", ""))
            else ["a collective that one rank did not enter"]
        )
        self._open = self.finding(
            step, str(where), evidence=evidence, causes=causes, confidence=0.9,
            remedies=["read the stacks: look at the rank that is not in the collective"],
        )  # fmt: skip
        yield self._open

    def _look(self, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        first = rows.first - 1 if rows.first > channel.start else rows.first
        last, self._last = self._last, int(rows.time[-1])
        if rows.time[-1] - last < self.at["seconds"] * 1e6:
            return
        rows = channel.rows(first)
        gaps = numpy.diff(rows.time) / 1e6
        for at in numpy.flatnonzero((gaps > self.at["seconds"]) & (numpy.diff(rows.segment) == 0)):
            before = channel.rows(max(channel.start, first + int(at) - 64), first + int(at) + 1)
            middle = median(numpy.diff(before.time)) / 1e6 if len(before) > 8 else math.inf
            if gaps[at] > self.at["ratio"] * middle and rows.time[at] > 0:
                step, after = int(rows.step[at]), int(rows.step[at + 1])
                yield self.finding(
                    step, f"No step came for {gaps[at] / 60:.0f} minutes after step {step}.", severity="info",
                    found=after, segment=int(rows.segment[at]), evidence={"seconds": float(gaps[at]),
                    "usual_seconds": middle},
                    causes=["a pause, an evaluation, or a stall that is over"], confidence=0.4,
                )  # fmt: skip


class StepTimeDrift(Rule):
    """Steps take longer and longer.

    The run so far, in medians of 16 rows merged into at most 64 parts, is cut into eight. If each eighth is slower than
    the one before, and the last a fifth slower than the first, steps drift: an info finding, and a warning if the last
    takes half as long again as the first. It may begin later: eighths within 3% of the first, then four or more of
    which each is 3% slower than the one before; the step is then that of the last medians that are even. Something
    grows: a list, a cache, a log, the memory; or the sequences do. Where throughput is known, it decides.
    """

    name, family, kind, severity = "step_time_drift", "speed", "slowdown", "warning"
    needs = ("throughput|duration_ms|=speed/step_ms",)
    least = 512
    about = "Steps take longer and longer."
    sources = ("picoLLM run analysis: step time that drifts upward",)
    thresholds: ClassVar = {
        "informs": (1.2, "ours"),
        "warns": (1.5, "ours"),
        "even": (0.03, "share by which medians of an eighth differ by noise; ours"),
    }
    causes = ("memory leak: something grows from step to step", "longer sequences")
    remedies = ("look at what grows: lists of tensors, caches, logs", "compare a profile of now with one of the start")

    def reset(self) -> None:
        self._blocks = NewBlocks()
        self._course = SteppedCourse()
        self._began = 0
        self._said: set[str] = set()

    def _begins(self, parts: list[float]) -> int | None:
        """The eighth with which steps begin to take longer, up to the last; None if they don't."""
        if all(b > a for a, b in pairwise(parts)):
            return 0
        bound, even = 1 + self.at["even"], 0
        while even < 4 and 1 / bound < parts[even + 1] / parts[0] < bound:
            even += 1
        return even if even and all(b > bound * a for a, b in pairwise(parts[even:])) else None

    def _onset(self, usual: float, low: int, high: int) -> int:
        """The step of the last even median among some."""
        bound = usual * (1 + self.at["even"])
        even = [at for at in range(low, high) if self._course.values[at] < bound]
        return self._course.step(max(even, default=low))

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, sign = pace_of(history)
        by_speed = sign < 0
        new = self._blocks.new(history, channel)
        if new is None:
            return
        for at in range(len(new)):
            if new.segment[at] != self._course.segment:
                self._course.begin(int(new.segment[at]))
                self._began, self._said = int(new.step[at]), set()
            middle = float(new.middle[at])
            pace = (1 / middle if by_speed else middle) if middle > 0 else math.nan
            longer = self._course.add(pace, int(new.step[at]))
            if len(self._said) == 2 or not longer or len(self._course.values) < 32:
                continue
            values = self._course.values
            size = len(values) // 8
            parts = [sorted(values[size * part : size * part + size])[size // 2] for part in range(8)]
            ratio = parts[-1] / parts[0]
            grade = "warns" if ratio > self.at["warns"] else "informs" if ratio > self.at["informs"] else ""
            begins = self._begins(parts) if grade and grade not in self._said else None
            if begins is None:
                continue
            self._said |= {grade, "informs"}
            step = int(new.last_step[at])
            yield self.finding(
                self._onset(parts[0], size * begins, size * (begins + 2)) if begins else self._began,
                f"A step takes {ratio:.3g} times as long as at the start, and keeps growing.",
                key=grade,
                severity="warning" if grade == "warns" else "info", found=step,
                segment=int(new.segment[at]),
                evidence={"ratio": ratio}, confidence=0.5 if grade == "warns" else 0.3,
            )  # fmt: skip


RULES = (ThroughputDrop, StepTimeOutliers, StepTimeDrift, Stalled, *efficiency.RULES)

"""What a resume left behind: weights, optimizer state, data, learning rate.

In:   the series of the loss, and beside it learning rate, epoch, tokens, repeats, where a new segment begins.
Out:  findings of `ResumeDiscontinuity`, `ResumedSchedule`, `ScheduleEnded`.

A segment that starts anew, at a step below half of what the one before had come to and not above its first rows, is
another stage or another try, and no resume: none of these rules looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import exp
from barograph.doctor.kernel.curve import again, before, between, is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.rules.run.state import OlderWeights, OptimizerStateLost, StatisticsLost

if TYPE_CHECKING:
    from numpy.typing import NDArray


_STAIR = 1e-4  # of its factor, that two stairs of a learning rate differ at most
_BEHIND = 8  # rows of a learning rate, before a resume and behind it
_AS_FAR = 0.9  # of a leap: rows before the resume that were about as high


@dataclass
class Border:
    """A resume. old: rows before its first step that are not superseded; same: rows of old segments from there on."""

    row: int
    step: int
    segment: int
    old: NDArray[Any]  # logarithms of the last 64 losses before
    level: float
    spread: float
    start: float  # logarithm of the run's first losses
    first: NDArray[Any]  # logarithms of the first rows of the segment before
    same: dict[int, float]
    new: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    done: bool = False

    def leap(self, count: int) -> float:
        """How far the median of three rows behind the resume, up to the `count`-th, is above what it is compared with:
        the rows of the old segment at these steps, or its level; a logarithm."""
        last = [self.new[at] - self.same.get(self.steps[at], self.level) for at in range(count - 3, count)]
        return sorted(last)[1]

    def least(self, leap: float, spreads: float) -> float:
        """What a leap has to be more than: this much, and this many spreads of the rows before."""
        return max(leap, spreads * self.spread)

    def had(self, leap: float) -> bool:
        """Whether three of the rows before that follow each other were as far above the level, in their median."""
        threes = numpy.median(numpy.lib.stride_tricks.sliding_window_view(self.old, 3), axis=1)
        return bool((threes - self.level >= _AS_FAR * leap).any())


class Borders(SeriesRule):
    """A rule that looks at the rows behind each resume."""

    family = "run"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    least = 2
    _rows = 64  # behind a border that are looked at

    def reset(self) -> None:
        self._segment: int | None = None
        self._border: Border | None = None
        self._begin = 0
        self._newest = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        if self._border is None and rows.segment[-1] == rows.segment[0] == self._segment:
            self._newest = int(rows.step[-1])
        else:
            yield from self._walk(history, channel, rows)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        if self._border is not None:
            yield from self.over(history, self._border)
            self._border = None

    def _walk(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        edges = [0, *(numpy.flatnonzero(numpy.diff(rows.segment)) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges):
            segment = int(rows.segment[low])
            if segment != self._segment:
                if self._border is not None:
                    yield from self.over(history, self._border)
                    self._border = None
                if self._segment is not None and not is_game(history, channel):
                    self._border = self._make(channel, rows, low, segment)
                self._segment, self._begin = segment, rows.first + low
            for at in range(low, high):
                border = self._border
                if border is None:
                    break
                value = float(rows.value[at])
                if math.isfinite(value) and value > 0:
                    border.new.append(math.log(value))
                    border.steps.append(int(rows.step[at]))
                    yield from self.row(history, border)
                if len(border.new) >= self._rows:
                    yield from self.over(history, border)
                    self._border = None
            self._newest = int(rows.step[high - 1])

    def _make(self, channel: Channel, rows: ChannelRows, low: int, segment: int) -> Border | None:
        step = int(rows.step[low])
        known = channel.rows(0, rows.first + low)
        good = numpy.isfinite(known.value) & (known.value > 0)
        mine = known.segment == self._segment
        if not (good & mine).any() or (step < 0.5 * self._newest and step <= int(known.step[mine][0]) + 1):
            return None
        before_it = numpy.flatnonzero(good & (known.step < step))[-64:]
        if len(before_it) < 8:
            return None
        old = numpy.log(known.value[before_it])
        half = len(old) // 2
        early, late = float(numpy.median(old[:half])), float(numpy.median(old[half:]))
        slope = (late - early) / max(len(old) - half, 1)
        along = numpy.arange(len(old)) - (half - 1) / 2
        spread = 1.4826 * float(numpy.median(numpy.abs(old - early - slope * along)))
        later = numpy.flatnonzero(good & (known.step >= step))
        opening = numpy.flatnonzero(good & mine)[:64]
        return Border(
            row=rows.first + low,
            step=step,
            segment=segment,
            old=old,
            level=late + slope * half / 2,
            spread=max(spread, 0.005),
            start=float(numpy.median(numpy.log(known.value[good][:5]))),
            first=numpy.log(known.value[opening]),
            same=dict(zip(known.step[later].tolist(), numpy.log(known.value[later]).tolist(), strict=True)),
        )

    def row(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        """A row behind the border has come."""
        yield from ()

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        """No more rows are looked at."""
        yield from ()


class ResumeDiscontinuity(Borders):
    """After a resume the loss does not continue at its level.

    The highest median of three among the first 16 rows is above the level before by 10% and by four robust standard
    deviations. Where the first three rows are not, nothing is said if three of the 64 rows before were as high, as
    where one batch in three is mixed. If the old segment logged the same steps, it is compared with those. If half of
    the jump is gone after 64 rows the optimizer's state was most likely not restored; if not, weights or data differ,
    and, unless a logged learning rate goes on where it was, the schedule. A jump back to the run's first loss means
    that no weights were loaded, and is critical; of preferences with a reference, whose loss is ln 2 at the run's
    beginning and once more behind the resume, though the trained weights went on, that the reference was loaded from
    the policy's checkpoint. A jump below 30% that decays is an info finding.
    """

    name, kind, severity = "resume_discontinuity", "resume", "critical"
    about = "The loss jumps when a run is resumed."
    sources = ("ml-engineering: a checkpoint without optimizer state",)
    thresholds: ClassVar = {
        "leap": (0.1, "in ln; ours"),
        "spreads": (4.0, "ours"),
        "large": (0.26, "in ln: 30%; ours"),
        "rate": (0.05, "of the learning rate before the resume; ours"),
    }

    def reset(self) -> None:
        super().reset()
        self._told: Finding | None = None
        self._peak = 0.0

    def row(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        count = len(border.new)
        if count < 3 or count > 16:
            if count == 17 and self._told is not None:
                yield again(self._told)
            return
        if count == 3:
            self._told, self._peak = None, 0.0
        leap, least = border.leap(count), border.least(self.at["leap"], self.at["spreads"])
        if leap <= max(least, self._peak) or (border.leap(3) <= least and border.had(leap)):
            return
        self._peak = leap
        old, new = exp(border.level), exp(border.level + leap)
        scratch = (
            border.level + leap > border.start - 0.3 * abs(border.start - border.level)
            and border.start > border.level + 0.3
        )
        found = self._told.found if self._told is not None else border.steps[-1]
        self._told = self.finding(
            border.step,
            f"After the resume at step {border.step} the loss is {new:.4g}; it was {old:.4g}",
            severity="critical" if scratch else "warning" if leap > self.at["large"] else "info",
            last_step=border.steps[-1],
            found=found,
            segment=border.segment,
            confidence=0.8,
            evidence={
                "before": rounded(old),
                "after": rounded(new),
                "leap": rounded(leap, 3),
                "spread": rounded(border.spread, 3),
            },
            causes=["bad initialisation: no weights were loaded"]
            if scratch
            else [
                "optimizer state lost: its moments begin at zero",
                "learning rate too high: the schedule was not restored",
                "labels shifted: data are prepared differently",
            ],
            remedies=[
                f"Check what the checkpoint before step {border.step} holds: weights, optimizer, schedule, scaler, "
                "loader.",
                "Warm the learning rate up for some hundred steps if the optimizer's state is gone.",
            ],
        )
        yield again(self._told)

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        told, self._told = self._told, None
        if told is None or len(border.new) < 32:
            return
        rest = [
            item - border.same.get(step, border.level)
            for item, step in zip(border.new[-16:], border.steps[-16:], strict=True)
        ]
        left = sorted(rest)[len(rest) // 2]
        told.evidence["left"] = rounded(left, 3)
        told.last_step = border.steps[-1]
        if left < 0.5 * self._peak:
            told.message += ", and comes back"
        elif told.severity != "critical":
            told.severity = "warning"
            told.message += ", and stays there"
            told.causes = [*told.causes[1:], told.causes[0]]
            if self._same_rate(history, border):
                told.causes = [_OLD, *(one for one in told.causes if not one.startswith("learning rate"))]
        if _of_reference(history, border):
            told.causes, told.remedies = [_REFERENCE, *told.causes], [_KEEP, *told.remedies]
        yield again(told)

    def _same_rate(self, history: RunHistory, border: Border) -> bool:
        """Whether the logged learning rate goes on where it was, within 5%: the schedule was restored."""
        rate = history.role("lr")
        last = before(rate, border.step, border.segment - 1)
        now = between(rate, border.step, border.step + 4, border.segment)
        return bool(last > 0 and len(now) and (abs(now / last - 1) < self.at["rate"]).all())


_OF_PREFERENCES = ("preference_averaged", "preference_compared", "judged_shift")
_OLD = "old weights loaded: the checkpoint is of an earlier step than the run goes on at"


def _of_reference(history: RunHistory, border: Border) -> bool:
    """Whether margins of preferences begin at 0 once more, as the run began, though the policy went on: the graph has
    a reference, and the size of the trained weights is by far nearer to that before the resume than to the first."""
    loss, norms = history.role("loss"), history.channel("model/param_norm")
    compared = any(history.channel(f"model/{name}") is not None for name in _OF_PREFERENCES)
    if not compared or loss is None or norms is None:
        return False
    if not all(abs(one - math.log(2)) < _MARGIN for one in (loss.first, math.exp(border.new[0]))):
        return False
    rows = norms.rows()
    old, new = rows.value[rows.segment < border.segment], rows.value[rows.segment == border.segment]
    return len(old) > 1 and len(new) > 0 and abs(new[0] - old[-1]) < _NEARER * abs(new[0] - old[0])


_MARGIN = 1e-3  # of a loss of margins of 0, from ln 2: dropout; ours
_NEARER = 0.5  # of the way of the weights since the run's beginning; ours
_REFERENCE = "reference is the policy: loaded from its checkpoint at the resume, so that margins begin at 0 once more"
_KEEP = "Load the reference from the weights that the run began with, at each resume."


def _is_stair(rows: ChannelRows, segment: int, step: int, new: float) -> bool:
    """Whether a learning rate goes on down the stairs of the segment before: by the same factor, after as long."""
    here = (rows.segment == segment - 1) & numpy.isfinite(rows.value)
    steps, values = rows.step[here], rows.value[here]
    at = numpy.flatnonzero(values[1:] != values[:-1]) + 1
    if not len(at) or not values[at[-1] - 1] > 0 < new < values[-1]:
        return False
    began = int(steps[at[-2]]) if len(at) > 1 else int(steps[0])
    factor, last = values[at[-1]] / values[at[-1] - 1], int(steps[at[-1]])
    row = int(numpy.diff(steps[-2:]).max(initial=1))  # steps between two rows
    return bool(abs(new / values[-1] / factor - 1) < _STAIR) and abs(step - last - (last - began)) <= row


class ResumedSchedule(Borders):
    """After a resume the learning rate differs by more than a quarter from what it was: an info finding.

    A warning where its first rows, four at least, of three values or more, are those of the run's very start: the
    scheduler began anew. The very first of them may have the rate that was loaded with the optimizer, or one that was
    set.

    It is compared with the same step of the old segment if that was logged, else with its last value. Warming up again
    after a resume may be intended; a schedule that starts again rarely is. A stair of the schedule that is as high as
    the one before, and comes as many steps behind it as that one did, is none of a resume.
    """

    name, kind, severity = "resumed_schedule", "resume", "warning"
    needs: ClassVar[tuple[str, ...]] = ("loss", "lr")
    about = "The learning rate jumps when a run is resumed."
    thresholds: ClassVar = {"ratio": (1.25, "ours")}
    _rows = 4
    remedies = ("Restore the scheduler's state, or its step count, with the checkpoint.",)

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        rate = history.role("lr")
        if rate is None:
            return
        rows = rate.rows()
        behind = numpy.flatnonzero(
            (rows.segment == border.segment) & (rows.step >= border.step) & numpy.isfinite(rows.value)
        )
        if not len(behind):
            return
        start = rows.value[rows.segment == rows.segment[0]][: len(behind[:8])]
        mine = rows.value[behind[:8]][: len(start)]
        found = border.steps[-1] if border.steps else border.step
        told: list[tuple[int, float, float, bool]] = []
        for at in range(min(2, len(behind))):  # the very first row may have the rate that was loaded, or set
            anew = len(mine) >= 4 and numpy.allclose(mine[at:], start[at:], rtol=1e-6, atol=0)
            anew = anew and len(set(mine[at:].tolist())) >= 3
            step, new = int(rows.step[behind[at]]), float(rows.value[behind[at]])
            same = rows.value[(rows.segment < border.segment) & (rows.step == step)]
            old = float(same[-1]) if len(same) else before(rate, border.step, border.segment - 1)
            jumps = old > 0 and new >= 0 and not 1 / self.at["ratio"] < new / old < self.at["ratio"]
            jumps = jumps and not (len(same) == 0 and _is_stair(rows, border.segment, step, new))
            if jumps and (anew or not at):
                told.append((step, new, old, anew))
        if not told:
            return
        step, new, old, anew = next((one for one in told if one[3]), told[0])
        yield self.finding(
            step,
            f"After the resume at step {border.step} the learning rate is {new:.3g}; it was {old:.3g}"
            + (": the schedule begins again, row by row as at the start" if anew else ""),
            last_step=found,
            found=max(found, step),
            segment=border.segment,
            severity="warning" if anew else "info",
            confidence=0.95 if anew else 0.6,
            evidence={"lr_before": rounded(old), "lr_after": rounded(new)},
            causes=["schedule restarted: the scheduler's state was not loaded"]
            if anew
            else [
                "learning rate too high: the schedule restarted"
                if new > old
                else "learning rate too low: the schedule restarted, or continued too far",
                "optimizer state lost",
            ],
        )


class ScheduleEnded(Borders):
    """A learning rate that was falling is at its end from the second step behind a resume on.

    It fell from row to row, by no more than a fifth, in the eight rows before the resume; comes once more as the
    optimizer had it when it was saved; and is half of that or less in the seven rows behind, all of one value above 0.
    So it is where a schedule is made for another number of steps at the resume, as those that are left, and its count
    of steps is loaded: it is behind that number at once. A stage with a rate of its own has it in its first step.

    What to do: give the schedule the number of all steps of the run, and load its state.
    """

    name, kind, severity = "schedule_ended", "resume", "warning"
    needs: ClassVar[tuple[str, ...]] = ("loss", "lr")
    about = "The learning rate is at the end of its schedule from the second step behind a resume on."
    thresholds: ClassVar = {
        "ratio": (1.25, "of two rows of a rate that falls, at most; ours"),
        "ended": (0.5, "of the rate before, at most; ours"),
    }
    causes = ("schedule ends early: since the resume it is made for another number of steps, as those that are left",)
    remedies = ("give the schedule the number of all steps of the run, and load its state",)
    _rows = _BEHIND + 1

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        rate = history.role("lr")
        if rate is None or len(border.steps) < self._rows:
            return
        rows = rate.rows()
        of_launch = (rows.segment == border.segment) & (rows.step >= border.step) & (rows.step < border.steps[-1])
        behind = numpy.flatnonzero(of_launch)[:_BEHIND]
        old = rows.value[(rows.segment == border.segment - 1) & (rows.step < border.step)][-_BEHIND:]
        new = rows.value[behind]
        if min(len(old), len(new)) < _BEHIND or not (numpy.isfinite(old).all() and (old > 0).all()):
            return
        falls = (old[1:] < old[:-1]).all() and (self.at["ratio"] * old[1:] >= old[:-1]).all()
        loaded = old[-1] / self.at["ratio"] <= new[0] <= old[-1]
        last = float(new[-1])
        if falls and loaded and 0 < last <= self.at["ended"] * new[0] and numpy.allclose(new[1:], last, 1e-6, 0):
            yield self.finding(
                int(rows.step[behind[1]]), f"After the resume at step {border.step} the learning rate is {new[0]:.3g} "
                f"once more, as it was, and {last:.3g} in each step behind it: the schedule is at its end.",
                last_step=border.steps[-1], found=border.steps[-1], segment=border.segment, confidence=0.9,
                evidence={"lr_before": rounded(float(new[0])), "lr_after": rounded(last)},
            )  # fmt: skip


RULES = (ResumeDiscontinuity, OptimizerStateLost, OlderWeights, StatisticsLost, ResumedSchedule, ScheduleEnded)

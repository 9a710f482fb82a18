"""A schedule of the learning rate, or its warm-up, that is longer or shorter than the run it was made for.

In:   the learning rate, logged or in force, the plan, the number of ranks and the configuration.
Out:  findings of `ScheduleBeyond`, `WarmUpBeyond`, `ScheduleOver`, `WarmUpOver`, `ScheduleRises`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import numbers_named, numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.optimizer.again import is_meant
from barograph.doctor.rules.optimizer.declared import MEANT, SHARE, WARMED
from barograph.doctor.rules.optimizer.schedule import RATES

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_POINTS = 16  # of a curve, that a cosine is laid through
_OFF = 1e-3  # of the peak: what a curve may be off its formula
_BENDS = 0.05  # of the second differences of a cosine: what they may be off, for rates are logged in few digits
_OF_FALL = expression(
    r"^(?!.*(?:weight|wd|ema|average|momentum|layer)).*(?:decay|fall|anneal|t_max|total|cosine|sched|end|until|horizon|length)"
)
_WARM_STEPS = expression(
    r"(?:(?:lr|num|n|noam|linear|learning_rate)_)?warm(?:_?up)?(?:_(?:steps|iters|iterations|updates))?"
)


def whole_rate(history: RunHistory, least: float, planned: float) -> ChannelRows | None:
    """The learning rate of a run that is over, that began with this launch, and that came to this share of its planned
    steps, and no further than a tenth behind them; None where that is not known."""
    rate, plan = history.role("lr") or history.channel("model/rate_in_force"), history.facts.get("planned_steps")
    if not history.facts.get("finished") or not plan or rate is None or rate.end < least:
        return None
    rows = rate.rows()
    if rows.first or rows.segment[0] != rows.segment[-1] or not numpy.isfinite(rows.value).all():
        return None
    apart = 2 * (rows.step[-1] - rows.step[-2])
    return rows if planned * plan - apart <= rows.step[-1] <= 1.1 * plan else None


class ScheduleBeyond(Rule):
    """The run is over as planned, and its schedule of the learning rate is made for as many times its steps as there
    are ranks, or micro-batches in a step.

    Behind its peak the rate falls along a cosine, which begins there, or at the run's first step beneath a warm-up, or
    along a line down to 0, to a thousandth of the peak in each of sixteen rows; twelve rows and half of the planned
    steps are behind the peak. A curve that is known so far ends where it ends: at k times the planned steps (within a
    thirtieth), and the run at a fifth of the peak or more. k is the number of ranks, or of micro-batches in a step, as
    configured. A line that is half done at the end is one that may be meant so, and takes three of them or more.
    Schedules of torch that say their length are looked at by `schedule_count`.

    What to do: give the schedule the number of steps that the optimizer makes: those of one rank, of whole batches.
    """

    name, family, kind, severity = "schedule_beyond", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("lr|=model/rate_in_force",)
    least = 14
    about = "The schedule is made for several times as many steps as the run has."
    thresholds: ClassVar = {
        "rows": (12.0, "behind the peak; ours"),
        "share": (0.5, "of the planned steps, behind the peak; ours"),
        "planned": (0.95, "of the planned steps; ours"),
        "high": (0.2, "of the peak, at the end; ours"),
        "within": (1 / 30, "of the steps up to the schedule's end; ours"),
        "line": (3.0, "times the steps, of a line; ours"),
    }
    causes = ("schedule too long: it counts the steps of all ranks, or micro-batches",)
    remedies = ("give the schedule the steps that the optimizer makes: those of one rank, of whole batches",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        ranks, planned = float(history.facts.get("world_size") or 1), history.facts.get("planned_steps")
        said = history.channel("model/scheduler_length") is not None
        parts = math.nan if said else numeric_setting(history, *ACCUMULATION)
        rows = whole_rate(history, self.least, self.at["planned"]) if ranks >= 2 or parts >= 2 else None
        if rows is None or not planned:
            return
        peak = len(rows.value) - 1 - int(numpy.argmax(rows.value[::-1]))
        steps, values = rows.step[peak:], rows.value[peak:] / max(float(rows.value[peak]), 1e-30)
        even = len(steps) > self.at["rows"] and len(set(numpy.diff(steps).tolist())) == 1
        falls = bool((numpy.diff(values) < 0).all()) and values[-1] >= self.at["high"]
        if not even or not falls or steps[-1] - steps[0] < self.at["share"] * planned:
            return
        end, line = _end_of_cosine(steps, values, int(rows.step[0])), False
        if not end > 0:
            end, line = _end_of_line(steps, values), True
        for times, what in ((ranks, "ranks"), (parts, "micro-batches in a step")):
            least = self.at["line"] if line else 2.0
            if times >= least and abs(end - times * planned) <= self.at["within"] * end and self.first():
                yield self.finding(
                    int(rows.step[peak]), f"The learning rate ends at {100 * values[-1]:.0f}% of its peak: its "
                    f"{'line' if line else 'cosine'} is made for {end:.0f} steps, the run for {planned}, and there are "
                    f"{times:.0f} {what}.", found=int(rows.step[-1]), segment=int(rows.segment[0]), confidence=0.9,
                    causes=[f"schedule too long: it is made for {times:.0f} times the steps, as there are {what}"],
                    evidence={"length": rounded(end), "planned": planned, "standing": True},
                )  # fmt: skip


def _end_of_cosine(steps: Any, values: Any, first: int) -> float:
    """The step at which a falling half wave is at its lowest, that these rates are the beginning of; NaN of another
    curve, and where it begins elsewhere than at its top: at the first of these rates, or at the run's first step, from
    which it may count beneath a warm-up."""
    apart = max(1, (len(values) - 1) // (_POINTS - 1))
    y = values[::apart]
    bends, middle = y[:-2] + y[2:], y[1:-1]
    slope, rest = numpy.polyfit(middle, bends, 1)
    second = bends - 2 * middle  # 0 of a line
    off = numpy.abs(slope * middle + rest - bends).max()
    if not -2 < slope < 2 or off > _BENDS * numpy.abs(second).max() or numpy.abs(second).max() < _OFF:
        return math.nan
    turn = math.acos(slope / 2)
    at = turn * numpy.arange(len(y))
    waves = numpy.stack([numpy.ones_like(at), numpy.cos(at), numpy.sin(at)], 1)
    (level, ahead, beside), *_ = numpy.linalg.lstsq(waves, y, rcond=None)
    size, phase = math.hypot(ahead, beside), math.atan2(-beside, ahead)
    fits = numpy.abs(waves @ [level, ahead, beside] - y).max() <= _OFF
    row = turn / apart
    before = (steps[0] - first) / (steps[1] - steps[0])  # rows
    begins = abs(phase) <= 2 * row or abs(phase - before * row) <= 2 * row
    if not fits or not begins or level - size < -_OFF * 20:
        return math.nan
    return float(steps[0] + (math.pi - phase) / turn * apart * (steps[1] - steps[0]))


def _end_of_line(steps: Any, values: Any) -> float:
    """The step at which a line is at 0, that these rates are the beginning of; NaN if they are on no line."""
    slope, rest = numpy.polyfit(steps, values, 1)
    fits = slope < 0 and numpy.abs(slope * steps + rest - values).max() <= _OFF
    return float(-rest / slope) if fits else math.nan


class WarmUpBeyond(Rule):
    """The run is over as planned, and its warm-up took half of it or more, where the configuration has a fifth at most.

    From its first row to its peak the rate rises in a straight line, and it is a tenth of it or less at the first row.
    The peak comes behind half of the planned steps, and three times as many steps as the configuration gives the
    warm-up, as a number of steps or as a share of them (`warmup_steps`, `warmup_ratio`, …), which is at most a fifth of
    the plan. Where the configuration has another number of a warm-up, or speaks of a test of rates, of cycles, of
    stages, nothing is said.

    What to do: look at what the warm-up counts: steps of the optimizer, and not examples, micro-batches or ranks.
    """

    name, family, kind, severity = "warmup_beyond", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("lr|=model/rate_in_force", "config")
    least = 14
    about = "The warm-up takes many times as long as it is configured."
    thresholds: ClassVar = {
        "planned": (0.95, "of the planned steps; ours"),
        "half": (0.5, "of the planned steps, before the peak; ours"),
        "times": (3.0, "the configured steps, before the peak; ours"),
        "meant": (0.2, "of the planned steps, at most, that are configured; ours"),
        "straight": (0.01, "of the rise; ours"),
        "first": (0.1, "of the peak, at most; ours"),
        "steps": (50.0, "of the rise; ours"),
    }
    causes = ("warm-up never ends: it counts something else than steps of the optimizer, as examples",)
    remedies = ("give the warm-up steps of the optimizer: `round(ratio * steps)`, without the batch size",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows, planned = whole_rate(history, self.least, self.at["planned"]), history.facts.get("planned_steps")
        meant = self._configured(history, float(planned)) if rows is not None and planned else 0.0
        if rows is None or not planned or not meant > 0:
            return
        peak = int(numpy.argmax(rows.value))
        steps, values = rows.step[: peak + 1], rows.value[: peak + 1]
        took = float(steps[-1] - steps[0])
        if took < max(self.at["half"] * planned, self.at["times"] * meant, self.at["steps"]) or len(steps) < self.least:
            return
        rise = float(values[-1] - values[0])
        line = values[0] + rise * (steps - steps[0]) / took
        straight = numpy.abs(line - values).max() <= self.at["straight"] * rise
        if straight and values[0] <= self.at["first"] * values[-1] and self.first():
            yield self.finding(
                int(steps[0]), f"The learning rate rises up to step {int(steps[-1])} of {planned}; the configuration "
                f"has a warm-up of {meant:.0f} steps.", found=int(rows.step[-1]), segment=int(rows.segment[0]),
                confidence=0.9, evidence={"took": took, "meant": rounded(meant), "standing": True},
            )  # fmt: skip

    def _configured(self, history: RunHistory, planned: float) -> float:
        """How many steps of a warm-up are configured; 0 where that is not known, or they are many."""
        found = history.options.found.items()
        if any(MEANT.search(f"{name} {value if isinstance(value, str) else ''}".lower()) and value
               for name, value in found):  # fmt: skip
            return 0.0
        shares = [value * planned for _, value in numbers_named(history, SHARE) if value > 0]
        counts = [value for _, value in numbers_named(history, WARMED) if value > 0]
        others = [
            value for name, value in found
            if "warm" in name.rpartition(".")[2].lower() and isinstance(value, (int, float)) and value > 0
        ]  # fmt: skip
        meant = max((*shares, *counts), default=0.0)
        return meant if len(others) == len(shares) + len(counts) and meant <= self.at["meant"] * planned else 0.0


class ScheduleOver(Rule):
    """The run is over as planned, and its learning rate was at its least from a third of it on, or earlier.

    Behind its peak the rate falls smoothly, in four rows or more none of which takes more than half of the fall, to
    a third of the peak or less, and stays there: the fall was over by a third of the planned steps, and 60 steps or
    more came behind it; by half of them, where the rate is 0 then. A logged rate of 0 is left to
    `learning_rate_zero`. Where the configuration has that length, as a number of steps or a share of them, for a
    fall, a decay or a schedule, or speaks of stages, cycles or restarts, nothing is said.

    What to do: give the fall the steps of the run without those of the warm-up.
    """

    name, family, kind, severity = "schedule_over", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("lr|=model/rate_in_force",)
    least = 14
    about = "The learning rate is at its least for most of the run."
    thresholds: ClassVar = {
        "planned": (0.95, "of the planned steps; ours"),
        "low": (0.35, "of the peak, at most, at the end; ours"),
        "over": (1 / 3, "of the planned steps; ours"),
        "none": (0.5, "of them, where the rate is next to 0 then; ours"),
        "next": (0.05, "of the peak, at most, which is next to 0; ours"),
        "rows": (4.0, "in which it falls; ours"),
        "once": (0.5, "of the fall, in one row, at most; ours"),
        "steps": (60.0, "behind the fall; ours"),
        "within": (0.1, "of a configured length; ours"),
    }
    causes = ("schedule too short: the fall is over before the training, as one of the warm-up's length",)
    remedies = ("give the schedule the number of steps that are trained, without those of the warm-up",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows, planned = whole_rate(history, self.least, self.at["planned"]), history.facts.get("planned_steps")
        if rows is None or not planned:
            return
        steps, values = rows.step, rows.value
        peak, last = int(numpy.argmax(values)), float(values[-1])
        if not 0 <= last <= self.at["low"] * values[peak] or (not last and history.role("lr") is not None):
            return
        end = int(numpy.flatnonzero(abs(values - last) > _OFF * (last or values[peak]))[-1]) + 1
        falls = -numpy.diff(values[peak : end + 1])
        smooth = (falls >= 0).all() and (falls > 0).sum() >= self.at["rows"]
        smooth = bool(smooth and falls.max() <= self.at["once"] * (values[peak] - last))
        share = self.at["over" if last > self.at["next"] * values[peak] else "none"]
        early = steps[end] <= share * planned and steps[-1] - steps[end] >= self.at["steps"]
        meant = smooth and early and self._meant(history, float(steps[peak]), float(steps[end]), planned)
        if smooth and early and not meant and self.first():
            yield self.finding(
                int(steps[end]), f"The learning rate is at its least, {last / values[peak]:.2g} of its peak, from step "
                f"{int(steps[end])} of {planned} on.", found=int(steps[-1]), segment=int(rows.segment[0]),
                confidence=0.8, evidence={"end": int(steps[end]), "planned": planned, "standing": True},
            )  # fmt: skip

    def _meant(self, history: RunHistory, peak: float, end: float, planned: float) -> bool:
        """Whether the configuration speaks of another course, or has the length of the fall."""
        for name, value in history.options.found.items():
            plain = name.rpartition(".")[2].lower()
            if value and MEANT.search(f"{plain} {value if isinstance(value, str) else ''}".lower()):
                return True
            number = float(value) if isinstance(value, (int, float)) and _OF_FALL.search(plain) else math.nan
            number = number * planned if number < 1 else number
            if any(abs(number - length) <= self.at["within"] * length + 2 for length in (end, end - peak)):
                return True
        return False


class WarmUpOver(Rule):
    """The learning rate is at its peak, and falls, within a quarter of the steps of its configured warm-up.

    The configuration has a warm-up of 20 steps or more (`warmup_steps`, `num_warmup_steps`, `noam_warmup`, …), and half
    of the planned steps at most; of 6 steps or more where the rate never comes to half of the configured one: its
    schedule took it down while it was to rise. The highest rate comes within a quarter of these, it falls by a tenth of
    that before they are over, and it is never as high again. Where a step has several micro-batches, or there are
    several ranks, a warm-up that counts these gives no finding, and none where the first rows are too far apart to see
    it.

    What to do: look at the formula of the warm-up, and at what it counts.
    """

    name, family, kind, severity = "warmup_over", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("lr|=model/rate_in_force", "config")
    least = 14
    about = "The warm-up is over long before its configured steps are."
    thresholds: ClassVar = {
        "planned": (0.95, "of the planned steps; ours"),
        "least": (20.0, "configured steps; ours"),
        "fewest": (6.0, "configured steps, where the rate never comes near the configured one; ours"),
        "near": (0.5, "of the configured rate; ours"),
        "most": (0.5, "of the planned steps; ours"),
        "share": (0.25, "of the configured steps, by which it is at its peak; ours"),
        "falls": (0.9, "of the peak, when these are over, at most; ours"),
        "within": (0.2, "of a number of micro-batches, or ranks; ours"),
    }
    causes = ("no warm-up: it is over long before its configured steps are, as by a wrong formula",)
    remedies = ("look at the formula of the warm-up: the rate should rise in a line up to its last step",)
    per_batch = "scheduler stepped per batch: its numbers are of epochs, and it took the rate down within the warm-up"
    per_epoch = "step the scheduler once an epoch, or give it numbers of steps behind the warm-up"

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows, planned = whole_rate(history, self.least, self.at["planned"]), history.facts.get("planned_steps")
        if rows is None or not planned:
            return
        begins = (
            0 if rows.step[0] < rows.step[1] - rows.step[0] else rows.step[0]
        )  # of a log that is thin from the start
        steps, values = rows.step - begins, rows.value
        low = values.max() < self.at["near"] * numeric_setting(history, *RATES, "base_lr", "peak_lr")
        found = [
            float(value) for name, value in history.options.found.items()
            if _WARM_STEPS.fullmatch(name.rpartition(".")[2].lower()) and isinstance(value, (int, float))
            and self.at["fewest" if low else "least"] <= value <= self.at["most"] * planned
        ]  # fmt: skip
        if len(found) != 1 or steps[1] > found[0] / (2 if low else 8):
            return
        peak, meant = int(numpy.argmax(values)), found[0]
        counts = (numeric_setting(history, *ACCUMULATION), float(history.facts.get("world_size") or 1))
        times = meant / max(float(steps[peak]), 1.0)
        counted = any(number >= 2 and abs(times / number - 1) <= self.at["within"] for number in counts)
        then = float(numpy.interp(meant, steps, values))
        early = steps[peak] <= self.at["near" if low else "share"] * meant and then <= self.at["falls"] * values[peak]
        if early and not counted and self.first():
            yield self.finding(
                int(rows.step[0]), f"The learning rate is at its peak at step {int(rows.step[peak])}, and at "
                f"{then / values[peak]:.2g} of that at step {meant:.0f}, up to which a warm-up is configured.",
                found=int(rows.step[-1]), segment=int(rows.segment[0]), confidence=0.85,
                causes=[self.per_batch] if low else list(self.causes),
                remedies=[self.per_epoch] if low else list(self.remedies),
                evidence={"peak": int(rows.step[peak]), "meant": rounded(meant), "standing": True},
            )  # fmt: skip


class ScheduleRises(Rule):
    """The learning rate comes down to next to nothing, and rises again as it fell: the schedule was over long before.

    A cosine that goes on behind its end comes up again as a mirror image. The rate falls smoothly, in eight rows or
    more, to a hundredth of its peak or less, and behind that it is, as many steps on as it was before, the same to a
    twentieth of the peak, up to half of the peak and in eight rows or more. The run is over, or that climb is; it was
    launched once. A warm restart jumps up; a stage that begins has a warm-up that is shorter than the fall was; waves,
    five or more, are left to `schedule_units`. Where the configuration speaks of cycles, restarts or stages, nothing is
    said.

    What to do: give the schedule the number of steps that are trained: epochs times steps of one.
    """

    name, family, kind, severity = "schedule_rises", "optimizer", "learning_rate", "warning"
    proves = "training"
    needs = ("lr",)
    least = 24
    about = "The learning rate comes down to next to nothing and rises again as it fell."
    thresholds: ClassVar = {
        "low": (0.01, "of the peak; ours"),
        "high": (0.5, "of the peak, that it comes up to; ours"),
        "rows": (8.0, "of the fall, and of the climb; ours"),
        "alike": (0.05, "of the peak: fall and climb, as many steps from the lowest; ours"),
        "waves": (4.0, "climbs, at most; ours"),
    }
    causes = ("schedule too short: it is made for fewer steps than are trained, as those of one epoch, and goes on",)
    remedies = ("give the schedule the number of steps that are trained: epochs times steps of one",)

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rate = history.role("lr")
        if not history.facts.get("finished") or rate is None or rate.end < self.least:
            return
        rows = rate.rows()
        steps, values = rows.step.astype(float), rows.value
        if rows.first or rows.segment[0] != rows.segment[-1] or not (numpy.isfinite(values) & (values >= 0)).all():
            return
        peak = float(values.max())
        low = self._lowest(values, peak)
        if low < 0 or is_meant(history):
            return
        top = low + int((values[low:] >= self.at["high"] * peak).argmax())  # of the climb
        down = low - int((values[low::-1] >= self.at["high"] * peak).argmax())  # of the fall
        enough = min(top - low, low - down) >= self.at["rows"] and values[top] >= self.at["high"] * peak
        climbs = int(((values[1:] >= self.at["high"] * peak) & (values[:-1] < self.at["high"] * peak)).sum())
        if not enough or climbs > self.at["waves"] + 1:
            return
        smooth = (numpy.diff(values[down : low + 1]) <= 0).all() and (numpy.diff(values[low : top + 1]) >= 0).all()
        mirrored = numpy.interp(2 * steps[low] - steps[low : top + 1], steps[: low + 1], values[: low + 1])
        alike = float(numpy.abs(mirrored - values[low : top + 1]).max()) <= self.at["alike"] * peak
        if smooth and alike and self.first():
            at = int(steps[low])
            yield self.finding(
                at, f"The learning rate is at {values[low] / peak:.2g} of its peak at step {at}, and rises "
                f"again as it fell, to {values[low:].max() / peak:.2g} of it.", found=int(steps[top]),
                segment=int(rows.segment[0]), confidence=0.9, evidence={"low": at, "standing": True},
            )  # fmt: skip

    def _lowest(self, values: numpy.ndarray, peak: float) -> int:
        """The row at which a first fall from the peak has its lowest, next to nothing; -1 if there is none."""
        first = int((values >= self.at["high"] * peak).argmax())
        under = numpy.flatnonzero((values <= self.at["low"] * peak) & (numpy.arange(len(values)) > first))
        if not len(under):
            return -1
        behind = numpy.flatnonzero(values[under[0] :] > self.at["low"] * peak)
        end = int(under[0]) + (int(behind[0]) if len(behind) else len(values) - int(under[0]))
        return int(under[0]) + int(values[under[0] : end].argmin())


RULES = (ScheduleBeyond, WarmUpBeyond, ScheduleOver, WarmUpOver, ScheduleRises)

"""The learning rate: jumps, an end that comes too early, one that never comes, no warm-up.

In:   the series of the learning rate, and beside it the loss, and the configuration.
Out:  findings of `LearningRateJump`, `LearningRateZero`, `LearningRateCollapse`, `LearningRateConstant`,
      `MissingWarmup`, `WarmupUnfinished`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.cursor import numeric_setting
from barograph.doctor.kernel.curve import again, between, is_game, queue_guess, rounded, teacher_guess
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.kernel.stages import WITH_STAGE, stage_begins
from barograph.doctor.kernel.wording import GO_BACK, Case
from barograph.doctor.rules.loss.rise import falling_term
from barograph.doctor.rules.optimizer.again import is_meant

RATES = ("learning_rate", "lr", "max_lr")


class LearningRateJump(SeriesRule):
    """The learning rate jumps above its highest value so far.

    From one row to the next it grows by half or more, beyond 1.5 times its highest so far, after 8 rows in which it did
    not rise: so it is neither a warm-up nor a restart of a cycle. It is reported after four rows that stay there. A
    rate that never fell before, and comes no higher than the configured one, or than the one that a scheduler of
    torch's began with, is a warm-up in stairs, by epochs; of cycles that the configuration speaks of, the first of
    which may be cut short, neither is one that fell. What a launch before it had is part of the highest so far. Where
    another optimizer takes over there (six rows are looked at where the model is watched), or the configuration has
    something start at that step, and the loss does not rise behind it, it is an info finding: rates of two optimizers
    are not of one scale.
    """

    name, family, kind, severity = "learning_rate_jump", "optimizer", "learning_rate", "critical"
    series = "lr"
    needs = ("lr",)
    least = 12
    about = "The learning rate jumps above its peak."
    thresholds: ClassVar = {"ratio": (1.5, "ours"), "critical": (3.0, "times the peak; ours"), "rows": (4.0, "ours")}
    causes = ("learning rate too high: the schedule jumps",)

    def reset(self) -> None:
        self._peak, self._last = 0.0, math.nan
        self._calm, self._fell = 0, False
        self._before = 0.0  # the highest of the launches before
        self._segment = -1
        self._open: tuple[int, int, float, float] | None = None  # step, rows, peak before, value before

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        value = rows.value
        whole = rows.finite and self._open is None and rows.all_of(self._segment)
        if whole and rows.highest <= self.at["ratio"] * self._peak and self._peak > 0:
            least = 1e-4 * self._peak
            rises = numpy.flatnonzero(value[1:] - value[:-1] > least)
            if len(rises):
                self._calm = len(value) - 2 - int(rises[-1])
            else:
                self._calm = len(value) - 1 if value[0] - self._last > least else self._calm + len(value)
            self._fell |= bool(self._last - value[0] > least or (value[:-1] - value[1:] > least).any())
            self._peak, self._last = max(self._peak, rows.highest), float(value[-1])
            return
        for at in range(len(rows)):
            one, step, segment = float(value[at]), int(rows.step[at]), int(rows.segment[at])
            if segment != self._segment:
                before = max(self._before, self._peak)
                self.reset()
                self._segment, self._before = segment, before
            if not math.isfinite(one):
                continue
            if self._open is not None:
                begun, count, peak, old = self._open
                if one < self.at["ratio"] * peak:
                    self._open = None
                elif count + 1 >= self.at["rows"] + 2 * (history.channel("model/rate_in_force") is not None):
                    cycles = not self._fell or is_meant(history, stages=False)
                    if not cycles or not self._reached(history, begun, one, old, segment):
                        yield self._tell(history, begun, step, one, peak, old, segment)
                    self._open, self._peak = None, max(self._peak, one)
                else:
                    self._open = (begun, count + 1, peak, old)
                    continue
            elif self._calm >= 8 and one > self.at["ratio"] * max(self._peak, self._before) and self._peak > 0:
                self._open = (step, 1, self._peak, self._last)
                continue
            rise = one - self._last > 1e-4 * self._peak if math.isfinite(self._last) else True
            self._fell |= self._last - one > 1e-4 * self._peak
            self._calm = 0 if rise else self._calm + 1
            self._peak, self._last = max(self._peak, one), one

    def _reached(self, history: RunHistory, begun: int, value: float, old: float, segment: int) -> bool:
        """Whether it has come no further than to the rate that is configured, or that the scheduler started from."""
        declared = numeric_setting(history, *RATES)
        counted, share = history.channel("model/scheduler_steps"), history.channel("model/rate_share")
        if share is not None and counted is not None:
            rows = share.rows()
            before = rows.value[(rows.segment == segment) & (rows.step < begun)]
            declared = numpy.nanmax([declared, old / before[-1] if len(before) and before[-1] > 0 else 0.0])
        return bool(value <= 1.01 * declared)

    @staticmethod
    def _takes_over(history: RunHistory, begun: int, step: int, segment: int) -> str:
        """What is said where another optimizer, or a stage, begins with the rate, and does no harm; "" else."""
        loss = history.role("loss")
        old, new = between(loss, 0, begun, segment)[-8:], between(loss, begun, step + 1, segment)
        if not len(new) or not len(old) or not median(new.tolist()) <= 1.1 * median(old.tolist()):
            return ""
        if len(between(history.channel("model/optimizers_replaced"), begun, step + 1, segment)):
            return ", where another optimizer takes over"
        return WITH_STAGE if stage_begins(history, begun, segment) else ""

    def _tell(
        self, history: RunHistory, begun: int, step: int, value: float, peak: float, old: float, segment: int
    ) -> Finding:
        checkpoint, meant = history.checkpoint_before(begun), self._takes_over(history, begun, step, segment)
        remedies = [f"Set it back to {old:.3g}; look at what changes the schedule at step {begun}."]
        if checkpoint:
            remedies.append(f"Go back to the checkpoint of step {checkpoint[0]} ({checkpoint[1]}).")
        return self.finding(
            begun,
            f"The learning rate went from {old:.3g} to {value:.3g} at step {begun}; its peak had been {peak:.3g}"
            f"{meant}",
            severity="info" if meant else "critical" if value > self.at["critical"] * peak else "warning",
            found=step, segment=segment, remedies=remedies, confidence=0.5 if meant else 0.9,
            evidence={"before": rounded(old), "after": rounded(value), "peak": rounded(peak)},
        )  # fmt: skip


_DIGITS, _PRINTED, _LARGE, _BROKEN = 3, 64, 1e6, 16  # behind the point; rows of a series; numbers with such digits


class LearningRateZero(SeriesRule):
    """The learning rate is 0, and the training goes on.

    After a rate above 0, 16 rows in a row (8 where they are four steps apart) are below a millionth of the peak, and
    make up a tenth of the rows so far or more, or come before 95% of the planned steps: each of these steps costs and
    changes nothing. That it ends at 0 is what schedules do. One that is 0 in each row of a run, five at least, or three
    where the gradient norm is 0 in each too, is a warning at its end, unless the loss has lost a fifth: a warm-up from
    0 would have left it; or no number of the log has more than three digits behind the point, for a rate of 1e-6 is
    printed as 0 then.
    """

    name, family, kind, severity = "learning_rate_zero", "optimizer", "learning_rate", "critical"
    series = "lr"
    needs = ("lr",)
    least = 3
    about = "The learning rate is zero, but the training goes on."
    thresholds: ClassVar = {
        "rows": (16.0, "ours"),
        "share": (0.1, "of the rows; ours"),
        "always": (5.0, "rows of a whole run; ours"),
        "both": (3.0, "the same where the gradient norm is 0 too; ours"),
    }
    causes = ("learning rate too low: the schedule ended before the training",)

    def reset(self) -> None:
        self._peak = 0.0
        self._streak = self._rows = self._step = 0
        self._segment = -1
        self._told: Finding | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        if self._streak == 0 and self._told is None and self._peak > 0 and rows.finite and rows.all_of(self._segment):
            top = max(self._peak, rows.highest)
            if rows.lowest > 1e-6 * top:
                self._peak, self._rows = top, self._rows + len(rows)
                return
        for at in range(len(rows)):
            value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
            if segment != self._segment:
                if self._told is not None and at:
                    yield self._ended(int(rows.step[at - 1]))
                self._segment, self._streak, self._told = segment, 0, None
            self._rows += 1
            if not value <= 1e-6 * self._peak or self._peak == 0:
                self._peak = max(self._peak, value if math.isfinite(value) else 0.0)
                if self._told is not None:
                    yield self._ended(int(rows.step[at - 1]) if at else self._told.last_step)
                self._streak, self._told = 0, None
                continue
            if not self._streak:
                self._step = step
            self._streak += 1
            planned = history.facts.get("planned_steps")
            early = planned is not None and step < 0.95 * planned
            long = self._streak >= self.at["share"] * self._rows
            sparse = step - self._step >= 4 * (self._streak - 1)
            needed = self.at["rows"] / (2 if sparse else 1)
            if self._streak < needed or not (early or long) or self._told is not None:
                continue
            self._told = self.finding(
                self._step,
                f"The learning rate is 0 since step {self._step}; its peak was {self._peak:.3g}",
                found=step,
                severity="critical" if early else "warning",
                segment=segment,
                confidence=0.9,
                evidence={"peak": rounded(self._peak), "rows": self._streak}
                | ({"planned_steps": planned} if planned else {}),
                remedies=[
                    "Give the schedule the number of steps that are trained"
                    + (f" ({planned})" if planned else "")
                    + ", or stop."
                ],
            )
            yield again(self._told)
        if self._told is not None:
            yield self._ended(int(rows.step[-1]))

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        rows, norm = channel.rows(), history.role("norm")
        norms = norm.rows().value if norm is not None else rows.value[:0]
        both = len(norms) >= self.at["both"] and not norms.any()
        if channel.start or len(rows) < self.at["both" if both else "always"] or rows.value.any():
            return
        loss = history.role("loss")
        values = loss.rows().value if loss is not None else rows.value
        learns = median(values[-3:]) < 0.8 * median(values[:3])  # by another rate than the one that is logged
        causes = ["learning rate too low: the schedule is at its end, or is printed with too few digits",
                  "fp16 overflow: each step is skipped, so that the schedule never begins"]  # fmt: skip
        yield self.finding(
            int(rows.step[0]),
            f"The learning rate is 0 in each of {len(rows)} rows",
            last_step=int(rows.step[-1]),
            severity="info" if learns or _is_rounded(history) else "warning",
            segment=int(rows.segment[0]),
            confidence=0.7,
            key="always",
            evidence={"rows": len(rows)},
            causes=causes if values.any() else causes[::-1],
            remedies=[
                "Look at optimizer.param_groups at a step, and at the loss scale: is any step taken?",
                "Train in bf16 or fp32 where each step is skipped.",
            ],
        )

    def _ended(self, step: int) -> Finding:
        assert self._told is not None
        self._told.last_step = step
        self._told.evidence["rows"] = self._streak
        return again(self._told)


def _is_rounded(history: RunHistory) -> bool:
    """Whether no number of a log has more than three digits behind the point, so that a small rate is printed as 0."""
    if history.channel("model/passes") is not None:
        return False
    values = numpy.concatenate([channel.rows(0, _PRINTED).value for channel in history.channels.values()])
    values = values[numpy.isfinite(values) & (abs(values) < _LARGE)]
    digits = values * 10**_DIGITS
    broken = values % 1 != 0
    return bool(broken.sum() >= _BROKEN and (abs(digits - numpy.round(digits)) < 1e-6 * numpy.maximum(1, digits)).all())


class LearningRateCollapse(SeriesRule):
    """The learning rate falls to next to nothing from one row to the next, and stays there.

    It falls below a fiftieth of the row before, not to 0, and no more than that for 16 rows (8 where they are four
    steps apart): a warning where that comes before 80% of the planned steps, or makes up a quarter of the segment's
    rows. Schedules fall by a tenth at a time, or smoothly.
    """

    name, family, kind, severity = "learning_rate_collapse", "optimizer", "learning_rate", "warning"
    series = "lr"
    needs = ("lr",)
    least = 24
    about = "The learning rate falls to next to nothing, long before the end."
    thresholds: ClassVar = {
        "fall": (0.02, "of the row before; ours"),
        "rows": (16.0, "ours"),
        "share": (0.25, "of the rows; ours"),
        "planned": (0.8, "of the planned steps; ours"),
    }
    cases: ClassVar = {
        "all": Case(
            "The learning rate fell from {before:.3g} to {after:.3g} at step {step}, and stays there",
            ("learning rate too low: the schedule collapses, and the steps change next to nothing",),
            ("look at what changes the schedule at step {step}, and set the rate back to {before:.3g}", GO_BACK),
            confidence=0.85,
        )
    }

    def reset(self) -> None:
        self._last = math.nan
        self._segment, self._rows = -1, 0
        self._open: tuple[int, float, float, int] | None = None  # step, rate before and after, rows

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        usual = self._open is None and rows.finite and rows.all_of(self._segment)
        if usual and rows.lowest >= self.at["fall"] * max(rows.highest, self._last):  # no row is so far below another
            self._rows, self._last = self._rows + len(rows), float(rows.value[-1])
            return
        for at in range(len(rows)):
            value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
            if segment != self._segment:
                self.reset()
                self._segment = segment
            self._rows += 1
            if self._open is None:
                if 0 < value < self.at["fall"] * self._last and self._rows > 8:
                    self._open = (step, self._last, value, 1)
            elif not 0 < value <= 1.5 * self._open[2]:
                self._open = None
            else:
                begun, old, new, count = self._open
                self._open = (begun, old, new, count + 1)
                yield from self._tell(history, step, int(rows.time[at]))
            if math.isfinite(value):
                self._last = value

    def _tell(self, history: RunHistory, step: int, time: int) -> Iterator[Finding]:
        assert self._open is not None
        begun, old, new, count = self._open
        needed = self.at["rows"] / (2 if step - begun >= 4 * (count - 1) else 1)
        planned = history.facts.get("planned_steps")
        early = begun < self.at["planned"] * planned if planned else count >= self.at["share"] * self._rows
        if count >= needed and early and self.first(self._segment, begun):
            yield self.say("all", history, begun, time=time, found=step, last_step=step, segment=self._segment,
                           evidence={"before": rounded(old), "after": rounded(new), "rows": count})  # fmt: skip


class LearningRateConstant(SeriesRule):
    """The learning rate never decays: info, when the run is over. The last decay is worth some percent of loss.

    It takes 100 steps and 20 rows, and nine tenths of the planned steps, where a plan is known.
    """

    name, family, kind, severity = "learning_rate_constant", "optimizer", "learning_rate", "info"
    series = "lr"
    needs = ("lr",)
    least = 20
    about = "The learning rate ends near its peak."
    thresholds: ClassVar = {"share": (0.9, "of the peak; ours"), "steps": (100.0, "ours")}
    causes = ("learning rate too high: at the end",)
    remedies = ("Let it decay to a tenth over the last fifth of the steps.",)

    def reset(self) -> None:
        self._peak = 0.0
        self._first: int = -1  # step of the first row

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        highest = rows.highest if rows.finite else float(numpy.nan_to_num(rows.value, nan=0.0, posinf=0.0).max())
        self._peak = max(self._peak, highest)
        if self._first < 0:
            self._first = int(rows.step[0])
        yield from ()

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        last = channel.last
        if channel.end < self.least or not last >= self.at["share"] * self._peak > 0:
            return
        newest = channel.rows(channel.end - 1)
        planned = history.facts.get("planned_steps") or 0
        if int(newest.step[0]) - self._first + 1 < self.at["steps"] or newest.step[0] < self.at["share"] * planned:
            return
        yield self.finding(
            int(newest.step[0]),
            f"The learning rate ends at {last:.3g}, its peak was {self._peak:.3g}",
            found=int(newest.step[0]),
            segment=int(newest.segment[0]),
            confidence=0.5,
            evidence={"peak": rounded(self._peak), "last": rounded(last)},
        )


class MissingWarmup(Rule):
    """Training starts at the highest learning rate, and the loss suffers.

    The first row's rate is at least 0.95 of the highest of the first 100 rows, and the median of 5 losses climbs by 10%
    and by 4 robust standard deviations above the first losses within those rows. A warning where the loss is still
    above its start at row 100, otherwise an info finding. It is one as well where the loss stays below a guess's, and
    rises as a queue of negatives is filled, or as the network that the targets come from moves away from the model; or
    where what rises is another term than the one that the loss nearly was at first, and that falls. A start without
    warm-up that does no harm is silent, as is going on from a checkpoint, and a rise with which a stage begins.
    """

    name, family, kind, severity = "missing_warmup", "optimizer", "learning_rate", "warning"
    needs = ("lr", "loss")
    least = 100
    about = "There is no warm-up, and the loss rises at first."
    thresholds: ClassVar = {"rows": (100.0, "ours"), "rise": (1.1, "ratio; ours")}
    causes = ("no warm-up: the first steps are too large", "learning rate too high")

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if self._done:
            return
        count = int(self.at["rows"])
        loss, rate = history.role("loss"), history.role("lr")
        if loss is None or rate is None or loss.end < count or rate.end < 2:
            return
        self._done = True
        yield from self._look(history, loss, rate, count)

    def _look(self, history: RunHistory, loss: Channel, rate: Channel, count: int) -> Iterator[Finding]:
        rows = loss.rows(0, count)
        if rows.first or rows.segment[-1] != rows.segment[0] or is_game(history, loss) or rows.step[0] > 20:
            return
        value = rows.value[numpy.isfinite(rows.value) & (rows.value > 0)]
        last = int(rows.step[-1])
        rates = between(rate, 0, last + 1, int(rows.segment[0]))
        if len(value) < 50 or len(rates) < 2 or rates[0] < 0.95 * rates.max() or rates[0] <= 0:
            return
        windows = numpy.sort(numpy.lib.stride_tricks.sliding_window_view(value, 5), axis=1)[:, 2]  # medians
        start = median(value[:3])
        noise = median(numpy.abs(numpy.diff(value)))
        top = float(windows.max())
        if top < self.at["rise"] * start or top - start < 4 * noise:
            return
        begin = int(numpy.argmax(windows > start + 0.25 * (top - start)))
        if stage_begins(history, int(rows.step[begin + 2]), int(rows.segment[0])):  # the middle one of five
            return
        end = float(windows[-5:].mean())
        guesses = (guess(history, last + 1, int(rows.segment[0])) for guess in (queue_guess, teacher_guess))
        harms = end > start and top >= max(guesses)
        harms = harms and not falling_term(history, int(rows.step[begin]), last, int(rows.segment[0]), 0)
        yield self.finding(
            int(rows.step[begin]),
            f"The learning rate starts at its maximum, {rates[0]:.3g}, and the loss rises from "
            f"{start:.4g} to {top:.4g}",
            severity="warning" if harms else "info",
            found=last,
            segment=int(rows.segment[0]),
            evidence={"lr": rounded(float(rates[0])), "start": rounded(start), "top": rounded(top),
                      "end": rounded(end)},
            remedies=[
                f"Warm up from 0 to {rates[0] / (3 if harms else 1):.2g} over the first {max(count, 100)} "
                "steps or more."
            ],
            confidence=0.8 if harms else 0.4,
        )  # fmt: skip


class WarmupUnfinished(Rule):
    """The run is over, and the learning rate was still in its linear warm-up, far below the configured rate.

    From its first row to its last, 100 steps at least, the rate rises in one straight line (half-way it is within a
    tenth of half of the rise), and ends below half of the rate in the configuration: the warm-up is longer than the
    run, as one is that counts epochs where steps are meant, or is stepped once an epoch. Without a configured rate, or
    where it is nearly reached, there is no finding.

    What to do: a warm-up of 1 to 5% of the steps.
    """

    name, family, kind, severity = "warmup_unfinished", "optimizer", "learning_rate", "warning"
    needs = ("lr", "config")
    least = 20
    about = "The warm-up never ended."
    thresholds: ClassVar = {
        "steps": (100.0, "ours"),
        "share": (0.5, "of the configured rate; ours"),
        "straight": (0.1, "of the rise, half-way; ours"),
    }
    causes = ("learning rate too low: the warm-up is longer than the run",)

    def reset(self) -> None:
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rate = history.role("lr")
        if self._done or not history.facts.get("finished") or rate is None or rate.end < self.least:
            return
        self._done = True
        rows, wanted = rate.rows(), numeric_setting(history, *RATES, "peak_lr")
        steps, values = rows.step, rows.value
        if rows.first or rows.segment[0] != rows.segment[-1] or steps[-1] - steps[0] < self.at["steps"]:
            return
        rise = float(values[-1] - values[0])
        if not rise > 0 or not (numpy.diff(values) >= 0).all() or not values[-1] < self.at["share"] * wanted:
            return
        middle = float(numpy.interp((steps[0] + steps[-1]) / 2, steps, values))
        late = values[-1] - values[int(0.9 * len(values))]
        if abs(middle - values[0] - rise / 2) > self.at["straight"] * rise or not late > 0.05 * rise:
            return
        yield self.finding(
            int(steps[0]), f"The learning rate rises from {values[0]:.3g} to {values[-1]:.3g} until the last step, "
            f"{int(steps[-1])}; the configuration says {wanted:.3g}.", found=int(steps[-1]),
            segment=int(rows.segment[0]), confidence=0.95,
            evidence={"last": rounded(float(values[-1])), "declared": rounded(wanted)},
            remedies=[f"Warm up over {max(10, int(0.03 * (steps[-1] - steps[0])))} steps; check whether the schedule "
                      "counts steps or epochs, and how often it is stepped."],
        )  # fmt: skip


RULES = (LearningRateJump, LearningRateZero, LearningRateCollapse, LearningRateConstant, MissingWarmup,
         WarmupUnfinished)  # fmt: skip

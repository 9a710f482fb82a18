"""The training loss: values that are not finite, spikes, levels far above what was.

In:   the series of the loss, and beside it gradient norm and learning rate.
Out:  findings of `NonFiniteLoss`, `LossSpike`, `LossLevel`, `SpikeScore`, and of `stillness`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
from barograph.doctor.kernel.curve import again, before, between, evaluation_holds, goes_below_zero, is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.series import SeriesRule
from barograph.doctor.kernel.stages import WITH_STAGE, stage_begins, term_joins
from barograph.doctor.rules.loss import others
from barograph.doctor.rules.loss.falls import LossJumpDown, LossSlide
from barograph.doctor.rules.loss.spikes import LossSpike
from barograph.doctor.rules.loss.stillness import FrozenLoss, ZeroLoss

_ANY_STEP = 1 << 62

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NonFiniteLoss(SeriesRule):
    """A loss that is NaN or infinite: the weights are too, or will be, and no later step repairs them.

    The first row that is not finite is the step. It is critical at once. If the loss comes back within 3 rows the batch
    or the log line was at fault and the finding is lowered to an info finding; if it comes back after more rows it is a
    warning. What lasts to the end of a launch stays critical, whatever the next one does. Rows before the first finite
    value are only reported when no finite value follows: where there are few, at the end of the run. Where single rows
    have been NaN before, the series is one that is not logged at each row, and only a stretch four times as long as any
    before counts.

    What to do: go back to the last checkpoint before the step, lower the learning rate or clip, look at the batch.
    """

    name, family, kind, severity = "non_finite_loss", "loss", "nonfinite", "critical"
    prompt = ("loss",)
    waits = False
    needs = ("loss",)
    about = "The training loss is NaN or infinite."
    sources = ("SageMaker Debugger: ExplodingTensor", "stability guide: stop when the loss is NaN or Inf")
    thresholds: ClassVar = {
        "healed": (3.0, "rows after which a loss that came back still counts as one bad row; ours"),
        "silent": (
            3.0,
            "rows from the start that are NaN before the run is broken; the row before the first step may be",
        ),
    }

    def reset(self) -> None:
        self._start: tuple[int, int, int, float] | None = None  # row, step, segment, value
        self._last_step = 0
        self._good: tuple[int, float] | None = None  # step and value of the last finite row
        self._longest = 0  # rows of the longest stretch that healed
        self._healed = 0
        self._finite = 0
        self._told: Finding | None = None
        self._lasting: Finding | None = None  # one that healed and is a warning

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        if self._start is None and rows.finite:
            self._good = (int(rows.step[-1]), float(rows.value[-1]))
            self._finite += len(rows)
            return
        finite = numpy.isfinite(rows.value)
        edges = numpy.flatnonzero(numpy.diff(finite)) + 1
        cuts = [0, *edges.tolist(), len(rows)]
        for low, high in pairwise(cuts):
            if finite[low]:
                yield from self._heal(rows, low)
                self._finite += high - low
                self._good = (int(rows.step[high - 1]), float(rows.value[high - 1]))
            else:
                yield from self._break(history, channel, rows, low, high)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        if self._start is not None and self._told is None and self._good is None:  # few rows, and none is a number
            rows = channel.rows(self._start[0])
            yield from self._break(history, channel, rows, 0, len(rows), 1)

    def _break(
        self, history: RunHistory, channel: Channel, rows: ChannelRows, low: int, high: int, least: int | None = None
    ) -> Iterator[Finding]:
        if self._start is None:
            self._start = (rows.first + low, int(rows.step[low]), int(rows.segment[low]), float(rows.value[low]))
            self._told = None
        begin, step, segment, value = self._start
        length = rows.first + high - begin
        self._last_step = int(rows.step[high - 1])
        needed = least or (1 + (4 * self._longest if self._healed else 0) if self._good else int(self.at["silent"]))
        if length < needed:
            return
        if self._told is not None:
            self._told.last_step = self._last_step
            self._told.evidence["rows"] = length
            yield again(self._told)
            return
        known = max(begin + needed - 1, rows.first + low)
        found = int(rows.step[known - rows.first])
        history.as_of(rows.time[known - rows.first])
        sort = "NaN" if math.isnan(value) else "infinite"
        evidence: dict[str, Any] = {"rows": length, "value": str(value)}
        causes = [
            "learning rate too high: the loss overflowed",
            "fp16 overflow: float16 ends at 65,504",
            "bad batch: an example without tokens, or with numbers that are not finite",
        ]
        remedies = []
        untrained = self._good is None and step <= 1
        if self._good is None:
            message = f"The loss is {sort} from the first row on (step {step})"
            causes = [
                "loss masked out: a mean over zero labels is NaN",
                "bad initialisation: weights or inputs hold numbers that are not finite",
                "fp16 overflow: float16 ends at 65,504",
            ]
            evaluated = between(history.role("eval_loss"), 0, step + 1, segment, finite=False)
            if len(evaluated) and not numpy.isfinite(evaluated).any():
                untrained = True
                causes[:2] = causes[1::-1]  # an evaluation has neither the training's masks nor its batches
            elif not untrained:
                causes.append("learning rate too high: the loss overflowed before its first row")
        else:
            evidence |= {"last_finite": rounded(self._good[1]), "last_finite_step": self._good[0]}
            message = f"The loss is {sort} since step {step}; the step before had {self._good[1]:.4g}"
        lr = before(history.role("lr"), step + 1, segment)
        norm = before(history.role("norm"), step, segment)
        if math.isfinite(norm):
            evidence["norm_before"] = rounded(norm)
            remedies.append(f"Clip the gradient norm at {max(rounded(norm, 2), 1e-3):g} or below.")
        if math.isfinite(lr) and lr > 0 and not untrained:
            evidence["lr"] = rounded(lr)
            remedies.append(f"Try a learning rate of {lr / 3:.2g} (it was {lr:.2g}).")
        checkpoint = history.checkpoint_before(step)
        if checkpoint:
            remedies.insert(
                0,
                f"Go back to the checkpoint of step {checkpoint[0]} ({checkpoint[1]}) and skip the batches "
                f"of steps {step} and {step + 1}.",
            )
        else:
            remedies.append(f"Look at the batch of step {step} and at the first layer whose output is not finite.")
        self._told = self.finding(
            step,
            message,
            last_step=self._last_step,
            found=found,
            evidence=evidence,
            causes=causes,
            remedies=remedies,
            confidence=0.97,
            segment=segment,
        )
        yield again(self._told)

    def _heal(self, rows: ChannelRows, low: int) -> Iterator[Finding]:
        if self._start is None:
            return
        length = rows.first + low - self._start[0]
        ended = int(rows.segment[low]) != self._start[2]  # it lasted to the end of its launch: the next heals nothing
        if self._good is not None and not ended:
            self._longest, self._healed = max(self._longest, length), self._healed + 1
        if self._told is not None and ended:
            self._lasting = None
        elif self._told is not None:
            told = self._told
            short = length <= self.at["healed"] or self._finite < 4 * length or self._healed > 1
            told.severity = "info" if short or self._good is None else "warning"
            told.confidence = 0.6
            told.evidence |= {"rows": length, "finite_again": int(rows.step[low])}
            told.last_step = self._last_step
            count = f"{length} row{'s' * (length > 1)}"
            told.message = f"The loss was not finite for {count} from step {told.step}, and is finite again from step "
            told.message += f"{rows.step[low]}"
            told.causes = [
                "bad batch: one without labels, or whose loss overflowed",
                "fp16 overflow: the scaler skipped the step",
            ]
            yield again(told)
            self._lasting = told if told.severity == "warning" else None
        elif self._lasting is not None:  # it happens again and again: a series that is not logged at each row
            self._lasting.severity = "info"
            yield again(self._lasting)
            self._lasting = None
        self._start = self._told = None


_YOUNG = 24  # rows above the average
_LATE = 64  # rows: the watch writes within a second what it has seen of a step


class LossLevel(SeriesRule):
    """The stability guide's rule: a loss of ten times its moving average is a warning, one of a hundred times a reason
    to stop.

    The moving average takes 0.98 of itself and 0.02 of each row, without the row itself, rows that are not finite, and
    rows that passed the threshold. It needs 8 rows. One row above is an info finding if the next three are below again.
    So is one with which the run ends, where an evaluation at its step or behind it is as good as those before.
    Where the validation loss did not rise with it, or a stage begins there (a logged number of a round, task or stage
    changes, or of the length or size of the examples, or the loss gets another term), it is an info finding. Of a loss
    that was below 0 before nothing is said: its average may be near 0. Where the steps begin again at the first one, or
    before it, a new training begins, and with it a new average.
    Where the loss is that high from one row to the next, a bad batch is a likelier cause than the weights.
    """

    name, family, kind, severity = "loss_level", "loss", "spike", "critical"
    needs = ("loss",)
    least = 9
    about = "The loss is many times its moving average."
    sources = (
        "stability guide: worry at 10 times the moving average, stop at 100 times; smoothing 0.98 as in its "
        "later version",
    )
    thresholds: ClassVar = {"spike": (10.0, "stability guide"), "stop": (100.0, "stability guide, red alerts")}

    def reset(self) -> None:
        self._average = self._first = math.nan
        self._rows = 0
        self._told: Finding | None = None
        self._below = 0
        self._meant = False  # a stage begins with what was found
        self._over: tuple[Finding, int] | None = None  # up to which row the watch's figures of its step may come
        self._begun: int | None = None  # the first step
        self._latest = 0

    def _anew(self, step: int) -> bool:
        """Whether a new training begins with this step: the steps are back at the first one, or before it."""
        self._begun = step if self._begun is None else self._begun
        back, self._latest = step < self._latest, step
        return back and step <= self._begun

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        if is_game(history, channel):
            return
        # what cannot pass is averaged in one go: no row above the threshold times a bound from below
        usual = self._told is None and self._over is None and self._rows >= 64 and rows.finite
        if usual and 0 < rows.highest < self.at["spike"] * min(rows.lowest, self._average):
            weights = 0.02 * 0.98 ** numpy.arange(min(len(rows), 1000) - 1, -1, -1)
            self._average = self._average * 0.98 ** len(rows) + float(weights @ rows.value[-1000:])
            self._rows += len(rows)
            self._latest = int(rows.step[-1])
            return
        for at in range(len(rows)):
            value = float(rows.value[at])
            if self._anew(int(rows.step[at])):
                self._average, self._first, self._rows, self._told = math.nan, math.nan, 0, None
            if not math.isfinite(value):
                continue
            if self._over is not None:
                yield from self._later(history, rows.first + at, int(rows.time[at]))
            if self._rows >= 8 and self._average > 1e-3 and value > self.at["spike"] * self._average:
                if self._told is None and goes_below_zero(channel, rows.first + at, int(rows.segment[at])):
                    continue
                yield self._above(history, rows, at, value)
                continue
            if self._told is not None:
                self._below += 1
                if self._below == 3:
                    if self._told.evidence["rows"] == 1:
                        if self._told.severity != "critical":  # the guide's red alert stays one
                            self._told.severity = "info"
                        yield again(self._told)
                    late = self._told.severity != "info" and history.channel("model/loss_terms") is not None
                    self._over = (self._told, rows.first + at + _LATE) if late else None
                    self._told = None
            self._rows += 1
            if math.isnan(self._average):
                self._first = value
            self._average = (
                value
                if math.isnan(self._average)
                else self._average + max(0.02, 1 / self._rows) * (value - self._average)
            )

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        told = self._told
        if told is None or told.severity == "info" or told.evidence["rows"] > 1:
            return
        if evaluation_holds(history, told.step - 1, _ANY_STEP, told.segment):
            told.severity = "info"
            yield again(told)

    def _later(self, history: RunHistory, row: int, time: int) -> Iterator[Finding]:
        """Whether the watch has seen by now that the loss got another term there."""
        assert self._over is not None
        told, last = self._over
        history.as_of(time)
        joins = term_joins(history, told.step, told.segment) is not None
        history.as_of(None)
        if joins:
            told.severity, told.causes, told.remedies = "info", [], []
            told.message += WITH_STAGE
            yield again(told)
        if joins or row >= last:
            self._over = None

    def _above(self, history: RunHistory, rows: ChannelRows, at: int, value: float) -> Finding:
        step, times = int(rows.step[at]), value / self._average
        history.as_of(int(rows.time[at]))
        self._below = 0
        if self._told is None:
            causes = [
                "learning rate too high: the weights left the stable region",
                "bad batch: its data differ from the rest",
            ]
            last = history.role("loss")
            near = last.rows(rows.first + at - 1, rows.first + at).value if last is not None else numpy.empty(0)
            if len(near) and float(near[0]) < 2 * self._average:
                causes.reverse()
            self._told = self.finding(
                step,
                "",
                found=step,
                segment=int(rows.segment[at]),
                severity="warning",
                evidence={"rows": 0, "times": 0.0, "average": rounded(self._average)},
                confidence=0.9,
                causes=causes,
                remedies=["Lower the learning rate five- to tenfold.", "Clip gradients."],
            )
            checkpoint = history.checkpoint_before(step)
            if checkpoint:
                self._told.remedies.insert(0, f"Go back to the checkpoint of step {checkpoint[0]} ({checkpoint[1]}).")
        told = self._told
        told.last_step = step
        told.evidence["rows"] += 1
        if times > told.evidence["times"]:
            told.evidence |= {"times": rounded(times, 3), "loss": rounded(value)}
        fitted = told.evidence["loss"] < 0.5 * self._first  # it leaps about
        held = fitted or evaluation_holds(history, told.step, step, told.segment)
        if told.evidence["rows"] <= _YOUNG:  # later rows don't change the answer
            self._meant = stage_begins(history, told.step, told.segment)
        elif not self._meant:
            self._meant = term_joins(history, told.step, told.segment) is not None
        if held or self._meant:
            told.severity = "info"
        elif told.evidence["times"] > self.at["stop"] and told.evidence["loss"] > self._first:
            told.severity = "critical"
        else:
            told.severity = "warning"
        told.message = (
            f"The loss reached {told.evidence['loss']:.4g}, {told.evidence['times']:.3g} times its moving average, "
            f"from step {told.step}"
        )
        if self._meant:
            told.message += WITH_STAGE
            told.causes, told.remedies = [], []
        return again(told)


class SpikeScore(SeriesRule):
    """OLMo 2's spike score: the share of rows that are at least seven standard deviations from the mean of the last
    1,000. It is reported at the end of the run where it is above 0.1%, with the number of rows; it measures how
    stable a run was, to compare runs.

    Mean and deviation are those of blocks of 1,000 rows before the row's own, so that a spike is not part of what it
    is measured against.
    """

    name, family, kind, severity = "spike_score", "loss", "spike", "info"
    needs = ("loss",)
    least = 2000
    about = "Some steps have a loss far from the mean of the 1,000 steps before."
    sources = ("OLMo 2: 7 standard deviations, 1,000 values",)
    thresholds: ClassVar = {"deviations": (7.0, "OLMo 2"), "share": (0.001, "ours; OLMo 2 went from 0.4% to 0.03%")}
    causes = ("learning rate too high: close to the stability limit", "bad batch: repeated n-grams cause spikes")
    remedies = ("Look at the single spikes; filter repeated n-grams; try Adam's epsilon 1e-8 and QK-norm.",)

    def reset(self) -> None:
        self._rest: list[NDArray[Any]] = []
        self._waiting = 0
        self._before: tuple[float, float] | None = None
        self._spikes = self._rows = 0
        self._first: int | None = None

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        at = 0
        while at < len(rows):
            take = min(1000 - self._waiting, len(rows) - at)
            part = rows.value[at : at + take]
            if self._before is not None:
                mean, deviation = self._before
                with numpy.errstate(invalid="ignore"):
                    far = numpy.abs(part - mean) >= self.at["deviations"] * deviation
                count = int(far.sum())
                if count and self._first is None:
                    self._first = int(rows.step[at + int(numpy.flatnonzero(far)[0])])
                self._spikes += count
                self._rows += take
            self._rest.append(part)
            self._waiting += take
            at += take
            if self._waiting == 1000:
                block = numpy.concatenate(self._rest)
                block = block[numpy.isfinite(block)]
                if len(block) >= 500:
                    self._before = float(block.mean()), max(float(block.std()), 1e-9)
                self._rest, self._waiting = [], 0
        yield from ()

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        if self._rows and self._spikes > self.at["share"] * self._rows:
            share = self._spikes / self._rows
            yield self.finding(
                self._first or 0,
                f"{100 * share:.2g}% of the steps have a loss at least seven standard deviations from the mean",
                found=channel.last_step,
                confidence=0.8,
                segment=1,
                evidence={"score": rounded(share), "rows": self._rows, "spikes": self._spikes},
            )


RULES = (NonFiniteLoss, LossSpike, LossLevel, SpikeScore, ZeroLoss, FrozenLoss, LossJumpDown, LossSlide, *others.RULES)

"""Whether the training gets anywhere: divergence, plateaus, no learning at all, a first loss that can't be.

In:   the series of the loss, and beside it evaluation, learning rate, epoch, vocabulary.
Out:  findings of `Divergence`, `LossPlateau`, `NotLearning`, `InitialLoss`, `SummedLoss`, `DoubleSoftmax`,
      `EvaluationTwice`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy

from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import exp
from barograph.doctor.kernel.curve import (
    WIDTHS,
    Tick,
    Waves,
    again,
    before,
    between,
    goes_below_zero,
    is_game,
    rounded,
)
from barograph.doctor.kernel.curve_rule import CurveRule
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.stages import stage_begins, stage_behind, term_joins
from barograph.doctor.rules.loss.floor import DoubleSoftmax, EvaluationTwice
from barograph.doctor.rules.loss.initial import InitialLoss
from barograph.doctor.rules.loss.learning import NotLearning
from barograph.doctor.rules.loss.rise import SHORT, but_for_first, early_noise, excuse_of, is_none, leap_of, onset_of
from barograph.doctor.rules.loss.short_runs import explodes, last_rows_rise, leaps, only_grows, rises_throughout, turns
from barograph.doctor.rules.loss.summed import SummedLoss
from barograph.doctor.rules.loss.sums import LossWeight

_FEWEST = 5  # rows of which the last two alone can say it
_LEARNT = 0.05  # in ln below the start, where something was learnt
_BLOWN_UP = 3.0  # times the loss of the untrained model
_WIDEST = WIDTHS[-1][1]
_WIDE = 8  # points of the curve in a mean, some 130 rows: its noise is a ninth of a row's
_WIDE_RISE = 0.35  # in ln, of such a mean, and a standard deviation of single rows


_TERM = "loss changed: it has another term from there on"


class Divergence(CurveRule):
    """A loss that rises and stays up.

    The curve is the median of the last 5, 9 or 33 rows (up to row 64, 256, beyond), in logarithms. Its rise over the
    lowest point, less how low the lowest of as many points is by chance, must be more than 0.1 (10%) and more than 3,
    2.25 or 1.75 robust standard deviations of single rows (of a dozen rows, of their steps up and
    down). Behind row 256 a rise of the mean of eight points over the
    lowest such mean counts as well, by 0.35 (40%) and one deviation: in much noise single medians say little. A curve
    that has risen and come back twice must rise by a quarter more than it did both times.

    The severity follows from the share of the decrease since the start that is lost again:

    - a quarter or more, or a loss above its start, for an eighth of the rows so far (4 to 16 rows): a warning; from a
      half on, or above the start, critical;
    - less, for a quarter of the rows (12 to 200): an info finding; a warning where the rise is above 0.15, 6
      deviations, a twentieth of the decrease, and not on its way back.

    What explains a rise makes it an info finding: a validation loss that did not rise with it (regularisers, masking,
    summed losses and curricula lift the training loss alone), negatives from a queue that is filled in the first rows
    with harder ones, or targets of a network of the model's make that moves with it and begins as it does, as long as
    the loss is below a guess's, a preference's reference that was set anew meanwhile, as long as the loss stays below
    that of its first rows, a term that is logged apart and was nearly all of the loss before, and has fallen since
    (another one rises, as a codebook's or a divergence's), rows that add up all losses so far (each adds no more than
    the one before), a learning rate that is warmed up again to no more than it was, and losses of games (GANs),
    policies or agents (a reward, values of actions, lengths of episodes, an exploration rate that falls, or rows that
    are episodes without an accuracy), or that were below 0 before, which are not checked. With several epochs the loss
    drifts up within each: then only the share counts. A rise that is over lowers the finding to an info finding; one
    that took long and ended where it had begun does once the loss falls below its start by 5%, or has risen and come
    back as far again. A rise during which a tenth of the rows are as low as the lowest point is none, and so is one
    from step 0's row to rows that add up the steps between them, where the loss falls since and a score rises, or from
    means of the first few steps to means of all; where that is known later, it is an info finding.
    Where a stage begins as the loss rises (a logged number of a round, task or stage changes, or the loss gets another
    term: a series that was the loss to the last bit is other from there on, and has not risen with it; or the watch
    sees more terms in its graph, and the loss falls or stays behind its leap), the curve begins anew. So it does where
    the bend of a loss near 0 is some rows too early, and a stage begins with the first row that is higher.

    In a run of no more than 64 rows its last ones may be too few for a curve: four or more, up to a third, each of
    which is 1.3 times as high as any row since the first quarter, or since the loss first came within a sixth of its
    lowest, and half as high again in the median, are a warning at its end. So are ten rows or more that rise one after
    the other, by a tenth and four deviations, from the first half to above the first row; of six to eleven rows three
    that are half as high again as any before; of four or five, where there is no reward, the last two that are each
    five times the row before, the last one a hundred times the median of those ahead of both, and above a hundred. So
    are, of a loss without a reward that fell row after row at first, three at least and to three quarters: four or more
    that rise one after the other, to twice the lowest and a fifth above the first (six, however little fell); three at
    the end that are as high as the first, and half as high again as the lowest; or two at the end, the first half as
    high again as the first row, the second as much above that and three times as high as the first row.

    The step is the row at which the rise starts, not where a threshold was passed.
    """

    name, family, kind, severity = "divergence", "loss", "divergence", "critical"
    least = 12
    about = "The training loss rises and does not come back."
    sources = ("BLOOM: the 104B run", "levanter#391", "marin#2830")
    thresholds: ClassVar = {
        "rise": (0.1, "in ln; ours"),
        "share": (0.25, "of the decrease so far; ours"),
        "critical_share": (0.5, "of the decrease so far; ours"),
        "long": (200.0, "rows of a slow rise; ours"),
        "few": (1.3, "times any row before, of the last rows of a short run; ours"),
    }

    def begin(self, history: RunHistory, channel: Channel, tick: Tick, old: int) -> None:
        stage = old < 0 or tick.step < 0.5 * self._last_step
        if stage:  # otherwise a resume: what was reached before counts on
            self._first: list[float] = []
            self._start = math.nan
            self._best: Tick | None = None
        self._last_step = tick.step
        self._waves, self._wide_waves = Waves(), Waves()
        self._wide: list[float] = []  # the last points, of which a mean is taken
        self._wide_low = math.inf  # the lowest of these means
        self._above: Tick | None = None  # since when the rise is above the least that counts
        self._high = -math.inf
        self._told: Finding | None = None
        self._lasting: Finding | None = None  # one that came back to where it had begun, and not below
        self._lasting_rise = math.inf  # how far it had risen
        self._onset: tuple[int, float, Tick] | None = None
        self._quiet = 0
        self._judged = ""  # the severity before what may explain it

    _last_step = 0

    def step(self, history: RunHistory, channel: Channel, tick: Tick) -> Iterator[Finding]:
        self._last_step = tick.step
        level = tick.level
        if not math.isfinite(level):
            return
        if len(self._first) < 3:
            self._first.append(level)
            self._start = sorted(self._first)[len(self._first) // 2]
        if tick.nth < 4:
            self._best = tick if self._best is None or level < self._best.level else self._best
            return
        self._waves.follow(level)
        if self._waves.least >= self._lasting_rise:
            yield from self._excused(f", and has risen and come back as far again by step {tick.step}")
        best = self._best
        if best is None or level <= best.level:
            if tick.width == _WIDEST:
                self._widely(level)
            if self._told is not None:
                yield from self._recover(tick)
            self._best, self._above = tick, None
            if self._start - level > _LEARNT:
                yield from self._excused(f", and falls below its start at step {tick.step}")
            return
        spread = best.spread if math.isfinite(best.spread) else tick.spread
        spread = spread if math.isfinite(spread) else early_noise(channel, tick)
        # the lowest of many noisy points is low by chance: by what the lowest of as many medians of normal noise is
        chance = math.sqrt(2 * math.log(max(tick.nth / best.width, 2.0))) * 1.2533 / math.sqrt(best.width)
        floor = best.level + chance * spread
        rise = level - floor
        times = {5: 3.0, 9: 2.25}.get(tick.width, 1.75)
        if self._start - best.level < 4 * spread:  # a curve that has hardly fallen wanders all the time
            times *= 2.0
        least = max(0.4 if tick.nth < 12 else self.at["rise"], times * spread)
        least = max(least, self._waves.least)  # it wanders: noise of neighbours that are alike is greater than it seems
        wide = self._widely(level) if tick.width == _WIDEST else 0.0
        if rise < least and wide > max(_WIDE_RISE, spread, self._wide_waves.least):
            wide_tick = tick._replace(level=self._wide_low + wide)
            self._above = self._above or tick
            self._high = max(self._high, wide_tick.level)
            yield from self._judge(history, channel, wide_tick, self._wide_low, spread)
            return
        if rise < least:
            if self._told is not None and rise < 0.5 * least:
                yield from self._recover(tick)
            if rise < 0.7 * least:
                self._above, self._high = None, -math.inf
            return
        if self._above is None:
            self._above, self._high = tick, level
        self._high = max(self._high, level)
        yield from self._judge(history, channel, tick, floor, spread)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        rows = channel.rows()
        known = numpy.flatnonzero((rows.segment == self._segment) & numpy.isfinite(rows.value))
        if self._told is not None or not 4 <= len(known) <= SHORT:
            return
        value, step = rows.value[known], rows.step[known]
        if is_game(history, channel):
            place = only_grows(value)
            yield from () if place is None else self._short(history, channel, value, step, place)
            return
        rise = last_rows_rise(value, self.at["few"]) if len(value) >= self.least else None
        place = rises_throughout(value) if len(value) >= self.least else leaps(value) if len(value) > _FEWEST else None
        if len(value) <= _FEWEST and history.role("reward") is None:
            place = explodes(value)
        if rise is not None:
            place = len(value) - rise[0], rise[1]
        if place is None and len(value) >= _FEWEST and history.role("reward") is None:
            place = turns(value)
        yield from () if place is None else self._short(history, channel, value, step, place)

    def _short(
        self, history: RunHistory, channel: Channel, value: Any, step: Any, place: tuple[int, float]
    ) -> Iterator[Finding]:
        """What is said of a few rows that rise from a place on."""
        at, low = place
        self._start = math.log(value[0]) if value[0] > 0 else self._start
        best = Tick(0, int(step[max(at - 1, 0)]), math.log(low), 0.0, self._segment, 1, len(value), 0)
        tick = best._replace(step=int(step[-1]), level=math.log(float(value[-1])))
        excuse = excuse_of(history, best, int(step[at]), tick, 0.0)
        share = min(1.0, (float(value[-1]) - low) / max(float(value[0]) - low, 1e-300))
        yield from self._tell(
            history, channel, tick, best, int(step[at]), "info" if excuse else "warning", share, excuse
        )

    def _widely(self, level: float) -> float:
        """How far the mean of the last points lies above the lowest such mean: noise of a third hides less in it."""
        self._wide = [*self._wide[1 - _WIDE :], level]
        if len(self._wide) < _WIDE:
            return 0.0
        mean = sum(self._wide) / _WIDE
        self._wide_low = min(self._wide_low, mean)
        self._wide_waves.follow(mean)
        return mean - self._wide_low

    def _judge(
        self, history: RunHistory, channel: Channel, tick: Tick, floor: float, spread: float
    ) -> Iterator[Finding]:
        best, above = self._best, self._above
        assert best is not None and above is not None
        rows, rise = tick.row - above.row + 1, tick.level - floor
        lost, descent = (exp(height) - exp(floor) for height in (tick.level, self._start))
        over_start = tick.level > self._start + max(self.at["rise"], 2 * spread, 0.5 * self._waves.least)
        fallen = _WIDE_RISE + spread if floor == self._wide_low else 4 * spread  # no mean of many rows is a dip
        if not over_start and self._start - best.level < fallen:
            return  # a curve that has hardly fallen, and is not above its start: the lowest point was a dip
        share = 1.0 if over_start else lost / descent if descent > 0 else 1.0
        large = share >= self.at["share"] and rows >= min(max(tick.nth // 8, 4), 16)
        if over_start and tick.nth < 32 and (rise < 0.4 or but_for_first(channel, tick, rise, self.at["rise"])):
            large = False  # a few rows of a smoothed log may begin too low
        slow = rows >= min(max(tick.nth // 4, 12), self.at["long"])
        if not (large or slow) or is_game(history, channel) or goes_below_zero(channel, tick.row, tick.segment):
            return
        if self._told is None and is_none(history, channel, above, tick, best, floor != self._wide_low):
            return
        severity = "info"
        if large:
            severity = "critical" if share >= self.at["critical_share"] else "warning"
        elif rise > 0.15 and rise > 6 * spread and share > 0.05 and self._high - tick.level < 0.3 * rise:
            severity = "warning"
        if self._told is not None:
            if (joins := term_joins(history, self._told.step, tick.segment)) is not None:
                yield self._has_joined(joins)
                self.begin(history, channel, tick, -1)
                return
            if tick.row < self._quiet and severity in (self._told.severity, self._judged):
                return
            self._quiet = tick.row + max(rows // 2, 16)
        self._judged = severity
        onset = onset_of(channel, best, tick) if self._told is None else self._told.step
        begins = self._told is None and stage_begins(history, onset, tick.segment)
        if self._told is None and not begins:  # of a loss near 0, whose logarithm wanders, the bend is found too early
            half = exp((best.level + tick.level) / 2)
            begins = stage_behind(history, onset, tick.step, half, tick.segment) is not None
        if begins:
            if (joins := term_joins(history, onset, tick.segment)) is not None:
                told = self._told = self.finding(onset, "", segment=tick.segment, found=tick.step)
                told.evidence = {"best": rounded(exp(best.level)), "loss": rounded(exp(tick.level))}
                yield self._has_joined(joins)
            self.begin(history, channel, tick, -1)
            return
        excuse = excuse_of(history, best, onset, tick, share)
        epochs = between(history.role("epoch"), 0, tick.step + 1, tick.segment)
        if excuse or (not large and len(epochs) and epochs[-1] - epochs[0] > 1.2):
            severity = "info"
        order = ("info", "warning", "critical")
        if self._told is not None and not excuse:
            severity = max(severity, self._told.severity, key=order.index)
        yield from self._tell(history, channel, tick, best, onset, severity, share, excuse)

    def _tell(
        self,
        history: RunHistory,
        channel: Channel,
        tick: Tick,
        best: Tick,
        onset: int,
        severity: str,
        share: float,
        excuse: str,
    ) -> Iterator[Finding]:
        low, now, start = exp(best.level), exp(tick.level), exp(self._start)
        message = f"The loss has been rising since step {onset}: from {low:.4g} to {now:.4g} at step {tick.step}"
        if now > start:
            message += f", above its start of {start:.4g}"
        if excuse:
            message += f"; {excuse}"
        evidence: dict[str, Any] = {
            "best": rounded(low), "best_step": best.step, "loss": rounded(now), "start": rounded(start),
            "lost_share": rounded(share, 3), "spread": rounded(best.spread, 3),
        }  # fmt: skip
        causes = [
            "learning rate too high: the updates overshoot",
            "labels shifted: targets changed",
            "labels shuffled: targets no longer match inputs",
            "zero_grad missing: gradients of all steps add up",
            "weight decay too high",
        ]
        rate = history.role("lr")
        leap = leap_of(channel, rate, onset, tick, self._start)
        if leap and now > _BLOWN_UP * start:  # whatever the labels, a model comes back to a guess
            causes = [causes[0], "bad batch: its gradient threw the weights far away", "clipping off", causes[2]]
        elif leap:  # other targets can be learnt, none cannot
            labels = causes[2:0:-1] if leap == "stays" else causes[1:3]
            causes = [*labels, "bad batch: different data since this step", causes[0]]
        remedies = []
        lr_best, lr_onset = before(rate, best.step + 1, tick.segment), before(rate, onset + 1, tick.segment)
        if math.isfinite(lr_onset) and lr_onset > 0:
            evidence |= {"lr_at_onset": rounded(lr_onset), "lr_at_best": rounded(lr_best)}
            stable = min(lr_best, lr_onset) if lr_best > 0 else lr_onset
            remedies.append(f"Try a learning rate of {stable / 3:.2g}; at {stable:.2g} the loss was lowest.")
            first = between(rate, 0, best.step + 1, tick.segment)
            if len(first) > 1 and first[0] >= 0.95 * first.max() and tick.nth < 512:
                causes.insert(1, "no warm-up: the learning rate is at its maximum from the first step on")
        checkpoint = history.checkpoint_before(onset)
        if checkpoint:
            remedies.insert(0, f"Go back to the checkpoint of step {checkpoint[0]} ({checkpoint[1]}).")
        remedies.append(f"Compare data and configuration before and after step {onset}.")
        if "the sum of all rows" in excuse:
            causes, remedies = (
                ["loss summed: the logged sum is not set back to 0"],
                ["Set it back to 0 once it is logged."],
            )
        found = self._told.found if self._told is not None else tick.step
        self._told = self.finding(
            onset,
            message,
            severity=severity,
            last_step=tick.step,
            found=found,
            evidence=evidence,
            causes=causes,
            remedies=remedies,
            segment=tick.segment,
            confidence={"critical": 0.9, "warning": 0.75}.get(severity, 0.4),
        )
        yield again(self._told)

    def _has_joined(self, step: int) -> Finding:
        """What was said of a rise, now that the loss's graph is known to have another term since."""
        told = self._told
        assert told is not None
        told.severity, told.confidence, told.causes, told.remedies = "info", 0.5, [_TERM], []
        low, now = told.evidence["best"], told.evidence["loss"]
        told.message = f"The loss got another term at step {step}: it went from {low:.4g} to {now:.4g}"
        return again(told)

    def _recover(self, tick: Tick) -> Iterator[Finding]:
        told = self._told
        assert told is not None
        # a loss that is back, after long, where it had been before anything was learnt has not recovered
        long = tick.nth >= 64 and told.last_step - told.step >= 0.2 * tick.step
        if self._best is None or self._start - self._best.level > _LEARNT or not long:
            told.severity, told.confidence = "info", 0.5
        else:
            self._lasting, self._lasting_rise = told, math.log(told.evidence["loss"] / told.evidence["best"])
        told.evidence["back_at"] = tick.step
        told.message += f"; it had recovered by step {tick.step}"
        self._told = None
        yield again(told)

    def _excused(self, what: str) -> Iterator[Finding]:
        """One that came back after long was none."""
        if self._lasting is not None:
            self._lasting.severity, self._lasting.confidence = "info", 0.5
            self._lasting.message += what
            yield again(self._lasting)
        self._lasting, self._lasting_rise = None, math.inf


class LossPlateau(CurveRule):
    """A loss that no longer changes.

    Two medians of the smoothed curve over the last third of the rows, one of each half, differ by less than 0.3% and
    less than their own noise, in at least 64 rows (200 where steps are logged one by one) and a third of the run so
    far, while the learning rate is above a tenth of its highest. Most trainings end that way: it is an info finding,
    once in a segment, with the step after which the loss did not improve.

    It is a warning where the model is far from what it must reach: a language model from scratch (first loss within
    1 of ln of the vocabulary, or between 9 and 12 where it isn't known) that has learnt for 1,000 steps and stays
    above 0.6 of its first loss has learnt word frequencies and nothing more.
    """

    name, family, kind, severity = "plateau", "loss", "plateau", "warning"
    least = 64
    about = "The training loss has stopped falling."
    sources = (
        "stability guide: no improvement in 10,000 steps",
        "SageMaker Debugger: LossNotDecreasing looks at 10 steps, too few here",
    )
    thresholds: ClassVar = {
        "share": (0.33, "of the rows so far; ours"),
        "gain": (0.003, "relative; ours"),
        "far": (0.6, "of the first loss: word frequencies alone give about 0.65 to 0.7; ours"),
    }

    def begin(self, history: RunHistory, channel: Channel, tick: Tick, old: int) -> None:
        self._levels: list[Tick] = []
        self._stride = 1
        self._count = 0
        self._told: Finding | None = None
        self._level = math.nan
        self._start = math.nan
        self._next = 0

    def step(self, history: RunHistory, channel: Channel, tick: Tick) -> Iterator[Finding]:
        if not math.isfinite(tick.level):
            return
        if math.isnan(self._start):
            self._start = tick.level
        self._count += 1
        if self._count % self._stride == 0:
            self._levels.append(tick)
            if len(self._levels) == 512:  # half as dense from here on
                self._levels, self._stride = self._levels[1::2], self._stride * 2
        dense = tick.nth > 0 and (tick.step - self._levels[0].step) / tick.nth < 5 if self._levels else False
        if tick.nth < (600 if dense else 64) or tick.row < self._next or is_game(history, channel):
            return
        self._next = tick.row + max(tick.nth // 16, 1)
        begin = tick.nth - int(self.at["share"] * tick.nth)
        part = [level for level in self._levels if level.nth >= begin]
        if len(part) < 12:
            return
        half = len(part) // 2
        early = median([item.level for item in part[:half]])
        late = median([item.level for item in part[half:]])
        gain = early - late
        noise = 3 * tick.spread / math.sqrt(max(self.at["share"] * tick.nth / 2, 1))
        flat = abs(gain) < self.at["gain"] and gain < max(noise, 0.3 * self.at["gain"])
        if self._told is not None:
            if self._told.severity == "info" and flat and self._poor(history, tick, exp(late)):
                self._told.severity, self._told.confidence, self._told.last_step = "warning", 0.7, tick.step
                yield again(self._told)
            # two medians of noise differ by 1.8 of its deviations, and are compared again and again; a loss that falls
            # leaves the level that was reported, too
            better = gain > max(2 * self.at["gain"], 1.8 * noise) and late < self._level - 2 * self.at["gain"]
            if better and not (self._told.severity == "warning" and self._poor(history, tick, exp(late))):
                self._told.evidence["over_at"], self._told.severity = tick.step, "info"
                self._told.message += f"; it fell again by step {tick.step}"
                yield again(self._told)
                self._next = 1 << 62
            return
        if not flat:
            return
        rates = between(history.role("lr"), 0, tick.step + 1, tick.segment)
        if len(rates) and rates[-1] < 0.1 * rates.max():
            return
        level, self._level = exp(late), late
        since = next((level for level in self._levels if level.level < late + max(0.003, tick.spread / 2)), part[0])
        start = exp(self._start)
        poor = self._poor(history, tick, level)
        self._told = self.finding(
            since.step,
            f"The loss has stayed at {level:.4g} since step {since.step}",
            severity="warning" if poor else "info",
            found=tick.step,
            segment=tick.segment,
            evidence={"level": rounded(level), "gain": rounded(gain, 3), "start": rounded(start), "rows": len(part)},
            causes=[
                "learning rate too high: steps are too large to improve further",
                "learning rate too low",
                "gradients vanish: deep layers don't learn",
            ]
            if poor
            else ["learning rate too high: decay it", "learning rate too low"],
            remedies=[
                f"Decay the learning rate: {rates[-1]:.2g} no longer lowers the loss."
                if len(rates)
                else "Decay the learning rate, or stop."
            ],
            confidence=0.7 if poor else 0.4,
        )
        yield again(self._told)

    def _poor(self, history: RunHistory, tick: Tick, level: float) -> bool:
        """Whether a language model from scratch stands where word frequencies alone would."""
        start = exp(self._start)
        vocabulary = history.facts.get("vocabulary")
        scratch = abs(start - math.log(vocabulary)) < 1 if vocabulary else 9 <= start <= 12
        return scratch and level > self.at["far"] * start and tick.step >= 1000


RULES = (Divergence, LossPlateau, NotLearning, InitialLoss, SummedLoss, LossWeight, DoubleSoftmax, EvaluationTwice)

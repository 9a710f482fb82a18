"""Rules over the level of the gradient norm: exploding, decayed, zero, scaled by a factor.

In:   the norm each step, and the loss beside it.
Out:  findings of the family `gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.blocks import BlockColumns, BlockCourse
from barograph.doctor.kernel.cursor import half_rate, numeric_setting, saved_before, usual
from barograph.doctor.kernel.curve import answers_changed, between
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.series import BlockRule
from barograph.doctor.kernel.shifts import REST, Shift, Shifts
from barograph.doctor.rules.gradient import vanished
from barograph.doctor.rules.gradient.norms import is_policy, norm_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_EIGHT, _HALF_WAY = 8, 0.5  # rows before a change; of it, in ln, that their median may have come at most
_FALLEN = 0.4  # of a change, in ln, that the last four rows before it have come
_ON_ITS_WAY = 0.2  # of a change, in ln, that four rows beside it lie within on the average


class ExplodingGradient(BlockRule):
    """The norm of the gradient has risen tenfold over its own median, and stays there.

    Medians of 16 rows are compared with the median over the whole course so far (at least 64 rows of it). Two in a row
    above ten times that median make a finding; so do two above three times, of which the second is above five times and
    larger by 30%: a norm on its way to ten times. It is a warning if the loss is not 3% lower than in the 32 rows
    before the rise, else an info finding, for a norm may rise while a model learns. Where it rises block after block,
    in three blocks or in a straight line (correlation above 0.99), gradients may be added up from step to step: the
    first cause is then a missing `zero_grad`.

    What to do: lower the learning rate, clip, go back to a checkpoint from before the rise.
    """

    name, family, kind, severity = "exploding_gradient", "gradient", "exploding", "warning"
    needs = ("norm|=model/grad_norm",)
    least = 96
    about = "The gradient norm has risen tenfold and stays high."
    sources = ("AutoTrainer: exploding gradients",)
    thresholds: ClassVar = {
        "ratio": (10.0, "ours"),
        "blocks": (4.0, "blocks of 16 rows that make the median; ours"),
        "rising": (3.0, "times, of a norm that goes on rising; ours"),
        "risen": (5.0, "times; ours"),
        "growth": (1.3, "from block to block; ours"),
    }

    def reset(self) -> None:
        super().reset()
        self._course = BlockCourse()
        self._late: list[float] = []  # the last two blocks are in no median yet
        self._trail: list[float] = []  # the last three blocks
        self._said: Finding | None = None
        self._base = math.nan
        self._base_of = -1

    def channel(self, history: RunHistory) -> Channel | None:
        return norm_of(history)

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        for at in range(len(new)):
            segment, middle = int(new.segment[at]), float(new.middle[at])
            if segment != self._course.segment:
                self._course.begin(segment)
                self._late, self._trail, self._said, self._base_of = [], [], None, -1
            course = self._course
            if len(self._late) == 2:
                course.add(self._late.pop(0))
            if course.count >= self.at["blocks"]:
                if self._base_of != len(course.values) * course.each:
                    self._base, self._base_of = course.median(), len(course.values) * course.each
                last, bar = self._late[-1] if self._late else 0.0, self.at["ratio"] * self._base
                least = max(self.at["growth"] * last, self.at["risen"] * self._base)
                rises = last > self.at["rising"] * self._base and middle > least
                if math.inf > middle > self._base > 0 and (rises or min(last, middle) > bar):
                    yield from self._say(history, new, at, middle, segment)
                elif middle <= 0.5 * self.at["risen"] * self._base:
                    self._said = None
            self._late.append(middle)
            self._trail = [*self._trail[-2:], middle]

    def _say(self, history: RunHistory, new, at: int, middle: float, segment: int) -> Iterator[Finding]:  # type: ignore[no-untyped-def]
        step, time = int(new.last_step[at]), int(new.time[at])
        told = self._said
        if told is not None and (told.severity != "info" or is_policy(history)):
            if step < 2 * told.last_step - told.step:
                return
            told.last_step = step
            yield _copy(told)
            return
        norm, loss = norm_of(history), history.role("loss")
        began, line = (told.step if told is not None else step), False
        if norm is not None and told is None:
            rows = norm.rows(max(norm.start, norm.end - 8192 - 512))
            here = (rows.segment == segment) & (rows.step <= step) & numpy.isfinite(rows.value) & (rows.value > 0)
            values, steps = rows.value[here][-256:], rows.step[here][-256:]
            low = numpy.flatnonzero(values < 3 * self._base)  # the last that was usual
            if len(low) and low[-1] + 1 < len(steps):
                began = int(steps[low[-1] + 1])
            flat = numpy.flatnonzero(values < 1.5 * self._base)
            rise = values[int(flat[-1]) + 1 if len(flat) else 0 :]
            line = len(rise) >= 16 and bool(rise[0] < rise[-1] < 1e15) and _is_line(rise)
        # four levels in a row each above the last, the first of them still a usual one: a sum that grows
        levels = [*self._trail, middle]
        line |= len(levels) == 4 and all(a < b / 1.2 for a, b in pairwise(levels))
        now, before = usual(loss, step, time, segment, 16), math.nan
        if loss is not None:
            rows = loss.rows(max(loss.start, loss.end - 8192 - 512))
            values = rows.value[(rows.segment == segment) & (rows.step < began) & numpy.isfinite(rows.value)][-32:]
            before = float(numpy.median(values)) if len(values) else math.nan
        falls = now < 0.97 * before and not is_policy(history)
        if told is not None and falls:
            return
        causes = ["learning rate too high", "clipping off", "zero_grad missing"]
        if line:
            causes = ["zero_grad missing: the norm grows from step to step", *causes[:2]]
        self._said = self.finding(
            began, f"The gradient norm has been {middle / self._base:.3g} times its usual {self._base:.3g} "
            f"since about step {began}" + (", while the loss still falls." if falls else "."),
            severity="info" if falls or is_policy(history) else "warning", found=step, segment=segment,
            evidence={"norm": middle, "usual": self._base, "loss": now, "loss_before": before}, causes=causes,
            remedies=[half_rate(history, began, time, segment), f"clip gradients at a norm of {2 * self._base:.3g}",
                      *saved_before(history, began)], confidence=0.6,
        )  # fmt: skip
        yield _copy(self._said)


def _copy(finding: Finding) -> Finding:
    import copy

    return copy.copy(finding)


def _is_line(values: Any) -> bool:
    """Whether values lie on a rising straight line: correlation with their number above 0.99."""
    with numpy.errstate(all="ignore"):
        return bool(numpy.corrcoef(numpy.arange(len(values)), values)[0, 1] > 0.99)


class GradientScaleJump(Rule):
    """Gradient and loss are multiplied by one whole number from a step on.

    Data never cause that; a program that adds the losses of micro-batches where it averaged them before does, or
    one that divides twice. The norm changes its level by a factor for at least 8 rows, the loss by the same factor
    (within a quarter), the factor of the loss is a whole number up to 64 or one over it (within 4%, from 4 on 8%),
    and it neither grows nor shrinks in these rows. The number is named where it is the only one within that, of
    several the one that the configuration accumulates, or else the only power of two. The accuracy, if one is
    logged, stays at its level. Where the loss is so noisy that the number can't be determined, a factor above 3.5
    of both makes a warning, if the four rows before and the four behind are at their levels: what is learnt, as by
    a contrastive model all at once, comes row by row. Nor may any eight in a row of the 32 before have been, by their
    median, more than half of the way to the new level, as where a loss falls over many of them. Nor is the number one
    where the loss was falling, four tenths of the way in the four rows before. A loss that is a
    power of two times what it was (within 1.5%), and as noisy as before, is evidence by itself where the norm moves
    with it by another factor. Where the norm alone jumps by more than 3.5 and the loss does not change (within 5%),
    it is an info finding: another batch size or another mixture of data does that too. The loss of a policy has no
    factor: there a level that shifts by six robust standard deviations, while the norm grows 3.5 times, is a warning:
    the objective has changed.
    """

    name, family, kind, severity = "gradient_scale_jump", "gradient", "exploding", "critical"
    needs = ("norm|=model/grad_norm_before", "loss")
    least = 32
    about = "Gradients and loss are scaled by a whole number from a step on."
    sources = ("transformers#34204",)
    thresholds: ClassVar = {
        "ratio": (1.8, "of the norm's levels; ours"),
        "rows": (8.0, "that confirm it; ours"),
        "whole": (0.04, "how far from a whole number; ours"),
        "alone": (3.5, "of the norm alone; ours"),
        "exact": (0.015, "how far from a power of two a factor of the loss may be whose norm has another; ours"),
    }

    def reset(self) -> None:
        self._shifts = Shifts(self.at["ratio"], int(self.at["rows"]), share=0.7, z=3.0)
        self._losses = Shifts(self.at["ratio"], 2 * int(self.at["rows"]), share=0.9, z=3.0)
        self._told: list[Finding] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        channel, loss = norm_of(history), history.role("loss")
        if channel is None or loss is None:
            return
        for shift in self._shifts.follow(history, channel):
            if shift.back is None:
                history.as_of(channel.rows(shift.last, shift.last + 1).time[0])
                found = list(self._say(history, shift))
                history.as_of(None)
                self._told += found
                yield from found
        for shift in self._losses.follow(history, loss):
            near = REST * max(1, shift.found - shift.step) // 16
            if shift.back is None and not any(
                abs(told.step - shift.step) < near and told.found <= shift.found and told.severity != "info"
                for told in self._told
            ):
                history.as_of(loss.rows(shift.last, shift.last + 1).time[0])
                yield from list(self._clean(history, channel, loss, shift))
                history.as_of(None)

    def _clean(self, history: RunHistory, norm: Channel, loss: Channel, shift: Shift) -> Iterator[Finding]:
        """The loss is multiplied by a power of two, exactly, and the norm moves with it by another factor, as where it
        is clipped: data never do that.
        """
        before = between(loss, 0, shift.step, shift.segment)[-64:]
        after = between(loss, shift.step, shift.found + 1, shift.segment)
        norms = [between(norm, *part, shift.segment) for part in ((0, shift.step), (shift.step, shift.found + 1))]
        short = len(before) < 24 or len(after) < 4 or min(map(len, norms)) < 8
        if is_policy(history) or short or (before <= 0).any() or (after <= 0).any():
            return
        if answers_changed(history, shift.step, shift.found, shift.segment):
            return
        old, new = float(numpy.median(before[-32:])), float(numpy.median(after))
        ratio = float(numpy.median(norms[1])) / max(float(numpy.median(norms[0][-32:])), 1e-300)
        whole = 2 ** min(64, round(abs(math.log2(new) - math.log2(old))))
        up, size = new > old, max(new / old, old / new)
        noise = [1.4826 * float(numpy.median(numpy.abs(numpy.diff(numpy.log(part))))) for part in (before, after)]
        error = noise[0] * math.sqrt(1 / 32 + 1 / len(after))
        half = len(after) // 2
        drift = abs(math.log(float(numpy.median(after[half:])) / float(numpy.median(after[:half]))))
        exact = abs(size / whole - 1) < max(self.at["exact"], error) and error < 2 * self.at["exact"]
        same_noise = noise[1] < 2 * noise[0] + 1e-3 and noise[0] < 2 * noise[1] + 1e-3
        moved = ratio > 1.5 if up else ratio < 1 / 1.5
        if not (2 <= whole <= 64 and exact and same_noise and moved and drift < max(0.02, 3 * error)):
            return
        evidence = {"factor": new / old, "norm_factor": ratio, "loss": new, "loss_before": old, "error": error}
        yield self._scaled(history, shift, up, whole, True, evidence, "")

    def _scaled(
        self, history: RunHistory, shift: Shift, up: bool, whole: int, sure: bool, evidence: dict[str, Any], norms: str
    ) -> Finding:
        """whole: the number, 0 where several may be it."""
        size = max(evidence["factor"], 1 / evidence["factor"])
        number = f"{whole}" if whole else f"{size:.2g}"
        word = f"{number} times as large" if up else f"1/{number} as large"
        plain = sure and whole and abs(size / whole - 1) < self.at["whole"]
        times = "added, not averaged" if up else "divided twice"
        return self.finding(
            shift.step, f"Loss and gradients are {'' if plain else 'about '}{word} since step {shift.step}: "
            f"the loss went from {evidence['loss_before']:.3g} to {evidence['loss']:.3g}{norms}.",
            kind="exploding" if up else "jump_down", severity="critical" if sure else "warning",
            found=shift.found, segment=shift.segment, evidence=evidence,
            causes=[f"gradient accumulation scaled wrongly: losses of micro-batches are {times}"],
            remedies=[f"{'divide' if up else 'multiply'} the loss by {whole or 'the number of micro-batches'}, once a "
                      "step", *saved_before(history, shift.step)],
            confidence=0.95 if sure else 0.7,
        )  # fmt: skip

    def _say(self, history: RunHistory, shift: Shift) -> Iterator[Finding]:
        loss = history.role("loss")
        if loss is None:
            return
        rows = loss.rows(max(loss.start, loss.end - 8192 - 512))
        here = (rows.segment == shift.segment) & numpy.isfinite(rows.value) & (rows.time <= loss.clock.now)
        before = rows.value[here & (rows.step < shift.step)][-32:]
        after = rows.value[here & (rows.step >= shift.step) & (rows.step <= shift.found)]
        if is_policy(history):
            yield from self._objective(shift, before, after)
            return
        if len(before) < 8 or len(after) < 4 or not ((before > 0).all() and (after > 0).all()):
            return
        logs, half = numpy.log(before), len(after) // 2
        noise = 1.2533 * 1.4826 * float(numpy.median(numpy.abs(logs - numpy.median(logs))))  # of a median, times √n
        old, new = float(numpy.median(before)), float(numpy.median(after))
        drift = abs(math.log(float(numpy.median(after[half:]))) - math.log(float(numpy.median(after[:half]))))
        factor = new / old
        if not (0 < factor < math.inf and 0 < shift.ratio < math.inf):  # 1e300 and 1e-300
            return
        error = 2 * noise * math.sqrt(1 / len(before) + 1 / len(after))
        evidence = {"factor": factor, "norm_factor": shift.ratio, "norm": shift.after, "norm_before": shift.before,
                    "loss": new, "loss_before": old, "error": error}  # fmt: skip
        up = shift.ratio > 1
        size = max(factor, 1 / factor)
        if size == math.inf:
            return
        whole = round(size)
        steady = drift < max(0.06, 2.5 * noise * math.sqrt(2 / half))
        same = abs(math.log(shift.ratio) - math.log(factor)) < 0.25 + min(error, 0.25)
        limit = self.at["whole"] * (1 if whole < 4 else 2)
        sure = abs(size / whole - 1) < limit and error < 2 * limit
        # noise hides which number it is, and not that both have jumped by the same large one
        likely = size > self.at["alone"] and abs(size / whole - 1) < min(error, 0.35)
        likely = likely and _at_once(before, after, old, new)
        sure = sure and not _is_falling(before, old, new)
        other = answers_changed(history, shift.step, shift.found, shift.segment)
        if steady and same and 2 <= whole <= 64 and (sure or likely) and not other:
            norms = f", the gradient norm from {shift.before:.3g} to {shift.after:.3g}"
            number = _only(history, size, max(limit, error))
            yield self._scaled(history, shift, up, number, sure, evidence, norms)
            return
        if max(shift.ratio, 1 / shift.ratio) > self.at["alone"] and size < 1.05:
            yield self.finding(
                shift.step, f"The gradient norm is {shift.ratio:.3g} times what it was from step {shift.step} "
                "on; the loss does not change.",
                severity="info", kind="exploding" if up else "vanishing", found=shift.found, segment=shift.segment,
                evidence=evidence, confidence=0.4,
                causes=["gradient accumulation scaled wrongly", "another batch size or mixture of data"],
            )  # fmt: skip
            return

    def _objective(self, shift: Shift, before: Any, after: Any) -> Iterator[Finding]:
        """A policy's loss hovers about zero: it has no factor, but a level that a term of it shifts."""
        before = before[:-4]  # the noise of the norm may hide the first rows of the shift
        if len(before) < 16 or len(after) < 4 or not shift.ratio > self.at["alone"]:
            return
        old, new = float(numpy.median(before)), float(numpy.median(after))
        spread = 1.4826 * float(numpy.median(numpy.abs(before - old)))
        outside = (after > before.max()) if new > old else (after < before.min())
        if abs(new - old) < 6 * max(spread, 1e-6) or outside.mean() < 0.75:
            return
        yield self.finding(
            shift.step, f"The objective changed at step {shift.step}: the loss went from {old:.3g} to "
            f"{new:.3g}, and the gradient norm from {shift.before:.3g} to {shift.after:.3g}.",
            kind="rl", severity="warning", found=shift.found, segment=shift.segment,
            confidence=0.75,
            evidence={"norm_factor": shift.ratio, "loss": new, "loss_before": old, "spread": spread},
            causes=["reward hacking or KL blow-up: a term of the objective has another sign or weight",
                    "gradient accumulation scaled wrongly", "learning rate too high"],
            remedies=[f"see what changed at step {shift.step}: the KL term's sign and coefficient, the reward's scale"],
        )  # fmt: skip


def _only(history: RunHistory, size: float, within: float) -> int:
    """The whole number that a factor is: the only one so near, or of several the accumulated one, or the only power of
    two; 0 if there is none."""
    near = [number for number in range(2, 65) if abs(size / number - 1) < within]
    accumulated = numeric_setting(history, *ACCUMULATION)
    doubled = [number for number in near if number & (number - 1) == 0]
    for some in (near, [number for number in near if number == accumulated], doubled):
        if len(some) == 1:
            return some[0]
    return 0


def _at_once(before: Any, after: Any, old: float, new: float) -> bool:
    """Whether losses on both sides of a change are already at their levels, by the means of four logarithms each, and
    no eight before were nearer the new one: a factor comes from one row to the next, and what is learnt, or forgotten,
    row by row."""
    rise, logs = math.log(new / old), numpy.log(before)
    eights = numpy.median(numpy.lib.stride_tricks.sliding_window_view(logs, _EIGHT), axis=1)
    if float(((eights - math.log(old)) / rise).max()) > _HALF_WAY:
        return False
    apart = [math.log(old) - float(logs[-4:].mean()), float(numpy.log(after[:4]).mean()) - math.log(new)]
    return all(-one / rise < _ON_ITS_WAY for one in apart)


def _is_falling(before: Any, old: float, new: float) -> bool:
    """Whether a loss was on its way down when its level changed: the four rows before are below the old level by four
    tenths of the change, in ln, and the four before these by a fifth, as where it is learnt how rare a class is."""
    logs = numpy.log(before[-8:])
    way = [float(logs[part].mean()) - math.log(old) for part in (slice(-4, None), slice(-8, -4))]
    fall = math.log(new / old)
    return fall < 0 and way[0] < _FALLEN * fall and way[1] < _ON_ITS_WAY * fall


RULES = (ExplodingGradient, *vanished.RULES, GradientScaleJump)

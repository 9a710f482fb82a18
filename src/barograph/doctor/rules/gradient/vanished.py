"""A gradient norm of next to nothing: decayed, cut off, or exactly zero.

In:   the norm each step, and loss and reward beside it.
Out:  findings of `GradientDecay`, `ZeroGradient`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy

from barograph.core.names import is_vector
from barograph.doctor.kernel.blocks import BlockColumns
from barograph.doctor.kernel.cursor import came_by, known, saved_before, usual
from barograph.doctor.kernel.curve import between
from barograph.doctor.kernel.series import BlockRule, SeriesRule
from barograph.doctor.rules.gradient.norms import is_policy, norm_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class GradientDecay(BlockRule):
    """The norm of the gradient has fallen below a tenth of its initial value, and the loss has not changed.

    The stability guide warns at a tenth of the starting value. A norm that falls while the loss falls is usual,
    so only a loss that is still above 95% of what it began with makes a finding. The start is the median of
    the first 16 rows, now is the median of the last 16, four times in a row. Losses of policies are left out.

    A norm that was steady, within a factor of 4 in eight medians of 16 rows, and is below a thousandth of that no more
    than eight later, for two in a row, has been cut off from the loss, if that stands where it was (within 3%): a
    training that converges comes there by and by.
    """

    name, family, kind, severity = "gradient_decay", "gradient", "vanishing", "warning"
    needs = ("norm|=model/grad_norm", "loss")
    least = 80
    about = "The gradient norm has decayed while the loss does not fall."
    sources = ("stability guide: below 0.1 times the starting value, with a stagnating loss",)
    thresholds: ClassVar = {
        "share": (0.1, "stability guide"),
        "loss": (0.95, "of the first loss; ours"),
        "blocks": (4.0, "in a row; ours"),
        "gone": (1e-3, "of a norm that was steady; ours"),
    }
    causes = ("gradients vanish", "bad initialisation", "learning rate too high", "layer frozen")
    remedies = (
        "look at the gradient norms by layer: where do they vanish?",
        "add residual connections or normalisation, or reduce the depth",
    )

    def reset(self) -> None:
        super().reset()
        self._segment = -1
        self._start = self._loss = math.nan
        self._low: list[int] = []
        self._trail_of = -1
        self._trail: deque[tuple[float, int]] = deque(maxlen=_KEPT)  # the last medians and their first steps
        self._top = 0.0  # the highest median of the segment
        self._said = False

    def channel(self, history: RunHistory) -> Channel | None:
        return norm_of(history)

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        high, same = max(float(new.middle.max()), self._top), self._trail_of == new.segment[0] == new.segment[-1]
        if same and float(new.middle.min()) > self.at["gone"] * high:
            self._trail += zip(new.middle[-_KEPT:].tolist(), new.step[-_KEPT:].tolist(), strict=True)
            self._top = high
        else:
            for at in range(len(new)):
                yield from self._cut_off(history, new, at)
        fresh = new.segment[0] != self._segment or new.segment[-1] != self._segment
        if not fresh and (self._said or not (self._low or (new.middle < self.at["share"] * self._start).any())):
            return
        loss = history.role("loss")
        for at in range(len(new)):
            segment, step, time = int(new.segment[at]), int(new.last_step[at]), int(new.time[at])
            if segment != self._segment:
                self._segment, self._low, self._said = segment, [], False
                self._start = float(new.middle[at])
                self._loss = usual(loss, step, time, segment, 16)
                continue
            if self._said or not new.middle[at] < self.at["share"] * self._start:
                self._low = []
                continue
            self._low.append(int(new.step[at]))
            if len(self._low) < self.at["blocks"] or not self._loss > 0 or is_policy(history):
                continue
            now = usual(loss, step, time, segment, 16)
            if not now > self.at["loss"] * self._loss:
                continue
            self._said = True
            middle = float(new.middle[at])
            yield self.finding(
                self._low[0], f"The gradient norm has fallen from {self._start:.3g} to {middle:.3g}, and "
                "the loss "
                f"is {now:.3g} after {self._loss:.3g}.", found=step, segment=segment,
                evidence={"norm": middle, "norm_at_start": self._start, "loss": now, "loss_at_start": self._loss},
                confidence=0.6,
            )  # fmt: skip

    def _cut_off(self, history: RunHistory, new: BlockColumns, at: int) -> Iterator[Finding]:
        """Whether a steady norm fell to next to nothing within a few blocks, while the loss stands."""
        middle, segment = float(new.middle[at]), int(new.segment[at])
        if self._trail_of != segment:
            self._trail_of, self._top = segment, 0.0
            self._trail.clear()
        self._trail.append((middle, int(new.step[at])))
        self._top = max(self._top, middle)  # NaN is left out
        if len(self._trail) < _STEADY + 2 or not 0 < middle < self.at["gone"] * max(self._trail)[0]:
            return
        levels = [level for level, _ in self._trail]
        for first in range(len(levels) - _STEADY - 1):
            steady = levels[first : first + _STEADY]
            bound = self.at["gone"] * min(steady)
            if max(steady) < _WITHIN * min(steady) and max(levels[-2:]) < bound:
                break
        else:
            return
        began = next(step for level, step in list(self._trail)[first + _STEADY :] if level < 0.5 * min(steady))
        step, time, loss = int(new.last_step[at]), int(new.time[at]), history.role("loss")
        history.as_of(time)
        old = between(loss, 0, began, segment)[-32:]
        now = between(loss, began, step + 1, segment)[-16:]
        stands = len(old) > 8 and len(now) > 8 and loss is not None and not is_policy(history)
        stands = stands and abs(float(numpy.median(now)) / max(float(numpy.median(old)), 1e-300) - 1) < 0.03
        if stands and loss is not None and float(numpy.median(now)) > 0.05 * abs(loss.first) and self.first(segment):
            usual = float(numpy.median(steady))
            yield self.finding(
                began, f"The gradient norm fell from {usual:.3g} to {middle:.3g} since step {began}, and the loss has "
                f"stood at {float(numpy.median(now)):.4g} since.", found=step, segment=segment, key="gone",
                evidence={"norm": middle, "norm_before": usual, "loss": float(numpy.median(now))}, confidence=0.8,
                causes=["layer frozen: the loss no longer depends on what is trained", "gradients vanish",
                        "loss masked out: most labels are ignored"],
                remedies=[f"see what changed at step {began}: what is frozen, detached or masked",
                          "look at the gradient norms by layer: where do they vanish?", *saved_before(history, began)],
            )  # fmt: skip
        history.as_of(None)


_STEADY, _WITHIN = 8, 4.0  # blocks of a norm that is steady, and the factor within which they lie
_KEPT = 2 * _STEADY + 2  # blocks that are looked at
_BLANK = "bad initialisation: all trained matrices begin at 0, and so does each gradient"
_SINGLE = "wrong loss: a softmax over a single class is 1 whatever the model says"
_DEAD = "dead units: the loss depends on the parameters, and no unit passes a gradient on"


class ZeroGradient(SeriesRule):
    """The norm of the gradient is exactly zero.

    Three rows in a row after norms that were not. No batch of real data gives that: labels are all ignored, the loss
    no longer depends on the weights, or the gradients were cleared before the step. In reinforcement learning it
    happens when all rewards of a group are equal, so there it is an info finding; a warning where for eight rows each
    reward is the same and below what was usual. So it is where norms are logged with few digits and were near zero, and
    where the loss is a thousandth of the first, as when all margins are kept. A norm of 0 from the first row on may be
    a placeholder: eight rows count where the watch's own norm (`model/grad_norm`) is 0 too, or
    where it has none and no weight moves; two, where the watch saw that all matrices that are trained are 0. If every
    matrix that is trained is 0 then, the initialisation is the
    cause: each factor's gradient is the other one. A cross-entropy of one class has no gradient either.
    """

    name, family, kind, severity = "zero_gradient", "gradient", "zero", "critical"
    waits = False
    needs = ("norm|=model/grad_norm",)
    least = 2
    about = "The gradient norm is exactly zero."
    sources = ("SageMaker Debugger: AllZero",)
    thresholds: ClassVar = {
        "rows": (3.0, "in a row; ours"),
        "start": (8.0, "in a row from the first on; ours"),
        "blank": (2.0, "where all matrices that are trained are 0; ours"),
        "usual": (0.02, "a usual norm below it may have been rounded; ours"),
        "fitted": (1e-3, "of the first loss: all margins are kept; ours"),
    }

    def reset(self) -> None:
        self._count, self._first, self._segment = 0, (0, 0), -1
        self._positive = 0

    def channel(self, history: RunHistory) -> Channel | None:
        return norm_of(history)

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        zero = rows.value == 0.0
        if not zero.any() and not self._count:
            self._positive += len(rows)
            return
        for at in range(len(rows)) if self._count or zero.any() else ():
            if not zero[at] or rows.segment[at] != self._segment:
                self._segment = int(rows.segment[at])
                self._count = 0
            if not zero[at]:
                self._positive += 1
                continue
            if not self._count:
                self._first = (int(rows.step[at]), int(rows.time[at]))
            self._count += 1
            step, time = int(rows.step[at]), int(rows.time[at])
            if self._count == int(self.at["rows"]) and self._positive:
                yield self._say(history, step, time)
            elif self._count == int(self.at["start"]) and self._positive and self._earns_nothing(history, step, time):
                yield msgspec.structs.replace(self._say(history, step, time), severity="warning", confidence=0.8)
            else:
                yield from self._from_start(history, step, time)

    def end(self, history: RunHistory, channel: Channel) -> Iterator[Finding]:
        """The watch's records of a short run come behind its losses."""
        yield from self._from_start(history, int(channel.rows(channel.end - 1).step[0]), 1 << 62)

    def _from_start(self, history: RunHistory, step: int, time: int) -> Iterator[Finding]:
        long = self._count >= int(self.at["start"]) and not self._positive
        if not self._positive and self.at["blank"] <= self._count:
            long = long or self._all_zero(history, step, time)
        if long and self._is_zero(history, step, time) and self.first(self._segment):
            yield self._never(history, step, time)

    def _all_zero(self, history: RunHistory, step: int, time: int) -> bool:
        """Whether all matrices that are trained were 0 before a step behind the first one, too."""
        share = history.channel("model/zero_share")
        return step > self._first[0] and known(share, step, time, self._segment) == 1

    def _earns_nothing(self, history: RunHistory, step: int, time: int) -> bool:
        """Whether all rewards are the same while the norm is 0, and lower than before: then nothing is solved."""
        history.as_of(time)
        reward = history.role("reward")
        if not is_policy(history) or reward is None or not came_by(reward, time):
            return False
        now = between(reward, self._first[0], step + 1, self._segment)
        then = between(reward, 0, self._first[0], self._segment)
        history.as_of(None)
        return len(now) > 3 and len(then) > 3 and now.min() == now.max() < float(numpy.median(then))

    def _is_zero(self, history: RunHistory, step: int, time: int) -> bool:
        own = known(history.channel("model/grad_norm"), step, time, self._segment)
        # where no parameter has a gradient there is no norm of them, and no weight moves
        return own == 0 or (own != own and known(history.channel("model/update_p50"), step, time, self._segment) == 0)

    def _never(self, history: RunHistory, step: int, time: int) -> Finding:
        first = [channel.first for name, channel in history.layers("updates", "weight_norm").items()
                 if not is_vector(name) and came_by(channel, time)]  # fmt: skip
        norm = history.channel("model/param_norm")
        blank = (
            self._all_zero(history, step, time)
            or (bool(first) and not any(first))
            or (norm is not None and came_by(norm, time) and norm.first == 0)
        )
        dead = known(history.channel("model/grad_norm"), step, time, self._segment) == 0
        dead = dead and came_by(history.channel("model/trained_parameters"), time)  # the watch saw gradients
        single = known(history.channel("model/loss_classes"), step, time, self._segment) == 1
        cause = (
            _BLANK
            if blank
            else _SINGLE
            if single
            else _DEAD
            if dead
            else "layer frozen: the loss does not depend on what is trained"
        )
        return self.finding(
            self._first[0], f"The gradient norm is exactly 0 since the first step, {self._first[0]}"
            + (": all matrices that are trained are 0." if blank else "."),
            severity="info" if is_policy(history) else "critical", found=step, segment=self._segment, key="start",
            causes=[cause] if blank else [cause, "loss masked out: all labels are ignored"], confidence=0.95,
            remedies=["begin one factor of each pair at random, as LoRA does with A"] if blank else
            ["give the output a column for each class, or take `binary_cross_entropy_with_logits`"] if single else
            ["check that the loss depends on the parameters that the optimizer holds", "count the labels of a batch"],
        )  # fmt: skip

    def _say(self, history: RunHistory, step: int, time: int) -> Finding:
        began = self._first[0]
        norm = norm_of(history)
        before = usual(norm, began - 1, time, self._segment, 64) if norm is not None else math.nan
        losses = history.role("loss")
        loss = known(losses, step, time, self._segment)
        rounded = not before > self.at["usual"]
        least = max(1e-6, self.at["fitted"] * abs(losses.first)) if losses is not None else 0.0
        severity = "info" if is_policy(history) or rounded or (loss == loss and abs(loss) < least) else "critical"
        causes = ["loss masked out: all labels are ignored", "optimizer holds other parameters", "layer frozen"]
        if is_policy(history):
            causes = ["reward hacking or KL blow-up: all rewards of a group are equal, so the advantage is zero"]
        return self.finding(
            began, f"The gradient norm is exactly 0 since step {began}; before it was {before:.3g}.",
            severity=severity,
            found=step, segment=self._segment, evidence={"usual": before, "loss": loss}, causes=causes,
            remedies=["count the labels of a batch that are not ignored", "check that the loss depends on the weights",
                      *saved_before(history, began)], confidence=0.9 if severity == "critical" else 0.4,
        )  # fmt: skip


RULES = (GradientDecay, ZeroGradient)

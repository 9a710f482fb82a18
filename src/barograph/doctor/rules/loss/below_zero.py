"""Losses that go below zero, where ratios and logarithms say nothing.

In:   the series of the loss, and beside it the evaluation's.
Out:  findings of `RiseBelowZero`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.blocks import BlockColumns, SteppedCourse
from barograph.doctor.kernel.curve import again, evaluation_holds, is_game, rounded
from barograph.doctor.kernel.local import median
from barograph.doctor.kernel.opposed import opposes_sets
from barograph.doctor.kernel.series import BlockRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class RiseBelowZero(BlockRule):
    """A loss that goes below zero, such as a log-likelihood of densities, rises and does not come back.

    Medians of 16 rows, merged into at most 64 over the whole run: an eighth of them, three at least, behind the lowest
    one lie above it by a quarter of what the loss had fallen since the start (a warning) or by half (critical), and by
    six standard deviations of these medians around their course. Where the validation loss did not rise with it, or the
    loss comes down again, it is an info finding. Losses that stay above zero are judged by their logarithm, in
    `divergence`.
    A mean of a layer's outputs less another one of the same layer, as of an energy or a critic, says how far two sets
    of examples are apart: it comes back to 0 where one becomes like the other. So the graph says of it
    (`model/loss_opposed`), or two logged series of one name but for the set, as `energy_pos` and `energy_neg`, of which
    the loss is the difference, or has it as a part.
    """

    name, family, kind, severity = "negative_divergence", "loss", "divergence", "critical"
    needs = ("loss",)
    least = 160
    about = "A loss below zero rises and does not come back."
    thresholds: ClassVar = {
        "share": (0.25, "of the decrease so far, as in divergence; ours"),
        "critical_share": (0.5, "of the decrease so far, as in divergence; ours"),
        "deviations": (6.0, "of single medians; ours"),
    }
    causes = ("learning rate too high: the updates overshoot", "bad batch: different data since this step")

    def reset(self) -> None:
        super().reset()
        self._course = SteppedCourse()
        self._below = False
        self._told: Finding | None = None

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss")

    def look(self, history: RunHistory, new: BlockColumns) -> Iterator[Finding]:
        same = bool((new.segment == self._course.segment).all())
        if same and not self._below and bool((new.middle > 0).all()):  # most losses never come there
            self._course.add_all(new.middle.tolist(), new.step.tolist())
            return
        for at in range(len(new)):
            if new.segment[at] != self._course.segment:
                self._course.begin(int(new.segment[at]))
                self._told = None
            middle = float(new.middle[at])
            self._below = self._below or middle <= 0
            if self._course.add(middle, int(new.step[at])) and self._below and len(self._course.values) >= 10:
                history.as_of(int(new.time[at]))
                yield from self._judge(history, int(new.last_step[at]), int(new.segment[at]))
                history.as_of(None)

    def _judge(self, history: RunHistory, found: int, segment: int) -> Iterator[Finding]:
        values, channel = self._course.values, history.role("loss")
        best = values.index(min(values))
        low, start = values[best], median(values[:2])
        gain, last = start - low, values[best + 1 :][-max(3, len(values) // 8) :]
        apart = [abs(b - (a + c) / 2) for a, b, c in zip(values[:-2], values[1:-1], values[2:], strict=True)]
        noise = 1.4826 * median(apart) / 1.5**0.5
        bound = max(self.at["share"] * gain, self.at["deviations"] * noise)
        if len(last) < max(3, len(values) // 8) or min(last) < low + bound or channel is None:
            told = self._told
            if told is not None and told.severity != "info" and values[-1] < low + 0.5 * bound:
                told.severity, self._told = "info", None
                told.message += f"; it had recovered by step {found}"
                yield again(told)
            return
        if is_game(history, channel) or opposes_sets(history, channel):
            return
        now, share = median(last), (median(last) - low) / max(gain, 1e-300)
        near = [place for place in range(best, len(values)) if values[place] < low + 0.4 * (now - low)]
        step = self._told.step if self._told is not None else self._course.step(min(near[-1] + 1, len(values) - 1))
        excuse = evaluation_holds(history, step, found, segment)
        severity = "info" if excuse else "critical" if share >= self.at["critical_share"] else "warning"
        if self._told is not None and (severity == self._told.severity or (share < 1 and not excuse)):
            self._told.last_step = found
            if severity == self._told.severity or self._told.severity == "critical":
                return
        message = f"The loss has been rising since step {step}: from {low:.4g} to {now:.4g} at step {found}"
        self._told = self.finding(
            step, message + ("; the validation loss did not rise with it" if excuse else ""), severity=severity,
            last_step=found, found=self._told.found if self._told is not None else found, segment=segment,
            confidence={"critical": 0.9, "warning": 0.75, "info": 0.4}[severity],
            evidence={"best": rounded(low), "loss": rounded(now), "start": rounded(start),
                      "lost_share": rounded(share, 3), "deviation": rounded(noise, 3)},
            remedies=[f"Go back to before step {step}; lower the learning rate, or clip gradients."],
        )  # fmt: skip
        yield again(self._told)


RULES = (RiseBelowZero,)

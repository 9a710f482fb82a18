"""What the losses behind a resume say together, where no few of them stand out.

In:   the series of the loss and of the learning rate, where a new segment begins.
Out:  findings of `ResumeRaised`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import exp, saved_before
from barograph.doctor.kernel.curve import before, between, rounded
from barograph.doctor.rules.run.resume import Border, Borders, ResumeDiscontinuity

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_TOGETHER = 8  # rows
_RATE = 0.05  # of the learning rate before the resume


class ResumeRaised(Borders):
    """The first losses behind a resume are above the level before, all together, at the same learning rate.

    Where losses vary much from row to row, a jump that no few rows show is seen in the mean of eight. That of the first
    eight behind the resume, without the highest of them, is above the level before by 16% or more, and by 1.8 times as
    much as the mean of any eight in a row of the 64 before (32 at least) was above the line through these. That level
    is the mean of the last sixteen, or that line at the resume, whichever is higher. It is three standard errors of two
    such means or more, by how far rows before were from the line. The logged learning rate goes on
    where it was, within 5%, and does not rise in the next rows, and the old segment logged none of these steps. Where
    losses came in waves, each near the one before (a correlation above 0.2), nothing is said, and where
    `resume_discontinuity` says it by a few rows, nothing is added.

    What to do: compare what is loaded with what was saved, by the loss of one batch before and behind it: weights, a
    base or a reference beside them, buffers, the optimizer's state.
    """

    name, kind, severity = "resume_raised", "resume", "warning"
    needs: ClassVar[tuple[str, ...]] = ("loss", "lr")
    about = "The loss is higher behind a resume, though no few rows stand out."
    thresholds: ClassVar = {
        "leap": (0.15, "in ln: 16%; ours"),
        "times": (1.8, "the farthest mean of eight before; ours"),
        "errors": (3.0, "standard errors of the difference; ours"),
        "waves": (0.2, "correlation of each loss with the next, beside their line, at most; ours"),
        "before": (32.0, "rows, at least; ours"),
    }
    causes = ("state lost at the resume: what goes on is not what was saved, as its weights, a base, a reference",)
    remedies = ("compare the loss of one batch where the checkpoint is saved and where it is loaded",)
    _rows = 16

    def over(self, history: RunHistory, border: Border) -> Iterator[Finding]:
        old, new = border.old, sorted(border.new[:_TOGETHER])[:-1]
        if len(old) < self.at["before"] or len(border.new) < self._rows or border.same:
            return
        least = border.least(*(ResumeDiscontinuity.thresholds[name][0] for name in ("leap", "spreads")))
        if any(border.leap(count) > least for count in range(3, len(border.new) + 1)):
            return
        slope, rest = numpy.polyfit(numpy.arange(len(old)), old, 1)
        away = old - slope * numpy.arange(len(old)) - rest
        if float(away[1:] @ away[:-1]) > self.at["waves"] * float(away @ away):
            return
        farthest = float(numpy.convolve(away, numpy.full(_TOGETHER, 1 / _TOGETHER), "valid").max())
        level = max(float(old[-2 * _TOGETHER :].mean()), float(slope * len(old) + rest))
        leap = float(numpy.mean(new)) - level
        error = float(away.std(ddof=2)) * math.sqrt(1 / len(new) + 1 / (2 * _TOGETHER))
        least = max(self.at["leap"], self.at["times"] * farthest, self.at["errors"] * error)
        if leap >= least and self._is_at_rate(history, border):
            yield self.finding(
                border.step, f"After the resume at step {border.step} the first losses have a mean of "
                f"{exp(level + leap):.4g}; the level was {exp(level):.4g}, and no eight before were that far above.",
                found=border.steps[-1], segment=border.segment, confidence=0.85,
                evidence={"leap": rounded(leap, 3), "farthest": rounded(farthest, 3)},
                remedies=[*self.remedies, *saved_before(history, border.step)],
            )  # fmt: skip

    def _is_at_rate(self, history: RunHistory, border: Border) -> bool:
        """Whether the logged learning rate goes on where it was, and does not rise."""
        rate = history.role("lr")
        last, now = (
            before(rate, border.step, border.segment - 1),
            between(rate, border.step, border.step + _TOGETHER, border.segment),
        )
        return bool(last > 0 and len(now) and abs(now[0] / last - 1) < _RATE and now.max() <= (1 + _RATE) * last)


RULES = (ResumeRaised,)

"""Evaluations without a loss of the training, as programs that grow trees print them, which never change.

In:   evaluation losses and scores of a run that logs no loss of its training.
Out:  findings of `EvaluationsStill`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.rule import Rule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_AREA = expression(r"(?i)(?:.*[^a-z])?au(?:ro)?c(?:[^a-z].*)?")
_PERFECT, _LITTLE = 0.999, 1e-3  # a score of what is solved; a loss of it
_ANY = 0.001  # an accuracy of more than nothing
_DIGITS = 4  # of a number that is not the same because it was rounded


class EvaluationsStill(Rule):
    """A run that logs evaluations and no loss of its training is over, and the evaluations never changed.

    Ten or more rows, all there are, have the same loss, or the same score, to the last of four digits or more; or five
    have an area under the curve of exactly a half, as where every example gets the same answer. So it is where no tree
    of a boosting finds a split: rounds add nothing. An accuracy below a half that is the same in ten rows counts too. A
    loss below 0.001, a score of 0.999 or more, and a score of 0 say nothing.

    What to do: look for what forbids splits, and at the labels.
    """

    name, family, kind, severity = "evaluations_still", "eval", "frozen", "warning"
    needs = ("eval_loss|score|eval_accuracy",)
    least = 5
    about = "Evaluations never change, and no training loss is logged."
    thresholds: ClassVar = {
        "rows": (10.0, "ours"),
        "halves": (5.0, "areas under the curve of exactly a half; ours"),
    }
    causes = (
        "no split is found: too few examples a leaf are left by the settings, or a gain is asked for that none has",
        "labels constant: one class alone, or inputs that are the same for all examples",
        "one class alone: each example is given the same answer",
    )
    remedies = (
        "lower the least number of examples or the least weight of a leaf, and the least gain of a split",
        "count the labels, and the different values of each input",
        "end the training where rounds add nothing: early stopping by this evaluation",
    )

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        if not history.facts.get("finished") or any(history.role(name) for name in ("loss", "reward", "accuracy")):
            return
        for channel in (history.role("eval_loss"), history.role("score"), history.role("eval_accuracy")):
            if channel is None or channel.start or not self._is_still(channel):
                continue
            if (channel is not history.role("eval_accuracy") or _below_half(channel)) and self.first():
                rows = channel.rows()
                value, count = float(rows.value[0]), len(rows)
                yield self.finding(
                    int(rows.step[0]), f"{channel.name} is {value:.6g} in each of {count} rows.",
                    found=int(rows.step[-1]), segment=int(rows.segment[-1]), confidence=0.85,
                    evidence={"value": value, "rows": count},
                )  # fmt: skip

    def _is_still(self, channel: Channel) -> bool:
        """Whether all rows have one value that says something."""
        rows = channel.rows()
        if len(rows) < self.at["halves"] or not numpy.isfinite(rows.value).all() or len({*rows.segment}) > 1:
            return False
        value = float(rows.value[0])
        if (rows.value != value).any():
            return False
        if _AREA.fullmatch(channel.name) and value == 0.5:
            return True
        exact = len(f"{value:.10g}".replace(".", "").lstrip("-0")) >= _DIGITS
        solved = _PERFECT <= value <= 1 if "loss" not in channel.name.lower() else False
        return len(rows) >= self.at["rows"] and exact and abs(value) >= _LITTLE and not solved


def _below_half(channel: Channel) -> bool:
    """Whether an accuracy that never changes is above zero and below a half: what is fitted has answered more."""
    value = float(channel.rows().value[0])
    return _ANY < (value / 100 if value > 1 else value) < 0.5


RULES = (EvaluationsStill,)

"""Evaluation losses that are not finite.

In:   the series of the evaluation loss, and of the accuracy beside it.
Out:  findings of `EvaluationNonFinite`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barograph.doctor.kernel.curve import again, before, rounded
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_ALL_HIDDEN = "attention mask inverted: all of a row without padding is hidden, which is NaN in evaluation mode alone"


class EvaluationNonFinite(Walker):
    """An evaluation loss that is NaN or infinite.

    Empty evaluation batches give such a loss, as do weights that are. So does an attention mask that hides all of a
    row, of torch's own layers in evaluation mode alone: where evaluations were NaN from the first one on, and the
    training's loss is finite, that is a cause, too, and the first one where an accuracy of theirs is above 0, which
    has labels. A warning since the first of at least two, or of one that was the last; one between finite ones, or
    before the first training step, is an info finding. A column that is NaN most of the time, or again and again,
    is one that is not logged at each row: then only a stretch four times as long as any before counts.
    """

    name, kind, severity = "evaluation_non_finite", "nonfinite", "warning"
    about = "The evaluation loss is NaN or infinite."
    causes = (
        "loss masked out: evaluation batches without labels",
        "fp16 overflow: in the evaluation",
        "overflow in a layer",
    )
    remedies = ("Look for evaluation batches without a label, and run the evaluation in full precision.",)

    def begin(self) -> None:
        self._told: Finding | None = None
        self._lasting: Finding | None = None  # one that healed and is a warning
        self._first: EvaluationPoint | None = None  # of the stretch that is open
        self._finite = self._rows = self._longest = self._healed = 0

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if math.isfinite(point.value):
            yield from self._heal(point)
            self._finite += 1
            return
        self._first = self._first or point
        self._rows += 1
        if self._told is not None:
            self._told.evidence["rows"] = self._rows
            self._told.last_step = point.step
            yield again(self._told)
            return
        if self._healed and self._rows <= 4 * self._longest:
            return
        first = self._first
        self._told = self.finding(
            first.step,
            f"The evaluation loss is {'NaN' if math.isnan(first.value) else 'infinite'} at step {first.step}",
            found=point.step,
            segment=first.segment,
            evidence={"rows": self._rows, "train": rounded(first.train)},
            causes=self._causes(history, first),
            confidence=0.8,
        )
        yield again(self._told)

    def _causes(self, history: RunHistory, first: EvaluationPoint) -> list[str]:
        if self._finite or not (math.isnan(first.value) and math.isfinite(first.train)):
            return list(self.causes)
        accuracy = history.role("eval_accuracy")
        answers = before(accuracy, first.step + 1, first.segment) > 0  # some are right: there are labels
        return [_ALL_HIDDEN, *self.causes] if answers else [self.causes[0], _ALL_HIDDEN, *self.causes[1:]]

    def _heal(self, point: EvaluationPoint) -> Iterator[Finding]:
        if self._first is None:
            return
        self._healed, self._longest = self._healed + 1, max(self._longest, self._rows)
        if self._told is not None:
            sparse = self._finite < self._rows or self._healed > 1
            self._told.severity = "info" if self._rows < 3 or sparse else "warning"
            self._told.message += f", and is finite again at step {point.step}"
            yield again(self._told)
            self._lasting = self._told if self._told.severity == "warning" else None
        elif self._lasting is not None:
            self._lasting.severity = "info"
            yield again(self._lasting)
            self._lasting = None
        self._told = self._first = None
        self._rows = 0

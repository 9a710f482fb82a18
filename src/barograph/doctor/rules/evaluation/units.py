"""An evaluation that is measured in another unit than the training.

In:   evaluation and training losses, the number of classes.
Out:  findings of `EvaluationSummed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding


class EvaluationSummed(Walker):
    """The evaluation loss is a multiple of the training loss: a sum over batches, or divided by too little.

    The first evaluation is above the loss of a guess, though the training is below it; and in four evaluations or more
    it goes the way of the training loss, at 1.8 times it or more: their ratio changes by less than 7%, or, where the
    training loss falls far, by less than the power 0.4 of its fall. A model that is bad at what it is asked does not
    get better at it in the same proportion.

    What to do: divide the sum by the number of targets, or of batches where batches are averaged.
    """

    name, kind, severity = "evaluation_summed", "config", "warning"
    needs: ClassVar[tuple[str, ...]] = ("eval_loss", "loss", "vocabulary|=model/loss_classes")
    least = 4
    about = "The evaluation loss is a multiple of the training loss."
    thresholds: ClassVar = {
        "evaluations": (4.0, "ours"),
        "times": (1.8, "the training loss; ours"),
        "steady": (0.07, "of the ratio, in ln; ours"),
        "power": (0.4, "of the training's fall; ours"),
        "fall": (0.1, "of the training loss, in ln; ours"),
        "guess": (1.1, "times the loss of a guess; ours"),
    }
    causes = ("evaluation loss summed: it is not divided by what it is added up over",)
    remedies = ("divide the sum by the number of targets, or of batches where batches are averaged",)

    def begin(self) -> None:
        self._points: list[EvaluationPoint] = []

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        if not (0 < point.value < math.inf and 0 < point.train < math.inf):
            return
        self._points = [*self._points[:1], *self._points[1:][-14:], point]
        loss, guess = history.role("loss"), _guess(history, point)
        if len(self._points) < self.at["evaluations"] or loss is None or is_game(history, loss):
            return
        first = self._points[0]
        ratios = [math.log(one.value / one.train) for one in self._points]
        trains = [math.log(one.train) for one in self._points]
        fall = trains[0] - trains[-1]
        above = first.value > self.at["guess"] * guess and point.train < guess
        if not above or fall < self.at["fall"] or min(ratios) < math.log(self.at["times"]):
            return
        if max(ratios) - min(ratios) < max(self.at["steady"], self.at["power"] * fall) and self.first(point.segment):
            times = math.exp(sorted(ratios)[len(ratios) // 2])
            yield self.finding(
                0, f"The evaluation loss is {times:.3g} times the training loss in each of {len(self._points)} "
                f"evaluations, and falls with it: {first.value:.4g} at the first, where a guess has {guess:.4g}.",
                found=point.step, segment=point.segment, confidence=0.97,
                evidence={"times": rounded(times), "standing": True},
            )  # fmt: skip


def _guess(history: RunHistory, point: EvaluationPoint) -> float:
    """The loss of a guess; NaN where the classes are not known by then."""
    classes = history.channel("model/loss_classes")
    if classes is not None and classes.end and classes.began[0] <= point.step and classes.first > 1:
        return math.log(classes.first)
    count = history.facts.get("vocabulary")
    return math.log(count) if count and count > 1 else math.nan


RULES = (EvaluationSummed,)

"""An evaluation whose labels are smoothed, though the training's are not.

In:   the label smoothing of the training's cross-entropy, by its graph, and of those that an evaluation calls.
Out:  findings of `SmoothedEvaluation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SmoothedEvaluation(WatchRule):
    """The evaluation smooths the labels of its cross-entropy, and the training does not.

    The watch has heard `cross_entropy` called with a `label_smoothing` behind passes of two evaluations
    (`model/evaluated_smoothing`), and in all looks the graph of the training's loss has none (`model/label_smoothing`
    is 0). A smoothed loss is above the other the surer the model is: beside the training's it looks like overfitting.

    What to do: evaluate with the plain cross-entropy.
    """

    name, family, kind, severity = "smoothed_evaluation", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_smoothing"
    needs = ("=model/evaluated_smoothing", "=model/label_smoothing")
    least = 2
    about = "The evaluation's labels are smoothed, and the training's are not."
    thresholds: ClassVar = {"evaluations": (2.0, "in a row; ours")}
    causes = ("losses differ: the evaluation smooths its labels, and the training does not",)
    remedies = ("evaluate with the plain cross-entropy, without `label_smoothing`",)

    def begin(self) -> None:
        self._began = -1
        self._seen = 0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        training = history.channel("model/label_smoothing")
        if training is None or not value > 0:
            return
        rows = training.rows()
        values = rows.value[(rows.segment == place[2]) & (rows.time <= place[1])]
        if not len(values) or (values != 0).any():
            return
        self._began = place[0] if not self._seen else self._began
        self._seen += 1
        if self._seen >= self.at["evaluations"] and self.first(place[2]):
            yield self.finding(
                self._began, f"The evaluation's cross-entropy smooths labels by {value:.3g}, and the training's does "
                "not: the two losses are of different targets.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"smoothing": value, "standing": True},
            )  # fmt: skip


RULES = (SmoothedEvaluation,)

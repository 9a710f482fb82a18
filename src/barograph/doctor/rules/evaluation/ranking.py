"""Evaluations that order examples: is the order the wrong way round, or right for the training's examples alone?

In:   the area under a curve, or the accuracy of pairs, that an evaluation logs; the training's beside it.
Out:  findings of `RankingReversed`, `RankingByHeart`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.heldout import HELD_OUT
from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, named, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

AREA = expression(r"(?i)(?:.*[/_. ])?(?:roc_?)?auc(?:_?roc)?|(?:.*[/_. ])?auroc(?:[/_. ].*)?")
_NAME = r"(?:[^a-z].*)?[^a-z](?:roc_?)?auc(?:_?roc)?"
_OF_TRAINING = expression(rf"(?i)(?:.*[^a-z])?d?train(?:ing)?{_NAME}")
_OF_EVALUATION = expression(rf"(?i)(?:.*[^a-z])?{HELD_OUT}{_NAME}")
_PERCENT = 1.5  # an accuracy above it is in percent
_EXCHANGED = "labels shifted: chosen and rejected, or the labels 0 and 1, are exchanged since then"
_SINCE = "look at the data behind step {}: the order of a pair, or which label is 1, has changed"


class RankingReversed(WatchRule):
    """The evaluation's order is the wrong way round: its area under the curve is far below a half.

    A half is that of a guess, and so is an accuracy of a half where the loss is of pairs of scores, as its graph shows
    (the logarithm of a sigmoid of their difference). Three evaluations in a row have an area below 0.4, and the last is
    not above the first of them, while the training loss has fallen by a tenth since the start: what is learnt is the
    opposite. Where an earlier evaluation was above 0.6 it was learnt the right way round: the sign is right, and what
    the training is given has changed since.

    What to do: the positive example's score minus the negative's in the loss; the label's 1 for what should be above.
    """

    name, family, kind, severity = "ranking_reversed", "eval", "config", "warning"
    needs = ("loss",)
    least = 3
    about = "The evaluation's order is the wrong way round."
    thresholds: ClassVar = {
        "area": (0.4, "a half is a guess's; ours"),
        "right": (0.6, "of an earlier evaluation; ours"),
        "looks": (3.0, "evaluations in a row; ours"),
        "fell": (0.9, "of the first training loss; ours"),
    }
    causes = ("sign reversed: what should be above is trained to be below",)
    remedies = ("in the loss of a pair: score of the positive minus that of the negative; 1 is the positive's label",)

    def channel(self, history: RunHistory) -> Channel | None:
        area = named(history, AREA)
        if area is None and (ranks := history.channel("model/loss_ranks")) is not None and ranks.first == 1:
            area = history.role("eval_accuracy")
        return area

    def begin(self) -> None:
        self._values: list[float] = []
        self._right: int | None = None  # step of the last evaluation in which the order was right

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._values = [*self._values[1 - int(self.at["looks"]) :], value]
        if value >= self.at["right"]:
            self._right = place[0]
        low = len(self._values) >= self.at["looks"] and max(self._values) < self.at["area"]
        area, loss = self.channel(history), history.role("loss")
        if not low or area is None or loss is None or not 0 <= value <= self._values[0] or loss.first <= 0:
            return
        now = usual(loss, place[0] - 1, *place[1:], 16)
        if now <= self.at["fell"] * loss.first and self.first(place[2]):
            right = self._right is not None
            yield self.finding(
                self._right or 0, f"`{area.name}` is {value:.3g} at step {place[0]}, where a guess has 0.5, and the "
                f"training loss fell from {loss.first:.4g} to {now:.4g}: the order is the wrong way round"
                f"{f', and was right until step {self._right}' if right else ''}.",
                found=place[0], segment=place[2], confidence=0.95, evidence={"area": rounded(value), "standing": True},
                causes=[_EXCHANGED if right else self.causes[0]],
                remedies=[_SINCE.format(self._right) if right else self.remedies[0]],
            )  # fmt: skip


class RankingByHeart(WatchRule):
    """The training's examples are in order, and the evaluation's are as a guess orders them.

    Two areas under a curve are logged, one of the training and one of other data, as boosting programs print them.
    Five rows in a row the training's is 0.95 or more and the other one 0.6 or less (a half is a guess's), and has not
    risen by more than 0.02 since the first of these rows. An area of 0.6 may be all that the inputs tell: what lies
    between the two is learnt by heart anyway. So it is with accuracies, where no loss is evaluated: 0.9 or more of the
    training's examples are right, and 0.55 or less of the others.

    What to do: fewer leaves, more examples a leaf, fewer rounds; compare both data sets' inputs and labels.
    """

    name, family, kind, severity = "ranking_by_heart", "eval", "overfit", "warning"
    needs = ("score|eval_accuracy",)
    least = 5
    about = "The training's examples are in order, or right; the evaluation's are not."
    thresholds: ClassVar = {
        "right": (0.95, "the training's area; ours"),
        "area": (0.6, "the evaluation's, a half is a guess's; ours"),
        "fitted": (0.9, "the training's accuracy; ours"),
        "accuracy": (0.55, "the evaluation's; ours"),
        "risen": (0.02, "between the first and the last of them; ours"),
        "rows": (5.0, "in a row; ours"),
    }
    causes = (
        "overfitting: the examples are memorized",
        "evaluation data differ: other inputs or labels than the training's, or not prepared as those",
        "labels shuffled: inputs and labels of one of the two don't belong together",
    )
    remedies = (
        "fewer leaves or a smaller depth, more examples a leaf, more regularisation; stop where the evaluation is best",
        "compare ten examples of the training with ten of the evaluation: inputs, labels, preparation",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        area = named(history, _OF_EVALUATION)
        bare = area is None and history.role("eval_loss") is None
        return history.role("eval_accuracy") if bare else area

    def begin(self) -> None:
        self._areas: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ranks = named(history, _OF_EVALUATION) is not None
        trained = known(named(history, _OF_TRAINING) if ranks else history.role("accuracy"), *place)
        if not ranks and trained > _PERCENT:
            trained, value = trained / 100, value / 100
        right, most = ("right", "area") if ranks else ("fitted", "accuracy")
        if not (self.at[right] <= trained <= 1 and 0 <= value <= self.at[most]):
            self._areas = []
            return
        self._areas.append((place[0], value))
        first = self._areas[-int(self.at["rows"]) :][0]
        enough = len(self._areas) >= self.at["rows"] and value - first[1] <= self.at["risen"]
        if enough and self.first(place[2]):
            what = "area under the curve" if ranks else "accuracy"
            guess = ", where a guess has 0.5" if ranks else ""
            yield self.finding(
                first[0], f"The {what} is {trained:.3g} for the training's examples and {value:.3g} for the "
                f"evaluation's{guess}.", found=place[0], segment=place[2], confidence=0.85 if ranks else 0.7,
                evidence={"trained": rounded(trained), "evaluated": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (RankingReversed, RankingByHeart)

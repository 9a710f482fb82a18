"""Answers that are right for the training's examples alone, as the two accuracies say where no model is watched.

In:   the accuracies of the training and of the evaluation, called alike, and both losses.
Out:  findings of `LearntByHeart`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import answers
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_WORD = re.compile(r"[a-z]+(?:@?\d+)?$")


class LearntByHeart(WatchRule):
    """Nearly all answers are right for the training's examples, and half as many or fewer for the evaluation's.

    Five evaluations in a row: the training's accuracy is 0.85 or more, the evaluation's is half of it or less and has
    not risen by 0.05 since the first of them, and its loss is half as large again as the training's, or more. Both are
    called by the same word (`acc` and `val_acc`), so that they count the same. Where a model is watched its examples
    say more, and other rules judge them; where a reward is logged, nothing is said.

    What to do: compare a batch of both, inputs and labels; then more data, augmentation, or a smaller model.
    """

    name, family, kind, severity = "learnt_by_heart", "eval", "overfit", "warning"
    proves = "evaluation"
    needs = ("eval_accuracy", "accuracy|=accuracy|=acc", "loss", "eval_loss")
    least = 5
    about = "Answers are right for the training's examples alone."
    thresholds: ClassVar = {
        "right": (0.85, "of the training's answers; ours"),
        "part": (0.5, "of that, the evaluation's; ours"),
        "risen": (0.05, "between the first and the last of them; ours"),
        "worse": (1.5, "evaluation over training loss; ours"),
        "evaluations": (5.0, "in a row; ours"),
    }
    causes = (
        "overfitting: the examples are memorized",
        "evaluation data differ: other inputs or labels than the training's, or not prepared as those",
        "evaluation mode left on: or batch norm's statistics are stale",
    )
    remedies = (
        "compare a batch of the training with one of the evaluation: inputs, labels, preparation",
        "more data or augmentation, more dropout or weight decay, or a smaller model",
    )

    def channel(self, history: RunHistory) -> Channel | None:
        watched = history.channel("model/example_rows") is not None or history.channel("model/passes") is not None
        return None if watched or history.role("reward") is not None else history.role("eval_accuracy")

    def begin(self) -> None:
        self._rights: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, theirs = answers(history), history.role("eval_accuracy")
        if ours is None or theirs is None or ours is theirs or _word(ours.name) != _word(theirs.name):
            return
        trained, loss = known(ours, *place), usual(history.role("loss"), *place, 8)
        percent = 100.0 if max(trained, value) > 1 else 1.0
        trained, right = trained / percent, value / percent
        worse = known(history.role("eval_loss"), *place) >= self.at["worse"] * loss
        if not (self.at["right"] <= trained <= 1 and right <= self.at["part"] * trained and worse):
            self._rights = []
            return
        self._rights.append((place[0], right))
        last = self._rights[-int(self.at["evaluations"]) :]
        enough = len(last) >= self.at["evaluations"] and right - last[0][1] < self.at["risen"]
        if enough and self.first(place[2]):
            yield self.finding(
                last[0][0], f"{trained:.1%} of the answers are right in the training, and {right:.1%} in the "
                f"evaluation, which has been no better for {len(last)} times.", found=place[0], segment=place[2],
                confidence=0.85, evidence={"trained": trained, "evaluated": right},
            )  # fmt: skip


def _word(name: str) -> str:
    found = _WORD.search(name.lower())
    return {"accuracy": "acc"}.get(found[0], found[0]) if found else name


RULES = (LearntByHeart,)

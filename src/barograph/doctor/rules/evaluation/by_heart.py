"""Answers that are right for the training's examples alone, as the two accuracies say where no model is watched.

In:   the accuracies of the training and of the evaluation, called alike, and both losses.
Out:  findings of `LearntByHeart`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import known, usual
from barograph.doctor.kernel.curve import answers
from barograph.doctor.kernel.local import median
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_MANY, _BETTER = 8, 0.9  # evaluations; times the loss at the best of them
_WORD = expression(r"[a-z]+(?:@?\d+)?$")


class LearntByHeart(WatchRule):
    """Nearly all answers are right for the training's examples, and half as many or fewer for the evaluation's.

    Five evaluations in a row: the training's accuracy is 0.85 or more, the evaluation's is half of it or less and has
    not risen by 0.05 since the first of them, and its loss is half as large again as the training's, or more. Both are
    called by the same word (`acc` and `val_acc`), so that they count the same.

    So is it where the evaluation's accuracy was better: of eight evaluations or more none of the last three comes
    within 0.05 of the best, the median of three in a row, nor within four deviations of the change from one to the
    next, while 0.95 or more of the training's answers are right, more than at the best, and the evaluation's loss is
    not a tenth below what it was there. Where a model is watched its examples
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
        "known": (0.95, "of the training's answers, where the evaluation's were better before; ours"),
        "lost": (0.05, "of the evaluation's answers; ours"),
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
        self._all: list[tuple[int, float, float, float]] = []  # step; right answers of both; the evaluation's loss

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ours, theirs = answers(history), history.role("eval_accuracy")
        if ours is None or theirs is None or ours is theirs or _word(ours.name) != _word(theirs.name):
            return
        trained, loss = known(ours, *place), usual(history.role("loss"), *place, 8)
        percent = 100.0 if max(trained, value) > 1 else 1.0
        trained, right = trained / percent, value / percent
        evaluated = known(history.role("eval_loss"), *place)
        worse = evaluated >= self.at["worse"] * loss
        self._all.append((place[0], right, trained, evaluated))
        yield from self._lost(place)
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

    def _lost(self, place: Place) -> Iterator[Finding]:
        """What held for others before the training's examples were known."""
        if len(self._all) < _MANY or not self.at["known"] <= self._all[-1][2] <= 1:
            return
        rights = [right for _, right, _, _ in self._all]
        middles = [sorted(rights[at : at + 3])[1] for at in range(len(rights) - 3)]
        at = max(range(len(middles)), key=middles.__getitem__) + 1
        noise = 1.4826 * median([abs(late - early) for early, late in itertools.pairwise(rights)])
        best, (step, _, trained, loss) = middles[at - 1], self._all[at]
        apart = max(self.at["lost"], 4 * noise)
        now = self._all[-1]
        is_lost = max(rights[-3:]) < best - apart and now[2] > trained and not now[3] < _BETTER * loss
        if is_lost and self.first(place[2]):
            yield self.finding(
                step, f"The evaluation's accuracy was {best:.4g} at step {step} and is {now[1]:.4g}, while that of "
                f"the training went from {trained:.4g} to {now[2]:.4g}.", found=place[0], segment=place[2],
                confidence=0.8, evidence={"best": best, "evaluated": now[1], "trained": now[2]}, key="lost",
                causes=list(self.causes[:2]),
            )  # fmt: skip


def _word(name: str) -> str:
    found = _WORD.search(name.lower())
    return {"accuracy": "acc"}.get(found[0], found[0]) if found else name


RULES = (LearntByHeart,)

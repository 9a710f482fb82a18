"""What evaluations are given beside their first numbers, in other units than in the training.

In:   figures of the watch.
Out:  findings of `EvaluationUnits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.cursor import came_by, evaluations_of, known, usual
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class EvaluationUnits(WatchRule):
    """Evaluations are given a second input, as the times of a diffusion, in other units than the training.

    Of inputs behind the first, the watch knows how large they are in the training, and how much their numbers differ,
    over its looks so far. In three evaluations in a row the numbers of one differ by thirty times as much as in any
    pass of the training, and half of them are ten times as large as the training's largest; that one is the same in all
    of its looks, to a factor of five, so that it does not grow with the training. Or they differ by a hundredth of the
    least that they do there, or less, the largest is a thirtieth of the least of the training's largest ones, and the
    evaluation's loss is half as large again as the training's. A setting that all rows have, and a mask, are not looked
    at: sixteen different numbers at least.

    What to do: one function for both that makes the input; times from 0 to 1, or from 0 to 1000.
    """

    name, family, kind, severity = "evaluation_units", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/eval_side_deviation"
    needs = ("=model/eval_side_deviation", "=model/side_deviation", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "Evaluations are given a second input in other units than the training."
    thresholds: ClassVar = {
        "wider": (30.0, "times as much that its numbers differ; degrees are 57 times as many as radians; ours"),
        "half": (10.0, "times the training's largest number, half of the evaluation's; ours"),
        "steady": (5.0, "times the least of the training's largest numbers, the largest one; ours"),
        "narrower": (100.0, "times as much that the training's differ; ours"),
        "smaller": (30.0, "times the evaluation's largest number, the training's; ours"),
        "worse": (1.5, "evaluation over training loss, where they are smaller; ours"),
        "evaluations": (3.0, "in a row; ours"),
    }
    causes = ("train and test differ: an input of evaluations is in other units than in the training",)
    remedies = ("make that input by one function for both: times from 0 to 1, or from 0 to 1000",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        names = ("side_deviation", "side_deviation_least", "side_size", "side_size_least", "eval_side_size")
        most, least, size, size_least, theirs = (watched(history, name, place) for name in names)
        half = watched(history, "eval_side_half", place)
        wide = value >= self.at["wider"] * most and half >= self.at["half"] * size
        wide = wide and size <= self.at["steady"] * size_least
        narrow = self.at["narrower"] * value <= least and self.at["smaller"] * theirs <= size_least
        narrow = narrow and self._worse(history, place)
        seen = came_by(evaluations_of(history), place[1]) and history.role("reward") is None
        if self.lasts(bool((wide or narrow) and most > 0 and seen), place, self.at["evaluations"]):
            which = watched(history, "eval_side_place", place) + 1
            yield self.finding(
                self._row[0][0], f"Input {which:.0f} of the model differs by {value:.3g} in evaluations, and reaches "
                f"{theirs:.3g}; in the training it differs by {most:.3g}, and reaches {size:.3g}.", found=place[0],
                segment=place[2], confidence=0.95,
                evidence={"deviation": rounded(most), "eval_deviation": rounded(value), "standing": True},
            )  # fmt: skip

    def _worse(self, history: RunHistory, place: Place) -> bool:
        ours, theirs = usual(history.role("loss"), *place, 8), known(history.role("eval_loss"), *place)
        return 0 < self.at["worse"] * ours < theirs < math.inf


RULES = (EvaluationUnits,)

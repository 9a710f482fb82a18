"""Similarities of pairs that are of vectors of unit length in the training alone.

In:   figures of the watch: how far similarities are apart in the training, whose graph has the lengths, and in the
      outputs of evaluations.
Out:  findings of `EvaluationLengths`.
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


class EvaluationLengths(WatchRule):
    """Vectors are brought to unit length in the training, and not in evaluations.

    The model gives the similarities of all with all of a batch, and the graph of the training's loss divides vectors by
    their lengths (`model/pairs_any_length` is 0). Such similarities lie between minus and plus their scale. In two
    evaluations in a row a row of the model's outputs has numbers that lie three times as far apart
    (`model/answer_span`) as in any row of the training's looks (`model/pairs_range`, the median of the last eight), and
    the evaluation's loss, where one is logged, is above the training's: with one scale, and the same weights, vectors
    of unit length give no such numbers.

    What to do: bring vectors to unit length where they are made, in the model's `forward`, and not in the loop.
    """

    name, family, kind, severity = "evaluation_lengths", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/answer_span"
    needs = ("=model/answer_span", "=model/pairs_range", "=model/pairs_any_length")
    least = 2
    about = "Similarities are of vectors of unit length in the training, and not in evaluations."
    thresholds: ClassVar = {
        "times": (3.0, "as far apart as in the training; ours"),
        "looks": (3.0, "at the training, at least; ours"),
        "evaluations": (2.0, "in a row; ours"),
    }
    causes = ("normalisation differs: vectors are brought to unit length in the training, and not in evaluations",)
    remedies = ("bring vectors to unit length in the model's `forward`, for training and evaluation alike",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        ranges = history.channel("model/pairs_range")
        rows = ranges.rows() if ranges is not None else None
        looks = int(((rows.segment == place[2]) & (rows.time <= place[1])).sum()) if rows is not None else 0
        unit = watched(history, "pairs_any_length", place) == 0 and looks >= self.at["looks"]
        ours = usual(ranges, *place, 8) if unit else math.nan
        here = place[0] - 1, place[1], place[2]
        trained, evaluated = usual(history.role("loss"), *here, 8), known(history.role("eval_loss"), *here)
        far = value >= self.at["times"] * ours > 0 and not evaluated <= trained
        seen = came_by(evaluations_of(history), place[1])
        if self.lasts(bool(far and seen), place, self.at["evaluations"]):
            yield self.finding(
                self._row[0][0], f"Similarities of a row lie up to {value:.3g} apart in evaluations, and {ours:.3g} in "
                "the training, where vectors are brought to unit length.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"training": rounded(ours), "evaluation": rounded(value), "standing": True},
            )  # fmt: skip


RULES = (EvaluationLengths,)

"""An average of the weights that leaves some of them as they were.

In:   what the watch says of the elements that have to move, from one evaluation to the next.
Out:  findings of `AverageLeft`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.evaluation.average_moves import is_reference

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class AverageLeft(WatchRule):
    """An average of the weights is evaluated that leaves some of them as they were.

    An average goes the same share of the way to the trained weights in all elements. The watch compares some elements
    of up to sixteen parameters, norms and biases above all, from one evaluation to the next, and knows which of them
    have to move: that share of their way is twice the last place of bfloat16 or more, both times and to the same side.
    Three times in a row, a parameter or more is what it was to the last bit though four elements of it or more have
    to move, and of eight or more elements of other parameters at most a fiftieth is: the average leaves parameters
    out. Or what is evaluated is of sixteen bits, and of a hundred elements or more that have to move a twentieth or
    more is what it was: an average that is rounded for the evaluation alone moves in all of these, and one that is kept
    in sixteen bits loses small moves.

    What to do: average all parameters, and keep the average in float32.
    """

    name, family, kind, severity = "average_left", "eval", "eval", "warning"
    proves = "evaluation"
    series = "model/evaluated_left"
    needs = ("=model/evaluated_left", "=model/evaluated_due", "eval_loss|eval_accuracy|evaluation")
    least = 3
    about = "The average of the weights that is evaluated leaves some of them as they were."
    thresholds: ClassVar = {
        "evaluations": (3.0, "in a row; ours"),
        "others": (8.0, "elements of other parameters, that have to move; ours"),
        "few": (0.02, "of these, that do not; ours"),
        "due": (100.0, "elements that have to move, of an average in sixteen bits; ours"),
        "rounded": (0.05, "of these, that do not; rounded for the evaluation alone it is below 0.005; ours"),
    }
    remedies = (
        "average all that `parameters()` gives, norms and biases too",
        "keep the average in float32, whatever the training's type is, and round it for evaluations alone",
    )

    def begin(self) -> None:
        self._rows: dict[str, list[Place]] = {"parts": [], "places": []}

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        due, parts, half = (watched(history, f"evaluated_{name}", place) for name in ("due", "left_parameters", "half"))
        if value < 0 or is_reference(history, place):
            return
        holds = {
            "parts": parts >= 1 and due >= self.at["others"] and value <= self.at["few"],
            "places": half == 1 and due >= self.at["due"] and value >= self.at["rounded"],
        }
        self._rows = {name: [*self._rows[name], place] if held else [] for name, held in holds.items()}
        key = next((name for name, row in self._rows.items() if len(row) >= self.at["evaluations"]), "")
        if not key or not self.first(place[2]):
            return
        if key == "parts":
            message = "The average that is evaluated leaves some parameters as they were, norms or biases as a rule: "
            message += f"{parts:.0f} of those that were looked at. The others follow the training."
            cause = "averaged weights not updated: the average leaves parameters out"
        else:
            message = f"In the average that is evaluated {100 * value:.2g}% of the elements that have to move do not: "
            message += "it is of sixteen bits, which round small moves away."
            cause = "averaged weights not updated: the average is kept in sixteen bits, which lose its small moves"
        yield self.finding(
            self._rows[key][0][0], message, found=place[0], segment=place[2], confidence=0.9, causes=[cause],
            evidence={"left": rounded(value), "parameters": parts, "standing": True},
        )  # fmt: skip


RULES = (AverageLeft,)

"""Targets that the model is given with its inputs.

In:   figures of the watch.
Out:  findings of `TargetsGiven`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class TargetsGiven(WatchRule):
    """The targets are among the inputs: a column of a table, or the end of a window, is what is to be foreseen.

    Of a mean square, a cross-entropy and a logistic loss the gradient shows the targets. In three looks in a row, half
    of their columns or more are each, but for scale and offset, a column of the inputs, in all rows that were looked
    at. Outputs that are half as large as the inputs, and those with the inputs' places, are reconstructions and
    sequences, and are left alone; of a sequence, so is its first half, and so are the values
    of a policy.

    What to do: leave the column out; end the window before the first place that is to be foreseen.
    """

    name, family, kind, severity = "targets_given", "data", "data", "warning"
    series = "model/targets_given"
    needs = ("=model/targets_given",)
    least = 3
    about = "The targets are among the inputs."
    thresholds: ClassVar = {"share": (0.5, "of the targets' columns; ours"), "looks": (3.0, "in a row; ours")}
    causes = ("labels can be seen: the targets are among the inputs",)
    remedies = (
        "leave the column out that is the target, or is made from it",
        "end the window of inputs before the first place that is to be foreseen",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        policy = history.role("reward") is not None
        if self.lasts(value >= self.at["share"] and not policy, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"{100 * value:.0f}% of what the model is to say are inputs of the same examples, but "
                "for scale and offset.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"share": value, "standing": True},
            )  # fmt: skip


RULES = (TargetsGiven,)

"""Batches that are too small for what the loss does with them.

In:   figures of the watch.
Out:  findings of `LoneRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class LoneRows(WatchRule):
    """The last batch of an epoch has one example or two, and the loss tells the examples of a batch apart.

    The graph of the loss shows that it is a cross-entropy over the similarities of a batch's examples to each other, of
    eight or more. In three steps the model was given no more than two rows, an example or its two views: there is
    nothing to tell it from, the loss is 0, and the step is made of nothing.

    What to do: `drop_last=True`.
    """

    name, family, kind, severity = "lone_rows", "data", "data", "warning"
    series = "model/lone_rows"
    needs = ("=model/lone_rows", "=model/loss_pairs")
    least = 3
    about = "A batch has one example, which the loss has nothing to compare with."
    thresholds: ClassVar = {"pairs": (8.0, "examples of a usual batch; ours"), "steps": (3.0, "ours")}
    causes = ("last batch too small: it has one example, which the loss has nothing to compare with",)
    remedies = ("`DataLoader(…, drop_last=True)`, or a batch size that leaves no single example over",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self.lasts(watched(history, "loss_pairs", place) >= self.at["pairs"], place, self.at["steps"]):
            yield self.finding(
                self._row[0][0], f"In {len(self._row)} steps so far the model was given {value:.0f} "
                f"{'row' if value == 1 else 'rows'}, and the loss tells the examples of a batch apart.", found=place[0],
                segment=place[2], confidence=0.9, evidence={"rows": value, "standing": True},
            )  # fmt: skip


RULES = (LoneRows,)

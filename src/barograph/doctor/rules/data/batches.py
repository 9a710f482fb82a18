"""Batches that are too small for what the loss does with them, and micro-batches that are one batch.

In:   figures of the watch.
Out:  findings of `LoneRows`, `MicroBatchesAlike`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.cursor import numeric_setting
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


class MicroBatchesAlike(WatchRule):
    """The micro-batches of a step are the same batch: the next one is not asked for between them.

    Where a step has two passes or more, the watch compares the rows of the first two by fingerprints
    (`model/beside_copies`). They are the same, row by row, in six looks in a row; each pass has a backward pass of its
    own, and these add up, as many as the configuration accumulates; or, where it does not say, each has its part of a
    mean (`model/loss_weight`). Then accumulation gives the gradient of one micro-batch, at the price of several. A
    second pass on purpose, as that of sharpness-aware minimisation or of two losses, is not divided by the number of
    passes. Policies, whose rewards are logged, are trained on a batch several times.

    What to do: ask the loader for a batch in the inner loop.
    """

    name, family, kind, severity = "micro_batches_alike", "data", "repeated_data", "warning"
    proves = "training"
    series = "model/beside_copies"
    needs = ("=model/beside_copies", "=model/backwards")
    least = 6
    about = "The micro-batches of a step are the same batch."
    thresholds: ClassVar = {
        "share": (0.99, "of the rows of two passes, that are the same; ours"),
        "looks": (6.0, "in a row; ours"),
        "same": (0.03, "of one part of a mean, for half precision; ours"),
    }
    causes = ("the same batch in each micro-batch: the loader is not asked for the next one between them",)
    remedies = ("call `next(batches)` in the loop over micro-batches, not before it",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        passes, backwards, weight = (watched(history, name, place) for name in ("passes", "backwards", "loss_weight"))
        parts = numeric_setting(history, *ACCUMULATION)
        shares = parts == passes if parts == parts else abs(weight * passes - 1) < self.at["same"]
        alike = value >= self.at["share"] and passes == backwards >= 2 and shares and history.role("reward") is None
        if self.lasts(alike, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"The {passes:.0f} micro-batches of a step have the same rows, in {len(self._row)} "
                "looks in a row: their gradients are one gradient.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"passes": passes},
            )  # fmt: skip


RULES = (LoneRows, MicroBatchesAlike)

"""Targets that the model is given with its inputs, and those that come in order.

In:   figures of the watch.
Out:  findings of `TargetsGiven`, `TargetsEncoded`, `OrderedTargets`.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.cursor import newest
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, carries_state, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding

_LOOKS = 48


class TargetsGiven(WatchRule):
    """The targets are among the inputs: a column of a table, or the end of a window, is what is to be foreseen.

    Of a mean square, a cross-entropy and a logistic loss the gradient shows the targets. In three looks in a row, half
    of their columns or more are each, but for scale and offset, a column of the inputs, in all rows that were looked
    at. Outputs that are half as large as the inputs, and those with the inputs' places, are reconstructions and
    sequences, and are left alone; so are the first half of a sequence and the values of a policy.

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


class TargetsEncoded(WatchRule):
    """A column of the inputs is made of the targets: the mean target of a few rows, each row's own among them.

    Of two classes the gradient shows the targets. In three looks in a row some column says them by its ends: of the
    rows with its least number, four or more, all have one target, and of those with its greatest all the other; what
    lies between are shares of 2 to 12, of no one grid as counts have. So it is where a category of many values is
    replaced by the mean target of its rows: a category with one row says that row's target. Means that are smoothed
    don't show it.

    What to do: compute such means of other folds than the row's own, of training rows alone.
    """

    name, family, kind, severity = "targets_encoded", "data", "data", "warning"
    proves = "training"
    series = "model/targets_encoded"
    needs = ("=model/targets_encoded",)
    least = 3
    about = "A column of the inputs is made of the targets."
    thresholds: ClassVar = {"share": (0.05, "of the rows; ours"), "looks": (3.0, "in a row; ours")}
    causes = (
        "validation leak: target encoding, a column of the inputs is the mean target of a few rows, their own among "
        "them",
    )
    remedies = (
        "compute the means of a category from other folds than the row's own, of training rows alone",
        "smooth them towards the mean of all rows, by how many rows a category has",
    )

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        policy = history.role("reward") is not None
        if self.lasts(value >= self.at["share"] and not policy, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"A column of the inputs says the target of {100 * value:.0f}% of the rows by being "
                "its least or its greatest number; what lies between are means of a few targets.",
                found=place[0], segment=place[2], confidence=0.9, evidence={"share": rounded(value), "standing": True},
            )  # fmt: skip


_STREAM = expression(r"(?<![a-z])(?:prequential|stream(?:ing|ed)?)(?![a-z])", re.IGNORECASE)


class OrderedTargets(WatchRule):
    """The targets of a regression come in order: those of one batch are nearly alike, and another batch's are others.

    Of a mean square the gradient shows the targets. Over the last looks, twelve to 48, the means of batches vary ten
    times as much as the targets within a batch, where they vary a batch-size-th as much in batches that are drawn; and
    six of these means or more are different. A batch has eight examples or more: one window of a slow series would be
    as even by itself. Examples that are sorted by their target do that, and series of a slow drift that are read in
    the order of time. The model forgets each part while it learns the next. Where a reward is logged, nothing is said;
    nor where the loss is that of a stream, by its name (`prequential`, `streaming`): each example is asked
    once, in its order, before it is learnt; nor where the model's state is carried from each batch into the next
    (`model/state_carried`), which goes on where that one ended.

    What to do: shuffle: `DataLoader(..., shuffle=True)`.
    """

    name, family, kind, severity = "ordered_targets", "data", "data", "warning"
    series = "model/target_std"
    needs = ("=model/target_std", "=model/target_mean", "=model/example_rows")
    least = 12
    about = "The targets of a regression come in order."
    thresholds: ClassVar = {
        "times": (10.0, "the variance within a batch: that of the batches' means; ours"),
        "looks": (12.0, "ours"),
        "different": (6.0, "means; ours"),
        "rows": (8.0, "examples of a batch, that were looked at; ours"),
    }
    causes = ("data sorted: the examples come in the order of their targets, or of time",)
    remedies = ("shuffle the examples: `DataLoader(..., shuffle=True)`",)

    def begin(self) -> None:
        self._looks: deque[tuple[int, float, float]] = deque(maxlen=4 * int(self.at["looks"]))

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        mean = watched(history, "target_mean", place)
        several = watched(history, "example_rows", place) >= self.at["rows"]
        if not (value > 0 and math.isfinite(value) and math.isfinite(mean) and several):
            return
        self._looks.append((place[0], mean, value))
        if len(self._looks) < self.at["looks"] or history.role("reward") is not None:
            return
        loss = history.role("loss")
        if (loss is not None and _STREAM.search(loss.name)) or carries_state(history, place):
            return
        means, deviations = numpy.array([look[1:] for look in self._looks]).T
        between, within = float(means.var()), float(numpy.square(deviations).mean())
        different = len(set(numpy.round(means / math.sqrt(between), 1).tolist())) if between > 0 else 0
        enough = between >= self.at["times"] * within and different >= self.at["different"]
        if enough and self.first(place[2]):
            yield self.finding(
                self._looks[0][0], f"The targets of a batch have {100 * within / (within + between):.2g}% of the "
                "variance that those of all batches have: they come in order.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"between": rounded(between), "within": rounded(within), "standing": True},
            )  # fmt: skip


def in_order(history: RunHistory, place: Place) -> bool:
    """Whether the targets of batches lie further apart than those within one: what of the latter's variance outputs
    explain says little."""
    means, deviations = (
        newest(channel, *place, _LOOKS) if (channel := history.channel(f"model/target_{name}")) else numpy.empty(0)
        for name in ("mean", "std")
    )
    both = means[: len(deviations)], deviations[: len(means)]
    known = numpy.isfinite(both[0]) & numpy.isfinite(both[1])
    return int(known.sum()) >= _LOOKS // 4 and bool(both[0][known].var() > numpy.square(both[1][known]).mean())


RULES = (TargetsGiven, TargetsEncoded, OrderedTargets)

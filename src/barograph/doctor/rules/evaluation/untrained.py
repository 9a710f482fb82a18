"""Evaluations that stay at the loss of the model before its training.

In:   the series of the evaluation loss and of the loss.
Out:  findings of `EvaluationUntrained`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from barograph.doctor.kernel.channels import Channel, RunHistory
from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import is_game, rounded
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.evaluation.evaluations import EvaluationPoint, Walker
from barograph.doctor.rules.evaluation.signs import asked_average


class EvaluationUntrained(Walker):
    """The evaluation loss stays at what the training loss began with, while the training loss falls.

    From the first evaluation of the run on, each is within a tenth of the first training loss, and has come no more
    than a seventh of the way that the training loss has. Eight such evaluations, behind the last four of which the
    training loss is 0.7 of its first row or less. A model that knows something of its data is better in the evaluation,
    too, or worse than at the beginning where it is too sure of what it has learnt by heart. Losses of players and
    policies are left out, and so is a run that goes on from another, or one that chooses among a batch's pairs in the
    training and among another number in evaluations, as a catalogue: their levels are not to be compared.

    What to do: check that what is evaluated has the trained weights: compare a few of them.
    """

    name, kind, severity = "evaluation_untrained", "eval", "warning"
    compares = True
    needs = ("eval_loss", "loss")
    least = 8
    about = "The evaluation loss stays at that of the model before its training."
    thresholds: ClassVar = {
        "near": (0.1, "of the first training loss; ours"),
        "way": (0.15, "of what the training loss fell by; ours"),
        "fall": (0.7, "of the first training loss; ours"),
        "evaluations": (8.0, "ours"),
        "fallen": (4.0, "evaluations, by which the training loss has fallen; ours"),
    }
    causes = (
        "averaged weights not updated: or what is evaluated has not the trained weights",
        "evaluation data differ: other labels or inputs than the training's",
        "overfitting: the examples are memorized",
    )
    remedies = ("compare some weights of the model that is evaluated with those of the trained one",)

    def begin(self) -> None:
        self._first, self._fallen, self._count, self._away = math.nan, 0, 0, False
        self._since = 0

    def look(self, history: RunHistory, channel: Channel, point: EvaluationPoint) -> Iterator[Finding]:
        loss = history.role("loss")
        if loss is None or not loss.end or self._away:
            return
        if not self._count:
            self._first, self._since = loss.first, point.step
            self._away = int(loss.rows().segment[0]) != point.segment
        first = self._first
        near = abs(point.value - first) <= self.at["near"] * first and first > 0
        there = first - point.value > self.at["way"] * max(first - point.train, 0.0) + 0.02 * first
        if not near or there or is_game(history, loss) or _chooses_among_others(history, channel, point):
            self._away = True
            return
        self._count += 1
        self._fallen = self._fallen + 1 if point.train <= self.at["fall"] * first else 0
        if self._count >= self.at["evaluations"] and self._fallen >= self.at["fallen"] and self.first(point.segment):
            yield self.finding(
                self._since, f"The evaluation loss is {point.value:.4g} behind {self._count} evaluations, near the "
                f"{first:.4g} that the training began with, while the training loss fell to {point.train:.4g}.",
                found=point.step, segment=point.segment, confidence=0.7,
                causes=[*asked_average(history), *self.causes],
                evidence={"evaluation": rounded(point.value), "train": rounded(point.train), "first": rounded(first)},
            )  # fmt: skip


def _chooses_among_others(history: RunHistory, channel: Channel, point: EvaluationPoint) -> bool:
    """Whether the watch saw that evaluations choose among another number of answers than the training's pairs."""
    time = int(channel.rows(point.row, point.row + 1).time[0])
    pairs, width = (
        known(history.channel(f"model/{name}"), point.step, time, point.segment)
        for name in ("loss_pairs", "compared_width")
    )
    return pairs > 1 and width > 1 and pairs != width


RULES = (EvaluationUntrained,)

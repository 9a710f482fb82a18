"""A loss that is scaled, or divided by its micro-batches, twice: what backward passes are called with shows it.

In:   what a step's backward passes were called with, beside the logged loss and the evaluation's.
Out:  findings of `GivenTwice`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.cursor import known, numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.loss.given import Given, GivenLosses

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class GivenTwice(Rule):
    """The loss is multiplied by the scaler's scale twice, or divided by the number of micro-batches twice.

    In three steps in a row that have both, what the backward passes of a step were called with (`model/loss_given`) is,
    within 0.2%,

    - the square of the scaler's scale, 16 or more, times the logged loss: the scaler divides gradients by it once.
    - one k-th of the logged loss, under a scale that is divided by, where the step had k backward passes, and the
      logged loss is the evaluation's, within the power 0.3 of k. The mean of k losses, each of them divided by k, would
      be the logged loss itself. A logged sum of k losses is k times an evaluation's. Where the gradient of the output
      shows the weight of a cross-entropy and the configuration says k, `loss_weight` says it.

    What to do: one `scaler.scale(loss)`, one division by the number of micro-batches.
    """

    name, family, kind, severity = "given_twice", "loss", "vanishing", "warning"
    proves = "training"
    needs = ("=model/loss_given", "=model/losses_given", "loss")
    least = 3
    about = "The loss is scaled, or divided by its micro-batches, twice."
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.002, "of the number; ours"),
        "scale": (16.0, "of a scaler; ours"),
        "alike": (0.3, "power of the number of micro-batches: the evaluation's loss over the logged; ours"),
    }
    causes = ("loss divided too often: by the number of micro-batches, twice",)
    remedies = ("divide the loss by the number of micro-batches once", "call `scaler.scale(loss)` once")

    def reset(self) -> None:
        self._given = GivenLosses()
        self._row: list[tuple[int, int, str]] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for one in self._given.new(history):
            step, _, segment = one.place
            scale = known(history.channel("model/loss_scale"), *one.place)
            what = self._what(history, one, scale)
            if not what:
                self._row = []
                continue
            self._row = [look for look in self._row if look[1:] == (segment, what)] + [(step, segment, what)]
            if len(self._row) == self.at["looks"] and self.first(segment, what):
                yield self._say(one, what, scale)

    def _what(self, history: RunHistory, one: Given, scale: float) -> str:
        scaled = scale >= self.at["scale"]
        if scaled and abs(one.times / scale / scale - 1) < self.at["same"]:
            return "scaled"
        passes, times = one.passes, one.times / scale if scaled else one.times
        if not (passes >= 2 and one.logged > 0 and abs(times * passes - 1) < self.at["same"]):
            return ""
        step, time, segment = one.place
        weight = known(history.channel("model/loss_weight"), *one.place)
        told = weight == weight and numeric_setting(history, *ACCUMULATION) == passes
        theirs = known(history.role("eval_loss"), step - 1, time, segment)
        alike = theirs > 0 and abs(math.log(theirs / one.logged)) < self.at["alike"] * math.log(passes)
        return "divided" if alike and not told else ""

    def _say(self, one: Given, what: str, scale: float) -> Finding:
        (step, _, segment), began = one.place, self._row[0][0]
        if what == "scaled":
            return self.finding(
                began, f"What is differentiated is {one.times:.6g} times the logged loss, the square of the scaler's "
                f"scale of {scale:.6g}, by which gradients are divided once.", found=step, segment=segment,
                kind="loss_scale", confidence=0.95, evidence={"times": rounded(one.times), "scale": scale},
                causes=["loss scaled twice: gradients are divided by the scale once"],
                remedies=["call `scaler.scale(loss)` once"], key=what,
            )  # fmt: skip
        return self.finding(
            began, f"The {one.passes:.0f} backward passes of a step were called with {one.times:.4g} of the logged "
            "loss in sum, and the logged one is as the evaluation's: each micro-batch is divided by their number "
            "twice.", found=step, segment=segment, confidence=0.9, key=what,
            evidence={"times": rounded(one.times), "passes": one.passes},
            causes=[f"gradient accumulation scaled wrongly: divided twice by {one.passes:.0f}"],
            remedies=["divide the loss by the number of micro-batches once"],
        )  # fmt: skip


RULES = (GivenTwice,)

"""A loss that is scaled, or divided by its micro-batches, twice, or logged as it is scaled: what backward passes are
called with shows it.

In:   what a step's backward passes were called with, beside the logged loss and the evaluation's.
Out:  findings of `GivenTwice`, `LoggedScaled`.
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


class LoggedScaled(Rule):
    """The logged loss is the one that a scaler has multiplied for half precision.

    In three steps in a row what the backward passes were called with (`model/loss_given`) is the logged loss itself,
    within 0.2%, under a scaler whose scale is 16 or more; and the gradient of a cross-entropy shows, within 3%, that
    its loss is a mean that was multiplied by that scale (`model/loss_weight`, one over the number of a step's passes).
    The logged number is then the loss times the scale: it doubles and halves with it, and no evaluation's can be
    compared with it. The weights learn as they should. Of a series whose name says that it is scaled nothing is said.

    What to do: log `loss.item()` of what the criterion gives, before `scaler.scale(loss)`.
    """

    name, family, kind, severity = "logged_scaled", "loss", "logging", "warning"
    proves = "training"
    needs = ("=model/loss_given", "=model/loss_scale", "=model/loss_weight", "loss")
    least = 3
    about = "The logged loss is the one that a scaler has multiplied."
    sources = ("DeepSpeed: loss scaling",)
    thresholds: ClassVar = {
        "looks": (3.0, "in a row; ours"),
        "same": (0.002, "of the logged loss; ours"),
        "scale": (16.0, "of a scaler; ours"),
        "mean": (0.03, "of the weight of a mean; ours"),
    }
    causes = ("loss logged scaled: what is logged is the loss times the scaler's scale",)
    remedies = ("log the loss before `scaler.scale(loss)`, or divide what is logged by `scaler.get_scale()`",)

    def reset(self) -> None:
        self._given = GivenLosses()
        self._row: list[Given] = []

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for one in self._given.new(history):
            (step, _, segment), loss = one.place, history.role("loss")
            scale, weight = (
                known(history.channel(f"model/{name}"), *one.place) for name in ("loss_scale", "loss_weight")
            )
            alike = scale >= self.at["scale"] and abs(one.times - 1) < self.at["same"]
            mean = abs(weight * max(one.passes, 1.0) - 1) < self.at["mean"]
            if loss is None or "scaled" in loss.name.lower() or not (alike and mean and one.logged > 0):
                self._row = []
                continue
            self._row = [look for look in self._row if look.place[2] == segment] + [one]
            if len(self._row) == self.at["looks"] and self.first(segment):
                yield self.finding(
                    self._row[0].place[0], f"The logged loss of {one.logged:.4g} is what the scaler has multiplied by "
                    f"its scale of {scale:.6g}: the loss is {one.logged / scale:.4g}.", found=step, segment=segment,
                    confidence=0.95, evidence={"scale": scale, "loss": rounded(one.logged / scale), "standing": True},
                )  # fmt: skip


RULES = (GivenTwice, LoggedScaled)

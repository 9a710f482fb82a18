"""Where a number that is not finite was made.

In:   the watch's figures of the first step with one, and the losses around it.
Out:  findings of `NonFiniteOrigin`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import RowCursor, is_past, known, setting
from barograph.doctor.kernel.curve import between, rounded
from barograph.doctor.kernel.remedies import clip_limit
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.rules.data.criteria import short_causes

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class NonFiniteOrigin(Rule):
    """NaN was made by the loss, or by its gradient, and not by a training that left its range.

    At the first step whose gradients are not finite the output still was, and below a million, and the loss before
    was what it had been, and not far above what it began with. If the loss of that step is not finite, the loss makes
    it: a logarithm of 0, a division by 0, a target that is not finite. If it is finite, its gradient makes it: a root
    or a norm at 0, or a branch of `where` that is not finite. Of half precision nothing is said: there numbers
    overflow.

    Where the loss is nothing but squares or sizes of differences from targets, or logistic losses, as its graph says,
    it is a target; where it is one of alignments (CTC) and infinite, a sequence that is too short. What the loss makes
    reaches every parameter. Where the output is not finite and weights already were not, while the loss and the first
    layer's gradient of the step before were, that step has made them so: the gradient of a layer was not finite, or the
    update of weights in half precision left its range. Where gradients of some parameters are finite, and not 0, it was
    made on the way back through the model, in a layer or by what changes gradients. Clipping by the norm spreads it to
    all: where gradients may have been clipped (by the configuration, or a gradient norm is logged), nobody knows which.
    Nor is it known whether the loss or its gradient made it where the step's loss is not logged, or hidden by the
    Trainer.

    What to do: an epsilon within the root, the logarithm or the division; a look at hooks and at layers of your own.
    """

    name, family, kind, severity = "non_finite_origin", "gradient", "nonfinite", "critical"
    needs = ("=model/broken_gradient", "loss")
    about = "A loss, or its gradient, is not finite though the output is."
    thresholds: ClassVar = {
        "size": (1e6, "of an output; ours"),
        "times": (10.0, "the median loss before, and of the first eight rows; ours"),
    }

    def reset(self) -> None:
        self._cursor = RowCursor()
        self._waiting: tuple[int, int, int] | None = None  # step, time, segment
        self._done = False

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        rows = self._cursor.new(history.channel("model/broken_gradient"))
        for at in numpy.flatnonzero(rows.value > 0)[:1] if rows is not None and not self._done else ():
            assert rows is not None
            self._done = True
            self._waiting = int(rows.step[at]), int(rows.time[at]), int(rows.segment[at])
        loss = history.role("loss")
        if self._waiting is None or loss is None or not loss.end:
            return
        step, time, segment = self._waiting
        if not history.facts.get("finished") and not is_past(loss, step + 1, segment):
            return
        self._waiting = None
        size = known(history.channel("model/output_size"), step, time, segment)
        half = [known(history.channel(f"model/{name}"), step, time, segment)
                for name in ("half_output", "half_parameters", "loss_scale")]  # fmt: skip
        inputs = known(history.channel("model/non_finite_inputs"), step, time, segment)
        here = between(loss, step, step + 1, segment, finite=False)
        losses = between(loss, 0, step, segment)
        earlier = losses[-32:]
        for usual in (numpy.median(some) for some in (earlier, losses[:8]) if len(some)):
            if not abs(earlier[-1]) <= self.at["times"] * max(abs(float(usual)), 1e-6):
                return
        if (between(history.channel("model/broken_output"), step, step + 1, segment) > 0).any():
            if len(earlier) and not half[-1] > 0 and not inputs > 0:
                yield from self._updated(history, half[1] > 0, step, time, segment)
            return
        if not size < self.at["size"] or any(value > 0 for value in (*half, inputs)) or len(here) > 1:
            return
        hidden = not len(here) or str(setting(history, "logging_nan_inf_filter")).lower() == "true"
        about = (step, time, segment), None if hidden else float(here[0])
        text, cause, remedies = self._target(history, *about) or self._made(history, *about)
        yield self.finding(
            step, f"{text}, though the model's output is, at most {size:.3g}.", found=step + 2,
            segment=segment, confidence=0.95, causes=[cause], remedies=remedies, evidence={"output": rounded(size)},
        )  # fmt: skip

    def _updated(self, history: RunHistory, half: bool, step: int, time: int, segment: int) -> Iterator[Finding]:
        """Of a step whose output is not finite: weights already were not, so the step before has made them so, though
        the gradients of the first layer, which what the loss makes reaches, were finite in it, as far as that step was
        looked at."""
        weights = between(history.channel("model/broken_weights"), step, step + 1, segment)
        gradients = between(history.channel("model/broken_gradient"), step - 1, step, segment)
        until = known(history.channel("model/finite_until"), step, time, segment)  # NaN in runs of an earlier version
        loss = history.role("loss")
        if loss is not None and until == loss.began[0] - 1 == step - 2:
            until += 1  # of the first step, before the loop has logged its number
        if not len(weights) or not weights[0] > 0 or (gradients > 0).any() or step < 1 or abs(until - step + 1) > 0:
            return
        cause = "non-finite gradient: of a layer, made in its backward pass or by what changes gradients"
        remedies = ["skip the step where the gradient norm is not finite", "look at hooks and layers of your own: a "
                    "root, a division, a backward pass"]  # fmt: skip
        if half:
            cause = "fp16 overflow: weights of half precision are updated beyond its range, or divided by an epsilon " \
                "that is 0 in it"  # fmt: skip
            remedies = [
                "keep the weights in fp32 and compute under `autocast`",
                "an epsilon of 1e-4: 1e-8 is 0 in fp16",
            ]
        yield self.finding(
            step - 1, f"The weights of {weights[0]:.0f} parameters are not finite behind step {step - 1}; its output "
            "and the gradient of its first layer were.", found=step + 2, segment=segment, confidence=0.95,
            causes=[cause], remedies=remedies, evidence={"parameters": float(weights[0])},
        )  # fmt: skip

    def _target(
        self, history: RunHistory, place: tuple[int, int, int], loss: float | None
    ) -> tuple[str, str, list[str]] | None:
        """What is said where the loss is nothing but an error beside targets: of finite outputs it is finite, unless a
        target is not. None where it is another loss, or finite."""
        if loss is None or math.isfinite(loss):
            return None
        if loss > 0 and known(history.channel("model/ctc_short"), *place) >= 0:
            return (
                f"The loss of step {place[0]} is {loss:.4g}, and is one of alignments (CTC): a sequence is shorter "
                "than its targets, with a place between equal ones",
                short_causes(history, place)[0],
                ["a smaller stride leaves more places",
                 "give the lengths of the outputs, and the lengths of the targets without padding",
                 "leave such examples out, or `zero_infinity=True` if they are few"],
            )  # fmt: skip
        if known(history.channel("model/loss_error"), *place) != 1:
            return None
        return (
            f"The loss of step {place[0]} is {loss:.4g}, and is nothing but an error beside the targets: one of them "
            "is not finite",
            "target not finite: a NaN or an infinity among the targets of this batch",
            ["check targets where they are made: `torch.isfinite(target).all()`; a logarithm of 0, a missing value",
             "leave the rows out, or mask their losses with `where` before they are computed"],
        )  # fmt: skip

    def _made(self, history: RunHistory, place: tuple[int, int, int], loss: float | None) -> tuple[str, str, list[str]]:
        """What is said, its cause and what to do. loss: of the step; None where it is not known."""
        broken, spared = (known(history.channel(f"model/{name}_gradients"), *place) for name in ("broken", "spared"))
        value = f"The loss of step {place[0]} is {loss:.4g}, and " if loss is not None and math.isfinite(loss) else ""
        if spared > 0 and (loss is None or value):
            text = f"{value}{'t' if value else 'T'}he gradients of {broken:.0f} of {broken + spared:.0f} parameters are"
            return (
                f"{text} not finite" if value else f"{text} not finite at step {place[0]}",
                "non-finite gradient: made in the backward pass of a layer, or by what changes gradients",
                ["look at the first of these layers from the output on: a root, a division, a hook, a backward pass of "
                 "your own", "skip the step where the gradient norm is not finite"],
            )  # fmt: skip
        if value or loss is None:
            at = "a root or a norm at 0" if value else "a logarithm or a root at 0"
            cause = f"non-finite gradient: of the loss itself, {at}, a division by 0, or a masked NaN"
            if loss is None:
                cause = f"loss not finite by itself, or its gradient: {at}, a division by 0, or a masked NaN"
            if self._may_clip(history):
                cause = f"non-finite gradient: of the loss ({at}, a division by 0, a masked NaN) or of a layer; " \
                    "clipping spreads it"  # fmt: skip
            return (
                f"{value}its gradient is not finite" if value else f"The gradients of step {place[0]} are not finite",
                cause,
                ["add an epsilon within the root, the norm or the logarithm: its derivative at 0 is infinite",
                 "replace what is masked before it is computed on, not only afterwards"],
            )  # fmt: skip
        return (
            f"The loss of step {place[0]} is not finite",
            "loss not finite by itself: a logarithm of 0, a division by 0, or a target that is not finite",
            ["use a loss that takes logits, or add an epsilon within the logarithm",
             "check each division of the loss for 0, and the targets for NaN"],
        )  # fmt: skip

    def _may_clip(self, history: RunHistory) -> bool:
        """Whether gradients may have been clipped by their norm: the step's own norm is NaN, and tells nothing."""
        norm = history.role("norm")  # clipping returns it; the watch's own is of gradients as they are
        return clip_limit(history) > 0 or (norm is not None and not norm.name.startswith("model/"))


RULES = (NonFiniteOrigin,)

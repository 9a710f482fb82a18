"""Gradients that are clipped when the optimizer's step is over, or used once more, and those of a micro-batch that
never come.

In:   by what gradients were multiplied between a step's end and the next one's begin, and whether nothing came there;
      passes of a step, forward and backward, beside the configuration.
Out:  findings of `ClippedAfter`, `GradientAgain`, `MicroBatchDropped`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.cursor import numeric_setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class ClippedAfter(WatchRule):
    """Gradients are clipped behind the optimizer's step, which has used them as they were.

    A gradient that a step has used is scaled before the next step begins, and no new one comes into its place
    (`model/scaled_after`): in four looks by a factor below 1, and not always by the same one. Gradients that go on,
    as with a momentum by hand, get the next pass added, and then are not a multiple of what they were.

    What to do: `clip_grad_norm_` behind `backward()`, ahead of `optimizer.step()`.
    """

    name, family, kind, severity = "clipped_after", "gradient", "clipping", "warning"
    proves = "training"
    series = "model/scaled_after"
    needs = ("=model/scaled_after",)
    least = 4
    about = "Gradients are clipped behind the optimizer's step."
    thresholds: ClassVar = {"looks": (4.0, "ours"), "apart": (1.01, "times the least factor, the largest; ours")}
    causes = ("clipping not in force: it runs after the step",)
    remedies = ("call `clip_grad_norm_` after `backward()` and before `optimizer.step()`",)

    def begin(self) -> None:
        self._factors: list[tuple[int, float]] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._factors.append((place[0], value))
        factors = [factor for _, factor in self._factors]
        enough = len(factors) >= self.at["looks"] and max(factors) >= self.at["apart"] * min(factors)
        if enough and self.first(place[2]):
            yield self.finding(
                self._factors[0][0], f"Behind the optimizer's step gradients are scaled, by {min(factors):.3g} to "
                f"{max(factors):.3g}, and then let go: the step has used them unclipped.", found=place[0],
                segment=place[2], confidence=0.95, evidence={"factor": rounded(value), "standing": True},
            )  # fmt: skip


class GradientAgain(WatchRule):
    """The optimizer steps again with the gradients of the step before.

    In eight steps that were looked at (`model/gradient_again`) all gradients of an optimizer were the tensors that they
    were when its step before ended, nothing had changed them, one of them, which is kept, had the same numbers, not
    all 0, and no backward pass came between: `step()` is called twice for one backward pass. Each batch counts twice,
    and moments of Adam's kind decay twice as fast. `optimizer.step()` beside `scaler.step(optimizer)` takes the steps
    as well that a GradScaler leaves out. A closure, gradients that are put there by hand, and those that were cleared
    are none of this.

    What to do: one call of `step()` behind each backward pass; with a GradScaler `scaler.step(optimizer)` alone.
    """

    name, family, kind, severity = "gradient_again", "gradient", "config", "warning"
    proves = "training"
    series = "model/gradient_again"
    needs = ("=model/gradient_again",)
    least = 8
    about = "The optimizer steps twice with the same gradients."
    thresholds: ClassVar = {"steps": (8.0, "ours")}
    causes = ("optimizer stepped twice: `step()` is called again, with the gradients that it has used",)
    remedies = ("call `step()` once behind each backward pass; with a GradScaler `scaler.step(optimizer)` alone",)

    def begin(self) -> None:
        self._steps: list[int] = []

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._steps += [place[0]] if value == 1 else []
        if len(self._steps) >= self.at["steps"] and self.first(place[2]):
            yield self.finding(
                self._steps[0], f"In {len(self._steps)} steps the optimizer has used the gradients of its step before "
                "once more: no backward pass came between.", found=place[0], segment=place[2], confidence=0.95,
                evidence={"steps": len(self._steps), "standing": True},
            )  # fmt: skip


class MicroBatchDropped(WatchRule):
    """Of a step's micro-batches one goes through the model, and has no backward pass.

    The configuration says that k micro-batches are accumulated. In six looks in a row the watched model made k passes
    with gradients in the step (`model/passes`), and k − 1 backward passes added up (`model/backwards`): one micro-batch
    is computed and trains nothing. The others are divided by one too many. Of models that make several passes for each
    micro-batch, as of the two sides of a pair, it is said where there is an output that no backward pass comes to
    (`model/graphs_unused`). So it is where the configuration has no number of micro-batches, and the loss is divided by
    k, as its gradient shows (`model/loss_weight`).

    What to do: `backward()` in each round of the loop, and the step behind the last.
    """

    name, family, kind, severity = "micro_batch_dropped", "gradient", "config", "warning"
    proves = "training"
    series = "model/backwards"
    needs = ("=model/backwards", "=model/passes", "config|=model/graphs_unused")
    least = 6
    about = "One of a step's micro-batches has no backward pass."
    thresholds: ClassVar = {"looks": (6.0, "in a row; ours"), "same": (0.002, "around 1 / k, a loss's weight; ours")}
    causes = ("gradient accumulation: one micro-batch of each step has no backward pass",)
    remedies = ("call `backward()` for each micro-batch, and step behind the last one",)

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        said, passes = numeric_setting(history, *ACCUMULATION), watched(history, "passes", place)
        weight, unused = (watched(history, name, place) for name in ("loss_weight", "graphs_unused"))
        divided = unused == 1 and abs(weight * (value + 1) - 1) < self.at["same"]
        parts = said if said == said or not divided else value + 1
        each = passes % parts == 0 and (passes == parts or unused == 1)
        if self.lasts(value >= 1 and parts == value + 1 and each, place, self.at["looks"]):
            yield self.finding(
                self._row[0][0], f"Each step is to add up {parts:.0f} micro-batches, and makes {passes:.0f} passes and "
                f"{value:.0f} backward: one micro-batch trains nothing.", found=place[0], segment=place[2],
                confidence=0.9, evidence={"passes": passes, "backward": value, "standing": True},
            )  # fmt: skip


RULES = (ClippedAfter, GradientAgain, MicroBatchDropped)

"""Gradients that are added over ranks, and not divided by their number.

In:   the norm of a rank's gradient when its backward pass has ended, and when the optimizer's step begins.
Out:  findings of `SummedOverRanks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import scaled_loss
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule, watched
from barograph.doctor.rules.ranks.ranks import splits_model

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SummedOverRanks(WatchRule):
    """The gradients of all ranks are added between the backward pass and the step, and not divided by their number.

    In a training of n ranks that average their gradients by hand, the norm at the optimizer's step is at most as large
    as that of one rank's own gradient, as a rule. Here, in four looks or more, the median is 0.85 times √n of it or
    more, and 1.25 times, as sums of gradients that have little in common are; nine in ten are above 1, and none is
    above 1.3 n. The loss of a rank is a mean over its own batch, as its gradient or its graph shows: a loss that is
    divided by the number of all ranks' targets has to be added.

    What to do: divide by the number of ranks, `dist.all_reduce(g); g /= world_size`, or wrap the model with
    DistributedDataParallel.
    """

    name, family, kind, severity = "summed_over_ranks", "ranks", "desync", "warning"
    series = "model/clip_coefficient"
    needs = ("=model/clip_coefficient", "=model/loss_weight|=model/loss_undivided")
    least = 4
    about = "Gradients are added over ranks, and not averaged."
    thresholds: ClassVar = {
        "looks": (4.0, "ours"),
        "root": (0.85, "of the root of the number of ranks; ours"),
        "times": (1.25, "the rank's own gradient, whatever their number; ours"),
        "above": (0.9, "of the looks, above the rank's own; ours"),
        "most": (1.3, "times the number of ranks; ours"),
        "same": (0.01, "of 1, the weight of a rank's loss; ours"),
    }
    causes = ("gradients summed over ranks: `all_reduce` adds, and nothing divides by the number of ranks",)
    remedies = (
        "divide by the number of ranks behind `all_reduce`: `grad /= world_size`",
        "wrap the model with DistributedDataParallel, which averages",
    )

    def begin(self) -> None:
        self._looks: list[float] = []
        self._begun = -1

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        world = history.facts.get("world_size")
        if not isinstance(world, int) or world < 2 or not math.isfinite(value):
            return
        self._begun = place[0] if self._begun < 0 else self._begun
        self._looks.append(value)
        if len(self._looks) < self.at["looks"] or splits_model(history) or not self._is_mean(history, place):
            return
        looks = numpy.array(self._looks)
        middle, least = float(numpy.median(looks)), max(self.at["times"], self.at["root"] * math.sqrt(world))
        added = middle >= least and (looks > 1).mean() >= self.at["above"] and looks.max() <= self.at["most"] * world
        if added and self.first(place[2]):
            yield self.finding(
                self._begun, f"Between the backward pass and the step, gradients become {middle:.3g} times as large in "
                f"the median of {len(looks)} looks: those of {world} ranks are added, and not divided by {world}.",
                found=place[0], segment=place[2], confidence=0.95,
                evidence={"times": rounded(middle), "ranks": world, "standing": True},
            )  # fmt: skip

    def _is_mean(self, history: RunHistory, place: Place) -> bool:
        """Whether the loss of this rank is a mean over what it was given itself."""
        if scaled_loss(history, place[1]):
            return False
        weight, passes = watched(history, "loss_weight", place), max(1.0, watched(history, "backwards", place))
        if math.isfinite(weight):
            return abs(weight * passes - 1) <= self.at["same"]
        return watched(history, "loss_undivided", place) == 1


RULES = (SummedOverRanks,)

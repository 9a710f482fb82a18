"""Gradients that are added over ranks, and not divided by their number.

In:   the norm of a rank's gradient when its backward pass has ended, and when the optimizer's step begins.
Out:  findings of `SummedOverRanks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.core.configuration import ACCUMULATION
from barograph.doctor.kernel.cursor import RowCursor, came_by, newest, numeric_setting, scaled_loss, splits_model
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, Source, WatchRule, watched
from barograph.doctor.rules.loss.given import Given, GivenLosses

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding


class SummedOverRanks(WatchRule):
    """The gradients of all ranks are added between the backward pass and the step, and not divided by their number.

    In a training of n ranks that average their gradients by hand, the norm at the optimizer's step is at most as large
    as that of one rank's own gradient, as a rule. Here, in four looks or more, the median is 0.85 times √n of it or
    more, and 1.25 times, as sums of gradients that have little in common are; nine in ten are above 1, and none is
    above 1.3 n. In the first twelve steps some elements of a few gradients stand for all. The loss of a rank is a mean
    over its own batch, as its gradient, its graph or a first loss of a guess, within a fifth, shows: a loss that is
    divided by the number of all ranks' targets has to be added.

    Where the loop logs the norm before it clips, that is looked at beside the norm when the backward pass had ended:
    clipping hides nothing then. Where it is 1 / n of that or less in each of four looks, with one pass a step,
    gradients are divided by the number of ranks twice: those that are averaged are 1 / √n of a rank's own or more. A
    logged norm that may be that after clipping says nothing.

    The same where a wrapper averages (`model/averaged_ranks`), the loss is a cross-entropy whose weight
    (`model/loss_weight`), times the micro-batches that are configured and were seen, is 1 / n in three looks in a row,
    and what was differentiated in the first of them is 1 / n of a guess, within a fifth, as of a model that knows
    nothing.

    What to do: divide by the number of ranks once, `dist.all_reduce(g); g /= world_size`, or wrap the model with
    DistributedDataParallel.
    """

    name, family, kind, severity = "summed_over_ranks", "ranks", "desync", "warning"
    series = "model/clip_coefficient"
    needs = (
        "=model/clip_coefficient|=model/grad_norm_before|=model/gradient_growth",
        "=model/loss_weight|=model/loss_undivided",
    )
    least = 4
    about = "Gradients are added over ranks, and not averaged, or divided by their number twice."
    thresholds: ClassVar = {
        "looks": (4.0, "ours"),
        "root": (0.85, "of the root of the number of ranks; ours"),
        "times": (1.25, "the rank's own gradient, whatever their number; ours"),
        "above": (0.9, "of the looks, above the rank's own; ours"),
        "most": (1.3, "times the number of ranks; ours"),
        "same": (0.01, "of 1, the weight of a rank's loss; ours"),
        "slack": (1.02, "for rounding; ours"),
        "weights": (3.0, "looks in a row at the weight of a loss; ours"),
        "guess": (0.2, "of a guess, the first loss; ours"),
    }
    causes = ("gradients summed over ranks: `all_reduce` adds, and nothing divides by the number of ranks",)
    remedies = (
        "divide by the number of ranks behind `all_reduce`: `grad /= world_size`",
        "wrap the model with DistributedDataParallel, which averages",
    )

    def reset(self) -> None:
        super().reset()
        self._norms, self._pairs = GivenLosses("model/grad_norm_before", "norm"), list[Given]()
        self._weights, self._divided = RowCursor(), list[Place]()

    def begin(self) -> None:
        self._looks: list[float] = []
        self._begun = -1

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        yield from super().examine(history)
        world = history.facts.get("world_size")
        if isinstance(world, int) and world > 1 and not splits_model(history):
            for one in self._norms.new(history):
                yield from self._beside(history, one, world)
            yield from self._of_weights(history, world)

    def _of_weights(self, history: RunHistory, world: int) -> Iterator[Finding]:
        """A loss that is divided by the number of ranks, whose gradients a wrapper averages."""
        for place, value in self._weights.each(history.channel("model/loss_weight")):
            averaged, passes, width = (
                watched(history, name, place) for name in ("averaged_ranks", "backwards", "output_width")
            )
            parts = numeric_setting(history, *ACCUMULATION)
            meant = (passes == 1 and not parts > 1) or 1 < passes == parts != world
            same = meant and abs(value * world * passes - 1) < 0.002 and averaged == world
            if not same or scaled_loss(history, place[1]):
                self._divided = []
                continue
            self._divided = [look for look in self._divided if look[2] == place[2]] + [place]
            given = history.channel("model/loss_given")
            if len(self._divided) != self.at["weights"] or given is None or not came_by(given, place[1]):
                continue
            share = given.first * world / math.log(width) if width > 1 else math.nan
            if abs(share - 1) < self.at["guess"] and self.first(place[2]):
                yield self.finding(
                    self._divided[0][0], f"The loss is divided by {world}, the number of ranks, and its gradients are "
                    "averaged over them, too.", found=place[0], segment=place[2], confidence=0.9,
                    evidence={"weight": rounded(value), "ranks": world, "standing": True},
                    causes=[_OFTEN, _TWICE],
                    remedies=["leave the loss of each rank a mean: the wrapper averages over ranks"],
                )  # fmt: skip

    def _beside(self, history: RunHistory, one: Given, world: int) -> Iterator[Finding]:
        """A look at the logged norm beside that of the rank's own gradient."""
        if self._pairs and self._pairs[-1].place[2] != one.place[2]:
            self._pairs = []
        if not one.times > 0 or scaled_loss(history, one.place[1]):
            return
        self._pairs.append(one)
        count, place = int(self.at["looks"]), one.place
        growth = 1 / numpy.array([pair.times for pair in self._pairs])
        if len(growth) < count:
            return
        middle = float(numpy.median(growth))
        clipped = history.channel("model/clip_coefficient")
        shown = clipped is not None and bool((newest(clipped, *place, count) > 1).any())  # by itself
        if not shown and self._added(growth, world) and self._is_mean(history, place) and self.first(place[2]):
            yield self._say_added(self._pairs[0].place[0], middle, len(growth), world, place)
        single = watched(history, "backwards", place) == 1 or one.passes == 1
        single = single and not numeric_setting(history, *ACCUMULATION) > 1
        twice = bool((growth <= self.at["slack"] / world).all()) and middle >= 0.5 * world**-1.5
        if twice and single and self._before_clipping(history) and self.first(place[2]):
            yield self.finding(
                self._pairs[0].place[0], f"Between the backward pass and the step, gradients become {middle:.3g} times "
                f"as large in the median of {len(growth)} looks: they are divided by {world}, the number of ranks, "
                "more than once.", found=place[0], segment=place[2], confidence=0.9,
                evidence={"times": rounded(middle), "ranks": world, "standing": True}, causes=[_TWICE],
                remedies=["divide by the number of ranks once: behind `all_reduce`, or in the loss"],
            )  # fmt: skip

    def _before_clipping(self, history: RunHistory) -> bool:
        """Whether the logged norms are those before clipping: above the step's, or not at one bound."""
        used = [watched(history, "grad_norm", pair.place) for pair in self._pairs]
        above = any(pair.logged > self.at["slack"] * own for pair, own in zip(self._pairs, used, strict=True))
        highest = sorted(pair.logged for pair in self._pairs)[-2:]
        return above or highest[1] > 1.01 * highest[0]

    def asked(self, history: RunHistory) -> list[Source]:
        return [*super().asked(history), (history.channel("model/gradient_growth"), self._own)]

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        world = history.facts.get("world_size")
        if not isinstance(world, int) or world < 2 or not math.isfinite(value):
            return
        self._begun = place[0] if self._begun < 0 else self._begun
        self._looks.append(value)
        if len(self._looks) < self.at["looks"] or splits_model(history) or not self._is_mean(history, place):
            return
        looks = numpy.array(self._looks)
        if self._added(looks, world) and self.first(place[2]):
            yield self._say_added(self._begun, float(numpy.median(looks)), len(looks), world, place)

    def _added(self, looks: numpy.ndarray, world: int) -> bool:
        """Whether norms grow between the backward pass and the step as sums of all ranks' gradients do."""
        least = max(self.at["times"], self.at["root"] * math.sqrt(world))
        grown = bool((looks > 1).mean() >= self.at["above"] and looks.max() <= self.at["most"] * world)
        return grown and float(numpy.median(looks)) >= least

    def _say_added(self, begun: int, middle: float, count: int, world: int, place: Place) -> Finding:
        return self.finding(
            begun, f"Between the backward pass and the step, gradients become {middle:.3g} times as large in the "
            f"median of {count} looks: those of {world} ranks are added, and not divided by {world}.",
            found=place[0], segment=place[2], confidence=0.95,
            evidence={"times": rounded(middle), "ranks": world, "standing": True},
        )  # fmt: skip

    def _is_mean(self, history: RunHistory, place: Place) -> bool:
        """Whether the loss of this rank is a mean over what it was given itself."""
        if scaled_loss(history, place[1]):
            return False
        weight, passes = watched(history, "loss_weight", place), max(1.0, watched(history, "backwards", place))
        if math.isfinite(weight):
            return abs(weight * passes - 1) <= self.at["same"] or _begins_at_a_guess(
                history, place, passes, self.at["guess"]
            )
        return watched(history, "loss_undivided", place) == 1


def _begins_at_a_guess(history: RunHistory, place: Place, passes: float, slack: float) -> bool:
    """Whether the first loss was a guess's among the classes, as of a mean that weighs classes: one that is divided by
    the targets of all ranks would have been a part of it."""
    given, width = history.channel("model/loss_given"), watched(history, "output_width", place)
    if given is None or not width > 1 or not came_by(given, place[1]) or passes != 1:
        return False
    return abs(given.first / math.log(width) - 1) < slack


_OFTEN = "loss divided too often: by the number of ranks, over which its gradients are averaged, too"
_TWICE = "gradients divided by the ranks twice: they are averaged already"


RULES = (SummedOverRanks,)
